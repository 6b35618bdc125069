"""The first generation of A2A: what falls to an agent, and what to a client of agents, beside what 1.0 asks of both.

The text is that of version 0.1.0, the last one before 0.2.0 gave the objects a `kind`.
"""

from __future__ import annotations

from typing import Final

from tests.requirements.requirement import Requirement, Revision, Side, Source, status_of

_SPECIFICATION: Final = "https://github.com/a2aproject/A2A/blob/v0.1.0/docs/specification.md"
_HEADINGS: Final = {
    "3.2": "32-data-format",
    "3.3": "33-streaming-transport-server-sent-events",
    "4.4": "44-server-responsibilities-for-authentication",
    "5.1": "51-purpose",
    "5.5.3": "553-agentauthentication-object",
    "6.1": "61-task-object",
    "6.5": "65-part-union-type",
    "6.7": "67-artifact-object",
    "6.11.2": "6112-jsonrpcresponse-object",
    "7.1": "71-taskssend",
    "7.1.1": "711-tasksendparams-object",
    "7.2.1": "721-sendtaskstreamingresponse-object",
    "7.2.2": "722-taskstatusupdateevent-object",
    "7.5": "75-taskspushnotificationset",
    "7.7": "77-tasksresubscribe",
    "8.1": "81-standard-json-rpc-errors",
    "8.2": "82-a2a-specific-errors",
}
_AGENT: Final = frozenset({Side.AGENT})
_CLIENT: Final = frozenset({Side.CLIENT})


def _entry(
    sides: frozenset[Side], name: str, section: str, sentence: str, deferred: str = "", diverges: str = ""
) -> Requirement:
    source = Source(Revision.A2A_0_1, section, f"{_SPECIFICATION}#{_HEADINGS[section]}")
    status, reason = status_of(deferred, diverges)
    return Requirement(
        id=name, sources=(source,), sentence=sentence, sides=sides, status=status, reason=reason
    )


A2A_0_1: Final = (
    _entry(
        _AGENT | _CLIENT,
        "a2a01-3.2-json-rpc",
        "3.2",
        "What is sent and answered is JSON-RPC 2.0 as application/json, posted to one URL",
    ),
    _entry(
        _AGENT,
        "a2a01-3.3-stream",
        "3.3",
        "A stream is 200 and text/event-stream, and each event is a whole response",
    ),
    _entry(_AGENT, "a2a01-4.4-authenticated", "4.4", "Every request is authenticated"),
    _entry(
        _AGENT | _CLIENT,
        "a2a01-5.1-card",
        "5.1",
        "There is a card, which says by `authentication` how to be let in",
    ),
    _entry(_AGENT, "a2a01-5.5.3-no-secret", "5.5.3", "The `authentication` of a card holds no secret"),
    _entry(
        _AGENT | _CLIENT,
        "a2a01-6.1-id",
        "6.1",
        "The client makes the id of a task, and the agent refers to the task by it",
    ),
    _entry(
        _AGENT | _CLIENT,
        "a2a01-6.5-parts",
        "6.5",
        "A part is a text, a file or data, which its `type` says; messages and artifacts have at least one",
    ),
    _entry(
        _AGENT | _CLIENT,
        "a2a01-6.7-artifact",
        "6.7",
        "The `index` of an artifact says which of its task it is, and `append` that its parts are more of it",
    ),
    _entry(
        _AGENT,
        "a2a01-6.11.2-response",
        "6.11.2",
        "An answer has the id of its request, or null where that is not known, and either a result or an error",
    ),
    _entry(
        _AGENT | _CLIENT,
        "a2a01-7.1-task",
        "7.1",
        "tasks/send is answered with a task, and nothing else",
    ),
    _entry(
        _AGENT | _CLIENT,
        "a2a01-7.1.1-continued",
        "7.1.1",
        "A message with the id of a task that asks goes on with that task",
    ),
    _entry(
        _AGENT,
        "a2a01-7.1.1-history",
        "7.1.1",
        "A positive `historyLength` asks for so many of the last messages, and without one there is no history",
    ),
    _entry(
        _AGENT | _CLIENT,
        "a2a01-7.2.1-events",
        "7.2.1",
        "A stream has updates of the task alone, of its status or of an artifact",
    ),
    _entry(
        _AGENT,
        "a2a01-7.2.2-final",
        "7.2.2",
        "Each update has the id of the request, and the last update of the status is `final`",
    ),
    _entry(
        _AGENT,
        "a2a01-7.5-push",
        "7.5",
        "A webhook is kept for a task",
    ),
    _entry(
        _AGENT | _CLIENT,
        "a2a01-7.7-resubscribe",
        "7.7",
        "A stream that broke off goes on by tasks/resubscribe",
    ),
    _entry(
        _AGENT | _CLIENT,
        "a2a01-8.1-errors",
        "8.1",
        "Errors have the codes of JSON-RPC, and those of A2A for what 1.0 has a code for as well",
    ),
    _entry(
        _AGENT,
        "a2a01-8.2-access",
        "8.2",
        "A caller who is not let in is answered with -32007 or -32008",
        diverges=(
            "The bridge refuses access before it reads the version of a request, and later versions use these "
            "codes for other errors. The HTTP status is 401 or 403, and the reason is in `data`"
        ),
    ),
)
"""What both sides have to keep."""
