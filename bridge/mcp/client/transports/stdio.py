"""The stdio transport: a tool server that runs as a child process.

This module knows processes and pipes. `mcp/messages.py` reads the lines of stdout, `stderr.py` those of stderr.

The SDK has a transport of this kind. This one reads a line in time linear in its length, keeps no more of it than
a limit, and ends the connection when the process ends. The end of stdout does not suffice, since the child's own
children may hold stdout open.

Four tasks stand between the process and the session: one reads stdout, one writes stdin, one logs stderr, one
waits for the end. They are shielded, and only `_Child.end` ends them, so that the output of a server that
is being stopped is still read.

Spec: MCP 2026-07-28 basic/transports (stdio), basic/lifecycle (shutdown).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.lowlevel
from anyio.abc import Process
from mcp.client._transport import TransportStreams
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from bridge.errors import UsageError
from bridge.mcp.client.faults import answer_to_many_values, answer_to_overlong
from bridge.mcp.client.stderr import LastWords, StderrLog
from bridge.mcp.messages import LineSplitter, OverlongLine, line_of, message_in

logger = logging.getLogger(__name__)

_GRACE_SECONDS: Final = 2.0
"""How long a server may take to end after its stdin is closed, and again after SIGTERM. As in the SDK."""

_FLUSH_SECONDS: Final = 0.5
"""How long the last messages may take to be written before stdin is closed. As in the SDK."""

_QUIET_SECONDS: Final = 0.2
"""After a process has ended, a pipe that is silent for this long is taken to be empty."""

_LAST_SECONDS: Final = 2.0
"""How long stdout is read at most after the process has ended: its children may go on writing."""

_EXIT_POLL_SECONDS: Final = 0.25
"""The interval of polls for the end of the process, on systems without pidfd."""

_POLL_SECONDS: Final = 0.01
"""The interval of polls for the end of a process group. No system reports that event."""

_LINES_AT_ONCE: Final = 64
"""The most waiting messages that are written to the server together."""

_LINES_AHEAD: Final = 16
"""How many messages are read ahead of the session, so that each message of a chunk does not cost a task switch."""

_GONE: Final = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)
"""The errors of a pipe whose other end is closed."""


@dataclass(frozen=True)
class StdioTarget:
    """A server that is started as a child process."""

    argv: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables beside HOME, LOGNAME, PATH, SHELL, TERM and USER, which every child gets."""
    cwd: str | None = None
    result_limit_bytes: int = field(kw_only=True)
    result_json_values: int = field(kw_only=True)
    shown: tuple[str, ...] = field(default=(), compare=False)
    """The command line as it may be shown, when the real one holds secrets."""

    def __str__(self) -> str:
        return " ".join(self.shown or self.argv)


@asynccontextmanager
async def child(command: StdioTarget, name: str, last_words: LastWords) -> AsyncIterator[TransportStreams]:
    """Start a server as a child process, and end it, with its process group, on exit.

    A line that is no message arrives as a ValueError. An answer above a limit becomes an error that is marked as the
    transport's. When its id is not found in its first or last bytes, it is a ValueError, too, and the call that
    waits for it ends by its own deadline.

    Raises:
        UsageError: the command cannot be started.
    """
    with anyio.CancelScope(shield=True):  # between the start and the `try` below nothing may be awaited
        process = await _start(command)
    server = _Child(process, name, command, last_words)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run)
        try:
            yield server.messages, server.sink
        finally:
            with anyio.CancelScope(shield=True):
                await server.end()


