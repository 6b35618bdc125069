"""Long calls as MCP tasks (the tasks extension), on the raw wire, with agents of the official SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.responses import Response

from tests.peers import sdk_behaviours as told
from tests.support.exposing import exposing
from tests.support.foreign import Foreign, foreign_agent
from tests.support.mcp_tasks import TAKES_ALL, TAKES_TASKS, TASKS, TaskClient, accepted, task_client
from tests.support.mcp_wire import LEGACY, Http, Json
from tests.support.running import listening

pytestmark = pytest.mark.proves("map-mcp-tasks")

WAIT_SECONDS = 20
HEADER_MISMATCH, MISSING_CAPABILITY, METHOD_NOT_FOUND, INVALID_PARAMS = -32020, -32021, -32601, -32602
NEEDED = {"requiredCapabilities": {"extensions": {TASKS: {}}}}


@asynccontextmanager
async def tasks_of(
    folder: Path, capabilities: Json | None = None, *, streaming: bool = True, **options: Any
) -> AsyncIterator[tuple[TaskClient, Foreign]]:
    """A client that takes tasks, of an agent whose every call becomes one at once."""
    options = {"task_after_seconds": 0, "task_poll_seconds": 0.05, **options}
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent(streaming=streaming) as agent,
            exposing(folder, agent.url, **options) as exposed,
            task_client(exposed, capabilities) as client,
        ):
            yield client, agent


async def late_task(client: TaskClient, agent: Foreign, name: str) -> Json:
    """A call that has become a task before its agent does anything."""
    task = await client.call(name, message="go")
    assert task["resultType"] == "task"
    agent.seen.released.set()
    return task


def text_in(result: Json) -> str:
    """The texts of a result."""
    return "\n".join(block["text"] for block in result["content"])


@pytest.mark.proves("tasks-result-type", "tasks-there", "tasks-complete")
async def test_a_long_call_becomes_a_task_that_can_be_read_at_once(tmp_path: Path) -> None:
    async with tasks_of(tmp_path) as (client, agent):
        task = await client.call("slow", message="go")
        assert task["resultType"] == "task"
        assert (task["status"], task["ttlMs"], task["pollIntervalMs"]) == ("working", 86_400_000, 50)
        found = await client.until(task, lambda one: one.get("statusMessage") == "on it")
        assert found["resultType"] == "complete"
        assert found["createdAt"] == task["createdAt"] <= found["lastUpdatedAt"]
        agent.seen.released.set()
        ended = await client.end(task)
        assert ended["status"] == "completed"
        assert ended["result"]["content"][0] == {**ended["result"]["content"][0], "text": "Slow but sure"}
        assert (await client.get(task))["result"]["content"][0] == ended["result"]["content"][0]


@pytest.mark.proves("tasks-result-type")
async def test_a_quick_call_is_answered_without_a_task(tmp_path: Path) -> None:
    async with tasks_of(tmp_path, task_after_seconds=15) as (client, _):
        result = await client.call("plain", message="hi")
        assert result["resultType"] == "complete"
        assert text_in(result).startswith("You said: hi")


@pytest.mark.proves("tasks-get")
async def test_the_result_of_a_task_equals_the_result_of_the_plain_call(tmp_path: Path) -> None:
    async with tasks_of(tmp_path) as (client, _), tasks_of(tmp_path, {}) as (plain, _):
        for name in ("chunks", "progress", "fail", "reject", "quiet"):
            task = await client.call(name, message="hi")
            result = (await client.end(task))["result"] if task["resultType"] == "task" else task
            directly = await plain.call(name, message="hi")
            assert _content(result, pieces=name == "chunks") == _content(directly, pieces=name == "chunks"), (
                name
            )
            assert result.get("isError") == directly.get("isError")


def _content(result: Json, *, pieces: bool) -> list[Json]:
    """Content without `_meta` and context. Which texts are pieces of one, only the stream of a plain call tells."""
    kept = [block for block in result["content"] if "context:" not in block.get("text", "")]
    if pieces:
        return [{"type": "text", "text": "".join(block["text"] for block in kept)}]
    return [{key: value for key, value in block.items() if key != "_meta"} for block in kept]


@pytest.mark.proves("tasks-failed")
async def test_a_task_that_failed_is_completed_with_an_error_result(tmp_path: Path) -> None:
    async with tasks_of(tmp_path) as (client, agent):
        task = await client.call("slow", message="go")
        await agent.seen.begun.wait()
        agent.seen.released.set()
        assert (await client.end(task))["status"] == "completed"
        answered = await client.call("fail", message="go")
        ended = await client.end(answered) if answered["resultType"] == "task" else {"result": answered}
        assert ended["result"]["isError"] is True
        assert "Out of paper" in text_in(ended["result"])


@pytest.mark.proves(
    "tasks-declared",
    "tasks-refused",
    "tasks-listen",
    "mcp26-stateless",
    "mcp26-extension-absent",
    "mcp26-capability",
)
async def test_clients_that_declare_nothing_get_no_task_and_are_told_what_is_missing(tmp_path: Path) -> None:
    async with tasks_of(tmp_path, {"elicitation": {}}, answer_within_seconds=0.2) as (client, _):
        result = await client.call("slow", message="go")
        assert result["resultType"] == "complete"
        assert "task_result" in text_in(result)
        for method, params in (
            ("tasks/get", {}),
            ("tasks/update", {"inputResponses": {}}),
            ("tasks/cancel", {}),
        ):
            error = (await client.send(method, {"taskId": "any", **params}))["error"]
            assert (error["code"], error["data"]) == (MISSING_CAPABILITY, NEEDED)
        asking = client.http.message(99, "tasks/get", {"taskId": "any"})
        assert (await client.http.post(asking)).status_code == 400
        refused = await client.send("subscriptions/listen", {"notifications": {"taskIds": ["any"]}})
        assert (refused["error"]["code"], refused["error"]["data"]) == (MISSING_CAPABILITY, NEEDED)


@pytest.mark.proves("mcp25-task-ignored", "mcp26-extension-absent", "mcp26-extension-names")
async def test_legacy_sessions_have_no_tasks_whatever_they_declare(tmp_path: Path) -> None:
    async with tasks_of(tmp_path, answer_within_seconds=0.2) as (client, _):
        legacy = Http(client.http.client, client.http.url, LEGACY, TAKES_ALL)
        initialized = await legacy.post(legacy.message("i", "initialize", _opening()))
        assert TASKS not in initialized.text
        await legacy.open()
        assert "task_result" in text_in((await legacy.tool(1, "slow", message="go"))["result"])
        answer = (await legacy.call(2, "tasks/get", {"taskId": "any"}))[-1]
        assert answer["error"]["code"] == METHOD_NOT_FOUND
        discovered = await client.ask("server/discover")
        assert discovered["capabilities"]["extensions"] == {TASKS: {}}


def _opening() -> Json:
    return {
        "protocolVersion": LEGACY,
        "capabilities": TAKES_ALL,
        "clientInfo": {"name": "test", "version": "0"},
    }


@pytest.mark.proves("mcp26-headers-checked")
@pytest.mark.parametrize("header", [None, "another"])
async def test_the_header_has_to_name_the_task(header: str | None, tmp_path: Path) -> None:
    async with tasks_of(tmp_path) as (client, _):
        task = await client.call("slow", message="go")
        message = client.http.message(9, "tasks/get", {"taskId": task["taskId"]})
        headers = client.http.headers(message)
        headers.pop("mcp-name")
        if header is not None:
            headers["mcp-name"] = header
        response = await client.http.client.post(client.http.url, json=message, headers=headers)
        assert response.status_code == 400
        assert response.json()["error"]["code"] == HEADER_MISMATCH


@pytest.mark.proves("tasks-unknown", "tasks-owner", "tasks-guessed")
async def test_forged_foreign_and_expired_ids_get_the_same_refusal(tmp_path: Path) -> None:
    async with tasks_of(tmp_path, task_ttl_seconds=1) as (client, _):
        task = await client.call("slow", message="go")
        expired = task["taskId"]
        async with tasks_of(tmp_path / "other") as (other, _):
            foreign = (await other.call("slow", message="go"))["taskId"]
        forged = expired[:-4] + ("AAAA" if expired[-4:] != "AAAA" else "BBBB")
        refusal = await client.send("tasks/get", {"taskId": forged})
        while (late := await client.send("tasks/get", {"taskId": expired})).get("error") is None:
            await anyio.sleep(0.05)
        for answer in (
            refusal,
            late,
            await client.send("tasks/get", {"taskId": foreign}),
            await client.send("tasks/update", {"taskId": foreign, "inputResponses": {}}),
            await client.send("tasks/cancel", {"taskId": "nonsense"}),
        ):
            assert answer["error"] == {"code": INVALID_PARAMS, "message": refusal["error"]["message"]}


@pytest.mark.proves("tasks-there")
async def test_a_task_goes_on_after_a_restart_and_at_a_replica_with_the_same_key(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent() as agent:
            async with (
                exposing(tmp_path, agent.url, task_after_seconds=0) as exposed,
                task_client(exposed) as client,
            ):
                task = await late_task(client, agent, "ask_late")
                asked = await client.asked(task)
            async with (
                exposing(tmp_path, agent.url) as exposed,
                task_client(exposed) as client,
                exposing(tmp_path, agent.url) as replica,
                task_client(replica) as elsewhere,
            ):
                assert await client.asked(task) == asked
                (first,) = asked
                await client.answer(task, **{first: accepted(answer="red")})
                (second,) = await elsewhere.asked(task, first)
                await elsewhere.answer(task, **{second: accepted(count=3)})
                assert text_in((await client.end(task))["result"]).startswith("Ordered 3")


OLD, NEW = "the old secret of both, of many letters", "the new secret of both, of many letters"


@pytest.mark.proves("tasks-there")
@pytest.mark.parametrize(
    ("before", "after"), [((OLD,), (OLD, NEW)), ((OLD, NEW), (NEW, OLD)), ((NEW, OLD), (NEW,))]
)
async def test_at_each_step_of_a_key_rotation_two_replicas_take_each_others_tasks(
    before: tuple[str, ...], after: tuple[str, ...], tmp_path: Path
) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            exposing(tmp_path, agent.url, keys=before, task_after_seconds=0) as exposed,
            task_client(exposed) as client,
            exposing(tmp_path, agent.url, keys=after, task_after_seconds=0) as replica,
            task_client(replica) as elsewhere,
        ):
            for first, other in ((client, elsewhere), (elsewhere, client)):
                task = await late_task(first, agent, "ask_late")
                assert await other.asked(task) == await first.asked(task)


@pytest.mark.proves("tasks-get", "tasks-keys", "tasks-updated")
@pytest.mark.parametrize("streaming", [True, False], ids=["streams", "polls"])
async def test_a_task_asks_in_several_rounds_each_under_a_key_of_its_own(
    streaming: bool, tmp_path: Path
) -> None:
    async with tasks_of(tmp_path, streaming=streaming) as (client, agent):
        task = await late_task(client, agent, "ask_late")
        asked = await client.asked(task)
        ((first, request),) = asked.items()
        assert request["params"]["message"] == "Which colour?"
        assert await client.asked(task) == asked
        assert await client.answer(task, unknown=accepted(answer="x")) == _empty(client)
        assert len(agent.seen.said) == 1
        for _ in range(2):  # said twice, it is one message
            await client.answer(task, **{first: accepted(answer="red")})
        ((second, request),) = (await client.asked(task, first)).items()
        assert second != first
        assert request["params"]["requestedSchema"]["required"] == ["count"]
        await client.answer(task, **{first: accepted(answer="blue")})  # answered before
        await client.answer(task, **{second: accepted(count=2)})
        ended = await client.end(task)
        assert text_in(ended["result"]).startswith("Ordered 2")
        await client.answer(task, **{second: accepted(count=5)})
        assert len(agent.seen.said) == 3


def _empty(client: TaskClient) -> Json:
    return {"resultType": "complete", "_meta": _Any()}


class _Any:
    def __eq__(self, other: object) -> bool:
        return True


@pytest.mark.proves("map-ask-back-no")
@pytest.mark.parametrize(("action", "did"), [("decline", "declined"), ("cancel", "canceled")])
async def test_a_refused_question_cancels_the_task_and_says_so(action: str, did: str, tmp_path: Path) -> None:
    async with tasks_of(tmp_path) as (client, agent):
        task = await late_task(client, agent, "ask_late")
        (key,) = await client.asked(task)
        for _ in range(2):  # the second time nothing is asked any more
            await client.answer(task, **{key: {"action": action}})
        ended = await client.end(task)
        assert ended["status"] == "cancelled"
        assert ended["statusMessage"].startswith(f"The person {did} what the agent ")
        assert agent.seen.canceled == agent.seen.tasks
        assert len(agent.seen.said) == 1


async def test_a_client_that_cannot_be_asked_is_given_the_question_in_words(tmp_path: Path) -> None:
    async with tasks_of(tmp_path, TAKES_TASKS) as (client, agent):
        ended = await client.end(await late_task(client, agent, "ask_late"))
        assert "Which colour?" in text_in(ended["result"])
        assert "task_reply" in text_in(ended["result"])
        assert "isError" not in ended["result"]


async def test_a_user_is_sent_to_a_url_and_the_task_goes_on_by_itself(tmp_path: Path) -> None:
    async with tasks_of(tmp_path) as (client, agent):
        task = await late_task(client, agent, "sign_in_late")
        ((key, request),) = (await client.asked(task)).items()
        assert (request["params"]["mode"], request["params"]["url"]) == ("url", told.SIGN_IN_URL)
        await client.answer(task, **{key: {"action": "accept"}})
        agent.seen.visited.set()
        assert text_in((await client.end(task))["result"]).startswith("Signed in")
        assert len(agent.seen.said) == 1


@pytest.mark.proves("tasks-cancel", "tasks-get")
async def test_a_cancelled_task_says_so_in_the_agents_words(tmp_path: Path) -> None:
    async with tasks_of(tmp_path) as (client, agent):
        task = await client.call("slow", message="go")
        for _ in range(2):
            assert await client.ask("tasks/cancel", {"taskId": task["taskId"]}) == _empty(client)
        ended = await client.end(task)
        assert (ended["status"], ended["statusMessage"]) == ("cancelled", "Stopped as you wished")
        assert "result" not in ended
        assert agent.seen.canceled == agent.seen.tasks


@pytest.mark.proves("tasks-cancel")
async def test_a_cancellation_that_the_agent_refuses_is_acknowledged_and_the_task_goes_on(
    tmp_path: Path,
) -> None:
    seen, late = told.Seen(), []

    async def stubborn(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        if b'"CancelTask"' not in message.get("body", b""):
            waiting = [message]
            await late[0](scope, lambda: _first(waiting, receive), send)
            return
        error = {"code": -32004, "message": "I always finish what I began"}
        answer = Response(
            json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}), media_type="application/json"
        )
        await answer(scope, receive, send)

    with anyio.fail_after(WAIT_SECONDS):
        async with listening(stubborn) as url:
            late.append(told.build_app(url, seen))
            async with exposing(tmp_path, url, task_after_seconds=0) as there, task_client(there) as client:
                task = await client.call("slow", message="go")
                for _ in range(2):
                    assert await client.ask("tasks/cancel", {"taskId": task["taskId"]}) == _empty(client)
                assert (await client.get(task))["status"] == "working"
                seen.released.set()
                assert text_in((await client.end(task))["result"]).startswith("Slow but sure")


async def _first(waiting: list[Any], receive: Any) -> Any:
    return waiting.pop() if waiting else await receive()


async def test_closing_the_call_cancels_nothing(tmp_path: Path) -> None:
    async with tasks_of(tmp_path) as (client, agent):
        await client.call("slow", message="go")
        await client.http.client.aclose()
        agent.seen.released.set()
        assert not agent.seen.canceled


async def test_a_task_whose_agent_is_out_of_reach_is_working_until_it_is_given_up(tmp_path: Path) -> None:
    async with tasks_of(tmp_path, outage_seconds=1) as (client, agent):
        task = await client.call("slow", message="go")
        await client.until(task, lambda one: one.get("statusMessage") == "on it")
        agent.die()
        away = await client.get(task)
        assert away["status"] == "working"
        assert "cannot be reached at the moment" in away["statusMessage"]
        refused = await client.send("tasks/cancel", {"taskId": task["taskId"]})
        assert "could not be passed on" in refused["error"]["message"]
        ended = await client.end(task)
        assert ended["status"] == "completed"
        assert ended["result"]["isError"] is True


async def test_a_task_that_its_agent_has_forgotten_says_so(tmp_path: Path) -> None:
    async with tasks_of(tmp_path) as (client, agent):
        task = await client.call("slow", message="go")
        await agent.restart()
        ended = await client.end(task)
        assert (ended["status"], ended["result"]["isError"]) == ("completed", True)
        assert "not found" in text_in(ended["result"]).lower()
        assert await client.ask("tasks/cancel", {"taskId": task["taskId"]}) == _empty(client)


@pytest.mark.proves("mcp26-listen-granted", "tasks-news", "mcp26-listen-first")
@pytest.mark.parametrize("streaming", [True, False], ids=["streams", "polls"])
async def test_a_subscription_reports_a_task_until_it_has_ended(streaming: bool, tmp_path: Path) -> None:
    async with tasks_of(tmp_path, streaming=streaming) as (client, agent):
        task = await late_task(client, agent, "ask_late")
        wanted = [task["taskId"], "nonsense"]
        async with client.listening(taskIds=wanted, toolsListChanged=True) as messages:
            acknowledged = await anext(messages)
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
            granted = acknowledged["params"]["notifications"]
            assert granted == {"toolsListChanged": True, "taskIds": [task["taskId"]]}
            seen: list[Json] = []
            async for message in messages:
                assert message["method"] == "notifications/tasks"
                found = dict(message["params"])
                found.pop("_meta")
                seen.append(found)
                current = await client.get(task)
                if found["status"] == "input_required" and current["status"] == "input_required":
                    for key, request in found["inputRequests"].items():
                        is_second = "count" in request["params"]["requestedSchema"]["properties"]
                        answer = accepted(count=4) if is_second else accepted(answer="red")
                        await client.answer(task, **{key: answer})
                if found["status"] == "completed":
                    break
        statuses = [one["status"] for one in seen]
        assert statuses.count("input_required") == 2
        whole = await client.get(task)
        last = seen[-1]
        assert text_in(last["result"]).startswith("Ordered 4")
        assert {key: last[key] for key in ("taskId", "status", "createdAt", "lastUpdatedAt")} == {
            key: whole[key] for key in ("taskId", "status", "createdAt", "lastUpdatedAt")
        }
