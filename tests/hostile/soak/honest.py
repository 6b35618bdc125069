"""Honest callers, at a modest pace: all that a client of either protocol does, and how long each answer takes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any, Final

import anyio
import httpx2

from tests.hostile.soak.watch import Call
from tests.support.drivers import DRIVERS, PATIENCE_SECONDS, Driver, state_of
from tests.support.mcp_wire import MODERN, Http
from tests.support.running import call_part, message, texts

PAUSE_SECONDS: Final = 0.5
"""Between two calls of one caller."""
_STEPS: Final = 5


class Caller:
    """One client, which does one thing after the other. What is wrong with an answer is kept, and nothing raised."""

    def __init__(self, url: str, token: str, binding: type[Driver], since: float) -> None:
        self.calls: list[Call] = []
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx2.AsyncClient(timeout=PATIENCE_SECONDS, headers=headers)
        self._tools = binding(self._http, f"{url}/agents/tools")
        self._asks = binding(self._http, f"{url}/agents/asks")
        self._team = Http(self._http, f"{url}/mcp/team", MODERN)
        self._since = since
        self._newest = ""
        """The id of a task that has ended."""

    @property
    def turns(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """All that it does, in order."""
        return (self._send, self._stream, self._read, self._question, self._list, self._tool, self._cancel)

    async def run(self, until: anyio.Event) -> None:
        """Call in turns until it is time to end."""
        async with self._http:
            for turn in cycle(self.turns):
                if until.is_set():
                    return
                await self.attempt(turn)
                await anyio.sleep(PAUSE_SECONDS)

    async def once(self) -> None:
        """Everything once."""
        async with self._http:
            for turn in self.turns:
                await self.attempt(turn)

    async def attempt(self, turn: Callable[[], Awaitable[None]]) -> None:
        """One turn, of one call or several."""
        begun = time.monotonic()
        try:
            await turn()
        except (AssertionError, TimeoutError, KeyError, ValueError, httpx2.HTTPError) as exc:
            kind = turn.__name__.removeprefix("_")
            self._keep(kind, begun, f"{type(exc).__name__} {str(exc)[:300]}")

    def _keep(self, kind: str, begun: float, fault: str = "") -> None:
        now = time.monotonic()
        self.calls.append(Call(kind, begun - self._since, now - begun, fault))

    @asynccontextmanager
    async def _timed(self, kind: str) -> AsyncIterator[None]:
        begun = time.monotonic()
        yield
        self._keep(kind, begun)

    async def _send(self) -> None:
        async with self._timed("send"):
            task = await self._tools.send(call_part("echo", text="hello"))
        _require(task, "COMPLETED")
        assert texts(task["artifacts"][0]["parts"]) == ["hello"], task
        self._newest = task["id"]

    async def _stream(self) -> None:
        async with self._timed("stream"):
            said = message(call_part("progress", steps=_STEPS))
            async with self._tools.stream("SendStreamingMessage", **said) as events:
                seen = await events.rest()
        assert "artifactUpdate" in seen[-2], seen
        assert state_of(seen[-1]["statusUpdate"]) == "COMPLETED", seen

    async def _read(self) -> None:
        async with self._timed("read"):
            task = await self._tools.get(self._newest)
        _require(task, "COMPLETED")

    async def _list(self) -> None:
        async with self._timed("list"):
            listed = await self._tools.listed(pageSize=10)
        assert listed, "no tasks"

    async def _question(self) -> None:
        async with self._timed("question"):
            task = await self._asks.send(call_part("ask-one"))
        _require(task, "INPUT_REQUIRED")
        async with self._timed("answer"):
            task = await self._asks.send({"data": {"sure": True}}, taskId=task["id"])
        _require(task, "COMPLETED")

    async def _cancel(self) -> None:
        async with self._timed("begin"):
            task = await self._tools.send(call_part("wait"), configuration={"returnImmediately": True})
        async with self._timed("cancel"):
            task = await self._tools.cancel(task["id"])
        _require(task, "CANCELED")

    async def _tool(self) -> None:
        async with self._timed("tool"):
            answer = await self._team.tool(1, "echo", text="hello")
        assert answer["result"]["content"] == [{"type": "text", "text": "hello"}], answer


def callers(url: str, token: str, since: float, number: int) -> list[Caller]:
    """So many callers, of both bindings."""
    return [Caller(url, token, DRIVERS[one % len(DRIVERS)], since) for one in range(number)]


def _require(task: dict[str, Any], state: str) -> None:
    assert state_of(task) == state, task
