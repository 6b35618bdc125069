"""A tool server that runs as a child process and is spoken to over its stdin and stdout.

What is known here is processes and pipes; what stands in a line is for `lines.py` and `stderr.py` to say.

The SDK has a transport of this kind. This one reads a line in a time that grows with its length only, keeps no
more of it than a limit, and ends the connection when the process ends: the end of its stdout does not tell, as
whatever the process has started may hold stdout open.

Four tasks stand between the process and the session: one reads stdout, one writes stdin, one logs stderr, one
waits for the end. They are shielded, and ended by `_Child.end` alone, so that a server that is being stopped
still finds somebody who reads what it writes.

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
"""How long a server may take to end once its stdin is closed, and again once it is told to. As in the SDK."""

_FLUSH_SECONDS: Final = 0.5
"""How long what was sent last may take to leave before stdin is closed. As in the SDK."""

_QUIET_SECONDS: Final = 0.2
"""A pipe that brings nothing for this long holds nothing more of a process that has ended."""

_LAST_SECONDS: Final = 2.0
"""How long stdout is read after the end at most: what the process left behind may write on for ever."""

_EXIT_POLL_SECONDS: Final = 0.25
"""How often the end of the process is looked for where the system does not tell of it."""

_POLL_SECONDS: Final = 0.01
"""How often a process group is looked at that is about to be gone. Of that, no system tells."""

_LINES_AT_ONCE: Final = 64
"""Messages to the server that are written together, when so many wait."""

_LINES_AHEAD: Final = 16
"""Messages that are read before the session takes them, so that those of one chunk cost no change of task each."""

_GONE: Final = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)
"""How the streams of a process say that there is nobody at the other end."""


@dataclass(frozen=True)
class StdioTarget:
    """A server that is started as a child process and spoken to over its stdin and stdout."""

    argv: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Beside HOME, LOGNAME, PATH, SHELL, TERM and USER, which every child gets."""
    cwd: str | None = None
    result_limit_bytes: int = field(kw_only=True)
    result_json_values: int = field(kw_only=True)
    shown: tuple[str, ...] = field(default=(), compare=False)
    """The words as they may be said aloud, where those are others."""

    def __str__(self) -> str:
        return " ".join(self.shown or self.argv)


@asynccontextmanager
async def child(command: StdioTarget, name: str, last_words: LastWords) -> AsyncIterator[TransportStreams]:
    """Start a server as a child process, and end it, with its process group, on exit.

    What it sends that is no message comes as a ValueError. So does an answer above a limit whose id is not
    found in its first or last bytes: the call that waits for it ends with its own deadline. Where the id is
    found, an error marked as ours answers the call.

    Raises:
        UsageError: it cannot be started.
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
        """Serve the process until nothing more can come of it, or `end` has ended it."""
        with self._life:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read)
                tasks.start_soon(self._write)
                tasks.start_soon(self._watch)
                tasks.start_soon(self._log_stderr)

    async def end(self) -> None:
        """Close stdin, then end the process and what is left of its group. The caller shields this."""
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
                    await self._silent.wait()  # so that whoever hears of the end finds the last words
            while True:  # nobody wants it, but a server that cannot write cannot end
                await self._stdout.receive()

    async def _end_reading(self) -> None:
        """The process has ended, or will hear nothing more: what it wrote is read, and that is the end."""
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
        """Pass stderr on to the log until it is closed."""
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
        with suppress(OSError):  # it has just been reaped, or a sandbox forbids this
            handle = os.pidfd_open(process.pid)
            try:
                await anyio.wait_readable(handle)
            finally:
                os.close(handle)
            pause = _POLL_SECONDS
    while process.returncode is None:  # noqa: ASYNC110 - see _EXIT_POLL_SECONDS
        await anyio.sleep(pause)


async def _end_group(process: Process) -> None:
    """Tell the process and all that it started to end; kill what does not."""
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
    """Whether there is anybody to hear it."""
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
    """Close the pipes, also those whose other end somebody outside the group holds."""
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(*_GONE):
                await stream.aclose()
    # Nothing public reaches asyncio's own transport, which keeps the descriptors until each pipe has ended.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        stdin = transport.get_pipe_transport(0)
        if stdin is not None and stdin.get_write_buffer_size():
            stdin.abort()  # closing would wait until somebody reads it
        with suppress(PermissionError):  # of a process that may not be killed
            transport.close()
        await anyio.lowlevel.checkpoint()
