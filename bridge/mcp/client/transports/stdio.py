"""The stdio transport: a tool server that runs as a child process.

`processes.py` knows processes and pipes, `mcp/messages.py` reads the lines of stdout, `stderr.py` reads the lines of
stderr.

The SDK has a stdio transport, too. This transport reads a line in linear time, bounds the length of a line in memory,
and ends the connection when the process ends. The end of stdout is not enough, since the child's own children may hold
stdout open.

A message is written by the task that sends it. Four tasks do the rest: they read stdout, log stderr, and wait for the
end of stdin and of the process. They are shielded, and only `_Child.end` ends them, so that the output of a stopping
server is still read.

Spec: MCP 2026-07-28 basic/transports (stdio), basic/lifecycle (shutdown).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import anyio
import anyio.lowlevel
from mcp.client._transport import TransportStreams
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from bridge.errors import UsageError
from bridge.mcp.client.faults import within_limits
from bridge.mcp.client.incoming import Incoming
from bridge.mcp.client.stderr import LastWords, StderrLog
from bridge.mcp.client.transports.child_commands import argv_of, environment_of
from bridge.mcp.client.transports.processes import ON_WINDOWS, ChildProcess, ProcessTree, started
from bridge.mcp.messages import LineSplitter, OverlongLine, line_of

logger = logging.getLogger(__name__)

_GIVEN: Final = {"PYTHONUTF8": "1"}
"""Variables of every child beside those of the SDK. Without them, Python writes to pipes in the system's encoding."""

_LINES_AT_ONCE: Final = 16
"""The most lines that are read before other tasks have their turn."""

_GONE: Final = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError)
"""The errors of a pipe or of a stream whose other end is closed."""


@dataclass(frozen=True)
class ChildPace:
    """The times for the end of a child and of its output."""

    flush_seconds: float
    """How long writing the last messages may take before stdin is closed."""
    exit_seconds: float
    """How long a server may take to end after its stdin is closed, and again after SIGTERM."""
    quiet_seconds: float
    """After a process has ended, a pipe that is silent for this long counts as empty."""
    output_seconds: float
    """The longest time that stdout is read after the process has ended, since its children may go on writing."""


