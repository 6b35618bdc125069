"""The deprecated HTTP+SSE transport: a GET that streams events, and POSTs to the address that the first event names.

In the SDK's client, a failed POST ends the writer silently, so that every later call hangs; and events are not bounded.
Here a fault becomes the answer to the request that met it, as in `streamable_http.py`.

Spec: MCP 2024-11-05 basic/transports (HTTP with SSE), 2025-11-25 basic/transports (backwards compatibility).
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

import anyio
import anyio.abc
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import MCPError
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from bridge.errors import PeerError, reason_of
from bridge.http.client import GuardedTransport
from bridge.http.sse import SseEvent, SseReader
from bridge.mcp.client.faults import (
    BROKEN_OFF,
    HTTP_STATUS,
    LIMITED_BY,
    NO_MCP,
    OLD_TRANSPORT,
    TOO_LARGE,
    ServerDownError,
    answer_to_many_values,
    error_of,
    fault_of,
    id_of_cut_message,
    received_in,
    status_of,
)
from bridge.mcp.client.transports.streamable_http import (
    LIMITS,
    NOT_SENT,
    FaultMappingTransport,
    HttpTarget,
    beginning_of,
    client_of,
)
from bridge.mcp.messages import messages_in

logger = logging.getLogger(__name__)

POSTS_AT_ONCE: Final = 32
"""The most requests that are posted at the same time. Answers have the same limit, and so do other messages. So a
cancellation never waits for calls."""

_OPENING_FACTOR: Final = 3
"""The server has to name its endpoint within this many times `connect_seconds`, unless another time is set."""

_ENDS_BYTES: Final = 200
"""How many bytes of each end of a too large event are kept, to find the id in the event."""

_READ_BUFFER: Final = 16
_OLD_TRANSPORT_STATUSES: Final = frozenset({400, 404, 405})
_OF_ANY_SERVER: Final = frozenset({401, 407, 429, 502, 503, 504})
"""The statuses that do not show which transport the server speaks."""
_NO_ANSWER_TO_POST: Final = ("server answered a request with 202 Accepted", "Unexpected content type: ")
"""The SDK's messages for a response to a POST that is not an answer. The code is INVALID_REQUEST."""
_INITIALIZED: Final = "notifications/initialized"
_CANCELLED: Final = "notifications/cancelled"

_SseEvents = AsyncGenerator[SseEvent, None]


def may_be_http_sse(error: MCPError) -> bool | None:
    """Whether a handshake over Streamable HTTP failed as at a server of the old transport: True, as the specification
    says; False, in another possible way; None, not like that.

    Spec: MCP 2025-11-25 basic/transports, backwards compatibility.
    """
    status, fault = status_of(error), fault_of(error)
    if fault == OLD_TRANSPORT or status in _OLD_TRANSPORT_STATUSES:
        return True
    is_odd = fault is None and error.code == INVALID_REQUEST and error.message.startswith(_NO_ANSWER_TO_POST)
    is_refused = status is not None and status >= 400 and status not in _OF_ANY_SERVER
    return False if is_odd or is_refused or fault in (NO_MCP, BROKEN_OFF) else None


