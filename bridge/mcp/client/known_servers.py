"""Facts about tool servers from earlier connections, in one small file that all bridges of a user share.

The file saves a probe at the next start, and a server that is down keeps its name. If the file cannot be read or
written, only these facts are lost.

A bridge reads the file once, at its start. It writes each change to the present file, so that changes by another bridge
or by a person stay. There is no lock: one of two simultaneous changes may be lost, which costs another probe.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from bridge.errors import UsageError
from bridge.local.private_files import STATE_BYTES, patiently, read_regular, write_privately

logger = logging.getLogger(__name__)

FILE_NAME: Final = "servers.json"
"""The file of known servers, in the user's state folder."""


class Fact(StrEnum):
    """A kind of fact about a server."""

    ERA = "era"
    """The `Era` that the server spoke."""
    MUTE = "mute"
    """The server speaks 2026-07-28 but cannot ask questions under it, so the older handshake is used."""
    NAME = "name"
    """The name in the server's description of itself."""
    TRANSPORT = "transport"
    """The transport of the server's URL, if it is the older HTTP+SSE."""
    SERIAL = "serial"
    """The server asks in the middle of calls without naming the call, so a session runs one call at a time."""


class ServerMemory:
    """Facts about servers. Without a path, or if nothing may be stored, new facts last as long as the process."""

    def __init__(self, path: Path | None, *, keeps: bool = True) -> None:
        self._path = path if keeps else None
        self._known: dict[str, str] = _read(path)

    def recall(self, fact: Fact, server: str) -> str | None:
        """The value of a fact; None if it is not known."""
        return self._known.get(_key(fact, server))

    def remember(self, fact: Fact, server: str, value: str) -> None:
        """Store a fact."""
        key = _key(fact, server)
        if self._known.get(key) != value:
            self._known[key] = value
            self._write(server, key, value)

    def forget(self, fact: Fact, server: str) -> None:
        """Remove a fact."""
        key = _key(fact, server)
        if self._known.pop(key, None) is not None:
            self._write(server, key, None)

    def _write(self, server: str, key: str, value: str | None) -> None:
        """Make one change to the present file."""
        if self._path is None:
            return
        known = _read(self._path)
        if known.pop(key, None) == value:
            return
        try:
            _replace(self._path, known if value is None else {**known, key: value})
        except (OSError, UsageError) as exc:
            logger.warning("cannot remember what %s is: %s", server, exc)


@dataclass(frozen=True, slots=True)
class KnownServer:
    """The facts about one server in the file."""

    server_id: str
    """The hash of the server's command or URL, as in the file."""
    facts: Mapping[str, str]
    """The values by `Fact`. Other versions of the bridge may have added other facts."""

    @property
    def name(self) -> str:
        """The server's own name; "" if it is not known."""
        return self.facts.get(Fact.NAME, "")


def remembered_in(path: Path) -> list[KnownServer]:
    """All servers in the file, in the order of their first connection.

    Raises:
        UsageError: the file cannot be read.
    """
    servers: dict[str, dict[str, str]] = {}
    for key, value in _known_in(path).items():
        fact, _, server_id = key.partition(":")
        servers.setdefault(server_id, {})[fact] = value
    return [KnownServer(server_id, facts) for server_id, facts in servers.items()]


def forget_servers(path: Path, server_ids: Collection[str]) -> None:
    """Remove all facts about some servers from the file. A running bridge keeps the facts that it read.

    Raises:
        UsageError: the file cannot be read or written.
    """
    known = _known_in(path)
    try:
        _replace(
            path, {key: value for key, value in known.items() if key.partition(":")[2] not in server_ids}
        )
    except OSError as exc:
        raise UsageError(f"cannot write {path}: {exc.strerror or exc}") from exc


def _key(fact: Fact, server: str) -> str:
    """The key of a fact in the file."""
    return f"{fact}:{server_id(server)}"


def server_id(server: str) -> str:
    """The id of a server in the file. The server is hashed, since commands and URLs may hold secrets."""
    return hashlib.sha256(server.encode()).hexdigest()[:32]


def _read(path: Path | None) -> dict[str, str]:
    try:
        return _known_in(path) if path else {}
    except UsageError as exc:
        logger.warning("the memory of the servers starts empty: %s", exc)
        return {}


def _known_in(path: Path) -> dict[str, str]:
    """The content of the file; empty if there is no file.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        known = json.loads(patiently(lambda: read_regular(path, STATE_BYTES)))
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise UsageError(f"cannot read {path}: {exc.strerror or exc}") from exc
    except ValueError as exc:
        raise UsageError(f"{path} is not JSON ({exc})") from exc
    return {str(key): str(value) for key, value in known.items()} if isinstance(known, dict) else {}


def _replace(path: Path, known: Mapping[str, str]) -> None:
    write_privately(path, json.dumps(known, indent=1).encode())
