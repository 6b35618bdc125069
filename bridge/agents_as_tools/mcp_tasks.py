"""Serves the calls that became MCP tasks. A task's id names the agent's task; everything else is read from the agent.

So an id is valid after a restart and at any bridge with the same key. This process only remembers since when an agent
has been out of reach (the agent's tasks are `working` until `outage_seconds` are over), and recent refusals and
answers.

Spec: the tasks extension, io.modelcontextprotocol/tasks. A failed task is `completed`, with the error result that the
plain call would have had. A task is `failed` if the plain call would have been answered with a JSON-RPC error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio

from bridge import trace
from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.bindings import AgentRefusedError
from bridge.a2a.client.follow import Pause, TaskListener, is_transient, wait_until_settled
from bridge.a2a.model.life import ENDED
from bridge.a2a.model.objects import (
    Message,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
    milliseconds,
    text_of_parts,
    timestamp,
)
from bridge.agents_as_tools.handles import FarCall
from bridge.agents_as_tools.options import FaceOptions
from bridge.agents_as_tools.sending import FaceRuntime, Sending, canceled_task
from bridge.agents_as_tools.tool_results import ToolResults, failure, same_question
from bridge.bounded_map import BoundedMap
from bridge.concurrency import done_slowly
from bridge.errors import BridgeError, PeerError
from bridge.identity.callers.principals import OfferedNames
from bridge.identity.tokens.token_endpoint import TokenError
from bridge.mcp.server.face import McpRefusal, TaskCaller, TaskWork, refusal_of
from bridge.remotes.remote_agent import RemoteAgent
from bridge.seal import HandleError
from bridge.text.jsonvalues import JsonObject
from bridge.translate.agent_questions import (
    AgentQuestion,
    AskingTask,
    UnfitAnswerError,
    answer_message,
    elicitation_modes_of,
    questions_mark,
)
from bridge.translate.refusals import UntoldRefusal
from bridge.translate.skill_tools import AgentTool

logger = logging.getLogger(__name__)

_STATUS: Final[Mapping[TaskState, str]] = {
    TaskState.INPUT_REQUIRED: "input_required",
    TaskState.AUTH_REQUIRED: "input_required",
    TaskState.COMPLETED: "completed",
    TaskState.FAILED: "completed",
    TaskState.REJECTED: "completed",
    TaskState.CANCELED: "cancelled",
}
"""The status of an MCP task, by the state of the agent's task. Any other state is `working`."""

_OVER: Final = frozenset({"completed", "failed", "cancelled"})
_SHORTEST_WATCH_SECONDS: Final = 0.2
"""The shortest time between two reads of a watched task, however many events its agent sends."""

_REMEMBERED_MOST: Final = 256
"""The most refusals, and the most answers, that are remembered. When a refusal is forgotten, its canceled task shows
only the agent's words. When an answer is forgotten, counting the answers to its question starts again."""

FindTool = Callable[[str, str], tuple[RemoteAgent, AgentTool | None] | None]
"""Finds an agent and its tool by their marks. The tool is None when the agent no longer has it."""


@dataclass(frozen=True, slots=True)
class _OpenedTask:
    """The task that an id names, for one caller."""

    handle: str
    call: FarCall
    caller: TaskCaller
    shown: ToolResults

    @property
    def agent(self) -> RemoteAgent:
        return self.shown.agent

    @property
    def client(self) -> AgentClient:
        """A client that acts for the caller."""
        return self.agent.client_for(self.caller.on_behalf_of)

    @property
    def options(self) -> FaceOptions:
        return self.shown.options

    @property
    def work(self) -> TaskWork:
        tool = self.shown.tool
        return TaskWork("" if tool is None else tool.name, self.agent.key, self.call.task.task_id)


@dataclass(frozen=True, slots=True)
class _Refused:
    """A refusal that could not be sent to an agent, so that its task had to be canceled."""

    refusal: UntoldRefusal
    asked: str
    """The mark of the questions that were refused."""
    fault: PeerError | None
    """Why the task could not be canceled; None if it was."""


