"""An agent that answers with plain messages and never names a task: only this process knows about its messages."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bridge.assembly.plan import AuditPlan
from tests.support.exposing import exposing
from tests.support.running import listening

pytestmark = pytest.mark.proves("map-slow-agent")


@dataclass
class Taciturn:
    """An agent that makes no task, and answers once it is released."""

    url: str = ""
    asked: anyio.Event = field(default_factory=anyio.Event)
    released: anyio.Event = field(default_factory=anyio.Event)

    async def card(self, _: Request) -> JSONResponse:
        return JSONResponse(
            {
                "name": "Taciturn",
                "description": "Makes no tasks",
                "version": "1",
                "supportedInterfaces": [
                    {"url": self.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
                ],
                "capabilities": {},
                "defaultInputModes": ["text/plain"],
                "defaultOutputModes": ["text/plain"],
                "skills": [{"id": "think", "name": "Think", "description": "Thinks", "tags": ["test"]}],
            }
        )

    async def answer(self, request: Request) -> JSONResponse:
        called = await request.json()
        self.asked.set()
        await self.released.wait()
        message = {"messageId": "a-1", "role": "ROLE_AGENT", "parts": [{"text": "At last"}]}
        return JSONResponse({"jsonrpc": "2.0", "id": called["id"], "result": {"message": message}})


@asynccontextmanager
async def taciturn(folder: Path, **agents: Any) -> AsyncIterator[tuple[Taciturn, Client]]:
    """The agent, exposed to a host that is answered at once."""
    agent = Taciturn()
    routes = [
        Route("/.well-known/agent-card.json", agent.card),
        Route("/", agent.answer, methods=["POST"]),
    ]
    async with (
        listening(Starlette(routes=routes)) as agent.url,
        exposing(folder, agent.url, answer_within_seconds=0.2, **agents) as there,
        there.client("auto") as host,
    ):
        yield agent, host
        agent.released.set()


def words(result: Any) -> str:
    return "\n".join(block.text for block in result.content)


async def test_an_answer_without_a_task_can_be_fetched_while_the_process_lives(tmp_path: Path) -> None:
    async with taciturn(tmp_path) as (agent, host):
        slow = words(await host.call_tool("think", {"message": "hard"}))
        assert "valid only while this server runs" in slow
        handle = slow.rpartition(" ")[2]
        still = await host.call_tool("task_result", {"handle": handle, "wait_seconds": 0})
        assert "still at work" in words(still)
        replied = await host.call_tool("task_reply", {"handle": handle, "message": "hurry"})
        assert replied.is_error
        assert "named no task" in words(replied)
        agent.released.set()
        with anyio.fail_after(10):
            done = await host.call_tool("task_result", {"handle": handle, "wait_seconds": 9})
        assert (done.is_error, words(done)) == (False, "At last")


async def test_waiting_for_an_answer_without_a_task_can_be_canceled(tmp_path: Path) -> None:
    async with taciturn(tmp_path) as (_, host):
        handle = words(await host.call_tool("think", {"message": "hard"})).rpartition(" ")[2]
        canceled = await host.call_tool("task_cancel", {"handle": handle})
        assert canceled.is_error
        assert "the bridge only stops waiting" in words(canceled)
        gone = await host.call_tool("task_result", {"handle": handle})
        assert gone.is_error
        assert "no longer known" in words(gone)


async def test_an_audit_names_no_task_if_the_agent_named_none(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditPlan(path, 1 << 30, 600, required=True)
    async with taciturn(tmp_path, audit=audit) as (_, host):
        handle = words(await host.call_tool("think", {"message": "hard"})).rpartition(" ")[2]
        await host.call_tool("task_result", {"handle": handle, "wait_seconds": 0})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    told = [one for one in lines if one.get("skill") == "task_result"]
    assert [(one["event"], one["peer"], "task" in one) for one in told] == [
        ("intent", "taciturn", False),
        ("call", "taciturn", False),
    ]


async def test_without_follow_up_tools_the_result_says_that_the_outcome_is_unknown(tmp_path: Path) -> None:
    async with taciturn(tmp_path, follow_up_tools=False) as (_, host):
        result = await host.call_tool("think", {"message": "hard"})
        assert result.is_error
        assert "the outcome of the call is unknown" in words(result)
