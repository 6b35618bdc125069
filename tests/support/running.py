"""A bridge that runs in the test's own process, on a free port of loopback."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from socket import socket
from typing import Any, Final

import anyio
import httpx2
from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.a2a.tasks.engine import Engine
from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import Plan, ProcessPlan, PublishedPlan, PushPlan, ServerPlan, SharedStore
from bridge.config.tables.profile import Profile, load_profile
from bridge.http.connections import HttpServerLimits
from bridge.http.server import BoundedServer
from bridge.http.tls import TlsPoint
from bridge.identity.callers.issuers import Issuer
from bridge.identity.callers.verifiers import Credential
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.stdio import StdioTarget
from bridge.mcp.client.transports.streamable_http import ServerTarget
from bridge.mcp.client.upstream import Upstream
from bridge.process.listening import listening as bound
from bridge.text.short_names import slug
from bridge.tools_as_agent.agent import ToolsAgent
from bridge.translate.extensions.mcp_requests import Shared
from bridge.translate.overrides import SkillOverride
from tests.support.limits import command_of
from tests.support.ports import free_port

RAW_SERVER = Path(__file__).with_name("raw_server.py")
VERSION = {"A2A-Version": "1.0"}
EXTENSION = "urn:mcp-a2a:tool:v1"
_END_SECONDS: Final = 0.5
"""How long requests that are still at work hold up the end of a server, before they are cancelled."""


def raw_command(*options: str) -> StdioTarget:
    """The raw MCP server of these tests, as a child process."""
    return command_of((sys.executable, "-S", "-E", str(RAW_SERVER), *options))


profile_of: Final = cache(load_profile)
"""A profile by its name, which is read once: nothing of it can be changed."""


def profile_with(**tables: dict[str, Any]) -> Profile:
    """The default profile with some keys changed: `profile_with(run={"queue": 1})`."""
    profile = profile_of("default")
    changed = {name: getattr(profile, name).model_copy(update=keys) for name, keys in tables.items()}
    return profile.model_copy(update=changed)


@dataclass(frozen=True)
class WrapConfig:
    """One tool server, published as one agent, as `mcp-a2a wrap` does it."""

    target: ServerTarget
    profile: Profile
    host: str = "127.0.0.1"
    port: int = 0
    name: str | None = None
    description: str | None = None
    public_url: str | None = None
    store: str | SharedStore | None = None
    keys: tuple[Path | str, ...] = ()
    credentials: Sequence[Credential] = ()
    issuers: Mapping[str, Issuer] = field(default_factory=dict)
    allow_unauthenticated: bool = False
    hosts: frozenset[str] = frozenset()
    push: PushPlan | None = None
    era: Era = Era.AUTO
    overrides: Mapping[str, SkillOverride] = field(default_factory=dict)
    operators_see_contents: bool = False
    share: tuple[Shared, ...] = ()
    shares_logs: bool = False
    shares_tasks: bool = False

    def plan(self) -> Plan:
        """The same as a plan."""
        name = slug(self.name) if self.name else ""
        server = ServerPlan.as_profile_says(self.target, self.era, self.profile.server, self.profile.run)
        store = self.store.removeprefix("sqlite:///") if isinstance(self.store, str) else self.store
        agent = PublishedPlan(
            (name,),
            self.profile,
            store,
            self.name,
            self.description,
            share=self.share,
            shares_logs=self.shares_logs,
            shares_tasks=self.shares_tasks,
            overrides=self.overrides,
        )
        return Plan(
            self.profile,
            ProcessPlan(
                self.host,
                self.port,
                self.public_url,
                self.hosts,
                keys=self.keys,
                push=self.push,
                operators_see_contents=self.operators_see_contents,
            ),
            self.credentials,
            self.allow_unauthenticated,
            issuers=self.issuers,
            servers={name: server},
            published={name: agent},
        )

    def require_safe(self) -> None:
        """See `Plan.require_safe`."""
        self.plan().require_safe()


@dataclass(frozen=True)
class Wrapped:
    """A bridge with one agent of one server."""

    whole: Bridge

    @property
    def app(self) -> ASGIApp:
        """All that it serves."""
        return self.whole.app

    @property
    def agent(self) -> ToolsAgent:
        """The agent."""
        return self.whole.published[0].agent

    @property
    def engine(self) -> Engine:
        """Its tasks."""
        return self.whole.published[0].engine

    @property
    def upstream(self) -> Upstream:
        """The server."""
        (upstream,) = self.whole.upstreams.values()
        return upstream

    @property
    def path(self) -> str:
        """The path of the agent's base."""
        return self.whole.published[0].path


@asynccontextmanager
async def wrapped(config: WrapConfig) -> AsyncIterator[Wrapped]:
    """Run a bridge as long as this is entered; nothing listens."""
    plan = config.plan()
    plan.require_safe()
    bridge = Bridge(plan)
    async with bridge.run():
        await bridge.apply(plan)
        yield Wrapped(bridge)


