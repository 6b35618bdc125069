"""The contract of every store: what it keeps, what it refuses, and what it answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, Self

from bridge.store.outbox import Outbox
from bridge.store.records import Change, Query, Quota, StoredMessage, StoredTask, TaskPage, WholeTask
from bridge.store.replicas import Replicas

OnStored = Callable[[Exception | None], None]
"""Called when a change is durable (None) or was refused (StoreError), in the order of submission. The call runs inside
an async task, so that it may start other tasks."""


class StoreContents(Protocol):
    """The whole content of a store, while nothing else uses the store."""

    async def count(self) -> int:
        """The number of tasks."""
        ...

    def tasks(self) -> AsyncIterator[WholeTask]:
        """Yield every task, ordered by the code points of the ids. Only a few tasks are in memory at a time."""
        ...

    async def add(self, tasks: Sequence[WholeTask]) -> None:
        """Add tasks with new ids. Unfinished tasks wait for a process or a replica that continues them. A store without
        replicas drops the ages and answers of messages.

        Raises:
            StoreError: the store cannot keep them. The caller must then leave the context of the contents.
        """
        ...


class Store(AbstractAsyncContextManager["Store"], Protocol):
    """Keeps tasks. Enter a store only once. On exit, every submitted change has been answered.

    Every implementation promises:

    - (task, seq) is unique and has no gaps.
    - The first ended head wins. It is stored in one transaction with its event.
    - A context has one owner as long as it has a task.
    - (owner, message id) is unique. The newest message wins.
    - An event of a task with webhooks is stored together with one outbox row for each webhook, or not at all.
    """

    async def __aenter__(self) -> Self: ...

    def submit(self, change: Change, done: OnStored) -> None:
        """Queue a change. This never blocks; `done` gets the outcome.

        The outcome is None if the change is stored, StoreConflictError if it does not follow the stored task, or
        StoreError if the store cannot write.
        """
        ...

    async def load(self, task_id: str) -> StoredTask | None:
        """The task with this id, of any owner; None if there is none."""
        ...

    async def list(self, query: Query) -> TaskPage:
        """A page of the owner's tasks, or of the tasks of all owners."""
        ...

    async def context_owner(self, context_id: str) -> str | None:
        """The owner of a context; None if it has no task."""
        ...

    async def find_message(self, owner: str, message_id: str) -> StoredMessage | None:
        """The stored message of this owner with this id; None if there is none."""
        ...

    @property
    def replicas(self) -> Replicas | None:
        """The other replicas on this store; None for a store with a single replica, which holds every task. The value
        is available before the store is entered, and never changes."""
        ...

    @property
    def outbox(self) -> Outbox:
        """The webhooks of the tasks, and the events still to be sent to them."""
        ...

    def unfinished(self) -> AsyncIterator[StoredTask]:
        """Yield every unfinished task, oldest first, for a new process to recover. Not used with replicas, where a task
        rests or a replica adopts it (`ReplicaEngine.adopt`)."""
        ...

    async def waiting(self, states: Collection[str]) -> Mapping[str, int]:
        """The ids of the unfinished tasks in one of these states, each with its `status_ms`."""
        ...

    async def evict(self, ended_before_ms: int, quota: Quota) -> int:
        """Delete ended tasks, and return their number.

        This deletes tasks that ended before `ended_before_ms`, then the surplus over the quota (`surplus_of`), first by
        number and then by bytes. It never deletes unfinished tasks or tasks with events still to be sent. A context is
        deleted with its last task.
        """
        ...

    def contents(self, *, create: bool) -> AbstractAsyncContextManager[StoreContents]:
        """The whole content of the store, for a context in which nothing else uses the store. Do not enter the store
        itself.

        When the context ends, the store keeps all added tasks, or none if the context ends with an exception. `create`
        makes a missing store, and updates its tables to this release. Without `create` nothing changes.

        Raises:
            StoreLockedError: a bridge uses the store.
            UsageError: the store does not exist or cannot be opened.
        """
        ...

    @property
    def lasts(self) -> bool:
        """Whether the tasks outlive the process."""
        ...

    @property
    def failure(self) -> str | None:
        """The reason why the store cannot write; None while it can."""
        ...

    async def probe(self) -> bool:
        """Try to write, and return whether it worked. Success clears `failure`."""
        ...

    async def check(self) -> None:
        """Check, without writing, that the stored tasks still exist. Sets `failure` if they do not."""
        ...
