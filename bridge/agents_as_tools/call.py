"""Makes one call of a tool, as a conversation with its agent. Start reading here.

The call becomes a message. The agent's task is followed until it ends or asks a question. A question goes to the host
in a form that the host supports, and the answer goes back as the next message. Cancelling the call cancels the agent's
task, unless the host already has a handle or a question to come back with.

Each message is sent in an async task of its own, so that a call can be cancelled before the agent has named its task.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from uuid import uuid4

import anyio

from bridge import trace
from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.bindings import AgentRefusedError
from bridge.a2a.client.follow import TaskListener, converse, wait_until_settled
from bridge.a2a.model.life import ENDED, SETTLED
from bridge.a2a.model.objects import (
    Message,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskStatus,
    made,
    text_of_parts,
)
from bridge.agents_as_tools.caller_login import CallerLoginRound
from bridge.agents_as_tools.handles import FarCall, FarContext, FarQuestion, Handles, tool_mark
from bridge.agents_as_tools.mcp_tasks import task_fields
from bridge.agents_as_tools.sending import AgentExchange, FaceRuntime, Sending, canceled_task
from bridge.agents_as_tools.tool_results import ToolResults, failure, same_question
from bridge.agents_as_tools.tools import PublishedTool
from bridge.concurrency import done_slowly, turn
from bridge.errors import AuditAwayError, PeerError
from bridge.identity.logins.login_credentials import LoginNeededError
from bridge.mcp.server.face import INVALID_PARAMS, IncomingCall, McpRefusal, ReportProgress
from bridge.remotes.remote_agent import RemoteAgent
from bridge.seal import HandleError, HandleTooLongError, request_digest
from bridge.text.jsonvalues import JsonObject
from bridge.translate.agent_questions import (
    AgentQuestion,
    AskingTask,
    UnfitAnswerError,
    answer_message,
    as_answered,
    elicitation_modes_of,
    questions_mark,
    with_own_keys,
)
from bridge.translate.call_to_message import (
    BadArgumentsError,
    MessageIds,
    context_in,
    message_from_call,
)
from bridge.translate.extensions.bridge import PROGRESS, RESPONSES
from bridge.translate.extensions.host_tasks import without_tasks
from bridge.translate.extensions.log_messages import messages_in, with_level
from bridge.translate.extensions.passed_metadata import with_extension_metadata
from bridge.translate.overrides import ArgumentRule, hidden_arguments_in, with_default_arguments
from bridge.translate.refusals import UntoldRefusal, refusal_among
from bridge.translate.skill_tools import AgentTool

logger = logging.getLogger(__name__)

_BLOCKING: Final = SendMessageConfiguration(return_immediately=False)


class AgentCall:
    """One call of a tool. Used once."""

    def __init__(
        self, agent: RemoteAgent, tool: PublishedTool, incoming: IncomingCall, around: FaceRuntime
    ) -> None:
        options, override = around.options, tool.override
        self._agent = agent
        self._tool = tool.tool
        self._given = CallInput(incoming, tool.tool, agent.mark, around.handles, override.arguments)
        self._incoming = incoming
        self._around = around
        self._results = ToolResults(agent, tool.tool, incoming.principal, around.handles, options)
        self._pace = options.pace
        self._within_seconds = _first_of(override.answer_within_seconds, options.agents.answer_within_seconds)
        self._login = CallerLoginRound(agent, incoming, self._given.digest, options.name)
        # A round that answers a question is not a new call: its task runs already.
        self._limiter = None if self._login.state is not None else around.turns.of(tool.key)
        self._has_turn = False
        self._task_at = anyio.current_time() + _first_of(
            override.task_after_seconds, options.agents.task_after_seconds
        )
        """When the call becomes an MCP task, for a client that supports tasks."""
        self._words: str | None = None
        """The agent's latest progress text."""
        self._sending: Sending | None = None
        self._has_answer = False
        """Whether the agent has answered a message."""
        self._asking: Task | None = None
        """The task whose question is open at a host of MCP 2025-11-25 or earlier."""
        self._times = Counter[str]()
        """How often the host was asked each question in this call, including earlier rounds."""
        self._is_released = False

    async def __call__(self) -> JsonObject:
        """Make the call. Returns its result, or a question, a task, or a handle to come back with.

        Raises:
            McpRefusal: the answer is a JSON-RPC error.
            BridgeError: the call failed; it says whose fault that is.
        """
        try:
            with anyio.move_on_after(self._within_seconds):
                return await self._with_login()
            if (unanswered := self._login.unanswered) is not None:
                return unanswered
            return self._question_in_words(self._asking) if self._asking else self._still_at_work()
        except _BecomesTaskError as exc:
            self._is_released = True
            exc.sending.leave()
            self._request_webhook(exc.sending)
            return exc.task
        except anyio.get_cancelled_exc_class():
            if self._sending is not None and not self._is_released:
                seconds = self._around.options.run.cancel_grace_seconds
                self._around.background.start_soon(self._sending.cancel, seconds)
            raise

    async def _with_login(self) -> JsonObject:
        """The result of the conversation, once the caller has a login, if the agent wants one. If the agent refuses the
        login before it has taken anything, the host is asked for another login."""
        while True:
            if (result := await self._login.passed()) is not None:
                return result
            try:
                # The limiter is held until the host has its answer. The agent's task may go on, but its end is not
                # known here.
                async with turn(self._limiter, self._tool.name, waited=self._note_wait):
                    self._has_turn = True
                    return await self._conversation()
            except LoginNeededError:
                if not self._is_untaken or not self._login.refused():
                    raise
                self._sending = None

    def _note_wait(self, seconds: float) -> None:
        if (hop := trace.hop.get()) is not None:
            hop.waited(self._agent.key, seconds)

    @property
    def _is_untaken(self) -> bool:
        """Whether the agent has taken no message yet: it has answered nothing, and named no task."""
        sending = self._sending
        return self._login.state is None and (
            sending is None or (sending.task_id is None and not self._has_answer)
        )

    async def _conversation(self) -> JsonObject:
        outcome = await self._first()
        while isinstance(outcome, Task) and outcome.status.state not in ENDED:
            following = await self._answer_to(outcome)
            if isinstance(following, dict):
                return following
            outcome = await self._next(following, outcome)
        if isinstance(outcome, dict):
            return outcome
        return await done_slowly(partial(self._results.answer, outcome))

    async def _first(self) -> Task | Message | JsonObject:
        """The first outcome: of a new message, or of the task that a returning host names."""
        arguments = self._given.arguments()
        state = self._login.state
        if state is not None:
            return await self._come_back(state)
        context = self._given.context(arguments)
        conversation = MessageIds(
            message_id=str(uuid4()),
            context_id=context.context_id if context else None,
            reference_task_ids=(context.task_id,) if context and context.task_id else (),
        )
        message = await done_slowly(
            partial(
                message_from_call,
                self._tool,
                arguments,
                conversation,
                skill_in_text=self._around.options.agents.skill_in_text,
            )
        )
        if self._incoming.input_responses and self._agent.extension_active:
            early: JsonObject = {RESPONSES: self._incoming.input_responses}
            message = message.changed(metadata={**(message.metadata or {}), **early})
        outcome = await self._send(message, None)
        if context is not None and outcome.context_id is not None:
            self._agent.begins_anew = outcome.context_id != context.context_id
            self._results = replace(self._results, continues=context.context_id)
        return outcome

    async def _come_back(self, state: str) -> Task | Message | JsonObject:
        """Pass on the answer to a question, unless the question was already answered."""
        answered = self._given.question(state)
        self._times[answered.same] = answered.times
        trace.go_on(answered.task.trace)
        if (hop := trace.hop.get()) is not None:
            hop.task_id = answered.task.task_id
        task = await self._agent.client_for(self._incoming.on_behalf_of).get(answered.task.task_id)
        responses = self._incoming.input_responses or {}
        if task.status.state in ENDED:
            refusal = None if self._agent.extension_active else refusal_among(responses)
            return task if refusal is None else self._results.refused(refusal, task)
        lasting = self._results.questions(task)
        # A status without a message does not say what the agent waits for, so the question counts as open.
        is_open = task.status.message is None or questions_mark(lasting) == answered.asked
        questions = as_answered(with_own_keys(lasting), task.status, responses)
        keys = {question.key for question in questions}
        if not is_open or not keys & responses.keys():
            return task if keys else await self._wait(task.id, None)
        return await self._next(self._answer(questions, responses, state, task), task)

    async def _next(
        self, answer: Message | UntoldRefusal | JsonObject | None, task: Task
    ) -> Task | Message | JsonObject:
        """Send an answer. With None, only wait: a URL was visited, which the agent notices by itself. A refusal that
        cannot be sent to the agent cancels its task.

        An answer may come too late. Then the outcome of the task, which has ended without the answer, is returned.
        """
        if isinstance(answer, dict):
            return answer
        if isinstance(answer, UntoldRefusal):
            return await self._refuse(answer, task)
        if answer is None:
            return await self._wait(task.id, task.status)
        try:
            return await self._send(answer, task.status)
        except AgentRefusedError:
            now = await self._agent.client_for(self._incoming.on_behalf_of).get(task.id)
            if now.status.state not in ENDED:
                raise
            return now

    def _answer(
        self, questions: Sequence[AgentQuestion], responses: JsonObject, state: str, task: Task
    ) -> Message | UntoldRefusal | JsonObject | None:
        """The message or refusal that a host's answers make, or a result for the host if the answers hold nothing to
        pass on."""
        waiting = AskingTask(state, task.id, task.context_id, self._tool.skill_id)
        try:
            return answer_message(questions, responses, waiting)
        except UnfitAnswerError as exc:
            self._is_released = True
            return self._results.not_answered(task, str(exc))

    async def _refuse(self, refusal: UntoldRefusal, task: Task) -> JsonObject:
        self._is_released = True
        client = self._agent.client_for(self._incoming.on_behalf_of)
        try:
            ended = await canceled_task(client, task.id, self._around.options.run.cancel_grace_seconds)
        except PeerError as exc:
            return self._results.refused_in_vain(refusal, task.id, exc)
        return self._results.refused(refusal, ended)

    async def _answer_to(self, task: Task) -> Message | UntoldRefusal | JsonObject | None:
        """Ask the host the agent's question. Returns the host's answer, or a result with which the host comes back
        later."""
        incoming = self._incoming
        questions = self._results.questions(task)
        taken = ({"form"} if incoming.takes_forms else set()) | ({"url"} if incoming.takes_urls else set())
        if not questions or not elicitation_modes_of(questions) <= taken:
            return self._question_in_words(task)
        self._times[same := same_question(questions)] += 1
        if self._times[same] > self._around.options.run.answer_tries:
            # A host that answers automatically would be asked for ever. Given words, a person or a model decides.
            return self._question_in_words(task)
        if not incoming.is_modern:
            self._asking = task
            try:
                responses = await incoming.ask({question.key: question.params for question in questions})
            except PeerError as exc:
                logger.info(
                    "%s: the question is in the text of the result, because the host cannot be asked: %s",
                    self._agent.key,
                    exc,
                )
                return self._question_in_words(task)
            except AuditAwayError as exc:
                self._is_released = True
                return self._results.not_answered(task, str(exc))
            self._asking = None
            return self._answer(questions, {**responses}, task.id, task)
        self._is_released = True
        question = FarQuestion(self._results.far(task.id), questions_mark(questions), same, self._times[same])
        state = self._around.handles.of_question(question, incoming.principal, self._given.digest)
        return {
            "resultType": "input_required",
            "inputRequests": {
                question.key: {"method": "elicitation/create", "params": question.params}
                for question in with_own_keys(questions)
            },
            "requestState": state,
        }

    # Results for hosts that take no questions, or cannot wait

    def _question_in_words(self, task: Task) -> JsonObject:
        self._is_released = True
        return self._results.question_in_words(task)

    def _task(self, task_id: str) -> JsonObject | None:
        """The MCP task for the agent's task; None if the agent's ids are too long for a handle."""
        options = self._around.options
        try:
            handle, call = self._task_handle(task_id)
        except HandleTooLongError as exc:
            logger.warning("%s: no task is made of a call: %s", self._agent.key, exc)
            return None
        working: JsonObject = {"status": "working", **({"statusMessage": self._words} if self._words else {})}
        return {"resultType": "task", **task_fields(handle, call, options), **working}

    def _task_handle(self, task_id: str) -> tuple[str, FarCall]:
        return self._around.handles.of_call(
            self._results.far(task_id),
            tool_mark(self._tool.skill_id),
            self._around.options.agents.task_ttl_seconds,
            self._incoming.principal,
        )

    def _still_at_work(self) -> JsonObject:
        seconds = self._within_seconds
        if not self._has_turn:
            return failure(
                f"The tool {self._tool.name} has a limit on concurrent calls, and this call had to wait longer than"
                f" {seconds:g} s, so it did not reach the agent; try again later"
            )
        if self._sending is None:
            return failure(f"The agent {self._agent.key} could not be called within {seconds:g} s")
        self._is_released = True
        task_id, only_here = self._sending.task_id, ""
        if task_id is not None:
            self._sending.leave()
            if self._around.options.agents.follow_up_tools:
                self._request_webhook(self._sending)
        elif self._around.options.agents.follow_up_tools:
            task_id = self._around.unnamed.keep(self._sending)
            only_here = " The handle is valid only while this server runs, since the agent has named no task."
        else:
            self._sending.leave()
            return failure(
                f"The agent {self._agent.key} gave no answer within {seconds:g} s and named no task that could be"
                " followed; the outcome of the call is unknown"
            )
        return self._results.still_at_work(self._results.handle(task_id), f" after {seconds:g} s", only_here)

    def _request_webhook(self, sending: Sending) -> None:
        """Ask the agent to send notifications about its task, since the host will come back to the task."""
        assert sending.task_id is not None, "it is known"
        far = self._results.far(sending.task_id)
        self._around.webhooks.ask(self._agent, sending.client, far, self._incoming.principal)

    # The agent

    async def _send(self, message: Message, answered: TaskStatus | None) -> Task | Message:
        message = with_extension_metadata(message, self._agent.named_extensions, self._incoming.meta)
        if self._incoming.log_level is not None and self._agent.has_logs:
            message = with_level(message, self._incoming.log_level)
        if self._agent.shares_tasks and self._incoming.is_modern and not self._incoming.takes_tasks:
            message = without_tasks(message)
        request = made(SendMessageRequest, message=message, configuration=_BLOCKING)
        client = self._agent.client_for(self._incoming.on_behalf_of)

        async def sent(listener: TaskListener) -> Task | Message:
            return await converse(client, request, listener, pace=self._pace, answered=answered)

        return await self._run(client, sent)

    async def _wait(self, task_id: str, answered: TaskStatus | None) -> Task | Message:
        client = self._agent.client_for(self._incoming.on_behalf_of)

        async def waited(listener: TaskListener) -> Task | Message:
            return await wait_until_settled(client, task_id, listener, pace=self._pace, answered=answered)

        return await self._run(client, waited)

    async def _run(self, client: AgentClient, work: AgentExchange) -> Task | Message:
        known = self._sending.task_id if self._sending else None
        self._sending = sending = Sending(client, self._on_event, known)
        self._around.background.start_soon(sending.run, work)
        await self._until_done(sending)
        if sending.fault is not None:
            raise sending.fault
        assert sending.outcome is not None
        self._has_answer = True
        return sending.outcome

    async def _until_done(self, sending: Sending) -> None:
        """Wait for the outcome of a message.

        Raises:
            _BecomesTaskError: the answer takes long, the client supports tasks, and the agent has named its task.
        """
        if self._incoming.takes_tasks:
            with anyio.CancelScope(deadline=self._task_at):
                await sending.done.wait()
            await sending.named.wait()
            named = None if sending.done.is_set() else sending.task_id
            if named is not None and (task := self._task(named)) is not None:
                raise _BecomesTaskError(sending, task)
        await sending.done.wait()

    def _on_event(self, event: StreamResponse) -> None:
        active, incoming = self._agent.extension_active, self._incoming
        if incoming.log_level is not None and event.status_update is not None:
            for log_message in messages_in(event.status_update.metadata, incoming.log_level):
                incoming.log(log_message)
        self._words = _report_progress(event, self._incoming.report, extension_active=active) or self._words


