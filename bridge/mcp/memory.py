"""What is known of tool servers that were met before, in one small file.

It saves a probe at the next start, and a server that is down keeps its name. A file that cannot be read or
written costs the memory, nothing else.
"""

from __future__ import annotations

import hashlib
import json
import logging
from enum import StrEnum
from pathlib import Path

logger = logging.getLogger(__name__)


class Fact(StrEnum):
    """What is remembered of a server."""

    ERA = "era"
    """The `Era` that it spoke."""
    MUTE = "mute"
    """It speaks 2026-07-28 and cannot ask under it, so it is spoken to by the older handshake."""
    NAME = "name"
    """What it called itself."""
    TRANSPORT = "transport"
    """Over what its URL was spoken to, when it was the older HTTP+SSE."""
    SERIAL = "serial"
    """It asks in the middle of calls and does not say which one it is about, so a session runs one call at a time."""


class ServerMemory:
    """Facts about servers; without a path they last as long as the process."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, str] = _read(path)

    def recall(self, fact: Fact, server: str) -> str | None:
        """What was remembered, if anything."""
        return self._known.get(_key(fact, server))

    def remember(self, fact: Fact, server: str, value: str) -> None:
        """Note something for the next time."""
        key = _key(fact, server)
        if self._known.get(key) == value:
            return
        self._known[key] = value
        self._write(server)

    def forget(self, fact: Fact, server: str) -> None:
        """What was known has proved wrong."""
        if self._known.pop(_key(fact, server), None) is not None:
            self._write(server)

    def _write(self, server: str) -> None:
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


def _key(fact: Fact, server: str) -> str:
    """A server as it stands in the file: unreadable, since commands and URLs may hold secrets."""
    return f"{fact}:{hashlib.sha256(server.encode()).hexdigest()[:32]}"


def _read(path: Path | None) -> dict[str, str]:
    try:
        known = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        logger.warning("what was remembered of servers is not readable (%s) and is started anew", exc)
        return {}
    return {str(key): str(value) for key, value in known.items()} if isinstance(known, dict) else {}
