"""What a history of tasks has to be: every acknowledged event present, once, in order, and the first end last. Pure.

A task's events are texts. A store's word about a task is the list of all its events; a writer's word is an event with
its number that the store acknowledged; a watcher's word is what it was told, in the order in which it was told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

END = "end"
"""The first word of an event that ends its task."""

Stored: TypeAlias = Mapping[str, Sequence[str]]
"""The events of each task, as the store has them at last."""


class Told(NamedTuple):
    """One event that somebody was told: a writer that it is stored, or a watcher that it happened."""

    task_id: str
    seq: int
    event: str


def faults_of(stored: Stored, acknowledged: Iterable[Told], watched: Iterable[Told]) -> list[str]:
    """What is wrong with a history; nothing if it holds."""
    return [*_of_store(stored), *_of_writers(stored, acknowledged), *_of_watchers(stored, watched)]


def _of_store(stored: Stored) -> Iterable[str]:
    for task_id, events in stored.items():
        ends = [seq for seq, event in enumerate(events, 1) if event.startswith(END)]
        if len(ends) > 1:
            yield f"{task_id} ends {len(ends)} times, at {ends}"
        elif ends and ends[0] != len(events):
            yield f"{task_id} goes on after its end at {ends[0]}"
        if len(set(events)) < len(events):
            yield f"{task_id} has an event twice: {events}"


def _of_writers(stored: Stored, acknowledged: Iterable[Told]) -> Iterable[str]:
    for told in acknowledged:
        events = stored.get(told.task_id, ())
        if told.seq > len(events):
            yield f"{told} was acknowledged and is lost: the store has {len(events)} events"
        elif events[told.seq - 1] != told.event:
            yield f"{told} was acknowledged and is another event in the store: {events[told.seq - 1]}"


def _of_watchers(stored: Stored, watched: Iterable[Told]) -> Iterable[str]:
    last: defaultdict[str, int] = defaultdict(int)
    for told in watched:
        if told.seq != last[told.task_id] + 1:
            yield f"{told} was told after {last[told.task_id]}"
        last[told.task_id] = told.seq
        events = stored.get(told.task_id, ())
        if told.seq > len(events) or events[told.seq - 1] != told.event:
            yield f"{told} was told to a watcher and is not in the store"
    for task_id, seq in last.items():
        if seq < len(stored.get(task_id, ())):
            yield f"a watcher of {task_id} was told {seq} of {len(stored[task_id])} events"
