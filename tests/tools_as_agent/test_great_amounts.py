"""Large results, long lists and floods of progress, through the whole bridge: nothing is lost, nothing piles up."""

from __future__ import annotations

import gc
import json
import re
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx2
import pytest

from bridge.a2a.tasks.live import LiveTask
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.streamable_http import HttpTarget, ServerTarget
from tests.support.command import process_of, wrapping
from tests.support.limits import command_of, url_at
from tests.support.processes import PROC
from tests.support.running import (
    RAW_SERVER,
    VERSION,
    Rpc,
    Running,
    call_part,
    config_for,
    message,
    profile_with,
    raw_command,
    running,
    texts,
)
from tests.support.sdk_server import HttpServer, Tools

FLOODING: Final = command_of(
    (sys.executable, str(Path(__file__).parents[1] / "hostile" / "flooding_server.py"))
)
MEGABYTE: Final = 1024 * 1024
COMPLETED: Final = "TASK_STATE_COMPLETED"
FAILED: Final = "TASK_STATE_FAILED"
PROGRESS: Final = "urn:mcp-a2a:tool:v1/progress"
STEPS: Final = 10_000

each_transport = pytest.mark.parametrize("transport", ["stdio", "json", "events"])
each_store = pytest.mark.parametrize("store", ["memory:", "tasks.db"])


@asynccontextmanager
async def served(transport: str) -> AsyncIterator[ServerTarget]:
    """A server whose tool `big` answers over this transport."""
    if transport == "stdio":
        yield raw_command()
    else:
        async with HttpServer(json_response=transport == "json").run() as server:
            yield url_at(server.url)


def memory_mib(pid: int, kind: str) -> int:
    """The memory of a process: now (`VmRSS`), or at its peak (`VmHWM`)."""
    found = re.search(rf"{kind}:\s+(\d+) kB", (PROC / str(pid) / "status").read_text())
    return int(found[1]) // 1024 if found else 0


# Results


