"""Puts the parts together for the second direction: remote agents, the face made of them, and its MCP server."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx2
from platformdirs import user_cache_path, user_state_path

from bridge.a2a.cards import CardBounds, CardSource
from bridge.a2a.client import ClientOptions, Deadlines
from bridge.a2a.credentials import Credentials
from bridge.a2a.interfaces import Trust
from bridge.agents_as_tools.face import AgentsFace
from bridge.agents_as_tools.handles import Handles
from bridge.agents_as_tools.options import FaceOptions
from bridge.agents_as_tools.remote_agent import RemoteAgent
from bridge.config.profile import Profile
from bridge.mcp.server import McpServer
from bridge.seal import Seal, key_in
from bridge.translate.extension import URI
from bridge.translate.skill_tools import ToolRules

logger = logging.getLogger(__name__)

_FOLDER: Final = "mcp-a2a"


@dataclass(frozen=True)
class ExposeConfig:
    """Some remote agents, offered as one MCP server."""

    urls: Sequence[str]
    profile: Profile
    name: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    bearer: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    trusted: frozenset[str] = frozenset()
    """Origins to which credentials may go besides those of the URLs."""
    state: Path | None = None
    """Where the key of the handles is; None is the user's state folder."""
    cache: Path | None = None
    """Where cards are remembered; None is the user's cache folder."""


@dataclass(frozen=True)
class Exposure:
    """A face that is served."""

    face: AgentsFace
    server: McpServer


@asynccontextmanager
async def exposed(config: ExposeConfig) -> AsyncIterator[Exposure]:
    """Read the agents' cards, and be ready to be served as long as this is entered.

    Raises:
        UsageError: the key of the handles cannot be read or made.
    """
    chosen = config.profile.agents
    # No credentials of its own: each agent's client adds those that are its own.
    timeout = httpx2.Timeout(None, connect=chosen.agent_connect_seconds)
    async with httpx2.AsyncClient(timeout=timeout, limits=httpx2.Limits(keepalive_expiry=2.0)) as http:
        face = AgentsFace(
            [_agent(url, config, http) for url in dict.fromkeys(config.urls)],
            Handles(Seal([key_in(config.state or user_state_path(_FOLDER))])),
            FaceOptions(
                name=config.name or "mcp-a2a",
                rules=ToolRules(chosen.granularity, always_prefixed=chosen.prefix == "always"),
                follow_up_tools=chosen.follow_up_tools,
                answer_within_seconds=chosen.answer_within_seconds,
                task_after_seconds=chosen.task_after_seconds,
                task_poll_seconds=chosen.task_poll_seconds,
                task_ttl_seconds=chosen.task_ttl_seconds,
                outage_seconds=chosen.outage_seconds,
                skill_in_text=chosen.skill_in_text,
                inline_limit_bytes=chosen.part_inline_limit_bytes,
                cancel_seconds=config.profile.run.cancel_grace_seconds,
            ),
        )
        servers: list[McpServer] = []

        def changed() -> None:
            for server in servers:
                server.changed()

        async with face.run(changed, chosen.first_cards_seconds):
            # Made once the cards are there, of which it says what it is.
            servers.append(McpServer(face))
            yield Exposure(face, servers[0])


def _agent(url: str, config: ExposeConfig, http: httpx2.AsyncClient) -> RemoteAgent:
    chosen = config.profile.agents
    credentials = Credentials(headers=config.headers, bearer=config.bearer, api_key=config.api_key)
    options = ClientOptions(
        extensions=(URI,),
        credentials=credentials,
        trust=Trust(config.trusted, allow_private=chosen.allow_private),
        deadlines=Deadlines(chosen.agent_connect_seconds, chosen.answer_seconds, chosen.silence_seconds),
    )
    source = CardSource(
        http,
        url,
        config.cache or user_cache_path(_FOLDER),
        CardBounds(chosen.card_min_seconds, chosen.card_max_seconds),
        credentials.card_headers(),
    )
    return RemoteAgent(url, source, http, options)
