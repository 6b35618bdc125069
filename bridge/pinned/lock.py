"""The lock: a JSON file beside the configuration, with the definitions that an operator approved.

The file is sorted, so that a version control system shows what has changed. It holds no secret. It may be hostile: a
file that is too large, too deep, half written or of another form is refused as a whole, and its contents are not
quoted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from pydantic import JsonValue

from bridge.errors import UsageError
from bridge.local.private_files import read_regular, write_whole
from bridge.pinned.definitions import KINDS, Definitions, ItemKind
from bridge.text.jsonvalues import JsonObject, is_deeper

PinMode = Literal["off", "warn", "refuse"]
"""What happens to an item that is not as in the lock: nothing, a warning, or it is not offered."""

LOCK_BYTES: Final = 32 * 1024 * 1024
"""The largest lock. A thousand tools with long schemas take about 5 MB."""
_FORMAT: Final = 1
_READABLE: Final = 0o644
"""The rights of a lock: it holds no secret, and belongs into version control."""
_LEVELS: Final = 100
"""The deepest lock: a schema has at most 64 levels."""
_SECTIONS: Final = ("tool_servers", "agents")


@dataclass(frozen=True, slots=True)
class PinnedSource:
    """What was approved of one server or agent."""

    definitions: Definitions
    version: str = ""
    """The name and version that it gave itself. It is only shown."""


@dataclass(frozen=True, slots=True)
class Lock:
    """What was approved, by the titles of servers and agents in the configuration, such as `tool_servers.github`."""

    sources: Mapping[str, PinnedSource] = field(default_factory=dict)

    def definitions_of(self, title: str) -> Definitions | None:
        """The approved definitions of a server or agent; None if it was never pinned."""
        source = self.sources.get(title)
        return None if source is None else source.definitions

    def having(self, sources: Mapping[str, PinnedSource]) -> Lock:
        """A copy in which these servers and agents have these definitions."""
        return Lock({**self.sources, **sources})


@dataclass(frozen=True, slots=True)
class PinnedAs:
    """How one server or agent is pinned."""

    mode: PinMode
    definitions: Definitions | None
    """What was approved; None if nothing was."""


@dataclass(frozen=True, slots=True)
class PinnedPlan:
    """What is pinned while a plan is served."""

    modes: Mapping[str, PinMode] = field(default_factory=dict)
    """By the titles of servers and agents. A title that is left out is not pinned."""
    lock: Lock = field(default_factory=Lock)

    def of(self, title: str) -> PinnedAs | None:
        """How a server or agent is pinned; None if it is not."""
        mode = self.modes.get(title, "off")
        return None if mode == "off" else PinnedAs(mode, self.lock.definitions_of(title))


def server_title(key: str) -> str:
    """The title of a tool server in the lock."""
    return f"tool_servers.{key}"


def agent_title(key: str) -> str:
    """The title of an agent in the lock."""
    return f"agents.{key}"


def lock_beside(configuration: Path) -> Path:
    """The path of the lock of a configuration file."""
    return configuration.with_suffix(".lock")


def read_lock(path: Path) -> Lock | None:
    """Read a lock; None if there is none.

    Raises:
        UsageError: the file cannot be read, or is no lock.
    """
    try:
        text = read_regular(path, LOCK_BYTES)
    except FileNotFoundError:
        if path.is_symlink():
            raise UsageError(f"{path} is a link that leads nowhere") from None
        return None
    except OSError as exc:
        raise UsageError(f"cannot read {path}: {exc.strerror or exc}") from exc
    try:
        value: JsonValue = json.loads(text)
        if is_deeper(value, _LEVELS):
            raise _NoLockError(f"it is nested deeper than {_LEVELS} levels")
        return _lock_in(value)
    except _NoLockError as exc:
        reason = str(exc)
    except json.JSONDecodeError as exc:
        reason = f"line {exc.lineno}: it is not JSON, or only part of it was written"
    except (ValueError, RecursionError):
        reason = "it is not JSON"
    raise UsageError(
        f"{path} is no lock of this bridge: {reason}. Restore it, or delete it and run `mcp-a2a pin` again"
    )


def lock_text(lock: Lock) -> str:
    """A lock as it stands in the file. Equal locks have equal texts."""
    sections: JsonObject = {"format": _FORMAT}
    for section in _SECTIONS:
        prefix = f"{section}."
        sections[section] = {
            title.removeprefix(prefix): {
                **({"version": source.version} if source.version else {}),
                **{kind: dict(items) for kind, items in source.definitions.items()},
            }
            for title, source in lock.sources.items()
            if title.startswith(prefix)
        }
    return json.dumps(sections, ensure_ascii=True, indent=2, sort_keys=True) + "\n"


def write_lock(path: Path, lock: Lock) -> None:
    """Write a lock, completely or not at all.

    Raises:
        UsageError: the path is a link or no regular file, or it cannot be written.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise UsageError(f"{path} is a link or no regular file: remove it, and run `mcp-a2a pin` again")
    try:
        write_whole(path, lock_text(lock).encode(), mode=_READABLE, lasting=True)
    except OSError as exc:
        raise UsageError(f"cannot write {path}: {exc.strerror or exc}") from exc


class _NoLockError(ValueError):
    """The value is no lock. The message says why, without the value."""


def _lock_in(value: JsonValue) -> Lock:
    if not isinstance(value, dict) or not isinstance(value.get("format"), int):
        raise _NoLockError("it has no `format`")
    if value["format"] != _FORMAT:
        raise _NoLockError(f"its `format` is not {_FORMAT}; another release of mcp-a2a wrote it")
    sources: dict[str, PinnedSource] = {}
    for section, tables in value.items():
        if section == "format":
            continue
        if section not in _SECTIONS:
            raise _NoLockError("it has a section that is neither `tool_servers` nor `agents`")
        for name, table in _object(tables, section).items():
            title = f"{section}.{name}"
            sources[title] = _source_in(_object(table, title), title)
    return Lock(sources)


def _source_in(table: JsonObject, title: str) -> PinnedSource:
    version = table.get("version", "")
    if not isinstance(version, str):
        raise _NoLockError(f"{title}.version is no text")
    definitions: dict[ItemKind, Mapping[str, JsonObject]] = {}
    for key, items in table.items():
        if key == "version":
            continue
        kind = next((known for known in KINDS if known == key), None)
        if kind is None:
            raise _NoLockError(f"{title} has a kind that is none of {', '.join(KINDS)}")
        definitions[kind] = {
            name: _object(item, f"an entry of {title}.{kind}")
            for name, item in _object(items, f"{title}.{kind}").items()
        }
    return PinnedSource(definitions, version)


def _object(value: JsonValue, where: str) -> JsonObject:
    if not isinstance(value, dict):
        raise _NoLockError(f"{where} is no object")
    return value
