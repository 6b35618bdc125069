"""Which generation of MCP a server speaks: found out at the first connection, remembered, or set.

`auto` asks a modern server to describe itself and falls back to the older handshake when it does not. Some
older servers say nothing before the handshake, which costs the whole wait; so what was found is remembered
(see `memory.py`).

Spec: MCP 2026-07-28 basic/versioning (server/discover), 2025-11-25 basic/lifecycle (initialize).
"""

from __future__ import annotations

from enum import StrEnum

from mcp import ClientSession, MCPError
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from pydantic import ValidationError


class Era(StrEnum):
    """How a connection starts."""

    AUTO = "auto"
    LEGACY = "legacy"
    """`initialize`: 2025-11-25 and older."""
    MODERN = "modern"
    """`server/discover`: 2026-07-28 and newer."""


async def negotiate(session: ClientSession, era: Era) -> Era:
    """Start a session; say which era it turned out to speak.

    Raises:
        MCPError: the server refused, or shares no version with us.
    """
    if era is Era.LEGACY:
        await session.initialize()
        return Era.LEGACY
    try:
        await session.discover()
    except (MCPError, RuntimeError, ValidationError) as exc:
        if era is Era.MODERN or _is_modern_only(exc):
            raise
        await session.initialize()
        return Era.LEGACY
    return Era.MODERN


def _is_modern_only(exc: Exception) -> bool:
    """A server that names the versions it supports, none of which is ours or older."""
    return isinstance(exc, MCPError) and exc.code == UNSUPPORTED_PROTOCOL_VERSION
