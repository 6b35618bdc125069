"""`mcp-a2a tasks`: lists, shows, answers and cancels the tasks of an agent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final

import click

from bridge.cli.card import AgentConnection, call_options, has_extension, tool_on
from bridge.errors import PeerError, UsageError
from bridge.text.safe_text import shell_word

if TYPE_CHECKING:
    from pydantic import JsonValue

    from bridge.a2a.client.agent_card import FoundCard
    from bridge.a2a.model.objects import ListTasksRequest, ListTasksResponse, Message, Task
    from bridge.a2a.model.timeline import Timeline
    from bridge.cli.call.results import CallView
    from bridge.text.jsonvalues import JsonObject

_STATES: Final = (
    "submitted",
    "working",
    "input-required",
    "auth-required",
    "completed",
    "failed",
    "rejected",
    "canceled",
)
"""The states as this command spells them. `TaskState` has A2A's names, and is too slow to import for `--help`."""

_PAGE: Final = 100
"""Tasks in a page: the most that a client may ask for (A2A section 3.1.4)."""

_MOST: Final = 50
_PURPOSES: Final = ("reply", "decline", "cancel", "timeline")
"""Options that say what to do with a task. They exclude each other."""

_HISTORY: Final = 10
"""How many messages are searched for the skill of a task."""


@click.command()
@click.argument("url", metavar="URL")
@click.argument("task_id", metavar="[ID]", required=False)
@click.option(
    "--reply",
    "--answer",
    "reply",
    metavar="TEXT|JSON",
    help="Answer the question of the task: a text, or a JSON object with the fields of its form.",
)
@click.option("--decline", is_flag=True, help="Decline the question of the task.")
@click.option("--cancel", is_flag=True, help="Cancel the task.")
@click.option("--timeline", is_flag=True, help="Show only the timeline of the task.")
@click.option(
    "--all",
    "of_all",
    is_flag=True,
    help="As an operator of the bridge: list, show, answer and cancel the tasks of all principals.",
)
@click.option("--state", type=click.Choice(_STATES), help="List only tasks in this state.")
@click.option("--context", "context_id", metavar="ID", help="List only tasks of this context.")
@click.option(
    "--most",
    type=click.IntRange(1, 10_000),
    default=_MOST,
    show_default=True,
    help="List at most this many tasks, the newest first.",
)
@call_options
def tasks(**options: Any) -> int:
    """List the tasks of an agent; show, answer or cancel one.

    URL is the address of the agent, as for call. Without ID the command lists the tasks that you may see, each with its
    state, its skill, and the time of its last change. With ID it shows one task: its question, the command that answers
    it, its timeline, and its results. After an answer it watches the task, as call does.

    \b
    mcp-a2a tasks http://127.0.0.1:8080
    mcp-a2a tasks http://127.0.0.1:8080 --state input-required
    mcp-a2a tasks http://127.0.0.1:8080 0198c0de-...
    mcp-a2a tasks http://127.0.0.1:8080 0198c0de-... --reply '{"name": "Ada"}'
    mcp-a2a tasks http://127.0.0.1:8080 0198c0de-... --reply "the blue one"
    mcp-a2a tasks http://127.0.0.1:8080 0198c0de-... --cancel
    mcp-a2a tasks http://127.0.0.1:8080 0198c0de-... --timeline --json-output
    mcp-a2a tasks http://127.0.0.1:8080 --all --bearer env:TOKEN

    Exit codes: 0 the task was listed, shown or canceled, or is completed after the answer; 1 the agent is at fault, or
    the task is not completed after the answer, or could not be canceled; 2 the command is at fault; 3 the task asks
    again, and there is no terminal; 130 interrupted.
    """
    import anyio

    from bridge.a2a.model.operators import OPERATOR_URI
    from bridge.cli.call.results import CallView

    _require_one_purpose(options)
    connection = AgentConnection.from_options(options)
    if options["of_all"]:
        connection = replace(connection, asks_for=(OPERATOR_URI,))
    view = CallView(json_lines=options["json_output"], id_only=False, save=None)
    found = anyio.run(connection.card)
    if options["task_id"] is None:
        return anyio.run(_list, connection, found, options)
    with _suggesting_all(options):
        if options["reply"] is not None or options["decline"]:
            return _reply(connection, found, view, options)
        if options["cancel"]:
            return anyio.run(_cancel, connection, found, view, options["task_id"])
        return anyio.run(_show, connection, found, view, options)


