"""How a hop to an agent ends: with the last state that the agent reported, whichever side stops reading first."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.follow import converse
from bridge.a2a.client.http import UnansweredError
from tests.a2a.client.test_follow import PACE, saying
from tests.support.agents import found_at
from tests.support.heard_hops import HeardHops
from tests.support.limits import client_options
from tests.support.running import listening

STREAM = "SendStreamingMessage"


def task(state: str) -> dict[str, Any]:
    """The result of a stream that shows a task in this state."""
    return {"task": {"id": "t1", "contextId": "c1", "status": {"state": f"TASK_STATE_{state}"}}}


@asynccontextmanager
async def agent_that_holds(*results: dict[str, Any], breaks: bool = False) -> AsyncIterator[str]:
    """The URL of an agent that streams these results, and then leaves the stream open; or breaks it off."""
    left = anyio.Event()

    async def answer(request: Request) -> Response:
        called = await request.json()
        if called["method"] != STREAM:
            return JSONResponse({"jsonrpc": "2.0", "id": called["id"], "result": results[-1]["task"]})

        async def events() -> AsyncIterator[str]:
            for result in results:
                yield f"data: {json.dumps({'jsonrpc': '2.0', 'id': called['id'], 'result': result})}\n\n"
            if not breaks:
                await left.wait()

        broken = {"content-length": "100000"} if breaks else None
        return StreamingResponse(events(), media_type="text/event-stream", headers=broken)

    async with listening(Starlette(routes=[Route("/", answer, methods=["POST"])])) as url:
        try:
            yield url
        finally:
            left.set()


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "INPUT_REQUIRED", "AUTH_REQUIRED"])
async def test_a_stream_left_open_after_its_last_event_ends_with_the_reported_state(
    state: str, http: httpx2.AsyncClient
) -> None:
    heard = HeardHops()
    async with agent_that_holds(task("WORKING"), task(state)) as url:
        client = AgentClient(http, found_at(url), client_options(hops=heard.hops))
        with anyio.fail_after(20):
            await converse(client, saying(), pace=PACE)
    assert [hop.error for hop in heard.ended_hops] == [""] * len(heard.ended_hops)
    assert heard.outcomes[0] == (STREAM, state.lower())


async def test_a_stream_that_stays_open_after_a_message_is_done(http: httpx2.AsyncClient) -> None:
    heard = HeardHops()
    reply = {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hello"}]}}
    async with agent_that_holds(reply) as url:
        client = AgentClient(http, found_at(url), client_options(hops=heard.hops))
        with anyio.fail_after(20):
            await converse(client, saying(), pace=replace(PACE, piece_seconds=0.2))
    assert heard.outcomes == [(STREAM, "done")]


async def test_a_stream_that_breaks_off_after_the_end_of_its_task_is_no_fault(
    http: httpx2.AsyncClient,
) -> None:
    heard = HeardHops()
    async with agent_that_holds(task("COMPLETED"), breaks=True) as url:
        client = AgentClient(http, found_at(url), client_options(hops=heard.hops))
        with anyio.fail_after(20):
            await converse(client, saying(), pace=PACE)
    assert heard.outcomes[0] == (STREAM, "completed")


async def test_a_stream_that_breaks_off_while_its_task_works_is_a_fault(http: httpx2.AsyncClient) -> None:
    heard = HeardHops()
    async with agent_that_holds(task("WORKING"), breaks=True) as url:
        client = AgentClient(http, found_at(url), client_options(hops=heard.hops))
        with anyio.fail_after(20), pytest.raises(UnansweredError):
            async for _ in client.stream(saying()):
                pass
    assert heard.outcomes[0] == (STREAM, "UnansweredError")


@pytest.mark.parametrize(("told", "outcome"), [((), "canceled"), ((task("WORKING"),), "working")])
async def test_a_reader_that_leaves_a_stream_keeps_the_reported_state(
    told: tuple[dict[str, Any], ...], outcome: str, http: httpx2.AsyncClient
) -> None:
    heard = HeardHops()
    async with agent_that_holds(*told) as url:
        client = AgentClient(http, found_at(url), client_options(hops=heard.hops))
        seen = anyio.Event()

        async def read() -> None:
            async for _ in client.stream(saying()):
                seen.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            with anyio.fail_after(20):
                if told:
                    await seen.wait()
                else:
                    await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert heard.outcomes == [(STREAM, outcome)]
