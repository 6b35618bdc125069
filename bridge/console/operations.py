"""A visitor's operations on the tasks of an agent: a client's operations, performed by the same service.

So the console shows no task that a client could not see, and logs, metrics and audits its messages like a client's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final
from uuid import uuid4

from bridge import trace
from bridge.a2a.model.errors import A2AError, temporarily_unavailable
from bridge.a2a.model.life import ENDED
from bridge.a2a.model.objects import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
    text_of_parts,
    timestamp,
)
from bridge.a2a.model.operations import (
    CANCEL_TASK,
    GET_TASK,
    LIST_TASKS,
    SEND_MESSAGE,
    SUBSCRIBE_TO_TASK,
    AnswerT,
    RequestT,
    Unary,
)
from bridge.a2a.model.operators import OWNER
from bridge.a2a.model.timeline import TIMELINE_URI
from bridge.a2a.server.service import Stream
from bridge.a2a.tasks.callers import CallContext, pass_gate
from bridge.assembly.bridge import Bridge
from bridge.assembly.published_agent import PublishedAgent
from bridge.console.console_access import Visit
from bridge.errors import StoreAwayError
from bridge.http.request_checks import RefusedError
from bridge.identity.callers.principals import EVERYONE, OperatorRole
from bridge.trace import Hop
from bridge.translate.extensions.bridge import EXPLAIN, QUESTION, SKILL
from bridge.translate.own_questions import WHICH_SKILL

WAITING: Final = (TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED)
"""The states in which a task waits for an answer."""

_PAGE: Final = 100
"""The tasks that one request reads to learn their questions: the most that ListTasks allows."""

_BY_NOBODY: Final[frozenset[str]] = frozenset()
"""Nobody may answer a task that no longer waits, or that cannot be read."""


class AskedQuestions:
    """Who may answer each waiting task of one agent. The question does not change while the status stays, so each task
    is read only once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, frozenset[str] | None]] = {}
        """By task id: when the task asked its question, and who may answer it. None means its owner and each operator
        who may answer for others."""

    def unknown_of(self, since: Mapping[str, int]) -> dict[str, int]:
        """The tasks in `since` that are not known yet. Forgets all tasks that no longer wait."""
        self._known = {
            task_id: known for task_id, known in self._known.items() if known[0] == since.get(task_id)
        }
        return {task_id: at for task_id, at in since.items() if task_id not in self._known}

    def learn(self, task_id: str, since: int, only_for: frozenset[str] | None) -> None:
        """Keep who may answer a task, see `_known`."""
        self._known[task_id] = since, only_for

    def answerable_by(self, visitor: str, tasks: Iterable[str]) -> int:
        """How many of these tasks an operator who answers for others may answer. A task that was forgotten meanwhile no
        longer waits."""
        known = (self._known[task_id][1] for task_id in tasks if task_id in self._known)
        return sum(only_for is None or visitor in only_for for only_for in known)


