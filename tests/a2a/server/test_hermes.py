"""Clients of Hermes at an agent that speaks it: tasks as resources, at the address of all clients."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest

from bridge.a2a.model.objects import Artifact, Part, TaskState
from bridge.a2a.tasks.agent import Job
from bridge.a2a.wire.versions import VERSIONS
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from tests.support.agents import give, say, serving
from tests.support.drivers import HttpJsonDriver, JsonRpcDriver, new_client, state_of
from tests.support.hermes_client import (
    HermesClient,
    HermesOrchestrator,
    HermesRefusedError,
    said,
    texts_in,
)
from tests.support.running import call_part, config_for, profile_with, raw_command, running

pytestmark = pytest.mark.proves("map-hermes")

NOTE = "urn:mcp-a2a:unsaid:v1"
PROGRESS = "urn:mcp-a2a:tool:v1/progress"
ALICES, BOBS = "alice-token-0123456789", "bob-token-0123456789"
CREDENTIALS = (Credential(Principal("alice"), ALICES), Credential(Principal("bob"), BOBS))
SPOKEN = VERSIONS.served(merges_cards=True, hermes=True)


async def obeying(job: Job) -> None:
    """Do what the message says."""
    [part] = job.turn.message.parts
    match part.text:
        case "ask":
            await say(job, TaskState.INPUT_REQUIRED, "what?")
        case "sign in":
            await say(job, TaskState.AUTH_REQUIRED, "sign in")
        case "refuse":
            await say(job, TaskState.REJECTED, "no")
        case "wait":
            await say(job, TaskState.WORKING)
            await anyio.sleep_forever()
        case words:
            await give(job, f"done: {words}")
            await say(job, TaskState.COMPLETED, "that was it")


@asynccontextmanager
async def served(
    script: Callable[[Job], Awaitable[None]] = obeying,
) -> AsyncIterator[tuple[HermesClient, str, httpx2.AsyncClient]]:
    async with serving(script, versions=SPOKEN) as (url, _), new_client() as http:
        yield HermesClient(http, url), url, http


async def settled(client: HermesClient, words: str, **fields: Any) -> Any:
    """A task that has settled."""
    task = await client.create(said(words), **fields)
    await client.events(task["id"])
    return await client.task(task["id"])


async def test_a_task_is_made_at_once_and_read_by_its_id() -> None:
    async with served() as (client, _, _):
        begun = await client.create(said("go"), sessionId="s-1")
        assert (begun["sessionId"], begun["status"]["progress"]) == ("s-1", 0.0)
        assert begun["status"]["state"] == "submitted"
        events = await client.events(begun["id"])
        assert (events[-1]["type"], events[-1]["progress"]) == ("completed", 1.0)
        task = await client.task(begun["id"])
        assert task["status"]["state"] == "completed"
        assert task["status"]["progress"] == 1.0
        assert texts_in(await client.artifacts(begun["id"])) == ["done: go"]
        assert texts_in(await client.messages(begun["id"])) == ["go", "that was it"]
        assert task["artifacts"] == await client.artifacts(begun["id"])
        assert task["messages"] == await client.messages(begun["id"])


async def test_the_same_text_again_makes_another_task() -> None:
    async with served() as (client, _, _):
        one, other = [await settled(client, "go", sessionId="s") for _ in range(2)]
        assert one["id"] != other["id"]
        assert (
            one["messages"][0]["metadata"][NOTE]["messageId"]
            != other["messages"][0]["metadata"][NOTE]["messageId"]
        )


@pytest.mark.parametrize("body", [{"message": "go"}, {"parts": [{"type": "text", "text": "go"}]}])
async def test_a_message_may_be_a_text_or_an_unwrapped_message(body: dict[str, Any]) -> None:
    async with served() as (client, _, _):
        task = await client.asked("POST", "/tasks", body, status=202)
        await client.events(task["id"])
        assert texts_in(await client.artifacts(task["id"])) == ["done: go"]


async def test_a_question_is_read_among_the_messages_and_answered_there() -> None:
    async with served() as (client, _, _):
        asks = await settled(client, "ask")
        assert asks["status"]["state"] == "input-required"
        assert texts_in([asks["status"]["message"]]) == ["what?"]
        assert texts_in(await client.messages(asks["id"])) == ["ask", "what?"]
        assert [event["type"] for event in await client.events(asks["id"])] == ["input-required"]
        answered = await client.say(asks["id"], said("go"))
        assert (answered["id"], answered["sessionId"]) == (asks["id"], asks["sessionId"])
        await client.events(asks["id"])
        assert texts_in(await client.artifacts(asks["id"])) == ["done: go"]
        assert texts_in(await client.messages(asks["id"])) == ["ask", "what?", "go", "that was it"]


async def test_a_message_to_a_task_that_has_ended_is_a_conflict() -> None:
    async with served() as (client, _, _):
        task = await settled(client, "go")
        for refused in (client.say(task["id"], said("more")), client.cancel(task["id"])):
            with pytest.raises(HermesRefusedError) as error:
                await refused
            assert error.value.status == 409
        assert await client.task(task["id"]) == task


async def test_a_task_at_work_is_canceled() -> None:
    async with served() as (client, _, _):
        task = await client.create(said("wait"))
        assert (await client.cancel(task["id"]))["status"]["state"] == "canceled"
        assert [event["type"] for event in await client.events(task["id"])] == ["canceled"]


@pytest.mark.parametrize(
    ("words", "state", "noted"),
    [
        ("refuse", "failed", "TASK_STATE_REJECTED"),
        ("sign in", "input-required", "TASK_STATE_AUTH_REQUIRED"),
    ],
)
async def test_a_state_without_a_word_is_the_nearest_one_and_noted(
    words: str, state: str, noted: str
) -> None:
    async with served() as (client, url, http):
        task = await settled(client, words)
        [event] = await client.events(task["id"])
        for one in (task, event):
            assert one["status"]["state"] == state
            assert one["metadata"][NOTE]["state"] == noted
        assert (await HttpJsonDriver(http, url).get(task["id"]))["status"]["state"] == noted


async def test_a_stream_has_the_progress_and_no_artifacts() -> None:
    async def script(job: Job) -> None:
        for done in (1, 3):
            await job.status(TaskState.WORKING, metadata={PROGRESS: {"progress": done, "total": 4}})
        await give(job, "x" * 100_000)
        await say(job, TaskState.WORKING)
        await say(job, TaskState.FAILED, "no")

    async with served(script) as (client, _, _):
        task = await client.create(said("go"))
        seen = [(event["type"], event["progress"]) for event in await client.events(task["id"])]
        assert [one for one in seen if one[0] != "submitted"][-1][0] == "failed"
        assert len(await client.artifacts(task["id"])) == 1


async def test_progress_continues_from_the_last_reported_value() -> None:
    may_go = anyio.Event()

    async def script(job: Job) -> None:
        await may_go.wait()
        for done in (1, 3):
            await job.status(TaskState.WORKING, metadata={PROGRESS: {"progress": done, "total": 4}})
        await job.artifact(Artifact(artifact_id="a", parts=(Part(text="x"),)))
        await say(job, TaskState.WORKING, "nearly")
        await say(job, TaskState.FAILED, "no")

    async with served(script) as (client, _, _):
        task = await client.create(said("go"))
        seen = []
        async for event in client.stream(task["id"]):
            seen.append((event["type"], event["progress"]))
            may_go.set()
    assert seen == [
        ("submitted", 0.0),
        ("working", 0.25),
        ("working", 0.75),
        ("working", 0.75),
        ("failed", 0.75),
    ]


async def test_a_task_that_is_read_or_watched_later_has_its_progress() -> None:
    async def script(job: Job) -> None:
        await job.status(TaskState.WORKING, metadata={PROGRESS: {"progress": 1, "total": 4}})
        await anyio.sleep_forever()

    async with served(script) as (client, url, http):
        task = await client.create(said("go"))
        async with aclosing(client.stream(task["id"])) as events:
            while (await anext(events))["progress"] != 0.25:
                pass
        assert (await client.task(task["id"]))["status"]["progress"] == 0.25
        async with aclosing(client.stream(task["id"])) as events:
            first = await anext(events)
        assert (first["type"], first["progress"]) == ("working", 0.25)
        assert "metadata" not in await HttpJsonDriver(http, url).get(task["id"])
        await client.cancel(task["id"])


@pytest.mark.parametrize("kib", [50, 59, 60, 64, 1000])
async def test_every_event_fits_into_one_line(kib: int) -> None:
    async def script(job: Job) -> None:
        await say(job, TaskState.COMPLETED, "x" * kib * 1024)

    async with served(script) as (client, _, _):
        task = await client.create(said("go"))
        last = (await client.events(task["id"]))[-1]
        is_whole = kib < 58
        assert ("message" in last["status"]) is is_whole
        assert is_whole or last["metadata"][NOTE]["leftOut"] == ["message"]
        assert texts_in((await client.messages(task["id"]))[-1:]) == ["x" * kib * 1024]


async def test_a_client_that_asks_for_a_callback_is_told_that_there_is_none() -> None:
    async with served() as (client, url, http):
        metadata = {
            "callback_url": "https://hooks.example.com/a",
            "priority": "high",
            "deadline": "2026-12-01",
        }
        task = await client.create(said("ask"), metadata=metadata)
        await client.events(task["id"])
        for one in (task, await client.task(task["id"])):
            assert one["metadata"]["callback_url"] == metadata["callback_url"]
            assert one["metadata"]["callback_delivered"] is False
        beside = await client.create(said("ask"), **metadata)
        assert beside["metadata"]["callback_delivered"] is False
        newer = await HttpJsonDriver(http, url).get(task["id"])
        assert newer["history"][0]["metadata"] == {"callback_url": metadata["callback_url"]}
        assert "metadata" not in await client.create(said("go"))


@pytest.mark.parametrize(
    "body",
    [
        {"message": said("go"), "metadata": "high", "priority": 1},
        {"message": said("go"), "sessionId": 1},
        {"message": {"role": "agent", "parts": [{"type": "text", "text": "go"}]}},
        {"message": {"parts": []}},
        {"message": 1},
        {},
    ],
)
async def test_a_body_that_makes_no_task_is_refused(body: Any) -> None:
    async with served() as (client, _, _):
        with pytest.raises(HermesRefusedError, match="Invalid parameters") as error:
            await client.asked("POST", "/tasks", body, status=202)
        assert error.value.status == 400


async def test_a_cancellation_may_say_why() -> None:
    async with served() as (client, _, _):
        task = await client.create(said("wait"))
        canceled = await client.asked("PUT", f"/tasks/{task['id']}/cancel", {"reason": "no need"})
        assert canceled["status"]["state"] == "canceled"


async def test_priority_and_deadline_are_metadata_of_the_request() -> None:
    asked: list[Any] = []

    async def script(job: Job) -> None:
        asked.append(job.turn.metadata)
        await say(job, TaskState.COMPLETED)

    async with served(script) as (client, _, _):
        await settled(client, "go", priority=1, metadata={"deadline": "soon"})
    assert asked == [{"priority": 1, "deadline": "soon"}]


async def test_an_orchestrator_completes_a_task_with_a_question() -> None:
    async with served() as (client, _, _):
        orchestrator = HermesOrchestrator(client, lambda asked: said("go" if texts_in([asked]) else "?"))
        with anyio.fail_after(20):
            task, texts = await orchestrator.done(said("ask"))
        assert (task["status"]["state"], texts) == ("completed", ["done: go"])
        assert orchestrator.progress[-1] == 1.0


async def test_a_header_decides_on_paths_that_two_versions_have() -> None:
    async with served() as (client, url, http):
        task = await settled(client, "go")
        path = f"{url}/tasks/{task['id']}"
        newer = (await http.get(path, headers={"A2A-Version": "1.0"})).json()
        assert newer["status"]["state"] == "TASK_STATE_COMPLETED"
        for silent in ({}, {"A2A-Version": ""}):
            assert (await http.get(path, headers=silent)).json() == task
        older = (await http.get(f"{url}/v1/tasks/{task['id']}")).json()
        assert (older["status"]["state"], older["contextId"]) == ("TASK_STATE_COMPLETED", task["sessionId"])
        listed = await http.get(f"{url}/tasks")
        assert listed.status_code == 404
        assert "send A2A-Version: 1.0" in listed.json()["error"]["message"]
        rpc = JsonRpcDriver(http, url)
        assert (await rpc.get(task["id"]))["id"] == task["id"]
        refused = await http.put(f"{path}/cancel", headers={"A2A-Version": "1.0"})
        assert refused.status_code == 404


async def test_an_agent_without_hermes_has_none_of_its_paths() -> None:
    async with serving(obeying) as (url, _), new_client() as http:
        for verb, path in (("POST", "/tasks"), ("GET", "/tasks/t"), ("PUT", "/tasks/t/cancel")):
            answer = await http.request(verb, f"{url}{path}", json={"message": said("go")})
            assert answer.status_code in (404, 405)
            assert answer.json()["error"]["message"]


@pytest.mark.parametrize("merges_cards", [True, False])
async def test_its_clients_find_the_card_where_they_look(merges_cards: bool) -> None:
    async with (
        running(
            config_for(
                raw_command(), profile=profile_with(card={"legacy_card": merges_cards, "hermes": True})
            )
        ) as bridge,
        new_client() as http,
    ):
        client = HermesClient(http, bridge.base_url)
        card = await client.card()
        assert card["url"] == bridge.base_url
        assert ("protocolVersion" in card) is merges_cards
        task = await client.create(
            {"role": "user", "parts": [{"type": "data", **call_part("echo", text="hi")}]}
        )
        await client.events(task["id"])
        assert texts_in(await client.artifacts(task["id"])) == ["hi"]


PATHS = [
    ("GET", "/tasks/{id}"),
    ("PUT", "/tasks/{id}/cancel"),
    ("GET", "/tasks/{id}/artifacts"),
    ("GET", "/tasks/{id}/messages"),
    ("POST", "/tasks/{id}/messages"),
    ("GET", "/tasks/{id}/stream"),
]


@pytest.mark.proves("a2a-13.1-scope")
@pytest.mark.parametrize("state", ["completed", "input-required", "working"])
async def test_the_task_of_another_principal_is_not_found_at_any_path(state: str) -> None:
    calls = {
        "completed": call_part("echo", text="hello"),
        "input-required": call_part("add", a=1),
        "working": call_part("wait"),
    }
    config = config_for(raw_command(), profile=profile_with(card={"hermes": True}), credentials=CREDENTIALS)
    async with running(config) as bridge, new_client() as http:
        alice = HermesClient(http, bridge.base_url, ALICES)
        task = await alice.create(said({"type": "data", **calls[state]}))
        async with aclosing(alice.stream(task["id"])) as events:
            while (await anext(events))["type"] != state:
                pass
        for verb, path in PATHS:
            body = {"message": said("go")} if verb == "POST" else None
            assert (
                await http.request(verb, f"{bridge.base_url}{path.format(id=task['id'])}")
            ).status_code == 401
            answers = []
            for task_id in (task["id"], str(uuid.uuid4())):
                answer = await http.request(
                    verb,
                    f"{bridge.base_url}{path.format(id=task_id)}",
                    json=body,
                    headers={"Authorization": f"Bearer {BOBS}"},
                )
                answers.append((answer.status_code, answer.text.replace(task_id, "")))
            assert answers[0] == answers[1]
            assert answers[0][0] == 404
        bob = HermesClient(http, bridge.base_url, BOBS)
        for about, status in (({"taskId": task["id"]}, 404), ({"sessionId": task["sessionId"]}, 400)):
            with pytest.raises(HermesRefusedError) as error:
                await bob.create(said("go"), **about)
            assert error.value.status == status
        assert (await alice.task(task["id"]))["status"]["state"] == state
        driver = HttpJsonDriver(http, bridge.base_url).with_headers(Authorization=f"Bearer {ALICES}")
        if state == "working":
            assert state_of(await driver.cancel(task["id"])) == "CANCELED"
