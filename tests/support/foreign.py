"""The agent of many behaviours in the test's own process, reached through a proxy, and exposed as MCP servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import anyio
import anyio.abc
import httpx
from starlette.applications import Starlette

from tests.peers.sdk_behaviours import Seen, build_app
from tests.support.proxy import Proxy, proxy_to
from tests.support.running import listening


@dataclass
class Foreign:
    """A foreign agent that runs: its address, what it has seen, and the proxy that all calls pass."""

    proxy: Proxy
    name: str
    streaming: bool
    tasks: anyio.abc.TaskGroup
    notify_with: httpx.AsyncClient | None = None
    seen: Seen = field(default_factory=Seen)

    @property
    def url(self) -> str:
        """Where it is, as its card says too."""
        return self.proxy.url("")

    async def begin(self) -> None:
        """Start it, or another one in its place that knows no task: so it is after a restart."""
        self.seen = Seen()
        app = build_app(
            self.url, self.seen, name=self.name, streaming=self.streaming, notify_with=self.notify_with
        )
        self.proxy.to_port = await self.tasks.start(_serve, app)

    async def restart(self) -> None:
        """Break all connections, and forget all tasks."""
        await self.begin()
        self.proxy.drop_all()

    def die(self) -> None:
        """Be gone: nobody listens, and what is open breaks."""
        self.proxy.refuse()
        self.proxy.drop_all()


async def _serve(app: Starlette, *, task_status: anyio.abc.TaskStatus[int]) -> None:
    async with listening(app) as root_url:
        task_status.started(urlsplit(root_url).port)
        await anyio.sleep_forever()


@asynccontextmanager
async def foreign_agent(
    name: str = "Behaviours", *, streaming: bool = True, push: bool = False
) -> AsyncIterator[Foreign]:
    """Run the agent."""
    async with proxy_to(0) as proxy, httpx.AsyncClient() as http, anyio.create_task_group() as tasks:
        agent = Foreign(proxy, name, streaming, tasks, http if push else None)
        await agent.begin()
        yield agent
        agent.seen.released.set()
        agent.seen.visited.set()
        proxy.drop_all()
        tasks.cancel_scope.cancel()
