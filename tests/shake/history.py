"""What a history of tasks has to be, by what the store has at last and by what clients were told meanwhile. Pure.

The guarantees that are checked, of every task:

- *Nothing acknowledged is lost*: each event on a stream and each view in an answer is one of the store's history.
- *Once and in order*: a stream tells each event after its first view, none twice, none in another order.
- *The first end wins*: one event ends a task, and it is the last.
- *Reads never go back*: a request that begins after somebody was told of an event shows that event, or a later one.
  That holds for whichever replica is asked, and for lists: a list holds each task that belongs on its page.
- *A message is one task*, however often it is sent, and a tool that must not be run twice is run once for it.

An answer that never came proves nothing: its work may have been done or not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple, TypeAlias


class View(NamedTuple):
    """A task as an answer shows it."""

    status: str
    """The mark of the last event that set its status."""
    parts: int | None = None
    """How many parts its artifacts have; None where they are not shown."""

    def may_be(self, other: View) -> bool:
        """Whether this shows the same as another view, which is whole."""
        return self.status == other.status and self.parts in (None, other.parts)


class StoredEvent(NamedTuple):
    """An event of the store's history."""

    mark: str
    """What it is known by; no other event of its task has the same."""
    view: View
    """The task after it."""
    ends: bool = False
    is_told: bool = True
    """Whether streams tell it."""


class Told(NamedTuple):
    """An event that a stream told, or that an answer acknowledged by name."""

    task_id: str
    mark: str
    at: float
    stream: int | None = None


class Shown(NamedTuple):
    """A task in an answer, or at the beginning of a stream."""

    task_id: str
    view: View
    began: float
    """When its request was made."""
    at: float
    stream: int | None = None


class Listed(NamedTuple):
    """A page of a list, the newest task first."""

    owner: str
    task_ids: tuple[str, ...]
    oldest: str
    """The time of the last task on the page; empty where no more tasks follow."""
    began: float


Seen: TypeAlias = Told | Shown
Stored: TypeAlias = Mapping[str, Sequence[StoredEvent]]
Interval: TypeAlias = tuple[int, int]
"""The first and the last position that something seen may stand for."""


@dataclass
class History:
    """What a store has at last, and what clients were told."""

    stored: Stored
    seen: Sequence[Seen] = ()
    lists: Sequence[Listed] = ()
    owners: Mapping[str, str] = field(default_factory=dict)
    """The owner of each task."""
    began_by: Mapping[str, str] = field(default_factory=dict)
    """The message that each task began with, where that must not be worked on twice."""
    answered: Iterable[tuple[str, str]] = ()
    """Each message with the task that an answer to it named."""
    results: Mapping[str, str] = field(default_factory=dict)
    """What the result of each of these tasks says, which begins with the message that it began with."""
    runs: Iterable[str] = ()
    """Each run of a tool that must not be run twice, by what it was called for."""

    def faults(self) -> list[str]:
        """What is wrong; nothing if the history holds."""
        positions = {one: self._positions(one) for one in set(self.seen)}
        return [
            *_of_store(self.stored),
            *_of_lost(positions),
            *_of_streams(self.stored, self.seen, positions),
            *_of_reads(self.seen, positions),
            *self._of_lists(positions),
            *self._of_repeats(),
        ]

    def _positions(self, one: Seen) -> Interval | None:
        events = self.stored.get(one.task_id, ())
        if isinstance(one, Told):
            found = [seq for seq, event in enumerate(events, 1) if event.mark == one.mark]
        else:
            found = [seq for seq, event in enumerate(events, 1) if one.view.may_be(event.view)]
        return (found[0], found[-1]) if found else None

    def _of_lists(self, positions: Mapping[Seen, Interval | None]) -> Iterator[str]:
        known = _times_told(self.seen, positions, self.stored, self.owners)
        for page in self.lists:
            has, of_owner = set(page.task_ids), known.get(page.owner, [])
            # Only tasks that are newer at last than the last one on the page may have been so at its time.
            for one in of_owner[bisect_right(of_owner, page.oldest, key=_TaskTimes.latest) :]:
                if one.task_id not in has and one.before(page.began) > page.oldest:
                    yield f"{one.task_id} was left out of a list of {page.owner} at {page.began:.3f}"

    def _of_repeats(self) -> Iterator[str]:
        for what, number in Counter(self.began_by.values()).items():
            if number > 1:
                yield f"message {what} became {number} tasks"
        for task_id, said in self.results.items():
            if not said.startswith(self.began_by.get(task_id, said)):
                yield f"{task_id} has the result of another call: {said}"
        tasks: defaultdict[str, set[str]] = defaultdict(set)
        for message, task_id in self.answered:
            tasks[message].add(task_id)
        for message, found in tasks.items():
            if len(found) > 1:
                yield f"message {message} was answered with {len(found)} tasks: {sorted(found)}"
        for what, number in Counter(self.runs).items():
            if number > 1:
                yield f"{what} was run {number} times"


