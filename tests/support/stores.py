"""Stores that keep their promises late, or not at all: for tests of what depends on a store."""

from __future__ import annotations

from collections import deque

import anyio

from bridge.errors import StoreError
from bridge.store.contract import OnStored
from bridge.store.memory import MemoryStore
from bridge.store.records import Change, StoredMessage


class GatedStore(MemoryStore):
    """Keeps each change only when it is told to, as a disk takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.held_back: deque[tuple[Change, OnStored]] = deque()
        self._open = False

    def submit(self, change: Change, done: OnStored) -> None:
        """Queue the change, or keep it when the gate stands open."""
        self.held_back.append((change, done))
        if self._open:
            self.let_through()

    def let_through(self, changes: int | None = None) -> None:
        """Keep the oldest changes that wait, or all."""
        for _ in range(len(self.held_back) if changes is None else changes):
            super().submit(*self.held_back.popleft())

    def open(self) -> None:
        """Let all through, from now on."""
        self._open = True
        self.let_through()

    def shut(self) -> None:
        """Let nothing through, from now on."""
        self._open = False


class LastingStore(MemoryStore):
    """Is found again by a second engine, as a file is."""

    @property
    def lasts(self) -> bool:
        """True, as long as the test holds it."""
        return True


class FailingStore(MemoryStore):
    """Refuses every change while it is broken; says so at once, or in a later turn of the loop."""

    def __init__(self, *, late: bool = False) -> None:
        super().__init__()
        self.broken = False
        self._late = late
        self._failure: str | None = None
        self.probed = anyio.Event()

    def submit(self, change: Change, done: OnStored) -> None:
        """Keep the change unless broken."""
        if self._late:
            anyio.lowlevel.current_token().native_token.call_soon(self._answer, change, done)  # type: ignore[attr-defined]
        else:
            self._answer(change, done)

    def _answer(self, change: Change, done: OnStored) -> None:
        if self.broken:
            self._failure = "the disk is full"
            done(StoreError(self._failure))
        else:
            super().submit(change, done)

    @property
    def failure(self) -> str | None:
        """Set by the first change that is refused, cleared by a probe that succeeds."""
        return self._failure

    async def probe(self) -> bool:
        """Whether it works again."""
        self.probed.set()
        await anyio.lowlevel.checkpoint()
        if not self.broken:
            self._failure = None
        return not self.broken


class SlowReadStore(MemoryStore):
    """Answers a look-up from what it held when it was asked, some turns of the loop later."""

    async def find_message(self, owner: str, message_id: str) -> StoredMessage | None:
        """See `Store.find_message`."""
        found = await super().find_message(owner, message_id)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        return found

    async def context_owner(self, context_id: str) -> str | None:
        """See `Store.context_owner`."""
        found = await super().context_owner(context_id)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        return found
