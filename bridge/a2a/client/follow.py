"""Follows a task of another agent until it settles, even if the connection breaks meanwhile.

    message ──▶ stream ──lost──▶ subscribe ──lost, refused──▶ get ──▶ pause ──▶ subscribe ...
       │           │                 │                         │
       └─ no streams: send at once ──┼─────────────────────────┤
                   ▼                 ▼                         ▼
                         settled: ended, or it asks for something

A Task in a stream replaces everything that was known. After a break, an agent may send events that its snapshot held
already, and events carry no numbers. So a task whose connection broke is read once more when it has settled. A message
is sent only once: without an answer, it is unknown whether the message arrived.

Spec: A2A 1.0 sections 3.1.2, 3.1.3, 3.1.6, 3.5.2 (streams are no reliable delivery), 7.6.1.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final

import anyio

from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.bindings import AgentRefusedError
from bridge.a2a.client.fold import FoldedMessage, FoldedTask, TaskTooLargeError, more_complete
from bridge.a2a.client.http import AgentBusyError, NotReachedError, UnansweredError
from bridge.a2a.model.life import ENDED, SETTLED
from bridge.a2a.model.objects import (
    NO_CONFIGURATION,
    UNNAMED,
    Artifact,
    Message,
    Role,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    made,
    text_of_parts,
)
from bridge.concurrency import Backoff
from bridge.errors import PeerError

logger = logging.getLogger(__name__)

_UNAVAILABLE: Final = 503
_SHOWN: Final = 200
"""How many characters of an incomplete message an error shows."""

Pause = Callable[[float], Awaitable[None]]
"""Waits before a task is read again: for this many seconds, or until a notification says that the task has changed.
With infinity, only a notification ends the wait."""


class OutcomeUnknownError(PeerError):
    """The message was sent, and no answer came. The agent may have received it, so it is not sent again."""

    def __init__(self, message: str, task_id: str | None) -> None:
        super().__init__(f"{message}. Whether the agent took the message is unknown; it is not sent again")
        self.task_id = task_id
        """The task of the message, for `wait_until_settled`; None if the message was to start one."""


class TaskLostError(PeerError):
    """The agent of a task has been out of reach for too long, or its task is above the limit. The task may go on."""

    def __init__(self, message: str, task_id: str, task: Task | None) -> None:
        super().__init__(message)
        self.task_id = task_id
        self.task = task
        """The task as it was last known; None if it was never seen."""


@dataclass(frozen=True, slots=True)
class FollowPace:
    """The times for following a task without a stream, and the bound on its size."""

    outage_seconds: float
    """How long the agent may be out of reach."""
    task_limit_bytes: int
    """The bound on a task, with its artifacts and messages."""
    first_seconds: float = 0.2
    """The first pause between two reads of the task. The pauses grow while nothing changes."""
    most_seconds: float = 5.0
    stale_seconds: float = 10.0
    """How long a task may still show an answered question. After this time the question counts as asked again."""

    late_seconds: float = 1.0
    """How long a stream may take to bring a change that a notification has reported."""
    end_seconds: float = 1.0
    """How long a stream may take to end after its task has ended. Until then, it may bring more of the result."""
    piece_seconds: float = 5.0
    """How long a stream may be silent before its message counts as complete, since some agents send a message in
    pieces; and how long a reply may wait for another read of its task."""

    def pauses(self) -> Backoff:
        """The pauses between two reads of the task."""
        return Backoff(self.first_seconds, self.most_seconds, factor=1.5)


def _ignore(_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class TaskListener:
    """Callbacks for the events of a task. They must not raise."""

    on_event: Callable[[StreamResponse], None] = _ignore
    """Called once with each event, in order. A Task replaces everything that was known."""
    on_task: Callable[[str], None] = _ignore
    """Called once with the task's id, as soon as it is known. `AgentClient.cancel` can then cancel the task."""


