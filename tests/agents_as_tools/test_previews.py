"""Long texts of agents as hosts get them: the beginning, and pages of the rest, each for its own principal."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError

from bridge.agents_as_tools.handles import FarTask, Handles, agent_mark
from bridge.agents_as_tools.resources import part_place
from bridge.assembly.plan import OfferedPlan, ServerPlan
from bridge.config.tables.profile import load_profile
from bridge.http.request_checks import FaceAddress
from bridge.mcp.client.eras import Era
from bridge.seal import LIFETIME_SECONDS, HandlePurpose, Seal
from tests.agents_as_tools.test_foreign_agents import reading, words
from tests.assembly.test_bridge import PROFILE, agent, live
from tests.peers import sdk_behaviours as told
from tests.support.exposing import ExposeConfig, Exposed, exposed, exposing
from tests.support.foreign import foreign_agent
from tests.support.limits import url_at
from tests.support.principals import WAYS
from tests.support.recording_server import RecordingServer
from tests.support.running import listening, profile_with

pytestmark = pytest.mark.proves("map-preview")

PAGE = 100_000


async def rest_of(client: Client, link: str, first_byte: int) -> str:
    """The text from a byte on, page by page."""
    pages: list[str] = []
    while True:
        result = await client.call_tool("task_page", {"link": link, "first_byte": first_byte})
        assert not result.is_error, words(result)
        text, said = (block.text for block in result.content)  # type: ignore[union-attr]
        pages.append(text)
        if "and the end of the text" in said:
            return "".join(pages)
        found = re.search(r"with first_byte (\d+) and this link: (\S+)\]", said)
        assert found, said
        first_byte, link = int(found[1]), found[2]


@pytest.mark.parametrize("skill", ["big", "big_chunks"])
async def test_a_long_text_is_read_page_by_page(skill: str, tmp_path: Path) -> None:
    async with (
        foreign_agent() as far,
        exposing(tmp_path, far.url, preview_bytes=PAGE) as there,
        reading(there, "auto") as client,
    ):
        assert "task_page" in {tool.name for tool in (await client.list_tools()).tools}
        small, text, said, link = (await client.call_tool(skill, {"message": "go"})).content[:4]
        assert (small.text, text.text) == ("small", told.BIG[:PAGE])  # type: ignore[union-attr]
        assert f"bytes 0 to {PAGE} of {len(told.BIG)}" in said.text  # type: ignore[union-attr]
        assert text.text + await rest_of(client, link.uri, PAGE) == told.BIG  # type: ignore[union-attr]
        assert (await client.read_resource(link.uri)).contents[0].text == told.BIG  # type: ignore[union-attr]


@pytest.mark.proves("map-handles")
async def test_a_link_that_is_not_the_callers_own_gives_no_page(tmp_path: Path) -> None:
    (knowing, *_) = WAYS
    async with foreign_agent() as far, knowing() as known:
        profile = profile_with(agents={"preview_bytes": PAGE})
        config = ExposeConfig([far.url], profile, state=tmp_path / "state", cache=tmp_path / "cache")
        async with (
            exposed(config) as exposure,
            exposure.server.at(known.access, FaceAddress()) as app,
            listening(app) as root_url,
        ):
            there = Exposed(exposure, f"{root_url}/mcp")
            ada, bob = (reading(there, "auto", token) for token in known.tokens.values())
            async with ada as ada, bob as bob:
                link = (await ada.call_tool("big", {"message": "go"})).content[3].uri  # type: ignore[union-attr]
                assert not (await ada.call_tool("task_page", {"link": link})).is_error
                tricks = (
                    link[:-1] + "7",
                    link.replace("/tasks/", "/tasks/x"),
                    f"{link}/../..",
                    "a2a://x",
                    "",
                    "x" * 5000,
                )
                for who, wrong in ((bob, link), *((ada, trick) for trick in tricks)):
                    refused = await who.call_tool("task_page", {"link": wrong})
                    assert refused.is_error
                    assert "link" in words(refused)
                for first_byte in (-1, 10**9, "1", True):
                    refused = await ada.call_tool("task_page", {"link": link, "first_byte": first_byte})
                    assert refused.is_error
            exposure.server.stop()


@pytest.mark.proves("map-handles")
def test_a_link_expires_with_its_handle() -> None:
    now = [1000.0]
    handles = Handles(Seal([b"k" * 32]), lambda: now[0])
    uri = f"a2a://x/tasks/{handles.of_task(FarTask(agent_mark('x'), 't'), 'ann')}/artifact/0"
    assert part_place(uri, handles, "ann") is not None
    now[0] += LIFETIME_SECONDS[HandlePurpose.FOLLOW_UP]
    assert part_place(uri, handles, "ann") is None


async def test_nothing_is_shortened_by_default(tmp_path: Path) -> None:
    assert load_profile().agents.preview_bytes == 0
    async with foreign_agent() as far, exposing(tmp_path, far.url) as there, reading(there, "auto") as client:
        assert "task_page" not in {tool.name for tool in (await client.list_tools()).tools}
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("task_page", {"link": "a2a://x"})


async def test_an_answer_that_no_task_keeps_is_given_whole(tmp_path: Path) -> None:
    async with (
        foreign_agent() as far,
        exposing(tmp_path, far.url, preview_bytes=4) as there,
        reading(there, "auto") as client,
    ):
        result = await client.call_tool("message_only", {"message": "go"})
        assert result.content[0].text == "Just so: go"  # type: ignore[union-attr]


@asynccontextmanager
async def through_both(folder: Path, result: Any, **listed: Any) -> AsyncIterator[Client]:
    """A client of a tool whose result comes through an agent of the same bridge."""
    tool = {"name": "echo", "inputSchema": {"type": "object"}, **listed}
    tools = RecordingServer(tools=(tool,), answers={"tools/call": lambda _: result})
    profile = profile_with(agents={"preview_bytes": 1000, "first_cards_seconds": 3.0})
    async with tools.serve() as url:
        made = ServerPlan.as_profile_says(url_at(url), Era.LEGACY, PROFILE.server, PROFILE.run)
        plan = {"servers": {"crm": made}, "published": {"desk": agent("crm")}}
        async with live(folder, **plan, offered={"face": OfferedPlan(("desk",), profile)}) as there:
            await there.bridge.upstreams["crm"].ready()
            async with there.mcp("face") as client:
                yield client


async def test_a_tool_behind_an_agent_of_the_bridge_gives_pages_too(tmp_path: Path) -> None:
    text = "".join(f"line {number} ü🎈\n" for number in range(500))
    async with through_both(tmp_path, {"content": [{"type": "text", "text": text}]}) as client:
        result = await client.call_tool("echo", {})
        beginning, said, link = result.content
        assert beginning.text.endswith("\n")  # type: ignore[union-attr]
        end = len(beginning.text.encode())  # type: ignore[union-attr]
        assert f"bytes 0 to {end} of {len(text.encode())}" in said.text  # type: ignore[union-attr]
        assert beginning.text + await rest_of(client, link.uri, end) == text  # type: ignore[union-attr]


async def test_a_tool_with_an_output_schema_is_never_shortened(tmp_path: Path) -> None:
    structured = {"value": "v" * 5000}
    result = {"content": [{"type": "text", "text": json.dumps(structured)}], "structuredContent": structured}
    async with through_both(tmp_path, result, outputSchema={"type": "object"}) as client:
        answer = await client.call_tool("echo", {})
        assert answer.structured_content == structured
        assert [block.text for block in answer.content] == [json.dumps(structured)]  # type: ignore[union-attr]
