"""Rules of every operation: versions, extensions, errors, envelopes, the card, and access."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import httpx2
import pytest

from bridge.a2a.model.objects import TaskState
from bridge.a2a.tasks.agent import Job
from tests.support.agents import say, serving
from tests.support.drivers import (
    DRIVERS,
    PATIENCE_SECONDS,
    PUSH_OPERATIONS,
    Driver,
    HttpJsonDriver,
    JsonRpcDriver,
    new_client,
    shape_of,
    state_of,
)
from tests.support.older_drivers import EVERY_DRIVER, OlderHttpJsonDriver, OlderJsonRpcDriver, name_of
from tests.support.running import (
    EXTENSION,
    VERSION,
    Running,
    WrapConfig,
    call_part,
    config_for,
    message,
    profile_with,
    raw_command,
    running,
)

CARD = "/.well-known/agent-card.json"
OLDER_CARD = "/.well-known/agent.json"
ECHO = call_part("echo", text="hello")
WAIT = call_part("wait")
BLOCK = f"{EXTENSION}/block"
NOBODYS = "00000000-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
async def bridge() -> AsyncIterator[Running]:
    async with running(config_for(raw_command())) as bridge:
        yield bridge


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with new_client() as client:
        yield client


@pytest.fixture(params=DRIVERS, ids=lambda kind: kind.binding)
def driver(request: pytest.FixtureRequest, bridge: Running, client: httpx2.AsyncClient) -> Driver:
    return request.param(client, bridge.base_url)


@pytest.fixture
def rpc(bridge: Running, client: httpx2.AsyncClient) -> JsonRpcDriver:
    return JsonRpcDriver(client, bridge.base_url)


@asynccontextmanager
async def configured(kind: type[Driver], **changes: Any) -> AsyncIterator[Driver]:
    """A driver of a bridge of its own."""
    config: WrapConfig = config_for(raw_command(), **changes)
    async with running(config) as bridge, new_client() as client:
        yield kind(client, bridge.base_url)


# Versions


@pytest.mark.proves("a2a-3.6.2-version")
@pytest.mark.parametrize("version", ["1.9", "0.2.6", "2.0", "1", "one", "1.0.0.0", "1.0-rc1"])
async def test_an_unsupported_version_is_refused_with_the_supported_versions(
    driver: Driver, version: str
) -> None:
    speaking = driver.with_headers(A2A_Version=version)
    for operation, params in (
        ("ListTasks", {}),
        ("SendMessage", message(ECHO)),
        ("GetExtendedAgentCard", {}),
    ):
        fault = await speaking.refused(operation, **params)
        assert fault.reason == "VERSION_NOT_SUPPORTED"
        supported = "1.0, 0.3, 0.1" if driver.binding == "JSONRPC" else "1.0, 0.3"
        assert fault.details[0]["metadata"] == {"requested": version, "supported": supported}


@pytest.mark.proves("a2a-3.6.2-version")
@pytest.mark.parametrize(
    ("version", "told"),
    [
        (None, " without the header A2A-Version, which means A2A 0.3: send A2A-Version: 1.0"),
        ("", " without the header A2A-Version, which means A2A 0.3: send A2A-Version: 1.0"),
        ("0.3", " in A2A 0.3: send A2A-Version: 1.0"),
    ],
)
async def test_a_1_0_operation_without_its_version_is_told_which_header_to_send(
    driver: Driver, version: str | None, told: str
) -> None:
    silent = type(driver)(driver.client, driver.base_url)
    if version is None:
        del silent.headers["A2A-Version"]
    else:
        silent.headers["A2A-Version"] = version
    for operation in ("ListTasks", "SubscribeToTask", "SendStreamingMessage"):
        fault = await silent.refused(operation, id="none")
        assert fault.reason == "METHOD_NOT_FOUND"
        assert fault.message.endswith(told)


@pytest.mark.proves("a2a-3.6.1-version-query", "a2a-3.6-patch")
@pytest.mark.parametrize("version", ["1.0", "1.0.1", "1.0.99"])
async def test_a_patch_number_is_ignored(driver: Driver, version: str) -> None:
    assert "tasks" in await driver.with_headers(A2A_Version=version).call("ListTasks")


@pytest.mark.proves("a2a-3.6.1-version-query")
@pytest.mark.parametrize("kind", DRIVERS, ids=lambda kind: kind.binding)
@pytest.mark.parametrize(("version", "served"), [("1.0", True), ("1.0.1", True), ("0.3", False), ("", False)])
async def test_the_version_may_come_as_a_query_parameter(
    kind: type[Driver], bridge: Running, client: httpx2.AsyncClient, version: str, served: bool
) -> None:
    request = kind(client, bridge.base_url).request("ListTasks", {})
    del request.headers["A2A-Version"]
    request.url = request.url.copy_merge_params({"A2A-Version": version})
    body = (await client.send(request)).json()
    assert ("error" not in body) is served


@pytest.mark.proves("a2a-3.6.1-version-query")
async def test_the_header_counts_before_the_query_parameter(rpc: JsonRpcDriver) -> None:
    request = rpc.with_headers(A2A_Version="0.3").request("ListTasks", {})
    request.url = request.url.copy_merge_params({"A2A-Version": "1.0"})
    answer = rpc.answer_from(await rpc.client.send(request))
    assert answer.fault
    assert answer.fault.reason == "METHOD_NOT_FOUND"


# Generations


@pytest.mark.proves("map-generations")
@pytest.mark.parametrize("other", EVERY_DRIVER, ids=name_of)
@pytest.mark.parametrize("one", EVERY_DRIVER, ids=name_of)
async def test_a_task_that_one_generation_began_is_answered_and_read_in_another(
    one: type[Driver], other: type[Driver], bridge: Running, client: httpx2.AsyncClient
) -> None:
    begun, ended = one(client, bridge.base_url), other(client, bridge.base_url)
    task = await begun.send(call_part("add", a=1))
    assert state_of(task) == "INPUT_REQUIRED"
    done = await ended.send({"data": {"b": 2}}, taskId=task["id"])
    assert (done["id"], state_of(done)) == (task["id"], "COMPLETED")
    assert await begun.get(task["id"]) == await ended.get(task["id"]) == done


@pytest.mark.proves("map-merged-card")
async def test_the_card_is_also_at_the_path_of_clients_before_0_3(
    bridge: Running, client: httpx2.AsyncClient
) -> None:
    card, older = [await client.get(f"{bridge.base_url}{path}") for path in (CARD, OLDER_CARD)]
    assert (older.status_code, older.content, older.headers) == (200, card.content, card.headers)


@pytest.mark.proves("map-merged-card")
async def test_a_card_of_1_0_only_omits_0_3_although_0_3_is_answered() -> None:
    async with configured(OlderJsonRpcDriver, profile=profile_with(card={"legacy_card": False})) as driver:
        shown = (await driver.client.get(f"{driver.base_url}{CARD}")).json()
        assert {one["protocolVersion"] for one in shown["supportedInterfaces"]} == {"1.0"}
        assert {"url", "preferredTransport", "protocolVersion", "additionalInterfaces"}.isdisjoint(shown)
        assert (await driver.client.get(f"{driver.base_url}{OLDER_CARD}")).status_code == 404
        assert state_of(await driver.send(ECHO)) == "COMPLETED"


@pytest.mark.parametrize("kind", [OlderJsonRpcDriver, OlderHttpJsonDriver], ids=name_of)
@pytest.mark.proves("a2a03-3.2.3-rest")
async def test_0_3_has_a_header_of_its_own_for_extensions(
    kind: type[Driver], bridge: Running, client: httpx2.AsyncClient
) -> None:
    speaking = kind(client, bridge.base_url).with_headers(a2a_extensions=f"urn:other, {EXTENSION}")
    answer = await speaking.answer("SendMessage", message(ECHO))
    assert answer.http.headers["X-A2A-Extensions"] == EXTENSION
    assert "A2A-Extensions" not in answer.http.headers
    async with speaking.stream("SendStreamingMessage", **message(ECHO)) as events:
        await events.rest()
    assert events.headers["X-A2A-Extensions"] == EXTENSION


# Extensions


@pytest.mark.proves("a2a-4.6-extensions", "a2a-9.2-headers", "a2a-11.2-headers", "a2a-4.6.3-version")
@pytest.mark.parametrize(
    ("asked", "active"),
    [
        (EXTENSION, EXTENSION),
        (f"urn:other:1, {EXTENSION} ,urn:other:2", EXTENSION),
        ("urn:other:1", None),
        (f"{EXTENSION}x", None),
        (EXTENSION.replace("v1", "v2"), None),
        ("", None),
    ],
)
async def test_an_extension_is_active_and_echoed_when_asked_for(
    driver: Driver, asked: str, active: str | None
) -> None:
    asking = driver.with_headers(A2A_Extensions=asked)
    answer = await asking.answer("SendMessage", message(call_part("every-block")))
    assert answer.http.headers.get("A2A-Extensions") == active
    assert (BLOCK in answer.http.text) is (active is not None)
    async with asking.stream("SendStreamingMessage", **message(call_part("every-block"))) as events:
        await events.rest()
    assert events.headers.get("A2A-Extensions") == active
    assert (BLOCK.encode() in events.raw) is (active is not None)


@pytest.mark.proves("a2a-4.6-extensions", "a2a-9.2-headers", "a2a-11.2-headers")
async def test_an_extension_in_two_header_lines_is_found(rpc: JsonRpcDriver) -> None:
    request = rpc.request("ListTasks", {})
    lines = [("A2A-Extensions", "urn:other:1"), ("a2a-EXTENSIONS", EXTENSION)]
    request.headers = httpx2.Headers([*request.headers.multi_items(), *lines])
    assert (await rpc.client.send(request)).headers["A2A-Extensions"] == EXTENSION


@pytest.mark.proves("a2a-4.6-extensions")
async def test_every_way_to_read_a_task_hides_metadata_of_inactive_extensions(driver: Driver) -> None:
    """The same task, read with the extension and without it."""
    active = driver.with_headers(A2A_Extensions=EXTENSION)
    params = message(call_part("every-block"), contextId=f"gate-{driver.binding}")
    task = (await active.call("SendMessage", **params))["task"]
    context = {"contextId": task["contextId"], "includeArtifacts": True}
    for operation, asked in (
        ("GetTask", {"id": task["id"]}),
        ("ListTasks", context),
        ("SendMessage", params),
    ):
        assert BLOCK in (await active.answer(operation, asked)).http.text
        plain = (await driver.answer(operation, asked)).http.text
        assert BLOCK not in plain
        assert f"{EXTENSION}/skill" in plain
    async with driver.stream("SendStreamingMessage", **params) as events:
        await events.rest()
    assert BLOCK.encode() not in events.raw


# Errors


async def _ended(driver: Driver) -> str:
    return str((await driver.send(ECHO))["id"])


Case = tuple[str, Callable[[Driver], Any], int, int, str, str]

ERRORS: Final[list[Case]] = [
    ("GetTask", lambda _: {"id": NOBODYS}, -32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
    ("CancelTask", _ended, -32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
    *[
        (
            operation,
            lambda _: {"taskId": NOBODYS, "id": "c", "url": "https://hooks.example.com"},
            -32003,
            400,
            "FAILED_PRECONDITION",
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        )
        for operation in PUSH_OPERATIONS
    ],
    ("SubscribeToTask", _ended, -32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
    ("GetExtendedAgentCard", lambda _: {}, -32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
    (
        "SendMessage",
        lambda _: message(call_part("add", a=1, b=2), configuration={"acceptedOutputModes": ["image/png"]}),
        -32005,
        400,
        "INVALID_ARGUMENT",
        "CONTENT_TYPE_NOT_SUPPORTED",
    ),
    (
        "SendMessage",
        lambda _: message(ECHO, {"raw": "AAEC", "mediaType": "application/x-demo"}),
        -32005,
        400,
        "INVALID_ARGUMENT",
        "CONTENT_TYPE_NOT_SUPPORTED",
    ),
    ("SendMessage", lambda _: {}, -32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
    ("SendStreamingMessage", lambda _: {}, -32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
    ("ListTasks", lambda _: {"pageSize": 0}, -32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
    ("GetTask", lambda _: {"id": "\0"}, -32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
    ("ListTasks", lambda _: {"contextId": "\0"}, -32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
]


@pytest.mark.proves("a2a-9.5-errors", "a2a-11.6-errors", "a2a-3.3.2-errors")
@pytest.mark.parametrize("case", ERRORS, ids=lambda case: f"{case[0]}-{case[5]}")
async def test_every_kind_of_error_has_its_code_and_status(driver: Driver, case: Case) -> None:
    operation, make, code, status, rpc_status, reason = case
    params = make(driver)
    if not isinstance(params, dict):
        params = {"id": await params}
    answer = await driver.answer(operation, params)
    assert answer.fault
    assert answer.fault.reason == reason
    assert answer.fault.message
    if driver.binding == "JSONRPC":
        assert (answer.http.status_code, answer.fault.code) == (200, code)
        assert answer.http.json()["id"] == "a-1"
    else:
        assert (answer.http.status_code, answer.http.json()["error"]["status"]) == (status, rpc_status)


@pytest.mark.proves("a2a-9.5-errors", "a2a-11.6-errors")
async def test_an_error_about_a_task_names_it(driver: Driver) -> None:
    ended = await _ended(driver)
    for operation, task_id in (("GetTask", NOBODYS), ("CancelTask", ended), ("SubscribeToTask", ended)):
        fault = await driver.refused(operation, id=task_id)
        assert fault.details[0]["metadata"] == {"taskId": task_id}


@pytest.mark.proves("map-overload", "a2a-9.5-errors", "a2a-11.6-errors")
@pytest.mark.parametrize("kind", DRIVERS, ids=lambda kind: kind.binding)
async def test_a_call_beyond_the_limit_is_refused_with_503_and_retry_after(kind: type[Driver]) -> None:
    profile = profile_with(run={"concurrency": 1, "queue": 1})
    async with configured(kind, profile=profile) as driver, driver.working(WAIT) as (task_id, _):
        waiting = await driver.send(WAIT, configuration={"returnImmediately": True})
        for operation in ("SendMessage", "SendStreamingMessage"):
            answer = await driver.answer(operation, message(ECHO, contextId="refused"))
            assert answer.fault
            assert (answer.http.status_code, answer.fault.reason) == (503, "OVERLOADED")
            assert int(answer.http.headers["Retry-After"]) > 0
        assert await driver.listed(contextId="refused") == []
        assert state_of(await driver.cancel(waiting["id"])) == "CANCELED"
        await driver.cancel(task_id)
        assert state_of(await driver.send(ECHO)) == "COMPLETED"


@pytest.mark.proves("a2a-9.5-errors", "a2a-11.6-errors")
@pytest.mark.parametrize("kind", DRIVERS, ids=lambda kind: kind.binding)
async def test_an_internal_error_reveals_no_details(
    kind: type[Driver], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: str, caller: object) -> None:
        raise RuntimeError("secret detail")

    async def work(job: Job) -> None:
        await say(job, TaskState.COMPLETED)

    async with serving(work) as (url, engine), new_client() as client:
        engine._agent.plan = broken  # type: ignore[method-assign, assignment]
        answer = await kind(client, url).answer("SendMessage", message(ECHO))
    assert answer.fault
    assert answer.fault.reason == "INTERNAL"
    assert answer.http.status_code == (200 if kind is JsonRpcDriver else 500)
    assert "secret" not in answer.http.text
    assert "a request failed" in caplog.text


# The JSON-RPC envelope


@pytest.mark.proves("a2a-9.1-jsonrpc", "a2a-14.1.1-utf8")
@pytest.mark.parametrize(
    ("body", "code", "request_id"),
    [
        ("{", -32700, None),
        ("", -32700, None),
        ('{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"a":NaN}}', -32700, None),
        ('{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"a":"\\ud800"}}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700, None),
        ("[" * 5000, -32700, None),
        ('[{"jsonrpc":"2.0","id":1,"method":"ListTasks"}]', -32600, None),
        ("[]", -32600, None),
        ('"ListTasks"', -32600, None),
        ("null", -32600, None),
        ('{"jsonrpc":"2.0","method":"ListTasks"}', -32600, None),
        ('{"jsonrpc":"2.0","id":null,"method":"ListTasks"}', -32600, None),
        ('{"jsonrpc":"2.0","id":true,"method":"ListTasks"}', -32600, None),
        ('{"jsonrpc":"2.0","id":{},"method":"ListTasks"}', -32600, None),
        ('{"jsonrpc":"2.0","id":[1],"method":"ListTasks"}', -32600, None),
        ('{"jsonrpc":"1.0","id":7,"method":"ListTasks"}', -32600, 7),
        ('{"id":"a","method":"ListTasks"}', -32600, "a"),
        ('{"jsonrpc":"2.0","id":7}', -32600, 7),
        ('{"jsonrpc":"2.0","id":7,"method":5}', -32600, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"message/send","params":{}}', -32601, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"listtasks"}', -32601, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"ListTasks","params":[]}', -32602, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"ListTasks","params":"all"}', -32602, 7),
    ],
)
async def test_an_invalid_request_is_refused_with_its_id(
    rpc: JsonRpcDriver, body: str | bytes, code: int, request_id: Any
) -> None:
    headers = {**rpc.headers, "Content-Type": "application/json"}
    response = await rpc.client.post(rpc.base_url, content=body, headers=headers)
    answer = rpc.answer_from(response)
    assert answer.fault
    assert (response.status_code, answer.fault.code, response.json()["id"]) == (200, code, request_id)


@pytest.mark.proves("a2a-9.1-jsonrpc", "a2a01-6.11.2-response")
@pytest.mark.parametrize("request_id", ["", "x\u2028", 0, -1, 2**53, 1.5, "1"], ids=repr)
@pytest.mark.parametrize("params", [{}, {"params": None}, {"params": {}}], ids=str)
async def test_an_id_is_given_back_as_it_came(
    rpc: JsonRpcDriver, request_id: Any, params: dict[str, Any]
) -> None:
    body = {"jsonrpc": "2.0", "id": request_id, "method": "ListTasks", **params}
    response = await rpc.client.post(rpc.base_url, json=body, headers=rpc.headers)
    assert (response.json()["id"], "result" in response.json()) == (request_id, True)
    assert type(response.json()["id"]) is type(request_id)


# What is taken


def nested(levels: int) -> Any:
    """Arrays within arrays."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.proves("web-json")