class AgentOperations:
    """The operations of one agent, as one visitor may perform them."""

    def __init__(self, bridge: Bridge, agent: PublishedAgent, visit: Visit) -> None:
        self.agent = agent
        self.visitor = visit.who.name
        self.is_operator = visit.who.operator is not None
        self.sees_contents = bridge.plan.place.operators_see_contents
        self.answers_others = visit.who.operator is OperatorRole.ANSWER and self.sees_contents
        """Whether the visitor may answer for others. For that, the visitor must see the questions."""
        self._bridge = bridge
        self._base_url = visit.base_url
        self._own = CallContext(visit.who.in_face(agent.name), agent.agent.extensions | {TIMELINE_URI})
        self._caller = self._own.as_operator(sees_contents=self.sees_contents)

    async def tasks(self, request: ListTasksRequest, *, only_own: bool = False) -> ListTasksResponse:
        """A page of tasks: the visitor's own, or all tasks for an operator unless `only_own`.

        Raises:
            A2AError: the page token is unknown.
        """
        if self.is_operator and not only_own:
            self._audit_reading(EVERYONE, "")
        return await self._page(request, only_own=only_own)

    async def _page(self, request: ListTasksRequest, *, only_own: bool) -> ListTasksResponse:
        # `comes_late` adds the progress numbers.
        late = replace(self._own if only_own else self._caller, comes_late=True)
        return await self._read(LIST_TASKS, request, late)

    async def to_answer(self, state: TaskState, most: int, page_token: str = "") -> ListTasksResponse:
        """A page of the tasks in a state of `WAITING` that the visitor may answer, the newest first.

        Raises:
            A2AError: the page token is unknown.
        """
        request = ListTasksRequest(status=state, page_size=most, page_token=page_token or None)
        return await self.tasks(request, only_own=self._answers_own_only(state))

    def _answers_own_only(self, state: TaskState) -> bool:
        return not self.answers_others or state is TaskState.AUTH_REQUIRED

    async def waiting(self, asked: AskedQuestions) -> int:
        """How many tasks the visitor may answer. `asked` knows the agent's waiting tasks."""
        total = 0
        for state in WAITING:
            if self._answers_own_only(state):
                request = ListTasksRequest(status=state, page_size=1)
                total += (await self._page(request, only_own=True)).total_size
            else:
                total += asked.answerable_by(self.visitor, await self._all_in(state, asked))
        return total

    async def waiting_unseen(self) -> int:
        """How many waiting tasks of others an operator does not see, because contents are not shown to operators."""
        if not self.is_operator or self.sees_contents:
            return 0
        all_of_them = sum([len(await self.agent.engine.waiting_in(state)) for state in WAITING])
        own = 0
        for state in WAITING:
            request = ListTasksRequest(status=state, page_size=1)
            own += (await self._page(request, only_own=True)).total_size
        return max(all_of_them - own, 0)

    async def _all_in(self, state: TaskState, asked: AskedQuestions) -> Mapping[str, int]:
        """All tasks in a state, by id, with the time of their question. Reads the tasks that `asked` does not know."""
        since = await self.agent.engine.waiting_in(state)
        unknown = asked.unknown_of(since)
        token: str | None = None
        while unknown and token != "":
            request = ListTasksRequest(
                status=state,
                status_timestamp_after=timestamp(min(unknown.values())),
                page_size=_PAGE,
                page_token=token,
                history_length=0,
            )
            page = await self._page(request, only_own=False)
            for task in page.tasks:
                if unknown.pop(task.id, None) is not None:
                    is_for_owner = _asks_for_skill(task.status.message)
                    only_for = frozenset({self.owner_of(task)}) if is_for_owner else None
                    asked.learn(task.id, since[task.id], only_for)
            token = page.next_page_token
        for task_id, at in unknown.items():
            asked.learn(task_id, at, _BY_NOBODY)
        return since

    def owner_of(self, task: Task) -> str:
        """The principal that a task belongs to."""
        owner = (task.metadata or {}).get(OWNER)
        return owner if isinstance(owner, str) else self.visitor

    def withholds(self, task: Task) -> bool:
        """Whether the contents of a task are not shown to the visitor."""
        return not self.sees_contents and self.owner_of(task) != self.visitor

    def may_answer(self, task: Task) -> bool:
        """Whether the visitor may answer the question of a task. Only the owner may authorize, or choose the skill."""
        if task.status.state not in WAITING:
            return False
        if self.owner_of(task) == self.visitor:
            return True
        is_input = task.status.state is TaskState.INPUT_REQUIRED
        return self.answers_others and is_input and not _asks_for_skill(task.status.message)

    def may_cancel(self, task: Task) -> bool:
        """Whether the visitor may cancel a task."""
        is_own = self.owner_of(task) == self.visitor
        return task.status.state not in ENDED and (is_own or self._caller.operator is OperatorRole.ANSWER)

    async def task(self, task_id: str) -> Task:
        """One task.

        Raises:
            A2AError: TASK_NOT_FOUND.
        """
        late = replace(self._caller, comes_late=True)  # adds the progress numbers
        task = await self._read(GET_TASK, GetTaskRequest(id=task_id), late)
        if (owner := self.owner_of(task)) != self.visitor:
            self._audit_reading(owner, task_id)
        return task

    def _audit_reading(self, owner: str, task_id: str) -> None:
        """Write into the audit that an operator has read a task of somebody else, or the tasks of all."""
        if (audit := self._bridge.telemetry.audit) is not None:
            audit.recorder.read(self.visitor, self.agent.name, owner, task_id)

    async def watched(self, task_id: str) -> Stream:
        """A task and its events from now on; if the task has ended, its end. The reader closes the stream.

        Raises:
            A2AError: TASK_NOT_FOUND.
        """
        if self.is_operator:
            await self.task(task_id)  # writes the reading to the audit
        late = replace(self._caller, comes_late=True)  # the task may have ended since its page was read
        return await self.agent.service.perform(SUBSCRIBE_TO_TASK, SubscribeToTaskRequest(id=task_id), late)

    async def send(self, message: Message) -> Task:
        """Send a message, and return its task without waiting for the end.

        Raises:
            A2AError: the agent refuses the message.
        """
        configuration = SendMessageConfiguration(return_immediately=True)
        request = SendMessageRequest(message=message, configuration=configuration)
        async with self._hop(SEND_MESSAGE.name) as hop:
            task = (await self._read(SEND_MESSAGE, request)).task
            assert task is not None, "a reply without a task is waited for"
            if hop is not None:
                _set_task(hop, task)
            return task

    async def explanation(self, text: str) -> str:
        """What the agent makes of a text, and by which rule. Nothing is run.

        Raises:
            A2AError: the agent refuses the message.
        """
        message = Message(
            message_id=str(uuid4()), role=Role.USER, parts=(Part(text=text),), metadata={SKILL: EXPLAIN}
        )
        async with self._hop(SEND_MESSAGE.name):
            said = (await self._read(SEND_MESSAGE, SendMessageRequest(message=message))).message
            assert said is not None, "an explanation is brief"
            return text_of_parts(said.parts)

    async def cancel(self, task_id: str) -> Task:
        """Cancel a task.

        Raises:
            A2AError: TASK_NOT_FOUND, TASK_NOT_CANCELABLE.
        """
        request = CancelTaskRequest(id=task_id)
        async with self._hop(CANCEL_TASK.name) as hop:
            task = await self._read(CANCEL_TASK, request)
            if hop is not None:
                _set_task(hop, task)
            return task

    async def _read(
        self, operation: Unary[RequestT, AnswerT], request: RequestT, caller: CallContext | None = None
    ) -> AnswerT:
        answer = await self.agent.service.perform(operation, request, caller or self._caller)
        answer.written()
        return answer.value

    @asynccontextmanager
    async def _hop(self, method: str) -> AsyncIterator[Hop | None]:
        """The hop of an operation, as the endpoint of the agent would begin it."""
        trace.begin()
        principal, hops = self._caller.principal.name, self._bridge.hops
        with hops.admitted("a2a", self.agent.name, method, principal, is_authenticated=True) as hop:
            try:
                yield hop
            except A2AError:
                await pass_gate(hop)  # a refusal is announced, too
                raise
            except StoreAwayError as exc:
                words = "The bridge cannot reach its stored tasks at the moment"
                raise temporarily_unavailable(words) from exc
            await pass_gate(hop)


