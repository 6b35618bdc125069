"""Agents of the official Python SDK behind the bridge, called with the official Python client: what a client gets is
what it gets of the agent itself, but for the ids."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from a2a.types.a2a_pb2 import TaskState

from bridge.a2a.client.agent_card import FoundCard
from bridge.agents_as_agent.agent import ForwardingAgent
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.translate.overrides import SkillOverride
from tests.peers import PeerRefused
from tests.peers import sdk_behaviours as told
from tests.peers.py_client import PyClient
from tests.support.foreign import Foreign, foreign_agent
from tests.support.forwarding import forwarding

WAIT_SECONDS = 20
ENDS = [
    "plain",
    "message-only",
    "chunks",
    "file",
    "data",
    "fail",
    "reject",
    "give-up",
    "progress",
    "quiet",
    "big",
]
OURS = "urn:mcp-a2a:hops:v1"

each_transport = pytest.mark.parametrize(
    "transport", ["JSONRPC", pytest.param("HTTP+JSON", marks=pytest.mark.long)]
)


def request(skill: str | None, text: str = "hi", **fields: Any) -> dict[str, Any]:
    metadata = {"metadata": {"skillId": skill}} if skill else {}
    message = {
        "messageId": str(uuid.uuid4()),
        "role": "ROLE_USER",
        "parts": [{"text": text}],
        **metadata,
        **fields,
    }
    return {"message": message}


def later(asked: dict[str, Any]) -> dict[str, Any]:
    return {**asked, "configuration": {"returnImmediately": True}}


@asynccontextmanager
async def front_of(
    agent: Foreign, folder: Path, transport: Any = "JSONRPC", **plan: Any
) -> AsyncIterator[PyClient]:
    async with (
        forwarding(folder, {"far": agent.url}, **plan) as front,
        PyClient(front.url, transport) as client,
    ):
        yield client


async def until(client: PyClient, task: dict[str, Any], state: str) -> dict[str, Any]:
    """The task, once it is in this state."""
    while (now := await client.get(task["id"]))["status"]["state"] != state:
        await anyio.sleep(0.05)
    return now


def without_ids(value: Any) -> Any:
    """What a client got, without ids and times, and without the history, which agents keep in their own way."""
    dropped = {"id", "contextId", "taskId", "messageId", "artifactId", "timestamp", "history", "lastChunk"}
    if isinstance(value, dict):
        return {key: without_ids(inner) for key, inner in value.items() if key not in dropped}
    return [without_ids(inner) for inner in value] if isinstance(value, list) else value


def joined(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer in which neighbouring texts are one: an agent may keep the pieces of a text."""
    for artifact in answer.get("task", {}).get("artifacts", []):
        parts: list[dict[str, Any]] = []
        for part in artifact["parts"]:
            if parts and part.keys() == parts[-1].keys() == {"text"}:
                parts[-1] = {"text": parts[-1]["text"] + part["text"]}
            else:
                parts.append(part)
        artifact["parts"] = parts
    return answer


@each_transport
@pytest.mark.parametrize("skill", ENDS)
async def test_an_answer_is_that_of_the_agent_itself(tmp_path: Path, skill: str, transport: Any) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent() as agent, front_of(agent, tmp_path, transport) as front:
            async with PyClient(agent.url, transport) as direct:
                expected = joined(without_ids(await direct.send(request(skill))))
            answer = await front.send(request(skill))
            assert joined(without_ids(answer)) == expected
            seen = json.dumps(answer)
            assert not any(task in seen for task in agent.seen.tasks)


@pytest.mark.parametrize("skill", ["chunks", "progress"])
async def test_a_stream_has_each_event_of_the_agent_once(tmp_path: Path, skill: str) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent() as agent, front_of(agent, tmp_path) as front:
            async with PyClient(agent.url) as direct:
                expected = [without_ids(event) async for event in direct.stream(request(skill))]
            events = [without_ids(event) async for event in front.stream(request(skill))]
            silent = {"statusUpdate": {"status": {"state": "TASK_STATE_WORKING"}}}
            assert [event for event in events[1:] if event != silent] == [
                event for event in expected[1:] if event != silent
            ]