@pytest.mark.parametrize(("levels", "taken"), [(64, True), (65, False), (150, False), (100_000, False)])
async def test_json_that_is_nested_too_deeply_is_refused(driver: Driver, levels: int, taken: bool) -> None:
    around = 5 if driver.binding == "JSONRPC" else 4  # from the envelope down to the part
    request = driver.request("SendMessage", message(ECHO, {"data": "here"}))
    inner = levels - around
    content = request.content.replace(b'"here"', b"[" * inner + b"]" * inner)
    headers = {**driver.headers, "Content-Type": "application/json"}
    response = await driver.client.post(request.url, content=content, headers=headers)
    fault = driver.answer_from(response).fault
    if taken:
        assert fault is None
    else:
        assert fault
        # What no parser of ours gets through is no JSON; both are the client's fault.
        assert fault.reason in ("INVALID_REQUEST", "PARSE_ERROR")


@pytest.mark.proves("web-json")
@pytest.mark.parametrize("kind", DRIVERS, ids=lambda kind: kind.binding)
async def test_the_profile_limits_bodies_parts_and_depth(kind: type[Driver]) -> None:
    profile = profile_with(
        requests={"body_limit_bytes": 20_000, "parts": 3, "json_depth": 10, "json_values": 500}
    )
    async with configured(kind, profile=profile) as driver:
        parts = [{"text": "a"}] * 2
        assert state_of(await driver.send(ECHO, *parts)) == "COMPLETED"
        fault = await driver.refused("SendMessage", **message(ECHO, *parts, {"text": "one more"}))
        assert (fault.reason, fault.fields) == ("INVALID_PARAMS", {"message.parts"})
        fault = await driver.refused("SendMessage", **message(ECHO, {"data": nested(10)}))
        assert fault.reason == "INVALID_REQUEST"
        fault = await driver.refused("SendMessage", **message(ECHO, {"data": [0] * 500}))
        assert (fault.reason, "500 values" in fault.message) == ("PAYLOAD_TOO_LARGE", True)
        large = message(call_part("echo", text="x" * 20_000))
        answer = await driver.answer("SendMessage", large)
        assert answer.fault
        assert (answer.http.status_code, answer.fault.reason) == (413, "PAYLOAD_TOO_LARGE")
        assert "20000 bytes" in answer.fault.message


