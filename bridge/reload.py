"""Takes over a configuration file again, whenever it or what it reads has changed, or on request.

A file that cannot be taken over is refused with all that is wrong with it, and what was served goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import anyio
from watchfiles import awatch

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import Plan
from bridge.errors import BridgeError, leaf_of

logger = logging.getLogger(__name__)

Load = Callable[[], tuple[Plan, frozenset[Path]]]
"""Reads the file: what it says is to be served, and every file that it was read from."""


_LOOK_MS: Final = 5_000
"""How often files are looked at that tell nobody when they change, as on network disks."""


class Reload:
    """Watches the files that a plan was made of."""

    def __init__(self, load: Load, files: frozenset[Path]) -> None:
        self._load = load
        self._seen = _stamps(files)
        self._asked = anyio.Event()

    def ask(self) -> None:
        """Read the file again, changed or not."""
        self._asked.set()

    async def run(self, bridge: Bridge) -> None:
        """Take over each change, until this is cancelled."""
        while True:
            async with anyio.create_task_group() as watching:
                watching.start_soon(self._watch)
                await self._asked.wait()
                watching.cancel_scope.cancel()
            self._asked = anyio.Event()
            await self._take_over(bridge)

    async def _watch(self) -> None:
        """Ask once a file is another. Folders are watched, as editors put a new file in the place of the old."""
        folders = {file.parent for file in self._seen if file.parent.is_dir()}
        stop = anyio.Event()
        changes = awatch(
            *folders,
            recursive=False,
            watch_filter=None,
            rust_timeout=_LOOK_MS,
            yield_on_timeout=True,
            stop_event=stop,
        )
        async with anyio.create_task_group() as group:
            group.start_soon(_set_at_the_end, stop)
            while _stamps(self._seen) == self._seen:
                try:
                    await anext(changes)
                except (StopAsyncIteration, OSError):
                    # A folder has gone: whether there is another one is seen without being told.
                    await anyio.sleep(_LOOK_MS / 1000)
            group.cancel_scope.cancel()
        self.ask()

    async def _take_over(self, bridge: Bridge) -> None:
        self._seen = _stamps(self._seen)
        try:
            plan, files = await anyio.to_thread.run_sync(self._load)
            if not bridge.asks_for_credentials:  # which then stays so
                plan.require_safe()
            await bridge.apply(plan)
        except Exception as exc:  # noqa: BLE001 - whatever is wrong with a file, what is served goes on
            _refuse(leaf_of(exc) if isinstance(exc, ExceptionGroup) else exc)
        else:
            self._seen = _stamps(files) | {file: self._seen[file] for file in self._seen if file in files}
            logger.warning("the configuration was read again and taken over")


def _refuse(fault: BaseException) -> None:
    """Say that a file is not taken over, and why."""
    if isinstance(fault, BridgeError):
        for line in str(fault).splitlines():
            logger.error("%s", line)
    else:
        logger.error("the configuration could not be taken over", exc_info=fault)
    logger.error("The file is not taken over: what was served before goes on")


async def _set_at_the_end(stop: anyio.Event) -> None:
    """Tell the thread that watches that it may end, which does not hear of a cancellation before its time is up."""
    try:
        await anyio.sleep_forever()
    finally:
        stop.set()


def _stamps(files: Iterable[Path]) -> dict[Path, tuple[int, int] | None]:
    """When each file was last changed and how large it is; None for one that is not there."""
    found: dict[Path, tuple[int, int] | None] = {}
    for file in files:
        try:
            stat = file.stat()
        except OSError:
            found[file] = None
        else:
            found[file] = (stat.st_mtime_ns, stat.st_size)
    return found