async def test_the_metadata_of_a_task_are_shown_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def noted(turn: told.Turn) -> None:
        await turn.update.update_status(TaskState.TASK_STATE_COMPLETED, metadata={"priority": "high"})

    monkeypatch.setitem(told.SKILLS, "plain", noted)
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent() as agent, front_of(agent, tmp_path) as front:
            answer = (await front.send(request("plain")))["task"]
            listed = (await front.list())["tasks"][0]
            async with PyClient(agent.url) as direct:
                expected = (await direct.get(agent.seen.tasks[0])).get("metadata")
            for task in (answer, await front.get(answer["id"]), listed):
                assert task.get("metadata") == expected == {"priority": "high"}


async def test_a_question_is_answered_in_the_same_remote_task(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent() as agent, front_of(agent, tmp_path) as front:
            task = (await front.send(request("ask")))["task"]
            assert task["status"]["message"]["parts"] == [{"text": "Which colour?"}]
            task = (await front.send(request(None, "red", taskId=task["id"])))["task"]
            assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
            (words, form) = task["status"]["message"]["parts"]
            assert words == {"text": "How many in red?"}
            assert form["data"] == {"schema": told.COUNT_FORM}
            done = (await front.send(request(None, "3", taskId=task["id"])))["task"]
            assert done["artifacts"][0]["parts"] == [{"text": "Ordered 3"}]
            assert len(agent.seen.tasks) == 1
            assert {said["taskId"] for said in agent.seen.said} == {*agent.seen.tasks}


async def test_a_task_goes_on_after_a_login_without_a_message(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent() as agent, front_of(agent, tmp_path) as front:
            states = []
            async for event in front.stream(request("sign-in")):
                status = event.get("statusUpdate", {}).get("status", {})
                states.append(status.get("state"))
                if status.get("state") == "TASK_STATE_AUTH_REQUIRED":
                    assert status["message"]["parts"][1]["data"] == {"url": told.SIGN_IN_URL}
                    agent.seen.visited.set()
            assert states[-1] == "TASK_STATE_COMPLETED"


async def test_the_agent_decides_whether_a_task_is_canceled(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent() as agent, front_of(agent, tmp_path) as front:
            task = (await front.send(later(request("slow"))))["task"]
            await agent.seen.begun.wait()
            canceled = await front.cancel(task["id"])
            assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
            assert canceled["status"]["message"]["parts"] == [{"text": "Stopped as you wished"}]
            assert agent.seen.canceled == agent.seen.tasks
            waiting = (await front.send(request("ask")))["task"]
            canceled = await front.cancel(waiting["id"])
            assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
            assert agent.seen.canceled == agent.seen.tasks


async def test_the_end_of_a_waiting_task_is_seen_without_a_message(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent() as agent, front_of(agent, tmp_path) as front:
            task = (await front.send(request("ask")))["task"]
            async with PyClient(agent.url) as direct:
                await direct.cancel(agent.seen.tasks[0])
            seen = [event async for event in front.subscribe(task["id"])]
            assert seen[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"
            done = await front.get(task["id"])
            assert done["status"]["message"]["parts"] == [{"text": "Stopped as you wished"}]
            assert len(agent.seen.said) == 1


async def test_another_process_sees_that_a_waiting_task_asks_something_else(tmp_path: Path) -> None:
    store = str(tmp_path / "tasks.db")
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent() as agent:
            async with front_of(agent, tmp_path, store=store) as front:
                task = (await front.send(request("ask")))["task"]
            async with front_of(agent, tmp_path, store=store) as front, PyClient(agent.url) as direct:
                await direct.send(request(None, "red", taskId=agent.seen.tasks[0]))
                while (now := await front.get(task["id"]))["status"]["message"] == task["status"]["message"]:
                    await anyio.sleep(0.05)
                assert now["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
                assert now["status"]["message"]["parts"][0] == {"text": "How many in red?"}
                done = (await front.send(request(None, "3", taskId=task["id"])))["task"]
                assert done["artifacts"][0]["parts"] == [{"text": "Ordered 3"}]


async def test_an_answered_task_is_no_longer_watched(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            forwarding(tmp_path, {"far": agent.url}, push_tasks=2) as served,
            PyClient(served.url) as front,
        ):
            forwarder = served.bridge.published[0].agent
            assert isinstance(forwarder, ForwardingAgent)
            tasks = [(await front.send(request("ask")))["task"] for _ in range(3)]
            assert len(forwarder.waiting_tasks) == 2
            await front.cancel(tasks[0]["id"])
            for text in ("red", "3"):
                done = (await front.send(request(None, text, taskId=tasks[1]["id"])))["task"]
            assert done["status"]["state"] == "TASK_STATE_COMPLETED"
            assert len(forwarder.waiting_tasks) == 1


async def test_an_agent_that_cannot_be_asked_cancels_nothing(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent() as agent, front_of(agent, tmp_path, outage_seconds=60.0) as front:
            task = (await front.send(request("ask")))["task"]
            agent.die()
            with pytest.raises(PeerRefused, match="503"):
                await front.cancel(task["id"])
            assert (await front.get(task["id"]))["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"


async def test_a_conversation_without_tasks_goes_on_in_its_remote_context(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent() as agent, front_of(agent, tmp_path) as front:
            first = (await front.send(request("message-only", "one")))["message"]
            second = (await front.send(request("message-only", "two", contextId=first["contextId"])))[
                "message"
            ]
            assert second["contextId"] == first["contextId"]
            contexts = {said.get("contextId") for said in agent.seen.said if said.get("contextId")}
            assert len(contexts) == 1
            assert first["contextId"] not in contexts


async def test_a_message_is_an_artifact_for_a_client_that_wants_a_task(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent() as agent, front_of(agent, tmp_path) as front:
            task = (await front.send(later(request("message-only"))))["task"]
            done = await until(front, task, "TASK_STATE_COMPLETED")
            assert done["artifacts"][0]["parts"] == [{"text": "Just so: hi"}]
            goes_on = request("message-only", "more", contextId=done["contextId"])
            await front.send(goes_on)
            assert agent.seen.said[1]["contextId"] != done["contextId"]


async def test_a_bridge_that_stops_lets_a_task_end(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            forwarding(tmp_path, {"far": agent.url}) as served,
            PyClient(served.url) as front,
        ):
            task = (await front.send(later(request("slow"))))["task"]
            await agent.seen.begun.wait()
            await until(front, task, "TASK_STATE_WORKING")
            (published,) = served.bridge.published
            async with anyio.create_task_group() as stopping:
                stopping.start_soon(published.engine.drain, WAIT_SECONDS)
                await anyio.wait_all_tasks_blocked()
                agent.seen.released.set()
            assert (await front.get(task["id"]))["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_new_task_of_a_context_goes_on_in_its_remote_context(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent() as agent, front_of(agent, tmp_path) as front:
            first = (await front.send(request("plain")))["task"]
            again = request(
                "plain", contextId=first["contextId"], referenceTaskIds=[first["id"], "of-nobody"]
            )
            second = (await front.send(again))["task"]
            assert second["contextId"] == first["contextId"]
            last = agent.seen.said[-1]
            assert last["contextId"] not in (None, first["contextId"])
            assert last["referenceTaskIds"] == agent.seen.tasks[:1]
            assert last["metadata"][OURS] == 1


@pytest.mark.parametrize("streaming", [True, False], ids=["streams", "polls"])
async def test_a_killed_connection_loses_and_repeats_nothing(tmp_path: Path, streaming: bool) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent(streaming=streaming) as agent, front_of(agent, tmp_path) as front:
            task = (await front.send(later(request("slow-chunks"))))["task"]
            await agent.seen.begun.wait()
            await until(front, task, "TASK_STATE_WORKING")
            agent.proxy.drop_all()
            agent.seen.released.set()
            done = await until(front, task, "TASK_STATE_COMPLETED")
            assert "".join(part["text"] for part in done["artifacts"][0]["parts"]) == "".join(told.CHUNKS)
            assert len(agent.seen.tasks) == 1


async def test_another_process_goes_on_with_a_task(tmp_path: Path) -> None:
    store = str(tmp_path / "tasks.db")
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent() as agent:
            async with front_of(agent, tmp_path, store=store) as front:
                slow = (await front.send(later(request("slow"))))["task"]
                await agent.seen.begun.wait()
                asking = (await front.send(request("ask")))["task"]
                await until(front, slow, "TASK_STATE_WORKING")
            async with front_of(agent, tmp_path, store=store) as front:
                agent.seen.released.set()
                done = await until(front, slow, "TASK_STATE_COMPLETED")
                assert done["artifacts"][0]["parts"] == [{"text": "Slow but sure"}]
                answered = (await front.send(request(None, "red", taskId=asking["id"])))["task"]
                assert answered["status"]["message"]["parts"][0] == {"text": "How many in red?"}
            assert len(agent.seen.tasks) == 2


async def test_several_agents_never_share_a_message(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent("One") as one, foreign_agent("Two") as two:
            agents = {"one": one.url, "two": two.url}
            async with forwarding(tmp_path, agents) as front, PyClient(front.url) as client:
                asked = (await client.send(request(None)))["task"]
                assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
                assert "one_plain: plain" in asked["status"]["message"]["parts"][0]["text"]
                assert not one.seen.said
                assert not two.seen.said
                done = (await client.send(request(None, "two_plain", taskId=asked["id"])))["task"]
                assert done["artifacts"][0]["parts"] == [{"text": "You said: hi"}]
                assert not one.seen.said
                named = (await client.send(request("one_plain", "again", contextId=done["contextId"])))[
                    "task"
                ]
                assert named["artifacts"][0]["parts"] == [{"text": "You said: again"}]
                assert len(one.seen.said) == 1
                assert one.seen.said[0]["metadata"]["skillId"] == "plain"
                goes_on = request(None, "more", contextId=done["contextId"])
                await client.send(goes_on)
                assert [said["parts"][0]["text"] for said in one.seen.said] == ["again", "more"]


async def test_the_card_says_nothing_of_the_agent_behind(tmp_path: Path) -> None:
    overrides = {
        "ask": SkillOverride(hidden=True),
        "slow": SkillOverride(public=False),
        "plain": SkillOverride(id="echo", description="Says it back"),
    }
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            forwarding(tmp_path, {"far": agent.url}, overrides=overrides) as front,
        ):
            (published,) = front.bridge.published
            card = published.server.card(front.url).to_object()
            assert agent.url not in json.dumps(card)
            assert {interface["url"] for interface in card["supportedInterfaces"]} == {front.url}
            skills = {skill["id"]: skill for skill in card["skills"]}
            assert {"ask", "slow", "plain"}.isdisjoint(skills)
            assert skills["echo"]["description"] == "Says it back"
            async with PyClient(front.url) as client:
                await client.send(request("echo"))
                assert agent.seen.said[-1]["metadata"]["skillId"] == "plain"
                with pytest.raises(PeerRefused, match="not known here"):
                    await client.send(request("ask"))
            assert len(agent.seen.said) == 1


async def test_a_public_agent_is_found_without_configuration(tmp_path: Path) -> None:
    async with foreign_agent() as agent, forwarding(tmp_path, {"far": agent.url}, is_public=True) as front:
        async with httpx2.AsyncClient(trust_env=False) as client:
            answer = await client.get(front.url.replace("/agents/front", "/.well-known/ard.json"))
        (entry,) = answer.raise_for_status().json()["entries"]
        assert entry["url"] == f"{front.url}/.well-known/agent-card.json"
        assert "plain" in entry["capabilities"]
        assert agent.url not in json.dumps(entry)


async def test_rights_hold_for_each_skill_and_task(tmp_path: Path) -> None:
    people = [
        Credential(Principal("ann", skills=("plain", "ask")), "ann-secret"),
        Credential(Principal("bob"), "bob-secret"),
    ]
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            forwarding(tmp_path, {"far": agent.url}, credentials=people) as front,
        ):
            ann = PyClient(front.url, headers={"Authorization": "Bearer ann-secret"})
            bob = PyClient(front.url, headers={"Authorization": "Bearer bob-secret"})
            async with ann, bob:
                with pytest.raises(PeerRefused, match="not known here"):
                    await ann.send(request("chunks"))
                with pytest.raises(PeerRefused, match="403"):
                    await ann.send(request(None, "chunks please"))
                assert not agent.seen.said
                task = (await ann.send(request("ask")))["task"]
                for use in (
                    bob.get(task["id"]),
                    bob.cancel(task["id"]),
                    bob.send(request(None, taskId=task["id"])),
                ):
                    with pytest.raises(PeerRefused):
                        await use
                with pytest.raises(PeerRefused):
                    await bob.send(request("plain", contextId=task["contextId"]))
                await bob.send(request("plain", referenceTaskIds=[task["id"]]))
                assert "referenceTaskIds" not in agent.seen.said[-1]
            assert len(agent.seen.said) == 2


async def test_a_message_in_a_circle_is_refused(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent() as agent, front_of(agent, tmp_path) as front:
            for count in (8, -1, "many"):
                asked = request("plain")
                asked["message"]["metadata"][OURS] = count
                with pytest.raises(PeerRefused, match="in a circle"):
                    await front.send(asked)
            assert not agent.seen.said


async def test_an_agent_that_is_down_fails_the_task_and_says_so(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent() as agent, front_of(agent, tmp_path) as front:
            agent.die()
            task = (await front.send(request("plain")))["task"]
            assert task["status"]["state"] in ("TASK_STATE_FAILED", "TASK_STATE_REJECTED")
            words = task["status"]["message"]["parts"][0]["text"]
            assert words == "The agent far cannot be reached, so it did not get the message"


async def test_a_changed_card_is_news_for_the_mcp_servers_of_the_same_process(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            forwarding(tmp_path, {"far": agent.url}) as front,
            anyio.create_task_group() as watching,
        ):
            (published,) = front.bridge.published
            assert isinstance(published.agent, ForwardingAgent)
            news = anyio.Event()

            async def changed(_: FoundCard) -> None:
                news.set()

            watching.start_soon(published.own_card(front.url).watch, changed)
            await anyio.wait_all_tasks_blocked()
            assert not news.is_set()
            remotes = {remote.key: remote for remote in published.agent.remotes}
            published.agent.update(remotes, replace(published.agent.options, name="Another"), {})
            published.agent.on_change()
            await news.wait()
            watching.cancel_scope.cancel()


async def test_a_message_to_a_working_task_is_judged_as_any_other(tmp_path: Path) -> None:
    ann, weaker = Principal("ann", skills=("slow",)), Principal("ann", skills=("plain",))
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            forwarding(tmp_path, {"far": agent.url}, credentials=[Credential(ann, "ann-secret")]) as front,
            PyClient(front.url, headers={"Authorization": "Bearer ann-secret"}) as client,
        ):
            task = (await client.send(later(request("slow"))))["task"]
            await agent.seen.begun.wait()
            await until(client, task, "TASK_STATE_WORKING")
            said = len(agent.seen.said)
            circling = request(None, taskId=task["id"], metadata={OURS: 8})
            with pytest.raises(PeerRefused, match="in a circle"):
                await client.send(later(circling))
            weaker_plan = replace(front.bridge.plan, credentials=[Credential(weaker, "ann-secret")])
            await front.bridge.apply(weaker_plan)
            with pytest.raises(PeerRefused, match="403"):
                await client.send(later(request(None, taskId=task["id"])))
            assert len(agent.seen.said) == said
            agent.seen.released.set()
