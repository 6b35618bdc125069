"""One call of a tool as the work of a task: the page to read.

The task says WORKING once it is the tool's turn, then what the tool reports, then its result as one artifact,
then how it ended. A tool that fails is a task that FAILED, with all that the tool said.

What the server asks is asked of the client. When the call is open meanwhile (MCP 2025-11-25, and tasks of the
server), this waits for the answer; when the call is over and is to be made again with the answer (2026-07-28),
this ends, what the next turn needs is kept with the task, and nothing stays in memory.

Cancelling this cancels the call on the server: the SDK says so on the wire before the cancellation goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import anyio
from pydantic import JsonValue

from bridge.a2a.job import Job
from bridge.a2a.models import Artifact, Part, TaskState
from bridge.errors import PeerError
from bridge.jsonvalues import JsonObject
from bridge.mcp.asking import elicitation_in
from bridge.mcp.faults import ServerRefusedError
from bridge.mcp.session import Session
from bridge.mcp.tasks import TaskCancelledError, TaskHandle, follow, handle_from
from bridge.mcp.upstream import Upstream
from bridge.mcp.values import ToolCall
from bridge.tools_as_agent.asking import Asking, Patience, recognised
from bridge.tools_as_agent.kept import FollowedTask, Questions, ServerQuestion, Way
from bridge.tools_as_agent.options import AgentOptions
from bridge.tools_as_agent.progress import ProgressRelay
from bridge.tools_as_agent.route import Ask, End, Follow, RunTool, ask_server_questions, open_questions
from bridge.translate.arguments import whole_numbers
from bridge.translate.content import LinkRules, links_to_read, parts_from_result, peer_metadata
from bridge.translate.elicitation import required_urls
from bridge.translate.extension import PEER, SKILL, URI
from bridge.translate.faults import URL_REQUIRED, error_metadata, parts_of_failure, state_of_error
from bridge.translate.notes import unaccepted_types

logger = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS: Final = 0.1
_LONGEST_RETRY_SECONDS: Final = 10.0
"""Between two calls with which a server that asks for nothing wants to be called again."""

_STATE_REFUSED: Final = (
    "The server did not take the answer any more ({}), and the call was not made again from its start, since the"
    " server does not say that the tool can be repeated"
)

_STATE_REFUSED_AGAIN: Final = (
    "The server did not take the answer ({}), not even when the call was made again from its start"
)


class ToolRun:
    """Runs the tool that a turn asked for. Made with a reserved place on its server, which it gives back."""

    def __init__(self, decision: RunTool | Follow, upstream: Upstream, options: AgentOptions) -> None:
        self._decision = decision
        self._upstream = upstream
        self._options = options

    async def __call__(self, job: Job) -> None:
        """Take the turn from WORKING to its end, or to a question."""
        try:
            if isinstance(self._decision, Follow):
                activated = job.turn.extensions | frozenset(self._decision.task.extensions)
                job.turn = replace(job.turn, extensions=activated)
            async with self._upstream.session(job.turn.principal.name, job.events.context_id) as session:
                await self._run(job, session)
        except PeerError as exc:
            await self._end(job, TaskState.FAILED, (Part(text=str(exc)),))
        finally:
            self._upstream.release()

    async def _run(self, job: Job, session: Session) -> None:
        patience = Patience(self._options.call_timeout_seconds)
        progress, result = self._relay(job, patience), None
        call = _Call(job, session, self._decision, self._options, patience)
        with patience.scope:
            try:
                result = await call.result(progress)
            except ServerRefusedError as exc:
                progress.flush()
                if not call.gave_up:
                    return await self._refused(job, exc)
            except TaskCancelledError as exc:
                progress.flush()
                if not call.gave_up:
                    return await self._end(job, TaskState.CANCELED, (Part(text=str(exc)),))
            except PeerError:
                progress.flush()
                raise
        progress.flush()
        if call.gave_up:
            words = (
                f"No answer came within {self._options.input_timeout_seconds:g} s, so the call was given up"
            )
            return await self._end(job, TaskState.FAILED, (Part(text=words),))
        if result is None:
            words = f"The tool gave no answer in {patience.seconds:g} s and was cancelled"
            return await self._end(job, TaskState.FAILED, (Part(text=words),))
        if isinstance(result, Ask):
            return await Question(result)(job)
        return await self._finish(job, result, await self._linked(result, job))

    def _relay(self, job: Job, patience: Patience) -> ProgressRelay:
        options = self._options
        return ProgressRelay(job, options.progress_in_flight, options.progress_per_second, patience)

    async def _finish(self, job: Job, result: JsonObject, read: dict[str, Sequence[JsonValue]]) -> None:
        kind = result.get("resultType", "complete")
        if kind != "complete":
            words = f"The server gave a result of a kind that is not known here: {str(kind)[:50]!r}"
            return await self._end(job, TaskState.FAILED, (Part(text=words),))
        links = LinkRules(URI in job.turn.extensions, self._options.allow_file_links, read)
        parts = parts_from_result(result, links)
        metadata: JsonObject = {SKILL: self._decision.skill_id}
        if peer := peer_metadata(result):
            metadata[PEER] = peer
        if result.get("isError") is True:
            return await self._end(job, TaskState.FAILED, parts_of_failure(parts), metadata)
        if parts:
            job.artifact(
                Artifact(
                    artifact_id=job.new_id(), name=self._decision.skill_id, parts=parts, metadata=metadata
                )
            )
        return await self._end(job, TaskState.COMPLETED, _note_on(parts, job))

    async def _refused(self, job: Job, exc: ServerRefusedError) -> None:
        if (
            exc.code == URL_REQUIRED
            and isinstance(self._decision, RunTool)
            and (urls := required_urls(exc.data))
        ):
            asked = _asked(self._decision, Way.AGAIN, urls)
            await Question(ask_server_questions(asked, open_questions(asked)))(job)
            return
        metadata = error_metadata(exc.code, str(exc), exc.data)
        await self._end(job, state_of_error(exc.code), (Part(text=str(exc)),), metadata)

    async def _end(
        self, job: Job, state: TaskState, parts: Sequence[Part], metadata: JsonObject | None = None
    ) -> None:
        message = job.message(parts, metadata) if parts else None
        await job.status(state, message, keep=b"")

    async def _linked(self, result: JsonObject, job: Job) -> dict[str, Sequence[JsonValue]]:
        """What stands behind the links that the client could not open by itself, as far as it can be read."""
        content = result.get("content")
        if URI in job.turn.extensions or not isinstance(content, list):
            return {}
        read: dict[str, Sequence[JsonValue]] = {}
        # The tool has done its work: links that take too long are passed on as they are.
        with anyio.move_on_after(self._options.call_timeout_seconds):
            for uri in links_to_read(content):
                try:
                    contents = await self._upstream.read(uri)
                except PeerError as exc:
                    logger.info("the link %s of %s cannot be read: %s", uri, self._decision.skill_id, exc)
                    continue
                if _size_of(contents) <= self._options.inline_limit_bytes:
                    read[uri] = contents
        return read


class _Call:
    """The call of a run, from its first request to a result, in as many rounds as the server wants."""

    def __init__(
        self,
        job: Job,
        session: Session,
        decision: RunTool | Follow,
        options: AgentOptions,
        patience: Patience,
    ) -> None:
        self._job = job
        self._session = session
        self._decision = decision
        self._options = options
        self._patience = patience
        self._known = _known_answers(decision)
        self._asking: Asking | None = None

    @property
    def gave_up(self) -> bool:
        """Whether the client did not answer in time."""
        return self._asking is not None and self._asking.gave_up

    async def result(self, progress: ProgressRelay) -> JsonObject | Ask:
        """What the call gives: a result, or a question for another turn.

        Raises:
            PeerError: it gave neither.
        """
        if isinstance(self._decision, Follow):
            task = self._decision.task
            return await self._follow(TaskHandle(task.task_id, task.is_legacy))
        call, pause = _first_call(self._decision, self._options), _FIRST_RETRY_SECONDS
        is_anew = False
        while True:
            try:
                result = await self._once(call, progress)
            except ServerRefusedError as exc:
                if call.request_state is None or exc.code == URL_REQUIRED:
                    raise
                if not self._decision.tool.is_repeatable:
                    raise PeerError(_STATE_REFUSED.format(exc)) from exc
                if is_anew:
                    raise PeerError(_STATE_REFUSED_AGAIN.format(exc)) from exc
                is_anew = True
                self._known = _known_answers(self._decision, even_of_rounds=True)
                call = replace(call, input_responses=None, request_state=None)
                continue
            if (handle := handle_from(result)) is not None:
                return await self._follow(handle)
            if result.get("resultType") != "input_required":
                return result
            answers = self._answers_to(result)
            if isinstance(answers, Ask):
                return answers
            state = result.get("requestState")
            call = replace(
                call, input_responses=answers, request_state=state if isinstance(state, str) else None
            )
            if answers is None:
                await anyio.sleep(pause)
                pause = min(pause * 2, _LONGEST_RETRY_SECONDS)

    async def _once(self, call: ToolCall, progress: ProgressRelay) -> JsonObject:
        self._patience.pause()
        async with self._session.turn(self._options.queue_timeout_seconds):
            self._patience.resume()
            if self._job.turn.task is None and self._asking is None:
                self._job.status(TaskState.WORKING)
            await self._job.accepted
            self._asking = self._asking_that_keeps(partial(_kept_open, self._decision))
            return await self._session.call(call, progress, self._asking)

    async def _follow(self, handle: TaskHandle) -> JsonObject:
        """The server made a task of the call: what goes on after a restart is its id."""
        kept = FollowedTask(
            self._decision.skill_id, handle.task_id, handle.is_legacy, tuple(self._job.turn.extensions)
        ).to_bytes()
        self._patience.restart(self._options.task_timeout_seconds)
        if not isinstance(self._decision, Follow):
            self._job.status(TaskState.WORKING, keep=kept)
        self._job.outlive()
        self._asking = self._asking_that_keeps(lambda _: kept)
        return await follow(self._session, handle, self._asking, self._tell)

    def _asking_that_keeps(self, keep: Callable[[Questions], bytes]) -> Asking:
        # Nothing here leads back to this call: in a circle, the task and its result would stay in memory after
        # their end, until the garbage collector comes by.
        wind_up = partial(self._patience.restart, self._options.cancel_grace_seconds)
        return Asking(
            self._job, self._patience, self._options.input_timeout_seconds, keep, self._known, wind_up
        )

    def _tell(self, words: str) -> None:
        """What the server says about its task."""
        self._job.status(TaskState.WORKING, self._job.message((Part(text=words),)))

    def _answers_to(self, result: JsonObject) -> JsonObject | Ask | None:
        """The answers to a round, when they are known already; None when it asks nothing; else the question.

        Raises:
            PeerError: what it asks cannot be passed on.
        """
        assert isinstance(self._decision, RunTool)
        requests, state = result.get("inputRequests"), result.get("requestState")
        if not isinstance(requests, dict) or not requests:
            return None
        questions = {key: elicitation_in(request) for key, request in requests.items()}
        given = {
            key: self._known.pop(name)
            for key, params in questions.items()
            if (name := recognised(params)) in self._known
        }
        asked = replace(
            _asked(self._decision, Way.ROUND, questions),
            given=given,
            request_state=state if isinstance(state, str) else None,
        )
        if left := open_questions(asked):
            return ask_server_questions(asked, left)
        return {**given}


def _kept_open(decision: RunTool | Follow, questions: Questions) -> bytes:
    assert isinstance(decision, RunTool)
    return _asked(decision, Way.OPEN, questions).to_bytes()


def _asked(decision: RunTool, way: Way, questions: Questions) -> ServerQuestion:
    repeatable = decision.tool.is_repeatable
    return ServerQuestion(decision.skill_id, decision.arguments, way, questions, is_repeatable=repeatable)


def _first_call(decision: RunTool, options: AgentOptions) -> ToolCall:
    arguments = {name: whole_numbers(value) for name, value in decision.arguments.items()}
    call = ToolCall(decision.tool.name, arguments, task_ttl_ms=round(options.task_timeout_seconds * 1000))
    answered = decision.answered
    if answered is None or answered.way is not Way.ROUND:
        return call
    return replace(call, input_responses={**answered.given}, request_state=answered.request_state)


def _known_answers(decision: RunTool | Follow, *, even_of_rounds: bool = False) -> dict[str, JsonObject]:
    """The answers that hold when a call is made anew from its start and asks the same."""
    answered = decision.answered if isinstance(decision, RunTool) else None
    if answered is None or not (even_of_rounds or answered.way is Way.OPEN):
        return {}
    return {recognised(answered.questions[key]): answer for key, answer in answered.given.items()}


class Question:
    """Asks the client, and leaves the task waiting."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def __call__(self, job: Job) -> None:
        """Set the task to the state in which it waits."""
        message = job.message(self._ask.parts, self._ask.metadata)
        await job.status(self._ask.state, message, keep=self._ask.kept)


class Conclusion:
    """Ends the task without running anything."""

    def __init__(self, end: End) -> None:
        self._end = end

    async def __call__(self, job: Job) -> None:
        """Set the task to its end."""
        await job.status(self._end.state, job.message((Part(text=self._end.words),)), keep=b"")


def _note_on(parts: Sequence[Part], job: Job) -> tuple[Part, ...]:
    """Says which media types were delivered although the client did not name them."""
    extra = unaccepted_types(parts, job.turn.configuration.accepted_output_modes or ())
    return (Part(text=f"The result also holds {', '.join(extra)}"),) if extra else ()


def _size_of(contents: Sequence[JsonValue]) -> int:
    texts = (item.get("text") or item.get("blob") for item in contents if isinstance(item, dict))
    return sum(len(text) for text in texts if isinstance(text, str))
