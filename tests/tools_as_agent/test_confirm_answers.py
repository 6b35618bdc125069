"""Which answers confirm a call: clear words and few shapes of data. After any other answer, the call is not made."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.translate.extensions.bridge import ANSWER, ARGUMENTS, QUESTION, SKILL
from bridge.translate.message_to_call import RouteRules
from tests.support.running import call_part, message
from tests.support.several import Team, chosen, said_by, state, team, words
from tests.support.tool_server import ToolServer, listed

NUMBER, TEXT = {"type": "integer"}, {"type": "string"}
OPTIONS = {"confirm": "destructive", "route": RouteRules(("skillId", "skill"))}
DONE = {"text": "done"}


def acting() -> ToolServer:
    hints = {"destructive": True}
    return ToolServer(
        "notes",
        [
            listed("wipe", "note", hints=hints, note=NUMBER),
            listed("respond", "action", hints=hints, action=TEXT),
            listed("post", "content", hints=hints, content=TEXT),
            listed("read", hints={"readOnly": True}),
            listed("list_files", path=TEXT),
        ],
    )


async def beside(served: Team, task: Any, part: Any, metadata: Any) -> Any:
    """Send a message on a task, with metadata in the request and not in the message; return the response."""
    params = {**message(part, taskId=task["id"]), "metadata": metadata}
    return (await served.rpc.post("SendMessage", params)).json()


@pytest.mark.proves("map-confirm", "map-refuse")
@pytest.mark.parametrize(
    ("own", "beside_it", "end"),
    [
        ({}, {ANSWER: "decline"}, "REJECTED"),
        ({}, {ANSWER: "cancel"}, "CANCELED"),
        ({ANSWER: "accept"}, {ANSWER: "decline"}, "REJECTED"),
        ({ANSWER: "cancel"}, {ANSWER: "accept"}, "CANCELED"),
        ({ANSWER: None}, {ANSWER: "decline"}, "REJECTED"),
    ],
)
async def test_a_refusal_in_the_metadata_of_the_request_counts(own: Any, beside_it: Any, end: str) -> None:
    async with acting().run() as server, team({"notes": server.target}, agent=OPTIONS) as served:
        asked = await served.rpc.send(call_part("wipe", note=5))
        params = {**message(DONE, taskId=asked["id"], metadata=own), "metadata": beside_it}
        assert state((await served.rpc.call("SendMessage", params))["task"]) == end
        assert server.calls == []


@pytest.mark.proves("map-confirm")
async def test_a_yes_in_the_metadata_of_the_request_counts_only_for_its_question() -> None:
    async with acting().run() as server, team({"notes": server.target}, agent=OPTIONS) as served:
        asked = await served.rpc.send(call_part("wipe", note=5))
        for key in ("confirm-stale", ["x"]):
            late = await beside(served, asked, DONE, {QUESTION: key, ANSWER: "accept"})
            assert late["error"]["code"] == -32602
        assert server.calls == []
        said = await beside(served, asked, {"text": "as you say"}, {ANSWER: "accept"})
        assert said_by(said["result"]["task"])[1] == "wipe"


@pytest.mark.proves("map-confirm")
@pytest.mark.parametrize(
    ("part", "metadata", "called"),
    [
        ({"text": "list_files path=/tmp"}, {}, ("list_files", {"path": "/tmp"})),
        ({"text": "read"}, {}, ("read", {})),
        ({"text": '{"skill": "read", "arguments": {}}'}, {}, ("read", {})),
        (call_part("read"), {ANSWER: "accept"}, ("read", {})),
        (DONE, {"skill": "read"}, ("read", {})),
        (DONE, {"skillId": "read"}, ("read", {})),
        (DONE, {SKILL: "read", ANSWER: "accept"}, ("read", {})),
    ],
)
async def test_a_message_that_asks_for_another_skill_does_not_confirm_this_skill(
    part: Any, metadata: Any, called: Any
) -> None:
    async with acting().run() as server, team({"notes": server.target}, agent=OPTIONS) as served:
        asked = await served.rpc.send(call_part("wipe", note=5))
        said_by(await served.on(asked, part, metadata=metadata))
        assert server.calls == [called]


@pytest.mark.proves("map-confirm")
@pytest.mark.parametrize(
    "part",
    [
        {"text": "Nein"},
        {"text": "Please don't"},
        {"text": "What will it delete?"},
        {"text": "ok?"},
        {"text": "Ok, no."},
        {"text": ""},
        {"text": "wipe"},
        {"text": "read what it says first"},
        {"data": None},
        {"data": {}},
        {"data": [False]},
        {"data": [True]},
        {"data": 0},
        {"data": 1},
        {"data": "yes"},
        {"data": {"confirm": 1}},
        {"data": {"confirmed": False}},
        {"data": {"action": "Accept"}},
        {"data": {"action": "accept", "content": {"sure": False}}},
    ],
)
async def test_after_an_unclear_answer_the_same_question_is_asked_again(part: Any) -> None:
    async with acting().run() as server, team({"notes": server.target}, agent=OPTIONS) as served:
        asked = await served.rpc.send(call_part("wipe", note=5))
        again = await served.on(asked, part)
        assert state(again) == "AUTH_REQUIRED"
        assert words(again) == words(asked)
        assert 'Answer "yes" to go ahead, or "no" to refuse.' in words(again)
        assert again["status"]["message"]["metadata"] == asked["status"]["message"]["metadata"]
        assert server.calls == []
        key = asked["status"]["message"]["metadata"][QUESTION]
        assert said_by(await served.on(again, {"text": "Yes!"}, metadata={QUESTION: key}))[1] == "wipe"


@pytest.mark.proves("map-confirm")
async def test_an_unclear_answer_runs_nothing_even_if_a_confirmation_is_no_longer_needed() -> None:
    async with acting().run() as server, team({"notes": server.target}, agent=OPTIONS) as served:
        asked = await served.rpc.send(call_part("wipe", note=5))
        served.agent.update(served.sources, chosen(confirm="never"), {})
        assert state(await served.on(asked, {"text": "wait"})) == "AUTH_REQUIRED"
        assert server.calls == []


@pytest.mark.proves("map-confirm")
@pytest.mark.parametrize(
    "part", [{"text": "false"}, {"text": '{"action": "decline"}'}, {"data": {"confirm": False}}]
)
async def test_a_refusal_as_data_also_counts_as_json_text(part: Any) -> None:
    async with acting().run() as server, team({"notes": server.target}, agent=OPTIONS) as served:
        asked = await served.rpc.send(call_part("wipe", note=5))
        assert state(await served.on(asked, part)) == "REJECTED"
        assert server.calls == []


@pytest.mark.proves("map-confirm")
@pytest.mark.parametrize("action", ["decline", "accept", "yes"])
async def test_an_argument_that_looks_like_an_answer_is_an_argument(action: str) -> None:
    async with acting().run() as server, team({"notes": server.target}, agent=OPTIONS) as served:
        asked = await served.rpc.send(call_part("respond", action=action))
        for said in ("decline", "accept"):
            again = await served.on(asked, {"data": {"action": said}})
            assert state(again) == "AUTH_REQUIRED"
            assert f'- action: "{said}"' in words(again)
        assert server.calls == []


@pytest.mark.proves("map-confirm")
async def test_a_refusal_in_the_shape_of_a_result_counts_even_if_the_tool_takes_content() -> None:
    async with acting().run() as server, team({"notes": server.target}, agent=OPTIONS) as served:
        asked = await served.rpc.send(call_part("post", content="x"))
        assert state(await served.on(asked, {"data": {"action": "decline"}})) == "REJECTED"
        assert server.calls == []


@pytest.mark.proves("map-confirm")
async def test_other_arguments_after_the_name_of_the_skill_need_a_confirmation() -> None:
    async with acting().run() as server, team({"notes": server.target}, agent=OPTIONS) as served:
        asked = await served.rpc.send(call_part("wipe", note=5))
        again = await served.on(asked, {"text": "wipe note=6"}, metadata={ANSWER: "accept"})
        assert state(again) == "AUTH_REQUIRED"
        assert "- note: 6" in words(again)
        assert server.calls == []


@pytest.mark.proves("map-confirm")
@pytest.mark.parametrize("named", [[], {}, 1, None])
async def test_skill_metadata_that_is_not_a_text_names_no_skill(named: Any) -> None:
    async with acting().run() as server, team({"notes": server.target}, agent=OPTIONS) as served:
        asked = await served.rpc.send(call_part("wipe", note=5))
        assert said_by(await served.on(asked, DONE, metadata={SKILL: named}))[1] == "wipe"
        assert len(server.calls) == 1


@pytest.mark.proves("map-refuse")
@pytest.mark.parametrize(("answer", "end"), [("decline", "REJECTED"), ("cancel", "CANCELED")])
async def test_a_question_for_arguments_is_refused_in_the_metadata_of_the_request(
    answer: str, end: str
) -> None:
    async with acting().run() as server, team({"notes": server.target}) as served:
        asked = await served.rpc.send(call_part("wipe"))
        assert state(asked) == "INPUT_REQUIRED"
        refused = await beside(served, asked, {"text": "7"}, {ANSWER: answer})
        assert state(refused["result"]["task"]) == end
        assert server.calls == []


@pytest.mark.proves("map-arguments")
@pytest.mark.parametrize("is_beside", [False, True])
@pytest.mark.parametrize(
    ("metadata", "called"),
    [
        ({SKILL: "read", ARGUMENTS: {}}, ("read", {})),
        ({SKILL: "list_files", ARGUMENTS: {"path": "/tmp"}}, ("list_files", {"path": "/tmp"})),
        ({SKILL: "wipe", ARGUMENTS: {"note": 6}}, ("wipe", {"note": 6})),
        ({ARGUMENTS: {"note": 6}}, ("wipe", {"note": 6})),
        ({SKILL: []}, ("wipe", {"note": 7})),
    ],
)
async def test_an_answer_names_another_skill_or_the_arguments_in_its_metadata(
    metadata: Any, called: Any, is_beside: bool
) -> None:
    async with acting().run() as server, team({"notes": server.target}) as served:
        asked = await served.rpc.send(call_part("wipe"))
        if is_beside:
            done = (await beside(served, asked, {"text": "7"}, metadata))["result"]["task"]
        else:
            done = await served.on(asked, {"text": "7"}, metadata=metadata)
        said_by(done)
        assert server.calls == [called]


@pytest.mark.proves("map-confirm", "map-ask-again")
async def test_a_confirmation_is_not_asked_again_after_three_answers_that_are_neither_yes_nor_no() -> None:
    async with acting().run() as server, team({"notes": server.target}, agent=OPTIONS) as served:
        asked = await served.rpc.send(call_part("wipe", note=5))
        for _ in range(2):
            assert state(await served.on(asked, {"text": "maybe"})) == "AUTH_REQUIRED"
        ended = await served.on(asked, {"text": "maybe"})
        assert state(ended) == "REJECTED"
        assert "Neither a yes nor a no came in 3 answers" in words(ended)
        assert server.calls == []
