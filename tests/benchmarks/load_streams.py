"""The load of streams: what arrives is kept with its moment, and read once the clock has stopped."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Final

from tests.benchmarks.messages import Plan, call_request, request
from tests.benchmarks.usage import cpu_seconds, rss_bytes

_LAST_CHUNK: Final = b"0\r\n\r\n"
_HEARTBEAT: Final = b"\n: "
_OPENING_AT_ONCE: Final = 100


class Listening(asyncio.Protocol):
    """One connection with one stream."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.received: list[bytes] = []
        self.begun: asyncio.Future[float] = loop.create_future()
        """The moment of the first byte of the first event."""
        self.ended: asyncio.Future[float] = loop.create_future()
        self.transport: asyncio.Transport
        self._tail = b""
        self._in_head = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self.received.append(data)
        if self._in_head:
            self._in_head = b"data: " not in b"".join(self.received)
            if self._in_head and b"\r\n\r\n" in data and not data.startswith(b"HTTP/1.1 200 "):
                return self._fail(f"the stream was refused: {data!r}")
            if not self._in_head:
                self.begun.set_result(now)
        self._tail = (self._tail + data)[-len(_LAST_CHUNK) :]
        if self._tail == _LAST_CHUNK and not self.ended.done():
            self.ended.set_result(now)
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self._fail("the server closed a stream in the middle")

    def _fail(self, why: str) -> None:
        for future in (self.begun, self.ended):
            if not future.done():
                future.set_exception(ConnectionError(why))
                future.exception()  # one that nobody awaits any more is no news


async def stream(plan: Plan) -> Plan:
    """Follow streams to their end, one after the other, each on a connection of its own."""
    await _follow(plan)
    cpu = cpu_seconds(plan["pid"])
    followed = [await _follow(plan) for _ in range(plan["streams"])]
    cpu = cpu_seconds(plan["pid"]) - cpu
    return {
        "streams": [found | {"events": checked(raw, plan)} for found, raw in followed],
        "cpu_seconds": cpu,
    }


async def _follow(plan: Plan) -> tuple[Plan, bytes]:
    raw = call_request(plan, "SendStreamingMessage", {"steps": plan["steps"]})
    _, listening = await asyncio.get_running_loop().create_connection(Listening, "127.0.0.1", plan["port"])
    sent = time.perf_counter()
    listening.transport.write(raw)
    first, ended = await listening.begun, await listening.ended
    listening.transport.close()
    return {"first_seconds": first - sent, "seconds": ended - sent}, b"".join(listening.received)


def checked(raw: bytes, plan: Plan) -> int:
    """The status updates of a stream that reported progress; fails unless it has the result and ends completed."""
    events = [
        json.loads(line[6:])["result"] for line in _body_of(raw).splitlines() if line.startswith(b"data: ")
    ]
    states = [event["statusUpdate"]["status"] for event in events if "statusUpdate" in event]
    texts = [
        part.get("text")
        for event in events
        if "artifactUpdate" in event
        for part in event["artifactUpdate"]["artifact"]["parts"]
    ]
    if not states or states[-1]["state"] != "TASK_STATE_COMPLETED" or texts != [f"{plan['steps']} steps"]:
        raise ValueError(f"no stream that ends completed with its result: {events[-3:]!r}")
    return sum(1 for status in states if status.get("message"))


def _body_of(raw: bytes) -> bytes:
    return b"".join(_chunks(raw.partition(b"\r\n\r\n")[2]))


def _chunks(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        end = body.index(b"\r\n", at)
        size = int(body[at:end], 16)
        yield body[end + 2 : end + 2 + size]
        at = end + 4 + size


async def hold(plan: Plan) -> Plan:
    """Open streams, let them idle, and see what they cost the server.

    `method` opens them: of one waiting task (SubscribeToTask), or each with a task of its own that waits
    (SendStreamingMessage). The first ones, as many as `warm_up`, are not counted: they fill the server's pools.
    """
    pid = plan["pid"]
    raw = await _opening_request(plan)
    held = await _open_all(plan, raw, plan["warm_up"])
    before = rss_bytes(pid)
    opening = time.perf_counter()
    held += await _open_all(plan, raw, plan["streams"])
    opened = time.perf_counter() - opening
    await asyncio.sleep(plan["settle_seconds"])
    after, cpu, begun = rss_bytes(pid), cpu_seconds(pid), time.perf_counter()
    await asyncio.sleep(plan["idle_seconds"])
    cpu, seconds = cpu_seconds(pid) - cpu, time.perf_counter() - begun
    for listening in held:
        if listening.ended.done() or _HEARTBEAT not in b"".join(listening.received):
            raise ValueError("a stream that was to idle has ended, or had no heartbeat")
        listening.transport.abort()
    return {
        "rss_before": before,
        "rss_after": after,
        "opening_seconds": opened,
        "idle_seconds": seconds,
        "cpu_seconds": cpu,
    }


async def _opening_request(plan: Plan) -> bytes | None:
    """The request that opens every stream, or None when each needs one of its own."""
    if plan["method"] != "SubscribeToTask":
        return None
    reader, writer = await asyncio.open_connection("127.0.0.1", plan["port"])
    writer.write(call_request(plan, "SendMessage", {}, returnImmediately=True))
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    task = json.loads(await reader.readexactly(length))["result"]["task"]
    writer.close()
    return request(plan, plan["method"], {"id": task["id"]})


async def _open_all(plan: Plan, raw: bytes | None, streams: int) -> list[Listening]:
    turns = asyncio.Semaphore(_OPENING_AT_ONCE)

    async def opened() -> Listening:
        async with turns:
            loop = asyncio.get_running_loop()
            _, listening = await loop.create_connection(Listening, "127.0.0.1", plan["port"])
            listening.transport.write(raw or call_request(plan, plan["method"], {}))
            await listening.begun
            return listening

    return list(await asyncio.gather(*(opened() for _ in range(streams))))
