"""The ids of new tasks, messages and artifacts, and the clocks that they and their times come from."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bridge.store.contract import Store

_COUNT_BITS: Final = 12
_CHANCE_BITS: Final = 62


class OrderedIds:
    """Makes UUIDs of version 7, which sort in the order in which they were made, however coarse the clock is.

    Ids of one millisecond differ in 12 bits that count and in 62 that are random (RFC 9562 section 6.2, method 1). So
    tasks of one moment are listed and resumed in their order also where the clock ticks every 15 ms, as on Windows.
    Their order keeps the store fast, too. While the clock is set back, the count goes on from the last id.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._last = 0
        """The time of the last id in milliseconds, with the count behind it."""

    def new(self) -> str:
        """Make an id."""
        self._last = max(self._now_ms() << _COUNT_BITS, self._last + 1)
        moment, count = self._last >> _COUNT_BITS, self._last & ((1 << _COUNT_BITS) - 1)
        value = (moment << 80) | (0x7 << 76) | (count << 64) | (0b10 << 62) | secrets.randbits(_CHANCE_BITS)
        spelled = f"{value:032x}"
        return f"{spelled[:8]}-{spelled[8:12]}-{spelled[12:16]}-{spelled[16:20]}-{spelled[20:]}"


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def elapsed_ms() -> int:
    """Milliseconds of a monotonic clock."""
    return time.monotonic_ns() // 1_000_000


def clock_of(store: Store, machine_ms: Callable[[], int] = now_ms) -> Callable[[], int]:
    """The clock of a store's tasks: this machine's, or the one clock that the replicas on a store share."""
    replicas = store.replicas
    return machine_ms if replicas is None else lambda: machine_ms() + replicas.offset_ms