def operations_of(bridge: Bridge, visit: Visit) -> list[AgentOperations]:
    """The operations of all agents."""
    return [AgentOperations(bridge, agent, visit) for agent in bridge.published]


async def at_work(operations: AgentOperations) -> int:
    """How many of the visitor's own tasks an agent works on."""
    pages = [
        await operations.tasks(ListTasksRequest(status=state, page_size=1), only_own=True)
        for state in (TaskState.SUBMITTED, TaskState.WORKING)
    ]
    return sum(page.total_size for page in pages)


def operations_on(bridge: Bridge, visit: Visit, name: str) -> AgentOperations:
    """The operations of the agent with this name.

    Raises:
        RefusedError: 404, there is no such agent.
    """
    for operations in operations_of(bridge, visit):
        if operations.agent.name == name:
            return operations
    raise RefusedError(404, "There is no such agent")


async def waiting_for(bridge: Bridge, visit: Visit, asked: defaultdict[str, AskedQuestions]) -> int:
    """How many tasks wait for the visitor. `asked` knows the waiting tasks of each agent, by its name."""
    return sum([await agent.waiting(asked[agent.agent.name]) for agent in operations_of(bridge, visit)])


def _asks_for_skill(message: Message | None) -> bool:
    """Whether a message asks which skill is meant. Only the owner of the task may answer that."""
    return message is not None and (message.metadata or {}).get(QUESTION) == WHICH_SKILL


def _set_task(hop: Hop, task: Task) -> None:
    hop.task_id, hop.context_id, hop.state = task.id, task.context_id or "", task.status.state.word
