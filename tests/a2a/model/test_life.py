"""The life of a task: the table of its states, and how its events are folded."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from bridge.a2a.model.life import (
    CLOSES_STREAM,
    ENDED,
    INTERRUPTED,
    NEXT,
    SETTLED,
    IllegalTransitionError,
    apply_event,
    with_history,
    without_artifacts,
)
from bridge.a2a.model.objects import Message, StreamResponse, Task, TaskState

S = TaskState


def message(message_id: str, role: str = "ROLE_AGENT", **fields: Any) -> dict[str, Any]:
    return {"messageId": message_id, "role": role, "parts": [{"text": message_id}], **fields}


def task(state: TaskState = S.WORKING, said: Any = None, **fields: Any) -> Task:
    status = {"state": state} | ({"message": said} if said else {})
    return Task.model_validate({"id": "t", "contextId": "c", "status": status, **fields})


def event(**payload: Any) -> StreamResponse:
    return StreamResponse.model_validate(payload)


def status(state: TaskState, said: Any = None, task_id: str = "t") -> StreamResponse:
    inner = {"state": state} | ({"message": said} if said else {})
    return event(statusUpdate={"taskId": task_id, "contextId": "c", "status": inner})


def artifact(artifact_id: str, *texts: str, task_id: str = "t", **fields: Any) -> StreamResponse:
    made = {"artifactId": artifact_id, "parts": [{"text": text} for text in texts]}
    return event(artifactUpdate={"taskId": task_id, "contextId": "c", "artifact": made, **fields})


@pytest.mark.proves("a2a-5.5-names")
def test_the_sets_of_states_are_the_specifications() -> None:
    assert {S.COMPLETED, S.FAILED, S.CANCELED, S.REJECTED} == ENDED
    assert {S.INPUT_REQUIRED, S.AUTH_REQUIRED} == INTERRUPTED
    assert SETTLED == ENDED | INTERRUPTED
    assert set(NEXT) == set(S)


@pytest.mark.proves("a2a-11.7-input-closes", "a2a-7.6.1-auth-open")
def test_a_stream_closes_at_an_end_and_at_input_required_but_not_at_auth_required() -> None:
    assert ENDED | {S.INPUT_REQUIRED} == CLOSES_STREAM


@pytest.mark.proves("map-task-life")
@pytest.mark.parametrize(("before", "then"), list(product(S, S)))
def test_a_state_follows_another_as_the_table_says(before: TaskState, then: TaskState) -> None:
    if before not in ENDED and (then is not S.SUBMITTED or before is S.SUBMITTED):
        assert apply_event(task(before), status(then)).status.state is then
    else:
        with pytest.raises(IllegalTransitionError):
            apply_event(task(before), status(then))


@pytest.mark.proves("a2a-3.1.5-cancel")
@pytest.mark.parametrize("ended", sorted(ENDED))
@pytest.mark.parametrize(
    "late", [artifact("a", "x"), event(message=message("m")), event(task=task().to_object())]
)
def test_no_event_follows_an_end(ended: TaskState, late: StreamResponse) -> None:
    with pytest.raises(IllegalTransitionError, match="takes no more events"):
        apply_event(task(ended), late)


@pytest.mark.proves("map-task-life")
@pytest.mark.parametrize(
    "foreign",
    [
        status(S.WORKING, task_id="other"),
        artifact("a", "x", task_id="other"),
        event(message=message("m", taskId="other")),
        event(task={"id": "other", "status": {"state": S.WORKING}}),
    ],
)
def test_an_event_of_another_task_is_refused(foreign: StreamResponse) -> None:
    with pytest.raises(IllegalTransitionError, match="an event of task other"):
        apply_event(task(), foreign)


@pytest.mark.proves("a2a-3.2.4-history")
def test_a_question_is_history_before_its_answer_once() -> None:
    asked = task(S.INPUT_REQUIRED, message("q"), history=[message("first", "ROLE_USER")])
    answered = apply_event(asked, event(message=message("a", "ROLE_USER")))
    going_on = apply_event(answered, status(S.WORKING))
    assert [said.message_id for said in going_on.history or ()] == ["first", "q", "a"]


@pytest.mark.proves("a2a-3.7-final")
def test_status_messages_of_a_working_task_are_not_kept() -> None:
    working = apply_event(task(S.WORKING, message("step 1")), status(S.WORKING, message("step 2")))
    assert apply_event(working, status(S.COMPLETED)) == task(S.COMPLETED, history=None)


@pytest.mark.proves("map-task-life")
def test_an_answer_leaves_the_state_until_the_worker_goes_on() -> None:
    answered = apply_event(task(S.AUTH_REQUIRED, message("q")), event(message=message("a", "ROLE_USER")))
    assert answered.status.state is S.AUTH_REQUIRED


ARTIFACTS: list[tuple[list[StreamResponse], list[list[str]]]] = [
    ([artifact("a", "1"), artifact("b", "2")], [["1"], ["2"]]),
    ([artifact("a", "1"), artifact("a", "2")], [["2"]]),
    ([artifact("a", "1"), artifact("b", "x"), artifact("a", "2", append=True)], [["1", "2"], ["x"]]),
    ([artifact("a", "1", append=True)], [["1"]]),
]


@pytest.mark.proves("map-task-life")
@pytest.mark.parametrize(("events", "texts"), ARTIFACTS)
def test_artifacts_are_added_replaced_or_appended_to(events: list[StreamResponse], texts: Any) -> None:
    held = task()
    for one in events:
        held = apply_event(held, one)
    assert [[part.text for part in found.parts] for found in held.artifacts or ()] == texts


@pytest.mark.proves("map-task-life")
def test_a_whole_task_replaces_the_known_task() -> None:
    newer = task(S.INPUT_REQUIRED, message("q"))
    assert apply_event(task(), event(task=newer.to_object())) == newer


@pytest.mark.proves("a2a-3.2.4-history")
@pytest.mark.parametrize(
    ("length", "ids"), [(None, ["1", "2", "3"]), (0, None), (1, ["3"]), (2, ["2", "3"]), (9, ["1", "2", "3"])]
)
def test_history_is_cut_to_its_newest_messages(length: int | None, ids: list[str] | None) -> None:
    held = task(history=[message(number) for number in "123"])
    cut = with_history(held, length)
    assert (None if cut.history is None else [one.message_id for one in cut.history]) == ids
    assert with_history(task(), length) == task()


FIRST, LAST = message("first", "ROLE_USER"), message("last")
SHOWN: list[tuple[TaskState, list[Any] | None, int | None, list[Any] | None]] = [
    *((state, [FIRST], None, [FIRST, LAST]) for state in sorted(ENDED)),
    *((state, [FIRST], None, [FIRST]) for state in sorted(set(S) - ENDED)),
    (S.FAILED, None, None, [LAST]),
    (S.FAILED, [FIRST, LAST], None, [FIRST, LAST]),
    (S.FAILED, [LAST, FIRST], None, [LAST, FIRST]),
    (S.FAILED, [FIRST], 2, [FIRST, LAST]),
    (S.FAILED, [FIRST], 1, [LAST]),
    (S.FAILED, None, 1, [LAST]),
    (S.FAILED, [FIRST], 0, None),
    (S.FAILED, None, 0, None),
]


@pytest.mark.proves("a2a-3.7-final", "a2a-3.2.4-history")
@pytest.mark.parametrize(("state", "history", "length", "shown"), SHOWN)
def test_the_last_words_of_a_task_that_has_ended_are_shown_in_its_history_once(
    state: TaskState, history: Any, length: int | None, shown: Any
) -> None:
    held = task(state, LAST, history=history)
    assert with_history(held, length) == task(state, LAST, history=shown)


@pytest.mark.proves("a2a-3.7-final")
def test_a_task_that_ended_without_words_is_shown_as_it_is() -> None:
    held = task(S.COMPLETED, history=[FIRST])
    assert with_history(held, None) is held


@pytest.mark.proves("a2a-3.1.4-artifacts")
def test_a_task_without_its_artifacts_is_otherwise_the_same() -> None:
    held = apply_event(task(history=[message("m")]), artifact("a", "x"))
    assert without_artifacts(held) == task(history=[message("m")])


@pytest.mark.proves("map-task-life")
def test_an_event_leaves_the_task_before_it_as_it_was() -> None:
    before = task(S.INPUT_REQUIRED, message("q"))
    copy = Task.model_validate(before.to_object())
    apply_event(before, event(message=Message.model_validate(message("a", "ROLE_USER")).to_object()))
    assert before == copy
