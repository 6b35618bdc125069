"""How many unfinished tasks each principal has.

One replica alone knows its unfinished tasks. Of several, each asks the store, at most once a second for each principal,
and adds the tasks that it has made since. So a bound may be exceeded by what the others take in within that second. No
message is refused by an old number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bridge.a2a.model.life import IdsAndClock
from bridge.store.replicas import Replicas

LOOK_MS: Final = 1000
"""How old a number of the store may be."""
_MOST_KNOWN: Final = 1000
"""The number of principals from which on old numbers are dropped."""


@dataclass(slots=True)
class _CountedTasks:
    looked_ms: int
    tasks: int
    """The store's number, and the tasks made since."""


class OpenTasks:
    """Counts unfinished tasks by their owner."""

    def __init__(self, ids: IdsAndClock, replicas: Replicas | None) -> None:
        self._ids = ids
        self._replicas = replicas
        self._here: dict[str, set[str]] = {}
        """Without other replicas: the ids of all unfinished tasks, by owner."""
        self._known: dict[str, _CountedTasks] = {}
        """With other replicas."""

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
        """Count a task no more. The store knows by itself which tasks have ended."""
        here = self._here.get(owner, set())
        here.discard(task_id)
        if not here:
            self._here.pop(owner, None)

    async def look(self, owner: str, most: int) -> None:
        """Ask the store for the number, if the last one is old, or so high that a task would be refused for it.

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
