"""A task that may turn out to be none: quick work is answered with a Message alone, when that says it all.

Nothing of a draft is stored and nobody can ask for it, until something happens that a Message cannot say: a
failure, a question, a report on the way, or that it is stopped. From then on it is a task like any other, with all
that happened to it so far. A draft that was answered leaves nothing behind: the same message again is a new call.

Spec: A2A 1.0 sections 3.1.1 and 3.1.2 (a Message in place of a Task).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import anyio

from bridge.a2a.model.objects import Message, Role, StreamResponse, Task, TaskState
from bridge.a2a.tasks.agent import Commit, Job, PlannedWork
from bridge.a2a.tasks.live import LiveTask, Submit
from bridge.store.records import Change, MessageKey, OnStored, TaskOrigin


@dataclass(frozen=True, slots=True)
class BriefWork:
    """Work that is answered with a Message alone when it completes without anything else to say. As it may be done
    twice when its message is sent again, it has to be work that does no harm then."""

    work: PlannedWork

    async def __call__(self, job: Job) -> None:
        """Do the work."""
        await self.work(job)


class _HeldBack:
    """Keeps changes away from a store until they may go on to it."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._held: list[tuple[Change, OnStored]] | None = []

    def take(self, change: Change, done: OnStored) -> None:
        if self._held is None:
            self._submit(change, done)
        else:
            self._held.append((change, done))

    def let_go(self) -> None:
        held, self._held = self._held, None
        for change, done in held or ():
            self._submit(change, done)


class DraftTask(LiveTask):
    """One task in memory, or a Message."""

    def __init__(
        self, task_id: str, origin: TaskOrigin, submit: Submit, on_change: Callable[[LiveTask], None]
    ) -> None:
        self._held = _HeldBack(submit)
        super().__init__(task_id, origin, self._held.take, on_change)
        self._decided = anyio.Event()
        self._reply: Message | None = None
        self._first: Commit | None = None
        self._on_task: Callable[[Commit], None] = lambda _: None

    async def reply(self) -> Message | None:
        """The Message that it came to; None once it is a task."""
        await self._decided.wait()
        return self._reply

    @property
    def idle(self) -> bool:
        """Whether it may leave memory; what was answered with a Message may."""
        return self.running is None if self._reply is not None else super().idle

    @property
    def is_over(self) -> bool:
        """Whether it has ended, as a task or as a Message."""
        return self._reply is not None or super().is_over

    def when_task(self, then: Callable[[Commit], None]) -> None:
        """Call this when it is a task, with what says when its first event is stored."""
        self._on_task = then

    def accept(
        self, event: StreamResponse, *, keep: bytes | None = None, message: MessageKey | None = None
    ) -> Commit:
        """See `Live.accept`. There is nothing to wait for as long as nothing is stored."""
        commit = super().accept(event, keep=keep, message=message)
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
            self._reply = _message_from(self.task)
            if self._reply is None:
                return self._become_task()
            self._decided.set()
            self.end_streams_with(StreamResponse(message=self._reply))
        return None

    def _become_task(self) -> None:
        self._decided.set()
        assert self._first is not None
        self._held.let_go()
        self._on_task(self._first)


def _is_sayable(event: StreamResponse) -> bool:
    """Whether a Message at the end could stand for this event."""
    update = event.status_update
    if update is None:
        return True
    state, message = update.status.state, update.status.message
    is_silent = state is TaskState.WORKING and message is None and not update.metadata
    return is_silent or (state is TaskState.COMPLETED and not (message and message.metadata))


def _message_from(task: Task) -> Message | None:
    """What a completed task says, as a Message; None when it has more to say than a Message can, or nothing."""
    if task.artifacts is None or len(task.artifacts) != 1:
        return None
    (artifact,) = task.artifacts
    said = task.status.message
    return Message(
        message_id=artifact.artifact_id,
        context_id=task.context_id,
        role=Role.AGENT,
        parts=(*artifact.parts, *(said.parts if said else ())),
        metadata=artifact.metadata,
    )
