"""A gRPC proxy that does for gRPC what `directed` does for HTTP: it names the tool in the metadata of a message.

It passes on everything else as it came: the bytes of other requests, answers, metadata and errors. Must not import
`bridge`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
from a2a.types import a2a_pb2
from grpc import aio

from tests.conformance.tck.server import tool_for

_SENDS: Final = "/lf.a2a.v1.A2AService/Send"
_STREAMS: Final = frozenset(
    {"/lf.a2a.v1.A2AService/SendStreamingMessage", "/lf.a2a.v1.A2AService/SubscribeToTask"}
)


def with_tool_named(body: bytes) -> bytes:
    """A SendMessageRequest that names the tool, if it begins a task; else the same bytes."""
    request = a2a_pb2.SendMessageRequest.FromString(body)
    if request.message.task_id or "skillId" in request.message.metadata:
        return body
    request.message.metadata["skillId"] = tool_for(request.message.message_id)
    return request.SerializeToString()


class _Proxy:
    """A `grpc.GenericRpcHandler` that calls the same method at the other end of a channel."""

    def __init__(self, channel: aio.Channel) -> None:
        self._channel = channel

    def service(self, handler_call_details: Any) -> Any:
        method = str(handler_call_details.method)

        def begun(body: bytes, context: Any) -> Any:
            kind = self._channel.unary_stream if method in _STREAMS else self._channel.unary_unary
            sent = with_tool_named(body) if method.startswith(_SENDS) else body
            metadata = [pair for pair in context.invocation_metadata() if pair[0] != "user-agent"]
            return kind(method)(sent, metadata=metadata, timeout=context.time_remaining())

        async def one(body: bytes, context: Any) -> bytes:
            try:
                return bytes(await begun(body, context))
            except aio.AioRpcError as exc:
                await _fail(context, exc)
                raise

        async def many(body: bytes, context: Any) -> AsyncIterator[bytes]:
            try:
                async for event in begun(body, context):
                    yield event
            except aio.AioRpcError as exc:
                await _fail(context, exc)

        if method in _STREAMS:
            return grpc.unary_stream_rpc_method_handler(many)
        return grpc.unary_unary_rpc_method_handler(one)


async def _fail(context: Any, error: aio.AioRpcError) -> None:
    await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))


@asynccontextmanager
async def directed_grpc(port: int) -> AsyncIterator[int]:
    """Serve the proxy before a gRPC server on loopback. Yields the port of the proxy."""
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        server = aio.server(options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((_Proxy(channel),))
        own = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield own
        finally:
            await server.stop(None)