@dataclass(frozen=True)
class StdioTarget:
    """A server that is started as a child process."""

    argv: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables beside HOME, LOGNAME, PATH, SHELL, TERM and USER, which every child gets."""
    cwd: str | None = None
    result_limit_bytes: int = field(kw_only=True)
    result_json_values: int = field(kw_only=True)
    pace: ChildPace = field(kw_only=True)
    roots: tuple[str, ...] = field(default=(), kw_only=True)
    """The file URIs of the folders that the server is told when it asks for roots; without any, it may not ask."""
    shown: tuple[str, ...] = field(default=(), compare=False)
    """The command line as it may be shown, if the real command line holds secrets."""

    def __str__(self) -> str:
        return " ".join(self.shown or self.argv)


@asynccontextmanager
async def child(command: StdioTarget, name: str, last_words: LastWords) -> AsyncIterator[TransportStreams]:
    """Start a server as a child process, and end it, with its process group, on exit.

    A line that is not a message arrives as a ValueError. An answer above a limit becomes an error that is marked as the
    transport's. If the id of the answer is not in its first or last bytes, the answer becomes a ValueError, too, and
    its call ends by its own deadline.

    Raises:
        UsageError: the command cannot be started.
    """
    with anyio.CancelScope(shield=True):  # no await may come between the start and the `try` below
        process, tree = await _started(command)
    server = _Child(process, tree, name, command, last_words)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run)
        try:
            yield server.messages, server.sink
        finally:
            with anyio.CancelScope(shield=True):
                await server.end()


async def _started(command: StdioTarget) -> tuple[ChildProcess, ProcessTree]:
    inherited = get_default_environment() | _GIVEN
    env = environment_of(inherited, command.env, windows=ON_WINDOWS)
    try:
        argv = argv_of(command.argv, env, command.cwd, windows=ON_WINDOWS)
        return await started(argv, env, command.cwd)
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise UsageError(f"cannot start {(command.shown or command.argv)[0]!r}: {reason}") from exc


class _Child:
    """A running process, and the tasks that serve it."""

    def __init__(
        self,
        process: ChildProcess,
        tree: ProcessTree,
        name: str,
        command: StdioTarget,
        last_words: LastWords,
    ) -> None:
        self._process, self._tree = process, tree
        self._name = name
        self._limit_bytes, self._max_values = command.result_limit_bytes, command.result_json_values
        self._pace = command.pace
        self._last_words = last_words
        self.messages = Incoming()
        self.sink = _Stdin(process)
        self._life = anyio.CancelScope(shield=True)
        self._reading, self._waiting, self._chunks = anyio.CancelScope(), False, 0
        self._silent = anyio.Event()

    async def run(self) -> None:
        """Serve the process until its output has ended, or `end` was called."""
        with self._life:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read)
                tasks.start_soon(self._watch_stdin)
                tasks.start_soon(self._watch)
                tasks.start_soon(self._log_stderr)

    async def end(self) -> None:
        """Close stdin, then end the process and the rest of its group. The caller shields this."""
        self.messages.close()
        self.sink.close()
        with anyio.move_on_after(self._pace.flush_seconds):
            await self._process.room()
        self._process.close_stdin()
        with anyio.move_on_after(self._pace.exit_seconds):
            await self._process.exited.wait()
        await self._tree.end(self._pace.exit_seconds)
        with anyio.move_on_after(self._pace.exit_seconds):
            await self._process.exited.wait()
        with anyio.move_on_after(self._pace.quiet_seconds):
            await self._silent.wait()
        self._life.cancel()
        if not self._process.has_ended:
            logger.warning("%s: its process %d cannot be ended", self._name, self._process.pid)
        await self._process.release()

    # From the process

    async def _read(self) -> None:
        lines = LineSplitter(self._limit_bytes)
        with suppress(*_GONE):
            try:
                with suppress(*_GONE), self._reading:
                    while True:
                        self._waiting = True
                        chunk = await self._process.stdout.receive()
                        self._waiting, self._chunks = False, self._chunks + 1
                        await self._deliver(lines.feed(chunk))
                with anyio.move_on_after(self._pace.quiet_seconds):
                    await self._silent.wait()  # so that the last lines are known when the end is reported
            finally:
                self.messages.end()
            while True:  # the output is dropped, but it must be read: a server that cannot write cannot end
                await self._process.stdout.receive()

    async def _end_reading(self) -> None:
        """Read the rest of stdout, then stop reading. The process has ended, or no longer reads stdin."""
        with anyio.move_on_after(self._pace.output_seconds):
            seen = -1
            while not self._waiting or seen != self._chunks:
                seen = self._chunks
                await anyio.sleep(self._pace.quiet_seconds)
        self._reading.cancel()

    async def _deliver(self, lines: Iterator[bytes | OverlongLine]) -> None:
        for number, line in enumerate(lines, 1):
            if isinstance(line, OverlongLine) or not (not line or line.isspace()):
                for item in within_limits(line, self._limit_bytes, self._max_values):
                    await self.messages.put(item)
            if number % _LINES_AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()

    async def _watch(self) -> None:
        await self._process.exited.wait()
        await self._end_reading()

    async def _log_stderr(self) -> None:
        """Pass stderr to the log until it is closed."""
        log = StderrLog(self._name, self._last_words)
        with suppress(*_GONE):
            while True:
                log.feed(await self._process.stderr.receive())
        log.end()
        self._silent.set()

    # To the process

    async def _watch_stdin(self) -> None:
        """Stop reading once a message cannot be written, since the process no longer reads stdin."""
        await self.sink.refused.wait()
        await self._end_reading()


class _Stdin:
    """A `WriteStream` of the SDK, to the stdin of a process."""

    def __init__(self, process: ChildProcess) -> None:
        self._process = process
        self._is_closed = False
        self.refused = anyio.Event()
        """Set once a message was not written because stdin is closed."""

    async def send(self, message: SessionMessage) -> None:
        """Write a message, once there is room.

        Raises:
            ClosedResourceError, BrokenResourceError: the stream or stdin is closed, and nothing was written.
        """
        if self._is_closed:
            raise anyio.ClosedResourceError
        try:
            await self._process.send(line_of(message))
        except anyio.BrokenResourceError:
            self.refused.set()
            raise

    def close(self) -> None:
        """Take no more messages."""
        self._is_closed = True

    async def aclose(self) -> None:
        """Take no more messages."""
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
