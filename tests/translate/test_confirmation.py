"""Which calls need a confirmation, what a confirmation is bound to, and which messages confirm."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.a2a.model.objects import Message, Part, text_of_parts
from bridge.translate.confirmation import (
    answer_to_confirmation,
    beside_the_answer,
    call_digest,
    confirmation_key,
    confirmation_metadata,
    needs_confirmation,
    parts_of_confirmation,
)
from bridge.translate.extensions.bridge import ANSWER, ARGUMENTS, QUESTION, SKILL
from tests.support.tools import tool

pytestmark = pytest.mark.proves("map-confirm")


def hinted(**hints: bool) -> Any:
    return tool("t", listed={"annotations": {f"{name}Hint": said for name, said in hints.items()}})


PLAIN, DESTROYS, READS, SAFE = (
    hinted(),
    hinted(destructive=True),
    hinted(readOnly=True),
    hinted(destructive=False),
)


@pytest.mark.proves("map-confirm")
@pytest.mark.parametrize(
    ("when", "said", "needed"),
    [
        ("never", None, []),
        ("destructive", None, [DESTROYS]),
        ("strict", None, [PLAIN, DESTROYS, SAFE]),
        ("never", True, [PLAIN, DESTROYS, READS, SAFE]),
        ("strict", False, []),
    ],
)
def test_which_tools_need_a_confirmation(when: Any, said: bool | None, needed: list[Any]) -> None:
    assert [one for one in (PLAIN, DESTROYS, READS, SAFE) if needs_confirmation(one, when, said)] == needed


ONE = tool("t", a={"type": "integer"})


@pytest.mark.proves("map-confirm")
def test_a_confirmation_is_bound_to_the_server_the_tool_and_the_arguments() -> None:
    others = [
        call_digest("s", ONE, {"a": 2}),
        call_digest("s", ONE, {"a": 1, "b": None}),
        call_digest("s", ONE, {"a": 1.5}),
        call_digest("other", ONE, {"a": 1}),
        call_digest("s", tool("u", a={"type": "integer"}), {"a": 1}),
        call_digest("s", tool("t", listed={"description": "Other"}, a={"type": "integer"}), {"a": 1}),
    ]
    mine = call_digest("s", ONE, {"a": 1})
    assert len({mine, *others}) == 1 + len(others)
    assert call_digest("s", tool("t", a={"type": "integer"}), {"a": 1}) == mine


def message(*parts: Any, **metadata: Any) -> Message:
    read = tuple(Part(text=one) if isinstance(one, str) else Part(data=one["data"]) for one in parts)
    return Message(message_id="m", role="ROLE_USER", parts=read, metadata=metadata or None)


def data(value: Any) -> dict[str, Any]:
    return {"data": value}


@pytest.mark.proves("map-confirm")
@pytest.mark.parametrize(
    ("said", "answer"),
    [
        *(
            (message(text), "accept")
            for text in ("done", "yes", "Y", "Yes!", " OK. ", "Confirmed", "confirm")
        ),
        *((message(text), "accept") for text in ("Go ahead!", "do  it", "Yes, please.", '"accept"', "true")),
        *(
            (message(text), None)
            for text in ("Nothing speaks against it", "Now!", "yes?", "yes but", "", "5")
        ),
        *((message(text), None) for text in ("Nein", "Please don't", "Ok, no.", "What?", "n=5", '{"n": 5}')),
        (message("no"), "decline"),
        (message(" No, leave it"), "decline"),
        (message("don't"), "decline"),
        (message("I won't"), "decline"),
        (message("I do not want that"), "decline"),
        (message("Do not do that"), "decline"),
        (message("STOP"), "decline"),
        (message("cancel"), "decline"),
        (message("false"), "decline"),
        (message('{"action": "cancel"}'), "cancel"),
        (message('{"action": "accept"}'), "accept"),
        (message("done", **{ANSWER: "accept"}), "accept"),
        (message("whatever", **{ANSWER: "accept"}), "accept"),
        (message("done", **{ANSWER: "decline"}), "decline"),
        (message("done", **{ANSWER: "cancel"}), "cancel"),
        (message("done", **{ANSWER: False}), "decline"),
        (message("done", **{ANSWER: "whatever"}), None),
        (message("done", **{ANSWER: []}), None),
        (message("no", **{ANSWER: "accept"}), "decline"),
        (message("yes", "wait"), None),
        *(
            (message("For context: a transcript", text), None)
            for text in ("yes", "true", '{"action": "accept"}')
        ),
        (message(data({"action": "accept"})), "accept"),
        (message(data({"action": "decline"})), "decline"),
        (message(data({"action": "cancel"})), "cancel"),
        (message(data({"action": "no"})), "decline"),
        (message(data({"action": "decline", "why": "x"})), "decline"),
        (message(data({"action": "decline", "content": {}})), "decline"),
        (message(data({"action": "accept", "content": {}})), "accept"),
        (message(data({"action": "accept", "content": {"a": 2}})), None),
        (message(data({"action": "accept", "a": 2})), None),
        (message(data({"action": "accept", "confirm": False})), "decline"),
        (message(data({"action": "decline"}), **{ANSWER: "accept"}), "decline"),
        (message(data({"confirm": True})), "accept"),
        (message(data({"confirm": False})), "decline"),
        (message(data({"confirm": 1})), None),
        (message(data(True)), "accept"),
        (message(data(False)), "decline"),
        (message(data("no")), "decline"),
        *((message(data(value)), None) for value in ({"a": 2}, {}, [False], [True], None, 0, 1, "yes")),
    ],
)
def test_only_a_clear_yes_goes_ahead_and_only_a_clear_no_refuses(said: Message, answer: str | None) -> None:
    assert answer_to_confirmation(said, {}, ONE) == answer


@pytest.mark.proves("map-confirm")
@pytest.mark.parametrize("refusal", ["decline", "cancel"])
def test_a_refusal_counts_in_either_metadata(refusal: str) -> None:
    assert answer_to_confirmation(message("done"), {ANSWER: refusal}, ONE) == refusal
    assert answer_to_confirmation(message("done", **{ANSWER: "accept"}), {ANSWER: refusal}, ONE) == refusal
    assert answer_to_confirmation(message("yes", **{ANSWER: refusal}), {ANSWER: "accept"}, ONE) == refusal


@pytest.mark.parametrize(
    "answer", [{"action": "decline"}, {"action": "accept"}, {"confirm": True}, {"confirm": False}]
)
def test_a_field_that_is_an_argument_of_the_tool_is_not_an_answer(answer: Any) -> None:
    acts = tool("t", action={"type": "string"}, confirm={"type": "boolean"})
    said = message(data(answer))
    assert answer_to_confirmation(said, {}, acts) is None
    assert beside_the_answer(said, acts) == said


def test_the_parts_beside_the_answer_may_ask_for_another_call() -> None:
    said = message("go on", data({"action": "accept"}), data({"a": 2}), data(True))
    assert beside_the_answer(said, ONE).parts == message("go on", data({"a": 2})).parts
    assert beside_the_answer(message("yes", data({"a": 2})), ONE).parts == message(data({"a": 2})).parts


@pytest.mark.proves("map-confirm")
def test_the_confirmation_describes_the_call_and_no_data_part_holds_a_url_to_visit() -> None:
    digest = call_digest("s", ONE, {})
    arguments: Any = {"a": "https://evil.example", "b": ["x\ny"], "c": "z" * 2000}
    text, described = parts_of_confirmation("wipe", DESTROYS, arguments, digest)
    assert text_of_parts([text]).splitlines() == [
        "wipe is run once you confirm it (its server says that it may destroy something), with:",
        '- a: "https://evil.example"',
        '- b: ["x\\ny"]',
        f'- c: "{"z" * 999}... (2002 characters)',
        'Answer "yes" to go ahead, or "no" to refuse. Anything else is taken for neither.',
    ]
    assert described.data == {"key": confirmation_key(digest), "mode": "confirm", "skill": "wipe"}
    assert confirmation_metadata("wipe", arguments, digest) == {
        QUESTION: confirmation_key(digest),
        SKILL: "wipe",
        ARGUMENTS: arguments,
    }
    assert ARGUMENTS not in confirmation_metadata("wipe", {"a": "z" * 20_000}, digest)


def test_a_call_without_arguments_says_so() -> None:
    text, _ = parts_of_confirmation("tidy", PLAIN, {}, "0" * 64)
    assert text_of_parts([text]).splitlines()[0] == "tidy is run once you confirm it, without arguments."
