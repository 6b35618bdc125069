"""Clients of the first generation, at the address of all clients: they choose the ids of their tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from bridge.a2a.model.objects import TaskState
from bridge.a2a.tasks.agent import Job
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from tests.support.agents import give, say, serving
from tests.support.drivers import JsonRpcDriver, new_client, state_of
from tests.support.older_drivers import OlderJsonRpcDriver
from tests.support.running import call_part, config_for, raw_command, running
from tests.support.samples_client import (
    ArtifactUpdate,
    RefusedError,
    SamplesClient,
    State,
    StatusUpdate,
    TextPart,
    said,
)

pytestmark = pytest.mark.proves("map-named-tasks")

ALICES, BOBS = "alice-token-0123456789", "bob-token-0123456789"
CREDENTIALS = (Credential(Principal("alice"), ALICES), Credential(Principal("bob"), BOBS))
ECHO = {"type": "data", **call_part("echo", text="hello")}
ADD_ONE = {"type": "data", **call_part("add", a=1)}
B = {"type": "data", "data": {"b": 2}}


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
            await say(job, TaskState.COMPLETED)


@asynccontextmanager
async def served(
    script: Callable[[Job], Awaitable[None]] = obeying,
) -> AsyncIterator[tuple[SamplesClient, str, httpx2.AsyncClient]]:
    async with serving(script) as (url, _), new_client() as http:
        yield SamplesClient(http, url), url, http


def texts(task: object) -> list[str]:
    artifacts = getattr(task, "artifacts", None) or ()
    return [part.text for one in artifacts for part in one.parts if isinstance(part, TextPart)]


@pytest.mark.proves("a2a01-6.1-id", "a2a01-7.1-task", "a2a01-7.2.1-events", "a2a01-7.2.2-final")
@pytest.mark.parametrize("name", ["1", "a/b c", "ü%2e", "x" * 256])
async def test_a_task_has_the_id_that_its_client_gave_it(name: str) -> None:
    async with served() as (client, _, _):
        task = await client.send_task(id=name, sessionId="s", message=said("go"))
        assert (task.id, task.sessionId, task.status.state) == (name, "s", State.COMPLETED)
        assert texts(task) == ["done: go"]
        assert await client.get_task(name) == task
        events = await client.send_task_streaming(id=f"{name[:200]}2", sessionId="s", message=said("go"))
        assert {event.id for event in events} == {f"{name[:200]}2"}
        assert [type(event) for event in events] == [StatusUpdate, ArtifactUpdate, StatusUpdate]


@pytest.mark.proves("a2a01-7.1.1-continued")
async def test_a_message_to_a_task_that_asks_is_its_answer_whatever_session_it_says() -> None:
    async with served() as (client, _, _):
        asked = await client.send_task(id="t", sessionId="s", message=said("ask"))
        assert asked.status.state is State.INPUT_REQUIRED
        again = await client.send_task(id="t", message=said("ask"))
        assert (again.sessionId, again.status.state) == ("s", State.INPUT_REQUIRED)
        done = await client.send_task(id="t", message=said("go"), historyLength=100)
        assert (done.id, done.sessionId, texts(done)) == ("t", "s", ["done: go"])
        assert [one.role for one in done.history or ()] == ["user", "agent", "user", "agent", "user"]
        ids = [(one.metadata or {})["urn:mcp-a2a:unsaid:v1"]["messageId"] for one in done.history or ()]
        assert len(set(ids)) == 5


async def test_a_message_to_a_task_that_works_is_held_for_it() -> None:
    working, said_more = anyio.Event(), anyio.Event()
    held: list[str | None] = []

    async def script(job: Job) -> None:
        await say(job, TaskState.WORKING)
        working.set()
        await said_more.wait()
        held.extend(part.text for one in job.held for part in one.turn.message.parts)
        await say(job, TaskState.COMPLETED)

    async with served(script) as (client, _, _), anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: client.send_task_streaming(id="t", message=said("go")))
        await working.wait()
        answer = await client.send_task(id="t", message=said("more"))
        said_more.set()
    assert (answer.id, answer.status.state, held) == ("t", State.WORKING, ["more"])


async def test_once_a_task_has_ended_the_next_has_its_id_in_the_same_session() -> None:
    async with served() as (client, url, http):
        for words in ("one", "two", "two"):
            task = await client.send_task(id="t", sessionId="s", message=said(words))
            assert (task.sessionId, texts(task)) == ("s", [f"done: {words}"])
            assert texts(await client.get_task("t")) == [f"done: {words}"]
        driver = JsonRpcDriver(http, url)
        page = await driver.call("ListTasks", contextId="s", includeArtifacts=True)
        assert [one["artifacts"][0]["parts"][0]["text"] for one in page["tasks"]][::-1] == [
            "done: one",
            "done: two",
            "done: two",
        ]


async def test_two_messages_at_once_to_a_new_id_make_one_task() -> None:
    async with served() as (client, url, http):
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(lambda: client.send_task(id="t", sessionId="s", message=said("ask")))
        page = await JsonRpcDriver(http, url).call("ListTasks", contextId="s")
        assert page["totalSize"] == 1


@pytest.mark.proves("a2a01-7.1.1-history", "a2a01-8.1-errors")
async def test_history_is_given_only_when_asked_for() -> None:
    async with served() as (client, _, _):
        task = await client.send_task(id="t", message=said("go"))
        assert task.history is None
        assert (await client.get_task("t", 0)).history is None
        assert len((await client.get_task("t", 5)).history or ()) == 1
        with pytest.raises(RefusedError, match="historyLength"):
            await client.get_task("t", -1)


@pytest.mark.proves("map-unsaid")
@pytest.mark.parametrize(
    ("words", "state", "noted"),
    [
        ("refuse", State.FAILED, "TASK_STATE_REJECTED"),
        ("sign in", State.INPUT_REQUIRED, "TASK_STATE_AUTH_REQUIRED"),
    ],
)
async def test_a_state_without_a_word_is_the_nearest_one_and_noted(
    words: str, state: State, noted: str
) -> None:
    async with served() as (client, _, _):
        task = await client.send_task(id="t", message=said(words))
        assert task.status.state is state
        assert task.metadata == {"urn:mcp-a2a:unsaid:v1": {"state": noted}}


@pytest.mark.proves("a2a01-8.1-errors")
@pytest.mark.parametrize("method", ["tasks/pushNotification/set", "tasks/pushNotification/get"])
async def test_push_notifications_are_refused(method: str) -> None:
    async with served() as (client, _, _):
        with pytest.raises(RefusedError) as refused:
            await client.call(method, {"id": "t", "pushNotificationConfig": {"url": "https://example.com"}})
        assert refused.value.code == -32003
        with pytest.raises(RefusedError) as refused:
            await client.send_task(
                id="t", message=said("go"), pushNotification={"url": "https://example.com"}
            )
        assert refused.value.code == -32003
        with pytest.raises(RefusedError):
            await client.get_task("t")


@pytest.mark.parametrize("name", ["", "x" * 257, 7, None])
async def test_an_id_that_no_task_can_have_is_refused_by_its_field(name: object) -> None:
    async with served() as (client, _, _):
        with pytest.raises(RefusedError, match="Invalid parameters: id:") as refused:
            await client.call("tasks/send", {"id": name, "message": said("go")})
        assert refused.value.code == -32602


async def test_shared_methods_are_of_this_generation_for_an_id_that_its_client_made_and_else_of_0_3() -> None:
    async with served() as (client, url, http):
        await client.send_task(id="t", message=said("ask"))
        made_elsewhere = await OlderJsonRpcDriver(http, url).send({"text": "ask"})
        assert (await client.call("tasks/get", {"id": "t"})).keys() >= {"sessionId"}
        assert (await client.call("tasks/get", {"id": made_elsewhere["id"]}))["kind"] == "task"
        assert (await client.call("tasks/cancel", {"id": "t"})).keys() >= {"sessionId"}
        assert (await client.call("tasks/cancel", {"id": made_elsewhere["id"]}))["kind"] == "task"


async def test_tasks_are_read_across_generations_by_their_own_ids() -> None:
    async with served() as (client, url, http):
        await client.send_task(id="t", sessionId="s", message=said("ask"))
        newest, older = JsonRpcDriver(http, url), OlderJsonRpcDriver(http, url)
        [task_id] = await newest.listed(contextId="s")
        assert await older.get(task_id) == await newest.get(task_id)
        done = await newest.send({"text": "go"}, taskId=task_id)
        assert state_of(done) == "COMPLETED"
        assert texts(await client.get_task("t")) == ["done: go"]
        waiting = await newest.send({"text": "ask"})
        answered = await client.send_task(id=waiting["id"], message=said("go"))
        assert (answered.id, texts(answered)) == (waiting["id"], ["done: go"])


@pytest.mark.proves("a2a01-6.7-artifact", "a2a01-7.2.2-final")
async def test_a_stream_begins_with_the_existing_artifacts() -> None:
    async def script(job: Job) -> None:
        if job.turn.task is None:
            await give(job, "one")
            await give(job, "two")
            await say(job, TaskState.INPUT_REQUIRED)
        else:
            await give(job, "three")
            await say(job, TaskState.COMPLETED)

    async with served(script) as (client, _, _):
        await client.send_task(id="t", message=said("go"))
        events = await client.send_task_streaming(id="t", message=said("go"))
        places = [
            (event.artifact.index, part.text)
            for event in events
            if isinstance(event, ArtifactUpdate)
            for part in event.artifact.parts
            if isinstance(part, TextPart)
        ]
        assert places == [(0, "one"), (1, "two"), (2, "three")]
        last = events[-1]
        assert isinstance(last, StatusUpdate)
        assert last.final


async def test_an_id_belongs_to_its_principal_only() -> None:
    async with (
        running(config_for(raw_command(), credentials=CREDENTIALS)) as bridge,
        new_client() as http,
    ):
        alice, bob = (SamplesClient(http, bridge.base_url, token) for token in (ALICES, BOBS))
        await alice.send_task(id="t", message=said(ADD_ONE))
        with pytest.raises(RefusedError) as refused:
            await bob.get_task("t")
        assert refused.value.code == -32001
        mine = await bob.send_task(id="t", message=said(ECHO))
        assert mine.status.state is State.COMPLETED
        assert (await alice.get_task("t")).status.state is State.INPUT_REQUIRED
        with pytest.raises(RefusedError, match="sessionId: cannot be used"):
            await bob.send_task(id="u", sessionId=(await alice.get_task("t")).sessionId, message=said(ECHO))


async def test_an_id_is_known_after_a_restart(tmp_path: Path) -> None:
    config = config_for(raw_command(), store=str(tmp_path / "tasks.db"))
    async with running(config) as bridge, new_client() as http:
        asked = await SamplesClient(http, bridge.base_url).send_task(
            id="t", sessionId="s", message=said(ADD_ONE)
        )
        assert asked.status.state is State.INPUT_REQUIRED
    async with running(config) as bridge, new_client() as http:
        client = SamplesClient(http, bridge.base_url)
        assert await client.get_task("t") == asked
        done = await client.send_task(id="t", message=said(B))
        assert (done.id, done.sessionId, done.status.state) == ("t", "s", State.COMPLETED)
