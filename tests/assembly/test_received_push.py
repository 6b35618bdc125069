"""Notifications that a whole bridge receives: at another replica than the one that waits, and within bounds."""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from starlette.types import Message, Receive, Scope, Send

from bridge.a2a.wire.choices import DialectChoice
from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import PushPlan
from bridge.mcp.client.eras import Era
from tests.support.drivers import JsonRpcDriver, new_client
from tests.support.exposing import exposing
from tests.support.face_replicas import ALICE, LEASE_SECONDS, PATH, FaceReplicas
from tests.support.foreign import foreign_agent
from tests.support.mcp_tasks import TAKES_ALL, TaskClient, task_client
from tests.support.mcp_wire import MODERN, Http
from tests.support.ports import free_port
from tests.support.running import config_for, listening
from tests.support.tool_server import ToolServer, listed

pytestmark = [pytest.mark.outside, pytest.mark.proves("a2a-4.3.3-received")]

WAIT_SECONDS = 30
KEY = "a key of thirty-two characters or more"
_STREAMS = re.compile(rb'("streaming": ?)true')
SLOWLY: dict[str, Any] = {"task_after_seconds": 0, "push_poll_seconds": 3600, "push_look_seconds": 0}


@asynccontextmanager
async def notifying_bridge(tools: ToolServer, port: int) -> AsyncIterator[str]:
    """An agent of a bridge that may notify what listens at a port. Its card says that it does not stream."""
    plan = config_for(tools.target, name="one", keys=(KEY,), era=Era.MODERN).plan()
    plan = replace(plan, place=replace(plan.place, push=PushPlan(frozenset({f"127.0.0.1:{port}"}))))
    bridge = Bridge(plan)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def unstreamed(message: Message) -> None:
            if scope["path"].endswith("agent-card.json") and "body" in message:
                message = {**message, "body": _STREAMS.sub(rb"\1null", message["body"])}
            await send(message)

        await bridge.app(scope, receive, unstreamed)

    async with bridge.run():
        await bridge.apply(plan)
        async with listening(app) as root_url:
            yield f"{root_url}/agents/one"
            await bridge.drain(0)


@pytest.mark.parametrize("dialect", ["1.0", "0.3"])
async def test_one_bridge_notifies_another_which_never_has_to_poll(
    dialect: DialectChoice, tmp_path: Path
) -> None:
    port = free_port()
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            ToolServer("one", [listed("hold")]).run() as tools,
            notifying_bridge(tools, port) as agent_url,
            exposing(
                tmp_path, agent_url, at_public_url=True, port=port, dialect=dialect, **SLOWLY
            ) as exposed,
            task_client(exposed) as client,
            new_client() as http,
        ):
            agent = JsonRpcDriver(http, agent_url)
            first = await client.call("hold")
            await until_webhooks(agent, 1)
            tools.released.set()
            await until_webhooks(agent, 0)
            assert (await client.get(first))["status"] == "completed"
            tools.released = anyio.Event()
            second = await client.call("hold")
            await until_webhooks(agent, 1)
            async with client.listening(taskIds=[second["taskId"]]) as messages:
                while (await anext(messages))["params"].get("status") != "working":
                    pass
                tools.released.set()
                while (await anext(messages))["params"].get("status") != "completed":
                    pass
            await until_webhooks(agent, 0)


async def until_webhooks(agent: JsonRpcDriver, count: int) -> None:
    """Wait until the newest task of an agent has so many webhooks."""
    while True:
        [newest, *_] = await agent.listed()
        found = await agent.call("ListTaskPushNotificationConfigs", taskId=newest)
        if len(found.get("configs", ())) == count:
            return


async def test_a_notification_that_comes_to_one_replica_wakes_those_who_wait_at_another() -> None:
    port = free_port()
    told = {"public_url": f"http://127.0.0.1:{port}", **SLOWLY}
    with tempfile.TemporaryDirectory(prefix="mcp-a2a-push-") as folder, anyio.fail_after(WAIT_SECONDS):
        async with AsyncExitStack() as stack:
            agent = await stack.enter_async_context(foreign_agent(streaming=False, push=True))
            group = FaceReplicas(agent.url, Path(folder), stack, LEASE_SECONDS)
            asked = await group.start(**told)
            await group.start(port=port, **told)
            headers = {"authorization": f"Bearer {ALICE.token}"}
            async with httpx2.AsyncClient(headers=headers, timeout=WAIT_SECONDS) as http:
                client = TaskClient(Http(http, f"{asked.url}{PATH}", MODERN, TAKES_ALL))
                task = await client.call("slow", message="go")
                await agent.seen.webhook_set.wait()
                agent.seen.released.set()
                await agent.seen.webhook_deleted.wait()
                assert (await client.get(task))["status"] == "completed"
