"""`mcp-a2a call`: one skill of an agent, called from a shell.

A call is a conversation in turns. Each turn runs in an event loop of its own, and what the agent asks is asked
between them, in the main thread, where Ctrl+C and Ctrl+D reach whoever is asked.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import click

from bridge.cli import forms
from bridge.cli.card import Connection, connection_options, tool_on
from bridge.errors import PeerError, UsageError

if TYPE_CHECKING:
    from bridge.a2a.card import FoundCard
    from bridge.a2a.client import AgentClient
    from bridge.a2a.models import AgentCard, Message, Part, StreamResponse, Task, TaskStatus
    from bridge.cli.results import CallView
    from bridge.jsonvalues import JsonObject
    from bridge.mcp.tools import Tool

_CANCEL_SECONDS: Final = 10.0
"""How long an agent may take to cancel a task that nobody waits for any more."""

_PAIR: Final = re.compile(r"([^=]+)=(.*)", re.DOTALL)
_CODES: Final[Mapping[str, int]] = {"COMPLETED": 0, "FAILED": 1, "REJECTED": 1, "CANCELED": 1}
"""How a task ended, and the exit code for it."""

_JSON: Final = "application/json"
_ASKING: Final = frozenset({"INPUT_REQUIRED", "AUTH_REQUIRED"})


@click.command()
@click.argument("url", metavar="AGENT_URL")
@click.argument("words", nargs=-1, metavar="[SKILL] [KEY=VALUE]...")
@click.option("--json", "arguments", metavar="OBJECT", help="All arguments as one JSON object.")
@click.option("--text", help="Send this text instead of arguments; SKILL may be left out then.")
@click.option(
    "--json-output", is_flag=True, help="Print each event as one line of JSON, and nothing else but faults."
)
@click.option(
    "--save",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Save the files of the results in this folder.",
)
@click.option(
    "--no-wait", is_flag=True, help="Print the task's id, and no results, and leave the task to itself."
)
@click.option(
    "--timeout-seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="How long the agent may take between two questions. Default: as long as it likes.",
)
@click.option(
    "--trust",
    multiple=True,
    metavar="ORIGIN",
    help="Send the headers also to this origin, when the card says to call it there. Repeatable.",
)
@connection_options
def call(**options: Any) -> int:
    """Call a skill of an agent, and show what becomes of it.

    Results go to stdout, all else to stderr; data that only repeats a text or a file is left to --json-output.
    A value of KEY=VALUE is read as the skill's schema says, and where there is none as JSON, if it is JSON. An
    array may be given item by item: KEY=VALUE KEY=VALUE.

    \b
    mcp-a2a call http://127.0.0.1:8080 echo message=hello
    mcp-a2a call http://127.0.0.1:8080 search --json '{"query": "bridges", "limit": 3}'
    mcp-a2a call --text "What can you do?" https://agent.example.com

    What the agent asks for is asked at the terminal, where Ctrl+D declines. Ctrl+C cancels the task.

    Exit codes: 0 the task is completed, 1 it is not (failed, rejected, canceled, or waiting for an answer and
    there is no terminal, or --no-wait), 2 the command is at fault, 130 interrupted.
    """
    import anyio

    from bridge.cli.results import CallView

    connection = Connection.from_options(options)
    said = _Said.from_options(options)
    view = CallView(json_lines=options["json_output"], id_only=options["no_wait"], save=options["save"])
    found = anyio.run(connection.card)
    _require_trusted(found, connection, options["trust"])
    talk = _Conversation(connection, found.card, view, options["timeout_seconds"])
    message = talk.message(said.parts(found.card), said.metadata)
    try:
        return talk.begin(message) if options["no_wait"] else talk.run(message)
    except KeyboardInterrupt:
        talk.cancel()
        raise
    finally:
        view.settle()


@dataclass(frozen=True)
class _Said:
    """What the command line asks the agent for."""

    skill: str | None
    pairs: dict[str, tuple[str, ...]]
    """What was given for each argument; more than one text when it was given more than once."""
    arguments: JsonObject | None
    text: str | None

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> _Said:
        words: list[str] = list(options["words"])
        skill = words.pop(0) if words and "=" not in words[0] else None
        pairs = [_PAIR.fullmatch(word) for word in words]
        text, given = options["text"], options["arguments"]
        try:
            " ".join([*options["words"], text or "", given or ""]).encode()
        except UnicodeEncodeError as exc:
            raise UsageError("the command line is not in UTF-8") from exc
        if wrong := [word for word, pair in zip(words, pairs, strict=True) if pair is None]:
            raise UsageError(f"arguments are given as KEY=VALUE, not {wrong[0]!r}")
        if sum((bool(pairs), given is not None, text is not None)) > 1:
            raise UsageError("give KEY=VALUE, --json or --text: one of them")
        if skill is None and text is None:
            raise UsageError(
                "which skill? Name it after the URL, or give --text (mcp-a2a card URL lists them)"
            )
        said: dict[str, tuple[str, ...]] = {}
        for pair in filter(None, pairs):
            said[pair[1]] = (*said.get(pair[1], ()), pair[2])
        return cls(skill, said, _object_from(given), text)

    @property
    def metadata(self) -> JsonObject | None:
        """Names the skill, for agents that look there."""
        from bridge.translate.extension import SKILL

        return {SKILL: self.skill} if self.skill else None

    def parts(self, card: AgentCard) -> tuple[Part, ...]:
        """What is sent: the text, or the arguments as data.

        Raises:
            UsageError: an argument has two values, or the skill says that it takes no such argument.
        """
        from bridge.a2a.models import Part

        if self.text is not None:
            return (Part(text=self.text),)
        tool = tool_on(card, self.skill)
        arguments = self.arguments
        if arguments is None:
            arguments = {name: forms.typed_all(texts, name, tool) for name, texts in self.pairs.items()}
        if tool is not None:
            forms.check_names(arguments, tool, self.skill or "")
        return (Part(data=arguments, media_type=_JSON),)


class _Conversation:
    """A call with its turns, until its task has ended or nobody can answer."""

    def __init__(
        self, connection: Connection, card: AgentCard, view: CallView, timeout_seconds: float | None
    ) -> None:
        self._connection = connection
        self._card = card
        self._view = view
        self._timeout_seconds = timeout_seconds
        self._task_id: str | None = None
        self._context_id: str | None = None
        self._status: TaskStatus | None = None
        """The task's newest status; None when there is no task."""
        self._replied = False
        """Whether the agent answered with a message, which is all there is then."""
        self._answered: TaskStatus | None = None
        """The question that was answered last. The next turn may begin with it, as the task still says so."""

    def begin(self, message: Message) -> int:
        """Send the first message and leave the task to itself."""
        import anyio

        anyio.run(self._turn, message, True)
        if self._task_id is None:
            return self._code()
        self._view.left(self._task_id)
        if self._state in _ASKING:
            self._view.waits()
            return 1
        return _CODES.get(self._state or "", 0)

    def run(self, message: Message) -> int:
        """Send the first message, show what comes, and answer what is asked; the exit code."""
        import anyio

        from bridge.cli.render import can_ask

        while True:
            anyio.run(self._turn, message)
            self._view.settle()
            if self._state not in _ASKING or not can_ask():
                return self._code()
            assert self._status is not None
            answer = forms.answer_to(self._status, self._tool, is_first=self._answered is None)
            if answer is None:
                self.cancel()
                return 1
            self._answered = self._status
            message = self.message(*answer)

    def cancel(self) -> None:
        """Cancel the task, as far as there is one that goes on."""
        import anyio

        self._view.settle()
        if self._task_id is not None and self._state not in _CODES:
            anyio.run(self._cancel, self._task_id)

    def message(self, parts: tuple[Part, ...], metadata: JsonObject | None) -> Message:
        """A message of the conversation."""
        from bridge.a2a.models import Message, Role

        return Message(
            message_id=str(uuid4()),
            task_id=self._task_id,
            context_id=self._context_id,
            role=Role.USER,
            parts=parts,
            metadata=metadata,
        )

    def _tool(self, skill: str) -> Tool | None:
        return tool_on(self._card, skill)

    @property
    def _state(self) -> str | None:
        return self._status.state.name if self._status else None

    def _code(self) -> int:
        if self._replied:
            return 0
        if self._state in _ASKING:
            self._view.unanswered()
            return 1
        if (code := _CODES.get(self._state or "")) is not None:
            return code
        where = f"while the task was {self._state}" if self._state else "and said nothing"
        raise PeerError(f"the agent ended its answer {where}. {self._what_now()}")

    def _what_now(self) -> str:
        """What to do about a task that nobody listens to any more."""
        if self._task_id is None:
            return "If it began a task, that may still run; it did not say its id."
        return f"The task may still run: ask the agent with its id, {self._task_id} (GetTask, or CancelTask)."

    async def _turn(self, message: Message, no_wait: bool = False) -> None:
        import anyio

        from bridge.a2a.card import interface_of
        from bridge.a2a.client import AgentClient
        from bridge.a2a.fetch import shown

        try:
            with anyio.fail_after(self._timeout_seconds):
                async with self._connection.client() as http:
                    client = AgentClient(http, self._card)
                    async with aclosing(self._events(client, message, no_wait)) as events:
                        async for event in events:
                            self._view.show(event)
                            if self._ends_turn(event):
                                return
        except TimeoutError as exc:
            task = f"; the task {self._task_id} goes on" if self._task_id else ""
            raise PeerError(f"the agent was not done within {self._timeout_seconds:g} s{task}") from exc
        except PeerError as exc:
            if _broke_off(exc):
                agent = shown(interface_of(self._card).url)
                broken = f"the connection to {agent} broke off before the agent was done"
                raise PeerError(f"{broken}. {self._what_now()}") from exc
            raise

    async def _events(
        self, agent: AgentClient, message: Message, no_wait: bool
    ) -> AsyncGenerator[StreamResponse, None]:
        from bridge.a2a.models import SendMessageConfiguration, SendMessageRequest, StreamResponse, Task

        streams = bool(self._card.capabilities.streaming) and not no_wait
        source = None
        if self._state == "AUTH_REQUIRED" and (task := await self._gone_on(agent)):
            yield StreamResponse(task=task)
            source = agent.subscribe(task.id) if streams else None
        configuration = SendMessageConfiguration(return_immediately=no_wait or None)
        request = SendMessageRequest(message=message, configuration=configuration)
        if not streams:
            answer = await agent.send(request)
            yield StreamResponse(task=answer) if isinstance(answer, Task) else StreamResponse(message=answer)
            return
        async with aclosing(source or agent.stream(request)) as events:
            async for event in events:
                yield event

    async def _gone_on(self, agent: AgentClient) -> Task | None:
        """The task, when it went on by itself once it was authorised (section 7.6.1)."""
        assert self._task_id is not None
        task = await agent.get(self._task_id)
        return task if task.status.state.name not in _ASKING else None

    def _ends_turn(self, event: StreamResponse) -> bool:
        """Take note of an event; whether it is the last of its turn, even if the stream stays open."""
        if event.message is not None:
            self._replied = True
            return True
        if event.task is not None:
            self._task_id, self._context_id = event.task.id, event.task.context_id
            status = event.task.status
        elif event.status_update is not None:
            self._task_id, self._context_id = event.status_update.task_id, event.status_update.context_id
            status = event.status_update.status
        else:
            return False
        self._status = status
        return status != self._answered and (self._state in _CODES or self._state in _ASKING)

    async def _cancel(self, task_id: str) -> None:
        import anyio

        from bridge.a2a.client import AgentClient
        from bridge.a2a.models import StreamResponse

        try:
            with anyio.fail_after(_CANCEL_SECONDS):
                async with self._connection.client() as http:
                    task = await AgentClient(http, self._card).cancel(task_id)
        except (PeerError, TimeoutError) as exc:
            self._view.not_canceled(task_id, str(exc) or "it did not answer")
        else:
            self._view.show(StreamResponse(task=task))


