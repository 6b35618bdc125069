"""What clients saw of tasks, and whether one agent can have shown it.

A task is two lists that only grow, what was said and what was given, and at most one end. Every client's view of it is
a *read*. `faults_of` compares all reads with the task as it is in the end. A request that was not answered is in doubt:
it may have done something or not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from pydantic_core import from_json

from bridge.a2a.model.life import ENDED, apply_event
from bridge.a2a.model.objects import StreamResponse, Task
from bridge.a2a.tasks.watcher import WatchedEvent


@dataclass(frozen=True)
class View:
    """A task as one client saw it."""

    said: tuple[str, ...] | None = ()
    """The ids of its messages; None on a stream, of which the messages of users are no events."""
    given: tuple[str, ...] = ()
    """The ids of its artifacts."""
    end: str | None = None


@dataclass(frozen=True)
class Read:
    """A view that a client was given between two moments."""

    began: int
    ended: int
    view: View


def view_of(task: Task) -> View:
    """A task as a view."""
    state = task.status.state
    return View(
        tuple(message.message_id for message in task.history or ()),
        tuple(artifact.artifact_id for artifact in task.artifacts or ()),
        state.value if state in ENDED else None,
    )


@dataclass
class History:
    """Everything that clients were told, in the order of one clock."""

    reads: defaultdict[str, list[Read]] = field(default_factory=lambda: defaultdict(list))
    acked: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By task: the messages that were answered."""
    _clock: count[int] = field(default_factory=count)

    def now(self) -> int:
        """The next moment."""
        return next(self._clock)

    def answered(self, began: int, task: Task, message_id: str | None = None) -> None:
        """Note an answer; `message_id` is the message that it answers."""
        self.reads[task.id].append(Read(began, self.now(), view_of(task)))
        if message_id is not None:
            self.acked[task.id].add(message_id)

    def streamed(self, began: int, task: Task) -> None:
        """Note what a stream has shown."""
        self.reads[task.id].append(Read(began, self.now(), replace(view_of(task), said=None)))


class StreamView:
    """What one stream has shown, as its client folds it."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._began = history.now()
        self.task: Task | None = None

    def see(self, seen: WatchedEvent) -> None:
        """Fold one event."""
        event = StreamResponse.model_validate(from_json(seen.text))
        self.task = event.task or (None if self.task is None else apply_event(self.task, event))
        if self.task is None:
            raise AssertionError("a stream begins with a task")
        # A stream may lag behind, so that its events count as of its begin. What it showed is a promise from now on.
        self._history.streamed(self._began, self.task)


def faults_of(history: History, final: Mapping[str, View]) -> list[str]:
    """What no single agent can have shown; empty if all is well."""
    faults = []
    for task_id in sorted({*history.reads, *history.acked}):
        last = final.get(task_id)
        if last is None:
            faults.append(f"{task_id}: lost as a whole")
            continue
        faults += [f"{task_id}: {fault}" for fault in _doubled(last)]
        faults += [f"{task_id}: lost message {one}" for one in history.acked[task_id] - set(last.said or ())]
        faults += [
            f"{task_id}: {fault}" for read in history.reads[task_id] for fault in _differences(read, last)
        ]
        faults += [f"{task_id}: {fault}" for fault in _stale(history.reads[task_id])]
    return faults


def _doubled(view: View) -> list[str]:
    counts = Counter((*(view.said or ()), *view.given))
    return [f"doubled {one}" for one, number in counts.items() if number > 1]


def _differences(read: Read, last: View) -> list[str]:
    """How a read differs from what it must be a beginning of."""
    faults = []
    said, whole_said = _of_both(read.view.said, last.said)
    for seen, whole in ((said, whole_said), (read.view.given, last.given)):
        missing = [one for one in seen if one not in whole]
        if missing:
            faults.append(f"lost {missing}")
        elif seen != whole[: len(seen)]:
            faults.append(f"swapped or doubled: {seen} is no beginning of {whole}")
    if read.view.end not in (None, last.end):
        faults.append(f"second end: {read.view.end}, then {last.end}")
    if read.view.end is not None and (said, read.view.given) != (whole_said, last.given):
        faults.append(f"second end: something followed {read.view.end}")
    return faults


def _of_both(
    one: tuple[str, ...] | None, other: tuple[str, ...] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Two lists; both empty if one is not known."""
    return ((), ()) if one is None or other is None else (one, other)


def _stale(reads: Sequence[Read]) -> list[str]:
    """Reads that began after another one was answered and saw less."""
    faults = []
    most = View()
    answered = sorted(reads, key=lambda read: read.ended)
    index = 0
    for read in sorted(reads, key=lambda read: read.began):
        while index < len(answered) and answered[index].ended < read.began:
            most = _larger(most, answered[index].view)
            index += 1
        seen = read.view
        said, most_said = _of_both(seen.said, most.said)
        if len(said) < len(most_said) or len(seen.given) < len(most.given):
            faults.append(f"stale read: {seen} after {most}")
        elif most.end is not None and seen.end is None:
            faults.append(f"stale read: {most.end} was seen before")
    return faults


def _larger(one: View, other: View) -> View:
    said = max(one.said or (), other.said or (), key=len)
    return View(said, max(one.given, other.given, key=len), one.end or other.end)
