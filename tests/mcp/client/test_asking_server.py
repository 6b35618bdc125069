"""The asking server speaks the protocol: the official client gets along with it, and it refuses what is wrong."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc
import httpx2
import mcp_types as types
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters

from tests.support.asking import asking_url, forked_asking_argv

TASKS: Final = "io.modelcontextprotocol/tasks"
RELATED: Final = "io.modelcontextprotocol/related-task"
SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
ALL: Final = {"elicitation": {"form": {}, "url": {}}, "extensions": {TASKS: {}}}
VALUES: Final = {"name": "Ada", "sure": True, "first": "one", "second": "two"}
WHO: Final = 'accept {"name": "Ada"}'
SURE: Final = 'accept {"sure": true}'
BOTH: Final = 'accept {"first": "one"}; accept {"second": "two"}'
PLACES: Final = [(era, place) for era in ("legacy", "modern") for place in ("stdio", "http")]


async def answered(_: Any, params: Any) -> types.ElicitResult:
    """Accepts everything, with what the form needs."""
    if params.mode == "url":
        return types.ElicitResult(action="accept")
    needed = params.requested_schema["required"] or params.requested_schema["properties"]
    return types.ElicitResult(action="accept", content={name: VALUES.get(name, "red") for name in needed})


@contextmanager
def place(era: str, kind: str) -> Iterator[Any]:
    """What the official client connects to."""
    if kind == "stdio":
        command, *arguments = forked_asking_argv(era)
        yield StdioServerParameters(command=command, args=arguments)
    else:
        with asking_url(era) as url:
            yield url


@asynccontextmanager
async def official(era: str, kind: str, **more: Any) -> AsyncIterator[Callable[..., Any]]:
    """A function that calls a tool with the official client and gives its text."""
    with place(era, kind) as where, anyio.fail_after(20):
        mode = "legacy" if era == "legacy" else "2026-07-28"
        async with Client(where, mode=mode, elicitation_callback=answered, **more) as client:

            async def said(name: str, **arguments: Any) -> str:
                result = await client.call_tool(name, arguments)
                return str(result.content[0].text)  # type: ignore[union-attr]

            yield said


@pytest.mark.parametrize(("era", "kind"), PLACES)
@pytest.mark.smoke("legacy-http", "modern-stdio")
async def test_the_official_client_answers_what_both_eras_ask(era: str, kind: str) -> None:
    async with official(era, kind) as said:
        assert await said("ask") == WHO
        assert await said("ask-unsafe") == WHO
        assert await said("ask-one") == SURE
        assert await said("ask-twice") == BOTH
        assert await said("ask-url") == "accept"
        assert await said("ask-progress") == SURE
        assert await said("echo", text="hi") == "hi"
        assert await said("log") == "logged"
        assert await said("grow") == "grown"
        assert await said("grown-1") == "I am grown-1"
        assert await said("cancelled") == "0"
        assert len(json.loads(await said("answers"))) == 7
        assert json.loads(await said("requests"))["tools/call"] >= 13


@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_the_official_client_answers_what_the_legacy_era_asks(kind: str) -> None:
    async with official("legacy", kind) as said:
        assert await said("ask-both") == BOTH
        assert await said("ask-withdraw", seconds=10) == WHO
        assert json.loads(await said("sample"))["error"]["code"]
        assert json.loads(await said("roots"))["error"]["code"]
        assert await said("pending") == "0"
        assert await said("optional-job", ask=True) == f"2 steps; {WHO}"
        with pytest.raises(MCPError) as caught:
            await said("need-url")
        assert caught.value.code == -32042
        (elicitation,) = caught.value.data["elicitations"]
        assert elicitation["elicitationId"] in elicitation["url"]
        assert await said("need-url") == "connected"
        with pytest.raises(MCPError) as caught:
            await said("job")
        assert caught.value.code == -32601


@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_the_official_client_answers_what_the_modern_era_asks(kind: str) -> None:
    async with official("modern", kind) as said:
        assert await said("ask-form-and-url") == f"{WHO}; accept"
        assert await said("ask-two") == BOTH
        assert await said("ask-stateless") == SURE
        assert await said("state-only", times=3) == "done"
        assert await said("ask-url", times=2) == "accept; accept"
        assert await said("ask-again") == 'accept {"name": "Ada", "color": "red"}'
        assert await said("ask-expired") == SURE
        for name in ("sample", "roots"):
            with pytest.raises(MCPError):
                await said(name)
        with pytest.raises(MCPError) as caught:
            await said("task-job")
        assert caught.value.code == -32021


async def test_the_official_client_finds_the_modern_era_by_itself_and_sees_the_tools_change() -> None:
    with place("modern", "stdio") as where, anyio.fail_after(20):
        async with Client(where, elicitation_callback=answered) as client:
            before = await client.list_tools()
            async with client.listen(tools_list_changed=True) as subscription:
                await client.call_tool("grow", {})
                async for _ in subscription:
                    break
            after = await client.list_tools(cache_mode="bypass")
            assert len(after.tools) == len(before.tools) + 1


@pytest.mark.parametrize(("era", "kind"), PLACES)
@pytest.mark.smoke("legacy-stdio", "modern-http")
async def test_a_call_that_the_official_client_gives_up_is_cancelled(era: str, kind: str) -> None:
    with place(era, kind) as where, anyio.fail_after(20):
        mode = "legacy" if era == "legacy" else "2026-07-28"
        async with Client(where, mode=mode) as client:

            async def said(name: str) -> str:
                return str((await client.call_tool(name, {})).content[0].text)  # type: ignore[union-attr]

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(said, "wait")
                asked = 1
                while json.loads(await said("requests"))["tools/call"] <= asked:
                    asked += 1
                tasks.cancel_scope.cancel()
            while await said("cancelled") != "1":
                pass


class Raw:
    """A client with nothing between the test and the lines of stdio."""

    def __init__(self, process: anyio.abc.Process, capabilities: dict[str, Any]) -> None:
        assert process.stdout is not None
        self.process = process
        self.capabilities = capabilities
        self.lines = BufferedByteReceiveStream(process.stdout)
        self.number = 0
        self.seen: list[dict[str, Any]] = []
        """What came beside the responses."""

    async def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def read(self) -> dict[str, Any]:
        return dict(json.loads(await self.lines.receive_until(b"\n", 1_000_000)))

    async def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while not condition(message := await self.read()):
            self.seen.append(message)
        return message

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """A request and its response."""
        self.number += 1
        number = self.number
        await self.send(id=number, method=method, params=params)
        return await self.until(lambda message: message.get("id") == number and "method" not in message)

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        """A modern request and its response."""
        return await self.ask(method, **{"_meta": meta(self.capabilities), **params})

    async def call(self, name: str, arguments: Any = None, **params: Any) -> dict[str, Any]:
        """The result of a modern tool call, or its error."""
        answer = await self.request("tools/call", name=name, arguments=arguments or {}, **params)
        return dict(answer.get("result") or answer["error"])

    async def task(self, task_id: str, status: str) -> dict[str, Any]:
        """A task, as soon as it has this status."""
        while (task := (await self.request("tasks/get", taskId=task_id))["result"])["status"] != status:
            await anyio.sleep(0.01)
        return dict(task)


def meta(capabilities: dict[str, Any]) -> dict[str, Any]:
    return {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }


@asynccontextmanager
async def raw(era: str, *options: str, capabilities: Any = ALL) -> AsyncIterator[Raw]:
    """A raw client, in legacy after the handshake."""
    argv = forked_asking_argv(era, *options)
    async with await anyio.open_process(argv, stderr=subprocess.DEVNULL) as process:
        try:
            with anyio.fail_after(20):
                client = Raw(process, capabilities)
                if era == "legacy":
                    info = {"name": "raw", "version": "1"}
                    hello = {
                        "protocolVersion": "2025-11-25",
                        "capabilities": capabilities,
                        "clientInfo": info,
                    }
                    assert (await client.ask("initialize", **hello))["result"]["capabilities"]["tasks"]
                    await client.send(method="notifications/initialized")
                yield client
        finally:
            process.kill()


def words(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def test_a_legacy_task_asks_on_the_stream_of_its_result() -> None:
    async with raw("legacy") as client:
        begun = await client.ask(
            "tools/call", name="job", arguments={"ask": True, "steps": 3}, task={"ttl": 60000}
        )
        task_id = begun["result"]["task"]["taskId"]
        while (await client.ask("tasks/get", taskId=task_id))["result"]["status"] != "input_required":
            await anyio.sleep(0.01)
        await client.send(id="r", method="tasks/result", params={"taskId": task_id})
        question = await client.until(lambda message: message.get("method") == "elicitation/create")
        assert question["params"]["_meta"] == {RELATED: {"taskId": task_id}}
        answer = {"action": "accept", "content": {"name": "Ada"}, "_meta": {RELATED: {"taskId": task_id}}}
        await client.send(id=question["id"], result=answer)
        done = await client.until(lambda message: message.get("id") == "r")
        assert words(done["result"]) == f"3 steps; {WHO}"
        assert done["result"]["_meta"] == {RELATED: {"taskId": task_id}}
        assert "error" in await client.ask("tasks/cancel", taskId=task_id)


async def test_a_legacy_task_fails_or_is_cancelled_and_refuses_an_answer_without_its_id() -> None:
    async with raw("legacy") as client:

        async def begin(**arguments: Any) -> str:
            begun = await client.ask("tools/call", name="job", arguments=arguments, task={})
            return str(begun["result"]["task"]["taskId"])

        failed = await begin(fail=True)
        assert (await client.ask("tasks/result", taskId=failed))["result"]["isError"]
        assert (await client.ask("tasks/get", taskId=failed))["result"]["status"] == "failed"
        cancelled = await begin(seconds=60)
        assert (await client.ask("tasks/cancel", taskId=cancelled))["result"]["status"] == "cancelled"
        assert "error" in await client.ask("tasks/result", taskId=cancelled)
        unrelated = await begin(ask=True)
        await client.send(id="r", method="tasks/result", params={"taskId": unrelated})
        question = await client.until(lambda message: message.get("method") == "elicitation/create")
        await client.send(id=question["id"], result={"action": "decline"})
        error = (await client.until(lambda message: message.get("id") == "r"))["error"]
        assert error["code"] == -32602
        assert RELATED in error["message"]
        assert (await client.ask("tasks/get", taskId="x"))["error"]["code"] == -32602
        assert (await client.ask("tools/call", name="echo", task={}))["error"]["code"] == -32601


async def test_a_legacy_question_is_withdrawn_and_a_wrong_answer_is_refused() -> None:
    async with raw("legacy") as client:
        withdrawn = await client.ask("tools/call", name="ask-withdraw", arguments={"seconds": 0.01})
        assert words(withdrawn["result"]) == "went on without an answer"
        asked, taken_back = client.seen
        assert taken_back["method"] == "notifications/cancelled"
        assert taken_back["params"]["requestId"] == asked["id"]
        await client.send(id="a", method="tools/call", params={"name": "ask"})
        question = await client.until(lambda message: message.get("method") == "elicitation/create")
        await client.send(id=question["id"], result={"action": "accept", "content": {"name": "A", "age": 7}})
        error = (await client.until(lambda message: message.get("id") == "a"))["error"]
        assert error["message"].startswith("the content's name does not fit")
        await client.send(id="b", method="tools/call", params={"name": "ask"})
        await client.until(lambda message: message.get("method") == "elicitation/create")
        assert words((await client.ask("tools/call", name="pending"))["result"]) == "1"
        await client.send(method="notifications/cancelled", params={"requestId": "b"})
        await client.until(lambda message: message.get("method") == "notifications/cancelled")
        assert words((await client.ask("tools/call", name="pending"))["result"]) == "0"
        assert words((await client.ask("tools/call", name="cancelled"))["result"]) == "1"


async def test_the_legacy_server_asks_nobody_who_cannot_be_asked() -> None:
    async with raw("legacy", capabilities={"elicitation": {}}) as client:
        assert (await client.ask("tools/call", name="ask-url"))["error"]["data"] == {
            "requiredCapabilities": {"elicitation": {"url": {}}}
        }
        assert (await client.ask("tools/call", name="need-url"))["error"]["code"] == -32602


ACCEPTED: Final = {"action": "accept", "content": {"sure": True}}


async def test_a_modern_retry_is_refused_when_it_is_not_as_the_specification_says() -> None:
    async with raw("modern") as client:

        async def refused(name: str, **params: Any) -> str:
            error = await client.call(name, **params)
            assert error["code"] == -32602, error
            return str(error["message"])

        first = await client.call("ask-one")
        assert first["resultType"] == "input_required"
        assert "mode" not in first["inputRequests"]["sure"]["params"]
        state, given = first["requestState"], {"sure": ACCEPTED}
        assert "not what was given" in await refused(
            "ask-one", requestState=f"{state}0", inputResponses=given
        )
        assert "without the requestState" in await refused("ask-one", inputResponses=given)
        assert "another request" in await refused("ask-expired", requestState=state, inputResponses=given)
        wrong = {"sure": {"action": "accept", "content": {"sure": "yes"}}}
        assert "does not fit" in await refused("ask-one", requestState=state, inputResponses=wrong)
        client.number = 0  # which gives the retry the id of the first request
        again = await refused("ask-one", requestState=state, inputResponses=given)
        assert again == "a retry needs an id of its own"
        client.number = 20
        asked_again = await client.call("ask-one", requestState=state, inputResponses={"other": ACCEPTED})
        assert list(asked_again["inputRequests"]) == ["sure"]
        assert words(await client.call("ask-one", requestState=state, inputResponses=given)) == SURE
        assert "none was given" in await refused("ask-stateless", requestState=state, inputResponses=given)
        assert "asked for nothing" in await refused("echo", inputResponses={})
        await client.call("forget")
        assert "expired" in await refused("ask-one", requestState=state, inputResponses=given)


async def test_a_modern_state_is_taken_by_another_process_with_the_same_key_unless_it_expires() -> None:
    given = {"sure": ACCEPTED}
    async with raw("modern", "--key", "k") as client:
        state = (await client.call("ask-expired"))["requestState"]
    async with raw("modern", "--key", "k") as client:
        assert words(await client.call("ask-expired", requestState=state, inputResponses=given)) == SURE
    async with raw("modern", "--key", "k", "--expire") as client:
        error = await client.call("ask-expired", requestState=state, inputResponses=given)
        assert error == {"code": -32602, "message": "requestState has expired"}
    async with raw("modern", "--key", "other") as client:
        error = await client.call("ask-expired", requestState=state, inputResponses=given)
        assert "not what was given" in error["message"]


async def test_the_modern_server_asks_again_for_what_is_missing() -> None:
    async with raw("modern") as client:
        first = await client.call("ask-two")
        one = {"first": {"action": "accept", "content": {"first": "one"}}}
        second = await client.call("ask-two", requestState=first["requestState"], inputResponses=one)
        assert list(second["inputRequests"]) == ["second"]
        two = {"second": {"action": "decline"}}
        done = await client.call("ask-two", requestState=second["requestState"], inputResponses=two)
        assert words(done) == 'accept {"first": "one"}; decline'
        first = await client.call("ask-again")
        given = {key: {"action": "accept", "content": {"name": "Ada"}} for key in first["inputRequests"]}
        second = await client.call("ask-again", requestState=first["requestState"], inputResponses=given)
        ((key, request),) = second["inputRequests"].items()
        assert key not in first["inputRequests"]
        assert list(request["params"]["requestedSchema"]["properties"]) == ["color"]
        first = await client.call("ask-twice")
        no = {"first": {"action": "cancel"}}
        assert (
            words(await client.call("ask-twice", requestState=first["requestState"], inputResponses=no))
            == "cancel"
        )


async def test_the_modern_server_needs_its_metadata_and_capabilities() -> None:
    async with raw("modern", capabilities={"elicitation": {}}) as client:
        discovered = (await client.request("server/discover"))["result"]
        assert discovered["supportedVersions"] == ["2026-07-28"]
        assert discovered["capabilities"]["extensions"] == {TASKS: {}}
        for key in meta({}):
            lacking = {name: value for name, value in meta({}).items() if name != key}
            assert (await client.ask("tools/list", _meta=lacking))["error"]["code"] == -32602
        other = {**meta({}), "io.modelcontextprotocol/protocolVersion": "2030-01-01"}
        assert (await client.ask("tools/list", _meta=other))["error"]["data"]["supported"] == ["2026-07-28"]
        assert (await client.ask("initialize"))["error"]["code"] == -32602
        assert (await client.request("initialize"))["error"]["code"] == -32601
        assert (await client.call("ask"))["resultType"] == "input_required"
        error = await client.call("ask-url")
        assert (error["code"], error["data"]) == (
            -32021,
            {"requiredCapabilities": {"elicitation": {"url": {}}}},
        )
        needed = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        assert (await client.call("task-job"))["data"] == needed
        assert (await client.request("tasks/get", taskId="x"))["error"]["data"] == needed
        listened = await client.request("subscriptions/listen", notifications={"taskIds": ["x"]})
        assert listened["error"]["data"] == needed


async def test_a_modern_task_asks_takes_partial_answers_and_never_asks_under_one_key_twice() -> None:
    async with raw("modern") as client:
        begun = await client.call("task-job", {"ask_two": True, "seconds": 0.01})
        assert (begun["resultType"], begun["status"]) == ("task", "working")
        task_id = begun["taskId"]
        asked = await client.task(task_id, "input_required")
        assert set(asked["inputRequests"]) == {"first-1", "second-1"}
        one = {"first-1": {"action": "accept", "content": {"first": "one"}}, "nothing": {"action": "cancel"}}
        updated = await client.request("tasks/update", taskId=task_id, inputResponses=one)
        assert updated["result"]["resultType"] == "complete"
        assert set((await client.task(task_id, "input_required"))["inputRequests"]) == {"second-1"}
        wrong = {"second-1": {"action": "accept", "content": {}}}
        refused = await client.request("tasks/update", taskId=task_id, inputResponses=wrong)
        assert refused["error"]["message"] == "the content lacks second"
        two = {"second-1": {"action": "decline"}}
        await client.request("tasks/update", taskId=task_id, inputResponses=two)
        done = await client.task(task_id, "completed")
        assert words(done["result"]) == '2 steps; first-1: accept {"first": "one"}; second-1: decline'
        twice = (await client.call("task-job", {"ask_twice": True, "seconds": 0.01}))["taskId"]
        for key in ("first-1", "second-2"):
            while list((await client.task(twice, "input_required"))["inputRequests"]) != [key]:
                await anyio.sleep(0.01)
            await client.request("tasks/update", taskId=twice, inputResponses={key: {"action": "decline"}})
        assert (await client.task(twice, "completed"))["result"]


async def test_a_modern_task_ends_in_every_way() -> None:
    async with raw("modern") as client:

        async def begin(**arguments: Any) -> str:
            return str((await client.call("task-job", {"seconds": 0.01, **arguments}))["taskId"])

        assert (await client.task(await begin(fail="tool"), "completed"))["result"]["isError"]
        assert (await client.task(await begin(fail="protocol"), "failed"))["error"]["code"] == -32603
        assert (await client.task(await begin(cancel_itself=True), "cancelled"))["statusMessage"]
        never = await begin(never=True, poll_ms=70)
        assert (await client.task(never, "working"))["pollIntervalMs"] == 70
        cancelled = await client.request("tasks/cancel", taskId=never)
        assert set(cancelled["result"]) == {"resultType", "_meta"}
        await client.task(never, "cancelled")
        stubborn = await begin(stubborn=True)
        await client.request("tasks/cancel", taskId=stubborn)
        await client.task(stubborn, "completed")
        assert (await client.request("tasks/get", taskId="x"))["error"]["code"] == -32602


async def test_modern_jobs_outlive_their_process(tmp_path: Path) -> None:
    jobs = str(tmp_path / "jobs.json")
    async with raw("modern", "--jobs", jobs) as client:
        task_id = (await client.call("task-job", {"ask": True, "seconds": 0.01}))["taskId"]
    async with raw("modern", "--jobs", jobs) as client:
        await client.task(task_id, "input_required")
        given = {"name-1": {"action": "accept", "content": {"name": "Ada"}}}
        await client.request("tasks/update", taskId=task_id, inputResponses=given)
    async with raw("modern", "--jobs", jobs) as client:
        assert words((await client.task(task_id, "completed"))["result"]) == f"2 steps; name-1: {WHO}"


async def test_a_modern_subscription_tells_of_tasks_and_tools() -> None:
    async with raw("modern") as client:
        task_id = (await client.call("task-job", {"steps": 3, "seconds": 0.05}))["taskId"]
        wanted = {"taskIds": [task_id, "unknown"], "toolsListChanged": True}
        params = {"_meta": meta(ALL), "notifications": wanted}
        await client.send(id="s", method="subscriptions/listen", params=params)
        acknowledged = (await client.read())["params"]
        assert acknowledged["notifications"] == {"taskIds": [task_id], "toolsListChanged": True}
        assert acknowledged["_meta"] == {SUBSCRIPTION: "s"}
        await client.until(lambda message: message.get("params", {}).get("status") == "completed")
        told = [
            message["params"] for message in client.seen if message.get("method") == "notifications/tasks"
        ]
        assert {one["status"] for one in told} == {"working"}
        assert all(one["_meta"] == {SUBSCRIPTION: "s"} for one in told)
        await client.send(id="g", method="tools/call", params={"_meta": meta(ALL), "name": "grow"})
        changed = await client.until(lambda message: message.get("method", "").endswith("list_changed"))
        assert changed["params"]["_meta"] == {SUBSCRIPTION: "s"}


async def test_over_http_the_headers_are_checked() -> None:
    with asking_url("modern") as url:
        async with httpx2.AsyncClient() as client:

            async def post(body: dict[str, Any], **headers: str) -> httpx2.Response:
                plain = {
                    "Accept": "application/json, text/event-stream",
                    "MCP-Protocol-Version": "2026-07-28",
                }
                return await client.post(
                    url, json={"jsonrpc": "2.0", "id": 1, **body}, headers=plain | headers
                )

            call = {"method": "tools/call", "params": {"_meta": meta(ALL), "name": "task-job"}}
            told = {"Mcp-Method": "tools/call", "Mcp-Name": "task-job"}
            task = (await post(call, **told)).json()["result"]
            for wrong in ({"Mcp-Method": "x"}, {"Mcp-Name": "x"}, {"MCP-Protocol-Version": "2025-11-25"}):
                response = await post(call, **{**told, **wrong})
                assert (response.status_code, response.json()["error"]["code"]) == (400, -32020)
            assert (await post(call, **told, Accept="application/json")).status_code == 406
            get = {"method": "tasks/get", "params": {"_meta": meta(ALL), "taskId": task["taskId"]}}
            assert (await post(get, **{"Mcp-Method": "tasks/get"})).status_code == 400
            routed = {"Mcp-Method": "tasks/get", "Mcp-Name": task["taskId"]}
            assert (await post(get, **routed)).json()["result"]["taskId"] == task["taskId"]
            undeclared = {"method": "tasks/get", "params": {"_meta": meta({}), "taskId": task["taskId"]}}
            response = await post(undeclared, **routed)
            assert (response.status_code, response.json()["error"]["code"]) == (400, -32021)
            unknown = {"method": "a/b", "params": {"_meta": meta(ALL)}}
            assert (await post(unknown, **{"Mcp-Method": "a/b"})).status_code == 404


async def test_over_http_a_legacy_session_that_is_forgotten_is_not_found() -> None:
    with asking_url("legacy") as url:
        async with httpx2.AsyncClient(headers={"Accept": "application/json, text/event-stream"}) as client:

            async def post(**message: Any) -> httpx2.Response:
                return await client.post(url, json={"jsonrpc": "2.0", "id": str(uuid.uuid4()), **message})

            info = {"name": "raw", "version": "1"}
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
            assert (await post(method="ping")).status_code == 400
            begun = await post(method="initialize", params=hello)
            client.headers["Mcp-Session-Id"] = begun.headers["Mcp-Session-Id"]
            assert (await post(method="ping")).status_code == 400
            client.headers["MCP-Protocol-Version"] = "2025-11-25"
            assert (await post(method="ping")).json()["result"] == {}
            early = (await post(method="tools/call", params={"name": "forget"})).json()
            assert early["error"]["code"] == -32602
            await client.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
            await post(method="tools/call", params={"name": "forget"})
            assert (await post(method="ping")).status_code == 404