async def _start(command: StdioTarget) -> Process:
    try:
        return await anyio.open_process(
            command.argv,
            env=get_default_environment() | dict(command.env),
            cwd=command.cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise UsageError(f"cannot start {(command.shown or command.argv)[0]!r}: {reason}") from exc


class _Child:
    """A process that runs, and the tasks that serve it."""

    def __init__(self, process: Process, name: str, command: StdioTarget, last_words: LastWords) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._name = name
        self._limit_bytes, self._max_values = command.result_limit_bytes, command.result_json_values
        self._last_words = last_words
        streams = anyio.create_memory_object_stream[SessionMessage | Exception](_LINES_AHEAD)
        self._received, self.messages = streams
        self.sink, self._outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        self._life = anyio.CancelScope(shield=True)
        self._reading, self._waiting, self._chunks = anyio.CancelScope(), False, 0
        self._flushed = anyio.Event()
        self._silent = anyio.Event()
        self._exited = anyio.Event()

    async def run(self) -> None:
        """Serve the process until its output has ended, or `end` was called."""
        with self._life:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read)
                tasks.start_soon(self._write)
                tasks.start_soon(self._watch)
                tasks.start_soon(self._log_stderr)

    async def end(self) -> None:
        """Close stdin, then end the process and the rest of its group. The caller shields this."""
        self.messages.close()
        self.sink.close()
        with anyio.move_on_after(_FLUSH_SECONDS):
            await self._flushed.wait()
        await self._stdin.aclose()
        with anyio.move_on_after(_GRACE_SECONDS):
            await self._exited.wait()
        await _end_group(self._process)
        with anyio.move_on_after(_GRACE_SECONDS):
            await self._exited.wait()
        with anyio.move_on_after(_QUIET_SECONDS):
            await self._silent.wait()
        self._life.cancel()
        if self._process.returncode is None:
            logger.warning("%s: its process %d cannot be ended", self._name, self._process.pid)
        await _release(self._process)

    # From the process

    async def _read(self) -> None:
        lines = LineSplitter(self._limit_bytes)
        with suppress(*_GONE):
            async with self._received:
                with suppress(*_GONE), self._reading:
                    while True:
                        self._waiting = True
                        chunk = await self._stdout.receive()
                        self._waiting, self._chunks = False, self._chunks + 1
                        for line in lines.feed(chunk):
                            await self._deliver(line)
                with anyio.move_on_after(_QUIET_SECONDS):
                    await self._silent.wait()  # so that the last words are there when the end is reported
            while True:  # the output is dropped, but a server that cannot write cannot end
                await self._stdout.receive()

    async def _end_reading(self) -> None:
        """Read the rest of stdout, then end the reading: the process has ended, or no longer reads stdin."""
        with anyio.move_on_after(_LAST_SECONDS):
            seen = -1
            while not self._waiting or seen != self._chunks:
                seen = self._chunks
                await anyio.sleep(_QUIET_SECONDS)
        self._reading.cancel()

    async def _deliver(self, line: bytes | OverlongLine) -> None:
        if isinstance(line, OverlongLine):
            item = answer_to_overlong(line, self._limit_bytes)
        elif not line or line.isspace():
            return
        else:
            item = answer_to_many_values(line, self._max_values) or message_in(line)
        try:
            self._received.send_nowait(item)
        except anyio.WouldBlock:
            await self._received.send(item)

    async def _watch(self) -> None:
        await _ended(self._process)
        self._exited.set()
        await self._end_reading()

    async def _log_stderr(self) -> None:
        """Pass stderr to the log until it is closed."""
        log = StderrLog(self._name, self._last_words)
        with suppress(*_GONE):
            while True:
                log.feed(await self._stderr.receive())
        self._silent.set()

    # To the process

    async def _write(self) -> None:
        try:
            async with self._outgoing:
                async for message in self._outgoing:
                    lines = [line_of(message)]
                    with suppress(anyio.WouldBlock, anyio.EndOfStream):
                        while len(lines) < _LINES_AT_ONCE:
                            lines.append(line_of(self._outgoing.receive_nowait()))
                    await self._stdin.send(b"".join(lines))
        except _GONE:
            self._flushed.set()
            await self._end_reading()
        self._flushed.set()


# Processes


async def _ended(process: Process) -> None:
    """Wait until the process has ended and been reaped. (`process.wait` may also wait for its pipes.)"""
    pause = _EXIT_POLL_SECONDS
    if sys.platform == "linux" and process.returncode is None:
        with suppress(OSError):  # the process was just reaped, or a sandbox forbids pidfd
            handle = os.pidfd_open(process.pid)
            try:
                await anyio.wait_readable(handle)
            finally:
                os.close(handle)
            pause = _POLL_SECONDS
    while process.returncode is None:  # noqa: ASYNC110 - see _EXIT_POLL_SECONDS
        await anyio.sleep(pause)


async def _end_group(process: Process) -> None:
    """End the process group with SIGTERM, then with SIGKILL."""
    if sys.platform == "win32":
        process.terminate()
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not _signal_group(process, number):
            return
        with anyio.move_on_after(_GRACE_SECONDS):
            while _signal_group(process, 0):  # noqa: ASYNC110 - see _POLL_SECONDS
                await anyio.sleep(_POLL_SECONDS)


def _signal_group(process: Process, number: int) -> bool:
    """Signal the process group. False when no process is left in it."""
    if process.returncode is not None:
        with suppress(ChildProcessError):  # orphans fall to us when we are the first process of a container
            while os.waitpid(-process.pid, os.WNOHANG)[0]:
                pass
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        logger.debug("may not signal all of the process group %d", process.pid)
    return True


async def _release(process: Process) -> None:
    """Close the pipes, also those whose other end a process outside the group holds."""
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(*_GONE):
                await stream.aclose()
    # asyncio's own transport keeps the descriptors until each pipe has ended. There is no public way to reach it.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        stdin = transport.get_pipe_transport(0)
        if stdin is not None and stdin.get_write_buffer_size():
            stdin.abort()  # closing would wait until the other end reads it
        with suppress(PermissionError):  # the process may not be killed
            transport.close()
        await anyio.lowlevel.checkpoint()