class McpTasks:
    """Implements `bridge.mcp.server.face.TaskFace` over remote agents."""

    def __init__(
        self,
        surroundings: Callable[[], FaceRuntime],
        find: FindTool,
        names: Callable[[str, str], OfferedNames | None],
    ) -> None:
        """`find` gives the tool with these marks, and `names` the names of that tool to which rights apply."""
        self._surroundings = surroundings
        self._find = find
        self._names = names
        self._out_of_reach: dict[tuple[str, str], tuple[float, float]] = {}
        """Since when an agent has been out of reach, and when that was last noticed: by the agent's mark, and "" or, if
        only a token was missing, the principal without a token."""
        self._refused = BoundedMap[tuple[str, str, str], _Refused](_REMEMBERED_MOST)
        """The latest refusals by agent, task and principal, for the status messages of their tasks."""
        self._answered = BoundedMap[tuple[str, str, str], int](_REMEMBERED_MOST)
        """How often questions were answered, by task, principal and question."""

    def knows(self, task_id: str, caller: TaskCaller) -> bool:
        """See `TaskFace.knows`."""
        try:
            self._opened(task_id, caller)
        except McpRefusal:
            return False
        return True

    def work_of(self, task_id: str, caller: TaskCaller) -> TaskWork | None:
        """See `TaskFace.work_of`."""
        try:
            return self._opened(task_id, caller).work
        except McpRefusal:
            return None

    async def get(self, task_id: str, caller: TaskCaller) -> JsonObject:
        """See `TaskFace.get`."""
        return (await self._read(self._opened(task_id, caller)))[0]

    async def update(self, task_id: str, responses: JsonObject, caller: TaskCaller) -> None:
        """See `TaskFace.update`. This returns once the answer is on its way; `get` shows its effect."""
        opened = self._opened(task_id, caller)
        _label_hop(opened)
        trace.go_on(opened.call.task.trace)
        try:
            task = await opened.client.get(opened.call.task.task_id)
        except PeerError as exc:
            raise _not_passed_on("The answer", exc) from exc
        questions = {question.key: question for question in _questions(opened, task)}
        answers = {key: value for key, value in responses.items() if key in questions}
        skill_id = opened.shown.tool.skill_id if opened.shown.tool else None
        waiting = AskingTask(task_id, task.id, task.context_id, skill_id)
        try:
            answer = answer_message(list(questions.values()), answers, waiting)
        except UnfitAnswerError as exc:
            raise refusal_of(exc) from exc
        if isinstance(answer, UntoldRefusal):
            await self._refuse(opened, answer, questions_mark(questions.values()))
        elif answer is not None:
            await self._send(opened, answer)
            self._note_answer(opened, questions.values())

    async def cancel(self, task_id: str, caller: TaskCaller) -> None:
        """See `TaskFace.cancel`. It is not an error if the agent refuses to cancel."""
        opened = self._opened(task_id, caller)
        _label_hop(opened)
        trace.go_on(opened.call.task.trace, is_answer=False)
        try:
            await opened.client.cancel(opened.call.task.task_id)
        except AgentRefusedError as exc:
            if is_transient(exc):
                raise _not_passed_on("The cancellation", exc) from exc
            logger.info("%s does not cancel a task: %s", opened.agent.key, exc)
        except PeerError as exc:
            raise _not_passed_on("The cancellation", exc) from exc

    async def watch(self, task_id: str, caller: TaskCaller, tell: Callable[[JsonObject], None]) -> None:
        """See `TaskFace.watch`."""
        try:
            far = self._opened(task_id, caller).call.task
        except McpRefusal:
            return
        with self._surroundings().webhooks.waiting(far, caller.principal) as pause:
            await self._watch(task_id, caller, tell, pause)

    async def _watch(
        self, task_id: str, caller: TaskCaller, tell: Callable[[JsonObject], None], pause: Pause
    ) -> None:
        last: JsonObject | None = None
        while True:
            try:
                # Opened anew each time: the agent may have been replaced, or the caller's rights changed.
                opened = self._opened(task_id, caller)
            except McpRefusal:
                return
            detailed, task = await self._read(opened)
            if detailed != last:
                tell(detailed)
                last = detailed
            if detailed["status"] in _OVER:
                return
            await anyio.sleep(_SHORTEST_WATCH_SECONDS)
            await self._changed(opened, task, pause)

    # Reading a task

    async def _read(self, opened: _OpenedTask) -> tuple[JsonObject, Task | None]:
        """The MCP task, and the agent's task. The agent's task is None when the agent is out of reach."""
        try:
            task = await opened.client.get(opened.call.task.task_id)
        except PeerError as exc:
            return self._fields(opened) | self._without_agent(opened, exc), None
        for principal in ("", opened.caller.principal):
            self._out_of_reach.pop((opened.agent.mark, principal), None)
        refused = self._refused.get((opened.call.task.agent, task.id, opened.caller.principal))
        if task.status.state in ENDED:
            self._surroundings().webhooks.ended(opened.call.task, opened.caller.principal)
        shown = _after_refusal(opened, task, refused) or self._asked_too_often(opened, task)
        shown = shown or await done_slowly(partial(_as_it_stands, opened, task))
        return self._fields(opened, task) | shown, task

    def _note_answer(self, opened: _OpenedTask, questions: Iterable[AgentQuestion]) -> None:
        """Count an answer to these questions."""
        key = opened.call.task.task_id, opened.caller.principal, same_question(questions)
        self._answered[key] = self._answered.get(key, 0) + 1

    def _asked_too_often(self, opened: _OpenedTask, task: Task) -> JsonObject:
        """The task with its question in words, if the same question was answered too often; else empty."""
        questions = _questions(opened, task)
        key = task.id, opened.caller.principal, same_question(questions)
        if not questions or self._answered.get(key, 0) < opened.options.run.answer_tries:
            return {}
        return {"status": "completed", "result": _whole(opened.shown.question_in_words(task))}

    def _without_agent(self, opened: _OpenedTask, exc: PeerError) -> JsonObject:
        agent, now = opened.agent, anyio.current_time()
        # If a token is missing, the next request may bring one, or its issuer may answer again.
        lacks_token = isinstance(exc, TokenError)
        may_come_back = lacks_token or is_transient(exc) or agent.down is not None
        outage_seconds = opened.options.agents.outage_seconds
        # If nobody asked the agent for that long, it may have been up meanwhile, so this counts as a new outage.
        lasting = {key: seen for key, seen in self._out_of_reach.items() if now - seen[1] <= outage_seconds}
        key = agent.mark, opened.caller.principal if lacks_token else ""
        since, _ = lasting.get(key, (now, now))
        self._out_of_reach = {**lasting, key: (since, now)}
        if may_come_back and now - since < outage_seconds:
            words = f"The agent {agent.key} cannot be reached at the moment; the bridge tries again: {exc}"
            return {"status": "working", "statusMessage": words}
        return {"status": "completed", "statusMessage": str(exc), "result": _whole(failure(str(exc)))}

    def _fields(self, opened: _OpenedTask, task: Task | None = None) -> JsonObject:
        fields = task_fields(opened.handle, opened.call, opened.options)
        changed = task.status.timestamp if task else None
        if changed is not None and milliseconds(changed) > opened.call.created_seconds * 1000:
            fields["lastUpdatedAt"] = changed
        return fields

    async def _changed(self, opened: _OpenedTask, task: Task | None, pause: Pause) -> None:
        """Wait until a task may have changed."""
        if task is None:
            await anyio.sleep(opened.options.agents.task_poll_seconds)
            return
        news, pace = anyio.Event(), opened.options.pace

        def wake(event: StreamResponse) -> None:
            if event.task is None or event.task.status != task.status:
                news.set()

        async with anyio.create_task_group() as group:

            async def follow() -> None:
                try:
                    await wait_until_settled(
                        opened.client,
                        task.id,
                        TaskListener(wake),
                        pace=pace,
                        answered=task.status,
                        pause=pause,
                    )
                except PeerError as exc:
                    logger.info(
                        "%s: reading a watched task, since following it failed: %s", opened.agent.key, exc
                    )
                news.set()

            group.start_soon(follow)
            await news.wait()
            group.cancel_scope.cancel()

    # Passing on answers

    async def _send(self, opened: _OpenedTask, answer: Message) -> None:
        """Send an answer, without waiting for the agent's response: an agent may keep the connection open for long.

        Raises:
            McpRefusal: the answer did not arrive.
        """
        client = opened.client
        request = SendMessageRequest(
            message=answer, configuration=SendMessageConfiguration(return_immediately=True)
        )

        async def send(_: TaskListener) -> Task | Message:
            return await client.send(request)

        sending = Sending(client, lambda _: None, opened.call.task.task_id)
        self._surroundings().background.start_soon(sending.run, send)
        with anyio.move_on_after(opened.options.agents.task_poll_seconds):
            await sending.done.wait()
        if isinstance(sending.fault, AgentRefusedError):
            # The task goes on without the answer, or has ended; the task itself shows which.
            logger.info("%s does not take an answer: %s", opened.agent.key, sending.fault)
        elif sending.fault is not None:
            raise _not_passed_on("The answer", sending.fault)

    async def _refuse(self, opened: _OpenedTask, refusal: UntoldRefusal, mark: str) -> None:
        """Cancel a task because a refusal cannot be sent to its agent. From now on, the task shows the outcome."""
        task_id, caller = opened.call.task.task_id, opened.caller
        fault: PeerError | None = None
        try:
            await canceled_task(opened.client, task_id, opened.options.run.cancel_grace_seconds)
        except PeerError as exc:
            fault = exc
        self._refused[opened.call.task.agent, task_id, caller.principal] = _Refused(refusal, mark, fault)

    def _opened(self, task_id: str, caller: TaskCaller) -> _OpenedTask:
        around = self._surroundings()
        try:
            call = around.handles.call(task_id, caller.principal)
        except HandleError as exc:
            raise refusal_of(exc) from exc
        published = self._find(call.task.agent, call.tool)
        if published is None:
            raise refusal_of(HandleError())
        agent, tool = published
        names = self._names(call.task.agent, call.tool)
        if names is not None and not caller.may_use(names):
            raise refusal_of(HandleError())
        shown = ToolResults(agent, tool, caller.principal, around.handles, around.options)
        return _OpenedTask(task_id, call, caller, shown)


