"""Retention: how long and how many ended tasks are kept, and the loop that evicts the others.

This module decides when to evict, and how many tasks of each owner. `Store.evict` defines what an eviction deletes.
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

    from bridge.store.contract import Store
    from bridge.store.records import Quota

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Retention:
    """The rules for keeping ended tasks. Unfinished tasks are always kept."""

    age_seconds: float
    """How long ended tasks are kept."""
    quota: Quota
    """The bound on ended tasks within that age."""
    every_seconds: float
    """The pause between two evictions."""

    def __post_init__(self) -> None:
        quota = self.quota
        least = min(self.age_seconds, quota.total, quota.each, quota.total_bytes, quota.each_bytes)
        if least < 0 or self.every_seconds <= 0:
            raise ValueError("age_seconds and the quota must be 0 or more, and every_seconds more than 0")


def surplus_of(ended: Mapping[str, int], quota: Quota) -> dict[str, int]:
    """The surplus of each owner over a quota, in tasks or in bytes. `ended` has the amount of each owner.

    Above the total, the owners with the largest amounts lose tasks first, so that an owner with many tasks never costs
    an owner with few.
    """
    counts = ended.values()
    each = min(quota.each, max(counts, default=0))
    # The largest number that each owner may keep without exceeding the total.
    most = (
        bisect_right(range(each + 1), quota.total, key=lambda most: sum(min(count, most) for count in counts))
        - 1
    )
    left = quota.total - sum(min(count, most) for count in ended.values())
    surplus: dict[str, int] = {}
    for owner, count in ended.items():
        share = min(count, most)
        if share < min(count, quota.each) and left > 0:
            share, left = share + 1, left - 1
        if count > share:
            surplus[owner] = count - share
    return surplus


class EndedTask(NamedTuple):
    """An ended task and its size in bytes. The tuples sort by the time at which the tasks ended."""

    status_ms: int
    task_id: str
    owner: str
    size: int


def tasks_over_byte_quota(ended: Iterable[EndedTask], quota: Quota) -> list[str]:
    """The ids of the tasks to delete, the oldest of each owner first, so that the rest fits the quota in bytes."""
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
    """Evict at once and then every `every_seconds`, until cancelled. With replicas, only the leading one evicts.

    A StoreError is logged, and the loop continues: a full disk must not end the loop that frees space.
    """
    while True:
        if store.replicas is not None and not store.replicas.leads:
            await anyio.sleep(retention.every_seconds)
            continue
        try:
            evicted = await store.evict(now_ms() - round(retention.age_seconds * 1000), retention.quota)
        except StoreError:
            logger.exception(
                "ended tasks could not be evicted; the next try is in %s s", retention.every_seconds
            )
        else:
            logger.debug("evicted %d ended tasks", evicted)
        await anyio.sleep(retention.every_seconds)