async def converse(
    client: AgentClient,
    request: SendMessageRequest,
    listener: TaskListener = TaskListener(),
    *,
    pace: FollowPace,
    answered: TaskStatus | None = None,
    pause: Pause = anyio.sleep,
) -> Task | Message:
    """Send one message and follow its task until it has settled: it has ended, or asks for something.

    `answered` is the status whose question the message answers; the task may still show it for a while. At
    AUTH_REQUIRED this function returns although the stream is open. To go on waiting, call `wait_until_settled` with
    that status.

    Cancelling this coroutine does not cancel the remote task. To cancel the remote task, call `client.cancel` with the
    id from `on_task`. Before `on_task`, the send must not be cut off, since the id comes with its answer: run this
    coroutine in a shielded task of its own, wait (with a bound) for `on_task`, cancel the remote task, and then cancel
    this coroutine.

    Raises:
        NotReachedError: the message was never sent.
        AgentBusyError: the agent says that it did not take the message.
        OutcomeUnknownError: the message was sent, and the stream was lost before its first event.
        AgentRefusedError: the agent refused the message.
        TaskLostError: the task is known, and its agent has been out of reach for too long.
        PeerError: the agent's answer is not A2A.

    Spec: A2A 1.0 sections 3.1.1 and 3.1.2.
    """
    following = _Following(client, listener, pace, answered, pause)
    following.may_be_asked_again()
    try:
        if client.streams_answers:
            reply = await following.listen(client.stream(request))
            reply = reply or await following.said_last()
        else:
            reply = following.take(event_of(await client.send(_at_once(request))))
    except UnansweredError as exc:
        raise OutcomeUnknownError(str(exc), request.message.task_id) from exc
    if reply is not None:
        return await following.in_full(reply)
    if following.task is None:
        raise OutcomeUnknownError(f"{client} ended its stream without an event", request.message.task_id)
    if following.task.id == UNNAMED:
        raise OutcomeUnknownError(f"{client} works on a task, but did not give the id of the task", None)
    return await following.settled(following.task.id, is_listening=client.streams_answers)


async def wait_until_settled(
    client: AgentClient,
    task_id: str,
    listener: TaskListener = TaskListener(),
    *,
    pace: FollowPace,
    answered: TaskStatus | None = None,
    pause: Pause = anyio.sleep,
) -> Task:
    """Follow a known task until it has settled. The task is read first, since an ended task has no stream.

    `answered` is a settled status that does not end the wait, however long the task shows it: an AUTH_REQUIRED that was
    dealt with.

    Raises:
        AgentRefusedError: the agent refuses to show the task, for instance with TASK_NOT_FOUND.
        TaskLostError: the agent has been out of reach for too long.
        PeerError: the agent's answer is not A2A.

    Spec: A2A 1.0 sections 3.1.3 and 3.1.6.
    """
    following = _Following(client, listener, pace, answered, pause)
    return await following.settled(task_id, is_listening=False)


