"""`mcp-a2a call`: one skill of an agent, or one tool of an MCP server (see `tool.py`), called from a shell.

A call of a skill is a conversation in turns. Each turn runs in an event loop of its own, and what the agent asks is
asked between them, in the main thread, where Ctrl+C and Ctrl+D reach whoever is asked.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import click

from bridge.cli import answers
from bridge.cli.card import Connection, connection_options, tool_on
from bridge.cli.said import Said
from bridge.errors import PeerError, UsageError

if TYPE_CHECKING:
    from bridge.a2a.card import FoundCard
    from bridge.a2a.client import AgentClient
    from bridge.a2a.models import Message, Part, StreamResponse, TaskStatus
    from bridge.cli.results import CallView
    from bridge.jsonvalues import JsonObject
    from bridge.mcp.tools import Tool

_CANCEL_SECONDS: Final = 10.0
"""How long an agent may take to cancel a task that nobody waits for any more."""

_CODES: Final[Mapping[str, int]] = {"COMPLETED": 0, "FAILED": 1, "REJECTED": 1, "CANCELED": 1}
"""How a task ended, and the exit code for it."""

_URL: Final = re.compile("https?:", re.IGNORECASE)
_ASKING: Final = frozenset({"INPUT_REQUIRED", "AUTH_REQUIRED"})


class _WithServer(click.Command):
    """A command line at whose end, behind `--`, may stand the command of a tool server.

    Behind an agent's URL, `--` only says that no options follow.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Part the words of the call from those of the server."""
        place = self._place_of_dashes(args)
        before, behind = args[:place], args[place + 1 :]
        rest = super().parse_args(ctx, before)
        url, words = ctx.params["url"], ctx.params["words"]
        ctx.params["server"] = ()
        if url is not None and (_URL.match(url) or not behind):
            ctx.params["words"] = (*words, *behind)
        elif behind:
            ctx.params |= {
                "url": None,
                "words": words if url is None else (url, *words),
                "server": tuple(behind),
            }
        elif not ctx.resilient_parsing:
            (parameter,) = (one for one in self.params if one.name == "url")
            raise click.MissingParameter(ctx=ctx, param=parameter)
        return rest

    def _place_of_dashes(self, args: list[str]) -> int:
        """Where the first `--` is that is no option's value; the end when there is none."""
        taking = {
            name
            for one in self.params
            if isinstance(one, click.Option) and not one.is_flag
            for name in one.opts
        }
        places = (
            place
            for place, word in enumerate(args)
            if word == "--" and (place == 0 or args[place - 1] not in taking)
        )
        return next(places, len(args))


@click.command(cls=_WithServer)
@click.argument("url", metavar="URL", required=False)
@click.argument("words", nargs=-1, metavar="[SKILL|TOOL] [KEY=VALUE]... [-- COMMAND ARGS...]")
@click.option("--json", "arguments", metavar="OBJECT", help="All arguments as one JSON object.")
@click.option("--text", help="Send this text instead of arguments; SKILL may be left out then.")
@click.option(
    "--task",
    "task_id",
    metavar="ID",
    help="Go on with this task: answer what it asks with KEY=VALUE, --json or --text; or watch it.",
)
@click.option("--decline", is_flag=True, help="With --task: decline what it asks.")
@click.option(
    "--json-output", is_flag=True, help="Print each event as one line of JSON, and nothing else but faults."
)
@click.option("--trace", is_flag=True, help="Show on stderr what is sent and what comes, as JSON.")
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
@click.option(
    "--env", "variables", multiple=True, metavar="NAME[=VALUE]", help="Variable for the command. Repeatable."
)
@connection_options
def call(**options: Any) -> int:
    """Call a skill of an agent or a tool of an MCP server, and show what becomes of it.

    URL is an agent's, or else an MCP server's; a server may also be a command, after --. Without TOOL, a server's
    tools are listed.

    Results go to stdout, all else to stderr; data that only repeats a text or a file is left to --json-output.
    A value of KEY=VALUE is read as the skill's schema says, and where there is none as JSON, if it is JSON. An
    array may be given item by item: KEY=VALUE KEY=VALUE.

    \b
    mcp-a2a call http://127.0.0.1:8080 echo message=hello
    mcp-a2a call http://127.0.0.1:8080 search --json '{"query": "bridges", "limit": 3}'
    mcp-a2a call --text "What can you do?" https://agent.example.com
    mcp-a2a call echo message=hello -- npx -y @modelcontextprotocol/server-everything

    What the agent asks for is asked at the terminal, where Ctrl+D declines. Ctrl+C cancels the task. Without a
    terminal the task is left waiting, and --task answers it; a tool that asks is cancelled:

    \b
    mcp-a2a call http://127.0.0.1:8080 --task 0198c0de-... name=Ada
    mcp-a2a call http://127.0.0.1:8080 --task 0198c0de-... --decline

    Exit codes: 0 the task is completed, 1 it is not (failed, rejected, canceled), 2 the command is at fault, 3 the
    task or tool asks for an answer and there is no terminal, or --no-wait; 130 interrupted.
    """
    import anyio

    from bridge.a2a.card import NoCardError
    from bridge.cli.results import CallView

    if options["server"]:
        return _call_of_command(options)
    connection = Connection.from_options(options)
    if options["variables"]:
        raise UsageError("--env is for a command; a URL takes --header")
    said = Said.from_options(options)
    view = CallView(json_lines=options["json_output"], id_only=options["no_wait"], save=options["save"])
    try:
        found = anyio.run(connection.card)
    except NoCardError as exc:
        return _call_of_url(connection, said, view, options, exc)
    if options["trace"]:
        connection = replace(connection, on_hop=partial(view.hop, "a2a"))
    talk = _Conversation(connection, found, view, options["timeout_seconds"])
    try:
        message = talk.resumed(options["task_id"], said) if options["task_id"] else talk.opened(said)
        return talk.begin(message) if options["no_wait"] and message else talk.run(message)
    except KeyboardInterrupt:
        click.echo(err=True)  # whatever was being typed, what follows stands on a line of its own
        talk.cancel()
        raise
    finally:
        view.settle()


