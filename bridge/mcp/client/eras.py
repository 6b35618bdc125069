"""Which generation of MCP a server speaks: found out at the first connection, remembered, or set.

`auto` asks a modern server to describe itself and falls back to the older handshake when it refuses. A server that
says nothing is slow to start, or an older one that is silent before the handshake. So the handshake is sent beside
the question, and what is answered first decides. The wait before that is long; so what was found is remembered (see
`memory.py`).

Spec: MCP 2026-07-28 basic/versioning (server/discover), 2025-11-25 basic/lifecycle (initialize).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final

import anyio
from mcp import ClientSession, MCPError
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION


class Era(StrEnum):
    """How a connection starts."""

    AUTO = "auto"
    LEGACY = "legacy"
    """`initialize`: 2025-11-25 and older."""
    MODERN = "modern"
    """`server/discover`: 2026-07-28 and newer."""


SILENT_SECONDS: Final = 10.0
"""How long a server may say nothing before the older handshake is sent as well. As long as the SDK waits."""

_Refused = MCPError | RuntimeError | ValueError
"""What comes of an answer that is no agreement."""


async def negotiate(session: ClientSession, era: Era, silent_seconds: float = SILENT_SECONDS) -> Era:
    """Start a session; say which era it turned out to speak. It may take for ever: the caller has a deadline.

    Raises:
        MCPError: the server refused, or shares no version with us.
    """
    if era is Era.LEGACY:
        await session.initialize()
        return Era.LEGACY
    if era is Era.MODERN:
        await session.discover()
        return Era.MODERN
    probe, handshake = _Attempt(session.discover), _Attempt(session.initialize)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(probe.run)
        with anyio.move_on_after(silent_seconds):
            await probe.ended.wait()
        if not probe.succeeded and not _is_modern_only(probe.refusal):
            tasks.start_soon(handshake.run)
            await _first_agreement(session, probe, handshake)
        tasks.cancel_scope.cancel()
    if session.discover_result is None and session.initialize_result is None:
        refusal = handshake.refusal or probe.refusal
        assert refusal is not None
        raise refusal
    return Era.LEGACY if session.discover_result is None else Era.MODERN


class _Attempt:
    """One way to start a session, and what has come of it."""

    def __init__(self, start: Callable[[], Awaitable[object]]) -> None:
        self._start = start
        self.ended = anyio.Event()
        self.refusal: _Refused | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the server agreed."""
        return self.ended.is_set() and self.refusal is None

    async def run(self) -> None:
        """Try it."""
        try:
            await self._start()
        except (MCPError, RuntimeError, ValueError) as exc:
            self.refusal = exc
        self.ended.set()


async def _first_agreement(session: ClientSession, probe: _Attempt, handshake: _Attempt) -> None:
    """Wait until one of two that are under way has succeeded, or nothing can be expected of either."""
    async with anyio.create_task_group() as tasks:

        async def settle(attempt: _Attempt) -> None:
            await attempt.ended.wait()
            if attempt.succeeded or (attempt is handshake and not _is_modern_only(attempt.refusal)):
                tasks.cancel_scope.cancel()

        tasks.start_soon(settle, probe)
        tasks.start_soon(settle, handshake)
    if session.initialize_result is not None:
        await handshake.ended.wait()  # the server has still to be told that it is initialized


def _is_modern_only(refusal: _Refused | None) -> bool:
    """Of a server that names the versions it supports, none of which is ours or older."""
    return isinstance(refusal, MCPError) and refusal.code == UNSUPPORTED_PROTOCOL_VERSION
