"""Floods of HTTP/2 frames against the gRPC server of a bridge in a process of its own, beside an honest caller.

Each flood ends with the connection closed, or its frames are answered or dropped at little cost. The frames are written
by hand, since no client of gRPC sends them.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final

import anyio.to_thread
import pytest

from tests.support.command import process_of, wrapping
from tests.support.grpc_driver import GrpcDriver, new_channel
from tests.support.ports import free_port
from tests.support.running import call_part

pytestmark = [
    pytest.mark.long,
    pytest.mark.proves("a2a-10.1-grpc"),
    pytest.mark.skipif(sys.platform != "linux", reason="memory and CPU time are read in /proc"),
]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MOST_BYTES: Final = 64 * 1024 * 1024
"""How much memory a flood may cost."""
MOST_CPU_SECONDS: Final = 5.0
"""How much CPU time a flood may cost. Each was measured at less than 0.3 s on the machine that wrote this."""
QUIET_SECONDS: Final = 1.0
"""A server that has sent nothing for so long counts as one that leaves the connection open."""
CLOSE_SECONDS: Final = 30.0
"""How long a server may take to close a connection."""
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
END_HEADERS, ACK = 4, 1


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame of HTTP/2 (RFC 9113 section 4.1)."""
    length = struct.pack(">I", len(payload))[1:]
    return length + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def field(name: str, value: str) -> bytes:
    """A literal field without indexing (RFC 7541 section 6.2.2)."""
    rest, coded = len(value) - 127, bytes([min(len(value), 127)])
    while rest >= 0 and len(coded) < 9:
        coded += bytes([rest % 128 + (128 if rest >= 128 else 0)])
        rest = rest // 128 if rest >= 128 else -1
    return b"\0" + bytes([len(name)]) + name.encode() + coded + value.encode()


HEAD: Final = b"".join(
    field(name, value)
    for name, value in {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/lf.a2a.v1.A2AService/GetTask",
        ":authority": "x",
        "content-type": "application/grpc",
        "te": "trailers",
    }.items()
)


def rapid_resets() -> Iterator[bytes]:
    for stream in range(1, 60_000, 2):
        yield frame(HEADERS, END_HEADERS, stream, HEAD) + frame(RESET, 0, stream, struct.pack(">I", 8))


def many_calls() -> Iterator[bytes]:
    for stream in range(1, 20_000, 2):
        yield frame(HEADERS, END_HEADERS, stream, HEAD)


def continuations() -> Iterator[bytes]:
    yield frame(HEADERS, 0, 1, HEAD)
    for number in range(20_000):
        yield frame(CONTINUATION, 0, 1, field(f"x-{number % 10}", "y" * 1000))


def pings() -> Iterator[bytes]:
    for _ in range(50_000):
        yield frame(PING, 0, 0, b"12345678")


def settings() -> Iterator[bytes]:
    for _ in range(100_000):
        yield frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535))


def empty_data() -> Iterator[bytes]:
    yield frame(HEADERS, END_HEADERS, 1, HEAD)
    for _ in range(100_000):
        yield frame(DATA, 0, 1)


def windows() -> Iterator[bytes]:
    for _ in range(100_000):
        yield frame(WINDOW, 0, 0, struct.pack(">I", 1))


def priorities() -> Iterator[bytes]:
    for _ in range(100_000):
        yield frame(PRIORITY, 0, 3, struct.pack(">IB", 0, 1))


CLOSED: Final = {pings, empty_data}
"""The floods that end with a closed connection."""


@pytest.fixture(scope="module")
async def attacked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[int, int]]:
    """The port of gRPC, and the process."""
    port, folder = free_port(), tmp_path_factory.mktemp("state")
    bridge = wrapping(
        "--store", "memory:", "--grpc", f"127.0.0.1:{port}", state=folder, start=subprocess.Popen
    )
    async with process_of(bridge) as running:
        yield port, running.process.pid


def flood(port: int, frames: Iterator[bytes], seconds: float) -> bool:
    """Send frames, and read until nothing came for some seconds; whether the server closed the connection."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0))
        client.setblocking(False)
        left = b""
        while True:
            while len(left) < 16_384 and (more := next(frames, b"")):
                left += more
            readable, writable, _ = select.select([client], [client] if left else [], [], seconds)
            try:
                if readable and not client.recv(1_000_000):
                    return True
                if writable:
                    left = left[client.send(left) :]
            except ConnectionError:
                return True
            if not readable and not writable:
                return False


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    "frames",
    [rapid_resets, many_calls, continuations, pings, settings, empty_data, windows, priorities],
    ids=lambda frames: frames.__name__,
)
async def test_a_flood_of_frames_costs_little_and_an_honest_caller_is_served(
    frames: Callable[[], Iterator[bytes]], attacked: tuple[int, int]
) -> None:
    port, pid = attacked
    async with new_channel(port) as channel:
        honest = GrpcDriver(channel)
        await honest.send(call_part("echo", text="before"))
        cpu, memory = cpu_seconds(pid), resident_bytes(pid)
        ended: list[bool] = []

        async def attack() -> None:
            seconds = CLOSE_SECONDS if frames in CLOSED else QUIET_SECONDS
            ended.append(await anyio.to_thread.run_sync(flood, port, frames(), seconds))

        async with anyio.create_task_group() as group:
            group.start_soon(attack)
            while not ended:
                assert (await honest.send(call_part("echo", text="hello")))["artifacts"]
                await anyio.sleep(0.1)
        assert ended == [frames in CLOSED]
        assert resident_bytes(pid) - memory < MOST_BYTES
        assert cpu_seconds(pid) - cpu < MOST_CPU_SECONDS
