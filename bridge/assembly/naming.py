"""Names and ids that a bridge makes up: of servers that have not said theirs, of tasks."""

from __future__ import annotations

import re
import secrets
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from bridge.mcp.client.memory import Fact, ServerMemory
from bridge.mcp.client.transports.stdio import Command
from bridge.mcp.client.transports.streamable_http import Target
from bridge.mcp.client.upstream import Upstream

_RUNNER: Final = re.compile(r"npx|bunx?|deno|node|uvx?|pipx|python[\d.]*")
_PACKAGE: Final = re.compile(r"[@\w.][@\w./-]*")
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")
_LOW_62: Final = (1 << 62) - 1


def slug(name: str) -> str:
    """A name as it stands in paths and file names."""
    return _NOT_IN_NAMES.sub("-", name.lower()).strip("-")[:40].strip("-") or "tools"


def name_of(target: Target) -> str:
    """A name for a server that has not said its own: the host of a URL, the command, or what it runs."""
    if not isinstance(target, Command):
        return urlsplit(target.url).hostname or "tools"
    command, *words = target.argv
    run = (
        [word for word in words if _PACKAGE.fullmatch(word)] if _RUNNER.fullmatch(Path(command).name) else []
    )
    return Path(run[0] if run else command).stem or command


def own_name(upstream: Upstream, memory: ServerMemory) -> str:
    """What a server calls itself: now, or while it is down, what it did last time. Paths depend on it."""
    if upstream.greeting is None:
        return memory.recall(Fact.NAME, str(upstream.target)) or upstream.name
    return upstream.greeting.name


def new_id() -> str:
    """A new UUID version 7: ordered by time, which keeps the store quick, with 74 random bits."""
    moment, chance = time.time_ns() // 1_000_000, secrets.randbits(74)
    value = (moment << 80) | (0x7 << 76) | (chance >> 62 << 64) | (0b10 << 62) | (chance & _LOW_62)
    spelled = f"{value:032x}"
    return "-".join((spelled[:8], spelled[8:12], spelled[12:16], spelled[16:20], spelled[20:]))


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def elapsed_ms() -> int:
    """Milliseconds since some moment, by a clock that nobody sets."""
    return time.monotonic_ns() // 1_000_000
