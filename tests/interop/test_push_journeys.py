"""Push notifications as the receivers of both SDKs read them, and as the agents of one of them send them.

Those of the agents of a2a-sdk are in tests/agents_as_tools/test_webhooks.py.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from a2a.types import a2a_pb2
from anyio.streams.buffered import BufferedByteReceiveStream
from google.protobuf import json_format
from starlette.responses import Response

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import PushPlan
from tests.peers.node import js_agent_command, js_receiver_command, require_peers
from tests.support.drivers import JsonRpcDriver, new_client
from tests.support.exposing import exposing
from tests.support.mcp_tasks import task_client
from tests.support.receiver import Notification, receiving
from tests.support.running import call_part, config_for, listening, raw_command

pytestmark = [pytest.mark.outside, pytest.mark.proves("a2a-4.3.3-push")]

TOKEN: Final = "token-of-the-client"
WHOLE: Final = ["task", "statusUpdate", "artifactUpdate", "statusUpdate"]


@asynccontextmanager
async def notifying(url: str, place: str) -> AsyncIterator[None]:
    """An agent that has done a task whose notifications go to a receiver."""
    plan = config_for(raw_command(), name="raw").plan()
    plan = replace(plan, place=replace(plan.place, push=PushPlan(frozenset({place}))))
    bridge = Bridge(plan)
    async with bridge.run():
        await bridge.apply(plan)
        async with listening(bridge.app) as root_url, new_client() as http:
            wish = {"taskPushNotificationConfig": {"url": url, "token": TOKEN}}
            driver = JsonRpcDriver(http, f"{root_url}/agents/raw")
            task = await driver.send(call_part("echo", text="hello"), configuration=wish)
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
            yield
            await bridge.drain(0)


async def test_a_receiver_of_a2a_sdk_reads_every_notification() -> None:
    kinds: list[str] = []

    def take(notification: Notification) -> Response:
        event = json_format.Parse(notification.body, a2a_pb2.StreamResponse())
        assert notification.headers["x-a2a-notification-token"] == TOKEN
        kinds.append(event.WhichOneof("payload"))
        return Response(status_code=200)

    async with receiving(*[take] * 9) as receiver, notifying(receiver.url(), receiver.place):
        await receiver.has(4)
    assert kinds == ["task", "status_update", "artifact_update", "status_update"]


async def test_a_receiver_of_a2a_js_reads_every_notification() -> None:
    require_peers()
    command: Sequence[str] = js_receiver_command(TOKEN)
    async with await anyio.open_process(command, stdin=subprocess.DEVNULL, stderr=None) as process:
        assert process.stdout is not None
        lines = BufferedByteReceiveStream(process.stdout)
        with anyio.fail_after(30):
            port = int(await lines.receive_until(b"\n", 100))
            async with notifying(f"http://127.0.0.1:{port}/hook", f"127.0.0.1:{port}"):
                got = [json.loads(await lines.receive_until(b"\n", 1000)) for _ in WHOLE]
        process.kill()
    assert [kind for kind, _ in got] == WHOLE
    assert got[-1] == ["statusUpdate", "TASK_STATE_COMPLETED"]


@pytest.mark.proves("a2a-4.3.3-received")
async def test_an_agent_of_a2a_js_notifies_the_bridge_of_the_end_of_its_task(tmp_path: Path) -> None:
    require_peers()
    options: dict[str, Any] = {"task_after_seconds": 0, "push_poll_seconds": 3600, "push_look_seconds": 0}
    async with await anyio.open_process(js_agent_command(), stderr=None) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines = BufferedByteReceiveStream(process.stdout)
        with anyio.fail_after(30):
            url = (await lines.receive_until(b"\n", 100)).decode()
            async with (
                exposing(tmp_path, url, at_public_url=True, **options) as exposed,
                task_client(exposed) as client,
            ):
                task = await client.call("slow", message="go")
                await _until(lines, b"set")
                await process.stdin.send(b"go\n")
                await _until(lines, b"deleted")
                assert (await client.get(task))["status"] == "completed"
        process.kill()


async def _until(lines: BufferedByteReceiveStream, wanted: bytes) -> None:
    """Read up to a line; the SDK prints others between."""
    while await lines.receive_until(b"\n", 1000) != wanted:
        pass