@pytest.mark.proves("web-json")
@pytest.mark.parametrize("values", [b"{}," * 5_000_000, b"0," * 8_000_000, b'"",' * 5_000_000], ids=len)
@pytest.mark.smoke("JSONRPC-15000000_0", "HTTP+JSON-16000000")
async def test_a_body_of_millions_of_values_is_refused_before_it_is_parsed(
    driver: Driver, values: bytes
) -> None:
    request = driver.request("SendMessage", message(ECHO, {"data": ["here"]}))
    content = request.content.replace(b'"here"', values[:-1])
    headers = {**driver.headers, "Content-Type": "application/json"}
    answer = driver.answer_from(await driver.client.post(request.url, content=content, headers=headers))
    assert answer.fault
    assert (answer.http.status_code, answer.fault.reason) == (413, "PAYLOAD_TOO_LARGE")
    assert "250000 values" in answer.fault.message


@pytest.mark.proves("web-auth")
async def test_two_headers_that_decide_who_calls_are_refused(driver: Driver) -> None:
    request = driver.request("ListTasks", {})
    tokens = [("Authorization", "Bearer token-a"), ("Authorization", "Bearer token-b")]
    twice = httpx2.Headers([*request.headers.multi_items(), *tokens])
    asked = httpx2.Request(request.method, request.url, headers=twice, content=request.content)
    answer = driver.answer_from(await driver.client.send(asked))
    assert answer.fault
    assert (answer.http.status_code, answer.fault.reason) == (400, "INVALID_REQUEST")
    assert answer.fault.message == "The header authorization is sent more than once"


