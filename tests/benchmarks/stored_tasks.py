"""Part i: how long a store with very many tasks takes to list, to read one, and to open. At the contract of stores.

What is measured is the store alone, one request at a time. A bound that a figure breaks is named in its row.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import anyio
import psycopg

from bridge.store.postgres.store import PostgresStore
from bridge.store.records import Change, Cursor, Query, TaskHead, TaskOrigin
from bridge.store.sqlite import SQLiteStore
from tests.benchmarks.figures import Report, Table, median, number, percentile
from tests.benchmarks.scale import Scale
from tests.benchmarks.workplace import BenchmarkError, Workplace
from tests.support.postgres import BOUNDS, database, new_agent

if TYPE_CHECKING:
    from bridge.store.contract import Store

Kept = Literal["sqlite", "postgres"]

LIST_MS: Final = 10.0
"""What 99 of 100 listings are to be read in."""
GET_MS: Final = 3.0
"""What 99 of 100 tasks are to be read in."""

_PAGE: Final = 50
_SNAPSHOT: Final = b"x" * 1200
"""As large as a task with a few messages."""
_TASKS_OF_A_CONTEXT: Final = 10
_UNDER_WAY: Final = 4096
"""Changes that are submitted and not yet stored."""
_STATES: Final = ("completed",) * 16 + ("failed",) * 3 + ("canceled",)
_OPEN_EACH: Final = 1000
"""Of so many tasks one is unfinished."""
_SEED: Final = 16


@dataclass(frozen=True)
class _Stock:
    """The tasks of a store: half are of one owner, a 25th of another, and the others of many with 1,000 at the most."""

    tasks: int

    def owner(self, at: int) -> str:
        """Whose this task is."""
        place = at // _TASKS_OF_A_CONTEXT % 100
        return "half" if place < 50 else "some" if place < 54 else f"one of many {at // 1000 % 460}"

    def change(self, at: int) -> Change:
        """The change that makes this task."""
        is_open = at % _OPEN_EACH == 0
        state = "working" if is_open else _STATES[at * 7 % len(_STATES)]
        return Change(
            self.task_id(at),
            1,
            b"made",
            head=TaskHead(state, ended=not is_open, status_ms=self.status_ms(at)),
            snapshot=_SNAPSHOT,
            origin=TaskOrigin(self.context(at), self.owner(at), self.status_ms(at)),
        )

    @staticmethod
    def task_id(at: int) -> str:
        """The id. As those that the bridge makes, it ascends with time."""
        return f"{at:08}-{at * 2654435761 % 2**32:08x}"

    @staticmethod
    def context(at: int) -> str:
        """The context, of ten tasks."""
        return f"context-{at // _TASKS_OF_A_CONTEXT}"

    @staticmethod
    def status_ms(at: int) -> int:
        """The time of the status. Five tasks have the same."""
        return 1_700_000_000_000 + at // 5


@dataclass(frozen=True)
class Run:
    """What one kind of request took."""

    store: Kept
    kind: str
    seconds: Sequence[float]
    bound_ms: float | None = None


def measure(place: Workplace, scale: Scale) -> Report:
    """Fill both stores, and ask each."""
    runs: list[Run] = []
    with database() as server:
        stores: dict[Kept, Callable[[], Store]] = {
            "sqlite": partial(SQLiteStore, place.new_file(".db")),
            "postgres": partial(PostgresStore, server.url, new_agent(), BOUNDS),
        }
        for kept, opened in stores.items():
            stock = _Stock(scale.stored)
            anyio.run(_filled, kept, opened, stock, runs)
            if kept == "postgres":
                _clean(server.url)
            anyio.run(_asked, kept, opened, stock, scale.reads, runs)
    notes = [
        f"{scale.stored:,} tasks of 1.2 KB: half of one owner, 4 % of another, the others of 460; pages of {_PAGE}.",
        f"Each kind is asked {scale.reads:,} times, one after another, with other random places each time.",
        "`filling` is the time of one task while 4,096 changes are under way; `opening` is until the store is open and",
        "its unfinished tasks are read (SQLite) or counted (PostgreSQL, where they rest or are adopted).",
        "PostgreSQL is vacuumed before it is asked, which it does by itself otherwise.",
    ]
    columns = ["store", "kind", "p50 ms", "p99 ms", "bound ms"]
    table = Table("Stored tasks", columns, [_row(run) for run in runs], notes)
    return Report([table], [{"part": "stored tasks", **vars(run)} for run in runs])


def _row(run: Run) -> list[str]:
    high = 1000 * percentile(run.seconds, 99)
    bound = "" if run.bound_ms is None else f"{run.bound_ms:g}{', broken' if high > run.bound_ms else ''}"
    return [run.store, run.kind, number(1000 * median(run.seconds)), number(high), bound]


async def _filled(kept: Kept, opened: Callable[[], Store], stock: _Stock, runs: list[Run]) -> None:
    async with opened() as store:
        since = time.perf_counter()
        await _fill(store, stock)
        runs.append(Run(kept, "filling, a task", [(time.perf_counter() - since) / stock.tasks]))


def _clean(url: str) -> None:
    """Do what PostgreSQL does by itself some minutes after so many rows came."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


