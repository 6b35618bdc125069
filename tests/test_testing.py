"""`bridge.testing`: an MCP server as an agent in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.server import MCPServer, Server, ServerRequestContext
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

import bridge.testing
from bridge.errors import CallerError, ConfigError, PeerError, UsageError
from examples.demo_server import server as demo

PNG = b"\x89PNG\r\n\x1a\n"


class Day(BaseModel):
    day: str


def small() -> MCPServer:
    server = MCPServer("small", log_level="CRITICAL")

    @server.tool(structured_output=False)
    def greet(name: str = "you") -> str:
        """Greet someone."""
        return f"Hello, {name}!"

    @server.tool()
    def delete_all() -> str:
        """Delete everything."""
        return "deleted"

    @server.tool(structured_output=False)
    def draw() -> Image:
        """Draw."""
        return Image(data=PNG, format="png")

    @server.tool()
    def fail() -> str:
        """Fail."""
        raise ToolError("no ink")

    @server.tool(structured_output=False)
    def long(size: int) -> str:
        """Say much."""
        return "x" * size

    return server


async def test_a_call_gives_text_state_and_task() -> None:
    async with bridge.testing.agent(small()) as agent:
        answer = await agent.call("greet", name="Ada")
    assert (answer.state, answer.text, answer.data, answer.files) == ("completed", "Hello, Ada!", None, ())
    assert answer.task["status"]["state"] == "TASK_STATE_COMPLETED"  # type: ignore[index, call-overload]


async def test_structured_content_is_the_data() -> None:
    async with bridge.testing.agent(demo) as agent:
        answer = await agent.call("trip", kilometres=80, speed=40)
    assert answer.data == {"kilometres": 80.0, "hours": 2.0}


async def test_an_image_is_a_file() -> None:
    async with bridge.testing.agent(small()) as agent:
        (file,) = (await agent.call("draw")).files
    assert (file.media_type, file.content) == ("image/png", PNG)


async def test_a_tool_that_fails_is_an_answer_and_no_exception() -> None:
    async with bridge.testing.agent(small()) as agent:
        answer = await agent.call("fail")
    assert answer.state == "failed"
    assert "no ink" in answer.text


async def test_a_text_finds_its_skill() -> None:
    async with bridge.testing.agent(
        demo, skills={"*": {"hidden": True}, "greet": {"hidden": False}}
    ) as agent:
        answer = await agent.say("Ada")
    assert answer.text == "Hello, Ada!"


async def test_skills_are_as_the_configuration_says() -> None:
    skills: dict[str, dict[str, Any]] = {"delete_*": {"hidden": True}, "greet": {"confirm": True}}
    async with bridge.testing.agent(small(), skills=skills) as agent:
        assert agent.skills == ("greet", "draw", "fail", "long")
        with pytest.raises(CallerError, match="the agent has no skill 'delete_all'"):
            await agent.call("delete_all")
        asked = await agent.call("greet", name="Ada")
        assert asked.state == "auth-required"
        assert (await agent.decline(asked)).state == "rejected"
        assert (await agent.reply(await agent.call("greet", name="Ada"))).text == "Hello, Ada!"


async def test_a_mistake_in_the_skills_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="did you mean `hidden`"):
        async with bridge.testing.agent(small(), skills={"greet": {"hiden": True}}):
            pytest.fail("it is refused")


async def test_a_question_is_answered_declined_and_canceled() -> None:
    async with bridge.testing.agent(demo) as agent:
        asked = await agent.call("book", destination="Ghent")
        assert asked.state == "input-required"
        assert "Ghent" in asked.text
        assert (await agent.reply(asked, number=2)).text == "Booked 2 to Ghent"
        declined = await agent.decline(await agent.call("book", destination="Ghent"))
        assert declined.state == "failed"
        canceled = await agent.cancel(await agent.call("book", destination="Ghent"))
        assert canceled.state == "canceled"


async def test_a_tool_that_asks_in_the_older_way_is_served_in_the_older_era() -> None:
    server = MCPServer("older", log_level="CRITICAL")

    @server.tool(structured_output=False)
    async def book(context: Context[Any, Any]) -> str:
        """Book a table."""
        answered = await context.elicit("Which day?", Day)
        return f"Booked for {answered.data.day}" if answered.action == "accept" else "Not booked"

    async with bridge.testing.agent(server, era="legacy") as agent:
        asked = await agent.call("book")
        assert (asked.state, asked.text.splitlines()[0]) == ("input-required", "Which day?")
        assert (await agent.reply(asked, day="Monday")).text == "Booked for Monday"
        assert (await agent.decline(await agent.call("book"))).text == "Not booked"


async def test_a_reply_to_what_asks_nothing_is_refused() -> None:
    async with bridge.testing.agent(small()) as agent:
        answer = await agent.call("greet")
        with pytest.raises(CallerError, match="the task asks nothing: it is completed"):
            await agent.reply(answer, name="Ada")
        with pytest.raises(PeerError, match="refused CancelTask"):
            await agent.cancel(answer)


async def test_calls_may_run_at_the_same_time() -> None:
    async with bridge.testing.agent(small()) as agent:
        answers: dict[str, str] = {}

        async def call(name: str) -> None:
            answers[name] = (await agent.call("greet", name=name)).text

        async with anyio.create_task_group() as group:
            for name in ("Ada", "Grace", "Mary"):
                group.start_soon(call, name)
    assert answers == {name: f"Hello, {name}!" for name in ("Ada", "Grace", "Mary")}


async def test_the_limits_of_sizes_hold_as_for_a_process() -> None:
    async with bridge.testing.agent(small()) as agent:
        assert (await agent.call("long", size=1000)).text == "x" * 1000
        answer = await agent.call("long", size=64 << 20)
        assert answer.state == "failed"
        assert "the result is larger than" in answer.text
        assert (await agent.call("greet")).state == "completed"


async def test_a_low_level_server_is_served() -> None:
    async def list_tools(
        context: ServerRequestContext, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="echo", input_schema={"type": "object"})])

    async def call_tool(
        context: ServerRequestContext, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text=str(params.arguments))])

    server = Server("low", on_list_tools=list_tools, on_call_tool=call_tool)
    async with bridge.testing.agent(server) as agent:
        assert (await agent.call("echo", word="hi")).text == "{'word': 'hi'}"


async def test_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    async with bridge.testing.agent(small()) as agent:
        await agent.call("greet")
    assert [*tmp_path.rglob("*")] == []


async def test_what_is_no_server_is_refused() -> None:
    with pytest.raises(UsageError, match="is no MCP server"):
        async with bridge.testing.agent("npx server"):  # type: ignore[arg-type]
            pytest.fail("it is refused")
