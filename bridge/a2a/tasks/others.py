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
from typing import Final, Protocol

from bridge.a2a.model.errors import INTERNAL, A2AError, a2a_error_of, temporarily_unavailable
from bridge.a2a.model.life import CLOSES_STREAM, ENDED, with_history
from bridge.a2a.model.objects import SendMessageConfiguration, SendMessageRequest, Task, TaskState
from bridge.a2a.tasks.agent import Commit
from bridge.a2a.tasks.callers import CallContext
from bridge.a2a.tasks.idempotency import MessageBook
from bridge.a2a.tasks.intake import AcceptedMessage, EngineLimits
from bridge.a2a.tasks.live import LiveTask
from bridge.a2a.tasks.replica_commands import (
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
from bridge.a2a.tasks.session_owners import SessionOwnership
from bridge.a2a.tasks.task_registry import HeldElsewhereError, TaskRegistry
from bridge.errors import BridgeError, HolderGoneError, StoreAwayError, StoreConflictError, StoreError
from bridge.store.records import StoredTask
from bridge.store.replicas import Replicas

logger = logging.getLogger(__name__)

MOST_LOOKS: Final = 8
"""How often one request looks for its task. Each further look means that another replica was faster or died."""


class ReplicaWork(Protocol):
    """The operations of an engine without help from other replicas.

    Each method raises HeldElsewhereError if another replica has to be asked, and StoreConflictError if another replica
    was faster.
    """

    @property
    def limits(self) -> EngineLimits:
        """The engine's times and bounds."""
        ...

    async def take_here(
        self, request: SendMessageRequest, caller: CallContext, *, watch: bool, only: str | None = None
    ) -> AcceptedMessage:
        """Accept a message; with `only`, a message to this task."""
        ...

    async def cancel_here(self, task_id: str, caller: CallContext) -> Task:
        """Cancel a task."""
        ...

    def adopt(self, task: StoredTask) -> None:
        """Continue a task that this replica has adopted."""
        ...


class OtherReplicas:
    """The other replicas, for this replica's engine. The other replicas see it as a `ReplicaEngine`."""

    def __init__(
        self,
        replicas: Replicas,
        tasks: TaskRegistry,
        sessions: SessionOwnership,
        book: MessageBook,
        work: ReplicaWork,
    ) -> None:
        self._replicas = replicas
        self._tasks = tasks
        self._sessions = sessions
        self._book = book
        self._work = work

    # What this replica asks of the others

    async def take(self, request: SendMessageRequest, caller: CallContext, *, watch: bool) -> AcceptedMessage:
        """Accept a message, here or at the replica of its task.

        Raises:
            A2AError: the message is refused.
        """
        for _ in range(MOST_LOOKS):
            try:
                return await self._work.take_here(request, caller, watch=watch)
            except StoreConflictError as exc:
                logger.info("another replica was faster: %s", exc)
            except HeldElsewhereError as there:
                passed = request if there.task_id is not None else _for_a_task(request)
                reply = await self._reply_of_holder(there, SendCommand(passed, caller, there.task_id))
                if isinstance(reply, TakenReply):
                    return await self._followed(reply, request, caller, watch=watch)
                if reply is None and not _is_known_again(there, caller):
                    raise temporarily_unavailable("The replica that works on the task is gone") from None
        raise temporarily_unavailable("The task goes from one replica to another at the moment")

    async def cancel(self, task_id: str, caller: CallContext) -> Task:
        """Cancel a task, here or at its replica.

        Raises:
            A2AError: TASK_NOT_FOUND, TASK_NOT_CANCELABLE.
        """
        for _ in range(MOST_LOOKS):
            try:
                return await self._work.cancel_here(task_id, caller)
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
        self, reply: TakenReply, request: SendMessageRequest, caller: CallContext, *, watch: bool
    ) -> AcceptedMessage:
        """A message that another replica accepted, with its task, which this replica follows."""
        live = await self._tasks.require_owned(reply.task_id, caller.principal)
        self._book.note_elsewhere(caller.principal.name, request.message.message_id, reply.task_id)
        length = request.configuration.history_length if request.configuration else None
        watcher = None
        if watch:
            most = self._work.limits.watch_events
            watcher = live.watch(most, length, closed_by=CLOSES_STREAM, note=reply.note)
        return AcceptedMessage(live, reply.seq, watcher, Commit(done=True), reply.is_held, reply.note)

    def give_back(self, live: LiveTask, *, is_left: bool) -> None:
        """Release a task that has no more work here to the other replicas. `is_left` says that the task needs more
        work."""
        if live.overtaken or live.failure is not None or live.task.status.state in ENDED:
            return
        give = self._replicas.hand_over if is_left else self._replicas.release
        give(live.id, live.next_seq - 1)

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
            await self._work.cancel_here(command.task_id, command.caller)
            return CanceledReply()
        accepted = await self._work.take_here(
            command.request, command.caller, watch=False, only=command.task_id
        )
        await self._tasks.reached(accepted.live, accepted.seq, settled=False)
        return TakenReply(accepted.live.id, accepted.seq, accepted.is_held, accepted.note)

    async def adopt(self, task: StoredTask) -> None:
        """See `ReplicaEngine.adopt`. Meanwhile, this replica may have claimed the task, or lost it."""
        if await self._tasks.is_free(task.task_id):
            self._work.adopt(task)

    def fenced(self) -> None:
        """See `ReplicaEngine.fenced`."""
        logger.warning("this replica was silent for too long; others go on with its tasks")
        self._tasks.give_up()
        self._sessions.give_up()


def _for_a_task(request: SendMessageRequest) -> SendMessageRequest:
    """The message, changed so that another replica makes a task of it, and replies once the task is stored."""
    configuration = request.configuration or SendMessageConfiguration()
    return request.changed(configuration=configuration.changed(return_immediately=True))


def _is_known_again(there: HeldElsewhereError, caller: CallContext) -> bool:
    """Whether a message that was passed to a dead replica can be found by its id, if that replica accepted it.

    If clients name tasks, messages have no ids. Callers that share a name must not learn of each other's tasks.
    """
    if caller.names_tasks:
        return False
    return there.task_id is not None or caller.principal.may_list_all
