"""Notifications that a whole bridge receives: at another replica than the one that waits, and within bounds."""

from __future__ import annotations

import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.support.face_replicas import ALICE, LEASE_SECONDS, PATH, FaceReplicas
from tests.support.foreign import foreign_agent
from tests.support.mcp_tasks import TAKES_ALL, TaskClient
from tests.support.mcp_wire import MODERN, Http
from tests.support.ports import free_port

pytestmark = [pytest.mark.outside, pytest.mark.proves("a2a-4.3.3-push")]

WAIT_SECONDS = 30


async def test_a_notification_that_comes_to_one_replica_wakes_those_who_wait_at_another() -> None:
    port = free_port()
    told = {
        "public_url": f"http://127.0.0.1:{port}",
        "task_after_seconds": 0,
        "push_poll_seconds": 3600,
        "push_look_seconds": 0,
    }
    with tempfile.TemporaryDirectory(prefix="mcp-a2a-push-") as folder, anyio.fail_after(WAIT_SECONDS):
        async with AsyncExitStack() as stack:
            agent = await stack.enter_async_context(foreign_agent(streaming=False, push=True))
            group = FaceReplicas(agent.url, Path(folder), stack, LEASE_SECONDS)
            asked = await group.start(**told)  # type: ignore[arg-type]
            await group.start(port=port, **told)  # type: ignore[arg-type]
            headers = {"authorization": f"Bearer {ALICE.token}"}
            async with httpx2.AsyncClient(headers=headers, timeout=WAIT_SECONDS) as http:
                client = TaskClient(Http(http, f"{asked.url}{PATH}", MODERN, TAKES_ALL))
                task = await client.call("slow", message="go")
                await agent.seen.webhook_set.wait()
                agent.seen.released.set()
                await agent.seen.webhook_deleted.wait()
                assert (await client.get(task))["status"] == "completed"
