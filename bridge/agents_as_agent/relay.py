"""Passes the events of a remote task on as events of a task of ours, in order and once.

A remote agent may show its whole task again, after a break or because it pleases: then only what is new is passed on.
What is shown already is known by the artifacts of our own task, so that this also holds after a restart. The state that
settles the task is passed on last, once the remote task is complete.

Spec: A2A 1.0 sections 3.1.2, 3.2.3 (events), 4.1 (objects).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bridge.a2a.model.life import ENDED, SETTLED
from bridge.a2a.model.objects import (
    UNNAMED,
    Artifact,
    Message,
    Part,
    Role,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    made,
)
from bridge.a2a.tasks.agent import Commit, Job
from bridge.agents_as_agent.ids import OwnIds
from bridge.agents_as_agent.kept import RemoteTask, kept_bytes
from bridge.text.jsonvalues import JsonObject


class TaskRelay:
    """The events of one remote task."""

    def __init__(
        self, job: Job, ids: OwnIds, far: RemoteTask, context_of_reply: Callable[[str | None], str]
    ) -> None:
        """`far` is the remote task; its id is empty until the remote agent has named the task. `context_of_reply` gives
        our context of an answer that is a message, by the remote context of the message."""
        self._job = job
        self._context_of_reply = context_of_reply
        self._ids = ids
        self.far = far
        known = job.turn.task
        self._parts: dict[str, tuple[Part, ...]] = {
            artifact.artifact_id: tuple(artifact.parts)
            for artifact in (known.artifacts if known is not None else None) or ()
        }
        """The parts of each artifact that were passed on, by our id of the artifact."""
        self._said = {message.message_id for message in (known.history if known is not None else None) or ()}
        """Our ids of the messages that were passed on."""
        self._state = TaskState.SUBMITTED if known is None else known.status.state
        self.has_ended = False
        self._settling: JsonObject | None = None
        """The metadata of the last event that settled the task."""

    def name(self, task_id: str, context_id: str | None = None) -> None:
        """Note the id of the remote task, before anything else of the task is passed on: from now on another process
        can go on with the task."""
        if task_id == self.far.task_id:
            return
        self.far = replace(self.far, task_id=task_id, context_id=context_id or self.far.context_id)
        self._job.outlive()
        self._state = TaskState.WORKING
        self._job.status(TaskState.WORKING, keep=kept_bytes(self.far))

    def take(self, event: StreamResponse) -> None:
        """Pass an event on, without the state that settles the task. Must not raise, see `TaskListener`."""
        match event.payload:
            case Task() as task:
                self._note_context(task.context_id)
                self._take_whole(task)
            case TaskStatusUpdateEvent() as update:
                self._note_context(update.context_id)
                self._take_status(update.status, update.metadata)
            case TaskArtifactUpdateEvent() as update:
                self._note_context(update.context_id)
                self._take_piece(update)
            case Message() as message if message.task_id is not None:
                self._say(message)
            case Message():
                pass  # the answer, which `end` passes on

    def say(self, words: str) -> None:
        """Say something about the remote task in the bridge's own words."""
        self._report(self._job.message((Part(text=words),)), None)

    async def end(self, outcome: Task | Message) -> None:
        """Pass on what the remote agent answered at last: a message, or its task, which has settled."""
        if self.has_ended:
            return
        if isinstance(outcome, Message):
            self.has_ended = True
            await self._answer(outcome)
            return
        self._note_context(outcome.context_id)
        self._take_whole(outcome)
        status = outcome.status
        self._say_what_is_missing(outcome)
        asks = status.state not in ENDED
        metadata = {**(outcome.metadata or {}), **(self._settling or {})} or None
        self.far = self.far.settled(status if asks else None, metadata)
        self.has_ended = not asks
        await self._settle(status, metadata)

    def _settle(self, status: TaskStatus, metadata: JsonObject | None) -> Commit:
        self._state = status.state
        message = None if status.message is None else self._own(status.message)
        return self._job.status(status.state, message, metadata=metadata, keep=kept_bytes(self.far))

    def _take_whole(self, task: Task) -> None:
        for artifact in task.artifacts or ():
            self._show(self._ids.of_artifact(artifact))
        self._take_status(task.status, None)

    def _take_status(self, status: TaskStatus, metadata: JsonObject | None) -> None:
        if status.state in SETTLED:
            self._settling = metadata or self._settling
            return
        self._settling = None
        if status.message is not None and status.message.role is Role.AGENT:
            message = self._own(status.message)
            if message.message_id not in self._said or metadata:
                self._report(message, metadata)
        elif metadata or (status.state is TaskState.WORKING and self._state is not TaskState.WORKING):
            self._report(None, metadata)

    def _say(self, message: Message) -> None:
        if message.role is Role.AGENT and (own := self._own(message)).message_id not in self._said:
            self._report(own, None)

    def _say_what_is_missing(self, task: Task) -> None:
        """Pass on the agent's messages that stand in the history alone."""
        last = None if task.status.message is None else task.status.message.message_id
        for message in task.history or ():
            if message.message_id != last:
                self._say(message)

    def _report(self, message: Message | None, metadata: JsonObject | None) -> None:
        self._state = TaskState.WORKING
        if message is not None:
            self._said.add(message.message_id)
        self._job.status(TaskState.WORKING, message, metadata=metadata)

    def _take_piece(self, update: TaskArtifactUpdateEvent) -> None:
        artifact = self._ids.of_artifact(update.artifact)
        known = self._parts.get(artifact.artifact_id)
        append = bool(update.append) and known is not None
        if not append and known == tuple(artifact.parts):
            return  # a stream that began again
        self._parts[artifact.artifact_id] = (
            (*(known or ()), *artifact.parts) if append else tuple(artifact.parts)
        )
        own = update.changed(
            task_id=self._ids.task_id,
            context_id=self._ids.context_id,
            artifact=artifact,
            append=append or None,
        )
        self._job.emit(made(StreamResponse, artifact_update=own), None)

    def _show(self, artifact: Artifact) -> None:
        """Pass on an artifact that is shown as a whole: its new parts, or the whole of another content."""
        parts = tuple(artifact.parts)
        known = self._parts.get(artifact.artifact_id)
        if known == parts or (known is not None and _texts_joined(known) == _texts_joined(parts)):
            return
        self._parts[artifact.artifact_id] = parts
        if known and parts[: len(known)] == known:
            self._job.artifact(artifact.changed(parts=parts[len(known) :]), append=True)
        else:
            self._job.artifact(artifact)

    async def _answer(self, message: Message) -> None:
        self._note_context(message.context_id)
        context_id = self._context_of_reply(self.far.context_id)
        own = self._own(message).changed(task_id=None, context_id=context_id)
        await self._job.reply(own, kept_bytes(self.far))

    def _own(self, message: Message) -> Message:
        return self._ids.of_message(message, self.far.task_id or None)

    def _note_context(self, context_id: str | None) -> None:
        if context_id not in (None, UNNAMED, self.far.context_id):
            self.far = replace(self.far, context_id=context_id)


def _texts_joined(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts, with neighbouring plain texts as one: agents show the pieces of a stream as one text later."""
    joined: list[Part] = []
    for part in parts:
        before = joined[-1] if joined else None
        if before is not None and before.kind == part.kind == "text" and before.metadata == part.metadata:
            joined[-1] = before.changed(text=f"{before.text}{part.text}")
        else:
            joined.append(part)
    return tuple(joined)
