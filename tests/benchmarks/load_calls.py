"""The load of calls: keep-alive connections that send the next request as soon as an answer is whole.

Nothing is parsed while the clock runs but where an answer ends; every answer is checked once it has stopped.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator

from tests.benchmarks.messages import Plan, call_request, texts_for
from tests.benchmarks.usage import cpu_seconds


class Keeping(asyncio.Protocol):
    """One connection that sends the next request as soon as an answer is whole."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.answers: list[tuple[str, bytes]] = []
        """The text that was sent, and the whole answer."""
        self._buffer = b""
        self._whole_bytes = 0
        self._waiting: Iterator[tuple[str, bytes]]
        self._done: asyncio.Future[None]
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def run(self, waiting: Iterator[tuple[str, bytes]]) -> asyncio.Future[None]:
        """Send these, which other connections may take from too, until there are none left."""
        self._waiting = waiting
        self._done = asyncio.get_running_loop().create_future()
        self._send_next()
        return self._done

    def _send_next(self) -> None:
        self._text, raw = next(self._waiting, ("", b""))
        if not raw:
            return self._done.set_result(None)
        self._sent_at = time.perf_counter()
        return self._transport.write(raw)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._whole_bytes and (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            length = self._buffer[:end].lower().partition(b"content-length:")[2].split(b"\r\n")[0]
            self._whole_bytes = end + 4 + int(length)
        if self._whole_bytes and len(self._buffer) >= self._whole_bytes:
            self.latencies.append(time.perf_counter() - self._sent_at)
            self.answers.append((self._text, self._buffer))
            self._buffer, self._whole_bytes = b"", 0
            self._send_next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(
                ConnectionError(f"the server closed the connection after {self._text!r}")
            )

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


async def send(plan: Plan) -> Plan:
    """Send requests, keep what comes back, and check it in the end."""
    loop = asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(Keeping, "127.0.0.1", plan["port"]))[1]
        for _ in range(plan["concurrency"])
    ]
    warm, counted = (
        [(text, call_request(plan, "SendMessage", {plan["argument"]: text})) for text in texts]
        for texts in texts_for(plan)
    )
    await _run_all(connections, warm)
    warmed = [len(connection.latencies) for connection in connections]
    cpu, begun = cpu_seconds(plan["pid"]), time.perf_counter()
    await _run_all(connections, counted)
    seconds, cpu = time.perf_counter() - begun, cpu_seconds(plan["pid"]) - cpu
    latencies: list[float] = []
    for connection, skipped in zip(connections, warmed, strict=True):
        latencies += connection.latencies[skipped:]
        for text, answer in connection.answers:
            require_completed(answer, plan["prefix"] + text)
        connection.close()
    if len(latencies) != plan["requests"]:
        raise ValueError(f"{len(latencies)} answers to {plan['requests']} requests")
    return {"seconds": seconds, "latencies": latencies, "cpu_seconds": cpu}


async def _run_all(connections: list[Keeping], requests: list[tuple[str, bytes]]) -> None:
    waiting = iter(requests)
    await asyncio.gather(*(connection.run(waiting) for connection in connections))


def require_completed(answer: bytes, text: str) -> None:
    """Fail unless this is 200 with a completed task whose one artifact is the text."""
    head, _, body = answer.partition(b"\r\n\r\n")
    task = json.loads(body).get("result", {}).get("task", {}) if head.startswith(b"HTTP/1.1 200 ") else {}
    artifacts = [[part.get("text") for part in made["parts"]] for made in task.get("artifacts", [])]
    if task.get("status", {}).get("state") != "TASK_STATE_COMPLETED" or artifacts != [[text]]:
        raise ValueError(f"no completed task with {text!r}: {answer!r}")
