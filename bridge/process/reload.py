"""Reloads a configuration file on request, and whenever the file or another file that it refers to has changed.

An invalid file is refused with all its faults, and the bridge goes on with its last configuration. The bridge waits
until the files have not changed for a moment, because a file may still be being written. After a limit it takes files
that go on changing as they are.

Revoked rights do not wait. Each valid reading of the files revokes rights at once. Granted rights wait until the files
have not changed for a moment and the plan is applied.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import anyio
from watchfiles import awatch

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import Changes, Plan
from bridge.config.toml_text import ShownValue
from bridge.errors import BridgeError, ConfigError, UsageError, leaf_of
from bridge.local.file_stamps import FileStamp, file_stamp

logger = logging.getLogger(__name__)

_LOOK_MS: Final = 5_000
"""How often files are checked without a notification: network disks send none."""

_UNKNOWN: Final = "the configuration could not be applied"
"""The message for a fault that the file did not cause."""

_SETTLE_SECONDS: Final = 0.2
"""How long files must be unchanged before they are applied: many editors empty a file before they write it."""

_SETTLE_MOST_SECONDS: Final = 2.0
"""How long a reload waits for files that go on changing."""

_READ_SECONDS: Final = 30.0
"""The limit for reading the files: a network disk that is gone never answers."""

_TOGETHER_MS: Final = 200
"""How long changes are collected before they are reported."""


@dataclass(frozen=True)
class ReadConfig:
    """A configuration as it was read."""

    plan: Plan
    files: frozenset[Path]
    """All files that the configuration was read from."""
    log_format: str
    log_level: str
    shown: Callable[[], Sequence[ShownValue]] = tuple
    """Returns each value with its source, without secrets."""


_COPIES: Final = "CREDENTIALS_DIRECTORY"
"""The variable in which systemd names the folder of a unit's credentials."""


def _copies_of_systemd(files: Iterable[Path]) -> Path | None:
    """The folder of the unit's credentials, if some of these files are in it."""
    folder = os.environ.get(_COPIES)
    is_read = folder is not None and any(file.is_relative_to(folder) for file in files)
    return Path(folder) if folder is not None and is_read else None


