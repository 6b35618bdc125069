"""Delivers the events of other replicas to the followers of a task, and sends and receives hints about new events.

A hint is a NOTIFY after the commit. It says only which task changed; the events are read from the tables. If a hint is
lost, the next poll reads them. A NOTIFY inside the commit would make all commits of a database wait for each other.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import anyio

from bridge.errors import StoreError
from bridge.store.postgres import reads
from bridge.store.replicas import ForeignEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import NoReturn

    from psycopg import AsyncConnection

    from bridge.store.postgres.connections import DatabaseConnections
    from bridge.store.postgres.table_steps import Namespace
    from bridge.store.replicas import OnForeignEvents

logger = logging.getLogger(__name__)

_EVENTS_AT_ONCE: Final = 1_000
_MOST_PAYLOAD: Final = 7_900
"""The most bytes of a NOTIFY. PostgreSQL accepts less than 8,000."""


GONE: Final = "g"
"""The hint that a replica was fenced."""


def hint_of(task_id: str) -> str:
    """The hint that a task changed: a hash, because ids made by clients may contain spaces or be too long."""
    return "t" + blake2b(task_id.encode(errors="surrogatepass"), digest_size=8).hexdigest()


@dataclass(eq=False, slots=True)
class _Follower:
    task_id: str
    seq: int
    """The sequence number of the last delivered event."""
    on_events: OnForeignEvents


class Feed:
    """Follows tasks for this replica's engine. `run` reads all followed tasks with one statement."""

    def __init__(self, connections: DatabaseConnections, place: Namespace, poll_seconds: float) -> None:
        self._connections = connections
        self._place = place
        self._poll_seconds = poll_seconds
        self._followers: defaultdict[str, set[_Follower]] = defaultdict(set)
        self._hints: set[str] = set()
        """The hints for the followed tasks."""
        self._wake = anyio.Event()

    def follow(self, task_id: str, seq: int, on_events: OnForeignEvents) -> Callable[[], None]:
        """See `Replicas.follow`."""
        follower = _Follower(task_id, seq, on_events)
        self._followers[task_id].add(follower)
        self._hints.add(hint_of(task_id))
        self._wake.set()

        def unfollow() -> None:
            followers = self._followers.get(task_id, set())
            followers.discard(follower)
            if not followers:
                self._followers.pop(task_id, None)
                self._hints.discard(hint_of(task_id))

        return unfollow

    def wake_for(self, words: Iterable[str]) -> None:
        """Read at once if one of these words is the hint for a followed task."""
        if not self._hints.isdisjoint(words):
            self._wake.set()

    def catch_up(self) -> None:
        """Read at once: hints may have been lost."""
        self._wake.set()

    async def run(self) -> NoReturn:
        """Read and deliver new events at each hint and at each poll."""
        while True:
            with anyio.move_on_after(self._poll_seconds):
                await self._wake.wait()
            self._wake = anyio.Event()
            try:
                while self._followers and await self._read_and_deliver():
                    pass
            except StoreError as exc:
                logger.debug("events of other replicas cannot be read now: %s", exc)

    async def _read_and_deliver(self) -> bool:
        """Read once and deliver. Returns whether there may be more to read."""
        seen = {task_id: min(f.seq for f in some) for task_id, some in self._followers.items()}
        news, is_whole = await self.news(seen)
        for task_id, events in news.items():
            self._deliver(task_id, events)
        return not is_whole

    async def news(self, seen: Mapping[str, int]) -> tuple[Mapping[str, Sequence[ForeignEvent]], bool]:
        """The stored events of tasks, each after the sequence number in `seen`, and whether these are all.

        Raises:
            StoreError: the database cannot be read.
        """
        rows = await self._connections.run(
            lambda connection: reads.news(connection, self._place, [*seen.items()], _EVENTS_AT_ONCE)
        )
        news: defaultdict[str, list[ForeignEvent]] = defaultdict(list)
        for task_id, seq, event in rows:
            events = news[task_id]
            if seq is not None:
                events.append(ForeignEvent(seq, event))
        torn = [
            task_id for task_id, events in news.items() if not events or events[0].seq != seen[task_id] + 1
        ]
        if torn:
            folded = await self._connections.run(
                lambda connection: reads.snapshots(connection, self._place, torn)
            )
            for task_id in torn:
                upto, snapshot = folded.get(task_id, (0, b""))
                later = [event for event in news[task_id] if event.seq > upto]
                news[task_id] = [ForeignEvent(upto, snapshot=snapshot), *later] if upto else []
        return news, len(rows) < _EVENTS_AT_ONCE

    def _deliver(self, task_id: str, events: Sequence[ForeignEvent]) -> None:
        for follower in tuple(self._followers.get(task_id, ())):
            fresh = tuple(event for event in events if event.seq > follower.seq)
            if not fresh or follower not in self._followers.get(task_id, ()):
                continue
            follower.seq = fresh[-1].seq
            try:
                follower.on_events(fresh)
            except Exception:  # a fault in one task must not end the feed of all others
                logger.exception("events of task %s could not be delivered", task_id)


class Hints:
    """Sends hints to other replicas. Hints are collected while the last ones are being sent."""

    def __init__(self, connections: DatabaseConnections, place: Namespace) -> None:
        self._connections = connections
        self._place = place
        self._words: dict[str, None] = {}
        self._more = anyio.Event()

    def add(self, *words: str) -> None:
        """Send these words soon. Equal words that wait are sent once."""
        self._words.update(dict.fromkeys(words))
        self._more.set()

    async def run(self) -> NoReturn:
        """Send the collected hints."""
        while True:
            await self._more.wait()
            self._more, words, self._words = anyio.Event(), self._words, {}
            try:
                await self._connections.run(
                    partial(_notify, channel=self._place.name, payloads=list(_payloads(words)))
                )
            except StoreError as exc:
                logger.debug("a hint to other replicas is lost: %s", exc)


async def _notify(connection: AsyncConnection, channel: str, payloads: Sequence[str]) -> None:
    await connection.execute("SELECT pg_notify(%s, unnest(%s::text[]))", (channel, list(payloads)))


def _payloads(words: Iterable[str]) -> Iterable[str]:
    line = ""
    for word in words:
        if line and len(line) + 1 + len(word) > _MOST_PAYLOAD:
            yield line
            line = ""
        line = f"{line} {word}" if line else word
    if line:
        yield line
