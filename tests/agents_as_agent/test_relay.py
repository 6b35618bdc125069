"""What is passed on of a remote task, and under which ids."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.a2a.model.life import EventMaker, IdsAndClock
from bridge.a2a.model.objects import Message, SendMessageConfiguration, StreamResponse, Task
from bridge.a2a.tasks.agent import Commit, Job, RunningWork, Turn
from bridge.agents_as_agent.contexts import Contexts, RemoteContext
from bridge.agents_as_agent.ids import HOPS, HOPS_MOST, OwnIds, derived_id, hops_in, message_to_agent
from bridge.agents_as_agent.kept import RemoteTask, kept_bytes, kept_in
from bridge.agents_as_agent.relay import TaskRelay
from bridge.identity.callers.principals import Principal
from bridge.seal import Seal

FAR = "far-task"
WORKING, COMPLETED = "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"


def message(text: str, role: str = "ROLE_AGENT", **fields: Any) -> dict[str, Any]:
    return {"messageId": text, "role": role, "parts": [{"text": text}], **fields}


def artifact(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"artifactId": "result", "parts": list(parts)}


def snapshot(state: str, *artifacts: dict[str, Any], **fields: Any) -> Task:
    task = {"id": FAR, "contextId": "far-context", "status": {"state": state}, **fields}
    return Task.model_validate({**task, **({"artifacts": list(artifacts)} if artifacts else {})})


def piece(*parts: dict[str, Any], append: bool = False) -> StreamResponse:
    update = {"taskId": FAR, "contextId": "far-context", "artifact": artifact(*parts), "append": append}
    return StreamResponse.model_validate({"artifactUpdate": update})


def says(text: str, state: str = WORKING) -> StreamResponse:
    status = {"state": state, "message": message(text)}
    update = {"taskId": FAR, "contextId": "far-context", "status": status}
    return StreamResponse.model_validate({"statusUpdate": update})


class Passed:
    """A relay, and what it has passed on."""

    def __init__(self, known: Task | None = None, *, shows_private: bool = False) -> None:
        self.events: list[dict[str, Any]] = []
        first = Message.model_validate(message("hi", "ROLE_USER"))
        turn = Turn(Principal("ann"), first, SendMessageConfiguration(), {}, frozenset(), known)
        numbers = iter(range(100))
        clock = IdsAndClock(lambda: f"new-{next(numbers)}", lambda: 0, lambda: 0)
        job = Job(
            turn,
            EventMaker(clock, "own-task", "own-context"),
            self._emit,
            Commit(done=True),
            RunningWork(),
            lambda: False,
            lambda _: None,
        )
        ids = OwnIds("far", "own-task", "own-context", shows_private)
        self.relay = TaskRelay(job, ids, RemoteTask("far", FAR, None), lambda _: "own-context")

    def _emit(self, event: StreamResponse, _: bytes | None) -> Commit:
        self.events.append(event.to_object())
        return Commit(done=True)

    def take(self, *events: StreamResponse | Task) -> None:
        for event in events:
            self.relay.take(StreamResponse(task=event) if isinstance(event, Task) else event)

    @property
    def texts(self) -> list[tuple[str, bool]]:
        """The texts of the artifacts that were passed on, and whether each continues the last one."""
        updates = [event["artifactUpdate"] for event in self.events if "artifactUpdate" in event]
        return [
            (
                "".join(part.get("text", "?") for part in update["artifact"]["parts"]),
                update.get("append") is True,
            )
            for update in updates
        ]

    @property
    def words(self) -> list[str]:
        """The texts of the messages that were passed on."""
        statuses = [event["statusUpdate"]["status"] for event in self.events if "statusUpdate" in event]
        return [status["message"]["parts"][0]["text"] for status in statuses if "message" in status]


async def test_a_task_that_is_shown_again_repeats_nothing() -> None:
    passed = Passed()
    passed.take(piece({"text": "one "}), piece({"text": "two"}, append=True))
    passed.take(snapshot(WORKING, artifact({"text": "one "}, {"text": "two"})))
    passed.take(snapshot(WORKING, artifact({"text": "one two"})))
    passed.take(snapshot(WORKING, artifact({"text": "one "}, {"text": "two"}, {"text": " three"})))
    await passed.relay.end(snapshot(COMPLETED, artifact({"text": "one two three"})))
    assert passed.texts == [("one ", False), ("two", True), (" three", True)]
    assert passed.events[-1]["statusUpdate"]["status"]["state"] == COMPLETED


async def test_other_content_replaces_what_was_shown() -> None:
    passed = Passed()
    passed.take(piece({"text": "draft"}), piece({"text": "draft"}))
    await passed.relay.end(snapshot(COMPLETED, artifact({"text": "final"})))
    assert passed.texts == [("draft", False), ("final", False)]


async def test_another_process_knows_what_was_shown() -> None:
    first = Passed()
    first.take(piece({"text": "one "}))
    shown = first.events[-1]["artifactUpdate"]["artifact"]
    known = snapshot(WORKING, shown).changed(id="own-task", context_id="own-context")
    second = Passed(known)
    await second.relay.end(snapshot(COMPLETED, artifact({"text": "one "}, {"text": "two"})))
    assert second.texts == [("two", True)]
    assert second.events[0]["artifactUpdate"]["artifact"]["artifactId"] == shown["artifactId"]


async def test_each_message_of_the_agent_is_passed_on_once() -> None:
    passed = Passed()
    passed.take(says("reading"), says("reading"), says("writing"))
    history = [message("hi", "ROLE_USER"), message("reading"), message("thought of later")]
    await passed.relay.end(snapshot(COMPLETED, history=history))
    assert passed.words == ["reading", "writing", "thought of later"]


async def test_nothing_follows_the_end() -> None:
    passed = Passed()
    await passed.relay.end(snapshot(COMPLETED))
    count = len(passed.events)
    await passed.relay.end(snapshot(COMPLETED, artifact({"text": "late"})))
    assert len(passed.events) == count


@pytest.mark.parametrize(
    ("url", "is_passed"),
    [
        ("https://example.com/report.pdf", True),
        ("http://127.0.0.1:9000/report.pdf", False),
        ("http://[::1]/report.pdf", False),
        ("http://10.1.2.3/report.pdf", False),
        ("http://files.internal/report.pdf", False),
        ("file:///etc/passwd", False),
        ("http://[broken", False),
    ],
)
async def test_a_file_at_a_private_address_is_withheld_and_said(url: str, is_passed: bool) -> None:
    part = {"url": url, "filename": "report.pdf", "mediaType": "application/pdf"}
    passed, near = Passed(), Passed(shows_private=True)
    for relay in (passed, near):
        relay.take(piece(part))
    (shown,) = passed.events[-1]["artifactUpdate"]["artifact"]["parts"]
    assert (shown.get("url") == url) is is_passed
    assert is_passed or "withheld" in shown["text"]
    assert near.events[-1]["artifactUpdate"]["artifact"]["parts"] == [part]


async def test_ids_of_the_agent_reach_no_client() -> None:
    passed = Passed()
    passed.take(says("reading"), piece({"text": "one"}))
    seen = str(passed.events)
    assert FAR not in seen
    assert "far-context" not in seen
    assert passed.relay.far.context_id == "far-context"


@pytest.mark.parametrize("count", [-1, 1.5, True, "2", None, [], 8, 9.0, 1e30])
def test_a_count_that_is_none_or_too_high_is_taken_for_a_circle(count: Any) -> None:
    assert hops_in(Message.model_validate(message("hi", metadata={HOPS: count}))) == HOPS_MOST


def test_a_message_counts_the_bridges_on_its_way() -> None:
    sent = Message.model_validate(message("hi", "ROLE_USER", metadata={HOPS: 2.0, "mine": 1}))
    out = message_to_agent(
        sent, message_id="m", task_id=None, context_id=None, references=(), skill={"skillId": "plain"}
    )
    assert out.metadata == {HOPS: 3, "mine": 1, "skillId": "plain"}


def test_values_that_are_joined_otherwise_have_other_ids() -> None:
    assert derived_id("a", "bc") != derived_id("ab", "c")


class Records:
    """What is kept with tasks, as an agent finds it."""

    def __init__(self, *kept: RemoteTask) -> None:
        self.kept = tuple(map(kept_bytes, kept))

    async def of_task(self, task_id: str, owner: str) -> bytes:
        return b""

    async def in_context(self, context_id: str, owner: str) -> tuple[bytes, ...]:
        return (b"of another release", *self.kept)


async def test_a_sealed_context_is_that_of_its_caller_alone() -> None:
    contexts = Contexts(Seal([b"k" * 32]), Records())
    sealed = contexts.of_reply(RemoteContext("far", "there"), "ann", None, None)
    assert sealed is not None
    assert "there" not in sealed
    assert await contexts.find(sealed, "ann", ("far",)) == RemoteContext("far", "there")
    assert await contexts.find(sealed, "bob", ("far",)) is None
    assert await contexts.find(sealed, "ann", ("other",)) is None


async def test_a_context_is_found_by_its_newest_task_of_an_agent() -> None:
    records = Records(RemoteTask("one", "t1", "c1"), RemoteTask("two", "t2", "c2"))
    contexts = Contexts(Seal([b"k" * 32]), records)
    assert await contexts.find("own", "ann", ("one", "two")) == RemoteContext("one", "c1")
    assert await contexts.find("own", "ann", ("two",)) == RemoteContext("two", "c2")


def test_a_client_stays_in_a_context_in_which_the_agent_stays() -> None:
    contexts = Contexts(Seal([b"k" * 32]), Records())
    assert contexts.of_reply(RemoteContext("far", "sent"), "ann", "asked", "sent") == "asked"
    assert contexts.of_reply(RemoteContext("far", None), "ann", "asked", "sent") == "asked"
    moved = contexts.of_reply(RemoteContext("far", "elsewhere"), "ann", "asked", "sent")
    assert moved not in (None, "asked", "elsewhere")
    assert contexts.of_reply(RemoteContext("far", "x" * 600), "ann", None, None) is None


def test_what_is_kept_is_read_again() -> None:
    task = RemoteTask("far", "t", "c", "plain").settled(
        snapshot("TASK_STATE_INPUT_REQUIRED").status, {"priority": "high"}
    )
    read = kept_in(kept_bytes(task))
    assert read == task
    assert isinstance(read, RemoteTask)
    assert read.answered == snapshot("TASK_STATE_INPUT_REQUIRED").status
    with pytest.raises(ValueError, match="kind"):
        kept_in(b'{"kind":"of another release"}')