@pytest.mark.proves("web-json")
async def test_a_long_name_is_cut_in_an_error(rpc: JsonRpcDriver) -> None:
    name = "\x01" * 1_000_000
    body = {"jsonrpc": "2.0", "id": 1, "method": name, "params": {}}
    response = await rpc.client.post(rpc.base_url, json=body, headers=rpc.headers)
    assert response.json()["error"]["message"] == f"There is no method {name[:200] + '...'!r}"


@pytest.mark.proves("web-json")
@pytest.mark.smoke("JSONRPC")
async def test_a_string_of_megabytes_is_accepted_whatever_it_holds(driver: Driver) -> None:
    for said in ("QUJD" * 3_900_000, ',":[{' * 2_500_000):
        task = await driver.send(call_part("echo", text=said))
        assert state_of(task) == "COMPLETED"


@pytest.mark.proves("web-json")
@pytest.mark.parametrize("kind", DRIVERS, ids=lambda kind: kind.binding)
async def test_a_body_without_a_length_is_bounded_as_well(kind: type[Driver]) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"jsonrpc": "2.0", "message": "'
        for _ in range(100):
            yield b"x" * 1000
        yield b'"}'

    async with configured(kind, profile=profile_with(requests={"body_limit_bytes": 20_000})) as driver:
        url = driver.request("SendMessage", {}).url
        headers = {**driver.headers, "Content-Type": "application/json"}
        response = await driver.client.post(url, content=chunks(), headers=headers)
        assert response.status_code == 413