@asynccontextmanager
async def http_sse(
    target: HttpTarget, on_fault: Callable[[str], None], opening_seconds: float | None = None
) -> AsyncIterator[TransportStreams]:
    """Connect to a server over HTTP+SSE. `on_fault` is called with the kind of each fault. `opening_seconds` is how
    long the server may take to name its endpoint.

    The streams end when the server ends its events. Redirects are not followed, since headers hold credentials.

    Raises:
        ServerDownError: the server cannot be reached.
        PeerError: the server does not answer as a server of this transport does, or not in time.
    """
    posting = _PostTransport(target, on_fault, limits=LIMITS)
    reads_in, reads_out = anyio.create_memory_object_stream[SessionMessage | Exception](_READ_BUFFER)
    writes_in, writes_out = anyio.create_memory_object_stream[SessionMessage](0)
    async with (
        client_of(target, GuardedTransport(uses_proxy=target.uses_proxy)) as listener,
        client_of(target, posting) as poster,
        reads_in,
        reads_out,
        writes_in,
        writes_out,
        _opened(target, listener, opening_seconds) as (endpoint, events),
        anyio.create_task_group() as tasks,
    ):
        connection = _SseConnection(target, on_fault, poster, endpoint, reads_in)
        tasks.start_soon(connection.run, events, writes_out)
        try:
            yield reads_out, writes_in
        finally:
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def _opened(
    target: HttpTarget, client: httpx2.AsyncClient, seconds: float | None
) -> AsyncIterator[tuple[httpx2.URL, _SseEvents]]:
    """Open the event stream. Yields the address for POSTs, and the events after the event that named the address.

    Raises:
        ServerDownError: the server cannot be reached.
        PeerError: the server does not answer as a server of this transport does, or not in time.
    """
    if seconds is None:
        seconds = _OPENING_FACTOR * target.connect_seconds
    headers = {"accept": "text/event-stream", "cache-control": "no-store"}
    async with AsyncExitStack() as stack:
        try:
            with anyio.fail_after(seconds):
                response = await stack.enter_async_context(client.stream("GET", target.url, headers=headers))
                _check(target, response)
                reader = SseReader(target.result_limit_bytes, _ENDS_BYTES)
                events = await stack.enter_async_context(aclosing(_events(response, reader)))
                endpoint = await _endpoint(target, events)
        except TimeoutError as exc:
            raise PeerError(f"{target} gave no endpoint for HTTP+SSE within {seconds:g} s") from exc
        except NOT_SENT as exc:
            raise ServerDownError(f"{target} cannot be reached: {reason_of(exc)}") from exc
        except httpx2.RequestError as exc:
            raise PeerError(f"{target} broke off: {reason_of(exc)}") from exc
        yield endpoint, events


def _check(target: HttpTarget, response: httpx2.Response) -> None:
    if response.status_code >= 300:
        why = " (redirects are not followed)" if response.is_redirect else ""
        raise PeerError(f"{target} answered the GET for its events with {_status_words(response)}{why}")
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "text/event-stream":
        raise PeerError(
            f"{target} answered the GET for its events with {kind or 'no content type'},"
            " not with text/event-stream"
        )


async def _events(response: httpx2.Response, reader: SseReader) -> _SseEvents:
    async for chunk in response.aiter_bytes():
        for event in reader.feed(chunk):
            yield event


async def _endpoint(target: HttpTarget, events: _SseEvents) -> httpx2.URL:
    """The address for POSTs. Credentials are sent to it, so only its path and query are taken from the server."""
    async for event in events:
        if event.type != "endpoint":
            continue
        base = httpx2.URL(target.url)
        try:
            named = base.join(event.data.decode("utf-8", "replace").strip())
        except (httpx2.InvalidURL, ValueError) as exc:
            raise PeerError(f"{target} gives an endpoint that is not a URL: {exc}") from exc
        if _origin(named) != _origin(base):
            other = replace(target, url=str(named), shown="")
            raise PeerError(
                f"{target} gives an endpoint of another origin ({other}); credentials are not sent there"
            )
        return base.copy_with(raw_path=named.raw_path)
    raise PeerError(f"{target} ended its events before it gave an endpoint")


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _status_words(response: httpx2.Response) -> str:
    """The status of a response, for messages."""
    return f"HTTP {response.status_code} {response.reason_phrase}".rstrip()


class _PostTransport(FaultMappingTransport):
    def is_of_session(self, request: httpx2.Request) -> bool:  # noqa: ARG002
        """Every message belongs to the session, which is part of the address."""
        return True


