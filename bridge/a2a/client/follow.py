"""A task of another agent, run to where it settles, whatever becomes of the connection meanwhile.

    message ──▶ stream ──lost──▶ subscribe ──lost, refused──▶ get ──▶ pause ──▶ subscribe ...
       │           │                 │                         │
       └─ no streams: send at once ──┼─────────────────────────┤
                   ▼                 ▼                         ▼
                         settled: ended, or it asks for something

A Task in mid-stream is all that is known, and replaces what was. An agent may tell again after a break what its
snapshot held already, and events carry no numbers; so a task that was followed over a break is read once more
when it has settled. A message is sent once: whether it arrived cannot be known when nothing came back.

Spec: A2A 1.0 sections 3.1.2, 3.1.3, 3.1.6, 3.5.2 (streams are no reliable delivery), 7.6.1.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final

import anyio

from bridge.a2a.client.bindings import AgentRefusedError
from bridge.a2a.client.client import AgentClient
from bridge.a2a.client.fold import FoldedTask, TaskTooLargeError, more_complete
from bridge.a2a.client.http import NotReachedError, UnansweredError
from bridge.a2a.model.life import ENDED, SETTLED
from bridge.a2a.model.objects import (
    Message,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskStatus,
)
from bridge.backoff import Backoff
from bridge.errors import PeerError

logger = logging.getLogger(__name__)

_UNAVAILABLE: Final = 503
_END_SECONDS: Final = 0.1
"""How long a stream that has said its last may take to end."""


class OutcomeUnknownError(PeerError):
    """The message left, and nothing came back: it may or may not have been taken, so it is not sent again."""

    def __init__(self, message: str, task_id: str | None) -> None:
        super().__init__(f"{message}. Whether the agent took the message is unknown; it is not sent again")
        self.task_id = task_id
        """The task that the message was for, which `wait_until_settled` can look at; None when it was to begin one."""


class TaskLostError(PeerError):
    """A task whose agent has been out of reach for too long. It may go on there."""

    def __init__(self, message: str, task_id: str, task: Task | None) -> None:
        super().__init__(message)
        self.task_id = task_id
        self.task = task
        """As it was last known; None when it was never seen."""


@dataclass(frozen=True, slots=True)
class FollowPace:
    """How a task is followed where no stream tells of it."""

    outage_seconds: float
    """How long its agent may be out of reach."""
    task_limit_bytes: int
    """How much a task may hold, its artifacts, its messages and all."""
    first_seconds: float = 0.2
    """Until it is looked at again; the pauses grow as long as nothing changes."""
    most_seconds: float = 5.0
    stale_seconds: float = 10.0
    """How long a task may show the question that was just answered before it is taken for asked again."""

    def pauses(self) -> Backoff:
        """Between two looks at it."""
        return Backoff(self.first_seconds, self.most_seconds, factor=1.5)


def _ignore(_: object) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Who hears of a task as it goes. Neither function may raise."""

    on_event: Callable[[StreamResponse], None] = _ignore
    """Each event, once and in order. A Task among them is all that is known, and replaces what came before."""
    on_task: Callable[[str], None] = _ignore
    """The task's id, once, as soon as it is known: from then on `AgentClient.cancel` can reach the task."""


async def converse(
    client: AgentClient,
    request: SendMessageRequest,
    listener: Listener = Listener(),
    *,
    pace: FollowPace,
    answered: TaskStatus | None = None,
) -> Task | Message:
    """Send one message and follow its task until it has settled: it has ended, or asks for something.

    `answered` is the status whose question the message answers: the task may show it for a while yet.
    At AUTH_REQUIRED the stream is left although it stays open; `wait_until_settled` goes on listening when it is given
    that status.

    Cancelling this coroutine leaves the far task alone. Who wants it cancelled calls `client.cancel` with the
    id that `on_task` gave. When there is none yet, the send must not be cut off, since the id comes by it: run
    this in a task of its own, shielded, wait (with a bound) for `on_task`, cancel the far task, and then this.

    Raises:
        NotReachedError: the message never left.
        OutcomeUnknownError: it left, and the stream was lost before its first event.
        AgentRefusedError: the agent refused it.
        TaskLostError: the task is known, and its agent has been out of reach for too long.
        PeerError: what the agent says is not A2A.

    Spec: A2A 1.0 sections 3.1.1 and 3.1.2.
    """
    following = _Following(client, listener, pace, answered)
    following.may_be_asked_again()
    try:
        if client.streams:
            reply = await following.listen(client.stream(request))
        else:
            reply = following.take(event_of(await client.send(_at_once(request))))
    except UnansweredError as exc:
        raise OutcomeUnknownError(str(exc), request.message.task_id) from exc
    if reply is not None:
        return await following.in_full(reply)
    if following.task is None:
        raise OutcomeUnknownError(f"{client} ended its stream without an event", request.message.task_id)
    return await following.settled(following.task.id, is_listening=client.streams)