class Reload:
    """Watches the files of a plan, and applies their changes."""

    is_watched = True
    """Whether changes of the files are applied."""

    def __init__(
        self, read: Callable[[], ReadConfig], first: ReadConfig, set_up_log: Callable[[str, str], None]
    ) -> None:
        """`read` reads the files, and `first` is its result at the start of the bridge. `set_up_log` is called with
        the format and the level of the log."""
        self._read = read
        self._last = first
        self._set_up_log = set_up_log
        self._seen = _stamps(first.files)
        self.fault = ""
        """Why the files as they are now were refused; "" if they are served."""
        self.read_at: float | None = None
        """When the files were last read again, in seconds since the epoch."""
        self._asked = anyio.Event()
        self.on_end: Callable[[bool], None] = lambda _: None
        """Called after each reload, with whether the file is served as it is now."""

    @property
    def values(self) -> Sequence[ShownValue]:
        """The values that are served, each with its source."""
        return self._last.shown()

    def ask(self) -> None:
        """Request a reload, whether the files have changed or not."""
        if (copies := _copies_of_systemd(self._last.files)) is not None:
            logger.warning(
                "the secrets in %s are copies that systemd made at the start of the unit: a changed secret needs"
                " `systemctl restart`",
                copies,
            )
        self._asked.set()

    async def run(self, bridge: Bridge) -> None:
        """Apply each change to the bridge, until cancelled."""
        while True:
            async with anyio.create_task_group() as watching:
                watching.start_soon(self._watch)
                await self._asked.wait()
                watching.cancel_scope.cancel()
            self._asked = anyio.Event()
            await self._take_over(bridge)

    async def _watch(self) -> None:
        """Request a reload once a file has changed. Folders are watched, because editors replace files."""
        folders = {file.parent for file in self._seen if file.parent.is_dir()}
        stop = anyio.Event()
        changes = awatch(
            *folders,
            recursive=False,
            watch_filter=None,
            debounce=_TOGETHER_MS,
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
                    # A folder is gone. A new one is noticed without a notification.
                    await anyio.sleep(_LOOK_MS / 1000)
            group.cancel_scope.cancel()
        self._asked.set()

    async def _take_over(self, bridge: Bridge) -> None:
        try:
            read, is_at_rest = await self._settled(bridge)
            if not bridge.asks_for_credentials:  # a reload does not change that
                read.plan.require_safe()
            changes = await self._applied(bridge, read.plan, is_at_rest=is_at_rest)
        except Exception as exc:  # noqa: BLE001 - no fault in a file may stop the bridge
            fault = leaf_of(exc) if isinstance(exc, ExceptionGroup) else exc
            self.fault, self.read_at = str(fault) if isinstance(fault, BridgeError) else _UNKNOWN, time.time()
            self.on_end(False)
            _refuse(fault)
            return
        if changes is None:
            return
        changes = self._with_log(changes, read)
        if changes or self.fault:
            # Only a change that needs a restart needs a person.
            logger.log(logging.WARNING if changes.later else logging.INFO, "%s", changes)
        self._last, self.fault, self.read_at = read, "", time.time()
        self.on_end(True)

    async def _applied(self, bridge: Bridge, plan: Plan, *, is_at_rest: bool) -> Changes | None:
        """Apply a plan. Returns None if the files changed meanwhile: their new content must not wait. If the files
        change all the time, only a change that revokes rights ends the attempt, so that a plan is served in the end.

        Raises:
            ExceptionGroup: of a BridgeError, see `Bridge.apply`.
        """
        changes: Changes | None = None

        async def end_if_it_changes() -> None:
            await self._watch()
            while not is_at_rest:
                self._seen = _stamps(self._seen)
                newest = await self._reading()
                if isinstance(newest, ReadConfig) and bridge.revoke(newest.plan):
                    break
                await self._watch()
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(end_if_it_changes)
            changes = await bridge.apply(plan)
            group.cancel_scope.cancel()
        return changes

    async def _settled(self, bridge: Bridge) -> tuple[ReadConfig, bool]:
        """Wait until the files have not changed for a while, and read them. Returns the configuration, and whether the
        files are at rest. After `_SETTLE_MOST_SECONDS` it is the newest valid configuration.

        Each reading revokes the rights that it leaves out.

        Raises:
            UsageError: the configuration is invalid.
        """
        until, newest = anyio.current_time() + _SETTLE_MOST_SECONDS, None
        while True:
            self._seen = seen = _stamps(self._seen)
            outcome = await self._reading()
            if isinstance(outcome, ReadConfig):
                newest = outcome
                bridge.revoke(outcome.plan)
            files = outcome.files if isinstance(outcome, ReadConfig) else _files_of(outcome)
            await anyio.sleep(_SETTLE_SECONDS)
            is_at_rest = _stamps(seen) == seen and files <= seen.keys()
            if not is_at_rest and anyio.current_time() < until:
                self._seen = _stamps(files) | seen  # new files must settle as well
                continue
            if not is_at_rest and newest is not None:
                outcome = newest
            if isinstance(outcome, UsageError):
                raise outcome
            self._seen = {file: seen.get(file) for file in outcome.files}
            return outcome, is_at_rest

    async def _reading(self) -> ReadConfig | UsageError:
        """Read the files, off the loop. A read that does not end is left to its thread, until the process ends."""
        with anyio.move_on_after(_READ_SECONDS):
            return await anyio.to_thread.run_sync(self._outcome, abandon_on_cancel=True)
        return UsageError(f"the files of the configuration could not be read within {_READ_SECONDS:g} s")

    def _outcome(self) -> ReadConfig | UsageError:
        try:
            return self._read()
        except UsageError as exc:
            return exc

    def _with_log(self, changes: Changes, read: ReadConfig) -> Changes:
        """Set up the log as configured. Returns the changes with those of the log added."""
        keys = ("log_format", "log_level")
        changed = [f"bridge.{key}" for key in keys if getattr(read, key) != getattr(self._last, key)]
        if changed:
            self._set_up_log(read.log_format, read.log_level)
        return replace(changes, changed=(*changes.changed, *changed))


def _files_of(fault: UsageError) -> frozenset[Path]:
    """The files of a fault. The fault remains until one of them changes."""
    diagnostics = fault.diagnostics if isinstance(fault, ConfigError) else ()
    return frozenset(diagnostic.file.absolute() for diagnostic in diagnostics)


def _refuse(fault: BaseException) -> None:
    """Log that a file is refused, and why."""
    if isinstance(fault, BridgeError):
        for line in str(fault).splitlines():
            logger.error("%s", line)
    else:
        logger.error(_UNKNOWN, exc_info=fault)
    logger.error("The file is not applied: the bridge goes on with the earlier configuration")


async def _set_at_the_end(stop: anyio.Event) -> None:
    """Stop the watching thread on cancellation. The thread itself notices a cancellation only at its timeout."""
    try:
        await anyio.sleep_forever()
    finally:
        stop.set()


def _stamps(files: Iterable[Path]) -> dict[Path, FileStamp]:
    return {file: file_stamp(file) for file in files}
