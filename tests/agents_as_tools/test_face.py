"""What an MCP server made of agents lists besides tools for skills: tools for agents, tools to find skills, cards,
examples."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError
from mcp_types import ElicitResult

from bridge.agents_as_tools.options import FaceOptions
from tests.support.exposing import answering, exposing
from tests.support.foreign import foreign_agent
from tests.support.running import config_for, raw_command, running

each_mode = pytest.mark.parametrize("mode", ["auto", "legacy"])


def words(result: Any) -> str:
    return "\n".join(getattr(block, "text", "") for block in result.content)


@pytest.mark.proves("map-tools")
@each_mode
async def test_two_tools_find_skills_and_call_them(mode: str, tmp_path: Path) -> None:
    async with (
        foreign_agent() as agent,
        exposing(tmp_path, agent.url, granularity="search") as there,
        there.client(mode) as host,
    ):
        names = [tool.name for tool in (await host.list_tools()).tools]
        assert names == ["find_skill", "call_skill", "task_result", "task_reply", "task_cancel"]
        found = await host.call_tool("find_skill", {"query": "plain"})
        assert "plain" in words(found)
        done = await host.call_tool("call_skill", {"skill": "plain", "arguments": {"message": "hi"}})
        assert (done.is_error, "hi" in words(done)) == (False, True)
        unknown = await host.call_tool("call_skill", {"skill": "nothing", "arguments": {}})
        assert unknown.is_error
        assert "find_skill gives their names" in words(unknown)


@pytest.mark.proves("map-ask-back")
@each_mode
async def test_a_skill_called_by_search_can_ask_and_be_answered(mode: str, tmp_path: Path) -> None:
    answers = answering(
        ElicitResult(action="accept", content={"answer": "blue"}),
        ElicitResult(action="accept", content={"count": 3}),
    )
    async with (
        foreign_agent() as agent,
        exposing(tmp_path, agent.url, granularity="search") as there,
        there.client(mode, elicitation_callback=answers) as host,
    ):
        done = await host.call_tool("call_skill", {"skill": "ask", "arguments": {"message": "a box"}})
        assert words(done).startswith("Ordered 3")
        assert len(answers.seen) == 2


@pytest.mark.proves("map-tools")
@each_mode
async def test_one_tool_for_each_agent(mode: str, tmp_path: Path) -> None:
    async with (
        foreign_agent() as agent,
        exposing(tmp_path, agent.url, granularity="agent", follow_up_tools=False) as there,
        there.client(mode) as host,
    ):
        (tool,) = (await host.list_tools()).tools
        done = await host.call_tool(tool.name, {"message": "hi"})
        assert (done.is_error, "hi" in words(done)) == (False, True)


@pytest.mark.proves("map-cards-shown")
@each_mode
async def test_cards_are_resources_and_examples_are_prompts(mode: str, tmp_path: Path) -> None:
    async with (
        running(config_for(raw_command())) as bridge,
        exposing(tmp_path, bridge.base_url) as there,
        there.client(mode) as host,
    ):
        (resource,) = (await host.list_resources()).resources
        card = json.loads((await host.read_resource(str(resource.uri))).contents[0].text)  # type: ignore[union-attr]
        assert card["name"] == "Raw Server"
        prompts = {prompt.name for prompt in (await host.list_prompts()).prompts}
        assert "echo_1" in prompts
        shown = await host.get_prompt("echo_1")
        assert "echo" in shown.messages[0].content.text  # type: ignore[union-attr]
        with pytest.raises(MCPError):
            await host.read_resource("a2a://nobody/card")


@pytest.mark.proves("profile")
def test_the_profile_alone_decides_the_behaviour_of_an_mcp_server() -> None:
    chosen_in_code = {one.name for one in fields(FaceOptions) if one.default is not MISSING}
    assert chosen_in_code == {"title", "instructions", "names_one_agent"}
