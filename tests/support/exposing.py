"""A face made of agents that runs in the test's own process, on a free port of loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client

from bridge.config.profile import load_profile
from bridge.exposed import ExposeConfig, Exposure, exposed
from bridge.web import LOCAL, Access, Place
from tests.support.running import listening


@dataclass(frozen=True)
class Exposed:
    """A face and where it listens."""

    exposure: Exposure
    url: str

    def client(self, mode: str, **options: Any) -> Client:
        """The official client, not yet entered."""
        return Client(self.url, mode=mode, cache=None, **options)  # type: ignore[arg-type]


@asynccontextmanager
async def exposing(folder: Path, *urls: str, **agents: Any) -> AsyncIterator[Exposed]:
    """Offer the agents at these URLs as an MCP server; keywords change the profile's `[agents]`."""
    profile = load_profile()
    profile = profile.model_copy(update={"agents": profile.agents.model_copy(update=agents)})
    config = ExposeConfig(urls, profile, state=folder / "state", cache=folder / "cache")
    async with (
        exposed(config) as exposure,
        exposure.server.at(Access((), LOCAL), Place()) as app,
        listening(app) as root_url,
    ):
        try:
            yield Exposed(exposure, f"{root_url}/mcp")
        finally:
            exposure.server.stop()


def answering(*answers: types.ElicitResult) -> Any:
    """An elicitation callback that gives these answers in turn, and the questions that it saw."""
    left, seen = list(answers), []

    async def answer(_: Any, params: Any) -> types.ElicitResult:
        seen.append(params)
        return left.pop(0)

    answer.seen = seen  # type: ignore[attr-defined]
    return answer