class _Following:
    """The state of following one task."""

    def __init__(
        self,
        client: AgentClient,
        listener: TaskListener,
        pace: FollowPace,
        answered: TaskStatus | None,
        pause: Pause,
    ) -> None:
        self._gathered = FoldedTask(pace.task_limit_bytes)
        self._said = FoldedMessage(pace.task_limit_bytes)
        self._last_said: Message | None = None
        """The agent's message, if the last event was a message and the task is known."""
        self._was_shown = False
        """Whether the last event was the whole task."""
        self._is_whole = True
        """Whether the stream ended by itself and replaced no content that it had sent."""
        self._client = client
        self._listener = listener
        self._pace = pace
        self._answered = answered
        self._pause = pause
        self._answered_until = math.inf
        self._can_subscribe = client.streams
        self._heard = 0
        """The number of events so far."""
        self._is_doubted = False
        """Whether a notification has reported a change that the stream has not brought yet."""

    @property
    def task(self) -> Task | None:
        """The known task; None before its first event."""
        return self._gathered.task

    def may_be_asked_again(self) -> None:
        """Note that the answer is being sent: after `stale_seconds` the same question counts as a new one."""
        self._answered_until = anyio.current_time() + self._pace.stale_seconds

    async def settled(self, task_id: str, *, is_listening: bool) -> Task:
        """Follow the task until it has settled. `is_listening` says that a stream of the task was open and ended."""
        must_look = not is_listening
        pauses = self._pace.pauses()
        while True:
            before = self.task
            if must_look and self._has_settled(task := await self._read_task(task_id)):
                return task
            must_look = True
            if self._can_subscribe:
                has_settled = await self._subscribe(task_id)
                if has_settled and self._has_settled(task := await self._looked_over(task_id)):
                    return task
                if has_settled is None:
                    continue  # the task may have ended, or gone on without the stream
            if self.task != before:
                pauses.reset()
            await self._pause(pauses.next())

    async def in_full(self, reply: Task | Message) -> Task | Message:
        """The reply to a message, with its content.

        An ended task is read again if some of its content may be missing: some agents put a result only into the task,
        and report in the stream only that they are done.
        """
        if isinstance(reply, Message) or reply.status.state not in ENDED:
            return reply
        may_lack = reply.status.state is TaskState.COMPLETED and not self._was_shown
        is_told = reply.artifacts or (reply.status.message and not may_lack)
        if is_told and self._is_whole:
            return reply
        with anyio.move_on_after(
            self._pace.piece_seconds
        ):  # the reply is known, so it must not wait for long
            read = await self._looked_over(reply.id)
            return read if read.status.state in ENDED else reply
        return reply

    async def listen(self, events: AsyncGenerator[StreamResponse, None]) -> Task | Message | None:
        """Take the events of a stream until the task settles. Returns the reply; None if the stream ends or breaks
        before.

        A stream is read to its end, but not for long after a reply: a message may come in pieces, and some agents say
        that they are done before they give the result.

        Raises:
            UnansweredError: the stream broke before its first event.
            PeerError: the stream broke within a message that came in pieces.
        """
        has_begun, reply = False, None
        try:
            async with aclosing(events):
                while (event := await self._next(events, reply)) is not None:
                    has_begun, reply = True, self.take(event)
                    if isinstance(reply, Task) and reply.status.state not in ENDED:
                        return reply
        except PeerError as exc:
            is_broken = isinstance(exc, UnansweredError)
            if not has_begun or (reply is None and not is_broken):
                raise
            if isinstance(reply, Message) and (self._said.is_in_pieces or not is_broken):
                raise PeerError(
                    f"{exc}. This part of the answer had arrived: {text_of_parts(reply.parts)[:_SHOWN]}"
                ) from exc
            self._is_whole = False
            logger.info("a stream of %s was lost: %s", self._client, exc)
        return reply

    async def _next(
        self, events: AsyncGenerator[StreamResponse, None], reply: Task | Message | None
    ) -> StreamResponse | None:
        """The next event of a stream; None at its end, or if no event follows a reply in time."""
        if reply is None:
            return await anext(events, None)
        seconds = self._pace.end_seconds
        if isinstance(reply, Message):
            seconds = math.inf if self._said.is_in_pieces else self._pace.piece_seconds
        with anyio.move_on_after(seconds):
            return await anext(events, None)
        self._is_whole = False
        return None

    async def said_last(self) -> Task | Message | None:
        """The reply of a stream that ended with a message before its task settled; None if the stream ended otherwise.

        The task is read, since it may have settled meanwhile. If not, its artifacts become part of the reply.
        """
        if self._last_said is None or self.task is None:
            return None
        reply, task = self._last_said, self.task
        with suppress(PeerError), anyio.move_on_after(self._pace.piece_seconds):
            task = await self._client.get(self.task.id)
        if task.status.state in SETTLED:
            self._is_whole = False
            return self.take(made(StreamResponse, task=task))
        given_parts = tuple(part for artifact in self.task.artifacts or () for part in artifact.parts)
        return reply.changed(parts=(*given_parts, *reply.parts)) if given_parts else reply

    def take(self, event: StreamResponse) -> Task | Message | None:
        """Take an event. Returns the reply so far if the event is a Message without a task, or if the task has settled;
        else None."""
        self._heard += 1
        payload = event.payload
        if isinstance(payload, Message) and self.task is None:
            self._listener.on_event(event)
            try:
                return self._said.take(payload)
            except TaskTooLargeError:
                raise PeerError(f"{self._client} sends more than {self._limit_words}") from None
        if event.task is not None and event.task == self.task:
            self._was_shown = True
            return self._reply(self.task)
        if (
            isinstance(payload, TaskArtifactUpdateEvent)
            and not payload.append
            and self._has(payload.artifact)
        ):
            self._is_whole = False  # the event replaces the artifact, or its agent forgot `append`
        is_named = self.task is not None and self.task.id != UNNAMED
        if isinstance(payload, Message) and self.task is not None:
            event = made(StreamResponse, message=payload.changed(task_id=self.task.id))
        has_begun = self.task is not None
        task = self._gather(event)
        if not has_begun and (message := self._said.message) is not None:  # this message came before the task
            task = self._gather(made(StreamResponse, message=message.changed(task_id=task.id)))
        if not is_named and task.id != UNNAMED:
            self._listener.on_task(task.id)
        self._listener.on_event(event)
        self._was_shown = event.task is not None
        is_agents = isinstance(payload, Message) and payload.role is Role.AGENT
        self._last_said = task.history[-1] if is_agents and task.history else None
        return self._reply(task)

    def _has(self, artifact: Artifact) -> bool:
        """Whether the task has an artifact with this id and other content."""
        known = self.task.artifacts if self.task else None
        return any(other.artifact_id == artifact.artifact_id and other != artifact for other in known or ())

    def _gather(self, event: StreamResponse) -> Task:
        """Fold an event into the known task.

        Raises:
            TaskLostError: the task is above `task_limit_bytes`.
        """
        try:
            return self._gathered.take(event)
        except TaskTooLargeError:
            task_id = self.task.id if self.task else _task_id_of(event)
            words = f"{self._client} sends more than {self._limit_words}"
            raise TaskLostError(words, task_id, self.task) from None

    @property
    def _limit_words(self) -> str:
        return f"{self._pace.task_limit_bytes} bytes, the limit that `task_limit_bytes` sets"

    async def _subscribe(self, task_id: str) -> bool | None:
        """Subscribe to the task. Returns whether the task has settled; None if only a read of the task can tell."""
        self._is_doubted = False
        async with anyio.create_task_group() as group:
            group.start_soon(self._doubt, task_id, group.cancel_scope)
            state = await self._subscribed(task_id)
            group.cancel_scope.cancel()
            return None if self._is_doubted and not state else state
        return None

    async def _doubt(self, task_id: str, listening: anyio.CancelScope) -> None:
        """End a stream that does not bring a change that a notification reported: its connection may be dead."""
        while True:
            await self._pause(math.inf)
            heard, known, self._is_doubted = self._heard, self.task, True
            await anyio.sleep(self._pace.late_seconds)
            if heard == self._heard and known is not None:
                with suppress(PeerError):
                    task = await self._client.get(task_id)
                    if heard == self._heard and task.status.state is not known.status.state:
                        return listening.cancel()
            self._is_doubted = False

    async def _subscribed(self, task_id: str) -> bool | None:
        """Read the stream of a subscription. Returns whether the task has settled; None if the agent refuses
        subscriptions."""
        try:
            return await self.listen(self._client.subscribe(task_id)) is not None
        except (NotReachedError, AgentBusyError, UnansweredError) as exc:
            logger.debug("a subscription to %s failed: %s", self._client, exc)
            return False
        except PeerError as exc:
            # The task has ended, or the agent streams only its answers to messages.
            logger.debug("%s refuses subscriptions: %s", self._client, exc)
            self._can_subscribe = is_transient(exc)
            return False if self._can_subscribe else None

    async def _read_task(self, task_id: str) -> Task:
        """Read the task, and retry while its agent is out of reach.

        Raises:
            TaskLostError: the agent has been out of reach for `outage_seconds`.
            PeerError: the agent refuses, or its answer is not A2A.
        """
        pauses, given_up_at = self._pace.pauses(), anyio.current_time() + self._pace.outage_seconds
        is_told = False
        while True:
            pause_seconds = pauses.next()
            try:
                task = await self._client.get(task_id)
            except PeerError as exc:
                if not is_transient(exc):
                    raise
                if not is_told:
                    is_told, seconds = True, self._pace.outage_seconds
                    logger.warning("task %s is read again for up to %g s: %s", task_id, seconds, exc)
                if isinstance(exc, AgentBusyError):
                    pause_seconds = max(pause_seconds, exc.retry_after_seconds)
                if anyio.current_time() + pause_seconds > given_up_at:
                    lost = f"{self._client} has been out of reach for {self._pace.outage_seconds:g} s: {exc}"
                    raise TaskLostError(lost, task_id, self.task) from exc
            else:
                self.take(made(StreamResponse, task=task))
                assert self.task is not None
                return self.task
            await anyio.sleep(pause_seconds)

    async def _looked_over(self, task_id: str) -> Task:
        """Read a task once more after a stream has settled it, if possible.

        The task that is read repeats no content, as a new stream may do, and has content that no stream sent.
        """
        assert self.task is not None
        try:
            self.take(made(StreamResponse, task=more_complete(self.task, await self._client.get(task_id))))
        except PeerError as exc:
            logger.info("a task of %s could not be read, so only its events are used: %s", self._client, exc)
        return self.task

    def _reply(self, task: Task) -> Task | None:
        return task if self._has_settled(task) else None

    def _has_settled(self, task: Task) -> bool:
        if task.status.state not in SETTLED:
            return False
        return task.status != self._answered or anyio.current_time() >= self._answered_until


def _at_once(request: SendMessageRequest) -> SendMessageRequest:
    """The same request, with `return_immediately`."""
    configuration = request.configuration or NO_CONFIGURATION
    return request.changed(configuration=configuration.changed(return_immediately=True))


def _task_id_of(event: StreamResponse) -> str:
    payload = event.payload
    return payload.id if isinstance(payload, Task) else payload.task_id or ""


def event_of(answer: Task | Message) -> StreamResponse:
    """The answer to a message as an event of a stream."""
    if isinstance(answer, Task):
        return made(StreamResponse, task=answer)
    return made(StreamResponse, message=answer)


def is_transient(exc: PeerError) -> bool:
    """Whether a read that failed may succeed a little later."""
    if isinstance(exc, AgentRefusedError):
        return exc.kind is not None and exc.kind.http_status == _UNAVAILABLE
    return isinstance(exc, NotReachedError | AgentBusyError | UnansweredError)
