"""A call in rounds: how each round is answered, and when the rounds end."""

from __future__ import annotations

import pytest

from bridge.errors import PeerError
from bridge.mcp.client.rounds import Round, result_in_rounds
from bridge.mcp.client.values import ToolCall
from bridge.text.jsonvalues import JsonObject
from tests.support.limits import call_of

pytestmark = pytest.mark.anyio

CALL = call_of("deploy", {"to": "here"})
FORM: JsonObject = {
    "mode": "form",
    "message": "Sure?",
    "requestedSchema": {"type": "object", "properties": {}},
}
YES: JsonObject = {"action": "accept", "content": {}}
DONE: JsonObject = {"content": []}


def asked(**more: object) -> JsonObject:
    return {"resultType": "input_required", **more}  # type: ignore[dict-item]


async def rounds(
    script: list[JsonObject], answer: JsonObject | str
) -> tuple[object, list[ToolCall], list[Round]]:
    """What a server of these answers is called with, and asks, in order; and what comes of it."""
    calls: list[ToolCall] = []
    seen: list[Round] = []

    async def once(call: ToolCall) -> JsonObject:
        calls.append(call)
        return script[len(calls) - 1]

    async def answers_to(one: Round) -> JsonObject | str:
        seen.append(one)
        return answer

    return await result_in_rounds(CALL, once, answers_to), calls, seen


@pytest.mark.proves("mcp26-rounds-answered", "mcp26-state-returned", "map-rounds")
async def test_each_round_returns_the_state_of_its_result_or_none() -> None:
    question: JsonObject = {"method": "elicitation/create", "params": FORM}
    script = [
        asked(inputRequests={"k": question}, requestState="one"),
        asked(inputRequests={"k": question}),
        DONE,
    ]
    result, calls, seen = await rounds(script, {"k": YES})
    assert result == DONE
    assert calls == [
        CALL,
        call_of("deploy", {"to": "here"}, {"k": YES}, "one"),
        call_of("deploy", {"to": "here"}, {"k": YES}, None),
    ]
    assert seen == [Round({"k": FORM}, "one"), Round({"k": FORM}, None)]


@pytest.mark.proves("map-state-only")
async def test_a_server_that_asks_for_nothing_is_called_again_with_its_state() -> None:
    result, calls, seen = await rounds([asked(requestState="s"), asked(requestState=7), DONE], {})
    assert result == DONE
    assert [(one.input_responses, one.request_state) for one in calls] == [
        (None, None),
        (None, "s"),
        (None, None),
    ]
    assert seen == []


@pytest.mark.proves("map-rounds")
async def test_an_invalid_answer_ends_the_rounds() -> None:
    question: JsonObject = {"method": "elicitation/create", "params": FORM}
    result, calls, _ = await rounds([asked(inputRequests={"k": question})], "later")
    assert (result, calls) == ("later", [CALL])


@pytest.mark.proves("map-rounds")
async def test_a_question_that_cannot_be_asked_is_the_servers_fault() -> None:
    with pytest.raises(PeerError):
        await rounds([asked(inputRequests={"k": {"method": "sampling/createMessage", "params": {}}})], {})
