"""One task in memory that other replicas may work on, too: which events are accepted, refused and visible."""

from __future__ import annotations

import pytest

from bridge.a2a.model.life import EventMaker
from bridge.a2a.model.objects import Part, StreamResponse, Task, TaskState, milliseconds
from bridge.a2a.tasks.live import LiveTask, TaskWriting
from bridge.errors import StoreConflictError, StoreError
from bridge.store.contract import OnStored
from bridge.store.records import Change, StoredTask, TaskHead, TaskOrigin
from bridge.store.replicas import ForeignEvent
from tests.support.agents import Clock

W, C, INPUT = TaskState.WORKING, TaskState.COMPLETED, TaskState.INPUT_REQUIRED
EVENTS = EventMaker(Clock().ids, "t", "talk")

pytestmark = pytest.mark.proves("replicas-one-holder")


def status(state: TaskState, words: str = "") -> StreamResponse:
    """An event that sets the state."""
    return EVENTS.status(state, EVENTS.message((Part(text=words),)))


def at(state: TaskState, time: str) -> StreamResponse:
    """An event that sets the state at a time."""
    event = status(state)
    assert event.status_update is not None
    moved = event.status_update.status.changed(timestamp=time)
    return event.changed(status_update=event.status_update.changed(status=moved))


class Lived:
    """A task that waits at event 3, and a store that answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[Change, OnStored]] = []
        made = Task.model_validate(
            {
                "id": "t",
                "contextId": "talk",
                "status": {"state": "TASK_STATE_INPUT_REQUIRED", "timestamp": "2026-01-01T00:00:00Z"},
            }
        )
        self.live = LiveTask(
            "t",
            TaskOrigin("talk", "ann", 1),
            TaskWriting(self.submit, lambda _: None, 100, is_shared=True),
        )
        self.stored = StoredTask(
            "t", self.live.origin, TaskHead("x", False, 1), 3, made.to_json(), (), b"k", "r1"
        )
        self.live.restore(self.stored)

    def submit(self, change: Change, done: OnStored) -> None:
        """Keep the change for the test."""
        self.asked.append((change, done))

    def answer(self, error: Exception | None = None) -> None:
        """Answer the oldest change."""
        self.asked.pop(0)[1](error)

    @property
    def words(self) -> str:
        """What the visible status says."""
        assert self.live.visible is not None
        message = self.live.visible.status.message
        return "" if message is None else message.parts[0].text or ""


def told(seq: int, event: StreamResponse) -> tuple[ForeignEvent, ...]:
    """What a feed tells."""
    return (ForeignEvent(seq, event=event.to_json()),)


def test_an_event_of_another_replica_moves_the_task() -> None:
    lived = Lived()
    lived.live.apply_foreign(told(4, status(W, "theirs")))
    assert (lived.words, lived.live.next_seq, lived.live.is_mine) == ("theirs", 5, False)


def test_events_of_another_replica_wait_until_own_events_are_stored() -> None:
    lived = Lived()
    mine = status(W, "mine")
    lived.live.accept(mine)
    lived.live.apply_foreign((*told(4, mine), *told(5, status(INPUT, "theirs"))))
    assert (lived.words, lived.live.next_seq) == ("", 5)
    lived.answer()
    assert (lived.words, lived.live.next_seq) == ("theirs", 6)


def test_an_overtaken_event_gives_way_to_the_stored_event() -> None:
    lived = Lived()
    commit = lived.live.accept(status(W, "mine"))
    second = lived.live.accept(status(C, "mine, too"))
    lived.live.apply_foreign(told(4, status(W, "theirs")))
    lived.answer(StoreConflictError("forestalled"))
    assert (lived.live.overtaken, lived.live.is_answered) == (True, False)
    late = lived.live.accept(status(C, "late"))
    assert [change.seq for change, _ in lived.asked] == [5]
    lived.answer(StoreConflictError("forestalled"))
    lived.live.fall_back()
    assert (lived.words, lived.live.next_seq, lived.live.is_mine) == ("theirs", 5, False)
    for refused in (commit, second, late):
        with pytest.raises(StoreConflictError):
            refused.__await__().send(None)


async def test_a_waiter_for_an_overtaken_event_gets_an_error() -> None:
    lived = Lived()
    lived.live.accept(status(W, "mine"))
    waiting = lived.live.reached(4, settled=False)
    step = waiting.send(None)
    assert step is not None
    lived.answer(StoreConflictError("forestalled"))
    lived.live.fall_back()
    lived.live.apply_foreign(told(4, status(W, "theirs")))
    with pytest.raises(StoreConflictError):
        waiting.send(None)


@pytest.mark.parametrize(
    "events",
    [
        told(5, status(W)),
        (ForeignEvent(4, event=b"{"),),
        (ForeignEvent(4, event=b'{"later":{}}'),),
        (ForeignEvent(4, snapshot=b"[]"),),
        told(4, EventMaker(Clock().ids, "other", "talk").status(W)),
    ],
    ids=["gap", "no JSON", "unknown", "no task", "another task"],
)
def test_an_event_that_cannot_be_read_ends_the_streams(events: tuple[ForeignEvent, ...]) -> None:
    lived = Lived()
    with lived.live.watch(10) as watcher:
        lived.live.apply_foreign(events)
        assert isinstance(lived.live.failure, StoreError)
        assert not lived.live._watchers
        assert watcher.cut_off is False


def test_a_state_of_the_store_that_is_older_than_the_task_changes_nothing() -> None:
    lived = Lived()
    lived.live.apply_foreign(told(4, status(INPUT, "theirs")))
    lived.live.advance(lived.stored)
    assert (lived.words, lived.live.next_seq) == ("theirs", 5)


@pytest.mark.parametrize(
    ("time", "shown"),
    [
        ("2025-12-31T23:00:00.000Z", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00.001Z", "2026-01-01T00:00:00.001Z"),
    ],
    ids=["set back", "in order"],
)
def test_a_status_is_never_older_than_the_one_before_it(time: str, shown: str) -> None:
    lived = Lived()
    lived.live.accept(at(W, time))
    change, _ = lived.asked[0]
    assert change.head == TaskHead("TASK_STATE_WORKING", False, milliseconds(shown))
    update = StreamResponse.model_validate_json(change.event).status_update
    assert update is not None
    assert (update.status, update.status.timestamp) == (lived.live.task.status, shown)
