"""Calls a tool of an MCP server: `mcp-a2a call` without an agent.

The server's questions become questions of a task, so that the person is asked as for an agent.

The connection has an event loop on its own thread, and goes on listening while the person is asked. The main thread
prints and asks, because Ctrl+C and Ctrl+D reach the prompt there: it takes steps from a queue until the call is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import Any, Final, TypeVar
from uuid import uuid4

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from pydantic import JsonValue

from bridge.a2a.model.objects import Message, Part, Role, TaskState, TaskStatus
from bridge.assembly.plan import Plan
from bridge.cli import forms, render
from bridge.cli.call import questions as answers
from bridge.cli.call.arguments import CallRequest
from bridge.cli.call.results import CallView
from bridge.cli.login.login import with_stored_logins
from bridge.cli.option_document import era_of, plan_of, server_at, server_of
from bridge.concurrency import done_at_once, done_slowly
from bridge.errors import PeerError, UsageError, echoed, leaf_of
from bridge.local.file_names import named_by_type
from bridge.mcp.client.faults import ServerRefusedError
from bridge.mcp.client.rounds import Round, result_in_rounds
from bridge.mcp.client.server_tasks import follow, handle_from
from bridge.mcp.client.session import Session, resource_of
from bridge.mcp.client.values import ProgressReport, ToolCall
from bridge.mcp.messages import ELICIT
from bridge.mcp.tools import Tool
from bridge.text.jsonvalues import JsonObject
from bridge.tools_as_agent.route import words_on_misfits
from bridge.tools_as_agent.task_asker import PausableDeadline
from bridge.translate import own_questions
from bridge.translate.arguments import Problem, coerced_fields, describe, problems_of, properties_of
from bridge.translate.content import LinkRules, links_to_read, parts_from_result
from bridge.translate.elicitation import (
    Elicitation,
    answers_from,
    elicitation_from,
    parts_of_questions,
    question_metadata,
    required_urls,
    state_of_questions,
)
from bridge.translate.extensions.bridge import BLOCK, PROGRESS, QUESTION
from bridge.translate.message_to_call import answer_in, arguments_in
from bridge.translate.outcome import URL_REQUIRED, parts_of_failure, state_of_error
from bridge.translate.result import ARTIFACT_META

_CANCEL_SECONDS: Final = 10.0
"""How long the command tries to send a cancellation to the server."""

_LINKS: Final = LinkRules(extension_active=True, allow_file=True)
"""Show every link unchanged: a person who calls a server from a shell may see links to its disk."""

_FOR_AGENTS: Final = ("task_id", "no_wait", "trust", "api_key", "dialect", "binding", "explain")
"""The parameter names of options that are for agents only."""

_T = TypeVar("_T")


class _NobodyToAskError(Exception):
    """The server asks a question, and there is no terminal."""


class _CallDeclinedError(Exception):
    """The person declined a question that the call needs."""


class NoServerError(PeerError):
    """No MCP server could be reached."""


def options_for_agents(options: Mapping[str, Any]) -> Iterator[str]:
    """The given options that are for agents only."""
    return (f"--{name.removesuffix('_id').replace('_', '-')}" for name in _FOR_AGENTS if options[name])


def require_none_for_agents(options: Mapping[str, Any]) -> None:
    """Refuse options that are for agents only.

    Raises:
        UsageError: such an option was given.
    """
    for option in options_for_agents(options):
        raise UsageError(f"{option} is for agents, and this is an MCP server")


def server_from(options: Mapping[str, Any]) -> Plan:
    """The plan of the tool server that a command line names by its command or its URL.

    Raises:
        UsageError: the options do not fit the server.
    """
    words = options["server"]
    table = server_of(words, options) if words else server_at(options["url"], options)
    return with_stored_logins(plan_of({"tool_servers": {"server": {**table, **era_of(options)}}}))


class ToolCalling:
    """One call, from the connection to its result; used once."""

    def __init__(self, plan: Plan, request: CallRequest, view: CallView, options: Mapping[str, Any]) -> None:
        """Reads `json_output`, `save`, `timeout_seconds` and `trace` of the options."""
        self._request = request
        self._view = view
        self._json_lines: bool = options["json_output"]
        self._saves: bool = options["save"] is not None
        self._links_most = plan.profile.content.links_most
        self._timeout_seconds: float | None = options["timeout_seconds"]
        (server,) = plan.servers.values()
        self._session = Session(str(server.target), server.target, era=server.era, settings=server.settings)
        self._tries = plan.profile.run.answer_tries
        self._task_ttl_ms = round(plan.profile.run.task_timeout_seconds * 1000)
        if options["trace"]:
            self._session.on_hop = self._hop
        self._steps: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._patience: PausableDeadline | None = None
        self._portal: BlockingPortal
        self._has_asked = False

    def run(self) -> int:
        """Connect, call and show the result; return the exit code.

        Raises:
            UsageError: there is no such tool, or its schema does not accept the arguments.
            NoServerError: no server can be reached.
            PeerError: the server broke off the call.
        """
        try:
            with start_blocking_portal() as self._portal:
                future = self._portal.start_task_soon(self._connected)
                future.add_done_callback(lambda _: self._steps.put(None))
                try:
                    while (step := self._steps.get()) is not None:
                        step()
                except BaseException:
                    self._cancel(future)
                    raise
                return future.result()
        except _NobodyToAskError:
            self._view.unasked()
            return answers.EXIT_UNANSWERED
        except BaseExceptionGroup as group:
            raise leaf_of(group) from group
        finally:
            self._view.settle()

    def _cancel(self, future: Future[int]) -> None:
        """Cancel the call while the connection is still open, so that the server gets the cancellation."""
        if self._patience is not None and not future.done():
            self._portal.call(self._patience.scope.cancel)
            wait([future], _CANCEL_SECONDS)

    async def _connected(self) -> int:
        async with self._session.run():
            try:
                await self._session.ready()
            except PeerError as exc:
                raise NoServerError(str(exc), detail=exc.detail) from exc
            self._patience = PausableDeadline(self._timeout_seconds or float("inf"))
            self._patience.resume()
            with self._patience.scope:
                return await self._call()
        raise PeerError(f"the tool did not finish within {self._timeout_seconds:g} s, and was cancelled")

    async def _call(self) -> int:
        """Read the arguments of the command line, call the tool and print the result."""
        tool = self._tool()
        if tool is None:
            return await self._in_main(self._list)
        try:
            arguments = await self._checked(self._arguments(tool), tool)
            result = await self._result(ToolCall(tool.name, arguments, task_ttl_ms=self._task_ttl_ms))
        except _CallDeclinedError:
            return await self._ended(TaskState.REJECTED, (Part(text="The question was declined"),))
        except ServerRefusedError as exc:
            self._tell({"error": {"code": exc.code, "message": str(exc), "data": exc.data}})
            return await self._ended(state_of_error(exc.code), (Part(text=str(exc)),))
        return await self._finish(tool, result)

    # The tool and its arguments

    def _tool(self) -> Tool | None:
        """The tool that the command line names; None when it names none."""
        name = self._request.skill
        tool = next((one for one in self._session.listing.tools if one.name == name), None)
        if tool is None and (name is not None or self._request.has_answer):
            words = f"there is no tool {name!r}" if name is not None else "which tool?"
            listed = [f"  {line}" for line in self._listed()]
            raise UsageError("\n".join([f"{words}; the server has:", *listed]))
        return tool

    def _list(self) -> int:
        if self._json_lines:
            for tool in self._session.listing.tools:
                self._view.message(tool.listed)
        else:
            render.write("".join(f"{line}\n" for line in self._listed()))
        return 0

    def _listed(self) -> list[str]:
        """The server's tools, one line each, and the reason for each tool that cannot be called."""
        tools, left_out = self._session.listing.tools, self._session.listing.left_out
        width = max((len(tool.name) for tool in tools), default=0)
        lines = [f"{tool.name:{width}}  {_first_line(tool)}".rstrip() for tool in tools]
        lines += [f"{one.name}  (cannot be called: {one.reason})" for one in left_out]
        lines += [
            f"{one.name}  (not all arguments are checked: {one.unchecked})" for one in tools if one.unchecked
        ]
        return lines or ["no tools"]

    def _arguments(self, tool: Tool) -> JsonObject:
        request = self._request
        if request.text is not None:
            found = done_at_once(partial(arguments_in, (Part(text=request.text),), tool, None))
            if not found:
                raise UsageError(f"--text does not say which argument of {tool.name} it is for")
            return found
        arguments = request.arguments
        if arguments is None:
            arguments = {name: forms.typed_all(texts, name, tool) for name, texts in request.pairs.items()}
        forms.check_names(arguments, tool, tool.name)
        return arguments

    async def _checked(self, arguments: JsonObject, tool: Tool) -> JsonObject:
        """The arguments, which fit the tool's schema. The person is asked for missing and wrong arguments."""
        tries = 0
        while problems := await done_slowly(partial(problems_of, tool, arguments)):
            fields = [one.name for one in problems if one.name in properties_of(tool.input_schema)]
            tries += 1
            if not fields or not render.can_ask() or tries > self._tries:
                faults = [f"  {describe(tool, problem)}" for problem in problems]
                raise UsageError("\n".join([f"{tool.name} does not take these arguments:", *faults]))
            parts = own_questions.arguments(tool.name, tool, arguments, problems)
            asked = _message(parts, {QUESTION: own_questions.ARGUMENTS})
            answer = await self._ask_person(TaskStatus(state=TaskState.INPUT_REQUIRED, message=asked), tool)
            if (
                own_questions.action_of_message(answer, frozenset(fields))
                is not own_questions.ElicitAction.ACCEPT
            ):
                raise _CallDeclinedError
            answered = partial(answer_in, answer.parts, tool, fields)
            given = await done_slowly(lambda answered=answered: coerced_fields(answered(), tool))  # type: ignore[misc]
            arguments = {**arguments, **given}
        return arguments

    # The call

    async def _result(self, call: ToolCall) -> JsonObject:
        result = await result_in_rounds(call, self._once, self._answers_to)
        handle = handle_from(result)
        return result if handle is None else await follow(self._session, handle, self, self._working)

    async def _once(self, call: ToolCall) -> JsonObject:
        while True:
            try:
                return await self._session.call(call, self._progress, self)
            except ServerRefusedError as exc:
                urls = required_urls(exc.data) if exc.code == URL_REQUIRED else {}
                if not urls:
                    raise
                if any(answer["action"] != "accept" for answer in (await self.ask(urls)).values()):
                    raise _CallDeclinedError from exc

    async def _answers_to(self, asked: Round) -> JsonObject:
        return {**await self.ask(asked.questions)}

    async def _finish(self, tool: Tool, result: JsonObject) -> int:
        self._tell({"result": result})
        if (kind := result.get("resultType", "complete")) != "complete":
            raise PeerError(f"the server gave a result of an unknown kind: {str(kind)[:50]!r}")
        links = (
            replace(_LINKS, extension_active=False, read=await self._read(result)) if self._saves else _LINKS
        )
        parts = tuple(_with_artifact_names(parts_from_result(result, links)))
        if result.get("isError") is True:
            return await self._ended(TaskState.FAILED, parts_of_failure(parts))
        await self._in_main(lambda: self._view.results(parts, name=tool.name))
        return await self._ended(TaskState.COMPLETED, ())

    async def _read(self, result: JsonObject) -> Mapping[str, Sequence[JsonValue]]:
        """The contents of the links in a result that only this connection can read."""
        content = result.get("content")
        read: dict[str, Sequence[JsonValue]] = {}
        links = links_to_read(content if isinstance(content, list) else [])
        for uri in islice(links, self._links_most):  # the others are shown as links
            try:
                read[uri] = await resource_of(self._session, uri)
            except PeerError as exc:
                await self._in_main(partial(render.say, f"{echoed(uri)} cannot be saved: {exc}"))
        return read

    async def _ended(self, state: TaskState, parts: Sequence[Part]) -> int:
        """Show how the call ended; return the exit code."""
        status = TaskStatus(state=state, message=_message(parts) if parts else None)
        await self._in_main(lambda: self._view.status(status))
        return 0 if state is TaskState.COMPLETED else 1

    def _progress(self, progress: ProgressReport) -> None:
        numbers: JsonObject = {"progress": progress.progress}
        if progress.total is not None:
            numbers["total"] = progress.total
        params = numbers if progress.message is None else {**numbers, "message": progress.message}
        self._tell({"method": "notifications/progress", "params": params})
        self._working(progress.message or "", {PROGRESS: numbers})

    def _working(self, words: str, metadata: JsonObject | None = None) -> None:
        status = TaskStatus(state=TaskState.WORKING, message=_message((Part(text=words),)) if words else None)
        self._steps.put(lambda: self._view.status(status, metadata))

    def _hop(self, direction: str, text: str) -> None:
        self._steps.put(lambda: self._view.hop("mcp", direction, text))

    def _tell(self, message: JsonObject) -> None:
        self._steps.put(lambda: self._view.message(message))

    # Questions of the server: this implements `bridge.mcp.client.values.Asker`

    @property
    def is_left(self) -> bool:
        """Never: a command has no later call. See `Asker.is_left`."""
        return False

    def withdraw(self, key: str) -> None:  # noqa: ARG002 - the answer shows which question it was
        """Say that the server has withdrawn a question; see `Asker.withdraw`."""
        self._steps.put(lambda: render.say("The server has withdrawn its question: the answer was not sent."))

    def miss_question(self, calls: int) -> None:
        """Nothing to do, because there is only one call; see `Asker.miss_question`."""

    async def ask(self, questions: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:
        """Ask the person at the terminal; see `Asker.ask`.

        Raises:
            PeerError: a question cannot be asked, or no answer fits it.
        """
        given: dict[str, JsonObject] = {}
        problems: Mapping[str, tuple[Problem, ...]] = {}
        misfits = 0
        for params in questions.values():
            self._tell({"method": ELICIT, "params": params})
        while left := [
            elicitation_from(key, params) for key, params in questions.items() if key not in given
        ]:
            found = await done_slowly(
                partial(answers_from, await self._ask_person(_status_of(left, problems), None), left)
            )
            given |= found.given
            problems = found.problems
            misfits += bool(problems)
            if misfits >= self._tries:
                raise PeerError(words_on_misfits(misfits, left, problems))
        return given

    async def _ask_person(self, status: TaskStatus, tool: Tool | None) -> Message:
        """Ask the person. The timeout of the call is paused meanwhile."""

        def ask() -> answers.AnswerParts:
            self._view.status(status)
            self._view.settle()
            if not render.can_ask():
                raise _NobodyToAskError
            first, self._has_asked = not self._has_asked, True
            asked = answers.questions_in(status, lambda _: tool, takes_refusals=True)
            return answers.answer_to(asked, is_first=first)

        assert self._patience is not None
        self._patience.pause()
        try:
            parts, metadata = await self._in_main(ask)
        finally:
            self._patience.resume()
        return _message(parts, metadata, Role.USER)

    async def _in_main(self, work: Callable[[], _T]) -> _T:
        """Run `work` in the main thread, and wait for it. An exception ends the call."""
        done, found, wanted = anyio.Event(), list[_T](), True

        def step() -> None:
            if wanted:
                found.append(work())
                self._portal.call(done.set)

        self._steps.put(step)
        try:
            await done.wait()
        finally:
            wanted = False
        return found[0]


def _with_artifact_names(parts: Sequence[Part]) -> Iterator[Part]:
    """The parts. A file without a name is named after the artifact that `ARTIFACT_META` names."""
    artifact = ""
    for part in parts:
        block = (part.metadata or {}).get(BLOCK)
        meta = block.get("_meta") if isinstance(block, dict) else None
        about = meta.get(ARTIFACT_META) if isinstance(meta, dict) else None
        if isinstance(about, dict):
            artifact = name if isinstance(name := about.get("name"), str) else ""
        if artifact and part.raw is not None and part.filename is None:
            part = part.changed(filename=named_by_type(artifact, part.media_type or "") or None)  # noqa: PLW2901
        yield part


def _status_of(asked: Sequence[Elicitation], problems: Mapping[str, tuple[Problem, ...]]) -> TaskStatus:
    message = _message(parts_of_questions(asked, problems), question_metadata(asked))
    return TaskStatus(state=state_of_questions(asked), message=message)


def _message(parts: Sequence[Part], metadata: JsonObject | None = None, role: Role = Role.AGENT) -> Message:
    return Message(message_id=str(uuid4()), role=role, parts=tuple(parts), metadata=metadata)


def _first_line(tool: Tool) -> str:
    text = tool.text("description") or tool.text("title") or ""
    return next(iter(text.strip().splitlines()), "")
