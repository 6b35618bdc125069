"""The name of a tool server, new ids, and the clocks."""

from __future__ import annotations

import secrets
import time
from typing import Final

from bridge.mcp.client.known_servers import Fact, ServerMemory
from bridge.mcp.client.upstream import Upstream

_LOW_62: Final = (1 << 62) - 1


def own_name(upstream: Upstream, memory: ServerMemory) -> str:
    """The name that a server gives itself; while it is down, the remembered one. Paths depend on this name."""
    if upstream.greeting is None:
        return memory.recall(Fact.NAME, str(upstream.target)) or upstream.name
    return upstream.greeting.name


def new_id() -> str:
    """Make a UUID version 7 with 74 random bits. Its order by time keeps the store fast."""
    moment, chance = time.time_ns() // 1_000_000, secrets.randbits(74)
    value = (moment << 80) | (0x7 << 76) | (chance >> 62 << 64) | (0b10 << 62) | (chance & _LOW_62)
    spelled = f"{value:032x}"
    return "-".join((spelled[:8], spelled[8:12], spelled[12:16], spelled[16:20], spelled[20:]))


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def elapsed_ms() -> int:
    """Milliseconds of a monotonic clock."""
    return time.monotonic_ns() // 1_000_000
