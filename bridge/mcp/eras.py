"""Which generation of MCP a server speaks: found out at the first connection, remembered, or set.

`auto` asks a modern server to describe itself and falls back to the older handshake when it does not. Some
older servers say nothing before the handshake, which costs the whole wait; so what was found is remembered.

Spec: MCP 2026-07-28 basic/versioning (server/discover), 2025-11-25 basic/lifecycle (initialize).
"""

from __future__ import annotations

import hashlib
import json
import logging
from enum import StrEnum
from pathlib import Path

from mcp import ClientSession, MCPError
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from pydantic import ValidationError

logger = logging.getLogger(__name__)


class Era(StrEnum):
    """How a connection starts."""

    AUTO = "auto"
    LEGACY = "legacy"
    """`initialize`: 2025-11-25 and older."""
    MODERN = "modern"
    """`server/discover`: 2026-07-28 and newer."""


class EraMemory:
    """What is known of servers that were met before, in one small file; without a file, in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, str] = _read(path)

    def recall(self, server: str) -> Era:
        """The era that a server spoke last time, or AUTO."""
        return Era.LEGACY if self._known.get(_key(server)) == Era.LEGACY else Era.AUTO

    def remember(self, server: str, era: Era) -> None:
        """Note what a server spoke. A file that cannot be written costs the memory, nothing else."""
        self._note(_key(server), era, server)

    def recall_name(self, server: str) -> str | None:
        """What a server called itself last time."""
        return self._known.get(f"name:{_key(server)}")

    def remember_name(self, server: str, name: str) -> None:
        """Note what a server calls itself, so that it goes by that name while it is down."""
        self._note(f"name:{_key(server)}", name, server)

    def _note(self, key: str, value: str, server: str) -> None:
        if self._known.get(key) == value:
            return
        self._known[key] = value
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = self._path.with_suffix(".new")
            new.touch(mode=0o600)
            new.write_text(json.dumps(self._known, indent=1), encoding="utf-8")
            new.replace(self._path)
        except OSError as exc:
            logger.warning("cannot remember what %s is: %s", server, exc)

    def forget(self, server: str) -> None:
        """What was known has proved wrong."""
        self._known.pop(_key(server), None)


def _key(server: str) -> str:
    """A server as it stands in the file: unreadable, since commands and URLs may hold secrets."""
    return hashlib.sha256(server.encode()).hexdigest()[:32]


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


def _read(path: Path | None) -> dict[str, str]:
    try:
        known = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        logger.warning("what was remembered of servers is not readable (%s) and is started anew", exc)
        return {}
    return {str(key): str(value) for key, value in known.items()} if isinstance(known, dict) else {}
