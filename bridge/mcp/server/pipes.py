"""Blocking descriptors beside an event loop: a thread reads a descriptor, and another thread writes a descriptor.

On Windows, an event loop cannot wait for the stdin and stdout of its own process; on no system can it wait for a file.
A thread can read and write both.

A blocking read or write cannot be interrupted, and on Windows closing its descriptor would wait for it. So each thread
closes its own descriptor, and a thread that stays blocked ends with the process.
"""

from __future__ import annotations

import asyncio
import os
import selectors
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Semaphore, Thread
from typing import Final

import anyio

CHUNK_BYTES: Final = 64 * 1024
"""The capacity of a pipe."""

_CHUNKS_AHEAD: Final = 2
"""How many chunks are read ahead."""


class PipeReader:
    """Reads a descriptor in a thread, a few chunks ahead."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._free = Semaphore(_CHUNKS_AHEAD)
        self._chunks: deque[bytes | OSError] = deque()
        self._arrived = anyio.Event()
        self._closed = False
        Thread(target=self._run, name=name, daemon=True).start()

    async def read(self) -> bytes:
        """The next bytes; empty at the end.

        Raises:
            OSError: the descriptor cannot be read.
        """
        while not self._chunks:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        chunk = self._chunks.popleft()
        self._free.release()
        if isinstance(chunk, OSError):
            raise chunk
        return chunk

    def close(self) -> None:
        """Stop reading after the present read."""
        self._closed = True
        self._free.release()

    def _run(self) -> None:
        goes_on = True
        with suppress(RuntimeError):  # the event loop is closed
            while goes_on and self._free.acquire() and not self._closed:
                chunk = _read(self._descriptor)
                goes_on = isinstance(chunk, bytes) and bool(chunk)
                self._loop.call_soon_threadsafe(self._take, chunk)
        os.close(self._descriptor)

    def _take(self, chunk: bytes | OSError) -> None:
        self._chunks.append(chunk)
        self._arrived.set()


class PipeWriter:
    """Writes to a descriptor in a thread. At most one write is under way."""

    def __init__(self, descriptor: int, name: str, on_fault: Callable[[OSError], None]) -> None:
        """`on_fault` is called, in the event loop, if the descriptor cannot be written. Then the rest is dropped."""
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._on_fault = on_fault
        self._given: SimpleQueue[bytes] = SimpleQueue()
        self._lock = Lock()
        self._writing = False
        self._written: anyio.Event | None = None
        """The event at the end of the present write; None if nobody waits for it, so that the thread need not wake the
        loop."""
        Thread(target=self._run, name=name, daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Write bytes, at least one, after the previous write has ended."""
        await self.flush()
        self._writing = True
        self._given.put(data)

    async def flush(self) -> None:
        """Wait until all bytes are written or dropped."""
        with self._lock:
            if not self._writing:
                return
            self._written = written = anyio.Event()
        await written.wait()

    def close(self) -> None:
        """Close the descriptor once all bytes are written or dropped."""
        self._given.put(b"")

    def _run(self) -> None:
        fault: OSError | None = None
        with suppress(RuntimeError):  # the event loop is closed
            while data := self._given.get():
                if fault is None and (fault := _write(self._descriptor, data)):
                    self._loop.call_soon_threadsafe(self._on_fault, fault)
                with self._lock:
                    self._writing = False
                    written, self._written = self._written, None
                if written is not None:
                    self._loop.call_soon_threadsafe(written.set)
        os.close(self._descriptor)


def _read(descriptor: int) -> bytes | OSError:
    while True:
        try:
            return os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:
            _wait_for(descriptor, selectors.EVENT_READ)
        except OSError as exc:
            return exc


def _write(descriptor: int, data: bytes) -> OSError | None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            _wait_for(descriptor, selectors.EVENT_WRITE)
        except OSError as exc:
            return exc
    return None


def _wait_for(descriptor: int, event: int) -> None:
    """Wait for a descriptor that another process has made non-blocking. (This does not happen on Windows.)"""
    with selectors.DefaultSelector() as ready:
        ready.register(descriptor, event)
        ready.select()
