"""The promises of every store: what it keeps, what it refuses, and what it answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, Self

from bridge.store.outbox import Outbox
from bridge.store.records import Change, Query, Quota, StoredMessage, StoredTask, TaskPage, WholeTask
from bridge.store.replicas import Replicas

OnStored = Callable[[Exception | None], None]
"""Called once a change is durable (None) or was refused (StoreError), in the order in which changes were submitted. The
call is made inside an async task, so that it may start other tasks."""


class StoreContents(Protocol):
    """All that a store keeps, while nobody else uses it."""

    async def count(self) -> int:
        """The number of tasks."""
        ...

    def tasks(self) -> AsyncIterator[WholeTask]:
        """Every task, in the order of the code points of its id. Few are in memory at a time."""
        ...

    async def add(self, tasks: Sequence[WholeTask]) -> None:
        """Add tasks whose ids are not there yet. Those that have not ended wait for a process, or a replica, that goes
        on with them. A store without replicas leaves out the ages and answers of messages.

        Raises:
            StoreError: the store cannot keep them. Leave the block of the contents then.
        """
        ...


class Store(AbstractAsyncContextManager["Store"], Protocol):
    """Keeps tasks. Enter a store once. On exit, every submitted change has been answered.

    Every implementation promises:

    - (task, seq) is unique and has no gaps.
    - The first ended head wins. It is stored in one transaction with its event.
    - A context has one owner for as long as it has a task.
    - (owner, message id) is unique. The newest message wins.
    - An event of a task with webhooks is stored with a row of the outbox for each of them, or not at all.
    """

    async def __aenter__(self) -> Self: ...

    def submit(self, change: Change, done: OnStored) -> None:
        """Queue a change. This never blocks; `done` is called with the outcome.

        The outcome is None; StoreConflictError, if the change does not follow the stored task; or StoreError, if the
        store cannot write.
        """
        ...

    async def load(self, task_id: str) -> StoredTask | None:
        """The task with this id, whoever owns it; None if there is none."""
        ...

    async def list(self, query: Query) -> TaskPage:
        """One page of the owner's tasks, or of the tasks of all."""
        ...

    async def context_owner(self, context_id: str) -> str | None:
        """The owner of a context; None if it has no task."""
        ...

    async def find_message(self, owner: str, message_id: str) -> StoredMessage | None:
        """The stored message of this owner with this id; None if there is none."""
        ...

    @property
    def replicas(self) -> Replicas | None:
        """The other replicas on this store; None for a store of one replica, which holds every task. It is known
        before the store is entered, and stays the same."""
        ...

    @property
    def outbox(self) -> Outbox:
        """The webhooks of the tasks, and what is to be sent to them."""
        ...

    def unfinished(self) -> AsyncIterator[StoredTask]:
        """Every unfinished task, oldest first, for a new process to recover. It is not asked of a store with replicas,
        where tasks rest or are adopted (`ReplicaEngine.adopt`)."""
        ...

    async def waiting(self, states: Collection[str]) -> Mapping[str, int]:
        """The unfinished tasks in one of these states: their ids, with the `status_ms` of each."""
        ...

    async def evict(self, ended_before_ms: int, quota: Quota) -> int:
        """Delete ended tasks, and return how many.

        First the tasks go that ended before a time. Then the surplus over the quota goes (`surplus_of`), first in
        number and then in bytes. Unfinished tasks are never deleted, nor are those of which something is still to be
        sent. A context goes with its last task.
        """
        ...

    def contents(self, *, create: bool) -> AbstractAsyncContextManager[StoreContents]:
        """All that the store keeps, for a block in which nobody uses it; the store itself is not entered.

        All that was added in the block is kept when it ends, or nothing if it ends with an exception. With `create`, a
        store that is not there is made, and its tables are brought to this release. Without it nothing is changed.

        Raises:
            StoreLockedError: a bridge uses the store.
            UsageError: the store is not there or cannot be opened.
        """
        ...

    @property
    def lasts(self) -> bool:
        """Whether the tasks outlive the process."""
        ...

    @property
    def failure(self) -> str | None:
        """Why the store cannot write, in words; None while it can."""
        ...

    async def probe(self) -> bool:
        """Try to write, and return whether it worked. Success clears `failure`."""
        ...

    async def check(self) -> None:
        """Check, without writing, that the stored tasks are still there. Sets `failure` if they are not."""
        ...
