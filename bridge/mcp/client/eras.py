"""Which generation of MCP a server speaks: found out at the first connection, remembered, or configured.

`auto` sends `server/discover`, and falls back to `initialize` if the server refuses. A server that does not answer is
either slow to start, or is an older server that ignores requests before `initialize`. So after a wait, `initialize` is
sent, too, and the first answer decides. The wait is long, so the result is remembered (see `known_servers.py`).

Spec: MCP 2026-07-28 basic/versioning (server/discover), 2025-11-25 basic/lifecycle (initialize).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final

import anyio
from mcp import ClientSession, MCPError
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION

from bridge.mcp.client.faults import fault_of, status_of


class Era(StrEnum):
    """The generation of MCP. It decides how a connection starts."""

    AUTO = "auto"
    LEGACY = "legacy"
    """`initialize`: 2025-11-25 and older."""
    MODERN = "modern"
    """`server/discover`: 2026-07-28 and newer."""


SILENT_SECONDS: Final = 10.0
"""How long a server may be silent before `initialize` is sent, too. The SDK waits equally long."""

_NO_RIGHTS: Final = frozenset({401, 403})
"""The HTTP statuses for a missing token and for missing scopes."""

_Refused = MCPError | RuntimeError | ValueError
"""The errors of an attempt that the server answers but refuses."""


async def negotiate(session: ClientSession, era: Era, silent_seconds: float = SILENT_SECONDS) -> Era:
    """Start a session. Returns the era that the server speaks. There is no time limit: the caller sets a deadline.

    Raises:
        MCPError: the server refused, or has no version in common with the bridge.
    """
    if era is Era.LEGACY:
        await session.initialize()
        return Era.LEGACY
    if era is Era.MODERN:
        await session.discover()
        return Era.MODERN
    probe, handshake = _TriedStart(session.discover), _TriedStart(session.initialize)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(probe.run)
        with anyio.move_on_after(silent_seconds):
            await probe.ended.wait()
        if not probe.succeeded and not _is_modern_only(probe.refusal):
            tasks.start_soon(handshake.run)
            await _first_agreement(session, probe, handshake)
        tasks.cancel_scope.cancel()
    if session.discover_result is None and session.initialize_result is None:
        refusal = _of_both(probe.refusal, handshake.refusal)
        assert refusal is not None
        raise refusal
    return Era.LEGACY if session.discover_result is None else Era.MODERN


class _TriedStart:
    """One way to start a session, and its outcome."""

    def __init__(self, start: Callable[[], Awaitable[object]]) -> None:
        self._start = start
        self.ended = anyio.Event()
        self.refusal: _Refused | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the server agreed."""
        return self.ended.is_set() and self.refusal is None

    async def run(self) -> None:
        """Make the attempt. A refusal is stored, not raised."""
        try:
            await self._start()
        except (MCPError, RuntimeError, ValueError) as exc:
            self.refusal = exc
        self.ended.set()


async def _first_agreement(session: ClientSession, probe: _TriedStart, handshake: _TriedStart) -> None:
    """Wait until one of the two attempts has succeeded, or both have failed."""
    async with anyio.create_task_group() as tasks:

        async def settle(attempt: _TriedStart) -> None:
            await attempt.ended.wait()
            if attempt.succeeded or (attempt is handshake and not _is_modern_only(attempt.refusal)):
                tasks.cancel_scope.cancel()

        tasks.start_soon(settle, probe)
        tasks.start_soon(settle, handshake)
    if session.initialize_result is not None:
        await handshake.ended.wait()  # the notification `initialized` is still to be sent


def _of_both(probe: _Refused | None, handshake: _Refused | None) -> _Refused | None:
    """The refusal to report if both attempts failed. A missing token or missing scopes affect both attempts, so such a
    refusal comes first: a modern server's complaint about the unknown handshake would hide it."""
    has_no_rights = isinstance(probe, MCPError) and status_of(probe) in _NO_RIGHTS
    if has_no_rights and isinstance(handshake, MCPError) and not fault_of(handshake):
        return probe
    return handshake or probe


def _is_modern_only(refusal: _Refused | None) -> bool:
    """Whether a modern server refused because it supports only other versions. Then `initialize` would fail, too."""
    return isinstance(refusal, MCPError) and refusal.code == UNSUPPORTED_PROTOCOL_VERSION
