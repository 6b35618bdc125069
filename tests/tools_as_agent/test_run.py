"""A tool's run as the work of a task, against a server that behaves as badly as it is told to."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from bridge.translate.extensions.bridge import URI
from tests.support.running import Rpc, call_part, config_for, profile_with, raw_command, running, texts


@pytest.mark.proves("map-timeout")
async def test_a_call_that_takes_too_long_is_cancelled_on_the_server_and_failed() -> None:
    config = config_for(raw_command(), profile=profile_with(run={"call_timeout_seconds": 0.2}))
    async with running(config) as bridge, httpx2.AsyncClient() as http:
        rpc = Rpc(http, bridge.base_url)
        task = await rpc.send(call_part("wait"))
        assert task["status"]["state"] == "TASK_STATE_FAILED"
        assert texts(task["status"]["message"]["parts"]) == [
            "The tool gave no answer in 0.2 s and was cancelled"
        ]
        counted = await rpc.send(call_part("cancelled"))
        assert texts(counted["artifacts"][0]["parts"]) == ["1"]


@pytest.mark.proves("map-mcp-error", "map-is-error")
async def test_the_state_of_a_failed_call_tells_the_kind_of_failure() -> None:
    async with running(config_for(raw_command())) as bridge, httpx2.AsyncClient() as http:
        rpc = Rpc(http, bridge.base_url)
        failed = (await rpc.send(call_part("fail")))["status"]
        assert failed["state"] == "TASK_STATE_FAILED"
        assert texts(failed["message"]["parts"]) == ["it broke, and this is why"]
        assert failed["message"]["parts"][1]["mediaType"] == "image/png"
        error = {"code": -32099, "message": "not today", "data": {"until": "tomorrow"}}
        refused = (await rpc.send(call_part("refuse", code=-32099)))["status"]
        assert refused["state"] == "TASK_STATE_FAILED"
        assert refused["message"]["metadata"]["urn:mcp-a2a:tool:v1/peer"] == {"error": error}
        rejected = (await rpc.send(call_part("refuse", code=-32602)))["status"]
        assert rejected["state"] == "TASK_STATE_REJECTED"


@pytest.mark.proves("map-overload")
async def test_a_call_that_is_cancelled_while_it_waits_gives_its_place_back() -> None:
    profile = profile_with(run={"concurrency": 1, "queue": 1})
    async with running(config_for(raw_command(), profile=profile)) as bridge, httpx2.AsyncClient() as http:
        rpc = Rpc(http, bridge.base_url)
        at_once = {"returnImmediately": True}
        for _ in range(3):
            running_one = await rpc.send(call_part("wait"), configuration=at_once)
            waiting_one = await rpc.send(call_part("wait"), configuration=at_once)
            for task in (waiting_one, running_one):
                ended = await rpc.call("CancelTask", {"id": task["id"]})
                assert ended["status"]["state"] == "TASK_STATE_CANCELED"
        assert (await rpc.send(call_part("echo", text="free")))["status"]["state"] == "TASK_STATE_COMPLETED"


SUM_TEXT, SUM_DATA = {"text": '{"sum": 3}'}, {"data": {"sum": 3}, "mediaType": "application/json"}


@pytest.mark.proves("map-content")
@pytest.mark.parametrize(
    ("modes", "parts"),
    [
        ([], [SUM_TEXT]),
        (["text/plain"], [SUM_TEXT]),
        (["application/json"], [SUM_DATA]),
        (["text", "application/json"], [SUM_TEXT, SUM_DATA]),
    ],
)
async def test_repeated_content_is_stored_in_the_form_that_the_caller_accepts(
    modes: list[str], parts: list[dict[str, Any]]
) -> None:
    async with running(config_for(raw_command())) as bridge, httpx2.AsyncClient() as http:
        rpc = Rpc(http, bridge.base_url)
        task = await rpc.send(call_part("add", a=1, b=2), configuration={"acceptedOutputModes": modes})
        assert task["status"].keys() == {"state", "timestamp"}
        assert task["artifacts"][0]["parts"] == parts
        read = await rpc.call("GetTask", {"id": task["id"]})
        assert read["artifacts"][0]["parts"] == parts
        active = Rpc(http, bridge.base_url, {"A2A-Extensions": URI})
        whole = await active.send(call_part("add", a=1, b=2), configuration={"acceptedOutputModes": modes})
        assert [one.keys() - {"metadata"} for one in whole["artifacts"][0]["parts"]] == [
            SUM_TEXT.keys(),
            SUM_DATA.keys(),
        ]
