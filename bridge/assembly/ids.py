"""The ids of new tasks, messages and artifacts, and the clocks that they and their times come from."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bridge.store.contract import Store

_COUNT_BITS: Final = 12
_CHANCE_BYTES: Final = 8
_CHANCE_MASK: Final = (1 << 62) - 1
_DRAWN_BYTES: Final = 128 * _CHANCE_BYTES
"""How many random bytes are asked of the system at once: asking costs more than the bytes."""


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
        self._chances = _random_numbers()

    def new(self) -> str:
        """Make an id."""
        self._last = max(self._now_ms() << _COUNT_BITS, self._last + 1)
        moment, count = self._last >> _COUNT_BITS, self._last & ((1 << _COUNT_BITS) - 1)
        chance = next(self._chances)
        value = (moment << 80) | (0x7 << 76) | (count << 64) | (0b10 << 62) | chance
        spelled = f"{value:032x}"
        return f"{spelled[:8]}-{spelled[8:12]}-{spelled[12:16]}-{spelled[16:20]}-{spelled[20:]}"


def _random_numbers() -> Iterator[int]:
    """Numbers of 62 random bits, without end."""
    while True:
        drawn = secrets.token_bytes(_DRAWN_BYTES)
        for start in range(0, _DRAWN_BYTES, _CHANCE_BYTES):
            yield int.from_bytes(drawn[start : start + _CHANCE_BYTES], "big") & _CHANCE_MASK


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