@dataclass
class _SseConnection:
    """One open connection. Received messages go to `arrived`; messages to send are posted."""

    target: HttpTarget
    on_fault: Callable[[str], None]
    client: httpx2.AsyncClient
    endpoint: httpx2.URL
    arrived: MemoryObjectSendStream[SessionMessage | Exception]
    _posts: dict[RequestId, anyio.CancelScope] = field(default_factory=dict)
    _request_places: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(POSTS_AT_ONCE))
    _other_places: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(POSTS_AT_ONCE))
    _answer_places: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(POSTS_AT_ONCE))

    async def run(self, events: _SseEvents, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Send and receive until the server ends its events. POSTs that are then under way are cancelled."""
        async with outgoing, anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_all, outgoing, tasks)
            with suppress(anyio.BrokenResourceError):  # the session has stopped reading
                await self._receive(events)
            self.arrived.close()
            tasks.cancel_scope.cancel()

    async def _receive(self, events: _SseEvents) -> None:
        try:
            async for event in events:
                if event.type == "message" and event.data:
                    for item in self._received_in(event):
                        await self.arrived.send(item)
        except httpx2.RequestError as exc:
            logger.info("%s: its events broke off: %s", self.target, reason_of(exc))
            self.on_fault(BROKEN_OFF)

    def _received_in(self, event: SseEvent) -> list[SessionMessage | Exception]:
        if event.tail is not None:
            self.on_fault(TOO_LARGE)
            words = f"a message is larger than {self.target.result_limit_bytes} bytes: {LIMITED_BY}"
            answered = id_of_cut_message(event.data, event.tail)
            return [ValueError(words) if answered is None else _answer(answered, error_of(TOO_LARGE, words))]
        instead = answer_to_many_values(event.data, self.target.result_json_values)
        if instead is None:
            return received_in(event.data)
        self.on_fault(TOO_LARGE)
        return [instead]

    async def _send_all(
        self, outgoing: MemoryObjectReceiveStream[SessionMessage], tasks: anyio.abc.TaskGroup
    ) -> None:
        """Post each message, concurrently."""
        async for item in outgoing:
            match item.message:
                case JSONRPCRequest(id=request_id) as request:
                    self._posts[request_id] = anyio.CancelScope()
                    tasks.start_soon(self._post_request, request, self._posts[request_id])
                case JSONRPCNotification(method=method) as notification if method == _INITIALIZED:
                    # Servers refuse a message that overtakes this message.
                    with anyio.move_on_after(self.target.connect_seconds):
                        await self._post_other(notification)
                case JSONRPCNotification(method=method, params=params) if method == _CANCELLED:
                    given_up = self._posts.get((params or {}).get("requestId", ""))
                    if given_up is not None:
                        given_up.cancel()
                    tasks.start_soon(self._post_other, item.message)
                case JSONRPCNotification() as notification:
                    tasks.start_soon(self._post_other, notification)
                case answer:
                    # An answer waits here for its turn. `Wire` counts the requests with waiting answers.
                    await self._answer_places.acquire()
                    tasks.start_soon(self._post_answer, answer)

    async def _post_request(self, request: JSONRPCRequest, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                async with self._request_places:
                    error = await self._post(request)
                if error is not None:
                    with suppress(anyio.BrokenResourceError):  # the session has stopped reading
                        await self.arrived.send(_answer(request.id, error))
        finally:
            self._posts.pop(request.id, None)

    async def _post_answer(self, answer: JSONRPCMessage) -> None:
        try:
            self._tell_of(await self._post(answer))
        finally:
            self._answer_places.release()

    async def _post_other(self, message: JSONRPCMessage) -> None:
        async with self._other_places:
            self._tell_of(await self._post(message))

    def _tell_of(self, error: ErrorData | None) -> None:
        if error is not None:
            logger.warning("%s did not take a message: %s", self.target, error.message)

    async def _post(self, message: JSONRPCMessage) -> ErrorData | None:
        """Post one message. Returns the error; None if there is none."""
        body = json.dumps(message.model_dump(by_alias=True, mode="json", exclude_unset=True)).encode()
        headers = {"content-type": "application/json"}
        async with self.client.stream("POST", self.endpoint, content=body, headers=headers) as response:
            if response.is_success:
                # A connection is reused only if its response was read to the end.
                with anyio.move_on_after(self.target.connect_seconds):
                    await self._hand_on_answer(await beginning_of(response), message)
                return None
            if response.status_code >= 400:
                with suppress(ValidationError):
                    answer = jsonrpc_message_adapter.validate_json(await response.aread(), by_name=False)
                    if isinstance(answer, JSONRPCError):
                        return answer.error
            self.on_fault(HTTP_STATUS)
            words = f"{self.target} answered a message with {_status_words(response)}"
            return error_of(HTTP_STATUS, words, response.status_code)

    async def _hand_on_answer(self, body: bytes, message: JSONRPCMessage) -> None:
        """Pass on the answer in the response to a POST, if there is one. Most servers send no JSON there, and the
        answer comes as an event. If the response is longer than the part that was read, the answer comes as an event,
        too."""
        if not isinstance(message, JSONRPCRequest) or not body.lstrip().startswith((b"{", b"[")):
            return
        for item in messages_in(body):
            answer = item.message if isinstance(item, SessionMessage) else None
            if isinstance(answer, JSONRPCResponse | JSONRPCError):
                answer.id = message.id
                with suppress(anyio.BrokenResourceError):  # the session has stopped reading
                    await self.arrived.send(SessionMessage(answer))


def _answer(request_id: RequestId, error: ErrorData) -> SessionMessage:
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))
