"""The process's stdin and stdout as a connection of the SDK's server: one JSON-RPC message in each line.

The SDK has a stdio transport, too. This transport bounds a line, answers a line that is not a message, and ends when it
is cancelled. The SDK's transport waits for its thread, and so for a line that may never come.

A client may open a connection in either era, or try both: after waiting for `server/discover` in vain it sends
`initialize`. The SDK's server stays with the era of the first request. So there is a server for each era, and the first
tools/call decides between them.

While it serves and afterwards, descriptor 1 is stderr and descriptor 0 is empty. So output of a library or a child
process cannot reach the client, and they cannot read the client's messages.

Spec: MCP 2026-07-28 basic/transports (stdio), basic/versioning; 2025-11-25 basic/lifecycle.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.os.win32.utilities import rebind_std_handle_to_fd
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    PROTOCOL_VERSION_META_KEY,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    RequestId,
)

from bridge.mcp.messages import LineSplitter, OverlongLine, UnreadableError, line_of, messages_in
from bridge.mcp.server.pipes import CHUNK_BYTES, PipeReader, PipeWriter
from bridge.text.jsonvalues import holds_more_values

logger = logging.getLogger(__name__)

ClientMessages = MemoryObjectReceiveStream[SessionMessage | Exception]
ServerMessages = MemoryObjectSendStream[SessionMessage]

_LINES_AHEAD: Final = 16
"""How many messages are read ahead of the server."""

LINES_WAITING: Final = 64
"""How many messages may wait to be written, so that a call with many reports need not wait for each write."""

_LAST_SECONDS: Final = 1.0
"""How long a client may take to read the last messages. The SDK waits equally long for its last answers."""


@dataclass(frozen=True, slots=True)
class StdioClient:
    """The client at the process's stdin and stdout."""

    of_each_era: tuple[ClientMessages, ClientMessages]
    """The client's messages of the legacy era and of the modern era. The streams end when the client has left."""
    sink: ServerMessages


@asynccontextmanager
async def stdio_streams(limit_bytes: int, max_values: int) -> AsyncIterator[StdioClient]:
    """The client at the process's stdin and stdout, as messages. This can be entered only once in a process."""
    wire_in, wire_out = _taken_over()
    legacy, legacy_messages = anyio.create_memory_object_stream[SessionMessage | Exception](_LINES_AHEAD)
    modern, modern_messages = anyio.create_memory_object_stream[SessionMessage | Exception](_LINES_AHEAD)
    sink, outgoing = anyio.create_memory_object_stream[SessionMessage](LINES_WAITING)
    reader, writer = PipeReader(wire_in, "stdin"), StdoutWriter(wire_out, outgoing)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run, tasks.cancel_scope)
        read = partial(_messages_or_refusals, limit_bytes=limit_bytes, max_values=max_values)
        tasks.start_soon(_read, reader, LineSplitter(limit_bytes), read, _Eras(legacy, modern), sink.clone())
        try:
            yield StdioClient((legacy_messages, modern_messages), sink)
        finally:
            sink.close()
            legacy_messages.close()
            modern_messages.close()
            tasks.cancel_scope.cancel()
            reader.close()
            await writer.end()


def _taken_over() -> tuple[int, int]:
    """Move stdin and stdout to other descriptors. Descriptor 0 is then empty, and descriptor 1 is stderr."""
    wire_in, wire_out = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # the process has no stderr
        os.dup2(nowhere, 1)
    os.close(nowhere)
    with suppress(OSError):
        for descriptor in (0, 1):
            rebind_std_handle_to_fd(descriptor)  # on Windows, children inherit these handles
    return wire_in, wire_out


