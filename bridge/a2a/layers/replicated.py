"""Cooperation of the replicas of one agent: they pass requests on, and adopt the tasks of a replica that is gone.

A replica that gets a request about a task finds out where the task is. A task at rest is claimed by the next event.
Otherwise the replica asks the holder of the task, which performs the request as for its own client, and replies. The
asking replica then follows the task for its client. A replica that was asked never passes the request on: if the task
is elsewhere, it says so, and the asking replica looks again.

A message whose work needs a session goes to the replica that has the session, even if the message makes a task
(`session_owners.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from bridge.a2a.layers.operations import Layer
from bridge.a2a.layers.replica_commands import (
    CancelCommand,
    CanceledReply,
    Command,
    ElsewhereReply,
    Reply,
    SendCommand,
    TakenReply,
    command_bytes,
    command_from,
    refusal,
    reply_bytes,
    reply_from,
)
from bridge.a2a.model.errors import INTERNAL, A2AError, a2a_error_of, temporarily_unavailable
from bridge.a2a.model.life import CLOSES_STREAM, with_history
from bridge.a2a.model.objects import NO_CONFIGURATION, Message, SendMessageRequest, Task, TaskState
from bridge.a2a.tasks.agent import Commit
from bridge.a2a.tasks.callers import CallContext
from bridge.a2a.tasks.engine import Engine
from bridge.a2a.tasks.intake import AcceptedMessage
from bridge.a2a.tasks.task_registry import HeldElsewhereError
from bridge.a2a.tasks.watcher import Watcher
from bridge.errors import BridgeError, HolderGoneError, StoreAwayError, StoreConflictError, StoreError
from bridge.store.records import StoredTask
from bridge.store.replicas import Replicas

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")

MOST_LOOKS: Final = 8
"""How often one request looks for its task. Each further look means that another replica was faster or died."""


class Replicated(Layer):
    """Passes requests on to the replica of their task. The other replicas see this layer as a `ReplicaEngine`."""

    def __init__(self, engine: Engine, replicas: Replicas) -> None:
        super().__init__(engine)
        self._engine = engine
        self._replicas = replicas
        self._tasks = engine.registry

    def start(self) -> None:
        """Serve the other replicas, and adopt the tasks of dead ones. Call this once the engine runs."""
        self._replicas.start(self)

    # What this replica asks of the others

    async def send(self, request: SendMessageRequest, caller: CallContext) -> Task | Message:
        """See `TaskOperations.send`."""

        async def followed(reply: TakenReply) -> Task | Message:
            accepted = await self._followed(reply, request, caller)
            return await self._engine.answer_to(request, accepted, caller.patience_seconds)

        return await self._taken(partial(self._engine.send, request, caller), request, caller, followed)

    async def stream(self, request: SendMessageRequest, caller: CallContext) -> Watcher:
        """See `TaskOperations.stream`."""

        async def followed(reply: TakenReply) -> Watcher:
            live = (await self._followed(reply, request, caller)).live
            length = request.configuration.history_length if request.configuration else None
            most = self._engine.limits.watch_events
            return live.watch(most, length, closed_by=CLOSES_STREAM, note=reply.note)

        return await self._taken(partial(self._engine.stream, request, caller), request, caller, followed)

    async def cancel(self, task_id: str, caller: CallContext) -> Task:
        """See `TaskOperations.cancel`."""
        for _ in range(MOST_LOOKS):
            try:
                return await self._engine.cancel(task_id, caller)
            except StoreConflictError as exc:
                logger.info("another replica was faster: %s", exc)
            except HeldElsewhereError as there:
                held_id = there.task_id or task_id
                reply = await self._reply_of_holder(there, CancelCommand(held_id, caller))
                if isinstance(reply, ElsewhereReply):
                    continue
                # The replica may have canceled the task before it was gone.
                live = await self._tasks.require_owned(held_id, caller.principal)
                task = await self._tasks.visible_state(live)
                if isinstance(reply, CanceledReply) or task.status.state is TaskState.CANCELED:
                    return with_history(task, None)
        raise temporarily_unavailable("The task goes from one replica to another at the moment")

    async def _taken(
        self,
        here: Callable[[], Awaitable[AnswerT]],
        request: SendMessageRequest,
        caller: CallContext,
        followed: Callable[[TakenReply], Awaitable[AnswerT]],
    ) -> AnswerT:
        """The answer to a message that is accepted `here`, or at the replica of its task, which this replica then
        follows."""
        for _ in range(MOST_LOOKS):
            try:
                return await here()
            except StoreConflictError as exc:
                logger.info("another replica was faster: %s", exc)
            except HeldElsewhereError as there:
                passed = request if there.task_id is not None else _for_a_task(request)
                reply = await self._reply_of_holder(there, SendCommand(passed, caller, there.task_id))
                if isinstance(reply, TakenReply):
                    return await followed(reply)
                if reply is None and not _is_known_again(there, caller):
                    raise temporarily_unavailable("The replica that works on the task is gone") from None
        raise temporarily_unavailable("The task goes from one replica to another at the moment")

    async def _reply_of_holder(
        self, there: HeldElsewhereError, command: Command
    ) -> TakenReply | CanceledReply | ElsewhereReply | None:
        """The reply of a task's holder; None if the holder is gone."""
        assert there.holder is not None
        try:
            return reply_from(await self._replicas.ask(there.holder, command_bytes(command)))
        except HolderGoneError as exc:
            logger.info("%s; the bridge looks for the task again: %s", there, exc)
            return None
        except StoreError as exc:
            raise temporarily_unavailable("The replica that works on the task cannot be reached") from exc

    async def _followed(
        self, reply: TakenReply, request: SendMessageRequest, caller: CallContext
    ) -> AcceptedMessage:
        """A message that another replica accepted, with its task, which this replica follows."""
        live = await self._tasks.require_owned(reply.task_id, caller.principal)
        self._engine.messages.note_elsewhere(caller.principal.name, request.message.message_id, reply.task_id)
        return AcceptedMessage(live, reply.seq, None, Commit(done=True), reply.is_held, reply.note)

    # What the others ask of this replica

    async def answer(self, command: bytes) -> bytes:
        """See `ReplicaEngine.answer`."""
        return reply_bytes(await self._reply(command))

    async def _reply(self, command: bytes) -> Reply:
        try:
            return await self._done(command_from(command))
        except (HeldElsewhereError, StoreConflictError):
            return ElsewhereReply()
        except A2AError as refused:
            return refusal(refused)
        except StoreAwayError:
            return refusal(
                temporarily_unavailable("The replica that works on the task cannot reach its store")
            )
        except BridgeError as exc:
            return refusal(a2a_error_of(exc))
        except Exception:
            logger.exception("what another replica asked for failed")
            return refusal(A2AError(INTERNAL, "The bridge failed on this request; its log says why"))

    async def _done(self, command: Command) -> Reply:
        if isinstance(command, CancelCommand):
            await self._engine.cancel(command.task_id, command.caller)
            return CanceledReply()
        accepted = await self._engine.take(command.request, command.caller, watch=False, only=command.task_id)
        await self._tasks.reached(accepted.live, accepted.seq, settled=False)
        return TakenReply(accepted.live.id, accepted.seq, accepted.is_held, accepted.note)

    async def adopt(self, task: StoredTask) -> None:
        """See `ReplicaEngine.adopt`. Meanwhile, this replica may have claimed the task, or lost it."""
        if await self._tasks.is_free(task.task_id):
            self._engine.adopt(task)

    def fenced(self) -> None:
        """See `ReplicaEngine.fenced`."""
        logger.warning("this replica was silent for too long; others go on with its tasks")
        self._tasks.give_up()
        if self._engine.sessions is not None:
            self._engine.sessions.give_up()


def _for_a_task(request: SendMessageRequest) -> SendMessageRequest:
    """The message, changed so that another replica makes a task of it, and replies once the task is stored."""
    configuration = request.configuration or NO_CONFIGURATION
    return request.changed(configuration=configuration.changed(return_immediately=True))


def _is_known_again(there: HeldElsewhereError, caller: CallContext) -> bool:
    """Whether a message that was passed to a dead replica can be found by its id, if that replica accepted it.

    If clients name tasks, messages have no ids. Callers that share a name must not learn of each other's tasks.
    """
    if caller.names_tasks:
        return False
    return there.task_id is not None or caller.principal.may_list_all
