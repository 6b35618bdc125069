"""Which tools of an MCP server a principal may use, over HTTP in both eras. Other tools do not exist for the
principal."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from bridge.a2a.model.objects import (
    AgentCapabilities,
    AgentCard,
    AgentCardSignature,
    AgentExtension,
    AgentInterface,
    AgentSkill,
)
from bridge.agents_as_tools.resources import card_with_skills
from bridge.config.tables.profile import load_profile
from bridge.http.request_checks import FaceAddress
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Access, Credential, Scheme, verifiers_of
from bridge.translate.extensions.availability import (
    Unavailability,
    UnavailablePeer,
    availability_of,
    unavailable_skills,
)
from tests.support.exposing import ExposeConfig, exposed
from tests.support.foreign import foreign_agent
from tests.support.mcp_wire import LEGACY, MODERN, Http
from tests.support.running import listening
from tests.support.several import team as tracker_agent
from tests.support.tool_server import ToolServer, listed

pytestmark = pytest.mark.smoke("*auto*")

each_mode = pytest.mark.parametrize("mode", ["auto", "legacy"])
each_version = pytest.mark.parametrize("version", [MODERN, LEGACY])
FOLLOW_UPS = ["task_result", "task_reply", "task_cancel"]
MAY = {"ada": ("*",), "bob": ("ask", "pl*"), "cy": ("team/big",), "dan": ("other/*",)}


def credentials(**may: tuple[str, ...]) -> list[Credential]:
    """A token and a key for a principal that may use these tools."""
    people = [Principal(name, skills=skills) for name, skills in {**MAY, **may}.items()]
    tokens = [Credential(one, f"token-{one.name}") for one in people]
    return [*tokens, *(Credential(one, f"key-{one.name}", Scheme.API_KEY) for one in people)]


@dataclass
class Team:
    """A server of an agent's tools, served as `team`."""

    access: Access
    url: str
    http: httpx2.AsyncClient

    @asynccontextmanager
    async def by(self, name: str, mode: str) -> AsyncIterator[Client]:
        """The official client with someone's token."""
        headers = {"Authorization": f"Bearer token-{name}"}
        async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
            transport = streamable_http_client(self.url, http_client=http)
            async with Client(transport, mode=mode, cache=None) as client:  # type: ignore[arg-type]
                with anyio.fail_after(20):
                    yield client

    async def wire(self, name: str, version: str) -> Http:
        """A wire with someone's key, in the one connection that they all share."""
        client = httpx2.AsyncClient(transport=self.http._transport, headers={"X-API-Key": f"key-{name}"})
        wire = Http(client, self.url, version)
        await wire.open()
        return wire


@asynccontextmanager
async def serving(folder: Path, agent_url: str, **agents: Any) -> AsyncIterator[Team]:
    """Serve the tools of an agent; keywords change the profile's `[agents]`."""
    profile = load_profile()
    profile = profile.having(agents=profile.agents.model_copy(update=agents))
    access = Access(verifiers_of(credentials()))
    async with AsyncExitStack() as stack:
        config = ExposeConfig([agent_url], profile, state=folder / "state", cache=folder / "cache")
        exposure = await stack.enter_async_context(exposed(config))
        app = await stack.enter_async_context(exposure.server.at(access, FaceAddress(), name="team"))
        root_url = await stack.enter_async_context(listening(app))
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=30))
        yield Team(access, f"{root_url}/mcp", http)
        exposure.server.stop()


def words(result: Any) -> str:
    return "\n".join(getattr(block, "text", "") for block in result.content)


