"""The tasks extension of MCP: what it asks of a server that makes tasks of calls, and of their client."""

from __future__ import annotations

from typing import Final

from tests.requirements.mcp import CLIENT, SERVER, of
from tests.requirements.requirement import Revision, Source

_PAGE: Final = "https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/draft/tasks.md"


def _at(heading: str) -> tuple[Source, ...]:
    return (Source(Revision.MCP_TASKS, heading, f"{_PAGE}#{heading}"),)


MCP_TASKS: Final = (
    *of(
        SERVER,
        _at("capability-negotiation"),
        {
            "tasks-declared": (
                "A client that did not declare the extension with its very request is given no task"
            ),
        },
    ),
    *of(
        SERVER,
        _at("capability-negotiation"),
        {"tasks-missing": "What only a task could give is refused with -32021 without the extension"},
    ),
    *of(
        CLIENT,
        _at("capability-negotiation"),
        {
            "tasks-either": "A call may be answered with a result or with a task",
            "tasks-elsewhere": "A task in answer to any other request is no answer",
        },
    ),
    *of(
        SERVER,
        _at("polymorphic-results"),
        {"tasks-result-type": "`task` is the type of a result that makes a task, and of no other"},
    ),
    *of(
        SERVER,
        _at("task-status"),
        {"tasks-failed": "Only a JSON-RPC error makes a task fail, and stands in it; all else completes it"},
    ),
    *of(
        SERVER,
        _at("task-creation"),
        {"tasks-there": "A task that a call is answered with can be got at once"},
    ),
    *of(
        SERVER,
        _at("task-polling"),
        {
            "tasks-get": "tasks/get says how the task stands, with its result, its error or all that it asks",
            "tasks-complete": "What tasks/get, tasks/update and tasks/cancel answer is `complete`",
        },
    ),
    *of(
        CLIENT,
        _at("task-update-requests"),
        {
            "tasks-asked": "What a task asks is asked like what a call asks",
            "tasks-answered": "Answers go to questions that are open",
        },
    ),
    *of(
        SERVER,
        _at("task-update-requests"),
        {
            "tasks-keys": "No two questions of a task have one key, not even one after the other",
            "tasks-updated": "tasks/update is acknowledged with an empty result",
        },
    ),
    *of(
        CLIENT,
        _at("task-cancellation"),
        {"tasks-cancelled-by": "A task is cancelled with tasks/cancel, and not with a notification"},
    ),
    *of(
        SERVER,
        _at("task-cancellation"),
        {"tasks-cancel": "tasks/cancel is acknowledged with an empty result"},
    ),
    *of(
        SERVER,
        _at("task-status-notifications"),
        {
            "tasks-listen": "To listen for tasks without the extension is refused with -32021",
            "tasks-news": "The stream of a task brings neither progress nor log messages",
        },
    ),
    *of(
        CLIENT,
        _at("streamable-http-routing-headers"),
        {"tasks-header": "Requests about a task name it in Mcp-Name"},
    ),
    *of(
        SERVER,
        _at("protocol-errors"),
        {
            "tasks-unknown": "A task that does not exist is -32602",
            "tasks-refused": "Requests about tasks without the extension are refused with -32021",
        },
    ),
    *of(
        SERVER,
        _at("security-considerations"),
        {
            "tasks-guessed": "Nobody can guess the id of a task",
            "tasks-owner": "A task is there for whoever made it, and for nobody else",
        },
    ),
)
"""Every sentence, in the order of the document."""
