"""What a check has in hand: one agent over one binding, asked as a client asks.

Remembers what the agent has said (for the checks of its JSON), and which tasks are still open: those are
canceled when the check is over.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import httpx2

from tests.a2a_checks.bindings import CANCEL, GET, LIST, SEND, STREAM, SUBSCRIBE, HttpJson, JsonRpc, Reply
from tests.a2a_checks.card import Card
from tests.a2a_checks.errors import Fault, Kind, Refusal
from tests.a2a_checks.hooks import Hooks
from tests.a2a_checks.shapes import (
    LIST_RESPONSE,
    SEND_RESPONSE,
    STREAM_RESPONSE,
    TASK,
    TERMINAL,
    Shape,
)
from tests.a2a_checks.table import Failed, require, shown
from tests.a2a_checks.wire import Answer, Request, Wire, events_of

CLEANING_SECONDS: Final = 5.0
SILENCE_SECONDS: Final = 0.2
"""How long an answer that must not come is waited for, or the end of a stream that must not end: both come at once."""
REMEMBERED: Final = 2_000
"""Values kept for the checks of JSON: more than all checks together make."""
UNKNOWN_TASK: Final = "a2a-checks-no-such-task"
_SHAPES: Final[Mapping[str, Shape]] = {
    SEND: SEND_RESPONSE,
    GET: TASK,
    CANCEL: TASK,
    LIST: LIST_RESPONSE,
    STREAM: STREAM_RESPONSE,
    SUBSCRIBE: STREAM_RESPONSE,
}


@dataclass(slots=True)
class Heard:
    """What the agent has said over one binding, in all checks so far."""

    values: list[tuple[Shape, Any]] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    open_tasks: set[str] = field(default_factory=set)

    def take(self, operation: str, reply: Reply) -> None:
        """Remember a reply."""
        if reply.refusal is not None:
            self.refusals.append(reply.refusal)
        elif operation in _SHAPES and len(self.values) < REMEMBERED:
            self.values.append((_SHAPES[operation], reply.result))
            self.follow(reply.result)

    def follow(self, result: Any) -> None:
        """Remember which tasks are open."""
        for task_id, state in states_in(result):
            if state in TERMINAL:
                self.open_tasks.discard(task_id)
            else:
                self.open_tasks.add(task_id)


def states_in(result: Any) -> list[tuple[str, Any]]:
    """(task id, state) of a task or an update, bare or wrapped."""
    if not isinstance(result, dict):
        return []
    inner = result.get("task") or result.get("statusUpdate") or result
    task_id = inner.get("taskId") or inner.get("id") if isinstance(inner, dict) else None
    return [(task_id, state_of(inner))] if isinstance(task_id, str) and state_of(inner) else []


def state_of(task: Any) -> Any:
    """The state in a task or a status update."""
    status = task.get("status") if isinstance(task, dict) else None
    return status.get("state") if isinstance(status, dict) else None


def state_in(event: Mapping[str, Any]) -> Any:
    """The state that an event of a stream tells, if it does."""
    return state_of(event.get("task") or event.get("statusUpdate"))


class Talk:
    """One agent over one binding."""

    def __init__(
        self,
        card: Card,
        binding: JsonRpc | HttpJson,
        wire: Wire,
        bearer: str | None,
        silence_seconds: float = SILENCE_SECONDS,
        hooks: Hooks | None = None,
    ) -> None:
        self.card = card
        self.binding = binding
        self.wire = wire
        self.bearer = bearer
        self.silence_seconds = silence_seconds
        self.heard = Heard()
        self.hooks = hooks
        """Webhooks for the agent to post to."""
        self.stranger: Talk | None = None
        """The same agent over the same binding, as another caller asks it."""
        self.others: tuple[Talk, ...] = ()
        """The same agent over its other bindings."""
        self.headers = {
            "A2A-Version": "1.0",
            "A2A-Extensions": ", ".join(card.required_extensions),
            "Authorization": f"Bearer {bearer}" if bearer else "",
        }

    def request(self, operation: str, params: Mapping[str, Any] | None = None, **headers: str) -> Request:
        """A request as a good client sends it; keywords are headers, with _ for -."""
        changed = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.binding.request(operation, params or {}).with_headers({**self.headers, **changed})

    async def ask(self, operation: str, params: Mapping[str, Any] | None = None, **headers: str) -> Reply:
        """Result or refusal of an operation; of a stream, its first event."""
        request = self.request(operation, params, **headers)
        if operation not in (STREAM, SUBSCRIBE):
            return await self.ask_with(operation, request)
        async with self.stream_of(request, operation) as stream:
            return await stream.first()

    async def ask_with(self, operation: str, request: Request) -> Reply:
        """The same, with a request that is not as usual."""
        reply = self.binding.reply(await self.wire.send(request))
        self.heard.take(operation, reply)
        return reply

    async def probe(self, request: Request) -> Reply:
        """The reply to what no good client sends: a result of it says nothing about the agent's JSON."""
        reply = self.binding.reply(await self.wire.send(request))
        if reply.refusal is None:
            self.heard.follow(reply.result)
        else:
            self.heard.refusals.append(reply.refusal)
        return reply

    async def result(self, operation: str, params: Mapping[str, Any] | None = None, **headers: str) -> Any:
        """The result of an operation that has to be served."""
        return (await self.ask(operation, params, **headers)).value()

    async def refused(
        self,
        kind: Kind | Fault,
        operation: str,
        params: Mapping[str, Any] | None = None,
        **headers: str,
    ) -> Refusal:
        """The refusal of an operation that has to be refused in this way."""
        return self.require_refusal(await self.ask(operation, params, **headers), kind)

    def require_refusal(self, reply: Reply, *kinds: Kind | Fault) -> Refusal:
        """The refusal in a reply, which has to be of one of these kinds."""
        words = " or ".join(self.binding.words(kind) for kind in kinds) or "an error"
        if reply.refusal is None:
            raise Failed(words, shown(f"the result {reply.result!r}"))
        is_right = not kinds or any(self.binding.says(reply.refusal, kind) for kind in kinds)
        require(is_right, words, reply.refusal.shown())
        return reply.refusal

    @asynccontextmanager
    async def stream(
        self, operation: str, params: Mapping[str, Any], **headers: str
    ) -> AsyncIterator[Stream]:
        """The events of a streaming operation."""
        async with self.stream_of(self.request(operation, params, **headers), operation) as stream:
            yield stream

    @asynccontextmanager
    async def stream_of(self, request: Request, operation: str) -> AsyncIterator[Stream]:
        """The same, with a request that is not as usual."""
        async with self.wire.opened(request) as response:
            yield Stream(self, operation, response)

    async def clean(self) -> None:
        """Cancel what is still open, as far as the agent lets us."""
        with anyio.move_on_after(CLEANING_SECONDS, shield=True):
            for task_id in sorted(self.heard.open_tasks):
                try:
                    await self.wire.send(self.request(CANCEL, {"id": task_id}))
                except Failed:
                    break
        self.heard.open_tasks.clear()
        if self.stranger is not None:
            await self.stranger.clean()


