"""The replicas of a bridge: which ones live, where they are reached, and whether they serve the same plan.

A *replica* here is a whole process, whatever it serves. Its epoch in this list is not the one under which an agent of
it holds tasks (`replicas.py`): a file may serve MCP servers alone, and no agent.

This module is the contract alone. Nothing here knows a database, a plan, or what an address is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, Self
from uuid import UUID


@dataclass(frozen=True, slots=True)
class ReplicaEntry:
    """What a replica tells the others of itself."""

    address: str | None
    """Where the others reach it; None if nobody said."""
    proof: bytes
    """Shows who wrote the address. Whoever uses the address checks that first."""
    start: UUID
    """The name of its epoch's start. No other epoch of any list has it, which is not so of the epoch's number."""
    plans: frozenset[bytes] = frozenset()
    """Digests of the plan that it serves, one for each of its keys. Empty while it starts. Two replicas that have a
    digest in common serve the same plan."""
    outages: bytes | None = None
    """What it tells of the peers that it cannot call; None while it tells nothing, as a release before does."""


class ReplicaRegistry(AbstractAsyncContextManager["ReplicaRegistry"], Protocol):
    """The list of replicas, as one of them sees it. Enter it once; this replica is listed as long as that lasts."""

    on_change: Callable[[], None]
    """Called when a replica came or went, or tells something else of itself."""
    on_hint: Callable[[str], None]
    """Called with each word that another replica has hinted, and with "" where some may have been lost."""
    outages: Callable[[], bytes]
    """Called at each beat: the peers that this replica cannot call, which the others are told when that changes."""

    async def __aenter__(self) -> Self: ...

    @property
    def epoch(self) -> int:
        """The epoch of this replica. It changes when the others took this one for dead."""
        ...

    def is_mine(self, epoch: int) -> bool:
        """Whether this replica has, or had, this epoch."""
        ...

    def tell(self, plans: frozenset[bytes]) -> None:
        """Tell the others which plan this replica serves from now on."""
        ...

    def hint(self, word: str) -> None:
        """Tell the others a word, without spaces and not long. It may be lost, and words that wait are told once."""
        ...

    @property
    def others(self) -> Mapping[int, ReplicaEntry]:
        """The other replicas that live, by their epochs, as far as this one knows."""
        ...

    @property
    def own(self) -> ReplicaEntry | None:
        """This replica, as the others can read of it; None while it is not listed."""
        ...

    async def find(self, epoch: int) -> ReplicaEntry | None:
        """The entry of an epoch; None if it is gone.

        Raises:
            StoreError: this cannot be found out now.
        """
        ...

    async def gone(self, epoch: int) -> None:
        """Wait until an epoch is gone. While the list cannot be read, it is not."""
        ...

    async def recall(self, names: Collection[bytes]) -> tuple[bytes, bytes] | None:
        """What was last kept under one of these names, and the name; None if nothing was.

        Raises:
            StoreError: this cannot be found out now.
        """
        ...

    def remember(self, name: bytes, kept: bytes) -> None:
        """Keep something for all replicas, now and later, in place of what had the name. What cannot be stored is only
        lost, and so is what was kept longest ago once there is much."""
        ...

    def now_seconds(self) -> float:
        """The time by a clock that all replicas share, whatever their machines' clocks say."""
        ...

    @property
    def failure(self) -> str | None:
        """Why the list cannot be read now, in words; None while it can."""
        ...
