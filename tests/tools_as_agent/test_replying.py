"""Quick calls that are answered with a Message, through the bridge and by the official client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.translate.extensions.bridge import SKILL
from bridge.translate.overrides import SkillOverride
from tests.peers.py_client import PyClient
from tests.support.drivers import Driver
from tests.support.exposing import exposing
from tests.support.first_driver import FirstDriver
from tests.support.older_drivers import EVERY_DRIVER, name_of
from tests.support.running import call_part, message, texts
from tests.support.several import said_by, state, team
from tests.support.tool_server import ToolServer, listed

pytestmark = pytest.mark.proves("map-reply")

NUMBER = {"type": "integer"}
READS = {"readOnly": True}
BRIEF = {"*": SkillOverride(reply="message")}


def server() -> ToolServer:
    tools = [listed(name, hints=READS, a=NUMBER) for name in ("look", "fail", "report")]
    return ToolServer("s", [*tools, listed("write"), listed("need", "a", hints=READS, a=NUMBER)])


@pytest.mark.proves("map-reply")
async def test_a_quick_call_is_answered_with_a_message() -> None:
    async with server().run() as one, team({"s": one.target}, BRIEF) as served:
        answer = await served.rpc.call("SendMessage", message(call_part("look", a=1)))
        assert set(answer) == {"message"}
        reply = answer["message"]
        assert json.loads(texts(reply["parts"])[0]) == ["s", "look", {"a": 1}]
        assert reply["metadata"][SKILL] == "look"
        assert reply["contextId"]
        assert reply["role"] == "ROLE_AGENT"
        assert "taskId" not in reply
        (event,) = await served.streamed(call_part("look", a=1))
        assert json.loads(texts(event["message"]["parts"])[0]) == ["s", "look", {"a": 1}]
        assert (await served.rpc.call("ListTasks", {}))["totalSize"] == 0
        await served.sources[0].upstream.idle()


@pytest.mark.proves("map-either-answer", "a2a03-6-objects")
@pytest.mark.parametrize("kind", EVERY_DRIVER, ids=name_of)
async def test_a_context_continues_after_a_message_and_a_task_by_its_id(
    kind: type[Driver],
) -> None:
    async with server().run() as one, team({"s": one.target}, BRIEF) as served:
        driver = kind(served.rpc.client, served.base_url)
        reply = (await driver.call("SendMessage", **message(call_part("look", a=1))))["message"]
        again = message(call_part("look", a=2), contextId=reply["contextId"])
        assert (await driver.call("SendMessage", **again))["message"]["contextId"] == reply["contextId"]
        async with driver.stream("SendStreamingMessage", **again) as events:
            assert [next(iter(event)) for event in await events.rest()] == ["message"]
        task = await driver.send(call_part("need"), contextId=reply["contextId"])
        assert (task["contextId"], state(task)) == (reply["contextId"], "INPUT_REQUIRED")
        done = await driver.send({"data": {"a": 3}}, taskId=task["id"])
        assert (done["id"], state(done)) == (task["id"], "COMPLETED")
        await served.sources[0].upstream.idle()


@pytest.mark.proves("map-either-answer", "a2a01-7.1-task")
async def test_a_client_of_the_first_generation_gets_a_task_and_continues_by_its_id() -> None:
    """A message would have no id by which it could be read again."""
    async with server().run() as one, team({"s": one.target}, BRIEF) as served:
        driver = FirstDriver(served.rpc.client, served.base_url)
        task = await driver.send(call_part("look", a=1))
        assert json.loads(texts(task["artifacts"][0]["parts"])[0]) == ["s", "look", {"a": 1}]
        assert await driver.get(task["id"]) == task
        again = await driver.send(call_part("need"), taskId=task["id"])
        assert (again["id"], again["contextId"], state(again)) == (
            task["id"],
            task["contextId"],
            "INPUT_REQUIRED",
        )
        other = await driver.send(call_part("look", a=2), contextId=task["contextId"])
        assert (other["id"] != task["id"], other["contextId"]) == (True, task["contextId"])
        await served.sources[0].upstream.idle()


@pytest.mark.proves("map-reply")
@pytest.mark.parametrize(
    ("skill", "end"),
    [("fail", "FAILED"), ("report", "COMPLETED"), ("write", "COMPLETED"), ("need", "INPUT_REQUIRED")],
)
async def test_failures_progress_questions_and_calls_with_effects_are_tasks(skill: str, end: str) -> None:
    async with server().run() as one, team({"s": one.target}, BRIEF) as served:
        task = await served.rpc.send(call_part(skill))
        assert state(task) == end
        assert await served.rpc.call("GetTask", {"id": task["id"]}) == task


@pytest.mark.proves("map-reply")
async def test_an_answered_question_ends_in_the_task_that_asked() -> None:
    async with server().run() as one, team({"s": one.target}, BRIEF) as served:
        asked = await served.rpc.send(call_part("need"))
        assert said_by(await served.on(asked, {"text": "5"}))[2] == {"a": 5}


@pytest.mark.proves("map-reply")
async def test_the_official_client_takes_the_message() -> None:
    async with (
        server().run() as one,
        team({"s": one.target}, BRIEF) as served,
        PyClient(served.base_url) as client,
    ):
        answer: Any = await client.send(message(call_part("look", a=1)))
        assert json.loads(texts(answer["message"]["parts"])[0])[1] == "look"
        events = [event async for event in client.stream(message(call_part("look", a=1)))]
        assert [list(event) for event in events] == [["message"]]


async def test_through_a_second_bridge_the_message_is_the_tools_result(tmp_path: Path) -> None:
    async with (
        server().run() as one,
        team({"s": one.target}, BRIEF) as served,
        exposing(tmp_path, served.base_url) as face,
        face.client("auto") as client,
    ):
        result = await client.call_tool("look", {"a": 1})
        assert json.loads(result.content[0].text) == ["s", "look", {"a": 1}]
