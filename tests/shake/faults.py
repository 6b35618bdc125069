"""The faults: what is done to replicas and their database, in an order that a seed gives."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from tests.shake.fleet import LEASE_SECONDS, ShakenFleet, ShakenReplica
from tests.shake.stores import epochs_of
from tests.support.postgres import Database

KINDS: Final = ("kills", "pauses", "crashes", "cuts")
_SILENCE_SECONDS: Final = 2 * LEASE_SECONDS + 1
"""The longest that a replica stands still or is cut off; the shortest is a second longer than its lease."""


@dataclass
class FaultPlan:
    """How many faults of each kind, and within how many seconds."""

    counts: Mapping[str, int]
    seconds: float
    chance: random.Random

    def order(self) -> list[str]:
        """All faults, shuffled."""
        order = [kind for kind in KINDS for _ in range(self.counts[kind])]
        self.chance.shuffle(order)
        return order

    @property
    def pause_seconds(self) -> float:
        """The mean pause between two."""
        return self.seconds / max(1, sum(self.counts.values()))


@dataclass
class Shaking:
    """Does what a plan says."""

    plan: FaultPlan
    fleet: ShakenFleet
    database: Database | None
    done: Counter[str] = field(default_factory=Counter)
    killed_at: dict[int, float] = field(default_factory=dict)
    """When the replica of each epoch was killed."""
    silent_at: dict[int, float] = field(default_factory=dict)
    """When the replica of each epoch stood still or was cut off."""

    async def run(self) -> None:
        """Do all, and mend all."""
        chance = self.plan.chance
        async with anyio.create_task_group() as group:
            for kind in self.plan.order():
                await anyio.sleep(self.plan.pause_seconds * (0.5 + chance.random()))
                self.fleet.restart_dead()
                victim = chance.choice(self.fleet.replicas)
                if kind == "crashes":
                    assert self.database is not None
                    await anyio.to_thread.run_sync(self.database.crash)
                elif kind == "kills":
                    await self._kill(victim)
                else:
                    await self._silence(kind, victim, group)
                self.done[kind] += 1

    async def _kill(self, victim: ShakenReplica) -> None:
        epochs = await self._epochs(victim)
        at = await anyio.to_thread.run_sync(victim.kill)
        self.killed_at |= dict.fromkeys(epochs, at)
        victim.start()

    async def _silence(self, kind: str, victim: ShakenReplica, group: TaskGroup) -> None:
        epochs = await self._epochs(victim)
        seconds = self.plan.chance.uniform(LEASE_SECONDS + 1, _SILENCE_SECONDS)
        if kind == "pauses":
            at = victim.send(signal.SIGSTOP)
            group.start_soon(self._resume, victim, victim.starts, seconds)
        else:
            assert victim.proxy is not None
            at = victim.send(signal.SIGCONT)
            victim.proxy.cut()
            group.start_soon(self._mend, victim, seconds)
        self.silent_at |= dict.fromkeys(epochs, at)

    async def _epochs(self, victim: ShakenReplica) -> list[int]:
        if self.database is None:
            return []
        return await anyio.to_thread.run_sync(epochs_of, self.database.url, victim.name)

    async def _resume(self, victim: ShakenReplica, start: int, seconds: float) -> None:
        await anyio.sleep(seconds)
        if victim.starts == start:
            victim.send(signal.SIGCONT)

    async def _mend(self, victim: ShakenReplica, seconds: float) -> None:
        await anyio.sleep(seconds)
        assert victim.proxy is not None
        victim.proxy.mend()
