"""Connects to every server and agent of a plan, to show what would be served. It serves nobody and keeps nothing.

A server that is down is waited for, up to a limit. The preview then goes on without it, and tells the observer why.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio

from bridge.assembly.bridge import Bridge
from bridge.assembly.parts import servers_of
from bridge.assembly.plan import Plan, for_preview
from bridge.assembly.startup import StartObserver
from bridge.mcp.client.upstream import Upstream
from bridge.process.serve import unannounced_bridge
from bridge.seal import key_in

WAIT_SECONDS: Final = 30.0
"""How long servers and agents may take by default. It is the connect timeout of the default profile."""

_KEY_BYTES: Final = 32


@asynccontextmanager
async def previewed(
    plan: Plan, watching: StartObserver | None = None, within_seconds: float = WAIT_SECONDS
) -> AsyncIterator[Bridge]:
    """A bridge that has connected to every server and agent that it can reach, for the length of the block.

    Raises:
        UsageError: an existing key of handles cannot be used.
    """
    _require_keys(plan)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        plan = for_preview(plan, Path(folder), secrets.token_hex(_KEY_BYTES), within_seconds)
        settled = _Settled(servers_of(plan), watching)
        async with unannounced_bridge(plan, settled, over_http=True) as (bridge, here):
            # In two steps, because an agent's card has its tools only once all its servers have listed theirs.
            await bridge.apply(replace(here, offered={}))
            with anyio.move_on_after(within_seconds):
                await settled.all.wait()
            await bridge.apply(here)
            yield bridge


def _require_keys(plan: Plan) -> None:
    for key in plan.place.keys:
        if isinstance(key, Path) and key.exists():
            key_in(key.parent, key.name)


class _Settled:
    """Notes when every server has connected or failed, and passes each event on to another observer."""

    def __init__(self, keys: Iterable[str], other: StartObserver | None) -> None:
        self.all = anyio.Event()
        self._left = set(keys)
        self._other = other
        self._look()

    def connecting(self, key: str, target: object) -> None:
        if self._other:
            self._other.connecting(key, target)

    def connected(self, key: str, upstream: Upstream) -> None:
        if self._other:
            self._other.connected(key, upstream)
        self._left.discard(key)
        self._look()

    def failed(self, key: str, why: str) -> None:
        if self._other:
            self._other.failed(key, why)
        self._left.discard(key)
        self._look()

    def _look(self) -> None:
        if not self._left:
            self.all.set()
