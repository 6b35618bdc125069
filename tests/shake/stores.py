"""What the database has of the tasks that were shaken: every event, and which replica stored it when."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg

from bridge.a2a.tasks.rows import text_of
from bridge.store.postgres.table_steps import Namespace
from tests.shake.fleet import AGENT
from tests.shake.history import StoredEvent
from tests.shake.marks import history_of

_PLACE: Final = Namespace.of(AGENT)
_EVENTS: Final = """
    SELECT task_id, event, epoch, extract(epoch FROM stored_at)::float8 FROM {ns}.events ORDER BY task_id, seq"""
_HELD: Final = "SELECT count(*) FROM {ns}.tasks WHERE holder IS NOT NULL AND state NOT LIKE '%%INPUT%%'"
_UNSENT: Final = "SELECT count(*) FROM {ns}.outbox"
_EPOCHS: Final = """
    SELECT l.objid::int8 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid::int8 = %s
    AND a.application_name = %s"""


class StoredAt(NamedTuple):
    """Which replica stored an event, and when."""

    epoch: int
    at: float
    """Seconds since the epoch, by the database's clock, which is this machine's."""


@dataclass
class Found:
    """All that a database has."""

    histories: dict[str, list[StoredEvent]] = field(default_factory=dict)
    stored_at: dict[str, list[StoredAt]] = field(default_factory=dict)
    first_messages: dict[str, str] = field(default_factory=dict)
    """The message that each task began with."""
    results: dict[str, str] = field(default_factory=dict)
    """The text of each task's artifact."""

    def add(self, task_id: str, events: Sequence[Any], stored_at: Sequence[StoredAt]) -> None:
        """Add the events of a task."""
        self.histories[task_id] = list(history_of(events))
        self.stored_at[task_id] = list(stored_at)
        history = events[0]["task"].get("history") or [{"messageId": task_id}]
        self.first_messages[task_id] = history[0]["messageId"]
        artifacts = [event["artifactUpdate"]["artifact"] for event in events if "artifactUpdate" in event]
        texts = [part.get("text", "") for artifact in artifacts for part in artifact["parts"]]
        if texts:
            self.results[task_id] = "".join(texts)


def found_in(url: str, log: Path) -> Found:
    """All tasks of a PostgreSQL, whose events are written to a log as well."""
    events: defaultdict[str, list[Any]] = defaultdict(list)
    stored_at: defaultdict[str, list[StoredAt]] = defaultdict(list)
    with psycopg.connect(url) as connection:
        for task_id, event, epoch, at in connection.execute(_PLACE.sql(_EVENTS)):
            events[task_id].append(json.loads(text_of(event)))
            stored_at[task_id].append(StoredAt(epoch, at))
    found = Found()
    log.write_text(json.dumps(events))
    for task_id, its_events in events.items():
        found.add(task_id, its_events, stored_at[task_id])
    return found


def at_work(url: str) -> int:
    """How many tasks are held by a replica that should end or rest by themselves."""
    with psycopg.connect(url, connect_timeout=5) as connection:
        row = connection.execute(_PLACE.sql(_HELD)).fetchone()
    assert row is not None
    return int(row[0])


def unsent(url: str) -> int:
    """How many notifications wait to be sent."""
    with psycopg.connect(url, connect_timeout=5) as connection:
        row = connection.execute(_PLACE.sql(_UNSENT)).fetchone()
    assert row is not None
    return int(row[0])


def epochs_of(url: str, name: str) -> list[int]:
    """The epochs of a replica, by the name of its connections; none while the database is away."""
    try:
        with psycopg.connect(url, connect_timeout=2) as connection:
            return [epoch for (epoch,) in connection.execute(_EPOCHS, (_PLACE.lock % 2**32, name))]
    except psycopg.Error:
        return []


def taken_over(
    stored_at: Mapping[str, Sequence[StoredAt]], lost_at: Mapping[int, float]
) -> Iterator[tuple[int, float]]:
    """How long after an epoch was lost another one ended or went on with each of its tasks, in seconds."""
    for events in stored_at.values():
        for before, after in itertools.pairwise(events):
            lost = lost_at.get(before.epoch)
            if lost is not None and after.epoch != before.epoch and before.at <= lost <= after.at:
                yield before.epoch, after.at - lost
