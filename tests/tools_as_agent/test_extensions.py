"""A2A extensions that an agent made of tools declares: on its card, required or not, and in calls of its tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from tests.support.drivers import HttpJsonDriver, JsonRpcDriver, message, new_client, state_of
from tests.support.limits import url_at
from tests.support.mcp_wire import LEGACY, MODERN
from tests.support.observed import in_row
from tests.support.recording_server import Got, Json, RecordingServer
from tests.support.running import listening
from tests.support.serving_file import serving_file

STAMP: Final = "https://example.com/stamp/v1"
PAY: Final = "https://github.com/google-agentic-commerce/ap2/tree/v0.1"
OTHER: Final = "https://example.com/other/v1"
FILE: Final = """
[tool_servers.shop]
url = "{shop}"

[tools_as_agent.shop]
from = ["shop"]
extensions = [
    { uri = "https://example.com/stamp/v1", description = "Times of the work", params = { zone = "UTC" } },
    { uri = "%s", required = %s, params = { roles = ["merchant"] } },
]
"""
BUY: Final[Json] = {
    "name": "buy",
    "inputSchema": {
        "type": "object",
        "properties": {"item": {"type": "string"}, "ap2.mandates.PaymentMandate": {"type": "object"}},
        "required": ["item"],
    },
}
MANDATE: Final[Json] = {
    "ap2.mandates.PaymentMandate": {"payment_mandate_contents": {"total": 12.5, "ids": [1, None]}}
}


@asynccontextmanager
async def shop(
    folder: Path, server: RecordingServer, *, is_required: bool = False
) -> AsyncIterator[tuple[JsonRpcDriver, HttpJsonDriver]]:
    """The agent of a shop's tools, over both bindings."""
    with anyio.fail_after(30):
        async with (
            server.serve() as url,
            serving_file(folder, FILE % (PAY, str(is_required).lower()), shop=url) as root,
            new_client() as client,
        ):
            yield JsonRpcDriver(client, f"{root}/agents/shop"), HttpJsonDriver(client, f"{root}/agents/shop")


def selling(version: str = MODERN, **meta: Any) -> RecordingServer:
    """A server whose results have this `_meta`, and data that is a mandate."""

    def sold(_: Got) -> Json:
        kept = {"resultType": "complete"} if version == MODERN else {}
        return {**kept, "content": [], "structuredContent": MANDATE, "_meta": {**meta}}

    return RecordingServer(version, tools=[BUY], answers={"tools/call": sold})


def asked(server: RecordingServer, *uris: str) -> list[Json]:
    """The metadata of these extensions in the `_meta` of each call."""
    calls = [got.params.get("_meta", {}) for got in server.of("tools/call")]
    return [{key: meta[key] for key in meta if key.startswith(uris)} for meta in calls]


@pytest.mark.proves("a2a-4.6-extensions", "map-extension-card")
async def test_the_card_declares_configured_extensions_after_the_bridges_own(tmp_path: Path) -> None:
    async with shop(tmp_path, selling()) as (rpc, _):
        card = (await rpc.client.get(f"{rpc.base_url}/.well-known/agent-card.json")).json()
        own, *others = card["capabilities"]["extensions"]
        assert own["uri"] == "urn:mcp-a2a:tool:v1"
        assert others == [
            {"uri": STAMP, "description": "Times of the work", "required": False, "params": {"zone": "UTC"}},
            {"uri": PAY, "required": False, "params": {"roles": ["merchant"]}},
        ]


@pytest.mark.proves("a2a-3.3.4-extensions")
@pytest.mark.parametrize("sent", ["", STAMP, OTHER])
async def test_a_client_that_does_not_activate_a_required_extension_is_refused(
    sent: str, tmp_path: Path
) -> None:
    server = selling()
    async with shop(tmp_path, server, is_required=True) as drivers:
        for driver in drivers:
            asking = driver.with_headers(a2a_extensions=sent)
            fault = await asking.refused("SendMessage", **message({"text": "buy"}))
            assert fault.reason == "EXTENSION_SUPPORT_REQUIRED"
            assert fault.code in (-32008, 400)
            assert PAY in fault.message
    assert server.of("tools/call") == []


@pytest.mark.proves("a2a-3.3.4-extensions")
async def test_a_client_that_activates_a_required_extension_is_served(tmp_path: Path) -> None:
    async with shop(tmp_path, selling(), is_required=True) as drivers:
        for driver in drivers:
            asking = driver.with_headers(**{"A2A-Extensions": f"{PAY}, {OTHER}"})
            task = await asking.send({"data": {"skill": "buy", "arguments": {"item": "tea"}}})
            assert state_of(task) == "COMPLETED"


