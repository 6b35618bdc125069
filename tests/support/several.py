"""An agent over several tool servers, served in the test's own process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx2

from bridge.a2a.model.life import IdsAndClock
from bridge.a2a.server.app import AgentServer
from bridge.a2a.server.service import AgentService
from bridge.a2a.tasks.engine import Engine
from bridge.a2a.wire.extensions import ExtensionFilter
from bridge.assembly.ids import OrderedIds, elapsed_ms, now_ms
from bridge.errors import PeerError
from bridge.http.request_checks import FaceAddress
from bridge.identity.callers.principals import LOCAL
from bridge.identity.callers.verifiers import Access
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.streamable_http import ServerTarget
from bridge.mcp.client.upstream import Upstream
from bridge.store.memory import MemoryStore
from bridge.store.sqlite import SQLiteStore
from bridge.tools_as_agent.agent import ToolsAgent
from bridge.tools_as_agent.skill_sources import SkillSource
from bridge.translate.extensions.bridge import GATED
from bridge.translate.overrides import SkillOverride
from tests.support.limits import (
    PROFILE,
    agent_limits,
    calls,
    engine_limits,
    server_settings,
)
from tests.support.running import Rpc, listening, message, mounted, texts
from tests.support.tools import options_with

BASE = "/agents/team"
PATIENT = {"call_timeout_seconds": 30.0, "queue_timeout_seconds": 30.0, "input_timeout_seconds": 30.0}


def chosen(**options: Any) -> Any:
    """The choices of an agent whose calls may take as long as a test does."""
    return options_with(**{**PATIENT, "inline_limit_bytes": 1000, "progress_per_second": 10.0, **options})


class Changes:
    """Tells the agent that its servers changed, once there is one."""

    agent: ToolsAgent | None = None

    def __call__(self) -> None:
        """One of them did."""
        if self.agent is not None:
            self.agent.refresh()


@dataclass
class Team:
    """An agent that runs, and how to reach it."""

    agent: ToolsAgent
    changes: Changes
    engine: Engine
    sources: list[SkillSource]
    rpc: Rpc
    base_url: str
    chosen: Any
    """The options that it began with."""

    async def card(self) -> tuple[dict[str, Any], str]:
        """The card as clients read it, and its ETag."""
        response = await self.rpc.client.get(f"{self.base_url}/.well-known/agent-card.json")
        return response.json(), response.headers["etag"]

    async def skills(self) -> dict[str, dict[str, Any]]:
        """The skills on the card by their ids."""
        card, _ = await self.card()
        return {skill["id"]: skill for skill in card["skills"]}

    async def on(self, task: dict[str, Any], *parts: dict[str, Any], **fields: Any) -> Any:
        """Send a message on a task; the task."""
        return await self.rpc.send(*parts, taskId=task["id"], **fields)

    async def streamed(self, *parts: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
        """All events of a stream."""
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendStreamingMessage",
            "params": message(*parts, **fields),
        }
        response = await self.rpc.client.post(self.base_url, json=body, headers=self.rpc.headers)
        lines = [line for line in response.text.splitlines() if line.startswith("data:")]
        return [json.loads(line[len("data:") :])["result"] for line in lines]


def said_by(task: dict[str, Any]) -> Any:
    """What a completed call gave: the server, the tool, the arguments."""
    assert state(task) == "COMPLETED", task
    (artifact,) = task["artifacts"]
    return json.loads(texts(artifact["parts"])[0])


def state(task: dict[str, Any]) -> str:
    """The state of a task, in short."""
    return str(task["status"]["state"]).removeprefix("TASK_STATE_")


def words(task: dict[str, Any]) -> str:
    """What the status of a task says."""
    return "\n".join(texts(task["status"]["message"]["parts"]))


@asynccontextmanager
async def team(
    targets: Mapping[str, ServerTarget],
    overrides: Mapping[str, SkillOverride] | None = None,
    *,
    store: str | None = None,
    limits: Mapping[str, Any] | None = None,
    agent: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> AsyncIterator[Team]:
    """An agent over these servers; `agent` changes its options, `store` is a file of tasks."""
    async with AsyncExitStack() as stack:
        changes = Changes()
        sources = [await source(stack, key, target, changes, limits) for key, target in targets.items()]
        options = chosen(**(agent or {}))
        served = ToolsAgent(sources, options, overrides, now_ms=now_ms, present=lambda asked: asked)
        changes.agent = served
        kept = await stack.enter_async_context(MemoryStore() if store is None else SQLiteStore(store))
        engine = await stack.enter_async_context(
            Engine(served, kept, IdsAndClock(OrderedIds(now_ms).new, now_ms, elapsed_ms), engine_limits())
        )
        stack.push_async_callback(engine.drain, 0)
        server = AgentServer(
            served,
            AgentService(engine, ExtensionFilter(GATED), PROFILE.requests.parts),
            Access((), LOCAL),
            FaceAddress(),
            agent_limits(),
        )
        root_url = await stack.enter_async_context(listening(mounted(BASE, server.at(BASE))))
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=30))
        rpc = Rpc(http, root_url + BASE, dict(headers or {}))
        yield Team(served, changes, engine, sources, rpc, root_url + BASE, options)


async def source(
    stack: AsyncExitStack,
    key: str,
    target: ServerTarget,
    changes: Changes,
    limits: Mapping[str, Any] | None = None,
) -> SkillSource:
    """A server, connected as long as the stack is; one that is down was tried once."""
    limits = {"settings": server_settings(connect_seconds=10), **calls(concurrency=8), **(limits or {})}
    upstream = Upstream(key, target, era=Era.MODERN, on_change=changes, **limits)
    await stack.enter_async_context(upstream.run())
    with suppress(PeerError):
        await upstream.ready()
    return SkillSource(key, upstream)
