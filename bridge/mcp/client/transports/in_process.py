"""The in-process transport: a tool server that is an object of the Python SDK in this process.

Library users and tests have the server as an object, without a command or a URL. Each connection runs the object once,
as the SDK runs it over stdio, with a lifespan of its own. Messages pass as lines of JSON, as to a child process. So the
limits on sizes apply, and the server and the bridge share no mutable value.

Spec: MCP 2026-07-28 basic/transports (custom transports).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

import anyio
from mcp.client._transport import TransportStreams
from mcp.server import MCPServer, Server
from mcp.shared.message import SessionMessage

from bridge.errors import UsageError
from bridge.mcp.client.faults import within_limits
from bridge.mcp.client.stderr import LastWords
from bridge.mcp.messages import LineSplitter, line_of, messages_in

logger = logging.getLogger(__name__)

_GONE: Final = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError)
"""The errors of a stream whose other end is closed."""


ServerObject: TypeAlias = Server[Any] | MCPServer
"""A tool server of the Python SDK: `mcp.server.MCPServer` (once called FastMCP), or a low-level `mcp.server.Server`."""


def low_level(name: str, server: object) -> Server[Any]:
    """The low-level server of an object.

    Raises:
        UsageError: the object is not a server of the SDK.
    """
    if isinstance(server, MCPServer):
        return (
            server._lowlevel_server
        )  # the SDK has no public name for it; the SDK itself reads this attribute
    if isinstance(server, Server):
        return server
    raise UsageError(
        f"tool server {name}: {type(server).__module__}.{type(server).__qualname__} is no MCP server."
        " Give an mcp.server.MCPServer or a low-level mcp.server.Server"
    )


@dataclass(frozen=True)
class InProcessTarget:
    """A server that is an object in this process. Two targets are equal if they have the same object."""

    name: str
    server: Server[Any] = field(repr=False)
    exit_seconds: float = field(kw_only=True)
    """How long the server may take to end after its last message."""
    result_limit_bytes: int = field(kw_only=True)
    result_json_values: int = field(kw_only=True)
    roots: ClassVar[tuple[str, ...]] = ()
    """An object is told no folders."""

    def __str__(self) -> str:
        return f"{self.name} in this process"


@asynccontextmanager
async def in_process(
    target: InProcessTarget, name: str, last_words: LastWords
) -> AsyncIterator[TransportStreams]:
    """Run the server of a target, and end it on exit. An error of the server is logged, and ends the connection."""
    run = _Run(target, name, last_words)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.serve)
        tasks.start_soon(run.pass_to_server)
        tasks.start_soon(run.pass_to_bridge)
        try:
            yield run.messages, run.sink
        finally:
            with anyio.CancelScope(shield=True):
                await run.end()
            tasks.cancel_scope.cancel()


class _Run:
    """One run of a server, and the passing of messages in both directions."""

    def __init__(self, target: InProcessTarget, name: str, last_words: LastWords) -> None:
        self._target, self._name, self._last_words = target, name, last_words
        self._ended = anyio.Event()
        streams = anyio.create_memory_object_stream[SessionMessage | Exception](1)
        self._received, self.messages = streams
        self.sink, self._outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        self._to_server, self._asked = anyio.create_memory_object_stream[SessionMessage | Exception](1)
        self._said, self._from_server = anyio.create_memory_object_stream[SessionMessage](1)

    async def serve(self) -> None:
        """Run the server until its messages end, or it fails."""
        server = self._target.server
        async with self._asked, self._said:
            try:
                await server.run(self._asked, self._said, server.create_initialization_options())
            except Exception as exc:  # an error in foreign code must not end other users of this process
                logger.exception("%s: the server object failed", self._name)
                self._last_words.add(f"{type(exc).__name__}: {exc}")
            finally:
                self._ended.set()

    async def pass_to_server(self) -> None:
        """Pass on the bridge's messages."""
        with suppress(*_GONE):
            async with self._outgoing, self._to_server:
                async for message in self._outgoing:
                    for read in messages_in(line_of(message).rstrip()):
                        await self._to_server.send(read)

    async def pass_to_bridge(self) -> None:
        """Pass on the server's messages within the limits."""
        limit_bytes, max_values = self._target.result_limit_bytes, self._target.result_json_values
        lines = LineSplitter(limit_bytes)
        with suppress(*_GONE):
            async with self._received, self._from_server:
                async for message in self._from_server:
                    for line in lines.feed(line_of(message)):
                        for read in within_limits(line, limit_bytes, max_values):
                            await self._received.send(read)

    async def end(self) -> None:
        """End the messages, and wait for the server to end. The caller shields this, and cancels the rest."""
        self.messages.close()
        self.sink.close()
        with anyio.move_on_after(self._target.exit_seconds):
            await self._ended.wait()