@pytest.mark.long
@pytest.mark.proves("map-content")
@each_transport
async def test_a_result_of_50_mb_is_complete(
    transport: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a separate process, with tasks in a file, as a user runs the bridge. Prints the time and memory used."""
    whole, spent = ["x" * (50 * MEGABYTE)], [time.monotonic()]
    async with AsyncExitStack() as stack:
        target = await stack.enter_async_context(served(transport))
        behind = (target.url,) if isinstance(target, HttpTarget) else (sys.executable, str(RAW_SERVER))
        bridge = await stack.enter_async_context(process_of(wrapping(state=tmp_path, server=behind)))
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=120))
        rpc, pid = Rpc(http, bridge.url), bridge.process.pid
        await rpc.send(call_part("echo", text="warm"))
        memory, spent = [memory_mib(pid, "VmRSS")], [time.monotonic()]
        task = await rpc.send(call_part("big", bytes=50 * MEGABYTE))
        spent.append(time.monotonic())
        assert task["status"]["state"] == COMPLETED, str(task)[:500]
        assert texts(task["artifacts"][0]["parts"]) == whole
        spent.append(time.monotonic())
        kept = await rpc.call("GetTask", {"id": task["id"]})
        spent.append(time.monotonic())
        assert texts(kept["artifacts"][0]["parts"]) == whole
        memory += [memory_mib(pid, "VmHWM"), memory_mib(pid, "VmRSS")]
    with capsys.disabled():
        print(
            f"\n50 MB over {transport}: SendMessage {spent[1] - spent[0]:.1f} s, GetTask {spent[3] - spent[2]:.1f} s;"
            f" MiB before, at most, after: {memory}"
        )


@pytest.mark.proves("mcp-bounded")
@each_transport
async def test_a_result_above_the_limit_fails_in_words_and_the_next_call_works(transport: str) -> None:
    async with served(transport) as target:
        config = config_for(replace(target, result_limit_bytes=MEGABYTE))
        async with running(config) as bridge, httpx2.AsyncClient(timeout=30) as http:
            rpc = Rpc(http, bridge.base_url)
            failed = (await rpc.send(call_part("big", bytes=2 * MEGABYTE)))["status"]
            assert failed["state"] == FAILED
            assert re.match(
                rf"(raw|sdk): .*the (result|response) is larger than {MEGABYTE} bytes",
                texts(failed["message"]["parts"])[0],
            )
            below = await rpc.send(call_part("big", bytes=MEGABYTE // 2))
            assert below["status"]["state"] == COMPLETED


@pytest.mark.proves("a2a-3.5.2-order")
async def test_a_task_that_has_ended_leaves_memory_without_waiting_for_the_garbage_collector(
    tmp_path: Path, collector_off: None
) -> None:
    """In a reference cycle, each large result would stay in memory until the garbage collector runs, perhaps hours
    later."""
    async with (
        running(config_for(raw_command(), store=str(tmp_path / "tasks.db"))) as bridge,
        httpx2.AsyncClient() as http,
    ):
        rpc = Rpc(http, bridge.base_url)
        for _ in range(10):
            await rpc.send(call_part("big", bytes=MEGABYTE))
        await rpc.send(call_part("echo", text="so that the last one is let go, too"))
        assert sum(isinstance(one, LiveTask) for one in gc.get_objects()) <= 1


@pytest.fixture
def collector_off() -> Iterator[None]:
    """The garbage collector is off while the test runs."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


# Lists


@pytest.mark.parametrize("era", [Era.LEGACY, Era.MODERN])
@pytest.mark.proves("mcp-pages", "mcp-changed", "card-changes")
@pytest.mark.smoke("modern")
async def test_a_card_follows_the_changes_of_a_paged_list_of_500_tools(
    era: Era,
) -> None:
    tools = Tools(pages=7, names=["grow", *(f"tool-{number}" for number in range(500))])
    async with HttpServer(tools).run() as server:
        profile = profile_with(server={"settle_seconds": 0.02})
        config = config_for(url_at(server.url), era=era, profile=profile)
        async with running(config) as bridge, httpx2.AsyncClient(timeout=30) as http:
            rpc = Rpc(http, bridge.base_url)
            assert await skills_of(bridge, http) == tools.names
            called = await rpc.send(call_part("tool-499"))
            assert texts(called["artifacts"][0]["parts"]) == ["I am tool-499"]
            del tools.names[1:400]
            await rpc.send(call_part("grow"))
            with anyio.fail_after(10):
                while await skills_of(bridge, http) != tools.names:
                    await anyio.sleep(0.01)
            assert len(tools.names) == 103
            gone = await rpc.send(call_part("tool-5"))
            assert gone["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
            assert texts(gone["status"]["message"]["parts"])[0].startswith("There is no skill 'tool-5'.")


async def skills_of(bridge: Running, http: httpx2.AsyncClient) -> list[str]:
    """What the card lists."""
    card = (await http.get(f"{bridge.base_url}/.well-known/agent-card.json")).json()
    return [skill["id"] for skill in card["skills"]]


# Progress


@each_store
@pytest.mark.parametrize("in_flight", [1, 64])
@pytest.mark.proves("map-progress")
@pytest.mark.smoke("64-tasks.db")
async def test_a_flood_of_progress_is_thinned_in_order_and_keeps_the_last_report(
    store: str, in_flight: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    profile = profile_with(run={"progress_in_flight": in_flight})
    where = store if store == "memory:" else str(tmp_path / store)
    config = config_for(raw_command(), store=where, profile=profile)
    async with running(config) as bridge, httpx2.AsyncClient(timeout=60) as http:
        events = [event async for event in streamed(Rpc(http, bridge.base_url), "flood", steps=STEPS)]
    updates = [event["statusUpdate"] for event in events if "statusUpdate" in event]
    numbers = [
        one["metadata"][PROGRESS]["progress"] for one in updates if PROGRESS in one.get("metadata", {})
    ]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == STEPS
    assert updates[-1]["status"]["state"] == COMPLETED
    assert len(numbers) < STEPS / 2
    assert [record.message for record in caplog.records if record.name == "bridge.store.sqlite_writer"] == []


@pytest.mark.proves("map-progress")
async def test_canceling_during_a_flood_leaves_no_update_that_the_store_warns_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    profile = profile_with(run={"progress_per_second": 1_000_000.0})
    config = config_for(raw_command(), store=str(tmp_path / "tasks.db"), profile=profile)
    async with running(config) as bridge, httpx2.AsyncClient(timeout=60) as http:
        rpc, events = Rpc(http, bridge.base_url), []
        async for event in streamed(rpc, "flood", steps=10 * STEPS):
            events.append(event)
            if len(events) == 5:
                await rpc.call("CancelTask", {"id": events[0]["task"]["id"]})
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert [record.message for record in caplog.records if record.name == "bridge.store.sqlite_writer"] == []


@pytest.mark.proves("map-progress")
async def test_progress_text_that_is_too_long_is_cut_with_a_note() -> None:
    """Never within a character."""
    words = "\u20ac" * 1000
    config = config_for(FLOODING, profile=profile_with(run={"progress_limit_bytes": 100}))
    async with running(config) as bridge, httpx2.AsyncClient(timeout=60) as http:
        rpc = Rpc(http, bridge.base_url)
        long = [event async for event in streamed(rpc, "progress", count=2, number=1, words=words)]
        short = [event async for event in streamed(rpc, "progress", count=2, number=1, words=words[:33])]
    assert said_in(long) == ["\u20ac" * 33 + " [cut here: 100 of 3000 bytes]"] * 2
    assert said_in(short) == ["\u20ac" * 33] * 2


def said_in(events: list[Any]) -> list[str]:
    """The words of the updates while a call works."""
    updates = [event["statusUpdate"]["status"] for event in events if "statusUpdate" in event]
    return [text for one in updates if "message" in one for text in texts(one["message"]["parts"])]


@each_store
@pytest.mark.proves("sse-slow", "map-progress")
@pytest.mark.smoke("tasks.db")
async def test_a_reader_that_is_too_slow_for_a_flood_is_cut_off_and_the_task_completes(
    store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where = store if store == "memory:" else str(tmp_path / store)
    profile = profile_with(streams={"queue_events": 8}, run={"progress_per_second": 1_000_000.0})
    config = config_for(raw_command(), store=where, profile=profile)
    steps = STEPS // 5
    sent = message(call_part("flood", steps=steps, words="x" * 1024))  # more than the system's buffers take
    async with running(config) as bridge, httpx2.AsyncClient(timeout=60) as http:
        rpc = Rpc(http, bridge.base_url)
        with never_reading(rpc, sent) as reader:
            await anyio.wait_readable(reader)
            task = (await rpc.call("SendMessage", sent))["task"]  # the same message: the same task
        assert task["status"]["state"] == COMPLETED
        assert texts(task["artifacts"][0]["parts"]) == [f"{steps} steps"]
        assert f"a reader of task {task['id']} is too slow and was cut off; the task goes on" in caplog.text


async def streamed(rpc: Rpc, skill: str, **arguments: Any) -> AsyncIterator[Any]:
    """The events of a call."""
    sent = message(call_part(skill, **arguments))
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": sent}
    async with rpc.client.stream("POST", rpc.url, json=body, headers=rpc.headers) as response:
        async for line in response.aiter_lines():
            if line.startswith("data:"):
                yield json.loads(line.removeprefix("data:"))["result"]


def never_reading(rpc: Rpc, sent: Any) -> socket.socket:
    """A connection that asks for a stream and reads nothing of it."""
    where = urlsplit(rpc.url)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": sent}).encode()
    head = [f"POST {where.path} HTTP/1.1", f"Host: {where.netloc}", "Content-Type: application/json"]
    head += [f"Content-Length: {len(body)}", *(f"{name}: {value}" for name, value in VERSION.items()), "", ""]
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    assert where.hostname
    reader.connect((where.hostname, where.port or 80))  # loopback: at once
    reader.setblocking(False)
    reader.sendall("\r\n".join(head).encode() + body)
    return reader
