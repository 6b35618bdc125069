"""Puts the parts together: a tool server, the agent made of it, its engine and store, and the faces.

The only place where a configuration meets the parts: each gets just the values that it needs.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from platformdirs import user_state_path
from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.a2a.engine import Engine, EngineLimits
from bridge.a2a.events import Ids
from bridge.a2a.gating import Gate
from bridge.a2a.server import AgentServer, ServerLimits
from bridge.a2a.service import Service
from bridge.a2a.streams import StreamPace
from bridge.config.profile import Profile
from bridge.errors import PeerError, UsageError
from bridge.mcp.child import Command
from bridge.mcp.eras import Era
from bridge.mcp.memory import Fact, ServerMemory
from bridge.mcp.session import SessionPace
from bridge.mcp.transport import Target
from bridge.mcp.upstream import SessionRules, Upstream
from bridge.store.memory import MemoryStore
from bridge.store.records import Store
from bridge.store.retention import Retention
from bridge.store.sqlite import SQLiteStore
from bridge.tools_as_agent.agent import ToolsAgent
from bridge.tools_as_agent.options import AgentOptions
from bridge.translate.extension import GATED
from bridge.translate.message_to_call import RouteRules
from bridge.web import ANONYMOUS, LOCAL, Access, Credential, Place, is_loopback

MEMORY_STORE: Final = "memory:"
_SQLITE_SCHEME: Final = "sqlite:///"
_RUNNER: Final = re.compile(r"npx|bunx?|deno|node|uvx?|pipx|python[\d.]*")
_PACKAGE: Final = re.compile(r"[@\w.][@\w./-]*")
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")


_LOW_62: Final = (1 << 62) - 1


@dataclass(frozen=True)
class WrapConfig:
    """One tool server, published as one agent."""

    target: Target
    profile: Profile
    host: str
    port: int
    name: str | None = None
    description: str | None = None
    public_url: str | None = None
    store: str | None = None
    """`memory:`, `sqlite:///PATH` or a path; None is a file in the user's state folder."""
    credentials: Sequence[Credential] = ()
    allow_unauthenticated: bool = False
    hosts: frozenset[str] = frozenset()
    era: Era = Era.AUTO

    def require_safe(self) -> None:
        """See `require_safe`."""
        require_safe(self.host, self.credentials, self.allow_unauthenticated)


def require_safe(host: str, credentials: Sequence[Credential], allow_unauthenticated: bool) -> None:
    """Refuse to be open to others without credentials, unless told to.

    Raises:
        UsageError: it would be.
    """
    if is_loopback(host) or credentials or allow_unauthenticated:
        return
    raise UsageError(
        f"listening on {host} lets other machines call the tools: "
        "give --auth bearer:env:NAME, or --allow-unauthenticated to let everyone"
    )


@dataclass(frozen=True)
class Bridge:
    """A bridge that runs."""

    app: ASGIApp
    agent: ToolsAgent
    engine: Engine
    upstream: Upstream
    face: str
    """The agent's name in its path."""
    store: str
    """Where its tasks are kept, in words."""

    @property
    def path(self) -> str:
        """The path of the agent's base."""
        return f"/agents/{self.face}"


