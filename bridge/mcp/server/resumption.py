"""The messages of open sessions, kept for clients whose connection broke. A client of MCP 2025-11-25 or older resumes a
stream with the id of its last event, and gets the later messages of the same stream.

The SDK writes the events, and asks an `EventStore` for their ids and for what a client has missed. A stream is named by
the id of its request, and two sessions may both have a request 1. So each session has a store of its own. The bound on
bytes is for all sessions of an MCP server together, and the oldest messages are dropped first.

Spec: MCP 2025-11-25 basic/transports, "Sending Messages to the Server" 6 and "Resumability and Redelivery".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import anyio.lowlevel
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import GET_STREAM_KEY, EventCallback, EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCResponse, RequestId
from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bridge.settings import StreamSettings

_SESSION_SHARE: Final = 16
"""One session may use a sixteenth of the bytes, so that no client displaces the messages of all others."""
_OVERHEAD_BYTES: Final = 1000
"""What a message takes in memory besides its text, about."""
_TURNS: Final = 10
"""How many turns of the event loop the SDK needs between the first event of a resumed stream and the moment from which
it passes on new messages. It would drop messages that come between."""
_ID: Final = re.compile(r"([0-9]{1,9})-([0-9]{1,9})e?")
_ANSWER: Final = re.compile(rb"id: [0-9]+-[0-9]+e\r?\n")
"""The beginning of an event with the answer to the request of its stream."""

_LOST: Final = (
    "The connection broke before this answer was sent, and the bridge no longer has the answer. The request was carried"
    " out"
)


@dataclass(eq=False, slots=True)
class _Kept:
    """A message of a stream."""

    stream: _SessionStream
    number: int
    message: JSONRPCMessage
    size_bytes: int

    @property
    def event(self) -> EventMessage:
        is_answer = isinstance(self.message, JSONRPCResponse | JSONRPCError)
        return EventMessage(self.message, self.stream.event_id(self.number, is_answer=is_answer))


@dataclass(eq=False, slots=True)
class _SessionStream:
    """A stream of a session: that of one request, or the stream for notifications."""

    session: SessionMessages
    name: str
    """The SDK's name of the stream."""
    number: int
    last: int = 0
    """The number of its last event."""
    kept: dict[int, _Kept] = field(default_factory=dict)
    answered: RequestId | None = None
    """The id of its request, once the answer has come."""
    is_resuming: bool = False
    """Whether a client has got what it had missed, and new messages may not reach it yet."""

    def event_id(self, number: int, *, is_answer: bool = False) -> str:
        """The id of an event. It names the stream and the place, and an `e` marks the last event of the stream."""
        return f"{self.number}-{number}{'e' if is_answer else ''}"


class KeptMessages:
    """The messages of all sessions of one MCP server, the oldest first."""

    def __init__(self, settings: StreamSettings) -> None:
        self.settings = settings
        self._kept: dict[_Kept, None] = {}
        self._bytes = 0

    def add(self, event: _Kept) -> None:
        """Keep a message. The oldest ones make room for it."""
        self._kept[event] = None
        self._bytes += event.size_bytes
        while self._bytes > self.settings.resume_limit_bytes:
            oldest = next(iter(self._kept))
            oldest.stream.session.drop(oldest)

    def remove(self, event: _Kept) -> None:
        """Keep a message no longer."""
        del self._kept[event]
        self._bytes -= event.size_bytes


