"""The number of unfinished tasks of each principal.

A single replica knows all unfinished tasks. If there are several, each replica asks the store, at most once a second
for each principal, and adds the tasks that it has made since. So a bound may be exceeded by the tasks that other
replicas make within that second. No message is refused because of an old number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bridge.a2a.model.life import IdsAndClock
from bridge.store.replicas import Replicas

LOOK_MS: Final = 1000
"""How old a number from the store may be."""
_MOST_KNOWN: Final = 1000
"""From this number of principals on, old numbers are dropped."""


@dataclass(slots=True)
class _CountedTasks:
    looked_ms: int
    tasks: int
    """The number from the store, plus the tasks made since."""


class OpenTasks:
    """Counts unfinished tasks by their owner."""

    def __init__(self, ids: IdsAndClock, replicas: Replicas | None) -> None:
        self._ids = ids
        self._replicas = replicas
        self._here: dict[str, set[str]] = {}
        """The ids of all unfinished tasks, by owner. Used without other replicas."""
        self._known: dict[str, _CountedTasks] = {}
        """The numbers from the store, by owner. Used with other replicas."""

    def of(self, owner: str) -> int:
        """The number of unfinished tasks of an owner; with other replicas, as of the last look."""
        if self._replicas is None:
            return len(self._here.get(owner, ()))
        known = self._known.get(owner)
        return 0 if known is None else known.tasks

    def add(self, owner: str, task_id: str) -> None:
        """Count a task."""
        if self._replicas is None:
            self._here.setdefault(owner, set()).add(task_id)
        elif (known := self._known.get(owner)) is not None:
            known.tasks += 1

    def drop(self, owner: str, task_id: str) -> None:
        """Stop counting a task. The store itself knows which tasks have ended."""
        here = self._here.get(owner, set())
        here.discard(task_id)
        if not here:
            self._here.pop(owner, None)

    async def refresh(self, owner: str, most: int) -> None:
        """Ask the store for the number, if the known number is old, or is so high that a task would be refused.

        Raises:
            StoreError: the store cannot be reached.
        """
        if self._replicas is None:
            return
        now_ms, known = self._ids.elapsed_ms(), self._known.get(owner)
        if known is None or now_ms - known.looked_ms > LOOK_MS or known.tasks >= most:
            tasks = await self._replicas.open_of(owner)
            self._known[owner] = _CountedTasks(now_ms, tasks)
            self._forget_old(now_ms)

    def _forget_old(self, now_ms: int) -> None:
        if len(self._known) > _MOST_KNOWN:
            self._known = {
                owner: known for owner, known in self._known.items() if now_ms - known.looked_ms <= LOOK_MS
            }
