"""Streams on both faces end when the token of their client expires; tasks and calls go on."""

from __future__ import annotations

import time

import anyio
import httpx2
import pytest

from bridge.a2a.model.objects import TaskState
from bridge.a2a.server.app import AgentServer
from bridge.a2a.server.service import AgentService
from bridge.a2a.tasks.agent import Job
from bridge.a2a.wire.extensions import ExtensionFilter
from bridge.http.request_checks import FaceAddress
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Access
from tests.support.agents import Scripted, engine_of, say
from tests.support.drivers import DRIVERS, Driver
from tests.support.limits import PROFILE, agent_limits
from tests.support.mcp_face import Face
from tests.support.mcp_serving import served
from tests.support.mcp_wire import LEGACY, MODERN, Http
from tests.support.running import listening, message

pytestmark = pytest.mark.proves("oauth-expiry")


def expiring(seconds: float) -> Access:
    """Lets everyone in with a token that expires soon."""
    return Access([], Principal("alice", expires_at=time.time() + seconds))


@pytest.mark.parametrize("kind", DRIVERS, ids=lambda kind: kind.binding)
async def test_a_stream_of_an_agent_ends_with_the_token_and_its_task_goes_on(kind: type[Driver]) -> None:
    release = anyio.Event()

    async def work(job: Job) -> None:
        await say(job, TaskState.WORKING)
        await release.wait()
        await say(job, TaskState.COMPLETED)

    async with engine_of(work) as engine, httpx2.AsyncClient(timeout=30) as client:
        access = expiring(-1)
        service = AgentService(engine, ExtensionFilter({}), PROFILE.requests.parts)
        server = AgentServer(
            Scripted(work),
            service,
            access,
            FaceAddress(),
            agent_limits(heartbeat_seconds=0.05, stall_seconds=30),
        )
        async with listening(server.at("")) as url:
            driver = kind(client, url)
            async with driver.stream("SendStreamingMessage", **message({"text": "go"})) as events:
                assert await events.rest() == []
            release.set()
            access.update([], Principal("alice"))
            (task_id,) = await driver.listed()
            while (await driver.get(task_id))["status"]["state"] != "TASK_STATE_COMPLETED":
                await anyio.sleep(0.01)
            await engine.drain(0)


async def test_the_streams_of_both_eras_of_mcp_end_with_the_token() -> None:
    async with served(Face(), expiring(2)) as url, httpx2.AsyncClient(timeout=30) as client:
        legacy = Http(client, url, LEGACY)
        await legacy.open()
        headers = {**legacy.headers({}), "accept": "text/event-stream"}
        async with client.stream("GET", url, headers=headers) as response:
            assert response.status_code == 200
            assert [line async for line in response.aiter_lines() if "method" in line] == []
    async with served(Face(), expiring(2)) as url, httpx2.AsyncClient(timeout=30) as client:
        modern = Http(client, url, MODERN)
        wanted = {"notifications": {"toolsListChanged": True}}
        async with modern.stream(modern.message("l", "subscriptions/listen", wanted)) as messages:
            assert (await anext(messages))["method"].endswith("acknowledged")
            assert [one["id"] async for one in messages] == ["l"]