def _broke_off(exc: PeerError) -> bool:
    """Whether the agent had been reached when the connection to it failed."""
    import httpx2

    cause = exc.__cause__
    unreached = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, httpx2.UnsupportedProtocol)
    return isinstance(cause, httpx2.TransportError | httpx2.StreamError) and not isinstance(cause, unreached)


def _object_from(text: str | None) -> JsonObject | None:
    from bridge.translate.arguments import json_in

    value = next(iter(json_in(text)), None) if text is not None else None
    if text is not None and not isinstance(value, dict):
        raise UsageError(f"--json takes a JSON object, not {text[:80]!r}")
    return value if isinstance(value, dict) else None


def _require_trusted(found: FoundCard, connection: Connection, trusted: tuple[str, ...]) -> None:
    """Keep the headers with the origin that they were given for, wherever a card may point.

    Raises:
        PeerError: the card says to call another origin, which is not trusted.
    """
    from bridge.a2a.card import interface_of
    from bridge.a2a.fetch import origin_of, shown

    url = interface_of(found.card).url
    known = {origin_of(one) for one in (connection.url, *trusted)}
    if connection.headers and origin_of(url) not in known:
        raise PeerError(
            f"the card at {shown(found.url)} says to call {shown(url)}, which is another origin, so the headers "
            f"are not sent there. If you trust it, add --trust {origin_of(url)}"
        )
