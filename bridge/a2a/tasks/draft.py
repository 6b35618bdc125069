"""Draft tasks: brief work is answered with a Message alone, and becomes a task only if a Message is not enough.

A draft is not stored, and clients cannot get it. It becomes a task with the first event that a Message cannot express:
a failure, a question, a progress report, or a stop. The task then has all earlier events, too. A draft that was
answered with a Message leaves nothing behind, so a repeat of its message is a new call.

Spec: A2A 1.0 sections 3.1.1 and 3.1.2 (a Message in place of a Task).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import anyio

from bridge.a2a.model.objects import Message, Role, StreamResponse, Task, TaskState, made
from bridge.a2a.tasks.agent import Commit, Job, PlannedWork, ReservedWork
from bridge.a2a.tasks.live import LiveTask, Submit, TaskWriting, is_silent
from bridge.errors import StoreConflictError, StoreError
from bridge.store.contract import OnStored
from bridge.store.outbox import Webhook
from bridge.store.records import Change, MessageKey, TaskOrigin


@dataclass(frozen=True, slots=True)
class BriefWork:
    """Work that is answered with a Message alone, if it completes and a Message can express the result.

    A repeat of the message does the work again, so it must be harmless to repeat.
    """

    work: PlannedWork

    async def __call__(self, job: Job) -> None:
        """Do the work."""
        await self.work(job)

    def drop(self) -> None:
        """See `ReservedWork.drop`."""
        if isinstance(self.work, ReservedWork):
            self.work.drop()


class _HeldBack:
    """Holds changes back from a store until they are released."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._held: list[tuple[Change, OnStored]] | None = []

    def take(self, change: Change, done: OnStored) -> None:
        if self._held is None:
            self._submit(change, done)
        else:
            self._held.append((change, done))

    def submit_held(self) -> None:
        held, self._held = self._held, None
        for change, done in held or ():
            self._submit(change, done)


class DraftTask(LiveTask):
    """A task in memory that may become a Message instead."""

    def __init__(self, task_id: str, origin: TaskOrigin, writing: TaskWriting) -> None:
        self._held = _HeldBack(writing.submit)
        super().__init__(task_id, origin, replace(writing, submit=self._held.take))
        self._decided = anyio.Event()
        self._said: Message | None = None
        """The agent's own message, which answers the work once the work completes."""
        self._reply: Message | None = None
        self._first: Commit | None = None
        self._on_task: Callable[[Commit], None] = lambda _: None

    @property
    def is_open(self) -> bool:
        """Whether it is undecided if the draft becomes a task. Until the decision, the store has nothing of the
        draft."""
        return not self._decided.is_set()

    async def reply(self) -> Message | None:
        """The Message that answers the work; None if the draft has become a task. Waits for the decision."""
        await self._decided.wait()
        return self._reply

    async def is_forestalled(self) -> bool:
        """Whether another replica was first to make a task of the same message. Waits until this is known.

        Called only after the draft has become a task.
        """
        assert self._first is not None
        try:
            await self._first
        except StoreConflictError:
            return True
        except StoreError:
            return False
        return False

    @property
    def idle(self) -> bool:
        """Whether the task may leave memory. A draft with a reply may leave once its work has returned."""
        return self.running is None if self._reply is not None else super().idle

    @property
    def is_over(self) -> bool:
        """Whether the work has ended, with a task or with a Message."""
        return self._reply is not None or super().is_over

    def when_task(self, then: Callable[[Commit], None]) -> None:
        """Call `then` when the draft becomes a task, with the commit of the task's first event."""
        self._on_task = then

    def accept(
        self,
        event: StreamResponse,
        *,
        keep: bytes | None = None,
        message: MessageKey | None = None,
        replaces: str | None = None,
        webhook: Webhook | None = None,
    ) -> Commit:
        """See `LiveTask.accept`. While nothing is stored, the commit is already done."""
        if self.is_open and event.message is not None and event.message.role is Role.AGENT:
            self._said = event.message
            return Commit(done=True)
        commit = super().accept(event, keep=keep, message=message, replaces=replaces, webhook=webhook)
        if self._decided.is_set():
            return commit
        self._first = self._first or commit
        self._decide(event, keep)
        is_task = self._decided.is_set() and self._reply is None
        return commit if is_task else Commit(done=True)

    def _decide(self, event: StreamResponse, keep: bytes | None) -> None:
        if keep or not _is_sayable(event):
            self._become_task()
        elif self.task.status.state is TaskState.COMPLETED:
            self._reply = self._said or _message_from(self.task)
            if self._reply is None:
                return self._become_task()
            self._decided.set()
            self.end_streams_with(made(StreamResponse, message=self._reply))
        return None

    def _become_task(self) -> None:
        self._decided.set()
        assert self._first is not None
        self._held.submit_held()
        self._on_task(self._first)


def _is_sayable(event: StreamResponse) -> bool:
    """Whether a Message can still answer the work after this event."""
    update = event.status_update
    if update is None or is_silent(event):
        return True
    state, message = update.status.state, update.status.message
    return state is TaskState.COMPLETED and not (message and message.metadata)


def _message_from(task: Task) -> Message | None:
    """A completed task as a Message; None unless the task has exactly one artifact, or only a last message."""
    if not task.artifacts and task.status.message is not None:
        return task.status.message.changed(task_id=None)
    if task.artifacts is None or len(task.artifacts) != 1:
        return None
    (artifact,) = task.artifacts
    message = task.status.message
    return made(
        Message,
        message_id=artifact.artifact_id,
        context_id=task.context_id,
        role=Role.AGENT,
        parts=(*artifact.parts, *(message.parts if message else ())),
        metadata=artifact.metadata,
    )
