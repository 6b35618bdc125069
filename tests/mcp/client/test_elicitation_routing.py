"""To which call a question of a legacy server belongs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from anyio import create_task_group, fail_after, wait_all_tasks_blocked
from mcp import MCPError

from bridge.mcp.client.elicitation_routing import ElicitationRouter
from bridge.text.jsonvalues import JsonObject

QUESTION = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}


class Named:
    """Answers with its own name."""

    is_left = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.missed = 0

    async def ask(self, questions: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:
        return {key: {"action": "accept", "content": {"name": self.name}} for key in questions}

    def withdraw(self, key: str) -> None:
        raise AssertionError("nothing is taken back")

    def miss_question(self, calls: int) -> None:
        self.missed = calls


@contextmanager
def calling(questions: ElicitationRouter, asker: Named, *, as_task: bool = False) -> Iterator[None]:
    """Let a call run while this is open."""
    call = questions.begin(asker, as_task=as_task)
    try:
        yield
    finally:
        questions.end(call)


@pytest.mark.proves("mcp-serial")
@pytest.mark.parametrize(
    ("plain", "as_tasks", "answers"),
    [
        (["a"], [], "a"),
        ([], ["t"], "t"),
        (["a"], ["t", "u"], "a"),
        ([], [], None),
        (["a", "b"], [], None),
        (["a", "b"], ["t"], None),
        ([], ["t", "u"], None),
    ],
)
async def test_a_question_goes_to_the_only_call_that_can_have_asked_it(
    plain: list[str], as_tasks: list[str], answers: str | None
) -> None:
    told: list[None] = []
    questions = ElicitationRouter("a server", 0, lambda: told.append(None))
    asked = {name: Named(name) for name in (*plain, *as_tasks)}
    with ExitStack() as calls:
        for name, one in asked.items():
            calls.enter_context(calling(questions, one, as_task=name in as_tasks))
        if answers is not None:
            answer = await questions.answer(QUESTION, lambda: False)
            assert answer == {"action": "accept", "content": {"name": answers}}
        else:
            with pytest.raises(MCPError, match="nothing says which of them this is for, so nobody was asked"):
                await questions.answer(QUESTION, lambda: False)
    assert told == [None]
    missed = {name: one.missed for name, one in asked.items() if one.missed}
    candidates = plain or as_tasks
    assert missed == ({} if answers else dict.fromkeys(candidates, len(candidates)))


@pytest.mark.proves("mcp-serial")
async def test_a_question_of_several_calls_waits_until_only_one_call_runs() -> None:
    questions = ElicitationRouter("a server", 60, lambda: None)
    first, last = Named("first"), Named("last")
    answers: list[dict[str, Any]] = []

    async def ask() -> None:
        answers.append(await questions.answer(QUESTION, lambda: False))

    with fail_after(5), calling(questions, last):
        async with create_task_group() as group:
            with calling(questions, first):
                group.start_soon(ask)
                await wait_all_tasks_blocked()
                assert not answers
    assert answers == [{"action": "accept", "content": {"name": "last"}}]
    assert first.missed == last.missed == 0


@pytest.mark.proves("mcp25-elicit-mode")
@pytest.mark.parametrize("mode", ["voice", "", None, 1, {}], ids=repr)
async def test_a_question_of_a_mode_that_was_not_declared_is_refused(mode: Any) -> None:
    questions = ElicitationRouter("tools", 1, lambda: None)
    with calling(questions, Named("one")), pytest.raises(MCPError) as refused:
        await questions.answer({**QUESTION, "mode": mode}, lambda: False)
    assert refused.value.code == -32602