@contextmanager
def _suggesting_all(options: dict[str, Any]) -> Iterator[None]:
    """If a task is not found, say how an operator finds the tasks of others."""
    from bridge.a2a.client.bindings import AgentRefusedError
    from bridge.a2a.model.errors import TASK_NOT_FOUND

    try:
        yield
    except AgentRefusedError as exc:
        if exc.kind is not TASK_NOT_FOUND or options["of_all"]:
            raise
        raise PeerError(f"{exc}. An operator of a bridge finds the tasks of others with --all") from exc


def _require_one_purpose(options: dict[str, Any]) -> None:
    doing = [name for name in _PURPOSES if options[name] not in (None, False)]
    if len(doing) > 1:
        raise UsageError(f"give one of {', '.join(f'--{name}' for name in doing)}")
    if doing and options["task_id"] is None:
        raise UsageError(f"--{doing[0]} takes a task: mcp-a2a tasks URL ID --{doing[0]}")
    if options["task_id"] is not None and (options["state"] or options["context_id"]):
        raise UsageError("--state and --context are for the list: leave out the task")


# The list


async def _list(connection: AgentConnection, found: FoundCard, options: dict[str, Any]) -> int:
    from bridge.cli import render

    listed, total = await _tasks_of(connection, found, options)
    if options["of_all"]:
        _require_owners(listed)
    if options["json_output"]:
        render.write_document("".join(task.to_json().decode() + "\n" for task in listed))
        return 0
    if not listed:
        render.result("No tasks.")
        return 0
    columns = _COLUMNS if options["of_all"] else {key: one for key, one in _COLUMNS.items() if key != "OWNER"}
    rows = [[*columns], *([cell(task) for cell in columns.values()] for task in listed)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(columns) - 1)]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, [*widths, 0], strict=True))
        render.result("  ".join(cells).rstrip())
    if total > len(listed):
        render.say(f"{total - len(listed)} more: --most {total} lists them.")
    return 0


async def _tasks_of(
    connection: AgentConnection, found: FoundCard, options: dict[str, Any]
) -> tuple[list[Task], int]:
    """The newest tasks, up to the wanted number, and the number of all tasks."""
    listed: list[Task] = []
    token = ""
    async with connection.agent(found) as agent:
        while True:
            page: ListTasksResponse = await agent.list_tasks(
                _request(options, options["most"] - len(listed), token)
            )
            listed += page.tasks
            is_last = not page.next_page_token or page.next_page_token == token or not page.tasks
            if is_last or len(listed) >= options["most"]:
                return listed[: options["most"]], max(page.total_size, len(listed))
            token = page.next_page_token


def _request(options: dict[str, Any], left: int, token: str) -> ListTasksRequest:
    from bridge.a2a.model.objects import ListTasksRequest, TaskState

    name: str | None = options["state"]
    return ListTasksRequest(
        context_id=options["context_id"],
        status=TaskState[name.upper().replace("-", "_")] if name else None,
        page_size=min(left, _PAGE),
        page_token=token or None,
        history_length=_HISTORY,
    )


def state_of(task: Task) -> str:
    """A task's state as this command spells it."""
    return task.status.state.name.lower().replace("_", "-")


def _since(task: Task) -> str:
    """The time of the task's last change of state, in the local time zone."""
    if task.status.timestamp is None:
        return ""
    return datetime.fromisoformat(task.status.timestamp).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _skill_of(task: Task) -> str:
    """The skill of a task, if its messages or metadata name one."""
    from bridge.translate.extensions.bridge import SKILL

    metadata = [task.metadata, *(one.metadata for one in task.artifacts or ())]
    named = [(one or {}).get(SKILL) for one in metadata]
    named += [skill for message in task.history or () for skill in _skills_in(message)]
    return next((one for one in named if isinstance(one, str)), "")


def _skills_in(message: Message) -> Iterator[JsonValue]:
    from bridge.translate.extensions.bridge import SKILL

    yield (message.metadata or {}).get(SKILL)
    for part in message.parts:
        if isinstance(part.data, dict):
            yield from (part.data.get(key) for key in ("skill", "tool"))


def _owner_of(task: Task) -> str:
    """The principal that owns a task; "" if the agent does not tell."""
    from bridge.a2a.model.operators import OWNER

    owner = (task.metadata or {}).get(OWNER)
    return owner if isinstance(owner, str) else ""


def _require_owners(listed: Iterable[Task]) -> None:
    """Require that each task names its owner. Agents name owners to operators only; other callers get their own tasks.

    Raises:
        PeerError: a task names no owner.
    """
    if not all(map(_owner_of, listed)):
        raise PeerError("the agent does not accept you as an operator, and shows only your own tasks")


