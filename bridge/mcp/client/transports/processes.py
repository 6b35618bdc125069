"""A child process with three pipes, and the processes that it starts: one interface for every system.

The event loop's own transports are used, which exist on every system. Their pipes can be awaited, and they report the
end of the process, whatever the source (a waiting thread, pidfd, a handle of Windows).

Systems track the processes of a child in different ways. POSIX has process groups, and SIGTERM, which asks a process to
end. Windows has Job Objects. They can only kill their processes, and do so even if this process ends in any way.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import anyio
import anyio.lowlevel

logger = logging.getLogger(__name__)

_CHUNKS_AHEAD: Final = 2
"""How many chunks of a pipe are read ahead."""

_POLL_SECONDS: Final = 0.01
"""The interval of polls for the end of a process group. No system reports this event."""


class OutputPipe:
    """The output of a child on one of its pipes."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._pipe: asyncio.ReadTransport | None = None
        self._arrived = asyncio.Event()
        self._ended = False

    def opened(self, pipe: asyncio.ReadTransport) -> None:
        """Start to read from the pipe."""
        self._pipe = pipe

    def feed(self, chunk: bytes) -> None:
        """Add a chunk of output."""
        self._chunks.append(chunk)
        if len(self._chunks) == _CHUNKS_AHEAD and self._pipe is not None:
            self._pipe.pause_reading()
        self._arrived.set()

    def end(self) -> None:
        """End the output: the pipe is closed."""
        self._ended = True
        self._arrived.set()

    async def receive(self) -> bytes:
        """The next bytes.

        Raises:
            EndOfStream: the output has ended.
        """
        while not self._chunks:
            if self._ended:
                raise anyio.EndOfStream
            self._arrived = asyncio.Event()
            await self._arrived.wait()
        chunk = self._chunks.popleft()
        if len(self._chunks) < _CHUNKS_AHEAD and self._pipe is not None:
            self._pipe.resume_reading()
        return chunk


