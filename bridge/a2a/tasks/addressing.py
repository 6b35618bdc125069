"""Which task a message goes to: the task that it names, the task in its context that asks, or a new task.

A message that names only a context may answer a task. It does so if exactly one task in the context asks, the agent
accepts the message as an answer, and no other task in the context is at work: a client with running calls probably
means another call.

This module changes nothing and plans no work.

Spec: A2A 1.0 sections 3.4 (contexts and tasks) and 3.4.3 (a message without a task id may begin a task).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bridge.a2a.model.errors import Violation, invalid_params, require_answerable
from bridge.a2a.model.life import ENDED, INTERRUPTED, SETTLED
from bridge.a2a.model.objects import NO_CONFIGURATION, SendMessageRequest, TaskState
from bridge.a2a.model.operators import is_for_its_owner
from bridge.a2a.model.task_names import beginning_of
from bridge.a2a.tasks.agent import Agent, Turn
from bridge.a2a.tasks.callers import CallContext
from bridge.a2a.tasks.idempotency import MessageBook
from bridge.a2a.tasks.live import LiveTask
from bridge.a2a.tasks.task_registry import TaskRegistry
from bridge.identity.callers.principals import Principal
from bridge.store.contract import Store
from bridge.store.records import Query

_AT_WORK: Final = (TaskState.SUBMITTED, TaskState.WORKING)
_NAMED_BESIDE: Final = 5
"""The most waiting tasks of its context that a new task mentions."""


class Addressing:
    """Finds the tasks of messages, for an intake."""

    def __init__(self, agent: Agent, store: Store, tasks: TaskRegistry, book: MessageBook) -> None:
        self._agent = agent
        self._store = store
        self._tasks = tasks
        self._book = book

    async def of_message(
        self, request: SendMessageRequest, caller: CallContext
    ) -> tuple[Turn, LiveTask | None]:
        """The turn for a message, and the task that the message goes to; None if the message creates a task.

        Raises:
            A2AError: the caller has no such task, or may not send a message to it.
        """
        message, principal = request.message, caller.principal
        turn = Turn(
            principal=principal,
            message=message,
            configuration=request.configuration or NO_CONFIGURATION,
            metadata=request.metadata or {},
            extensions=caller.extensions & self._agent.extensions,
            acting=caller.acting,
            client=caller.client,
        )
        if message.task_id is not None:
            live = await self._named(message.task_id, message.context_id, caller)
            return replace(turn, task=live.task, kept=live.kept), live
        if message.context_id is None:
            return turn, None
        owner = await self._book.owner_of_context(message.context_id)
        if owner not in (None, principal.name):
            raise invalid_params(
                Violation("message.contextId", "cannot be used; leave it out to start a new context")
            )
        if owner is None or caller.names_tasks:
            return turn, None
        return await self._in_context(turn, message.context_id)

    async def _named(self, task_id: str, context_id: str | None, caller: CallContext) -> LiveTask:
        """The task that a message names.

        Raises:
            A2AError: the principal has no such task, its context is another one, or it accepts no messages; or an
                operator may not answer it.
        """
        live = await self._at_rest(task_id, caller.principal)
        if context_id not in (None, live.origin.context_id):
            violation = Violation("message.contextId", "is not the context of message.taskId")
            raise invalid_params(violation, names=("message.taskId",))
        if live.task.status.state in ENDED:
            await self._tasks.reached(live, live.next_seq - 1, settled=True)
        if not self.has_work(live) or live.task.status.state in SETTLED:
            require_answerable(live.task)
        if caller.acting and live.task.status.state is not TaskState.INPUT_REQUIRED:
            raise is_for_its_owner("give what the task does not ask for as input")
        return live

    async def _in_context(self, turn: Turn, context_id: str) -> tuple[Turn, LiveTask | None]:
        """The turn and task of a message that names only a context: the task there that asks, or a new task."""
        principal = turn.principal
        if not principal.may_list_all:
            return turn, None
        asking = TaskState.INPUT_REQUIRED.value
        page = await self._store.list(Query(principal.name, _NAMED_BESIDE, context_id, asking))
        if page.total == 1:
            live = await self._at_rest(page.tasks[0].task_id, principal)
            answer = replace(turn, task=live.task, kept=live.kept)
            is_asking = live.task.status.state is TaskState.INPUT_REQUIRED
            if (
                is_asking
                and self._agent.takes_as_answer(answer)
                and not await self._is_at_work(context_id, principal)
            ):
                return answer, live
        return replace(turn, beside=tuple(task.task_id for task in page.tasks)), None

    async def _is_at_work(self, context_id: str, principal: Principal) -> bool:
        """Whether a task of the principal in a context is at work, at any replica."""
        for state in _AT_WORK:
            if (await self._store.list(Query(principal.name, 1, context_id, state.value))).total:
                return True
        # A task that has begun may not be stored yet. No await may follow this look.
        return any(
            live.state in _AT_WORK
            for live in self._tasks
            if live.origin.context_id == context_id and live.origin.owner == principal.name
        )

    async def _at_rest(self, task_id: str, principal: Principal) -> LiveTask:
        """The principal's task. If its work has just asked, this waits until the work listens for the answer or
        returns."""
        while True:
            live = await self._tasks.require_owned(task_id, principal)
            running = live.running
            if running is None or running.hearing or live.task.status.state not in INTERRUPTED:
                return live
            await running.moved.wait()

    def has_work(self, live: LiveTask) -> bool:
        """Whether work runs for a task, here or at another replica."""
        return live.running is not None or self._tasks.is_elsewhere(live)

    async def task_named(self, name: str, principal: Principal) -> str | None:
        """The id of the task that has this name of the principal now."""
        return await self._book.task_of(principal.name, beginning_of(name))

    async def by_its_id(
        self, name: str, request: SendMessageRequest, principal: Principal
    ) -> SendMessageRequest:
        """The message with the id of the task that has the name. If that task has ended, the message makes a new task
        of the name, in the same context. In either case the context of the task replaces the context in the message."""
        task_id = await self.task_named(name, principal) or name
        live = await self._tasks.find(task_id)
        if live is None or live.origin.owner != principal.name:
            fields: dict[str, str | None] = {"task_id": None}
        else:
            has_ended = live.task.status.state in ENDED
            fields = {"task_id": None if has_ended else live.id, "context_id": live.origin.context_id}
        return request.changed(message=request.message.changed(**fields))
