"""Connects to all that a plan names, to see what would be served; nobody else is served, and nothing is kept.

What is down is waited for a while and then left as it is: whoever looks is told why.
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
"""How long servers and agents may take by default: as long as the default profile lets a server take to connect."""

_KEY_BYTES: Final = 32


@asynccontextmanager
async def previewed(
    plan: Plan, watching: StartObserver | None = None, within_seconds: float = WAIT_SECONDS
) -> AsyncIterator[Bridge]:
    """A bridge that has connected to all that it can, as long as this is entered.

    Raises:
        UsageError: a key of handles that is there cannot be used.
    """
    _require_keys(plan)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        plan = for_preview(plan, Path(folder), secrets.token_hex(_KEY_BYTES), within_seconds)
        settled = _Settled(servers_of(plan), watching)
        async with unannounced_bridge(plan, settled, over_http=True) as (bridge, here):
            # In two steps, as the card of an agent tells its tools only once all its servers have listed theirs.
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
    """Knows when each server has been seen up or down, and tells somebody else as well."""

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
