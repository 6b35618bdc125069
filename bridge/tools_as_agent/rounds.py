"""Makes the call behind a run, from its first request to a result, in as many rounds as the server wants.

A server may ask a question while the call is open, end the call with a question, want another round without a question,
or turn the call into a task, which outlives the connection. The outcome is a result, or a question that the next turn
answers.

Spec: MCP 2026-07-28 basic/patterns/mrtr; 2025-11-25 client/elicitation; the tasks extension.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import anyio

from bridge import trace
from bridge.a2a.model.objects import Part, TaskState
from bridge.a2a.tasks.agent import Job
from bridge.concurrency import done_slowly, turn
from bridge.errors import PeerError
from bridge.identity.tokens.caller_token import CallerToken
from bridge.mcp.client.call_queue import CallQueue, CallSlot, Claimant, SlotHold
from bridge.mcp.client.faults import ServerRefusedError
from bridge.mcp.client.rounds import Round, result_in_rounds
from bridge.mcp.client.server_tasks import TaskHandle, follow, handle_from
from bridge.mcp.client.session import Session
from bridge.mcp.client.values import LogSink, ToolCall
from bridge.text.jsonvalues import JsonObject
from bridge.tools_as_agent.bridge_notes import words_on_waiting
from bridge.tools_as_agent.options import AgentOptions
from bridge.tools_as_agent.progress import ProgressRelay
from bridge.tools_as_agent.resume_state import (
    ElicitationsByKey,
    Follow,
    FollowedTask,
    RequireInput,
    ResumeMode,
    RunTool,
    ServerQuestion,
)
from bridge.tools_as_agent.route import ask_server_questions, open_questions
from bridge.tools_as_agent.shared_rights import view_of
from bridge.tools_as_agent.task_asker import (
    KeepQuestions,
    PausableDeadline,
    QuestionPace,
    TaskAsker,
    answers_held,
    new_occasion,
    question_fingerprint,
)
from bridge.trace import TraceContext
from bridge.translate.arguments import whole_numbers
from bridge.translate.elicitation import required_urls
from bridge.translate.extensions.bridge import early_responses
from bridge.translate.extensions.host_tasks import takes_tasks
from bridge.translate.extensions.passed_metadata import metadata_of_messages
from bridge.translate.message_to_call import with_metadata
from bridge.translate.outcome import URL_REQUIRED

_STATE_REFUSED: Final = (
    "The server did not take the answer any more ({}), and the call was not made again from its start, since the"
    " server does not say that the tool can be repeated"
)

_STATE_REFUSED_AGAIN: Final = (
    "The server did not take the answer ({}), not even when the call was made again from its start"
)


class CallInRounds:
    """One call of a tool. Used once."""

    def __init__(
        self,
        job: Job,
        queue: CallQueue,
        decision: RunTool | Follow,
        options: AgentOptions,
        patience: PausableDeadline,
        limiter: anyio.CapacityLimiter | None = None,
        *,
        is_process: bool,
        token: CallerToken | None = None,
        log_sink: LogSink | None = None,
    ) -> None:
        """`limiter` limits the concurrent calls of the skill. `is_process` says that the server is a process of this
        bridge. `token` is the token of the caller in whose name the server is called. `log_sink` takes the log messages
        of the call."""
        self._job = job
        self._queue = queue
        self._decision = decision
        self._options = options
        self._patience = patience
        self._limiter = limiter
        self._is_process = is_process
        self._token = token
        self._log_sink = log_sink
        self.followed: FollowedTask | None = None
        """The task that the server made from the call."""
        self._known = _known_answers(decision)
        self._asking: TaskAsker | None = None
        self.was_taken = False
        """Whether a round of the call has succeeded."""
        self._session: Session | None = None
        """The session of the latest round."""
        self._is_anew = False

    @property
    def gave_up(self) -> str | None:
        """Why the bridge stopped waiting for the client's answer, in words; None when it did not."""
        return self._asking.gave_up if self._asking is not None else None

    @property
    def missed(self) -> str | None:
        """The note about a question that may have belonged to this call; None without a note."""
        return self._asking.missed if self._asking is not None else None

    async def result(self, progress: ProgressRelay) -> JsonObject | RequireInput:
        """Make the call. The outcome is a result, or a question that the next turn answers.

        Raises:
            PeerError: the call failed without a result.
            BusyError: the call got no slot in time.
        """
        if isinstance(self._decision, Follow):
            task = self._decision.task
            return await self._follow(TaskHandle(task.task_id, task.is_legacy), self._queue.session)
        call = _first_call(self._decision, self._options, self._extension_metadata())
        turn = self._job.turn
        if not takes_tasks(turn.message, turn.metadata, turn.extensions):
            call = replace(call, takes_tasks=False)
        if turn.task is None and (early := early_responses(turn.message, turn.extensions)):
            call = replace(call, input_responses=early)
        if self._decision.skill.tool.stands_for is not None:
            view = view_of(self._job.turn.principal, self._options.content.allow_file_links)
            call = replace(call, may_read=view.may_read)
        roots = self._queue.session.roots
        result = await result_in_rounds(call, partial(self._once, progress), self._answers_to, roots)
        if isinstance(result, RequireInput) or (handle := handle_from(result)) is None:
            return result
        assert self._session is not None, "the call that became a task had a session"
        return await self._follow(handle, self._session)

    def _extension_metadata(self) -> JsonObject:
        """The metadata of the agent's declared extensions in the client's messages."""
        if not self._options.extensions:
            return {}
        uris = [extension.uri for extension in self._options.extensions]
        turn = self._job.turn
        earlier = (turn.task.history if turn.task else None) or ()
        return metadata_of_messages(
            uris, turn.extensions, (*earlier, with_metadata(turn.message, turn.metadata))
        )

    async def _once(self, progress: ProgressRelay, call: ToolCall) -> JsonObject | RequireInput:
        """Make one round. If the server refuses the request state, the call is made again from its start, once."""
        assert isinstance(self._decision, RunTool)
        try:
            return await self._in_turn(progress, call)
        except ServerRefusedError as exc:
            if exc.code == URL_REQUIRED and (urls := required_urls(exc.data)):
                question = server_question(self._decision, ResumeMode.AGAIN, urls)
                return ask_server_questions(question, open_questions(question))
            if call.request_state is None:
                raise
            if not self._decision.skill.tool.is_repeatable:
                raise PeerError(_STATE_REFUSED.format(exc)) from exc
            if self._is_anew:
                raise PeerError(_STATE_REFUSED_AGAIN.format(exc)) from exc
        self._is_anew = True
        self._known = _known_answers(self._decision, even_of_rounds=True)
        return await self._once(progress, replace(call, input_responses=None, request_state=None))

    async def _in_turn(self, progress: ProgressRelay, call: ToolCall) -> JsonObject:
        """Wait for a slot, make the call in the slot, and return the server's answer."""
        assert isinstance(self._decision, RunTool)
        self._patience.pause()
        waiting = trace.hop.get()
        since = 0.0 if waiting is None else anyio.current_time()
        most_seconds = self._options.run.queue_timeout_seconds
        try:
            async with (
                turn(self._limiter, self._decision.skill_id, most_seconds) as left_seconds,
                self._queue.slot(self._caller, left_seconds, self._tell_wait) as slot,
            ):
                if waiting is not None:
                    waiting.waited(self._decision.source_key, anyio.current_time() - since)
                    waiting = None
                self._patience.resume()
                self._job.sent(self._decision.source_key or self._queue.session.name)
                if self._job.turn.task is None and self._asking is None:
                    self._job.status(TaskState.WORKING)
                await self._job.accepted
                keep = partial(kept_question, self._decision, ResumeMode.OPEN)
                self._asking = self._asking_that_keeps(keep, slot)
                self._session = slot.session
                result = await slot.session.call(call, progress, self._asking, self._log_sink)
                self.was_taken = True
                return result
        finally:
            if waiting is not None:  # the call never got a slot
                waiting.waited(self._decision.source_key, anyio.current_time() - since)

    @property
    def _caller(self) -> Claimant:
        principal = self._job.turn.principal
        return Claimant(principal.name, self._job.events.task_id, is_secret=not principal.may_list_all)

    def _tell_wait(self, hold: SlotHold) -> None:
        """Tell the client which other call this call waits for while it has no slot."""
        is_new = self._job.turn.task is None and self._asking is None
        words = words_on_waiting(self._queue.session.name, hold, self._caller, self._job.events.ids.now_ms())
        state = TaskState.SUBMITTED if is_new else TaskState.WORKING
        self._job.status(state, self._job.message((Part(text=words),)))

    async def _follow(self, handle: TaskHandle, session: Session) -> JsonObject:
        """Follow the task that the server made from the call. The task's id is kept, so that it is followed after a
        restart, too."""
        self.followed = FollowedTask(
            self._decision.skill_id,
            handle.task_id,
            handle.is_legacy,
            tuple(self._job.turn.extensions),
            self._decision.source_key,
        )
        text = self.followed.to_bytes()
        self._patience.restart(self._options.run.task_timeout_seconds)
        if not isinstance(self._decision, Follow):
            self._job.status(TaskState.WORKING, keep=text)
        self._job.outlive()
        self._asking = self._asking_that_keeps(lambda *_: text)
        return await follow(session, handle, self._asking, self._pass_on_status)

    def _asking_that_keeps(self, keep: KeepQuestions, slot: CallSlot | None = None) -> TaskAsker:
        # Nothing here refers back to this call: in a reference cycle, the task and its result would stay in memory
        # until the garbage collector runs.
        options = self._options
        pace = QuestionPace(
            self._queue.session.name,
            options.run.input_timeout_seconds,
            options.run.held_answer_seconds,
            options.run.answer_tries,
            options.run.cancel_grace_seconds,
            self._token if slot is not None else None,
        )
        return TaskAsker(self._job, self._patience, pace, keep, self._known, slot)

    def _pass_on_status(self, words: str) -> None:
        """Pass on the `statusMessage` of the server's task."""
        self._job.status(TaskState.WORKING, self._job.message((Part(text=words),)))

    async def _answers_to(self, asked_now: Round) -> JsonObject | RequireInput:
        """The answers to a round if all of them are already known; else the question for the client."""
        assert isinstance(self._decision, RunTool)
        answers = {
            key: self._known.pop(name)
            for key, params in asked_now.questions.items()
            if (name := question_fingerprint(params)) in self._known
        } | asked_now.answers
        question = replace(
            server_question(self._decision, ResumeMode.ROUND, asked_now.questions),
            given=answers,
            request_state=asked_now.state,
            is_of_process=self._is_process and asked_now.state is not None,
        )
        if left := open_questions(question):
            held = await done_slowly(
                partial(answers_held, self._job.held, left, self._options.run.held_answer_seconds)
            )
            answers |= held
            question = replace(question, given=answers)
        if left := open_questions(question):
            return ask_server_questions(question, left)
        return {**answers}


