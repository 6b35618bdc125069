"""What a visitor does with the tasks of an agent: the operations that a client performs, by the same service.

So a task that a client cannot see is not shown here either, and what is sent from here is in the log, in metrics and in
the audit as a client's message is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from bridge import trace
from bridge.a2a.model.errors import A2AError, temporarily_unavailable
from bridge.a2a.model.objects import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
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
from bridge.a2a.model.timeline import TIMELINE_URI
from bridge.a2a.server.service import Stream
from bridge.a2a.tasks.intake import CallContext
from bridge.assembly.bridge import Bridge
from bridge.assembly.published_agent import PublishedAgent
from bridge.console.gate import Visit
from bridge.errors import AuditAwayError
from bridge.http.request_checks import RefusedError
from bridge.trace import Hop

WAITING: Final = (TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED)
"""The states in which a task waits for an answer."""


class AgentOperations:
    """The operations of one agent, as one visitor may perform them."""

    def __init__(self, bridge: Bridge, agent: PublishedAgent, visit: Visit) -> None:
        self.agent = agent
        self._bridge = bridge
        self._caller = CallContext(visit.who.in_face(agent.name), agent.agent.extensions | {TIMELINE_URI})

    async def tasks(self, request: ListTasksRequest) -> ListTasksResponse:
        """A page of the visitor's tasks.

        Raises:
            A2AError: the page token is not one that was given out.
        """
        return await self._read(LIST_TASKS, request)

    async def waiting(self) -> int:
        """How many of them wait for an answer."""
        pages = [await self.tasks(ListTasksRequest(status=state, page_size=1)) for state in WAITING]
        return sum(page.total_size for page in pages)

    async def task(self, task_id: str) -> Task:
        """One task.

        Raises:
            A2AError: TASK_NOT_FOUND.
        """
        return await self._read(GET_TASK, GetTaskRequest(id=task_id))

    async def watched(self, task_id: str) -> Stream:
        """A task and its events from now on; of one that has ended, its end. Close the stream when the reader is gone.

        Raises:
            A2AError: TASK_NOT_FOUND.
        """
        late = replace(self._caller, comes_late=True)  # the task may end between its page and this
        return await self.agent.service.perform(SUBSCRIBE_TO_TASK, SubscribeToTaskRequest(id=task_id), late)

    async def send(self, message: Message) -> Task:
        """Send a message, and do not wait for its work. Whoever does not wait gets a task, never a reply without one.

        Raises:
            A2AError: it is refused.
        """
        configuration = SendMessageConfiguration(return_immediately=True)
        request = SendMessageRequest(message=message, configuration=configuration)
        async with self._hop(SEND_MESSAGE.name) as hop:
            task = (await self._read(SEND_MESSAGE, request)).task
            assert task is not None, "a reply without a task is waited for"
            if hop is not None:
                _tell(hop, task)
            return task

    async def cancel(self, task_id: str) -> Task:
        """Cancel a task.

        Raises:
            A2AError: TASK_NOT_FOUND, TASK_NOT_CANCELABLE.
        """
        async with self._hop(CANCEL_TASK.name) as hop:
            task = await self._read(CANCEL_TASK, CancelTaskRequest(id=task_id))
            if hop is not None:
                _tell(hop, task)
            return task

    async def _read(self, operation: Unary[RequestT, AnswerT], request: RequestT) -> AnswerT:
        answer = await self.agent.service.perform(operation, request, self._caller)
        answer.written()
        return answer.value

    @asynccontextmanager
    async def _hop(self, method: str) -> AsyncIterator[Hop | None]:
        """The hop of an operation, as the face of the agent would begin it."""
        trace.begin()
        hop = self._bridge.hops.taken("a2a", self.agent.name)
        if hop is None:
            yield None
            return
        with hop:
            hop.admit(method, self._caller.principal.name, is_authenticated=True)
            try:
                await hop.intend()
                yield hop
            except AuditAwayError as exc:
                raise temporarily_unavailable("The bridge cannot write its audit at the moment") from exc
            except A2AError as exc:
                hop.error = exc.kind.reason
                raise


def operations_of(bridge: Bridge, visit: Visit) -> list[AgentOperations]:
    """The operations of all agents."""
    return [AgentOperations(bridge, agent, visit) for agent in bridge.published]


def operations_on(bridge: Bridge, visit: Visit, name: str) -> AgentOperations:
    """The operations of the agent with this name.

    Raises:
        RefusedError: 404, there is none.
    """
    for one in operations_of(bridge, visit):
        if one.agent.name == name:
            return one
    raise RefusedError(404, "There is no such agent")


async def waiting_for(bridge: Bridge, visit: Visit) -> int:
    """How many tasks wait for the visitor."""
    return sum([await one.waiting() for one in operations_of(bridge, visit)])


def _tell(hop: Hop, task: Task) -> None:
    hop.task_id, hop.context_id, hop.state = task.id, task.context_id or "", task.status.state.word