async def wait_until_settled(
    client: AgentClient,
    task_id: str,
    listener: Listener = Listener(),
    *,
    pace: FollowPace,
    answered: TaskStatus | None = None,
) -> Task:
    """Follow a task that is known already until it has settled. It is read first: one that has ended has no stream.

    `answered` is a status to wait beyond, for as long as it takes: that of an AUTH_REQUIRED which was seen to.

    Raises:
        AgentRefusedError: the agent does not give it away, such as TASK_NOT_FOUND.
        TaskLostError: its agent has been out of reach for too long.
        PeerError: what the agent says is not A2A.

    Spec: A2A 1.0 sections 3.1.3 and 3.1.6.
    """
    following = _Following(client, listener, pace, answered)
    return await following.settled(task_id, is_listening=False)


async def _read_out(events: AsyncGenerator[StreamResponse, None]) -> None:
    """Read the end of a stream that has said its last, so that its connection can be used again."""
    with anyio.move_on_after(_END_SECONDS), suppress(PeerError):
        await anext(events, None)


class _Following:
    """One task as it is followed: what is known of it, and how."""

    def __init__(
        self, client: AgentClient, listener: Listener, pace: FollowPace, answered: TaskStatus | None
    ) -> None:
        self._gathered = FoldedTask(pace.task_limit_bytes)
        self._client = client
        self._listener = listener
        self._pace = pace
        self._answered = answered
        self._answered_until = math.inf
        self._can_subscribe = client.streams

    @property
    def task(self) -> Task | None:
        """As it is known; None before the first event of it."""
        return self._gathered.task

    def may_be_asked_again(self) -> None:
        """The answer is on its way: the same question is a new one after a while."""
        self._answered_until = anyio.current_time() + self._pace.stale_seconds

    async def settled(self, task_id: str, *, is_listening: bool) -> Task:
        """Go on until the task has settled. `is_listening`: a stream of it was there, and is gone."""
        must_look = not is_listening
        pauses = self._pace.pauses()
        while True:
            before = self.task
            if must_look and self._has_settled(task := await self._look(task_id)):
                return task
            must_look = True
            if self._can_subscribe:
                has_settled = await self._subscribe(task_id)
                if has_settled and self._has_settled(task := await self._looked_over(task_id)):
                    return task
                if has_settled is None:
                    continue  # it may have ended
            if self.task != before:
                pauses.reset()
            await anyio.sleep(pauses.next())

    async def in_full(self, reply: Task | Message) -> Task | Message:
        """A reply that a stream gave; a task that ended there without a word or an artifact may hold them all the
        same, with agents that only keep what they give."""
        if (
            isinstance(reply, Message)
            or reply.status.state not in ENDED
            or reply.artifacts
            or reply.status.message
        ):
            return reply
        read = await self._looked_over(reply.id)
        return read if read.status.state in ENDED else reply

    async def listen(self, events: AsyncGenerator[StreamResponse, None]) -> Task | Message | None:
        """Take what a stream gives until it settles; None when it ends or breaks off before.

        Raises:
            UnansweredError: it broke off before its first event.
        """
        has_begun = False
        try:
            async with aclosing(events):
                async for event in events:
                    has_begun = True
                    if (reply := self.take(event)) is not None:
                        if isinstance(reply, Message) or reply.status.state in ENDED:
                            await _read_out(events)
                        return reply
        except UnansweredError as exc:
            if not has_begun:
                raise
            logger.info("a stream of %s was lost: %s", self._client, exc)
        return None

    def take(self, event: StreamResponse) -> Task | Message | None:
        """Take note of an event; the reply, if that is what it brings the task to."""
        payload = event.payload
        if isinstance(payload, Message) and self.task is None:
            self._listener.on_event(event)
            return payload
        if event.task is not None and event.task == self.task:
            return self._reply(self.task)
        is_new = self.task is None
        task = self._gather(event)
        if is_new:
            self._listener.on_task(task.id)
        self._listener.on_event(event)
        return self._reply(task)

    def _gather(self, event: StreamResponse) -> Task:
        """Take an event to what is known.

        Raises:
            TaskLostError: the agent gives more than any task may hold.
        """
        try:
            return self._gathered.take(event)
        except TaskTooLargeError:
            limit = (
                f"{self._pace.task_limit_bytes} bytes, which is not taken: `task_limit_bytes` is the limit"
            )
            task_id = self.task.id if self.task else _task_id_of(event)
            raise TaskLostError(f"{self._client} gives more than {limit}", task_id, self.task) from None

    async def _subscribe(self, task_id: str) -> bool | None:
        """Listen to the task anew; whether it settled meanwhile. None: the agent does not let us."""
        try:
            return await self.listen(self._client.subscribe(task_id)) is not None
        except (NotReachedError, UnansweredError) as exc:
            logger.debug("%s cannot be listened to: %s", self._client, exc)
            return False
        except PeerError as exc:
            # It has ended, or is of an agent that streams only what it is sent.
            logger.debug("%s lets nobody subscribe: %s", self._client, exc)
            self._can_subscribe = is_transient(exc)
            return False if self._can_subscribe else None

    async def _look(self, task_id: str) -> Task:
        """The task as it is now, as soon as its agent can be asked."""
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
                    logger.warning("task %s is asked for again for up to %g s: %s", task_id, seconds, exc)
                if anyio.current_time() + pause_seconds > given_up_at:
                    lost = f"{self._client} has been out of reach for {self._pace.outage_seconds:g} s: {exc}"
                    raise TaskLostError(lost, task_id, self.task) from exc
            else:
                self.take(StreamResponse(task=task))
                assert self.task is not None
                return self.task
            await anyio.sleep(pause_seconds)

    async def _looked_over(self, task_id: str) -> Task:
        """The task that a stream settled, read once more: what a new stream told again after its snapshot is not to
        be had twice, and what no stream tells is there."""
        assert self.task is not None
        try:
            self.take(StreamResponse(task=more_complete(self.task, await self._client.get(task_id))))
        except PeerError as exc:
            logger.info("a task of %s is taken as it was heard: %s", self._client, exc)
        return self.task

    def _reply(self, task: Task) -> Task | None:
        return task if self._has_settled(task) else None

    def _has_settled(self, task: Task) -> bool:
        if task.status.state not in SETTLED:
            return False
        return task.status != self._answered or anyio.current_time() >= self._answered_until


def _at_once(request: SendMessageRequest) -> SendMessageRequest:
    """The same request, not waiting for the agent's work."""
    configuration = request.configuration or SendMessageConfiguration()
    return request.model_copy(
        update={"configuration": configuration.model_copy(update={"return_immediately": True})}
    )


def _task_id_of(event: StreamResponse) -> str:
    payload = event.payload
    return payload.id if isinstance(payload, Task) else payload.task_id or ""


def event_of(answer: Task | Message) -> StreamResponse:
    """The answer to a message as a stream would have told it."""
    return StreamResponse(task=answer) if isinstance(answer, Task) else StreamResponse(message=answer)


def is_transient(exc: PeerError) -> bool:
    """Whether a read that failed may succeed a little later."""
    if isinstance(exc, AgentRefusedError):
        return exc.kind is not None and exc.kind.http_status == _UNAVAILABLE
    return isinstance(exc, NotReachedError | UnansweredError)
