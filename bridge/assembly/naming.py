"""What a server calls itself, the ids of tasks, and the clocks."""

from __future__ import annotations

import secrets
import time
from typing import Final

from bridge.mcp.client.known_servers import Fact, ServerMemory
from bridge.mcp.client.upstream import Upstream

_LOW_62: Final = (1 << 62) - 1


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