class SessionMessages(EventStore):
    """The messages of one session, by their streams."""

    def __init__(self, all_kept: KeptMessages) -> None:
        self._all = all_kept
        self._kept: dict[_Kept, None] = {}
        self._bytes = 0
        self._streams: dict[str, _SessionStream] = {}
        self._by_number: dict[int, _SessionStream] = {}
        self._begun = 0

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep a message. Returns the id of its event. None is the event that begins a connection."""
        stream = self._streams.get(stream_id)
        if message is None:
            if stream is None or not stream.is_resuming:
                stream = self._begin(stream_id)
            stream.last += 1
            return stream.event_id(stream.last)
        if stream is None:
            stream = self._begin(stream_id)
        if stream.is_resuming:
            stream.is_resuming = False
            for _ in range(_TURNS):
                await anyio.lowlevel.checkpoint()
        stream.last += 1
        is_answer = isinstance(message, JSONRPCResponse | JSONRPCError)
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            stream.answered = message.id
        self._keep(_Kept(stream, stream.last, message, len(to_json(message)) + _OVERHEAD_BYTES))
        return stream.event_id(stream.last, is_answer=is_answer)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what a client has missed. Returns the SDK's name of the stream if more will come on it. An id that was
        never given out, such as that of an earlier session, opens the stream for notifications."""
        parsed = _ID.fullmatch(last_event_id)
        if parsed is None or not 0 < int(parsed[1]) <= self._begun:
            return GET_STREAM_KEY
        stream = self._by_number.get(int(parsed[1]))
        if stream is None:
            return None
        place = int(parsed[2])
        while following := [held for held in stream.kept.values() if held.number > place]:
            for held in following:
                await send_callback(held.event)
            place = following[-1].number
        if stream.answered is None:
            stream.is_resuming = True
            return stream.name
        if place < stream.last:
            error = ErrorData(code=INTERNAL_ERROR, message=_LOST)
            lost = JSONRPCError(jsonrpc="2.0", id=stream.answered, error=error)
            await send_callback(EventMessage(lost, stream.event_id(stream.last, is_answer=True)))
        return None

    def drop(self, event: _Kept) -> None:
        """Keep a message no longer."""
        del self._kept[event]
        del event.stream.kept[event.number]
        self._bytes -= event.size_bytes
        self._all.remove(event)

    def _begin(self, name: str) -> _SessionStream:
        """A new stream. The oldest stream that has ended is forgotten if there are too many."""
        if (known := self._streams.get(name)) is not None:
            self._forget(known)
        if len(self._streams) >= self._all.settings.resume_messages:
            ended = next((other for other in self._streams.values() if other.answered is not None), None)
            if ended is not None:
                self._forget(ended)
        self._begun += 1
        stream = _SessionStream(self, name, self._begun)
        self._streams[name] = self._by_number[self._begun] = stream
        return stream

    def _forget(self, stream: _SessionStream) -> None:
        for event in tuple(stream.kept.values()):
            self.drop(event)
        del self._streams[stream.name], self._by_number[stream.number]

    def _keep(self, event: _Kept) -> None:
        settings = self._all.settings
        share = settings.resume_limit_bytes // _SESSION_SHARE
        if event.size_bytes > share:
            return
        self._kept[event] = None
        event.stream.kept[event.number] = event
        self._bytes += event.size_bytes
        self._all.add(event)
        while len(self._kept) > settings.resume_messages or self._bytes > share:
            self.drop(next(iter(self._kept)))


class ResumableSessions(StreamableHTTPSessionManager):
    """The SDK's sessions, each with a store of its own."""

    def __init__(self, app: Server[Any], settings: StreamSettings, **options: Any) -> None:
        self._all = KeptMessages(settings)
        super().__init__(app, retry_interval=round(settings.resume_pause_seconds * 1000), **options)

    @property
    def event_store(self) -> EventStore | None:
        """The store of a new session: the SDK reads this once for each."""
        return SessionMessages(self._all)

    @event_store.setter
    def event_store(self, store: EventStore | None) -> None:
        """Ignore the store for all sessions that the SDK sets."""


def ending_with_the_answer(app: ASGIApp) -> ASGIApp:
    """An application that ends a resumed stream after the answer to its request. The SDK keeps such a stream open."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET" or "last-event-id" not in Headers(scope=scope):
            await app(scope, receive, send)
            return
        with anyio.CancelScope() as life:

            async def watched(message: Message) -> None:
                await send(message)
                if message["type"] == "http.response.body" and _ANSWER.match(message.get("body", b"")):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                    life.cancel()

            await app(scope, receive, watched)

    return served