class Faces:
    """The agents under their paths; the root is an alias of the only one."""

    def __init__(self, apps: dict[str, ASGIApp]) -> None:
        self._apps = apps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request to the face whose path it begins with."""
        path: str = scope["path"]
        for base, app in self._apps.items():
            if path == base or path.startswith(f"{base}/"):
                inner = {**scope, "root_path": scope.get("root_path", "") + base}
                return await app(inner, receive, send)
        return await next(iter(self._apps.values()))(scope, receive, send)


@asynccontextmanager
async def wrapped(config: WrapConfig) -> AsyncIterator[Bridge]:
    """Run a bridge as long as this is entered: connected, recovered, ready to be served.

    Raises:
        PeerError: the server is down, and the profile says `fail = "closed"`.
        UsageError: its command cannot be started, likewise; or the store is in use, or too new.
    """
    config.require_safe()
    profile, changed = config.profile, _Changes()
    pace = SessionPace(
        connect_seconds=profile.server.connect_seconds,
        longest_pause_seconds=profile.server.longest_pause_seconds,
        retire_seconds=profile.server.retire_seconds,
        settle_seconds=profile.server.settle_seconds,
        concurrency=profile.run.concurrency,
    )
    rules = SessionRules(
        per=profile.server.session,
        shared=profile.server.sessions,
        most=profile.server.sessions_most,
        idle_seconds=profile.server.session_idle_seconds,
        queue=profile.run.queue,
    )
    memory = ServerMemory(user_state_path("mcp-a2a") / "servers.json")
    upstream = Upstream(
        config.name or _name_of(config.target),
        config.target,
        era=config.era,
        memory=memory,
        pace=pace,
        rules=rules,
        on_change=changed,
    )
    async with upstream.run():
        await _first_connection(upstream, config)
        if config.name is None:
            upstream.name = _remembered_name(upstream, memory)
        face = slug(upstream.name)
        store, where = _store_for(config, face)
        agent = ToolsAgent(upstream, face, _agent_options(config), needs_token=bool(config.credentials))
        changed.tell(agent)
        async with store, _engine_for(agent, store, profile) as engine:
            server = _server_for(agent, engine, config)
            base = f"/agents/{face}"
            faces = Faces({base: server.at(base)})
            yield Bridge(faces, agent, engine, upstream, face, where)


def slug(name: str) -> str:
    """A name as it stands in paths and file names."""
    return _NOT_IN_NAMES.sub("-", name.lower()).strip("-")[:40].strip("-") or "tools"


def new_id() -> str:
    """A new UUID version 7: ordered by time, which keeps the store quick, with 74 random bits."""
    moment, chance = time.time_ns() // 1_000_000, secrets.randbits(74)
    value = (moment << 80) | (0x7 << 76) | (chance >> 62 << 64) | (0b10 << 62) | (chance & _LOW_62)
    spelled = f"{value:032x}"
    return "-".join((spelled[:8], spelled[8:12], spelled[12:16], spelled[16:20], spelled[20:]))


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class _Changes:
    """Tells the agent that its server changed, once there is an agent."""

    def __init__(self) -> None:
        self._agent: ToolsAgent | None = None

    def tell(self, agent: ToolsAgent) -> None:
        self._agent = agent
        agent.refresh()

    def __call__(self) -> None:
        if self._agent is not None:
            self._agent.refresh()


async def _first_connection(upstream: Upstream, config: WrapConfig) -> None:
    try:
        await upstream.ready()
    except (PeerError, UsageError):
        if config.profile.server.fail == "closed":
            raise


def _name_of(target: Target) -> str:
    """A name for a server that has not said its own: the host of a URL, the command, or what it runs."""
    if not isinstance(target, Command):
        return urlsplit(target.url).hostname or "tools"
    command, *words = target.argv
    run = (
        [word for word in words if _PACKAGE.fullmatch(word)] if _RUNNER.fullmatch(Path(command).name) else []
    )
    return Path(run[0] if run else command).stem or command


def _remembered_name(upstream: Upstream, memory: ServerMemory) -> str:
    """What the server calls itself: now, or while it is down, what it did last time. Its path depends on it."""
    server = str(upstream.target)
    if upstream.greeting is None:
        return memory.recall(Fact.NAME, server) or upstream.name
    memory.remember(Fact.NAME, server, upstream.greeting.name)
    return upstream.greeting.name


def _store_for(config: WrapConfig, face: str) -> tuple[Store, str]:
    said = config.store
    if said == MEMORY_STORE:
        return MemoryStore(), "memory only: tasks are lost when the bridge stops"
    if said is None:
        path = user_state_path("mcp-a2a") / f"{face}-{config.port}.db"
    elif said == MEMORY_STORE.rstrip(":"):
        raise UsageError(f"--store {said}: did you mean {MEMORY_STORE}, or ./{said} for a file of that name?")
    elif "://" in said and not said.startswith(_SQLITE_SCHEME):
        raise UsageError(f"--store takes memory:, sqlite:///PATH or a path, not {said!r}")
    else:
        path = Path(said.removeprefix(_SQLITE_SCHEME)).expanduser()
    return SQLiteStore(path, synchronous=config.profile.store.synchronous), str(path)


def _engine_for(agent: ToolsAgent, store: Store, profile: Profile) -> Engine:
    limits = EngineLimits(
        cancel_grace_seconds=profile.run.cancel_grace_seconds,
        drain_seconds=profile.run.drain_seconds,
        repeat_seconds=profile.requests.repeat_seconds,
        watch_events=profile.streams.queue_events,
        input_timeout_seconds=profile.run.input_timeout_seconds,
    )
    retention = Retention(
        profile.store.keep_ended_seconds, profile.store.keep_ended_tasks, profile.store.clean_every_seconds
    )
    return Engine(agent, store, Ids(new_id, now_ms), limits, retention)


def _server_for(agent: ToolsAgent, engine: Engine, config: WrapConfig) -> AgentServer:
    profile = config.profile
    return AgentServer(
        agent,
        Service(engine, Gate(GATED), profile.requests.parts),
        Access(config.credentials, LOCAL if is_loopback(config.host) else ANONYMOUS),
        Place(config.public_url, config.hosts | {config.host}),
        ServerLimits(
            body_bytes=profile.requests.body_limit_bytes,
            json_depth=profile.requests.json_depth,
            streams=profile.streams.open,
            card_max_age_seconds=profile.card.max_age_seconds,
        ),
        StreamPace(profile.streams.heartbeat_seconds, profile.streams.stall_seconds),
    )


def _agent_options(config: WrapConfig) -> AgentOptions:
    profile = config.profile
    route = RouteRules(
        tuple(profile.route.metadata_keys), profile.route.default_skill or None, profile.route.text_into
    )
    return AgentOptions(
        route=route,
        incomplete=profile.arguments.incomplete,
        call_timeout_seconds=profile.run.call_timeout_seconds,
        task_timeout_seconds=profile.run.task_timeout_seconds,
        queue_timeout_seconds=profile.run.queue_timeout_seconds,
        input_timeout_seconds=profile.run.input_timeout_seconds,
        cancel_grace_seconds=profile.run.cancel_grace_seconds,
        inline_limit_bytes=profile.content.inline_limit_bytes,
        allow_file_links=profile.content.allow_file_links,
        progress_in_flight=profile.run.progress_in_flight,
        progress_per_second=profile.run.progress_per_second,
        name=config.name,
        description=config.description,
    )