async def tools_of(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


@each_mode
@pytest.mark.proves("web-skills", "mcp-tools-access")
async def test_the_list_shows_the_allowed_tools_in_the_same_order(mode: str, tmp_path: Path) -> None:
    async with foreign_agent() as agent, serving(tmp_path, agent.url) as team:
        seen = {}
        for name in MAY:
            async with team.by(name, mode) as client:
                seen[name] = await tools_of(client)
                assert await tools_of(client) == seen[name]
    assert {"ask", "plain", "big", "fail"} <= set(seen["ada"])
    assert seen["bob"] == [tool for tool in seen["ada"] if tool in ("ask", "plain", *FOLLOW_UPS)]
    assert seen["cy"] == ["big", *FOLLOW_UPS]
    assert seen["dan"] == FOLLOW_UPS


@each_mode
@pytest.mark.proves("web-skills", "mcp-tools-access")
async def test_a_forbidden_tool_is_answered_like_an_unknown_tool(mode: str, tmp_path: Path) -> None:
    async with foreign_agent() as agent, serving(tmp_path, agent.url) as team, team.by("bob", mode) as bob:
        assert words(await bob.call_tool("plain", {"message": "hi"})).startswith("You said: hi")
        refusals = []
        for tool in ("big", "nothing"):
            with pytest.raises(MCPError) as refused:
                await bob.call_tool(tool, {"message": "hi"})
            error = refused.value.error
            refusals.append((error.code, error.message.replace(tool, "X"), error.data))
    assert refusals[0] == refusals[1] == (types.INVALID_PARAMS, "Unknown tool: X", None)


@each_mode
@pytest.mark.proves("web-skills")
@pytest.mark.smoke("*")
async def test_only_allowed_skills_are_found_and_called(mode: str, tmp_path: Path) -> None:
    async with foreign_agent() as agent, serving(tmp_path, agent.url, granularity="search") as team:
        async with team.by("bob", mode) as bob:
            assert await tools_of(bob) == ["find_skill", "call_skill", *FOLLOW_UPS]
            found = (await bob.call_tool("find_skill", {"query": "", "limit": 20})).structured_content
            assert {skill["name"] for skill in found["skills"]} == {"ask", "plain"}
            call = {"skill": "plain", "arguments": {"message": "hi"}}
            assert words(await bob.call_tool("call_skill", call)).startswith("You said: hi")
            told = []
            for skill in ("big", "nothing"):
                refused = await bob.call_tool("call_skill", {"skill": skill, "arguments": {"message": "hi"}})
                assert refused.is_error
                told.append(words(refused).replace(skill, "X"))
            assert told[0] == told[1]
        async with team.by("dan", mode) as dan:
            assert words(await dan.call_tool("find_skill", {"query": "plain"})) == "No skill was found."


@each_mode
@pytest.mark.proves("web-skills")
async def test_only_cards_and_examples_of_allowed_tools_are_shown(mode: str, tmp_path: Path) -> None:
    tools = [listed("create_issue", "title", title={"type": "string"}), listed("search")]
    async with (
        ToolServer("tracker", tools).run() as server,
        tracker_agent({"tracker": server.target}) as agent,
        serving(tmp_path, agent.base_url) as team,
    ):
        team.access.update(verifiers_of(credentials(cy=("team/create_*",))))
        async with team.by("ada", mode) as ada:
            (card,) = (await ada.list_resources()).resources
            prompts = [prompt.name for prompt in (await ada.list_prompts()).prompts]
        async with team.by("cy", mode) as cy:
            read = (await cy.read_resource(card.uri)).contents[0]
            assert isinstance(read, types.TextResourceContents)
            assert [skill["id"] for skill in json.loads(read.text)["skills"]] == ["create_issue"]
            assert "search" not in read.text
            shown = [prompt.name for prompt in (await cy.list_prompts()).prompts]
            assert (await cy.get_prompt(shown[0])).messages
        async with team.by("dan", mode) as dan:
            assert (await dan.list_resources()).resources == []
            assert (await dan.list_prompts()).prompts == []
            with pytest.raises(MCPError):
                await dan.read_resource(card.uri)
            for name in prompts:
                with pytest.raises(MCPError, match="There is no prompt"):
                    await dan.get_prompt(name)
    assert shown == [name for name in prompts if name.startswith("create_issue_")]
    assert shown != prompts


@pytest.mark.proves("web-skills")
def test_a_reduced_card_reveals_no_state_of_other_skills_and_has_no_signature() -> None:
    peers = [UnavailablePeer(key, Unavailability.UNREACHABLE, 0) for key in ("both", "other")]
    told = availability_of(peers, {"both": ["search", "put"], "other": ["put"]})
    theirs = AgentExtension(uri="https://example.com/theirs", params={"tools": {"put": 1}})
    assert told is not None
    whole = AgentCard(
        name="desk",
        description="A desk",
        supported_interfaces=(
            AgentInterface(url="https://x", protocol_binding="JSONRPC", protocol_version="1.0"),
        ),
        version="1",
        capabilities=AgentCapabilities(extensions=(told, theirs)),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        skills=tuple(AgentSkill(id=one, name=one, description=one, tags=(one,)) for one in ("search", "put")),
        signatures=(AgentCardSignature(protected="e30", signature="AA"),),
    )
    assert card_with_skills(whole, {"search", "put"}).skills == whole.skills
    card = card_with_skills(whole, {"search"})
    assert [skill.id for skill in card.skills] == ["search"]
    assert card.signatures is None
    assert [*unavailable_skills(card)] == ["search"]
    assert card.capabilities.extensions is not None
    assert card.capabilities.extensions[1] == theirs
    assert len(card.capabilities.extensions[0].params["unavailable"]) == 1  # type: ignore[index, arg-type]


@each_mode
@pytest.mark.proves("web-skills")
async def test_only_the_owner_of_a_task_can_end_it(mode: str, tmp_path: Path) -> None:
    async with (
        foreign_agent() as agent,
        serving(tmp_path, agent.url) as team,
        team.by("bob", mode) as bob,
        team.by("ada", mode) as ada,
    ):
        asked = words(await bob.call_tool("ask", {"message": "order"}))
        handle = asked.partition("with this handle: ")[2].split()[0]
        stolen = await ada.call_tool("task_reply", {"handle": handle, "message": "red"})
        assert (stolen.is_error, "does not work" in words(stolen)) == (True, True)
        team.access.update(verifiers_of(credentials(bob=())))
        with pytest.raises(MCPError, match="Unknown tool: ask"):
            await bob.call_tool("ask", {"message": "order"})
        ended = await bob.call_tool("task_cancel", {"handle": handle})
        assert "does not work" not in words(ended)
        assert len(agent.seen.canceled) == 1


@each_version
@pytest.mark.proves("web-skills", "mcp26-list-same", "mcp26-cache-access")
async def test_the_list_depends_on_the_caller_and_not_on_the_connection(version: str, tmp_path: Path) -> None:
    async with foreign_agent() as agent, serving(tmp_path, agent.url) as team:
        wires = {name: await team.wire(name, version) for name in ("bob", "dan", "ada")}
        seen: dict[str, list[Any]] = {name: [] for name in wires}
        for number, name in enumerate((*wires, *reversed(wires)), 1):
            (answer,) = await wires[name].call(number, "tools/list")
            seen[name].append([tool["name"] for tool in answer["result"]["tools"]])
            assert answer["result"].get("cacheScope") == ("private" if version == MODERN else None)
    assert all(first == second for first, second in seen.values())
    assert seen["dan"][0] == FOLLOW_UPS
    assert seen["bob"][0] != seen["ada"][0]


@each_version
@pytest.mark.proves("web-auth")
async def test_a_key_and_a_token_give_the_same_rights(version: str, tmp_path: Path) -> None:
    async with foreign_agent() as agent, serving(tmp_path, agent.url) as team:
        wire = await team.wire("bob", version)
        message = wire.message(1, "tools/list")
        assert (await wire.post(message)).status_code == 200
        agreeing = await wire.post(message, authorization="Bearer token-bob")
        assert agreeing.status_code == 200
        wrongs: list[tuple[dict[str, str], str]] = [
            ({"authorization": "Bearer token-ada"}, ""),
            ({"authorization": "Bearer other"}, ', error="invalid_token"'),
            ({"x-api-key": "token-bob"}, ""),
        ]
        for wrong, error in wrongs:
            refused = await wire.post(message, **wrong)
            assert refused.status_code == 401
            assert refused.headers["WWW-Authenticate"] == (
                f'Bearer realm="mcp-a2a"{error}, ApiKey realm="mcp-a2a", header="X-API-Key"'
            )
