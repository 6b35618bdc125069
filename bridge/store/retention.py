"""How long ended tasks are kept, and the loop that lets the others go.

It knows when to ask a store to evict, and how many tasks of whom; what an eviction touches is the store's promise.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import anyio

from bridge.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bridge.store.records import Quota, Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Retention:
    """Which ended tasks are kept; tasks that have not ended always are."""

    age_seconds: float
    """An ended task older than this goes."""
    quota: Quota
    """How many of the rest stay."""
    every_seconds: float
    """How long to wait between two evictions."""

    def __post_init__(self) -> None:
        quota = self.quota
        least = min(self.age_seconds, quota.total, quota.each, quota.total_bytes, quota.each_bytes)
        if least < 0 or self.every_seconds <= 0:
            raise ValueError("age_seconds and the quota are 0 or more, every_seconds is more than 0")


def surplus_of(ended: Mapping[str, int], quota: Quota) -> dict[str, int]:
    """How many ended tasks of each owner are too many, or how many of their bytes; `ended` is how many each has.

    Beyond the total, whoever has most gives up tasks first: one who makes many never costs another their few.
    """
    counts = ended.values()
    each = min(quota.each, max(counts, default=0))
    # The largest number that everyone may keep without exceeding the total.
    most = (
        bisect_right(range(each + 1), quota.total, key=lambda most: sum(min(count, most) for count in counts))
        - 1
    )
    left = quota.total - sum(min(count, most) for count in ended.values())
    surplus: dict[str, int] = {}
    for owner, count in ended.items():
        kept = min(count, most)
        if kept < min(count, quota.each) and left > 0:
            kept, left = kept + 1, left - 1
        if count > kept:
            surplus[owner] = count - kept
    return surplus


class EndedTask(NamedTuple):
    """A task that has ended, as its bytes are counted. In the order in which they ended."""

    status_ms: int
    task_id: str
    owner: str
    size: int


def tasks_over_byte_quota(ended: Iterable[EndedTask], quota: Quota) -> list[str]:
    """Which ended tasks have to go for the others not to weigh too much: the oldest of each owner."""
    tasks, weights = sorted(ended), Counter[str]()
    for task in tasks:
        weights[task.owner] += task.size
    surplus = surplus_of(weights, quota.of_bytes)
    beyond = []
    for task in tasks:
        if surplus.get(task.owner, 0) > 0:
            surplus[task.owner] -= task.size
            beyond.append(task.task_id)
    return beyond


async def evict_periodically(store: Store, retention: Retention, now_ms: Callable[[], int]) -> NoReturn:
    """Evict now and then every `every_seconds`, until cancelled.

    A StoreError is logged and tried again the next time: a full disk must not end the loop that frees it.
    """
    while True:
        try:
            evicted = await store.evict(now_ms() - round(retention.age_seconds * 1000), retention.quota)
        except StoreError:
            logger.exception(
                "ended tasks could not be evicted; the next try is in %s s", retention.every_seconds
            )
        else:
            logger.debug("evicted %d ended tasks", evicted)
        await anyio.sleep(retention.every_seconds)