async def _asked(kept: Kept, opened: Callable[[], Store], stock: _Stock, reads: int, runs: list[Run]) -> None:
    since = time.perf_counter()
    async with _open(opened()) as store:
        runs.append(Run(kept, "opening", [time.perf_counter() - since]))
        for kind, (ask, bound) in _requests(store, stock, random.Random(_SEED)).items():
            seconds = []
            for _ in range(reads):
                since = time.perf_counter()
                await ask()
                seconds.append(time.perf_counter() - since)
            runs.append(Run(kept, kind, seconds, bound))


async def _fill(store: Store, stock: _Stock) -> None:
    slots = anyio.Semaphore(_UNDER_WAY)
    refused: list[Exception] = []

    def done(error: Exception | None) -> None:
        slots.release()
        if error is not None:
            refused.append(error)

    for at in range(stock.tasks):
        await slots.acquire()
        store.submit(stock.change(at), done)
    for _ in range(_UNDER_WAY):
        await slots.acquire()
    if refused:
        raise BenchmarkError(f"{len(refused)} changes were refused; the first: {refused[0]}")


@asynccontextmanager
async def _open(store: Store) -> AsyncIterator[Store]:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(store)
        if store.replicas is None:
            async for _ in store.unfinished():
                pass
        else:
            await store.waiting(["working"])
        yield store


def _requests(
    store: Store, stock: _Stock, chance: random.Random
) -> dict[str, tuple[Callable[[], Awaitable[object]], float]]:
    """What is asked, each with its bound in ms."""

    def any_task() -> int:
        return chance.randrange(stock.tasks)

    def of_half() -> Cursor:
        while stock.owner(at := any_task()) != "half":
            pass
        return Cursor(stock.status_ms(at), stock.task_id(at))

    def listing(made: Callable[[], Query]) -> tuple[Callable[[], Awaitable[object]], float]:
        return (lambda: store.list(made())), LIST_MS

    def context() -> Query:
        at = any_task()
        return Query(stock.owner(at), _PAGE, context_id=stock.context(at))

    newest = stock.status_ms(stock.tasks)
    return {
        "list half of all, first page": listing(lambda: Query("half", _PAGE)),
        "list half of all, any page": listing(lambda: Query("half", _PAGE, after=of_half())),
        "list 4 % of all": listing(lambda: Query("some", _PAGE)),
        "list a context": listing(context),
        "list a state": listing(lambda: Query("half", _PAGE, state="failed")),
        "list a state that nobody has": listing(lambda: Query("half", _PAGE, state="rejected")),
        "list what is new": listing(
            lambda: Query("half", _PAGE, status_from_ms=newest - chance.randrange(2000))
        ),
        "get a task": ((lambda: store.load(stock.task_id(any_task()))), GET_MS),
    }