@pytest.mark.proves("web-json")
@pytest.mark.parametrize(
    ("content_type", "taken"),
    [
        ("application/json", True),
        ("application/a2a+json", True),
        ("Application/JSON; charset=utf-8", True),
        ("text/plain", False),
        ("application/x-www-form-urlencoded", False),
        ("multipart/form-data; boundary=x", False),
        ("application/jsonp", False),
        (None, False),
    ],
)
async def test_only_json_is_accepted(driver: Driver, content_type: str | None, taken: bool) -> None:
    request = driver.request("SendMessage", message(ECHO))
    del request.headers["content-type"]
    if content_type is not None:
        request.headers["content-type"] = content_type
    answer = driver.answer_from(await driver.client.send(request))
    if taken:
        assert answer.fault is None
    else:
        assert answer.fault
        assert (answer.http.status_code, answer.fault.reason) == (415, "CONTENT_TYPE_NOT_SUPPORTED")
        assert answer.fault.code == (-32005 if isinstance(driver, JsonRpcDriver) else 415)


@pytest.mark.proves("a2a-11.1-accept")
async def test_a_client_that_accepts_plain_json_gets_plain_json_and_plain_errors(
    bridge: Running, client: httpx2.AsyncClient
) -> None:
    driver = HttpJsonDriver(client, bridge.base_url)

    async def answered(operation: str, *accept: str, **params: Any) -> tuple[int, str, str | None]:
        request = driver.request(operation, params)
        del request.headers["accept"]
        request.headers = httpx2.Headers(
            [*request.headers.multi_items(), *(("Accept", one) for one in accept)]
        )
        async with driver.client.stream(
            request.method, request.url, headers=request.headers, content=request.content
        ) as response:
            await response.aread()
            return response.status_code, response.headers["content-type"], response.headers.get("vary")

    plain, own = "application/json", "application/a2a+json"
    assert await answered("SendMessage", plain, **message(ECHO)) == (200, plain, "Accept")
    assert await answered("GetTask", "text/html", plain, id=NOBODYS) == (404, plain, "Accept")
    assert await answered("SendMessage", plain, message="hello") == (400, plain, "Accept")
    assert await answered("ListTasks", contextId=NOBODYS) == (200, own, "Accept")
    assert await answered("ListTasks", plain, own, contextId=NOBODYS) == (200, own, "Accept")
    streamed = await answered("SendStreamingMessage", plain, **message(ECHO))
    assert streamed == (200, "text/event-stream", None)


