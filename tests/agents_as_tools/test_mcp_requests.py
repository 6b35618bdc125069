"""Resources, prompts and completions of MCP servers behind agents, as a host sees them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError

from tests.support.agent_faces import OPTIONS, Agents, Served, serving
from tests.support.sharing_agent import ALL, Json, SharingAgent, sharing

pytestmark = pytest.mark.proves("map-mcp-requests")

MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])
ICON = {"src": "https://x.test/i.png", "mimeType": "image/png", "sizes": ["48x48"]}
NOTE: Json = {
    "uri": "note:///a%20b",
    "name": "a b",
    "title": "A",
    "size": 3,
    "icons": [ICON],
    "annotations": {"audience": ["user"], "priority": 0.5},
    "_meta": {"test/kept": [1, None]},
}
TEMPLATE: Json = {"uriTemplate": "note:///{name}", "name": "notes"}
PROMPT: Json = {"name": "greet", "arguments": [{"name": "who", "required": True}], "_meta": {"k": 1}}
CONTENTS: Json = {
    "contents": [{"uri": NOTE["uri"], "text": "hi!", "_meta": {"k": {"é": None}}}],
    "_meta": {"r": 1},
}
MESSAGES: Json = {
    "description": "d",
    "messages": [
        {"role": "user", "content": {"type": "resource_link", "uri": "note:///x", "name": "x"}},
        {"role": "user", "content": {"type": "resource", "resource": {"uri": "note:///y", "text": "y"}}},
    ],
}
COMPLETION: Json = {"completion": {"values": ["paris", "park"], "total": 5, "hasMore": True}}
RESULTS: dict[str, Json] = {
    "resources/list": {"resources": [NOTE]},
    "resources/templates/list": {"resourceTemplates": [TEMPLATE]},
    "resources/read": CONTENTS,
    "prompts/list": {"prompts": [PROMPT]},
    "prompts/get": MESSAGES,
    "completion/complete": COMPLETION,
}


def plainly(_: str, method: str, __: Json) -> Json:
    """Give the results above."""
    return {"result": RESULTS[method]}


@asynccontextmanager
async def exposing_all(folder: Path, *agents: SharingAgent, **options: Any) -> AsyncIterator[Served]:
    """A face of these agents, named `one`, `two` and so on."""
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(sharing(agent)) for agent in agents]
        keys = ("one", "two", "three")

        def made(maker: Agents) -> list[Any]:
            return [maker(url, key=key) for url, key in zip(urls, keys, strict=False)]

        yield await stack.enter_async_context(serving(folder, made, options=replace(OPTIONS, **options)))


async def raw(client: Client, method: str, params: Json) -> Json:
    """The raw result, without what the bridge stamps on each result."""
    data: Json = {"method": method, "params": dict(params)}
    options: Any = {}
    client.session._stamp(data, options)
    result = await client.session._dispatcher.send_raw_request(method, data["params"], options)
    meta = {key: one for key, one in result.pop("_meta", {}).items() if not key.startswith("io.model")}
    rest = {key: one for key, one in result.items() if key not in ("resultType", "ttlMs", "cacheScope")}
    return {**rest, **({"_meta": meta} if meta else {})}


@MODES
async def test_results_of_the_only_server_are_the_servers_own(mode: str, tmp_path: Path) -> None:
    agent = SharingAgent(answer=plainly)
    async with exposing_all(tmp_path, agent) as there, there.client(mode) as client:
        listed = await raw(client, "resources/list", {})
        assert [one["uri"] for one in listed["resources"]] == ["a2a://one/card", NOTE["uri"]]
        assert listed["resources"][1] == NOTE
        assert (await raw(client, "resources/templates/list", {}))["resourceTemplates"][1:] == [TEMPLATE]
        assert (await raw(client, "prompts/list", {}))["prompts"] == [PROMPT]
        read = {"uri": NOTE["uri"], "_meta": {"test/mine": 1}}
        assert await raw(client, "resources/read", {**read, "_meta": {"test/mine": 1}}) == CONTENTS
        assert await raw(client, "prompts/get", {"name": "greet", "arguments": {"who": "x"}}) == MESSAGES
        about = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "pa"}}
        assert await raw(client, "completion/complete", dict(about)) == COMPLETION
    assert agent.asked[3:] == [
        {"method": "resources/read", "params": read},
        {"method": "prompts/get", "params": {"name": "greet", "arguments": {"who": "x"}}},
        {"method": "completion/complete", "params": about},
    ]


@MODES
async def test_capabilities_follow_what_agents_share(mode: str, tmp_path: Path) -> None:
    for servers, subscribes, completes in (
        ({"notes": ALL}, True, True),
        ({"notes": {"resources": {}}}, mode == "auto", False),
        ({}, mode == "auto", False),
    ):
        agent = SharingAgent(servers=servers, answer=plainly)
        async with exposing_all(tmp_path, agent) as there, there.client(mode) as client:
            declared = client.server_capabilities
            assert declared.resources is not None
            assert bool(declared.resources.subscribe) is subscribes
            assert (declared.completions is not None) is completes
            about = {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": ""}}
            if not completes:
                with pytest.raises(MCPError) as caught:
                    await raw(client, "completion/complete", about)
                assert caught.value.error.code == -32601


@MODES
async def test_errors_of_a_server_come_back_to_the_letter(mode: str, tmp_path: Path) -> None:
    error: Json = {"code": -32002, "message": "Resource not found", "data": {"uri": "note:///no"}}
    agent = SharingAgent(answer=lambda *_: {"error": error})
    async with exposing_all(tmp_path, agent) as there, there.client(mode) as client:
        with pytest.raises(MCPError) as caught:
            await raw(client, "resources/read", {"uri": "note:///no"})
        # MCP 2026-07-28 has another code for a resource that does not exist.
        assert caught.value.error.code == (-32602 if mode == "auto" else -32002)
        assert (caught.value.error.message, caught.value.error.data) == (error["message"], error["data"])
        error = {"code": -32077, "message": "odd", "data": [1]}
        with pytest.raises(MCPError) as caught:
            await raw(client, "prompts/get", {"name": "greet"})
        assert caught.value.error.model_dump() == error


@MODES
async def test_names_of_several_servers_have_prefixes(mode: str, tmp_path: Path) -> None:
    first = SharingAgent(answer=plainly)
    second = SharingAgent(servers={"x": ALL, "y": ALL}, answer=plainly)
    async with exposing_all(tmp_path, first, second) as there, there.client(mode) as client:
        uris, names, templates = await walked(client)
        assert uris == [
            "a2a://one/card",
            "a2a://two/card",
            "a2a://one/r/note:///a%20b",
            "a2a://two/x/r/note:///a%20b",
            "a2a://two/y/r/note:///a%20b",
        ]
        assert names == ["one_greet", "two_x_greet", "two_y_greet"]
        assert templates[1:] == [
            "a2a://one/r/note:///{name}",
            "a2a://two/x/r/note:///{name}",
            "a2a://two/y/r/note:///{name}",
        ]
        del first.asked[:], second.asked[:]
        read = await raw(client, "resources/read", {"uri": uris[4]})
        assert read["contents"][0]["uri"] == uris[4]
        assert second.asked == [{"server": "y", "method": "resources/read", "params": {"uri": NOTE["uri"]}}]
        got = await raw(client, "prompts/get", {"name": "one_greet"})
        linked, embedded = (one["content"] for one in got["messages"])
        assert linked["uri"] == "a2a://one/r/note:///x"
        assert embedded["resource"]["uri"] == "a2a://one/r/note:///y"
        assert first.asked == [{"method": "prompts/get", "params": {"name": "greet"}}]
        about = {"type": "ref/resource", "uri": "a2a://two/x/r/note:///{name}"}
        await raw(client, "completion/complete", {"ref": about, "argument": {"name": "name", "value": "a"}})
        assert second.asked[-1]["params"]["ref"] == {"type": "ref/resource", "uri": "note:///{name}"}
        assert second.asked[-1]["server"] == "x"


async def walked(client: Client) -> tuple[list[str], list[str], list[str]]:
    """All URIs, prompts and templates, page by page."""
    found: dict[str, list[str]] = {}
    for method, key, name in (
        ("resources/list", "resources", "uri"),
        ("prompts/list", "prompts", "name"),
        ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    ):
        params: Json = {}
        while True:
            page = await raw(client, method, params)
            found.setdefault(key, []).extend(one[name] for one in page[key])
            if "nextCursor" not in page:
                break
            params = {"cursor": page["nextCursor"]}
    return found["resources"], found["prompts"], found["resourceTemplates"]


@pytest.mark.parametrize("uri", ["a2a://three/r/note:///x", "a2a://two/r/x", "note:///a", "a2a://one/x/r/y"])
async def test_a_uri_with_no_prefix_reaches_no_agent(uri: str, tmp_path: Path) -> None:
    agents = [SharingAgent(answer=plainly), SharingAgent(servers={"x": ALL, "y": ALL}, answer=plainly)]
    async with exposing_all(tmp_path, *agents) as there, there.client() as client:
        with pytest.raises(MCPError, match="There is no resource"):
            await raw(client, "resources/read", {"uri": uri})
        assert not agents[0].asked
        assert not agents[1].asked


def paged(_: str, method: str, params: Json) -> Json:
    """Three pages, with cursors that only their server can read."""
    assert method == "resources/list"
    pages: list[tuple[str | None, Json]] = [
        (None, {"nextCursor": ""}),
        ("", {"nextCursor": '["é", 2]'}),
        ('["é", 2]', {}),
    ]
    for number, (cursor, more) in enumerate(pages):
        if params.get("cursor") == cursor:
            return {"result": {"resources": [{"uri": f"n:{number}", "name": "n"}], **more}}
    return {"error": {"code": -32602, "message": "Invalid cursor"}}


@MODES
@pytest.mark.parametrize("agents", [1, 2])
async def test_pages_of_all_servers_follow_each_other(agents: int, mode: str, tmp_path: Path) -> None:
    made = [SharingAgent(answer=paged) for _ in range(agents)]
    async with exposing_all(tmp_path, *made) as there, there.client(mode) as client:
        uris, params, pages = [], {}, 0
        while True:
            page = await raw(client, "resources/list", params)
            uris += [one["uri"] for one in page["resources"]]
            pages += 1
            if "nextCursor" not in page:
                break
            params = {"cursor": page["nextCursor"]}
        own = ["a2a://one/card", "a2a://two/card"][:agents]
        prefixes = [""] if agents == 1 else ["a2a://one/r/", "a2a://two/r/"]
        assert uris == own + [f"{prefix}n:{number}" for prefix in prefixes for number in range(3)]
        assert pages == 3 * agents
        for cursor in ("unknown", "[]", '["one/"', '["none/", "x"]', "[" * 5000):
            with pytest.raises(MCPError) as caught:
                await raw(client, "resources/list", {"cursor": cursor})
            assert caught.value.error.code == -32602


async def test_a_list_leaves_out_an_agent_that_answers_nonsense(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd: list[Json] = [
        {"result": {"resources": "none"}},
        {"result": []},
        {"error": {}},
        {"x": 1},
        {"result": {}},
    ]
    for answer in odd:
        bad = SharingAgent(answer=lambda *_, answer=answer: answer)  # type: ignore[misc]
        good = SharingAgent(answer=plainly)
        async with exposing_all(tmp_path, bad, good) as there, there.client() as client:
            listed = await raw(client, "resources/list", {})
            assert [one["uri"] for one in listed["resources"]][2:] == ["a2a://two/r/note:///a%20b"]
            with pytest.raises(MCPError) as caught:
                await raw(client, "resources/read", {"uri": "a2a://one/r/x"})
            assert caught.value.error.code in (-32603,)
        assert "one/ is left out of resources/list" in caplog.text


async def test_entries_without_a_name_are_left_out(tmp_path: Path) -> None:
    listed = [NOTE, "x", {"uri": "n:1"}, {"name": "n"}, {"uri": 1, "name": "n"}, {"uri": "n:2", "name": 3}]
    agent = SharingAgent(answer=lambda *_: {"result": {"resources": listed}})
    async with exposing_all(tmp_path, agent) as there, there.client() as client:
        assert (await raw(client, "resources/list", {}))["resources"][1:] == [NOTE]


async def test_a_resource_with_the_uri_of_the_bridges_card_is_listed_once(tmp_path: Path) -> None:
    listed = [{"uri": "a2a://one/card", "name": "mine"}, NOTE]
    agent = SharingAgent(answer=lambda *_: {"result": {"resources": listed}})
    async with exposing_all(tmp_path, agent) as there, there.client() as client:
        card, *others = (await raw(client, "resources/list", {}))["resources"]
        assert (card["uri"], card["name"], others) == ("a2a://one/card", "one card", [NOTE])


async def test_a_prompt_whose_name_has_another_agents_prefix_is_not_listed(tmp_path: Path) -> None:
    def of_first(_: str, method: str, __: Json) -> Json:
        return {"result": {"prompts": [{"name": "b_x"}, {"name": "x"}]}}

    first, second = SharingAgent(answer=of_first), SharingAgent(answer=plainly)
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(sharing(one)) for one in (first, second)]

        def made(maker: Agents) -> list[Any]:
            return [maker(urls[0], key="a"), maker(urls[1], key="a_b")]

        there = await stack.enter_async_context(serving(tmp_path, made))
        client = await stack.enter_async_context(there.client())
        _, names, _ = await _prompts(client)
        assert names == ["a_x", "a_b_greet"]
        await raw(client, "prompts/get", {"name": "a_b_x"})
        assert second.asked[-1] == {"method": "prompts/get", "params": {"name": "x"}}


async def _prompts(client: Client) -> tuple[None, list[str], None]:
    names, params = [], {}
    while True:
        page = await raw(client, "prompts/list", params)
        names += [one["name"] for one in page["prompts"]]
        if "nextCursor" not in page:
            return None, names, None
        params = {"cursor": page["nextCursor"]}


async def test_an_answer_in_a_task_counts(tmp_path: Path) -> None:
    agent = SharingAgent(answer=plainly, as_task=True)
    async with exposing_all(tmp_path, agent) as there, there.client() as client:
        assert await raw(client, "resources/read", {"uri": NOTE["uri"]}) == CONTENTS


async def test_caching_hints_of_a_modern_server_reach_a_modern_client_alone(tmp_path: Path) -> None:
    hints = {"ttlMs": 300, "cacheScope": "public", "resultType": "complete"}
    agent = SharingAgent(answer=lambda _, method, __: {"result": {**RESULTS[method], **hints}})
    async with exposing_all(tmp_path, agent) as there:
        async with there.client() as client:
            read = (await client.session.read_resource(NOTE["uri"])).model_dump(by_alias=True)
            assert (read["ttlMs"], read["cacheScope"]) == (300, "public")
            listed = (await client.session.list_resources()).model_dump(by_alias=True)
            assert (listed["ttlMs"], listed["cacheScope"]) == (300, "private")
        async with there.client("legacy") as client:
            data: Json = {}
            for method, params in (("resources/read", {"uri": NOTE["uri"]}), ("resources/list", data)):
                result = await client.session._dispatcher.send_raw_request(method, params, {})
                assert not result.keys() & hints.keys()


async def test_an_agent_that_comes_up_later_is_shared_then(tmp_path: Path) -> None:
    agent = SharingAgent(servers={}, answer=plainly)
    async with exposing_all(tmp_path, agent) as there, there.client() as client:
        with pytest.raises(MCPError):
            await raw(client, "resources/read", {"uri": NOTE["uri"]})
        agent.servers = {"notes": ALL}
        await there.made[0].refresh()
        there.face._changed()
        assert await raw(client, "resources/read", {"uri": NOTE["uri"]}) == CONTENTS
        assert json.dumps(there.changes) == "[null]"


@MODES
async def test_examples_of_skills_are_no_prompts_where_the_agent_shares_prompts(
    mode: str, tmp_path: Path
) -> None:
    """The examples of the other agent are prompts, and a prompt of their name is none of the first agent's."""
    asked: list[str] = []

    def answer(_: str, method: str, params: Json) -> Json:
        asked.append(params.get("name", ""))
        return {"result": {"prompts": [{"name": "do_1"}]} if method == "prompts/list" else MESSAGES}

    first = SharingAgent(answer=answer, examples=("do it",))
    async with exposing_all(tmp_path, first) as there, there.client(mode) as client:
        assert (await raw(client, "prompts/list", {}))["prompts"] == [{"name": "do_1"}]
        assert await raw(client, "prompts/get", {"name": "do_1"}) == MESSAGES
    other = SharingAgent(servers={}, examples=("do it well",))
    async with exposing_all(tmp_path, first, other) as there, there.client(mode) as client:
        listed = (await raw(client, "prompts/list", {}))["prompts"]
        assert [(one["name"], one.get("description")) for one in listed] == [
            ("two_do_1", "do it well"),
            ("one_do_1", None),
        ]
        example = await raw(client, "prompts/get", {"name": "two_do_1"})
        assert "do it well" in json.dumps(example)
        assert (await raw(client, "prompts/get", {"name": "one_do_1"}))["description"] == "d"
    assert asked == ["", "do_1", "", "do_1"]
