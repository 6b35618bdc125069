"""How long ended tasks are kept, and the loop that lets the others go.

It knows when to ask a store to evict; what an eviction touches is the store's promise.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import anyio

from bridge.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.store.records import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Retention:
    """Which ended tasks are kept; tasks that have not ended always are."""

    age_seconds: float
    """An ended task older than this goes."""
    keep_ended: int
    """Of the rest, this many of the newest stay."""
    every_seconds: float
    """How long to wait between two evictions."""

    def __post_init__(self) -> None:
        if self.age_seconds < 0 or self.keep_ended < 0 or self.every_seconds <= 0:
            raise ValueError("age_seconds and keep_ended are 0 or more, every_seconds is more than 0")


async def retain(store: Store, retention: Retention, now_ms: Callable[[], int]) -> NoReturn:
    """Evict now and then every `every_seconds`, until cancelled.

    A StoreError is logged and tried again the next time: a full disk must not end the loop that frees it.
    """
    while True:
        try:
            evicted = await store.evict(now_ms() - round(retention.age_seconds * 1000), retention.keep_ended)
        except StoreError:
            logger.exception(
                "ended tasks could not be evicted; the next try is in %s s", retention.every_seconds
            )
        else:
            logger.debug("evicted %d ended tasks", evicted)
        await anyio.sleep(retention.every_seconds)