def _of_store(stored: Stored) -> Iterator[str]:
    for task_id, events in stored.items():
        ends = [seq for seq, event in enumerate(events, 1) if event.ends]
        if len(ends) > 1:
            yield f"{task_id} ends {len(ends)} times, at {ends}"
        elif ends and ends[0] != len(events):
            yield f"{task_id} goes on after its end at {ends[0]}"
        for mark, number in Counter(event.mark for event in events).items():
            if number > 1:
                yield f"{task_id} has an event {number} times: {mark}"


def _of_lost(positions: Mapping[Seen, Interval | None]) -> Iterator[str]:
    for one, found in positions.items():
        if found is None:
            yield f"{one} was acknowledged, and is lost or another event in the store"


def _of_streams(
    stored: Stored, seen: Iterable[Seen], positions: Mapping[Seen, Interval | None]
) -> Iterator[str]:
    """Check each stream: after a view comes the event after it, and then the next one."""
    last: dict[int, Interval] = {}
    for one in seen:
        if one.stream is None or (found := positions[one]) is None:
            continue
        if isinstance(one, Told) and (before := last.get(one.stream)) is not None:
            if found[0] <= before[0]:
                yield f"{one} was told after a later event, at {before[0]}"
            elif missing := _told_between(stored[one.task_id], before[1], found[0]):
                yield f"{one} was told without {missing} before it"
        last[one.stream] = found


def _told_between(events: Sequence[StoredEvent], after: int, before: int) -> list[str]:
    return [event.mark for event in events[after : before - 1] if event.is_told]


def _of_reads(seen: Iterable[Seen], positions: Mapping[Seen, Interval | None]) -> Iterator[str]:
    """Check that what is shown is not older than what anybody was told before the request."""
    of_task: defaultdict[str, list[tuple[Seen, Interval]]] = defaultdict(list)
    for one in seen:
        if (found := positions[one]) is not None:
            of_task[one.task_id].append((one, found))
    for all_seen in of_task.values():
        told = sorted(((one.at, low) for one, (low, _) in all_seen), key=itemgetter(0))
        times, latest = [at for at, _ in told], list(accumulate((low for _, low in told), max))
        for one, (_, high) in all_seen:
            before = bisect_left(times, one.began) if isinstance(one, Shown) else 0
            if before and high < latest[before - 1]:
                yield f"{one} is stale: event {latest[before - 1]} had been told, and it shows {high}"


def _times_told(
    seen: Iterable[Seen],
    positions: Mapping[Seen, Interval | None],
    stored: Stored,
    owners: Mapping[str, str],
) -> Mapping[str, list[_TaskTimes]]:
    """The times of the tasks of each owner, the oldest task first."""
    times: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    for one in seen:
        if (found := positions[one]) is not None and one.task_id in owners:
            times[one.task_id].append((one.at, time_of(stored[one.task_id][found[0] - 1].view.status)))
    known: defaultdict[str, list[_TaskTimes]] = defaultdict(list)
    for task_id, its_times in times.items():
        known[owners[task_id]].append(_TaskTimes(task_id, sorted(its_times)))
    return {owner: sorted(of_owner, key=_TaskTimes.latest) for owner, of_owner in known.items()}


@dataclass
class _TaskTimes:
    """When somebody was told of which time of a task's status, in order."""

    task_id: str
    told: list[tuple[float, str]]

    def latest(self) -> str:
        """The newest of these times."""
        return max(time for _, time in self.told)

    def before(self, at: float) -> str:
        """The newest time that somebody had been told; empty where nobody knew the task."""
        return max((time for told_at, time in self.told if told_at < at), default="")


def time_of(status: str) -> str:
    """The time in the mark of a status."""
    return status.split()[1]
