"""A face made of agents that runs in the test's own process, on a free port of loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client

from bridge.a2a.wire.versions import DialectChoice
from bridge.agents_as_tools.face import AgentsFace
from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import AuditPlan, CatalogPlan, OfferedPlan, Plan, ProcessPlan, RemotePlan
from bridge.config.tables.profile import Profile
from bridge.identity.tokens.oauth import TokenSource
from bridge.mcp.server.server import McpServer
from tests.support.ports import free_port
from tests.support.running import listening, profile_of


@dataclass(frozen=True)
class ExposeConfig:
    """Some remote agents, offered as one MCP server, as `mcp-a2a expose` does it."""

    urls: Sequence[str]
    profile: Profile
    name: str = "mcp-a2a"
    state: Path | None = None
    cache: Path | None = None
    dialect: DialectChoice = "auto"
    keys: tuple[str, ...] = ()
    tokens: TokenSource | None = None
    public_url: str | None = None
    push: bool = True
    audit: AuditPlan | None = None

    def plan(self) -> Plan:
        """The same as a plan."""
        agents = {
            url: RemotePlan(url, tokens=self.tokens, dialect=self.dialect, push=self.push)
            for url in self.urls
        }
        offered = OfferedPlan(tuple(agents), self.profile, named=False, server_name=self.name)
        place = ProcessPlan(
            public_url=self.public_url,
            state=self.state,
            cache=self.cache,
            keys=self.keys,
            audit=self.audit,
        )
        return Plan(self.profile, place, agents=agents, offered={"face": offered})


@dataclass(frozen=True)
class Exposure:
    """A face that is served."""

    face: AgentsFace
    server: McpServer


@asynccontextmanager
async def exposed(config: ExposeConfig) -> AsyncIterator[Exposure]:
    """A face, ready to be served as long as this is entered."""
    async with _running(config.plan(), over_http=False) as bridge:
        (offered,) = bridge.offered
        yield Exposure(offered.face, offered.server)


@asynccontextmanager
async def _running(plan: Plan, *, over_http: bool) -> AsyncIterator[Bridge]:
    bridge = Bridge(plan, over_http=over_http)
    async with bridge.run():
        await bridge.apply(plan)
        yield bridge


@dataclass(frozen=True)
class Exposed:
    """A face and where it listens."""

    exposure: Exposure
    url: str

    def client(self, mode: str, **options: Any) -> Client:
        """The official client, not yet entered."""
        return Client(self.url, mode=mode, cache=None, **options)  # type: ignore[arg-type]


@asynccontextmanager
async def exposing(
    folder: Path,
    *urls: str,
    mapping: str = "default",
    dialect: DialectChoice = "auto",
    keys: tuple[str, ...] = (),
    tokens: TokenSource | None = None,
    at_public_url: bool = False,
    push: bool = True,
    port: int = 0,
    audit: AuditPlan | None = None,
    **agents: Any,
) -> AsyncIterator[Exposed]:
    """Offer the agents at these URLs as an MCP server; other keywords change the `[agents]` of a profile.

    With `at_public_url` the agents are told where they can notify it.
    """
    port = port or free_port()
    profile = profile_of(mapping)
    profile = profile.having(agents=profile.agents.model_copy(update=agents))
    config = ExposeConfig(
        urls,
        profile,
        state=folder / "state",
        cache=folder / "cache",
        dialect=dialect,
        keys=keys,
        tokens=tokens,
        public_url=f"http://127.0.0.1:{port}" if at_public_url else None,
        push=push,
        audit=audit,
    )
    async with _offered(config.plan(), port) as there:
        yield there


@asynccontextmanager
async def exposing_catalog(folder: Path, catalog: CatalogPlan) -> AsyncIterator[Exposed]:
    """Offer the agents of a catalog as an MCP server."""
    profile = profile_of("default")
    place = ProcessPlan(state=folder / "state", cache=folder / "cache")
    offered = OfferedPlan(("cat",), profile)
    async with _offered(Plan(profile, place, catalogs={"cat": catalog}, offered={"face": offered})) as there:
        yield there


@asynccontextmanager
async def _offered(plan: Plan, port: int = 0) -> AsyncIterator[Exposed]:
    async with _running(plan, over_http=True) as bridge, listening(bridge.app, port) as root_url:
        (offered,) = bridge.offered
        try:
            yield Exposed(Exposure(offered.face, offered.server), f"{root_url}/mcp")
        finally:
            offered.server.stop()


def answering(*answers: types.ElicitResult) -> Any:
    """An elicitation callback that gives these answers in turn, and the questions that it saw."""
    left, seen = list(answers), []

    async def answer(_: Any, params: Any) -> types.ElicitResult:
        seen.append(params)
        return left.pop(0)

    answer.seen = seen  # type: ignore[attr-defined]
    return answer