class ChildProcess(asyncio.SubprocessProtocol):
    """A running process, its pipes, and the event of its end."""

    def __init__(self) -> None:
        self.stdout, self.stderr = OutputPipe(), OutputPipe()
        self.exited = anyio.Event()
        self._transport: asyncio.SubprocessTransport | None = None
        self._room = anyio.Event()
        self._room.set()
        self._stdin_closed = False

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.get_pid()

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended and been reaped."""
        return self._process.get_returncode() is not None

    async def send(self, data: bytes) -> None:
        """Write to the stdin of the process, once it has read most of the data before.

        Raises:
            BrokenResourceError: stdin is closed, at either end, and nothing was written.
        """
        if not self._room.is_set():
            await self.room()
        if self._stdin_closed:
            raise anyio.BrokenResourceError
        self._stdin.write(data)

    async def room(self) -> None:
        """Wait until the process has read most of the data, or stdin is closed."""
        while not self._room.is_set():
            await self._room.wait()

    def close_stdin(self) -> None:
        """Close stdin once all sent data is written."""
        self._stdin.close()

    def kill(self) -> None:
        """Kill this process, but not the processes that it has started."""
        with suppress(ProcessLookupError, PermissionError):
            self._process.kill()

    async def release(self) -> None:
        """Close the pipes, even if a process outside the tree holds the other end."""
        if self._stdin.get_write_buffer_size():
            self._stdin.abort()  # a normal close would wait until the other end reads the rest
        with suppress(PermissionError):  # this process is not allowed to kill it
            self._process.close()
        await anyio.lowlevel.checkpoint()

    @property
    def _process(self) -> asyncio.SubprocessTransport:
        assert self._transport is not None
        return self._transport

    @property
    def _stdin(self) -> asyncio.WriteTransport:
        return cast(asyncio.WriteTransport, self._process.get_pipe_transport(0))

    # What the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The process has started."""
        self._transport = cast(asyncio.SubprocessTransport, transport)
        for number, pipe in ((1, self.stdout), (2, self.stderr)):
            pipe.opened(cast(asyncio.ReadTransport, self._transport.get_pipe_transport(number)))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """The process has written to a pipe."""
        (self.stdout if fd == 1 else self.stderr).feed(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """The other end of a pipe is closed."""
        if fd:
            (self.stdout if fd == 1 else self.stderr).end()
        else:
            self._stdin_closed = True
            self._room.set()

    def pause_writing(self) -> None:
        """The process does not read its stdin."""
        self._room = anyio.Event()

    def resume_writing(self) -> None:
        """The process has read its stdin."""
        self._room.set()

    def process_exited(self) -> None:
        """The process has ended."""
        self.exited.set()


async def started(
    argv: Sequence[str], env: Mapping[str, str], cwd: str | None
) -> tuple[ChildProcess, ProcessTree]:
    """Start a program. Returns the process, and its tree.

    Raises:
        OSError: the system cannot start it.
        ValueError: an argument, a variable or the folder cannot be passed to any program.
    """
    _, process = await asyncio.get_running_loop().subprocess_exec(
        ChildProcess, *argv, env=env, cwd=cwd, **ProcessTree.options()
    )
    return process, ProcessTree(process)


if sys.platform == "win32":
    import pywintypes
    import win32api
    import win32con
    import win32job

    ON_WINDOWS: Final = True

    class ProcessTree:
        """A process and the processes that it starts: a Job Object, which no process can leave."""

        @staticmethod
        def options() -> Mapping[str, Any]:
            """The options of a new process."""
            return {"creationflags": subprocess.CREATE_NO_WINDOW}

        def __init__(self, process: ChildProcess) -> None:
            self._process = process
            self._job = win32job.CreateJobObject(None, "")
            kind = win32job.JobObjectExtendedLimitInformation
            limits = win32job.QueryInformationJobObject(self._job, kind)
            limits["BasicLimitInformation"]["LimitFlags"] |= win32job.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
            win32job.SetInformationJobObject(self._job, kind, limits)
            # A process that the child starts before this call is not in the job. But starting a process takes longer.
            rights = win32con.PROCESS_SET_QUOTA | win32con.PROCESS_TERMINATE
            try:
                handle = win32api.OpenProcess(rights, False, process.pid)
                win32job.AssignProcessToJobObject(self._job, handle)
                handle.Close()
            except pywintypes.error as exc:  # it has ended
                logger.debug("the process %d was put in no job, because it has ended: %s", process.pid, exc)

        async def end(self, grace_seconds: float) -> None:  # noqa: ARG002 - nothing here asks for an end
            """Kill the remaining processes."""
            with suppress(pywintypes.error):
                win32job.TerminateJobObject(self._job, 1)
            self._job.Close()
            if not self._process.has_ended:
                self._process.kill()

else:
    ON_WINDOWS: Final = False

    class ProcessTree:
        """A process and the processes that it starts: a process group, which a process leaves only on purpose."""

        @staticmethod
        def options() -> Mapping[str, Any]:
            """The options of a new process. It leads a session, and so a process group."""
            return {"start_new_session": True}

        def __init__(self, process: ChildProcess) -> None:
            self._process = process

        async def end(self, grace_seconds: float) -> None:
            """End the remaining processes with SIGTERM, then with SIGKILL."""
            for number in (signal.SIGTERM, signal.SIGKILL):
                if not self._signal(number):
                    return
                with anyio.move_on_after(grace_seconds):
                    while self._signal(0):  # noqa: ASYNC110 - see _POLL_SECONDS
                        await anyio.sleep(_POLL_SECONDS)

        def _signal(self, number: int) -> bool:
            """Signal the group. Returns False if no process is left in the group."""
            group = self._process.pid
            if self._process.has_ended:
                with suppress(ChildProcessError):  # the first process of a container inherits orphans
                    while os.waitpid(-group, os.WNOHANG)[0]:
                        pass
            try:
                os.killpg(group, number)
            except ProcessLookupError:
                return False
            except PermissionError:
                logger.debug("no permission to signal every process of the group %d", group)
            return True