def _call_of_command(options: dict[str, Any]) -> int:
    """Call a tool of a server that is started for it."""
    from bridge.cli.results import CallView
    from bridge.cli.tool import ToolCalling, require_none_for_agents, server_from

    said = Said.from_options(options)
    require_none_for_agents(options)
    server = server_from(options["server"], options)
    view = CallView(json_lines=options["json_output"], id_only=False, save=options["save"])
    return ToolCalling(server, said, view, options).run()


def _call_of_url(
    connection: Connection, said: Said, view: CallView, options: dict[str, Any], no_card: PeerError
) -> int:
    """Call a tool of the MCP server at a URL that gives no agent card."""
    from bridge.cli.tool import NoServerError, ToolCalling, options_for_agents
    from bridge.mcp.transport import Url

    if any(options_for_agents(options)):
        raise no_card
    target = Url(connection.url, connection.headers)
    try:
        return ToolCalling(target, said, view, options).run()
    except NoServerError as exc:
        raise PeerError(f"{no_card}, and no MCP server: {exc}") from exc


class _Conversation:
    """A call with its turns, until its task has ended or nobody can answer."""

    def __init__(
        self, connection: Connection, found: FoundCard, view: CallView, timeout_seconds: float | None
    ) -> None:
        self._connection = connection
        self._found = found
        self._card = found.card
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

    def opened(self, said: Said) -> Message:
        """The first message of a new task."""
        return self.message(said.parts(self._card), said.metadata)

    def resumed(self, task_id: str, said: Said) -> Message | None:
        """Look at a task that is there already; the message that answers it, if the command line has an answer.

        Raises:
            UsageError: there is an answer, and the task asks nothing, or something else.
        """
        import anyio

        anyio.run(self._look, task_id)
        if not said.has_answer:
            return None
        if self._state not in _ASKING:
            raise UsageError(f"the task asks for nothing: it is {self._state}")
        answer = said.answer(self._questions())
        self._answered = self._status
        return self.message(*answer)

    def begin(self, message: Message) -> int:
        """Send a message and leave the task to itself."""
        import anyio

        anyio.run(self._turn, message, True)
        if self._task_id is None:
            return self._code()
        self._view.left(self._task_id)
        if self._state in _ASKING:
            return self._unanswered("--no-wait does not")
        return _CODES.get(self._state or "", 0)

    def run(self, message: Message | None) -> int:
        """Send a message, show what comes, and answer what is asked; the exit code. None only watches the task."""
        import anyio

        from bridge.cli.render import can_ask

        if message is not None or (self._state not in _ASKING and self._state not in _CODES):
            anyio.run(self._turn, message)
        while True:
            self._view.settle()
            if self._state not in _ASKING or not can_ask():
                return self._code()
            answer = answers.answer_to(self._questions(), is_first=self._answered is None)
            if answer is None:
                self.cancel()
                return 1
            self._answered = self._status
            anyio.run(self._turn, self.message(*answer))

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

    def _questions(self) -> list[answers.Question]:
        assert self._status is not None
        return answers.questions_in(self._status, self._tool)

    def _tool(self, skill: str) -> Tool | None:
        return tool_on(self._card, skill)

    @property
    def _state(self) -> str | None:
        return self._status.state.name if self._status else None

    def _code(self) -> int:
        if self._replied:
            return 0
        if self._state in _ASKING:
            return self._unanswered("there is no terminal to ask for it")
        if (code := _CODES.get(self._state or "")) is not None:
            return code
        where = f"while the task was {self._state}" if self._state else "and said nothing"
        raise PeerError(f"the agent ended its answer {where}. {self._what_now()}")

    def _unanswered(self, reason: str) -> int:
        questions = self._questions()
        answer = f"--task {shlex.quote(self._task_id or '')} {answers.words_for(questions)}"
        self._view.unanswered(
            reason,
            f"mcp-a2a call {shlex.quote(self._connection.url)} {answer}",
            declinable=all(question.key is not None for question in questions),
        )
        return answers.UNANSWERED

    def _what_now(self) -> str:
        """What to do about a task that nobody listens to any more."""
        if self._task_id is None:
            return "If it began a task, that may still run; it did not say its id."
        return f"The task may still run: ask the agent with its id, {self._task_id} (GetTask, or CancelTask)."

    async def _look(self, task_id: str) -> None:
        from bridge.a2a.models import StreamResponse

        async with self._connection.client() as http:
            event = StreamResponse(task=await self._connection.agent(http, self._found).get(task_id))
        self._view.show(event)
        self._ends_turn(event)

    async def _turn(self, message: Message | None, no_wait: bool = False) -> None:
        import anyio

        from bridge.a2a.fetch import shown
        from bridge.a2a.interfaces import interface_of

        try:
            with anyio.fail_after(self._timeout_seconds):
                async with self._connection.client() as http:
                    client = self._connection.agent(http, self._found)
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
        self, agent: AgentClient, message: Message | None, no_wait: bool
    ) -> AsyncGenerator[StreamResponse, None]:
        streams = bool(self._card.capabilities.streaming) and not no_wait
        if message is None or (self._state == "AUTH_REQUIRED" and await self._has_gone_on(agent)):
            source = self._watch(agent, streams)
        else:
            source = self._send(agent, message, streams, no_wait)
        async with aclosing(source) as events:
            async for event in events:
                yield event

    async def _has_gone_on(self, agent: AgentClient) -> bool:
        """Whether the task went on by itself once it was authorised (section 7.6.1); it may ask something else."""
        assert self._task_id is not None
        assert self._status is not None
        status = (await agent.get(self._task_id)).status
        if status.state.name not in _ASKING:
            return True
        before, now = self._status.message, status.message
        return before is not None and now is not None and before.message_id != now.message_id

    async def _watch(self, agent: AgentClient, streams: bool) -> AsyncGenerator[StreamResponse, None]:
        from bridge.a2a.models import StreamResponse

        assert self._task_id is not None
        # First: one that has ended cannot be subscribed to.
        yield StreamResponse(task=await agent.get(self._task_id))
        if streams:
            async with aclosing(agent.subscribe(self._task_id)) as events:
                async for event in events:
                    yield event

    async def _send(
        self, agent: AgentClient, message: Message, streams: bool, no_wait: bool
    ) -> AsyncGenerator[StreamResponse, None]:
        from bridge.a2a.models import SendMessageConfiguration, SendMessageRequest, StreamResponse, Task

        configuration = SendMessageConfiguration(return_immediately=no_wait or None)
        request = SendMessageRequest(message=message, configuration=configuration)
        if not streams:
            answer = await agent.send(request)
            yield StreamResponse(task=answer) if isinstance(answer, Task) else StreamResponse(message=answer)
            return
        async with aclosing(agent.stream(request)) as events:
            async for event in events:
                yield event

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

        from bridge.a2a.models import StreamResponse

        try:
            with anyio.fail_after(_CANCEL_SECONDS):
                async with self._connection.client() as http:
                    task = await self._connection.agent(http, self._found).cancel(task_id)
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