@pytest.mark.proves("a2a-5.7-unknown")
async def test_a_tenant_is_accepted_and_ignored(driver: Driver) -> None:
    params = {**message(ECHO, contextId=f"tenant-{driver.binding}"), "tenant": "blue"}
    task = (await driver.call("SendMessage", **params))["task"]
    assert (await driver.get(task["id"], tenant="green"))["id"] == task["id"]
    assert await driver.listed(tenant="green", contextId=task["contextId"]) == [task["id"]]
    waiting = await driver.send(call_part("add", a=1))
    async with driver.stream("SubscribeToTask", id=waiting["id"], tenant="red") as events:
        assert shape_of([await events.next()]) == ["task INPUT_REQUIRED"]
    assert state_of(await driver.call("CancelTask", id=waiting["id"], tenant="red")) == "CANCELED"


# Who is let in


@pytest.mark.proves("web-host")
@pytest.mark.parametrize(
    ("host", "let_in"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("LocalHost.:8080", True),
        ("[::1]:80", True),
        ("192.168.7.7:99", True),
        ("evil.example.com", False),
        ("localhost.evil.example.com", False),
        ("127.0.0.1.nip.example.com", False),
        ("", False),
    ],
)
async def test_an_unknown_host_is_refused_everywhere(driver: Driver, host: str, let_in: bool) -> None:
    named = driver.with_headers(Host=host)
    card = await driver.client.get(f"{driver.base_url}{CARD}", headers=named.headers)
    assert card.status_code == (200 if let_in else 421)
    answer = await named.answer("ListTasks", {"contextId": NOBODYS})  # not all that other tests have left
    if let_in:
        assert answer.fault is None
    else:
        assert answer.fault
        assert (answer.http.status_code, answer.fault.reason) == (421, "MISDIRECTED")


@pytest.mark.proves("web-host")
async def test_a_foreign_origin_is_refused_everywhere(driver: Driver) -> None:
    for origin in ("https://evil.example.com", "null", "http://127.0.0.1:1", ""):
        page = driver.with_headers(Origin=origin)
        card = await driver.client.get(f"{driver.base_url}{CARD}", headers=page.headers)
        answer = await page.answer("SendMessage", message(ECHO, contextId="from-a-page"))
        assert answer.fault
        assert (card.status_code, answer.http.status_code, answer.fault.reason) == (403, 403, "FORBIDDEN")
        assert not [name for name in answer.http.headers if name.startswith("access-control")]
    assert await driver.listed(contextId="from-a-page") == []
    own = driver.base_url.partition("/agents")[0]
    assert "tasks" in await driver.with_headers(Origin=own).call("ListTasks")


@pytest.mark.proves("web-host")
async def test_a_preflight_request_is_refused(driver: Driver) -> None:
    headers = {"Origin": "https://evil.example.com", "Access-Control-Request-Method": "POST"}
    for path in ("", "/message:send"):
        response = await driver.client.options(f"{driver.base_url}{path}", headers=headers)
        assert response.status_code in (403, 405)
        assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.proves("web-host", "card-base")
@pytest.mark.parametrize("kind", DRIVERS, ids=lambda kind: kind.binding)
async def test_configured_hosts_and_the_public_host_are_accepted(kind: type[Driver]) -> None:
    public = "https://tools.example.com/base"
    async with configured(kind, hosts=frozenset({"box.lan"}), public_url=public) as driver:
        for headers in (
            {"Host": "box.lan:8080"},
            {"Host": "tools.example.com"},
            {"Host": "tools.example.com", "Origin": "https://tools.example.com"},
        ):
            assert "tasks" in await driver.with_headers(**headers).call("ListTasks")
        assert (await driver.with_headers(Host="other.lan").refused("ListTasks")).reason == "MISDIRECTED"


# The card