_COLUMNS: Final[dict[str, Callable[[Task], str]]] = {
    "ID": lambda task: task.id,
    "OWNER": _owner_of,
    "STATE": state_of,
    "SKILL": _skill_of,
    "SINCE": _since,
}
"""The columns of the list. `OWNER` is for operators."""


# One task


async def _show(
    connection: AgentConnection, found: FoundCard, view: CallView, options: dict[str, Any]
) -> int:
    from bridge.a2a.model.timeline import TIMELINE_URI, timeline_of
    from bridge.cli import render
    from bridge.cli.task.timelines import timeline_lines

    connection = replace(connection, asks_for=(*connection.asks_for, TIMELINE_URI))
    async with connection.agent(found) as agent:
        task = await agent.get(options["task_id"])
    if options["of_all"]:
        _require_owners([task])
    if options["timeline"]:
        return _show_timeline(timeline_of(task), as_json=options["json_output"])
    if options["json_output"]:
        render.write_document(task.to_json().decode() + "\n")
        return 0
    rows = {
        "task": task.id,
        "owner": _owner_of(task),
        "context": task.context_id or "",
        "state": state_of(task),
        "skill": _skill_of(task),
        "since": _since(task),
    }
    for name, value in rows.items():
        if value:
            render.result(f"{name:<8} {value}")
    for line in _words_of(task, connection, found):
        render.result(line)
    for name, line in zip(chain(["timeline"], repeat("")), timeline_lines(timeline_of(task)), strict=False):
        render.result(f"{name:<8} {line}")
    for artifact in task.artifacts or ():
        render.heading(f"{artifact.name or artifact.artifact_id}:")
        view.results(artifact.parts)
    view.settle()
    return 0


def _show_timeline(timeline: Timeline, *, as_json: bool) -> int:
    from bridge.cli import render
    from bridge.cli.task.timelines import timeline_lines
    from bridge.text.jsonvalues import json_bytes

    if as_json:
        render.write_document(json_bytes(timeline.to_object()).decode() + "\n")
    else:
        for line in timeline_lines(timeline):
            render.result(line)
    return 0


def _words_of(task: Task, connection: AgentConnection, found: FoundCard) -> Iterable[str]:
    """The agent's words, and the command that answers them."""
    from bridge.cli.call import questions as answers
    from bridge.cli.call.agent_call import ASKING

    text = "\n".join(
        part.text for part in (task.status.message.parts if task.status.message else ()) if part.text
    )
    asks = task.status.state.name in ASKING
    if text:
        for place, said in enumerate(text.splitlines()):
            yield f"{'' if place else 'asks' if asks else 'says':<8} {said}"
    if asks:
        questions = answers.questions_in(
            task.status, lambda skill: tool_on(found.card, skill), takes_refusals=has_extension(found.card)
        )
        line = f"{connection.line('tasks')} {shell_word(task.id)}{' --all' if _owner_of(task) else ''}"
        yield f"{'answer':<8} {line} --reply {shell_word(answers.reply_for(questions))}"
        yield f"{'decline':<8} {line} --decline"


def _reply(connection: AgentConnection, found: FoundCard, view: CallView, options: dict[str, Any]) -> int:
    """Answer a task, then follow it as `call` does."""
    from bridge.cli.call.agent_call import AgentCalling
    from bridge.cli.call.arguments import CallRequest
    from bridge.cli.call.questions import DeclinedError

    given = _object_in(options["reply"])
    request = CallRequest(None, {}, given, options["reply"] if given is None else None, options["decline"])
    talk = AgentCalling(connection, found, view, options["timeout_seconds"])
    try:
        return talk.run(talk.resumed(options["task_id"], request))
    except DeclinedError:
        return talk.decline()
    except KeyboardInterrupt:
        click.echo(err=True)
        talk.cancel()
        raise
    finally:
        view.settle()


def _object_in(reply: str | None) -> JsonObject | None:
    """The answer as a JSON object; None when it is plain text."""
    try:
        value = json.loads(reply or "")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


async def _cancel(connection: AgentConnection, found: FoundCard, view: CallView, task_id: str) -> int:
    from bridge.a2a.model.objects import StreamResponse, TaskState

    async with connection.agent(found) as agent:
        task = await agent.cancel(task_id)
    view.show(StreamResponse(task=task))
    view.settle()
    return 0 if task.status.state is TaskState.CANCELED else 1
