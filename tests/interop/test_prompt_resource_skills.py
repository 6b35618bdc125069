"""The reference servers: prompts, resources and links as skills, and long texts page by page.

What a client gets is held against what the same request gives the official MCP client."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from mcp import Client, StdioServerParameters, stdio_client

from bridge.assembly.plan import OfferedPlan
from tests.agents_as_tools.test_previews import rest_of
from tests.assembly.test_bridge import PROFILE, Live, agent, live
from tests.peers.node import (
    everything_command,
    filesystem_command,
    memory_command,
    memory_environment,
    require_peers,
)
from tests.support.limits import command_of
from tests.support.running import profile_with
from tests.tools_as_agent.test_prompt_resource_skills import BOTH, MESSAGE, called, parts_of, plan_of

pytestmark = [pytest.mark.long, pytest.mark.proves("map-prompt-resource-skills")]

_TIME: Final = re.compile(r"\d\d?:\d\d:\d\d( [AP]M)?")


@pytest.fixture(autouse=True)
def _peers() -> None:
    require_peers()


def _without_time(text: str) -> str:
    return _TIME.sub("now", text)


async def test_everything_of_the_reference_server_is_read_as_skills(tmp_path: Path) -> None:
    command = everything_command()
    direct = stdio_client(StdioServerParameters(command=command[0], args=command[1:]))
    servers = {"every": plan_of(command_of(command))}
    async with AsyncExitStack() as stack:
        there = await stack.enter_async_context(
            live(tmp_path, PROFILE, servers=servers, published={"desk": agent("every", stand_ins=BOTH)})
        )
        mcp = await stack.enter_async_context(Client(direct))
        await there.bridge.upstreams["every"].ready()
        skills = set(await there.skills("desk"))
        prompts = (await mcp.list_prompts()).prompts
        assert {f"prompt:{prompt.name}" for prompt in prompts} <= skills
        for name, arguments in ARGUMENTS.items():
            wanted = (await mcp.get_prompt(name, arguments)).messages
            parts = parts_of(await called(there, f"prompt:{name}", **arguments))
            assert [part["metadata"][MESSAGE]["role"] for part in parts] == [one.role for one in wanted]
            texts = [getattr(one.content, "text", None) or one.content.resource.text for one in wanted]  # type: ignore[union-attr]
            assert [_without_time(part["text"]) for part in parts] == [_without_time(text) for text in texts]
        await _compare_resources(there, mcp)
        templates = (await mcp.list_resource_templates()).resource_templates
        for template in templates:
            kept = parts_of(await called(there, f"resource:{template.name}", resourceId="2"))
            (contents,) = (
                await mcp.read_resource(template.uri_template.replace("{resourceId}", "2"))
            ).contents
            assert kept[0]["mediaType"] == contents.mime_type
        assert templates


ARGUMENTS: Final[dict[str, dict[str, str]]] = {
    "simple-prompt": {},
    "args-prompt": {"city": "Köln", "state": "NW"},
    "resource-prompt": {"resourceType": "Text", "resourceId": "1"},
}


async def _compare_resources(there: Live, mcp: Client) -> None:
    listed = (await mcp.list_resources()).resources
    found = parts_of(await called(there, "resources"))
    assert [part["url"] for part in found[1:]] == [str(one.uri) for one in listed]
    for one in listed:
        contents: Any = (await mcp.read_resource(str(one.uri))).contents
        parts = parts_of(await called(there, "resources", query=one.name))
        assert [part["text"] for part in parts] == [each.text for each in contents]


async def test_a_graph_is_read_as_a_resource_and_files_have_none(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    environment = memory_environment(tmp_path / "graph.json")
    servers = {
        "files": plan_of(command_of(filesystem_command(tmp_path / "files"))),
        "memory": plan_of(command_of(memory_command(), environment)),
    }
    both = agent("files", "memory", stand_ins=BOTH)
    async with live(tmp_path, PROFILE, servers=servers, published={"desk": both}) as there:
        for key in servers:
            await there.bridge.upstreams[key].ready()
            assert there.bridge.upstreams[key].listing.odd == ""
        skills = await there.skills("desk")
        assert {"read_text_file", "create_entities"} <= set(skills)
        assert [name for name in skills if name.startswith(("prompt:", "resource"))] == ["resources"]
        made = {"entities": [{"name": "Ann", "entityType": "person", "observations": ["likes tea"]}]}
        await called(there, "create_entities", **made)
        (graph,) = parts_of(await called(there, "resources", query="Knowledge Graph"))
        assert "likes tea" in graph["text"]
        assert graph["mediaType"] == "application/json"


@pytest.mark.proves("map-served-links")
async def test_the_links_of_the_reference_server_are_served(tmp_path: Path) -> None:
    command = everything_command()
    servers = {"every": plan_of(command_of(command))}
    desk = agent("every", serves_links=True)
    async with (
        live(tmp_path, PROFILE, servers=servers, published={"desk": desk}) as there,
        Client(stdio_client(StdioServerParameters(command=command[0], args=command[1:]))) as mcp,
    ):
        await there.bridge.upstreams["every"].ready()
        direct = await mcp.call_tool("get-resource-links", {"count": 4})
        links = [block for block in direct.content if block.type == "resource_link"]
        parts = [
            part for part in parts_of(await called(there, "get-resource-links", count=4)) if "url" in part
        ]
        assert len(parts) == len(links) == 4
        for link, part in zip(links, parts, strict=True):
            (contents,) = (await mcp.read_resource(str(link.uri))).contents
            response = await there.client.get(part["url"])
            assert response.headers["content-disposition"].startswith("attachment;")
            text = getattr(contents, "text", None)
            wanted = text if text is not None else b64decode(contents.blob).decode()  # type: ignore[union-attr]
            assert _without_time(response.text) == _without_time(wanted)


@pytest.mark.proves("map-preview")
async def test_long_texts_of_the_reference_servers_are_given_in_pages(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "long.txt").write_text("".join(f"line {number}\n" for number in range(1000)))
    servers = {
        "every": plan_of(command_of(everything_command(), {"LONG": "ü🎈" * 1000})),
        "files": plan_of(command_of(filesystem_command(tmp_path / "files"))),
    }
    profile = profile_with(agents={"preview_bytes": 1000, "first_cards_seconds": 30.0})
    async with live(
        tmp_path,
        PROFILE,
        servers=servers,
        published={"desk": agent("every", "files")},
        offered={"face": OfferedPlan(("desk",), profile)},
    ) as there:
        for key in servers:
            await there.bridge.upstreams[key].ready()
        async with there.mcp("face") as client:
            beginning, said, link = (await client.call_tool("get-env", {})).content
            assert "call task_page" in said.text  # type: ignore[union-attr]
            whole = beginning.text + await rest_of(client, link.uri, len(beginning.text.encode()))  # type: ignore[union-attr]
            assert json.loads(whole)["LONG"] == "ü🎈" * 1000
            path = str(tmp_path / "files" / "long.txt")
            read = await client.call_tool("read_text_file", {"path": path})
            assert [block.text for block in read.content] == [Path(path).read_text()]  # type: ignore[union-attr]
            assert read.structured_content == {"content": Path(path).read_text()}
