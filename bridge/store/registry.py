"""The contract of the list of replicas: which replicas live, their addresses, and whether they serve the same plan.

Here a *replica* is a whole process, whatever it serves. Its epoch in this list differs from the epochs under which its
agents hold tasks (`replicas.py`): a process may serve only MCP servers, and no agent.

Nothing here knows a database, a plan, or the meaning of an address.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, Self
from uuid import UUID


@dataclass(frozen=True, slots=True)
class ReplicaEntry:
    """The data that a replica publishes about itself."""

    address: str | None
    """The address at which other replicas reach it; None if none is configured."""
    proof: bytes
    """Proves that a replica wrote the address. Check the proof before you use the address."""
    start: UUID
    """The unique id of its epoch. Epoch numbers are unique only within a list; this id is unique across lists."""
    plans: frozenset[bytes] = frozenset()
    """Digests of the plan that it serves, one per key. Empty while it starts. Two replicas with a common digest serve
    the same plan."""
    outages: bytes | None = None
    """The peers that it cannot call; None if it does not report them, like earlier releases."""


class ReplicaRegistry(AbstractAsyncContextManager["ReplicaRegistry"], Protocol):
    """The list of replicas, as this replica sees it. Enter it once: this replica is listed until the exit."""

    on_change: Callable[[], None]
    """Called when a replica comes or goes, or changes its entry."""
    on_hint: Callable[[str], None]
    """Called with each hint of another replica, and with "" when hints may have been lost."""
    outages: Callable[[], bytes]
    """Called at each heartbeat. Returns the peers that this replica cannot call; changes are published."""

    async def __aenter__(self) -> Self: ...

    @property
    def epoch(self) -> int:
        """The epoch of this replica. It changes after the others took this replica for dead."""
        ...

    def is_mine(self, epoch: int) -> bool:
        """Whether this replica has, or had, this epoch."""
        ...

    def publish(self, plans: frozenset[bytes]) -> None:
        """Publish the plan that this replica serves from now on."""
        ...

    def hint(self, word: str) -> None:
        """Send a short word without spaces to the others. It may be lost, and equal words that wait are sent once."""
        ...

    @property
    def others(self) -> Mapping[int, ReplicaEntry]:
        """The other live replicas by epoch, as far as this replica knows."""
        ...

    @property
    def own(self) -> ReplicaEntry | None:
        """The entry of this replica, as the others can read it; None while it is not listed."""
        ...

    async def find(self, epoch: int) -> ReplicaEntry | None:
        """The entry of an epoch; None if the epoch is gone.

        Raises:
            StoreError: the list cannot be read now.
        """
        ...

    async def gone(self, epoch: int) -> None:
        """Wait until an epoch is gone. While the list cannot be read, the epoch counts as live."""
        ...

    async def recall(self, names: Collection[bytes]) -> tuple[bytes, bytes] | None:
        """The name and the value that was stored last under one of these names; None if there is none.

        Raises:
            StoreError: the list cannot be read now.
        """
        ...

    def remember(self, name: bytes, record: bytes) -> None:
        """Store a value under a name for all present and future replicas, in place of an earlier value. It is lost if
        it cannot be stored, or if many later values displace it."""
        ...

    def now_seconds(self) -> float:
        """The time of a clock that all replicas share, independent of the clocks of their machines."""
        ...

    @property
    def failure(self) -> str | None:
        """Why the list cannot be read now; None while it can."""
        ...
