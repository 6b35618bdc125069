"""What stands before the suites: a face of an agent of ours, and one of a wrapped MCP server, each on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from bridge.mcp.client.eras import Era
from tests.conformance.agent import FixtureAgent, build_app
from tests.conformance.server import FixtureServer
from tests.support.exposing import exposing
from tests.support.limits import url_at
from tests.support.running import config_for, listening, profile_with, running

_FACE: Final[dict[str, Any]] = {
    "task_after_seconds": 0.4,
    "card_min_seconds": 0.05,
    "card_max_seconds": 0.1,
}
"""The suites wait for a task, and for the news of a changed list, much shorter than a person would."""


@asynccontextmanager
async def agent_side(folder: Path) -> AsyncIterator[str]:
    """The agent of the fixtures exposed; the URL of its MCP server."""
    agent = FixtureAgent()
    async with listening(build_app(agent)) as url:
        agent.url = url
        async with exposing(folder, url, **_FACE) as there:
            yield there.url


@asynccontextmanager
async def round_trip_side(folder: Path, era: Era) -> AsyncIterator[str]:
    """The MCP server of the fixtures wrapped, and the agent made of it exposed; the URL of its MCP server."""
    profile = profile_with(card={"max_age_seconds": 0}, server={"settle_seconds": 0.02})
    async with FixtureServer().serve() as app, listening(app) as url:
        config = config_for(
            url_at(f"{url}/mcp"),
            era=era,
            profile=profile,
            share=("resources", "prompts"),
            shares_logs=True,
            shares_tasks=True,
        )
        async with running(config) as bridge, exposing(folder, bridge.base_url, **_FACE) as there:
            yield there.url
