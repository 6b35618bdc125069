"""Requests that real clients send, on the raw wire: each row is from a public report."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.support.running import Running, config_for, raw_command, running

pytestmark = pytest.mark.proves("map-dialect")


@pytest.fixture(scope="module")
async def bridge() -> AsyncIterator[Running]:
    async with running(config_for(raw_command())) as bridge:
        yield bridge


def call(call_id: Any = 1, method: str = "ListTasks", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}


async def posted(bridge: Running, body: Any, path: str = "/", **headers: str) -> httpx2.Response:
    said = {"Content-Type": "application/json", "A2A-Version": "1.0", **headers}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with httpx2.AsyncClient(timeout=60) as http:
        return await http.post(f"{bridge.base_url}{path}", content=content, headers=said)


@pytest.mark.parametrize("call_id", ["a", "", 0, 7, -1, 2**53, "ä€😀", "x" * 500])
async def test_an_id_of_any_kind_comes_back_as_it_was(call_id: Any, bridge: Running) -> None:
    answer = (await posted(bridge, call(call_id))).json()
    assert answer["id"] == call_id
    assert "result" in answer


async def test_a_batch_is_refused_in_one_answer(bridge: Running) -> None:
    answer = (await posted(bridge, [call(1), call(2)])).json()
    assert answer["error"]["code"] == -32600


@pytest.mark.parametrize("version", ["1.0", "1.0.0", "1.0.7"])
async def test_a_version_is_known_with_its_patch(version: str, bridge: Running) -> None:
    assert "result" in (await posted(bridge, call(), **{"A2A-Version": version})).json()


@pytest.mark.parametrize("headers", [{"A2A-Version": ""}, {"A2A-Version": "0.3"}, {"A2A-Version": "0.3.0"}])
async def test_a_request_without_a_version_is_0_3(headers: dict[str, str], bridge: Running) -> None:
    answer = (await posted(bridge, call(method="tasks/get", id="none"), **headers)).json()
    assert answer["error"]["code"] == -32001


@pytest.mark.parametrize(
    "media_type", ["application/json", "application/json; charset=utf-8", "application/a2a+json"]
)
@pytest.mark.parametrize("path", ["/", ""])
async def test_a_body_is_json_under_each_of_its_names(media_type: str, path: str, bridge: Running) -> None:
    answer = await posted(bridge, call(), path, **{"Content-Type": media_type})
    assert "result" in answer.json()


@pytest.mark.parametrize("field", ["historyLength", "history_length"])
@pytest.mark.parametrize("number", [2, 2.0])
async def test_names_of_the_proto_and_floats_for_whole_numbers_are_read(
    field: str, number: float, bridge: Running
) -> None:
    answer = (await posted(bridge, call(method="GetTask", id="none", **{field: number}))).json()
    assert answer["error"]["code"] == -32001, answer


async def test_a_message_of_12_mib_is_taken(bridge: Running) -> None:
    part = {"raw": "A" * (12 * 1024 * 1024), "mediaType": "text/plain"}
    words = {"text": "hello", "raw": None, "url": None, "data": None}
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [words, part]}
    answer = (await posted(bridge, call(method="SendMessage", message=message))).json()
    assert answer["result"]["task"]["id"], answer.get("error")
