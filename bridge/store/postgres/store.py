"""A store in PostgreSQL that any number of replicas share. See `Store` for the promises, `replicas.py` for the rest.

It needs two to four connections for each agent, one of them direct if a pool is in front of the database.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, Self

import anyio

from bridge.errors import StoreError, UsageError
from bridge.store.postgres import evictions, reads
from bridge.store.postgres.clock import machine_ms
from bridge.store.postgres.command_seals import CommandSeals
from bridge.store.postgres.connections import (
    DatabaseAddress,
    DatabaseConnections,
    StoreTasks,
    connected,
)
from bridge.store.postgres.contents import PostgresContents, contents
from bridge.store.postgres.replicas import PostgresReplicas
from bridge.store.postgres.table_steps import AGENT, Namespace
from bridge.store.postgres.upgrade import prepared
from bridge.store.postgres.writer import GroupWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
    from types import TracebackType

    from bridge.store.contract import OnStored
    from bridge.store.postgres.bounds import PostgresBounds
    from bridge.store.postgres.outbox import PostgresOutbox
    from bridge.store.postgres.table_steps import Tables
    from bridge.store.records import Change, Query, Quota, StoredMessage, StoredTask, TaskPage
    from bridge.telemetry.database_sight import DatabaseSight

_END_SECONDS: Final = 2.0
"""How long a replica tries to note its end. Others notice the end by themselves too."""


class PostgresStore:
    """Keeps the tasks of an agent in PostgreSQL, together with other replicas of the agent."""

    def __init__(
        self,
        url: str,
        agent: str,
        bounds: PostgresBounds,
        *,
        direct_url: str | None = None,
        sight: DatabaseSight | None = None,
        tables: Tables = AGENT,
        now_ms: Callable[[], int] = machine_ms,
        keys: Sequence[bytes] = (),
    ) -> None:
        """Name the database by a URL that libpq understands, and the agent.

        `direct_url` leads past a connection pool that gives each transaction another session; without it, `url` must be
        direct. `sight` logs outages, once for all users of the object. `tables` are the tables of this release, and
        `now_ms` is this machine's clock. `keys` seal and prove the commands between replicas; without keys there are no
        commands.

        Raises:
            UsageError: libpq does not understand a URL, or a key is too short.
        """
        self._address = DatabaseAddress.of(url, direct_url, sight)
        self._place = Namespace.of(agent)
        self._known = tables
        self._bounds = bounds
        self._tasks = StoreTasks()
        self._connections = DatabaseConnections(
            self._tasks, self._address, bounds.store.connections, bounds.store.statement_seconds
        )
        seals = CommandSeals(keys, self._place.name) if keys else None
        self._replicas = PostgresReplicas(
            self._tasks, self._address, self._connections, self._place, tables, bounds, now_ms, seals
        )
        self._epochs = self._replicas.epochs
        self._writer = GroupWriter(
            self._address,
            self._place,
            bounds,
            lambda: self._epochs.number,
            self._replicas.stored,
            self._epochs.renew,
        )

    async def __aenter__(self) -> Self:
        """Make or update the tables, and begin an epoch.

        Raises:
            UsageError: the database cannot be reached or refuses, or the tables are of a newer release, or need a
                breaking change, which running releases may not be able to use.
        """
        await prepared(self._address, self._place, self._known, self._bounds.store.statement_seconds)
        await self._tasks.begin()
        try:
            await self._epochs.begin()
        except BaseException as exc:
            await self._end()
            if isinstance(exc, StoreError):
                raise UsageError(str(exc)) from exc
            raise
        self._tasks.start(self._writer.run)
        self._replicas.run(self._writer)
        return self

    @asynccontextmanager
    async def contents(self, *, create: bool) -> AsyncIterator[PostgresContents]:
        """The whole content of the store; see `Store.contents`."""
        async with (
            connected(self._address, self._bounds.store.statement_seconds, self._place.name) as connection,
            contents(
                connection, self._place, self._known, self._bounds.lease, create=create
            ) as whole_contents,
        ):
            yield whole_contents

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Store and answer the submitted changes, and leave unfinished tasks to the other replicas. A cancellation does
        not shorten this, and an unreachable database does not prolong it."""
        with anyio.CancelScope(shield=True):
            await self._writer.close()
            with anyio.move_on_after(min(_END_SECONDS, self._bounds.store.close_seconds)):
                await self._epochs.end()
        await self._end()

    async def _end(self) -> None:
        """End all tasks. Their connections are cut first, because an interrupted driver waits for the database."""
        self._writer.cut()
        self._epochs.cut()
        self._connections.cut()
        self._tasks.stop()
        try:
            await self._tasks.join()
        finally:
            await self._epochs.stop()
            await self._connections.close()

    def submit(self, change: Change, done: OnStored) -> None:
        """Queue a change; see `Store.submit`."""
        self._writer.submit(change, done)

    async def load(self, task_id: str) -> StoredTask | None:
        """The task with this id, of any owner; None if there is none.

        Raises:
            StoreError: the database cannot be reached. All reads raise it.
        """
        while True:
            task = await self._connections.run(partial(reads.task, place=self._place, task_id=task_id))
            is_mine = task is not None and task.holder == self._replicas.epoch
            if not is_mine or not await self._replicas.was_adopted(task_id):
                return task

    async def list(self, query: Query) -> TaskPage:
        """A page of the owner's tasks, or of the tasks of all owners."""
        return await self._connections.run(partial(reads.listing, place=self._place, query=query))

    async def context_owner(self, context_id: str) -> str | None:
        """The owner of a context; None if it has no task."""
        return await self._connections.run(
            partial(reads.context_owner, place=self._place, context_id=context_id)
        )

    async def find_message(self, owner: str, message_id: str) -> StoredMessage | None:
        """The stored message of this owner with this id; None if there is none."""
        return await self._connections.run(
            partial(reads.message, place=self._place, owner=owner, message_id=message_id)
        )

    @property
    def replicas(self) -> PostgresReplicas:
        """The other replicas on this store."""
        return self._replicas

    @property
    def outbox(self) -> PostgresOutbox:
        """The webhooks of the tasks, and the events still to be sent to them."""
        return self._replicas.outbox

    async def unfinished(self) -> AsyncIterator[StoredTask]:
        """Yield nothing: with replicas, each unfinished task either rests or is adopted by a replica."""
        nothing: tuple[StoredTask, ...] = ()
        for task in nothing:
            yield task

    async def waiting(self, states: Collection[str]) -> Mapping[str, int]:
        """The ids of the unfinished tasks in one of these states, each with its `status_ms`."""
        return await self._connections.run(partial(reads.waiting, place=self._place, states=states))

    async def evict(self, ended_before_ms: int, quota: Quota) -> int:
        """Delete ended tasks that are too old or beyond a quota, and return their number. Only the leading replica
        calls this.

        Raises:
            StoreError: the store cannot write. Tasks deleted before the error stay deleted.
        """
        return await evictions.evict(
            self._connections, self._place, self._epochs.number, ended_before_ms, quota
        )

    @property
    def lasts(self) -> bool:
        """True: the store is a database."""
        return True

    @property
    def failure(self) -> str | None:
        """The reason why the store cannot write; None while it can."""
        return self._writer.failure or self._epochs.failure

    async def probe(self) -> bool:
        """Try to write, and return whether it worked. Success clears `failure`."""
        try:
            await self._connections.run(
                lambda connection: connection.execute(
                    self._place.sql("SELECT FROM {ns}.epochs WHERE epoch = %s FOR SHARE"),
                    (self._epochs.number,),
                )
            )
        except StoreError:
            return False
        self._writer.failure = None
        return self.failure is None

    async def check(self) -> None:
        """Do nothing: the heartbeats of this replica check the database."""
