"""What our MCP server writes to stdout: whole lines, in order; those that wait in one write, and none later."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.streams.memory import MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification

from bridge.mcp.server.stdio import LINES_WAITING, StdoutWriter

pytestmark = [pytest.mark.proves("mcp-stdio-server-lines"), pytest.mark.any_loop]

MOST_BYTES = 1 << 20


def numbered(number: int, padding: int = 0) -> SessionMessage:
    """A message that says which it is."""
    params = {"number": number, "padding": "x" * padding}
    return SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="n", params=params))


def numbers_in(written: bytes) -> list[int]:
    """Which messages are in a write."""
    assert written.endswith(b"\n")
    return [json.loads(line)["params"]["number"] for line in written.splitlines()]


@asynccontextmanager
async def writing() -> AsyncIterator[tuple[MemoryObjectSendStream[SessionMessage], socket.socket]]:
    """A writer to a socket that keeps what is written apart, write by write."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, anyio.fail_after(10):
        for end in (ours, theirs):
            end.setblocking(False)
        sink, outgoing = anyio.create_memory_object_stream[SessionMessage](LINES_WAITING)
        writer = StdoutWriter(os.dup(ours.fileno()), outgoing)
        async with sink, anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run, tasks.cancel_scope)
            yield sink, theirs
            sink.close()
            await writer.end()


async def received(end: socket.socket) -> bytes:
    """The next write."""
    await anyio.wait_readable(end)
    return end.recv(MOST_BYTES)


async def test_messages_that_wait_are_written_at_once_and_in_order() -> None:
    async with writing() as (sink, end), anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(sink.send, numbered(number))
        writes = [numbers_in(await received(end))]
        while sum(map(len, writes)) < 50:
            writes.append(numbers_in(await received(end)))
        assert [number for write in writes for number in write] == list(range(50))
        assert len(writes) <= 2


async def test_what_one_call_says_in_a_row_is_joined_too() -> None:
    async with writing() as (sink, end), anyio.create_task_group() as tasks:

        async def report() -> None:
            for number in range(200):
                await sink.send(numbered(number))

        tasks.start_soon(report)
        writes: list[list[int]] = []
        while sum(map(len, writes)) < 200:
            writes.append(numbers_in(await received(end)))
        assert [number for write in writes for number in write] == list(range(200))
        assert len(writes) <= 20


async def test_a_message_alone_goes_out_at_once() -> None:
    async with writing() as (sink, end):
        for number in range(3):
            await sink.send(numbered(number))
            assert numbers_in(await received(end)) == [number]


async def test_what_is_joined_is_bounded() -> None:
    async with writing() as (sink, end), anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(sink.send, numbered(number, padding=30_000))
        writes: list[list[int]] = []
        while sum(map(len, writes)) < 8:
            writes.append(numbers_in(await received(end)))
        assert [number for write in writes for number in write] == list(range(8))
        assert max(map(len, writes)) == 3
