"""The bridge's own questions, and how their answers are read."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.a2a.model.objects import Message, Part
from bridge.translate.arguments import Problem
from bridge.translate.extensions.bridge import ANSWER
from bridge.translate.message_to_call import UnclearCall
from bridge.translate.own_questions import ElicitAction, action_of_message, arguments, ask_which_skill
from tests.support.tools import skills, tool

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ECHO = tool("echo", "text", listed={"description": "Gives it back\nand more"}, text={"type": "string"})


@pytest.mark.proves("map-route")
def test_the_question_for_the_skill_is_asked_in_words_and_as_data() -> None:
    words, data = ask_which_skill(UnclearCall(), skills(ECHO, tool("now")))
    assert words == Part(
        text="Which skill do you mean?\n- echo: Gives it back\n- now: now\n"
        'Answer with a data part {"skill": "...", "arguments": {...}}, or in text: '
        "skill name, then key=value pairs or a JSON object."
    )
    assert data == Part(
        data={
            "key": "which-skill",
            "skills": [
                {"id": "echo", "description": "Gives it back", "inputSchema": SCHEMA},
                {
                    "id": "now",
                    "description": "now",
                    "inputSchema": {"type": "object", "properties": {}, "required": []},
                },
            ],
            "example": {"skill": "echo", "arguments": {}},
        },
        media_type="application/json",
    )


@pytest.mark.proves("map-route")
def test_a_skill_that_does_not_exist_is_named() -> None:
    words, _ = ask_which_skill(UnclearCall("sing"), skills(ECHO))
    assert (words.text or "").startswith("There is no skill 'sing'.\n- echo")


@pytest.mark.proves("map-route")
def test_skills_that_one_message_asks_for_together_are_named() -> None:
    words, _ = ask_which_skill(UnclearCall(several=("echo", "now")), skills(ECHO))
    lead = "The message asks for more than one call (echo, now). Which one do you mean?"
    assert (words.text or "").startswith(f"{lead}\n- echo")


@pytest.mark.proves("map-route")
def test_without_skills_the_question_says_so() -> None:
    words, data = ask_which_skill(UnclearCall(), {})
    assert words.text == "Which skill do you mean?\nThis agent has no skills at the moment."
    assert data.data == {"key": "which-skill", "skills": [], "example": {"skill": "", "arguments": {}}}


@pytest.mark.proves("map-route")
def test_the_data_has_all_of_many_skills_and_the_words_only_some() -> None:
    words, data = ask_which_skill(UnclearCall(), skills(*(tool(f"t{n}") for n in range(60))))
    assert isinstance(data.data, dict)
    assert isinstance(data.data["skills"], list)
    assert len(data.data["skills"]) == 60
    assert "- and 10 more, in the agent card" in (words.text or "")


@pytest.mark.proves("map-arguments")
def test_missing_arguments_are_asked_for_in_words_and_by_a_form() -> None:
    assert arguments("echo", ECHO, {"times": 2}, [Problem("text", "missing")]) == (
        Part(text="To run echo I need:\n- text (string, required) [missing]"),
        Part(
            data={
                "key": "arguments",
                "skill": "echo",
                "schema": SCHEMA,
                "errors": [{"property": "text", "message": "missing"}],
                "arguments": {"times": 2},
            },
            media_type="application/json",
        ),
    )


ANSWERS: list[tuple[Any, Any, frozenset[str], ElicitAction]] = [
    ({ANSWER: "decline"}, {"text": "yes"}, frozenset(), ElicitAction.DECLINE),
    ({ANSWER: "cancel"}, {"text": "yes"}, frozenset(), ElicitAction.CANCEL),
    ({ANSWER: "accept"}, {"data": {"action": "cancel"}}, frozenset(), ElicitAction.ACCEPT),
    ({ANSWER: "perhaps"}, {"text": "x"}, frozenset(), ElicitAction.ACCEPT),
    (None, {"data": {"action": "decline"}}, frozenset({"text"}), ElicitAction.DECLINE),
    (None, {"data": {"action": "cancel"}}, frozenset(), ElicitAction.CANCEL),
    (None, {"data": {"action": "cancel"}}, frozenset({"action"}), ElicitAction.ACCEPT),
    ({ANSWER: "cancel"}, {"data": {"action": "accept"}}, frozenset({"action"}), ElicitAction.CANCEL),
    (None, {"data": {"action": "cancel", "why": "x"}}, frozenset(), ElicitAction.ACCEPT),
    (None, {"data": {"action": "jump"}}, frozenset(), ElicitAction.ACCEPT),
    (None, {"data": {"action": ["cancel"]}}, frozenset(), ElicitAction.ACCEPT),
    (None, {"data": "cancel"}, frozenset(), ElicitAction.ACCEPT),
    (None, {"text": "no"}, frozenset(), ElicitAction.ACCEPT),
    (None, {"text": "cancel"}, frozenset(), ElicitAction.ACCEPT),
    (None, {"text": '{"action": "cancel"}'}, frozenset(), ElicitAction.ACCEPT),
]


@pytest.mark.proves("map-refuse")
@pytest.mark.parametrize(("metadata", "part", "fields", "answer"), ANSWERS)
def test_only_an_explicit_refusal_refuses_a_question(
    metadata: Any, part: Any, fields: frozenset[str], answer: ElicitAction
) -> None:
    said = Message(message_id="m", role="ROLE_USER", parts=(Part.model_validate(part),), metadata=metadata)
    assert action_of_message(said, fields) is answer