def _label_hop(opened: _OpenedTask) -> None:
    """Set the skill, peer and task of the request's trace hop, if the request is traced."""
    if (hop := trace.hop.get()) is not None:
        hop.skill, hop.peer, hop.task_id = opened.work


def task_fields(handle: str, call: FarCall, options: FaceOptions) -> JsonObject:
    """The fields of an MCP task that do not depend on its status. `lastUpdatedAt` is the time of its creation."""
    created = timestamp(call.created_seconds * 1000)
    return {
        "taskId": handle,
        "createdAt": created,
        "lastUpdatedAt": created,
        "ttlMs": call.ttl_seconds * 1000,
        "pollIntervalMs": int(options.agents.task_poll_seconds * 1000),
    }


def _as_it_stands(opened: _OpenedTask, task: Task) -> JsonObject:
    """The status of an MCP task, with the fields that belong to the status."""
    shown, status = opened.shown, _STATUS.get(task.status.state, "working")
    if status == "input_required":
        questions = _questions(opened, task)
        if not questions:
            # The caller does not support this mode of elicitation, so the question itself is the result.
            return {"status": "completed", "result": _whole(shown.question_in_words(task))}
        requests: JsonObject = {
            question.key: {"method": "elicitation/create", "params": question.params}
            for question in questions
        }
        return {"status": status, "inputRequests": requests}
    words = text_of_parts(task.status.message.parts) if task.status.message else ""
    fields: JsonObject = {"status": status, **({"statusMessage": words} if words else {})}
    if status != "completed":
        return fields
    try:
        return fields | {"result": _whole(shown.answer(task))}
    except McpRefusal as refusal:
        data: JsonObject = {} if refusal.data is None else {"data": refusal.data}
        error: JsonObject = {"code": refusal.code, "message": refusal.message, **data}
        return {"status": "failed", "statusMessage": refusal.message, "error": error}


