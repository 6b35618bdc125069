"""The system under test of the TCK: a wrapped server that does what its scenarios ask for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.conformance.tck.__main__ import system_under_test
from tests.conformance.tck.server import COMPLETES, tool_for, with_tool_named
from tests.support.running import Rpc, message, texts


@pytest.fixture
async def rpc() -> AsyncIterator[Rpc]:
    async with system_under_test() as url, httpx2.AsyncClient() as client:
        yield Rpc(client, url)


async def said(rpc: Rpc, message_id: str, text: str = "TCK", **fields: Any) -> Any:
    return await rpc.call("SendMessage", message({"text": text}, messageId=message_id, **fields))


async def test_a_message_id_says_what_the_agent_does(rpc: Rpc) -> None:
    for message_id, part in {
        "tck-complete-task-1": {"text": "Hello from TCK"},
        "tck-stream-001-1": {"text": "Hello from TCK"},
        "tck-artifact-text-1": {"text": "Generated text content"},
        "tck-artifact-file-1": {"raw": "dGNr", "mediaType": "text/plain", "filename": "output.txt"},
        "tck-artifact-file-url-1": {
            "url": "https://example.com/output.txt",
            "mediaType": "text/plain",
            "filename": "output.txt",
        },
        "tck-artifact-data-1": {"data": {"key": "value", "count": 42}},
    }.items():
        task = (await said(rpc, message_id))["task"]
        (found,) = task["artifacts"][0]["parts"]
        assert part.items() <= found.items()
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_the_agent_answers_with_a_message_and_rejects_where_a_scenario_asks_for_it(rpc: Rpc) -> None:
    answer = await said(rpc, "tck-message-response-1")
    assert texts(answer["message"]["parts"]) == ["Direct message response"]
    rejected = await said(rpc, "tck-reject-task-1")
    assert rejected["task"]["status"]["state"] == "TASK_STATE_REJECTED"


async def test_a_task_asks_on_until_an_answer_is_no_part_of_its_history(rpc: Rpc) -> None:
    task = (await said(rpc, "tck-input-required-1"))["task"]
    states = [task["status"]["state"]]
    for text in ("TCK history message 1", "TCK history message 2", "TCK complete after history"):
        # As the TCK does it: one id for all of them.
        told = await said(rpc, "tck-input-required-1", text, taskId=task["id"])
        states.append(told["task"]["status"]["state"])
    assert states == [*["TASK_STATE_INPUT_REQUIRED"] * 3, "TASK_STATE_COMPLETED"]


async def test_the_same_message_is_a_new_one_once_it_was_answered(rpc: Rpc) -> None:
    ids = {(await said(rpc, "tck-input-required-1"))["task"]["id"] for _ in range(3)}
    assert len(ids) == 3


def test_a_longer_beginning_is_looked_for_before_a_shorter_one() -> None:
    assert tool_for("tck-artifact-file-url-1") == "artifact_file_url"
    assert tool_for("tck-artifact-file-1") == "artifact_file"
    assert tool_for("anything") == COMPLETES


def test_a_request_is_told_the_tool_and_changed_in_nothing_else() -> None:
    asked = {"parts": [{"text": "x"}], "messageId": "tck-artifact-text-1"}
    named = {**asked, "metadata": {"skillId": "artifact_text"}}
    for around in (lambda inner: {"message": inner}, lambda inner: {"id": 1, "params": {"message": inner}}):
        assert json.loads(with_tool_named(json.dumps(around(asked)).encode())) == around(named)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{'message': 1}",
        b'{"message": []}',
        b'{"message": {}}',
        b'{"message": {"messageId": 7}}',
        b'{"params": []}',
        b'{"params": {"id": "tck-artifact-text"}}',
        b'{"message": {"messageId": "tck-artifact-text", "taskId": "1"}}',
        b'{"message": {"messageId": "tck-artifact-text", "metadata": 7}}',
    ],
)
def test_any_other_request_stays_as_it_is(body: bytes) -> None:
    assert with_tool_named(body) == body