def kept_question(
    decision: RunTool,
    way: ResumeMode,
    questions: ElicitationsByKey,
    of_turn: TraceContext,
) -> bytes:
    """The state kept with a task whose call waits for answers. `of_turn` is the trace of the turn that asks."""
    return replace(server_question(decision, way, questions), trace=of_turn).to_bytes()


def server_question(decision: RunTool, way: ResumeMode, questions: ElicitationsByKey) -> ServerQuestion:
    """The state of a call that waits for answers to these questions."""
    source_key, tool_name = decision.skill.key
    return ServerQuestion(
        decision.skill_id,
        decision.arguments,
        way,
        questions,
        is_repeatable=decision.skill.tool.is_repeatable,
        source_key=source_key,
        tool_name=tool_name,
        occasions={key: new_occasion() for key in questions},
    )


def _first_call(decision: RunTool, options: AgentOptions, meta: JsonObject) -> ToolCall:
    arguments = {name: whole_numbers(value) for name, value in decision.arguments.items()}
    call = ToolCall(
        decision.skill.tool.name,
        arguments,
        meta=meta,
        task_ttl_ms=round(options.run.task_timeout_seconds * 1000),
    )
    answered = decision.answered
    if answered is None or answered.way is not ResumeMode.ROUND:
        return call
    return replace(call, input_responses={**answered.given}, request_state=answered.request_state)


def _known_answers(decision: RunTool | Follow, *, even_of_rounds: bool = False) -> dict[str, JsonObject]:
    """The known answers by question, for a call that is made again from its start and may ask the same questions."""
    answered = decision.answered if isinstance(decision, RunTool) else None
    if answered is None or not (even_of_rounds or answered.way is ResumeMode.OPEN):
        return {}
    return {
        question_fingerprint(params): answered.given[key]
        for key, params in answered.questions.items()
        if key in answered.given
    }
