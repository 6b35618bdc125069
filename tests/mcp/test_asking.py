"""Whose call a question of a legacy server belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from bridge.jsonvalues import JsonObject
from bridge.mcp.asking import Questions

QUESTION = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}


class Named:
    """Answers with its own name."""

    is_left = False

    def __init__(self, name: str) -> None:
        self.name = name

    async def ask(self, questions: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:
        return {key: {"action": "accept", "content": {"name": self.name}} for key in questions}

    def withdraw(self, key: str) -> None:
        raise AssertionError("nothing is taken back")


@pytest.mark.proves("mcp-serial")
@pytest.mark.parametrize(
    ("plain", "as_tasks", "answers", "ambiguous"),
    [
        ([], [], None, False),
        (["a"], [], "a", False),
        ([], ["t"], "t", False),
        (["a"], ["t", "u"], "a", False),
        (["a", "b"], [], None, True),
        (["a", "b"], ["t"], None, True),
        ([], ["t", "u"], None, True),
    ],
)
async def test_a_question_is_for_the_one_call_that_can_have_asked_it(
    plain: list[str], as_tasks: list[str], answers: str | None, ambiguous: bool
) -> None:
    told: list[Any] = []
    questions = Questions("a server", lambda: told.append(None))
    with ExitStack() as calls:
        for name in plain:
            calls.enter_context(questions.of_call(Named(name)))
        for name in as_tasks:
            calls.enter_context(questions.of_call(Named(name), as_task=True))
        answer = await questions.answer(QUESTION, lambda: False)
    assert answer.get("content", {}).get("name") == answers
    assert answer["action"] == ("accept" if answers else "cancel")
    assert bool(told) == ambiguous
