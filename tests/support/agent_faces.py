"""A face of agents made without a profile or a plan, so that a test says itself what is in it, and may update it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client

from bridge.a2a.client.agent_card import CardSource
from bridge.agents_as_tools.face import AgentsFace
from bridge.agents_as_tools.handles import Handles
from bridge.agents_as_tools.options import FaceOptions
from bridge.http.request_checks import FaceAddress
from bridge.identity.callers.principals import LOCAL
from bridge.identity.callers.verifiers import Access
from bridge.mcp.server.server import McpServer
from bridge.remotes.remote_agent import RemoteAgent
from bridge.seal import Seal
from bridge.translate.extensions import mcp_requests
from bridge.translate.extensions.bridge import URI
from bridge.translate.overrides import ToolOverride
from tests.support.limits import card_bounds, client_options, face_options, mcp_limits
from tests.support.running import listening

OPTIONS = face_options()
"""Those of the default profile."""


@dataclass
class Agents:
    """Makes remote agents."""

    folder: Path
    http: httpx2.AsyncClient

    def __call__(self, url: str, **named: Any) -> RemoteAgent:
        """One that no face has yet."""
        source = CardSource(self.http, url, self.folder, card_bounds())
        return RemoteAgent(
            url, source, self.http, client_options(extensions=(URI, mcp_requests.URI)), **named
        )


@dataclass
class Served:
    """A face and where it listens."""

    agents: Agents
    face: AgentsFace
    server: McpServer
    url: str
    made: list[RemoteAgent]
    """The agents that it began with."""
    changes: list[None] = field(default_factory=list)
    """One for each time that the face said that it has changed."""

    def client(self, mode: str = "auto", **options: Any) -> Client:
        """The official client, not yet entered."""
        return Client(self.url, mode=mode, cache=None, **options)  # type: ignore[arg-type]


@asynccontextmanager
async def serving(
    folder: Path,
    made: Callable[[Agents], list[RemoteAgent]],
    overrides: Mapping[str, ToolOverride] | None = None,
    options: FaceOptions = OPTIONS,
) -> AsyncIterator[Served]:
    """Serve a face of some agents over HTTP."""
    async with httpx2.AsyncClient(timeout=30) as http:
        agents = Agents(folder, http)
        begun = made(agents)
        face = AgentsFace(begun, Handles(Seal([secrets.token_bytes(32)])), options, overrides or {})
        changes: list[None] = []
        servers: list[McpServer] = []

        def changed() -> None:
            changes.append(None)
            for server in servers:
                server.changed()

        async with face.run(changed, first_cards_seconds=10):
            servers.append(McpServer(face, mcp_limits()))
            async with servers[0].at(Access((), LOCAL), FaceAddress()) as app, listening(app) as root_url:
                try:
                    yield Served(agents, face, servers[0], f"{root_url}/mcp", begun, changes)
                finally:
                    servers[0].stop()


def words_in(result: Any) -> str:
    """The texts of a result."""
    return "\n".join(getattr(block, "text", "") for block in result.content)