async def card_of(client: httpx2.AsyncClient, base_url: str, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = await client.get(f"{base_url}{CARD}", headers=named)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    return response.json()


def urls_on(card: Any) -> set[str]:
    return {interface["url"] for interface in card["supportedInterfaces"]}


@pytest.mark.proves(
    "a2a-4.4.1-card",
    "a2a-8.3-interfaces",
    "a2a-8.1-card",
    "a2a-5.2-declared",
    "a2a-14.3-well-known",
    "a2a-3.3.4-streaming",
)
async def test_the_card_has_all_that_is_required_and_declares_both_bindings(
    bridge: Running, client: httpx2.AsyncClient
) -> None:
    card = await card_of(client, bridge.base_url)
    for name in ("name", "description", "version"):
        assert isinstance(card[name], str)
        assert card[name]
    for name in ("supportedInterfaces", "defaultInputModes", "defaultOutputModes", "skills"):
        assert isinstance(card[name], list)
        assert card[name]
    assert [(i["protocolBinding"], i["protocolVersion"]) for i in card["supportedInterfaces"]] == [
        ("JSONRPC", "1.0"),
        ("HTTP+JSON", "1.0"),
        ("JSONRPC", "0.3"),
        ("HTTP+JSON", "0.3"),
    ]
    for skill in card["skills"]:
        assert skill["id"]
        assert skill["name"]
        assert skill["description"]
        assert skill["tags"]
    capabilities = card["capabilities"]
    assert capabilities["streaming"] is True
    assert not capabilities.get("pushNotifications")
    assert not capabilities.get("extendedAgentCard")
    (extension,) = capabilities["extensions"]
    assert (extension["uri"], extension.get("required", False)) == (EXTENSION, False)


@pytest.mark.proves("a2a-8.3-interfaces", "card-base", "a2a-5.2-declared")
async def test_what_the_card_declares_is_where_the_agent_answers(
    bridge: Running, client: httpx2.AsyncClient
) -> None:
    card = await card_of(client, bridge.base_url)
    kinds = {kind.binding: kind for kind in DRIVERS}
    for interface in card["supportedInterfaces"][: len(kinds)]:
        driver = kinds[interface["protocolBinding"]](client, interface["url"])
        assert state_of(await driver.send(ECHO)) == "COMPLETED"


@pytest.mark.proves("card-base")
async def test_the_root_is_an_alias_that_the_card_never_names(
    bridge: Running, client: httpx2.AsyncClient
) -> None:
    assert urls_on(await card_of(client, bridge.root_url)) == {bridge.base_url}
    for kind in DRIVERS:
        assert state_of(await kind(client, bridge.root_url).send(ECHO)) == "COMPLETED"


@pytest.mark.proves("card-base")
@pytest.mark.parametrize(
    ("headers", "base"),
    [
        ({"X_Forwarded_Prefix": "/tools/"}, "http://{host}/tools"),
        ({"X_Forwarded_Proto": "https"}, "https://{host}"),
        ({"X_Forwarded_Host": "localhost:9"}, "http://localhost:9"),
        ({"X_Forwarded_Host": "evil.example.com"}, "http://{host}"),
        ({"X_Forwarded_Proto": "javascript"}, "http://{host}"),
        ({"X_Forwarded_Prefix": "//evil.example.com"}, "http://{host}"),
        ({"X_Forwarded_Prefix": "@evil.example.com"}, "http://{host}"),
        (
            {"X_Forwarded_Proto": "https, http", "X_Forwarded_Prefix": "/a, /b"},
            "https://{host}/a",
        ),
    ],
    ids=str,
)
async def test_a_proxy_on_this_machine_says_how_the_card_is_reached(
    bridge: Running, client: httpx2.AsyncClient, headers: dict[str, str], base: str
) -> None:
    host = bridge.root_url.removeprefix("http://")
    expected = base.format(host=host) + bridge.bridge.path
    assert urls_on(await card_of(client, bridge.base_url, **headers)) == {expected}
    assert urls_on(await card_of(client, bridge.root_url, **headers)) == {expected}


@pytest.mark.proves("card-base")
async def test_the_public_url_wins_over_all_headers() -> None:
    async with configured(JsonRpcDriver, public_url="https://tools.example.com/base") as driver:
        card = await card_of(
            driver.client, driver.base_url, X_Forwarded_Prefix="/x", X_Forwarded_Proto="http"
        )
    path = driver.base_url.partition("/agents")[2]
    assert urls_on(card) == {f"https://tools.example.com/base/agents{path}"}


@pytest.mark.proves("a2a-8.6-cache")
async def test_the_card_can_be_cached_and_revalidated(bridge: Running, client: httpx2.AsyncClient) -> None:
    url = f"{bridge.base_url}{CARD}"
    first = await client.get(url)
    assert "max-age=60" in first.headers["Cache-Control"]
    etag = first.headers["ETag"]
    for held in (etag, f"W/{etag}", f'"other", {etag}'):
        again = await client.get(url, headers={"If-None-Match": held})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag)
        assert "max-age" in again.headers["Cache-Control"]
    changed = await client.get(url, headers={"If-None-Match": '"other"'})
    assert (changed.status_code, changed.content) == (200, first.content)
    elsewhere = await client.get(url, headers={"X-Forwarded-Prefix": "/p", "If-None-Match": etag})
    assert elsewhere.status_code == 200


