"""Events that other replicas stored, as steps of a task's life. Pure.

A task that this replica does not work on follows the feed of its store. An event in the feed is a row with the JSON of
a StreamResponse, as `LiveTask` stores it. A snapshot is a row with the JSON of a task. It replaces all events before
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pydantic_core import from_json

from bridge.a2a.model.life import IllegalTransitionError, apply_event
from bridge.a2a.model.objects import StreamResponse, Task
from bridge.a2a.tasks.moments import NO_LINES, MomentLines
from bridge.a2a.tasks.rows import moments_of, text_of
from bridge.errors import StoreError
from bridge.store.records import StoredTask
from bridge.store.replicas import ForeignEvent


class UnreadableEventError(StoreError):
    """An event of another replica cannot follow the known state, so the task can no longer be followed."""


@dataclass(frozen=True, slots=True)
class ForeignStep:
    """A task after one event or snapshot of another replica."""

    seq: int
    task: Task
    event: StreamResponse | None = None
    """None for a snapshot."""
    text: bytes = b""
    """The event as JSON."""
    moments: MomentLines = NO_LINES
    """The moments that came with the event; for a snapshot, all moments so far."""


def steps_after(task: Task, seq: int, events: Iterable[ForeignEvent]) -> Iterator[ForeignStep]:
    """The steps after event `seq` of a task. Events up to it are left out.

    Raises:
        UnreadableEventError: an event is missing, or does not follow.
    """
    for event in events:
        if event.seq <= seq:
            continue
        try:
            step = _step(task, seq, event)
        except (ValueError, IllegalTransitionError) as exc:
            raise UnreadableEventError(f"event {event.seq} of task {task.id} cannot be read") from exc
        yield step
        task, seq = step.task, step.seq


def _step(task: Task, seq: int, row: ForeignEvent) -> ForeignStep:
    if row.snapshot is not None:
        whole = Task.model_validate(from_json(text_of(row.snapshot)))
        return ForeignStep(row.seq, whole, moments=moments_of(row.snapshot))
    if row.event is None or row.seq != seq + 1:
        raise ValueError(f"event {seq + 1} is missing")
    text = text_of(row.event)
    event = StreamResponse.model_validate(from_json(text))
    return ForeignStep(row.seq, apply_event(task, event), event, text, moments_of(row.event))


def events_of(stored: StoredTask) -> tuple[ForeignEvent, ...]:
    """A stored task as the events of its feed, from the start."""
    first = stored.seq - len(stored.events)
    events = (ForeignEvent(first + number, event) for number, event in enumerate(stored.events, 1))
    return ForeignEvent(first, snapshot=stored.snapshot), *events
