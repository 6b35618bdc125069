"""A person's refusal of an agent's question: what goes to the agent, and what each kind of host gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import mcp_types as types
import pytest

from tests.agents_as_tools.test_scripted_agents import hosted, says, task, words
from tests.support.booking_agent import APPROVAL, Books
from tests.support.exposing import answering
from tests.support.scripted_agent import Json

pytestmark = pytest.mark.smoke("*auto*")

each_mode = pytest.mark.parametrize("mode", ["auto", "legacy"])
each_no = pytest.mark.parametrize("action", ["decline", "cancel"])
DID: Final = {"decline": "declined", "cancel": "canceled"}


def no_of(action: Any) -> types.ElicitResult:
    return types.ElicitResult(action=action)


@pytest.mark.proves("map-ask-back-no", "mcp-elicit-outcome")
@each_mode
@each_no
async def test_a_refusal_cancels_the_task_and_the_result_says_so(
    action: str, mode: str, tmp_path: Path
) -> None:
    agent, answers = Books(), answering(no_of(action))
    async with hosted(tmp_path, agent, mode=mode, callback=answers) as client:
        result = await client.call_tool("act", {"message": "book"})
        first, *others = words(result)
        assert result.is_error
        assert (result.meta or {})["mcp-a2a/state"] == "TASK_STATE_CANCELED"
        assert first.startswith(f"The person {DID[action]} what the agent scripted asked")
        assert first.endswith("the task was canceled there.")
        assert "Not booked." in others
        assert not any("go on with this conversation" in text for text in others)
        assert (len(answers.seen), len(agent.said), agent.cancels) == (1, 1, 1)


@pytest.mark.proves("map-ask-back-no", "map-ask-back-url")
@each_mode
@each_no
async def test_a_refused_sign_in_cancels_the_task(action: str, mode: str, tmp_path: Path) -> None:
    agent = Books({"text": "Sign in"}, {"url": "https://example.com/in"}, state="AUTH_REQUIRED")
    async with hosted(tmp_path, agent, mode=mode, callback=answering(no_of(action))) as client:
        result = await client.call_tool("act", {"message": "book"})
        assert result.is_error
        assert words(result)[0].startswith(f"The person {DID[action]}")
        assert (len(agent.said), agent.cancels) == (1, 1)


@pytest.mark.proves("map-ask-back-no")
@each_mode
async def test_a_decline_fills_in_an_agents_form_that_can_refuse(mode: str, tmp_path: Path) -> None:
    agent = Books({"text": "Book it?"}, {"data": {"schema": APPROVAL}})
    async with hosted(tmp_path, agent, mode=mode, callback=answering(no_of("decline"))) as client:
        result = await client.call_tool("act", {"message": "book"})
        assert not result.is_error
        assert agent.said[1]["parts"] == [{"data": {"approved": False}, "mediaType": "application/json"}]
        assert agent.cancels == 0


@pytest.mark.proves("map-ask-back-no")
@each_mode
@each_no
async def test_a_task_that_cannot_be_canceled_is_an_error_and_the_agent_gets_no_message(
    action: str, mode: str, tmp_path: Path
) -> None:
    agent = Books(canceled="refused")
    async with hosted(tmp_path, agent, mode=mode, callback=answering(no_of(action))) as client:
        result = await client.call_tool("act", {"message": "book"})
        (told,) = words(result)
        assert result.is_error
        assert "its task could not be canceled, and may still wait" in told
        assert "No way" in told
        assert "task_result" in told
        assert len(agent.said) == 1


@pytest.mark.proves("map-ask-back-no")
@each_mode
async def test_a_task_that_ended_before_the_refusal_has_its_own_result(mode: str, tmp_path: Path) -> None:
    agent = Books(canceled="late")
    async with hosted(tmp_path, agent, mode=mode, callback=answering(no_of("cancel"))) as client:
        result = await client.call_tool("act", {"message": "book"})
        assert not result.is_error
        assert words(result)[0] == "It was free anyway."


@pytest.mark.proves("map-ask-back-no")
@each_mode
async def test_an_agent_that_is_slow_to_cancel_is_an_error(mode: str, tmp_path: Path) -> None:
    agent = Books(canceled="pending")
    async with hosted(tmp_path, agent, mode=mode, callback=answering(no_of("cancel"))) as client:
        result = await client.call_tool("act", {"message": "book"})
        assert result.is_error
        assert "has not ended it yet" in words(result)[0]
        assert len(agent.said) == 1


@pytest.mark.proves("map-ask-back-no")
@pytest.mark.parametrize(
    "said",
    [
        {"action": "decline"},
        {"action": "decline", "message": "The person declined"},
        {"message": "no", "data": {"action": "decline"}},
    ],
)
async def test_a_refusal_by_a_host_without_elicitation_cancels_the_task(said: Json, tmp_path: Path) -> None:
    agent = Books()
    async with hosted(tmp_path, agent) as client:
        asked = await client.call_tool("act", {"message": "book"})
        handle = (asked.meta or {})["mcp-a2a/unfinished"]["handle"]
        result = await client.call_tool("task_reply", {"handle": handle, **said})
        assert result.is_error
        assert words(result)[0].startswith("The person declined what the agent scripted asked")
        assert (len(agent.said), agent.cancels) == (1, 1)
        again = await client.call_tool("task_reply", {"handle": handle, **said})
        assert again.is_error
        assert (len(agent.said), agent.cancels) == (1, 1)


@pytest.mark.proves("map-ask-back-no")
async def test_data_in_the_shape_of_a_refusal_is_an_answer_if_the_form_has_that_field(tmp_path: Path) -> None:
    form = {"type": "object", "properties": {"action": {"type": "string"}}}
    agent = Books({"text": "What shall I do?"}, {"data": {"schema": form}})
    async with hosted(tmp_path, agent) as client:
        asked = await client.call_tool("act", {"message": "book"})
        handle = (asked.meta or {})["mcp-a2a/unfinished"]["handle"]
        said = {"message": "decline", "data": {"action": "decline"}}
        assert not (await client.call_tool("task_reply", {"handle": handle, **said})).is_error
        assert agent.said[1]["parts"][1]["data"] == {"action": "decline"}


@pytest.mark.proves("map-ask-back")
@each_mode
async def test_an_accepted_question_without_the_requested_text_is_not_passed_on(
    mode: str, tmp_path: Path
) -> None:
    agent, empty = Books(), types.ElicitResult(action="accept", content={})
    async with hosted(tmp_path, agent, mode=mode, callback=answering(empty)) as client:
        result = await client.call_tool("act", {"message": "book"})
        assert result.is_error
        assert "no text in the field 'answer'" in words(result)[0]
        assert "task_reply" in words(result)[0]
        assert (len(agent.said), agent.cancels) == (1, 0)


class AsksForEver:
    """Asks the same question after every answer."""

    def __init__(self) -> None:
        self.said = 0

    def __call__(self, method: str, params: Json) -> list[Json]:
        self.said += method != "GetTask" and "message" in params
        asks = task("INPUT_REQUIRED", says(f"q-{self.said}", {"text": "Which day?"}))
        return [asks if method == "GetTask" else {"task": asks}]


@pytest.mark.proves("map-ask-again")
@each_mode
async def test_a_question_that_is_asked_too_often_is_put_in_words(mode: str, tmp_path: Path) -> None:
    answer = types.ElicitResult(action="accept", content={"answer": "Monday"})
    agent, answers = AsksForEver(), answering(*[answer] * 3)
    async with hosted(tmp_path, agent, mode=mode, callback=answers) as client:
        result = await client.call_tool("act", {"message": "book"})
        assert words(result)[0].startswith("Which day?")
        assert (result.meta or {})["mcp-a2a/unfinished"]["tool"] == "task_reply"
        assert (len(answers.seen), agent.said) == (3, 4)


@pytest.mark.proves("map-ask-again", "map-ask-back-url")
@each_mode
async def test_a_link_that_is_asked_for_too_often_is_put_in_words(mode: str, tmp_path: Path) -> None:
    asked = 0

    def ask(method: str, params: Json) -> list[Json]:
        nonlocal asked
        asked += method != "GetTask" and "message" in params
        link = {
            "data": {"key": "login", "mode": "url", "message": "Log in", "url": f"https://a.test/{asked}"}
        }
        asks = task("AUTH_REQUIRED", says(f"q-{asked}", {"text": "Log in"}, link))
        return [asks if method == "GetTask" else {"task": asks}]

    answers = answering(*[types.ElicitResult(action="accept")] * 3)
    async with hosted(tmp_path, ask, mode=mode, callback=answers) as client:
        result = await client.call_tool("act", {"message": "book"})
        assert words(result)[0].startswith("Log in")
        assert (len(answers.seen), asked) == (3, 4)
