"""How events are folded into a task, also events that the specification does not foresee."""

from __future__ import annotations

from typing import Any, Final

import pytest

from bridge.a2a.client.fold import FoldedMessage, FoldedTask, TaskTooLargeError, begun_by, folded
from bridge.a2a.model.objects import Message, StreamResponse, Task, TaskState, text_of_parts
from bridge.translate.blocks import joined, pieces_in

pytestmark = pytest.mark.proves("map-heard")

WORKING = {"state": "TASK_STATE_WORKING"}


def task(state: str = "WORKING", **more: Any) -> Task:
    return Task.model_validate(
        {"id": "t", "contextId": "c", "status": {"state": f"TASK_STATE_{state}"}, **more}
    )


def status(state: str, task_id: str = "t", **more: Any) -> StreamResponse:
    update = {"taskId": task_id, "contextId": "c", "status": {"state": f"TASK_STATE_{state}", **more}}
    return StreamResponse.model_validate({"statusUpdate": update})


def chunk(text: str, *, append: bool = True, **more: Any) -> StreamResponse:
    artifact = {"artifactId": "a", "parts": [{"text": text, **more}]}
    update = {"taskId": "t", "contextId": "c", "artifact": artifact, "append": append}
    return StreamResponse.model_validate({"artifactUpdate": update})


def texts(found: Task) -> list[str | None]:
    return [part.text for artifact in found.artifacts or () for part in artifact.parts]


def test_a_task_may_begin_with_any_event_but_a_message() -> None:
    assert begun_by(task().model_copy()) == task()
    assert begun_by(status("SUBMITTED").payload) == task("SUBMITTED")
    assert texts(begun_by(chunk("one").payload)) == ["one"]


@pytest.mark.parametrize("before", ["SUBMITTED", "WORKING", "INPUT_REQUIRED", "COMPLETED"])
@pytest.mark.parametrize("then", ["SUBMITTED", "WORKING", "COMPLETED"])
def test_the_last_reported_state_counts(before: str, then: str) -> None:
    assert folded(task(before), status(then)).status.state is TaskState[then]


def test_events_of_another_task_change_nothing() -> None:
    assert folded(task(), status("COMPLETED", "other")) == task()
    assert folded(task(), StreamResponse(task=task().model_copy(update={"id": "other"}))) == task()


def saying(words: str) -> StreamResponse:
    message = {"messageId": words[:9], "role": "ROLE_AGENT", "parts": [{"text": words}]}
    return status("WORKING", message=message)


def said_in(found: Task) -> list[str]:
    return [text_of_parts(message.parts) for message in found.history or ()]


def test_status_messages_of_a_working_task_are_in_the_history() -> None:
    known = task("SUBMITTED")
    for event in (saying("one"), saying("two"), saying("two"), status("COMPLETED")):
        known = folded(known, event)
    assert (known.status.message, said_in(known)) == (None, ["one", "two"])


def test_the_newest_status_messages_are_kept() -> None:
    known = FoldedTask(16 * 1_000_000)
    for number in range(1000):
        known.take(saying(str(number)))
    assert said_in(known.take(status("WORKING"))) == [str(number) for number in range(900, 1000)]
    for words in ("a" * 600_000, "b" * 600_000, "c" * 6_000_000):
        known.take(saying(words))
    assert said_in(known.take(status("WORKING"))) == ["c" * 6_000_000]


def whole(**more: Any) -> StreamResponse:
    return StreamResponse(task=task(**more))


def spoken(words: str) -> StreamResponse:
    said = {"messageId": words, "role": "ROLE_AGENT", "taskId": "t", "parts": [{"text": words * 1000}]}
    return StreamResponse.model_validate({"message": said})


def test_the_newest_messages_of_a_working_task_are_kept() -> None:
    known = FoldedTask(16 * 100_000)
    for number in range(1000, 2000):
        known.take(whole() if number == 1000 else spoken(str(number)))
    assert known.task is not None
    assert [one.message_id for one in known.task.history or ()] == [str(n) for n in range(1982, 2000)]


def take_often(known: FoldedTask, event: StreamResponse) -> None:
    for _ in range(1000):
        known.take(event)


A: Final = {"artifactId": "a"}
WORDS: Final = {"text": "x" * 1000}
SAID: Final = {"messageId": "m", "role": "ROLE_AGENT"}