class _Eras:
    """Hands each message to the server of its era. After the first tools/call, all requests go to that era's server."""

    def __init__(
        self,
        legacy: MemoryObjectSendStream[SessionMessage | Exception],
        modern: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        self._legacy, self._modern = legacy, modern
        self._settled: MemoryObjectSendStream[SessionMessage | Exception] | None = None

    async def send(self, message: SessionMessage) -> None:
        """Pass on a message. Answers go to the legacy server, since only it asks questions; a cancellation goes to
        both."""
        content = message.message
        if isinstance(content, JSONRPCRequest):
            stream = self._settled or (self._modern if _is_modern(content) else self._legacy)
            if content.method == "tools/call":
                self._settled = stream
            await stream.send(message)
            return
        await self._legacy.send(message)
        if isinstance(content, JSONRPCNotification) and content.method == "notifications/cancelled":
            await self._modern.send(message)

    def close(self) -> None:
        """End the messages."""
        self._legacy.close()
        self._modern.close()


def _is_modern(request: JSONRPCRequest) -> bool:
    """Whether a request names its version, as every request of 2026-07-28 does. `initialize` belongs to the legacy
    era."""
    meta = (request.params or {}).get("_meta")
    return request.method != "initialize" and isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta


async def _read(
    wire_in: PipeReader,
    lines: LineSplitter,
    read: Callable[[bytes | OverlongLine], Iterable[SessionMessage]],
    received: _Eras,
    sink: ServerMessages,
) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError), closing(received), sink:
        while chunk := await _chunk(wire_in):
            for line in lines.feed(chunk):
                if isinstance(line, bytes) and (not line or line.isspace()):
                    continue
                for message in read(line):
                    if isinstance(message, _Refusal):
                        await sink.send(message)
                    else:
                        await received.send(message)


async def _chunk(wire_in: PipeReader) -> bytes:
    """The next bytes from the client; empty when it has closed its end."""
    try:
        return await wire_in.read()
    except OSError as exc:  # the terminal was closed
        logger.info("stdin ended: %s", exc.strerror)
        return b""


class _Refusal(SessionMessage):
    """The error that answers a line that is not a message."""


def _messages_or_refusals(
    line: bytes | OverlongLine, limit_bytes: int, max_values: int
) -> Iterable[SessionMessage]:
    if isinstance(line, OverlongLine):
        return [_refusal(INVALID_REQUEST, f"The message is larger than {limit_bytes} bytes")]
    if holds_more_values(line, max_values):
        return [_refusal(INVALID_REQUEST, f"The message holds more than {max_values} values and keys")]
    reads = messages_in(line)
    messages = [read for read in reads if isinstance(read, SessionMessage)]
    for read in reads:
        if isinstance(read, UnreadableError):
            if not messages or read.request_id is not None:
                messages.append(_refusal_of(read))
            else:
                logger.warning("from the client: the text beside a message is ignored: %s", read)
    return messages


def _refusal_of(read: UnreadableError) -> _Refusal:
    if not read.is_json:
        return _refusal(PARSE_ERROR, "The line is not JSON")
    return _refusal(INVALID_REQUEST, f"The line is not a JSON-RPC message: {read}", read.request_id)


def _refusal(code: int, words: str, request_id: RequestId | None = None) -> _Refusal:
    logger.warning("from the client: %s", words)
    return _Refusal(JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=words)))


class StdoutWriter:
    """Writes the server's messages. Shielded, so that messages are still written while the server stops."""

    def __init__(self, wire_out: int, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        self._wire_out = wire_out
        self._outgoing = outgoing
        self._life = anyio.CancelScope(shield=True)
        self._done = anyio.Event()

    async def run(self, connection: anyio.CancelScope) -> None:
        """Write until the server's stream ends. If the client no longer reads, cancel the connection."""

        def break_off(fault: OSError) -> None:
            logger.info("the client reads no more: %s", fault.strerror)
            connection.cancel()

        pipe = PipeWriter(self._wire_out, "stdout", break_off)
        try:
            with self._life:
                async with self._outgoing:
                    async for message in self._outgoing:
                        await pipe.write(await self._with_what_follows(line_of(message)))
                await pipe.flush()
        finally:
            pipe.close()
            self._done.set()

    async def end(self) -> None:
        """Give the client a moment to read the last messages."""
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_LAST_SECONDS):
                await self._done.wait()
            self._life.cancel()

    async def _with_what_follows(self, first: bytes) -> bytes:
        """A line, with the lines that wait or come within one turn of the loop, since each write is a system call and
        wakes the client. The wait is not longer, so that a single message is written at once."""
        lines, size = [first], len(first)
        with suppress(anyio.WouldBlock, anyio.EndOfStream):
            while size < CHUNK_BYTES:
                if not self._outgoing.statistics().current_buffer_used:
                    await anyio.lowlevel.checkpoint()
                lines.append(line_of(self._outgoing.receive_nowait()))
                size += len(lines[-1])
        return b"".join(lines)
