"""What a host of MCP 2026-07-28 says of itself reaches the tool server: that it takes no tasks, and early answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from bridge.mcp.client.eras import Era
from tests.conformance.server import FixtureServer
from tests.support.exposing import exposing
from tests.support.limits import url_at
from tests.support.mcp_wire import LEGACY, MODERN, Http, Json
from tests.support.running import config_for, listening, profile_with, running

TASKS: Final = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
ANSWERS: Final = {
    "user_name": {"action": "accept", "content": {"name": "Ada"}},
    "unknown": {"action": "accept", "content": {"x": 1}},
}


@asynccontextmanager
async def _host(
    folder: Path,
    version: str = MODERN,
    capabilities: Json | None = None,
    era: Era = Era.MODERN,
    **shares: Any,
) -> AsyncIterator[Http]:
    profile = profile_with(card={"max_age_seconds": 0})
    async with FixtureServer().serve() as app, listening(app) as url:
        config = config_for(url_at(f"{url}/mcp"), era=era, profile=profile, **shares)
        async with (
            running(config) as bridge,
            exposing(folder, bridge.base_url) as there,
            httpx2.AsyncClient(timeout=30) as client,
        ):
            http = Http(client, there.url, version, capabilities)
            await http.open()
            yield http


@pytest.mark.proves("tasks-missing")
async def test_a_host_without_tasks_gets_the_refusal_of_a_tool_that_needs_them(tmp_path: Path) -> None:
    async with _host(tmp_path, shares_tasks=True) as http:
        error = (await http.tool(1, "failing_job"))["error"]
        assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": TASKS})


@pytest.mark.proves("tasks-missing")
@pytest.mark.parametrize(
    ("capabilities", "shares_tasks", "version"),
    [(TASKS, True, MODERN), (None, False, MODERN), (None, True, LEGACY)],
    ids=["takes tasks", "not shared", "legacy"],
)
async def test_any_other_host_is_served(
    tmp_path: Path, capabilities: Json | None, shares_tasks: bool, version: str
) -> None:
    async with _host(tmp_path, version, capabilities, shares_tasks=shares_tasks) as http:
        answer = await http.tool(1, "failing_job")
        assert answer["result"]["isError"] is True  # which is what the tool does


@pytest.mark.proves("map-early-answers")
async def test_answers_before_the_question_reach_the_server(tmp_path: Path) -> None:
    async with _host(tmp_path, capabilities={"elicitation": {"form": {}}}) as http:
        name = "test_input_required_result_elicitation"
        params = {"name": name, "arguments": {}, "inputResponses": ANSWERS}
        result = (await http.call(1, "tools/call", params))[-1]["result"]
        assert result["content"][0]["text"] == "You answered: name=Ada, x=1"
        asked = (await http.tool(2, name))["result"]
        assert asked["resultType"] == "input_required"


@pytest.mark.proves("map-early-answers")
async def test_a_server_of_an_older_revision_gets_no_early_answers(tmp_path: Path) -> None:
    async with _host(tmp_path, era=Era.LEGACY, capabilities={"elicitation": {"form": {}}}) as http:
        params = {
            "name": "test_input_required_result_elicitation",
            "arguments": {},
            "inputResponses": ANSWERS,
        }
        result = (await http.call(1, "tools/call", params))[-1]["result"]
        assert result["resultType"] == "input_required"