class _BecomesTaskError(Exception):
    """The call takes long, so its client gets a task instead of the result."""

    def __init__(self, sending: Sending, task: JsonObject) -> None:
        super().__init__()
        self.sending = sending
        self.task = task


def _first_of(seconds: float | None, otherwise: float) -> float:
    return otherwise if seconds is None else seconds


def _report_progress(event: StreamResponse, report: ReportProgress, *, extension_active: bool) -> str | None:
    """Report an event as progress. Returns the agent's words in the event; None without words."""
    update, artifact = event.status_update, event.artifact_update
    if update is not None and update.status.state not in SETTLED:
        numbers = (update.metadata or {}).get(PROGRESS)
        progress = numbers if isinstance(numbers, dict) else {}
        words = text_of_parts(update.status.message.parts) if update.status.message else ""
        if progress or words:
            report(_number(progress.get("progress")), _number(progress.get("total")), words or None)
        return words or None
    if artifact is not None and not extension_active:
        # (An artifact of another bridge's agent is its tool's result, not progress.)
        report(None, None, f"{artifact.artifact.name or 'a result'} is coming in")
    return None


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class CallInput:
    """A call of a tool as the host made it, and the agent that it is for."""

    incoming: IncomingCall
    tool: AgentTool
    mark: str
    """The mark of the agent, see `agent_mark`."""
    handles: Handles
    rules: Mapping[str, ArgumentRule]

    @property
    def digest(self) -> bytes:
        """A digest of the host's own arguments, by which a later round is recognized as the same request."""
        return request_digest(self.incoming.name, self.incoming.arguments)

    def arguments(self) -> JsonObject:
        """The arguments that the agent gets.

        Raises:
            BadArgumentsError: the caller sets a hidden argument.
        """
        values = self.incoming.arguments
        if theirs := hidden_arguments_in(values, self.rules):
            raise BadArgumentsError(f"{', '.join(theirs)}: the tool {self.tool.name} has no such argument")
        return with_default_arguments(values, self.tool.input_schema, self.rules)

    def context(self, arguments: JsonObject) -> FarContext | None:
        """The conversation that the call continues.

        Raises:
            BadArgumentsError: this agent has no such conversation.
        """
        text = None if self.tool.original else context_in(arguments)
        if text is None:
            return None
        try:
            context = self.handles.context(text, self.incoming.principal)
        except HandleError as exc:
            raise BadArgumentsError(f"context: {exc}") from exc
        if context.agent != self.mark:
            raise BadArgumentsError("context: it belongs to another agent")
        return context

    def question(self, state: str) -> FarQuestion:
        """The question that a round answers.

        Raises:
            McpRefusal: the request state belongs to another call.
        """
        try:
            question = self.handles.question(state, self.incoming.principal, self.digest)
        except HandleError as exc:
            raise McpRefusal(INVALID_PARAMS, str(exc)) from exc
        if question.task.agent != self.mark:
            raise McpRefusal(INVALID_PARAMS, str(HandleError()))
        return question