def _after_refusal(opened: _OpenedTask, task: Task, refused: _Refused | None) -> JsonObject:
    """How a task shows a refusal that could not be sent to its agent; empty without one. The same question is not asked
    again."""
    if refused is None:
        return {}
    words = refused.refusal.sentence_about(opened.agent.key)
    if task.status.state is TaskState.CANCELED:
        own = text_of_parts(task.status.message.parts) if task.status.message else ""
        status_message = f"{words}, so the task was canceled there. {own}".strip()
        return {"status": "cancelled", "statusMessage": status_message}
    if task.status.state in ENDED or questions_mark(opened.shown.questions(task)) != refused.asked:
        return {}
    if refused.fault is not None:
        result = opened.shown.refused_in_vain(refused.refusal, task.id, refused.fault)
        return {"status": "completed", "statusMessage": words, "result": _whole(result)}
    return {"status": "working", "statusMessage": f"{words}, so the task is being canceled there"}


def _questions(opened: _OpenedTask, task: Task) -> tuple[AgentQuestion, ...]:
    """The questions of a task that its caller can be asked; empty when the caller supports none of their modes."""
    if task.status.state in ENDED or _STATUS.get(task.status.state) != "input_required":
        return ()
    caller = opened.caller
    questions = opened.shown.questions(task)
    taken = ({"form"} if caller.takes_forms else set()) | ({"url"} if caller.takes_urls else set())
    return questions if elicitation_modes_of(questions) <= taken else ()


def _whole(result: JsonObject) -> JsonObject:
    """A result as tools/call would have returned it."""
    return {"resultType": "complete", **result}


def _not_passed_on(what: str, exc: BridgeError) -> McpRefusal:
    return refusal_of(exc, f"{what} could not be passed on; try again. ")
