"""A2A extensions of an agent: activated as configured, with their metadata in `_meta` in both directions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from mcp import Client

from tests.support.mcp_wire import MODERN
from tests.support.recording_server import ECHO, Got, Json, RecordingServer
from tests.support.scripted_agent import scripted_agent
from tests.support.serving_file import serving_file

STAMP: Final = "https://example.com/stamp/v1"
OTHER: Final = "https://example.com/other/v1"
FACE: Final = """
[agents.clerk]
card = "{clerk}"
extensions = ["https://example.com/stamp/v1", "https://example.com/other/v1"]

[agents_as_tools.desk]
from = ["clerk"]
"""
WRAPPED: Final = """
[tool_servers.tools]
url = "{tools}"

[tools_as_agent.clerk]
from = ["tools"]
extensions = [{ uri = "https://example.com/stamp/v1" }]
"""

pytestmark = pytest.mark.proves("map-extension-metadata")


@asynccontextmanager
async def desk(folder: Path, text: str, mode: str = "auto", **places: str) -> AsyncIterator[Client]:
    """A host's client of the face."""
    with anyio.fail_after(30):
        async with (
            serving_file(folder, text, **places) as root,
            Client(f"{root}/mcp/desk", mode=mode) as client,
        ):
            yield client


def card_with(*uris: str) -> Json:
    """The fields of a card that declares these extensions."""
    return {"capabilities": {"streaming": True, "extensions": [{"uri": uri} for uri in uris]}}


def stamped(method: str, params: Json) -> list[Json]:
    """A task whose artifact and message each hold metadata of an extension."""
    artifact = {"artifactId": "a", "parts": [{"text": "done"}], "metadata": {STAMP: {"sold": 2}, OTHER: 1}}
    said = {
        "messageId": "m",
        "role": "ROLE_AGENT",
        "parts": [{"text": "yes"}],
        "metadata": {f"{STAMP}/end": 7},
    }
    status = {"state": "TASK_STATE_COMPLETED", "message": said}
    return [{"task": {"id": "t", "contextId": "c", "status": status, "artifacts": [artifact]}}]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_hosts_metadata_is_sent_with_the_message_and_the_agents_comes_back(
    mode: str, tmp_path: Path
) -> None:
    got: list[tuple[Json, Any]] = []

    def agent(method: str, params: Json) -> list[Json]:
        got.append(params["message"])
        return stamped(method, params)

    async with (
        scripted_agent(agent, card_with(STAMP)) as url,
        desk(tmp_path, FACE, mode, clerk=url) as client,
    ):
        (tool,) = [one for one in (await client.list_tools()).tools if not one.name.startswith("task_")]
        meta: Any = {STAMP: {"at": 1.5}, OTHER: "not on its card", "host/own": True}
        result = await client.call_tool(tool.name, {"message": "sell"}, meta=meta)
    assert [message["metadata"].get(STAMP) for message in got] == [{"at": 1.5}]
    assert [OTHER in message["metadata"] for message in got] == [False]
    assert [message["extensions"] for message in got] == [[STAMP]]
    assert result.meta is not None
    assert {key: result.meta.get(key) for key in (STAMP, f"{STAMP}/end", OTHER)} == {
        STAMP: {"sold": 2},
        f"{STAMP}/end": 7,
        OTHER: None,
    }


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_metadata_passes_through_two_bridges_to_a_tool_and_back(mode: str, tmp_path: Path) -> None:
    def echoed(got: Got) -> Json:
        meta = got.params.get("_meta", {})
        return {
            "resultType": "complete",
            "content": [{"type": "text", "text": "ok"}],
            "_meta": {STAMP: [meta.get(STAMP)]},
        }

    server = RecordingServer(MODERN, tools=[ECHO], answers={"tools/call": echoed})
    (tmp_path / "wrapped").mkdir()
    async with (
        server.serve() as tools,
        serving_file(tmp_path / "wrapped", WRAPPED, tools=tools) as root,
        desk(tmp_path, FACE, mode, clerk=f"{root}/agents/clerk") as client,
    ):
        meta: Any = {STAMP: {"at": [1.5, None]}}
        result = await client.call_tool("echo", {}, meta=meta)
    assert result.meta is not None
    assert result.meta[STAMP] == [{"at": [1.5, None]}]