class Stream:
    """A stream of events that is open."""

    def __init__(self, talk: Talk, operation: str, response: httpx2.Response) -> None:
        self._talk = talk
        self._operation = operation
        self._response = response
        self._events = events_of(response)
        self.head = Answer(response.status_code, response.headers, b"")

    async def first(self) -> Reply:
        """The first event, or the refusal in its place, however that came."""
        if self.head.media_type != "text/event-stream":
            answer = Answer(self.head.status, self.head.headers, await self._response.aread())
            reply = self._talk.binding.reply(answer)
            self._talk.heard.take("", reply)
            require(reply.refusal is not None, "an event stream, or an error", answer.shown())
            return reply
        text = await anext(self._events, None)
        require(text is not None, "an event", "the stream closed without one")
        return self._read(str(text))

    async def next(self) -> Any:
        """The next StreamResponse; None when the stream has closed."""
        text = await anext(self._events, None)
        return None if text is None else self._read(text).value()

    async def rest(self) -> list[Any]:
        """All StreamResponses until the stream closes."""
        found = []
        while (event := await self.next()) is not None:
            found.append(event)
        return found

    async def all(self) -> list[Any]:
        """The first one and the rest."""
        return [(await self.first()).value(), *(await self.rest())]

    def _read(self, text: str) -> Reply:
        reply = self._talk.binding.event(text, self.head)
        self._talk.heard.take(self._operation, reply)
        return reply


def new_id() -> str:
    """An id that nobody has used."""
    return f"a2a-checks-{uuid.uuid4()}"
