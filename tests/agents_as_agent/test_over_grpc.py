"""An agent whose card offers gRPC alone, behind the bridge: clients reach it over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bridge.a2a.model.objects import Part, TaskState
from bridge.a2a.tasks.agent import Job
from tests.peers.py_client import PyClient
from tests.support.agents import found_at
from tests.support.forwarding import forwarding
from tests.support.grpc_agents import PATIENCE_SECONDS, scripted_over_grpc
from tests.support.running import listening


@asynccontextmanager
async def card_at(port: int, version: str) -> AsyncIterator[str]:
    """Show the card of an agent that is reached over gRPC alone, at this port; the URL of the card's host."""
    card = found_at(f"http://127.0.0.1:{port}", f"{version} GRPC").card.to_object()

    async def show(_: Request) -> JSONResponse:
        return JSONResponse(card)

    async with listening(Starlette(routes=[Route("/.well-known/agent-card.json", show)])) as url:
        yield url


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_an_agent_that_speaks_grpc_alone_is_reached_over_http(tmp_path: Path, version: str) -> None:
    async def script(job: Job) -> None:
        if job.turn.task is None:
            await job.status(TaskState.INPUT_REQUIRED, job.message((Part(text="Which colour?"),)), keep=b"x")
            return
        parts = (*job.turn.message.parts, Part(data={"pages": 2.0}))
        await job.reply(job.message(parts), b"")

    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "A map"}]}
    with anyio.fail_after(PATIENCE_SECONDS):
        async with (
            scripted_over_grpc(script) as port,
            card_at(port, version) as card_url,
            forwarding(tmp_path, {"far": card_url}) as front,
            PyClient(front.url) as client,
        ):
            asked = (await client.send({"message": message}))["task"]
            assert asked["status"]["message"]["parts"] == [{"text": "Which colour?"}]
            answer = {**message, "messageId": "m2", "taskId": asked["id"], "parts": [{"text": "red"}]}
            events = [event async for event in client.stream({"message": answer})]
            done = await client.get(asked["id"])
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert done["artifacts"][0]["parts"] == [{"text": "red"}, {"data": {"pages": 2.0}}]
