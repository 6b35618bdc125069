"""Threads that read and write descriptors of any kind: pipes, files, and those that another process shares."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from bridge.mcp.server.pipes import CHUNK_BYTES, PipeReader, PipeWriter

pytestmark = [pytest.mark.proves("mcp-stdio-server-lines"), pytest.mark.any_loop]

LONG = bytes(range(256)) * 4096
"""More than a pipe holds."""


async def everything_of(reader: PipeReader) -> bytes:
    """All chunks until the end."""
    chunks = []
    while chunk := await reader.read():
        assert len(chunk) <= CHUNK_BYTES
        chunks.append(chunk)
    return b"".join(chunks)


@contextmanager
def pipe(*, blocking: bool = True) -> Iterator[tuple[int, int]]:
    """The ends of a pipe; whoever takes one over closes it."""
    ends = os.pipe()
    if not blocking:
        for end in ends:
            os.set_blocking(end, False)
    yield ends


@asynccontextmanager
async def writing_to(descriptor: int, faults: list[OSError]) -> AsyncIterator[PipeWriter]:
    """A writer, which has written all once this is left."""
    writer = PipeWriter(descriptor, "writer", faults.append)
    try:
        yield writer
        await writer.flush()
    finally:
        writer.close()


@pytest.mark.parametrize("blocking", [True, False])
async def test_what_one_thread_writes_another_reads_whole_and_in_order(blocking: bool) -> None:
    """Also when another process has made the descriptors non-blocking."""
    faults: list[OSError] = []
    with anyio.fail_after(10), pipe(blocking=blocking) as (theirs, ours):
        reader = PipeReader(theirs, "reader")

        async def write() -> None:
            async with writing_to(ours, faults) as writer:
                for _ in range(3):
                    await writer.write(LONG)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            assert await everything_of(reader) == 3 * LONG
        reader.close()
    assert faults == []


async def test_a_file_is_read_and_written_like_a_pipe(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    async with writing_to(os.open(file, os.O_WRONLY | os.O_CREAT), []) as writer:
        await writer.write(LONG)
    reader = PipeReader(os.open(file, os.O_RDONLY), "reader")
    assert await everything_of(reader) == LONG


async def test_a_reader_that_has_left_is_told_once_and_what_follows_is_dropped() -> None:
    faults: list[OSError] = []
    with pipe() as (theirs, ours):
        os.close(theirs)
        async with writing_to(ours, faults) as writer:
            for _ in range(3):
                await writer.write(b"a line\n")
    assert [type(fault) for fault in faults] == [BrokenPipeError]


async def test_what_cannot_be_read_is_an_error_where_it_is_read() -> None:
    with pipe() as (theirs, ours):
        os.close(theirs)
        reader = PipeReader(ours, "reader")  # the wrong end
        with pytest.raises(OSError, match="Bad file descriptor"):
            await reader.read()


async def test_a_reader_is_closed_without_waiting_for_what_never_comes() -> None:
    with anyio.fail_after(10), pipe() as (theirs, ours):
        reader = PipeReader(theirs, "reader")
        reader.close()
        await anyio.to_thread.run_sync(os.write, ours, b"too late")
        await anyio.to_thread.run_sync(until_unread, ours)
        os.close(ours)


def until_unread(end: int) -> None:
    """Write until the other end is closed, as the thread does once it has read."""
    with suppress(BrokenPipeError):
        while True:
            os.write(end, b"too late")