def config_for(target: ServerTarget, **changes: Any) -> WrapConfig:
    """A configuration for tests: memory store, a free port, the era known (which saves a probe)."""
    base = WrapConfig(target, profile_of("default"), "127.0.0.1", 0, store="memory:", era=Era.LEGACY)
    return replace(base, **changes)


@dataclass(frozen=True)
class Running:
    """A bridge and how to reach it."""

    bridge: Wrapped
    root_url: str

    @property
    def base_url(self) -> str:
        """The agent's base."""
        return f"{self.root_url}{self.bridge.path}"


def server_limits(profile: Profile, descriptors: int) -> HttpServerLimits:
    """The limits of a server, as a process makes them."""
    return HttpServerLimits(profile.requests, profile.connections).within(descriptors)


DEFAULT_LIMITS: Final = server_limits(profile_of("default"), descriptors=4096)


@asynccontextmanager
async def listening(
    app: Any, port: int = 0, limits: HttpServerLimits = DEFAULT_LIMITS, tls: TlsPoint | None = None
) -> AsyncIterator[str]:
    """Serve an ASGI application, by default on a free port; its root URL."""
    server = _Server(app, limits, tls)
    async with (
        bound("127.0.0.1", port or free_port()) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(server.serve_on, listener)
        await server.starting.wait()
        try:
            yield f"{'http' if tls is None else 'https'}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.ending.set()


def mounted(base: str, app: ASGIApp) -> ASGIApp:
    """An application under a path, and at the root as well."""

    async def at(scope: Scope, receive: Receive, send: Send) -> None:
        inner = {**scope, "root_path": base} if scope["path"].startswith(base) else scope
        await app(inner, receive, send)

    return at


class _Server(BoundedServer):
    """The bridge's server, which ends at once where its own looks ten times a second: over all tests these tenths are
    minutes."""

    def __init__(self, app: Any, limits: HttpServerLimits, tls: TlsPoint | None) -> None:
        super().__init__(app, limits, tls=tls)
        self.starting, self.ending = anyio.Event(), anyio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)  # which makes the headers of every response
        self.starting.set()
        await self.ending.wait()

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        self.accept_no_more()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with anyio.move_on_after(_END_SECONDS) as waiting:
            while self.server_state.connections or self.server_state.tasks:
                await anyio.sleep(0.001)
        if waiting.cancelled_caught:
            for task in self.server_state.tasks:
                task.cancel()
            for connection in list(self.server_state.connections):
                connection.transport.abort()
            while (
                self.server_state.connections
            ):  # else a later test is told of sockets that were never closed
                await anyio.sleep(0.001)


@asynccontextmanager
async def running(config: WrapConfig) -> AsyncIterator[Running]:
    """Run and serve a bridge."""
    async with wrapped(config) as bridge, listening(bridge.app) as root_url:
        try:
            yield Running(bridge, root_url)
        finally:
            await bridge.engine.drain(0)


class Rpc:
    """A JSON-RPC client with nothing between the test and the wire."""

    def __init__(self, client: httpx2.AsyncClient, url: str, headers: dict[str, str] | None = None) -> None:
        self.client = client
        self.url = url
        self.headers = {**VERSION, **(headers or {})}

    async def post(self, method: str, params: Any) -> httpx2.Response:
        """The whole HTTP response to one call."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self.client.post(self.url, json=body, headers=self.headers)

    async def call(self, method: str, params: Any) -> Any:
        """The result of a call; an error is an AssertionError that shows it."""
        answer = (await self.post(method, params)).json()
        assert "result" in answer, answer
        return answer["result"]

    async def error(self, method: str, params: Any) -> Any:
        """The error of a call that has to fail."""
        answer = (await self.post(method, params)).json()
        assert "error" in answer, answer
        return answer["error"]

    async def send(self, *parts: dict[str, Any], **fields: Any) -> Any:
        """SendMessage with these parts; the task."""
        return (await self.call("SendMessage", message(*parts, **fields)))["task"]


_numbers = iter(range(1, 1_000_000_000))


def message(
    *parts: dict[str, Any], configuration: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    """The parameters of SendMessage with a fresh message id."""
    said = {"messageId": f"m-{next(_numbers)}", "role": "ROLE_USER", "parts": list(parts), **fields}
    return {"message": said, **({"configuration": configuration} if configuration else {})}


def call_part(skill: str, **arguments: Any) -> dict[str, Any]:
    """The part that calls a skill."""
    return {"data": {"skill": skill, "arguments": arguments}}


def texts(parts: Sequence[dict[str, Any]]) -> list[str]:
    """The texts of some parts."""
    return [part["text"] for part in parts if "text" in part]