@pytest.mark.proves("a2a-8.6-cache")
async def test_the_card_accepts_head_and_no_other_verbs(bridge: Running, client: httpx2.AsyncClient) -> None:
    url = f"{bridge.base_url}{CARD}"
    head = await client.head(url)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["ETag"] == (await client.get(url)).headers["ETag"]
    for verb in ("POST", "PUT", "DELETE"):
        response = await client.request(verb, url)
        assert (response.status_code, response.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.proves("card-changes", "mcp-changed", "a2a-8.6-cache")
async def test_the_card_and_its_tag_follow_the_tools() -> None:
    profile = profile_with(server={"settle_seconds": 0.0})
    async with configured(JsonRpcDriver, profile=profile) as driver:
        url = f"{driver.base_url}{CARD}"
        before = await driver.client.get(url)
        await driver.send(call_part("grow"))
        with anyio.fail_after(PATIENCE_SECONDS):
            held = {"If-None-Match": before.headers["ETag"]}
            while (after := await driver.client.get(url, headers=held)).status_code == 304:
                pass
        names = {skill["id"] for skill in after.json()["skills"]}
        assert names - {skill["id"] for skill in before.json()["skills"]} == {"grown-1"}
        assert state_of(await driver.send(call_part("grown-1"))) == "COMPLETED"


# Paths and verbs


@pytest.mark.proves("a2a-11.3-paths", "a2a-11.6-errors")
@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/tasks/",
        "/tasks/a/b",
        "/message:unknown",
        "/message",
        "/v1/message:send",
        "/blue/tasks",
        "/tasks/a/pushNotificationConfigs/b/c",
    ],
)
async def test_an_unknown_path_is_not_found(bridge: Running, client: httpx2.AsyncClient, path: str) -> None:
    for verb in ("GET", "POST"):
        response = await client.request(verb, f"{bridge.base_url}{path}", headers=VERSION)
        fault = HttpJsonDriver(client, "").answer_from(response).fault
        assert fault
        assert (response.status_code, fault.reason) == (404, "METHOD_NOT_FOUND")


@pytest.mark.proves("a2a-11.3-paths", "a2a-11.6-errors")
@pytest.mark.parametrize(
    ("verb", "path", "allowed"),
    [
        ("GET", "/message:send", "POST"),
        ("GET", "/message:stream", "POST"),
        ("POST", "/tasks", "GET"),
        ("DELETE", "/tasks/x", "GET"),
        ("PUT", "/tasks/x:cancel", "GET, POST"),
        ("DELETE", "/tasks/x/pushNotificationConfigs", "GET, POST"),
        ("POST", "/tasks/x/pushNotificationConfigs/y", "DELETE, GET"),
        ("POST", "/extendedAgentCard", "GET"),
        ("GET", "", "POST"),
        ("PUT", "", "POST"),
    ],
)
async def test_an_unsupported_verb_is_refused_with_the_supported_verbs(
    bridge: Running, client: httpx2.AsyncClient, verb: str, path: str, allowed: str
) -> None:
    response = await client.request(verb, f"{bridge.base_url}{path}", headers=VERSION)
    assert (response.status_code, response.headers["Allow"]) == (405, allowed)
    assert response.json()["error"]


@pytest.mark.proves("a2a-11.3-paths", "a2a-3.1.6-subscribe")
@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_subscribe_takes_get_and_post(bridge: Running, client: httpx2.AsyncClient, verb: str) -> None:
    driver = HttpJsonDriver(client, bridge.base_url)
    waiting, ended = await driver.send(call_part("add", a=1)), await driver.send(ECHO)
    with anyio.fail_after(PATIENCE_SECONDS):
        request = client.build_request(
            verb, f"{bridge.base_url}/tasks/{waiting['id']}:subscribe", headers=VERSION
        )
        response = await client.send(request, stream=True)
        assert response.headers["content-type"] == "text/event-stream"
        first = await anext(response.aiter_lines())
        assert json.loads(first.removeprefix("data: ")) == {"task": waiting}
        await response.aclose()
    response = await client.request(verb, f"{bridge.base_url}/tasks/{ended['id']}:subscribe", headers=VERSION)
    assert response.status_code == 400


@pytest.mark.proves("a2a-11.3-paths")
async def test_the_path_wins_over_the_body_and_the_query(bridge: Running, client: httpx2.AsyncClient) -> None:
    driver = HttpJsonDriver(client, bridge.base_url)
    one, other = await driver.send(ECHO), await driver.send(ECHO)
    url = f"{bridge.base_url}/tasks/{one['id']}"
    got = await client.get(url, params={"id": other["id"], "future": "1"}, headers=VERSION)
    assert got.json()["id"] == one["id"]
    canceled = await client.post(f"{url}:cancel", json={"id": NOBODYS}, headers=VERSION)
    assert HttpJsonDriver(client, "").answer_from(canceled).fault.reason == "TASK_NOT_CANCELABLE"  # type: ignore[union-attr]


@pytest.mark.proves("a2a-11.3-paths", "a2a-5.7-required")
@pytest.mark.parametrize("body", ["[]", '"text"', "null", "5"])
async def test_a_body_that_is_not_an_object_is_refused(
    bridge: Running, client: httpx2.AsyncClient, body: str
) -> None:
    headers = {**VERSION, "Content-Type": "application/json"}
    response = await client.post(f"{bridge.base_url}/message:send", content=body, headers=headers)
    fault = HttpJsonDriver(client, "").answer_from(response).fault
    assert fault
    assert fault.reason == "INVALID_PARAMS"