@pytest.mark.proves("map-extension-metadata")
@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_metadata_of_active_extensions_is_passed_to_the_tool_and_back(
    version: str, tmp_path: Path
) -> None:
    told = {STAMP: {"sold": 2}, PAY: [1, {"deep": None}], OTHER: "not declared"}
    server = selling(version, **told)
    async with shop(tmp_path, server) as (rpc, _):
        both = rpc.with_headers(**{"A2A-Extensions": f"{STAMP},{PAY},{OTHER}"})
        metadata = {
            STAMP: {"at": 1.5},
            f"{STAMP}/zone": "UTC",
            f"{STAMP}x": "another",
            PAY: ["m"],
            OTHER: "other",
        }
        task = await both.send({"data": {"skill": "buy", "arguments": {"item": "tea"}}}, metadata=metadata)
    assert asked(server, STAMP, PAY, OTHER) == [{STAMP: {"at": 1.5}, f"{STAMP}/zone": "UTC", PAY: ["m"]}]
    (artifact,) = task["artifacts"]
    assert {key: artifact["metadata"].get(key) for key in told} == {
        STAMP: {"sold": 2},
        PAY: told[PAY],
        OTHER: None,
    }
    assert artifact["extensions"] == [STAMP, PAY]


@pytest.mark.proves("map-extension-metadata")
async def test_metadata_of_an_inactive_extension_is_not_passed_on(tmp_path: Path) -> None:
    server = selling(**{STAMP: {"sold": 2}})
    async with shop(tmp_path, server) as (rpc, _):
        task = await rpc.send(
            {"data": {"skill": "buy", "arguments": {"item": "tea"}}}, metadata={STAMP: {"at": 1.5}}
        )
    assert asked(server, STAMP) == [{}]
    (artifact,) = task["artifacts"]
    assert STAMP not in artifact["metadata"]
    assert "extensions" not in artifact


@pytest.mark.proves("map-extension-metadata")
async def test_the_metadata_of_the_first_message_is_not_lost_while_the_client_is_asked(
    tmp_path: Path,
) -> None:
    server = selling()
    async with shop(tmp_path, server) as (rpc, _):
        active = rpc.with_headers(a2a_extensions=STAMP)
        first = await active.send(
            {"data": {"skill": "buy"}},
            metadata={STAMP: {"at": 1}, f"{STAMP}/zone": "UTC"},
            extensions=[STAMP],
        )
        assert state_of(first) == "INPUT_REQUIRED"
        done = await rpc.send({"data": {"item": "tea"}}, taskId=first["id"], metadata={STAMP: {"at": 9}})
        assert state_of(done) == "COMPLETED"
    assert asked(server, STAMP) == [{STAMP: {"at": 1}, f"{STAMP}/zone": "UTC"}]


@pytest.mark.proves("map-extension-metadata")
async def test_data_of_a_profile_extension_passes_both_ways_untouched(tmp_path: Path) -> None:
    server = selling()
    async with shop(tmp_path, server) as (rpc, _):
        active = rpc.with_headers(a2a_extensions=PAY)
        task = await active.send({"data": {"item": "tea", **MANDATE}}, extensions=[PAY])
    assert [got.params["arguments"] for got in server.of("tools/call")] == [{"item": "tea", **MANDATE}]
    assert [part["data"] for part in task["artifacts"][0]["parts"] if "data" in part] == [MANDATE]


@pytest.mark.proves("a2a-4.6-extensions")
async def test_a_method_of_an_extension_is_not_found(tmp_path: Path) -> None:
    async with shop(tmp_path, selling()) as (rpc, _):
        asking = rpc.with_headers(a2a_extensions=STAMP)
        fault = await asking.refused("stamps/list")
        assert fault.reason == "METHOD_NOT_FOUND"


def with_nothing(*, meta: Json) -> RecordingServer:
    """A server whose results have no content."""
    return RecordingServer(
        LEGACY,
        tools=[BUY],
        answers={"tools/call": lambda _: {"content": [], "_meta": {**meta}}},
    )


@pytest.mark.proves("map-extension-metadata")
async def test_metadata_of_a_result_without_content_comes_with_an_empty_text(tmp_path: Path) -> None:
    async with shop(tmp_path, with_nothing(meta={STAMP: {"sold": 2}})) as (rpc, _):
        call = {"data": {"skill": "buy", "arguments": {"item": "tea"}}}
        (artifact,) = (await rpc.with_headers(a2a_extensions=STAMP).send(call))["artifacts"]
        assert [part["text"] for part in artifact["parts"]] == [""]
        assert artifact["metadata"][STAMP] == {"sold": 2}
        assert "artifacts" not in await rpc.send(call)


@pytest.mark.proves("map-extension-metadata")
async def test_a_result_without_content_is_the_same_after_both_bridges(
    tmp_path: Path,
) -> None:
    server = with_nothing(meta={"shop/receipt": 7})
    async with listening(server) as url, in_row(tmp_path, url_at(f"{url}/mcp")) as there:
        result = (await there.mcp.tool(1, "buy", {}, item="tea"))["result"]
    assert (result["content"], result["_meta"]["shop/receipt"]) == ([], 7)