@pytest.mark.parametrize(
    "event",
    [
        chunk("x" * 1000),
        chunk("", metadata={"x": "x" * 1000}),
        chunk("", metadata={"x": [{}] * 10}),
        whole(artifacts=[{**A, "parts": [WORDS] * 100}]),
        whole(artifacts=[{**A, "parts": [{"text": ""}] * 150}]),
        whole(artifacts=[{**A, "parts": [{"data": {"n": [0] * 1000}}]}]),
        whole(metadata={"x": "x" * 100_000}),
        whole(history=[{**SAID, "parts": [WORDS] * 100}]),
        status("WORKING", message={**SAID, "parts": [WORDS] * 100}),
    ],
)
def test_the_size_of_a_task_is_limited_as_a_whole(event: StreamResponse) -> None:
    known = FoldedTask(100_000)
    known.take(whole())
    with pytest.raises(TaskTooLargeError):
        take_often(known, event)


def test_a_replaced_artifact_counts_once_towards_the_limit() -> None:
    known = FoldedTask(100_000)
    known.take(whole())
    for _ in range(1000):
        known.take(chunk("x" * 50_000, append=False))
        known.take(chunk("more"))
    known.take(whole(artifacts=[{**A, "parts": [{"text": "all"}]}]))
    assert texts(known.take(chunk("x" * 50_000))) == ["all", "x" * 50_000]


def test_chunks_are_joined_and_a_whole_task_replaces_the_known_task() -> None:
    known = folded(folded(task(), chunk("one")), chunk("two"))
    assert texts(known) == ["one", "two"]
    assert texts(folded(known, chunk("anew", append=False))) == ["anew"]
    snapshot = task(artifacts=[{"artifactId": "a", "parts": [{"text": "all"}]}])
    assert folded(known, StreamResponse(task=snapshot)) == snapshot
    assert folded(task("COMPLETED"), StreamResponse(task=snapshot)) == snapshot


def pieces(found: Task) -> list[str]:
    """The texts of the artifact, as far as they came in pieces."""
    (artifact,) = found.artifacts or ()
    return [joined(artifact.parts[first:end]).text or "" for first, end in pieces_in(artifact.parts)]


def test_an_appended_text_is_joined_to_the_text_before_it() -> None:
    known = task()
    for event in (
        chunk("one "),
        chunk("two "),
        chunk("three"),
        chunk("a table", mediaType="text/csv"),
        chunk("more", mediaType="text/csv"),
        chunk("a name", filename="x"),
        chunk("metadata", metadata={"x": 1}),
    ):
        known = folded(known, event)
    assert pieces(known) == ["one two three", "a tablemore", "a name", "metadata"]
    assert pieces(folded(known, chunk("other", append=False))) == ["other"]


def test_pieces_of_a_text_are_still_marked_after_a_whole_task() -> None:
    known = folded(folded(task(), chunk("one ")), chunk("two"))
    told = {"artifactId": "a", "parts": [{"text": "one "}, {"text": "two"}, {"text": "three"}]}
    again = folded(known, StreamResponse(task=task(artifacts=[told])))
    assert pieces(again) == ["one two", "three"]
    assert again == task(artifacts=[told])
    changed = {"artifactId": "a", "parts": [{"text": "one "}, {"text": "two?"}]}
    assert pieces(folded(known, StreamResponse(task=task(artifacts=[changed])))) == ["one ", "two?"]


def test_several_parts_of_one_update_stay_several() -> None:
    update = {"artifactId": "a", "parts": [{"text": "and"}, {"text": "more"}]}
    appended = {"taskId": "t", "contextId": "c", "artifact": update, "append": True}
    event = StreamResponse.model_validate({"artifactUpdate": appended})
    assert pieces(folded(folded(task(), chunk("one ")), event)) == ["one and", "more"]


def test_pieces_of_a_message_are_one_text_and_bounded() -> None:
    def piece(*parts: dict[str, str], message_id: str = "m") -> Message:
        said = {"messageId": message_id, "role": "ROLE_AGENT", "parts": [*parts]}
        return Message.model_validate(said)

    whole = FoldedMessage(100_000)
    assert not whole.is_in_pieces
    whole.take(piece({"text": ""}))
    assert whole.is_in_pieces
    for text in ("ha", "ha", "", " and so on for long"):
        whole.take(piece({"text": text}))
    assert [part.text for part in whole.take(piece({"text": ""})).parts] == ["haha and so on for long"]
    # From some length on, what begins with all of it is the message anew.
    anew = whole.take(piece({"text": "haha and so on for long, to the end"}))
    assert [part.text for part in anew.parts] == ["haha and so on for long, to the end"]
    file = {"url": "https://a.example/x"}
    assert [part.kind for part in whole.take(piece(file, {"text": "more"})).parts] == ["text", "url", "text"]
    assert len(whole.take(piece({"text": "another"}, message_id="n")).parts) == 4
    single = FoldedMessage(100_000)
    single.take(piece(file))
    assert not single.is_in_pieces
    with pytest.raises(TaskTooLargeError):
        whole.take(piece({"text": "x" * 100_000}))
