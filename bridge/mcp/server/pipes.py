"""Blocking descriptors beside an event loop: a thread reads one, and another thread writes one.

No event loop of Windows can wait for the stdin and stdout of its own process, and no event loop for a file. A thread
can read and write whatever they are.

A read or a write that blocks cannot be broken off, and on Windows closing its descriptor would wait for it. So each
thread closes its own descriptor, and one that goes on blocking ends with the process.
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
"""Chunks that are read before they are taken."""


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
        """Read no more once the present read has ended."""
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
    """Writes to a descriptor in a thread. One write is under way at most."""

    def __init__(self, descriptor: int, name: str, on_fault: Callable[[OSError], None]) -> None:
        """`on_fault` is called, in the event loop, when the descriptor cannot be written. The rest is dropped then."""
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._on_fault = on_fault
        self._given: SimpleQueue[bytes] = SimpleQueue()
        self._lock = Lock()
        self._writing = False
        self._written: anyio.Event | None = None
        """What is waited for while a write is under way. Without a waiter the thread need not wake the loop."""
        Thread(target=self._run, name=name, daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Have bytes written, at least one, after waiting for the previous write."""
        await self.flush()
        self._writing = True
        self._given.put(data)

    async def flush(self) -> None:
        """Wait until all is written or dropped."""
        with self._lock:
            if not self._writing:
                return
            self._written = written = anyio.Event()
        await written.wait()

    def close(self) -> None:
        """Close the descriptor once all is written or dropped."""
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
    """Wait for a descriptor that another process that shares it has made non-blocking. (Windows has none such.)"""
    with selectors.DefaultSelector() as ready:
        ready.register(descriptor, event)
        ready.select()
