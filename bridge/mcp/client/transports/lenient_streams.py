"""The SDK's Streamable HTTP, with the bridge's reader of messages.

In the SDK, a request fails at the first event that is not a message (a heartbeat, `[DONE]`), and waits for ever if its
answer has another id. Here each body is read as on all transports (`mcp/messages.py`), and an answer in the response to
a POST is the answer to the posted request.

Spec: MCP 2025-11-25 basic/transports (Streamable HTTP); JSON-RPC 2.0 section 5.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
import httpx2
from httpx2 import ServerSentEvent
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import StreamableHTTPTransport, StreamWriter
from mcp.shared._context_streams import create_context_streams
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCResponse, RequestId

from bridge.mcp.client.faults import BROKEN_OFF, NO_MCP, OLD_TRANSPORT, UNREADABLE, error_of, received_in
from bridge.mcp.client.values import ResponseParams
from bridge.mcp.log_messages import LOG

_ENDPOINT: Final = "endpoint"
"""The first event of a server of the older HTTP+SSE."""


@asynccontextmanager
async def lenient_streams(url: str, client: httpx2.AsyncClient) -> AsyncIterator[TransportStreams]:
    """Connect to a server over Streamable HTTP; its session is ended on exit. These streams do not bound events, since
    the client's transport does."""
    transport = _LenientTransport(url, max_sse_event_size=None)
    received, messages = create_context_streams[SessionMessage | Exception](0)
    sink, outgoing = create_context_streams[SessionMessage](0)
    async with received, messages, sink, outgoing, anyio.create_task_group() as tasks:

        def open_stream_of_its_own() -> None:
            tasks.start_soon(transport.handle_get_stream, client, received)

        tasks.start_soon(
            transport.post_writer, client, outgoing, received, sink, open_stream_of_its_own, tasks
        )
        try:
            yield messages, sink
        finally:
            if transport.session_id:
                await transport.terminate_session(client)
            tasks.cancel_scope.cancel()


class _LenientTransport(StreamableHTTPTransport):
    async def _handle_sse_event(
        self,
        sse: ServerSentEvent,
        read_stream_writer: StreamWriter,
        original_request_id: RequestId | None = None,
        resumption_callback: Callable[[str], Awaitable[None]] | None = None,  # noqa: ARG002 - the bridge sets none
    ) -> bool:
        """Pass on the message of an event. Returns whether the message answers the request of this stream."""
        if sse.event == _ENDPOINT and original_request_id is not None:
            error = error_of(OLD_TRANSPORT, "it answers a POST with the events of HTTP+SSE")
            await read_stream_writer.send(_answer(original_request_id, error))
            return True
        if sse.event != "message" or not sse.data:
            return False
        return await self._hand_on(sse.data, read_stream_writer, original_request_id)

    async def _handle_json_response(
        self, response: httpx2.Response, read_stream_writer: StreamWriter, *, request_id: RequestId
    ) -> None:
        """Pass on the message of a body. The request fails if the message does not answer it."""
        try:
            content = await response.aread()
        except httpx2.StreamError as exc:
            await read_stream_writer.send(_answer(request_id, error_of(BROKEN_OFF, str(exc))))
            return
        if not await self._hand_on(content, read_stream_writer, request_id):
            is_mcp = any(isinstance(item, SessionMessage) for item in received_in(content))
            error = error_of(UNREADABLE if is_mcp else NO_MCP, "its response has no answer to the request")
            await read_stream_writer.send(_answer(request_id, error))

    async def _hand_on(
        self, text: bytes | str, read_stream_writer: StreamWriter, request_id: RequestId | None
    ) -> bool:
        answered = False
        for item in received_in(text):
            if isinstance(item, SessionMessage):
                answered = self._is_answer(item, request_id) or answered
                _mark_log_message(item, request_id)
            await read_stream_writer.send(item)
        return answered

    def _is_answer(self, item: SessionMessage, request_id: RequestId | None) -> bool:
        """Whether a message answers the request of its response. It then gets the id of this request. The answer to
        another request under way keeps its id."""
        message = item.message
        if request_id is None or not isinstance(message, JSONRPCResponse | JSONRPCError):
            return False
        message_id = None if message.id is None else coerce_request_id(message.id)
        if message_id != coerce_request_id(request_id) and message_id in self._in_flight_posts:
            return False
        message.id = request_id
        return True


def _mark_log_message(item: SessionMessage, request_id: RequestId | None) -> None:
    """Note in a log message on the response to a request which request this is."""
    message = item.message
    if isinstance(message, JSONRPCNotification) and message.method == LOG and isinstance(request_id, int):
        message.params = ResponseParams(message.params or {}, request_id)


def _answer(request_id: RequestId, error: ErrorData) -> SessionMessage:
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))
