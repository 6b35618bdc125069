"""The two calls whose way is counted: SendMessage to a tool server on stdio, and tools/call to a remote agent.

The bridge runs in this process. The tool server, and the remote agent, which is a bridge too, are child processes.
Each call is made some times before it is counted. It is then counted `TIMES` times, because a timer adds entries to
one call, and two events that share a commit to the store take some from another.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from tests.benchmarks.contestants import bridge_command
from tests.benchmarks.messages import call_request
from tests.benchmarks.workplace import Workplace, workplace
from tests.support.exposing import ExposeConfig, exposed
from tests.support.running import config_for, profile_of, raw_command, running
from tests.walk.counting import Counting, Walk

TIMES: Final = 3
_WARM_UP: Final = 3
_QUIET_SECONDS: Final = 0.05
"""After this time without an entry, the call has ended, and all that follows its answer."""


def walks() -> dict[str, list[Walk]]:
    """The counted ways of both calls, by the name of the method; the way with the fewest entries first."""
    counting = Counting()  # before the bridge, whose threads it counts
    with workplace() as place:
        sent = anyio.run(_of_send_message, place.folder, counting)
        return {"SendMessage": sent, "tools/call": _of_tools_call(place, counting)}


async def _of_send_message(folder: Path, counting: Counting) -> list[Walk]:
    async with running(config_for(raw_command(), store=str(folder / "tasks.db"))) as served:
        port = int(served.root_url.rpartition(":")[2])
        reading, writing = await asyncio.open_connection("127.0.0.1", port)
        plan = {"port": port, "tool": "echo"}

        async def call() -> None:
            writing.write(call_request(plan, "SendMessage", {"text": "hello"}))
            head = (await reading.readuntil(b"\r\n\r\n")).lower()
            size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            answer = json.loads(await reading.readexactly(size))
            assert answer["result"]["task"]["artifacts"][0]["parts"] == [{"text": "hello"}], answer

        try:
            return await _counted(call, counting)
        finally:
            writing.close()
            await writing.wait_closed()


def _of_tools_call(place: Workplace, counting: Counting) -> list[Walk]:
    port = place.new_port()
    with place.serving(bridge_command(port, "memory:"), port), _own_stdio() as (given, taken):
        return anyio.run(_of_exposed, f"http://127.0.0.1:{port}", place.folder, counting, given, taken)


async def _of_exposed(url: str, folder: Path, counting: Counting, given: Any, taken: Any) -> list[Walk]:
    config = ExposeConfig([url], profile_of("default"), state=folder / "state", cache=folder / "cache")
    async with exposed(config) as exposure, anyio.create_task_group() as tasks:
        tasks.start_soon(exposure.server.run_stdio)

        async def ask(method: str, **params: Any) -> Any:
            _tell(given, id=1, method=method, params=params)
            return json.loads(await anyio.to_thread.run_sync(taken.readline))["result"]

        async def call() -> None:
            answer = await ask("tools/call", name=name, arguments={"text": "hello"})
            assert answer["content"] == [{"type": "text", "text": "hello"}], answer

        client = {"name": "walk", "version": "1"}
        await ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
        _tell(given, method="notifications/initialized")
        name = next(tool["name"] for tool in (await ask("tools/list"))["tools"] if "echo" in tool["name"])
        found = await _counted(call, counting)
        given.close()
    return found


def _tell(given: Any, **message: Any) -> None:
    given.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    given.flush()


async def _counted(call: Callable[[], Awaitable[None]], counting: Counting) -> list[Walk]:
    for _ in range(_WARM_UP):
        await call()
    found = []
    for _ in range(TIMES):
        await anyio.sleep(_QUIET_SECONDS)
        counting.walk = walk = Walk()
        await call()
        seen = -1
        while seen != counting.entered:
            seen = counting.entered
            await anyio.sleep(_QUIET_SECONDS)
        counting.walk = None
        found.append(walk)
    return sorted(found, key=lambda walk: walk.figures()["entries"])


@contextmanager
def _own_stdio() -> Iterator[tuple[Any, Any]]:
    """Let pipes be the stdin and stdout of this process; the ends of the client."""
    kept = os.dup(0), os.dup(1)
    (wire_in, given), (taken, wire_out) = os.pipe(), os.pipe()
    os.dup2(wire_in, 0)
    os.dup2(wire_out, 1)
    for descriptor in (wire_in, wire_out):
        os.close(descriptor)
    try:
        with os.fdopen(given, "wb") as writing, os.fdopen(taken, "rb") as reading:
            yield writing, reading
    finally:
        for number, descriptor in enumerate(kept):
            os.dup2(descriptor, number)
            os.close(descriptor)
