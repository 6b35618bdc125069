"""Signals that stop a process: the first one asks it to stop, and the second one to stop at once."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.abc

logger = logging.getLogger(__name__)

_SIGNALS: Final[tuple[signal.Signals, ...]] = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


@dataclass
class Shutdown:
    """The state of stopping a process."""

    asked: anyio.Event = field(default_factory=anyio.Event)
    at_once: anyio.Event = field(default_factory=anyio.Event)
    signal: int | None = None
    """The first signal that came."""
    starting: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """The scope of the start. A signal cancels it while nothing is served yet."""
    serving: bool = False
    on_hangup: Callable[[], None] | None = None
    """Called for SIGHUP; None if SIGHUP stops the process."""

    @property
    def exit_code(self) -> int:
        """The exit code of the process."""
        return 130 if self.signal == signal.SIGINT else 0

    def hear(self, number: int) -> None:
        """Handle a signal."""
        logger.info("received %s", signal.Signals(number).name)
        if self.on_hangup is not None and self.serving and number == getattr(signal, "SIGHUP", None):
            self.on_hangup()
        elif self.signal is None:
            self.signal = number
            self.asked.set()
            if not self.serving:
                self.starting.cancel()
        else:
            self.at_once.set()


async def watch_signals(stopping: Shutdown, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    """Handle signals from now on, until cancelled."""
    with anyio.open_signal_receiver(*_heard()) as signals:
        task_status.started()
        async for number in signals:
            stopping.hear(number)


def _heard() -> Iterator[signal.Signals]:
    """The signals to handle. SIGHUP stays ignored under `nohup`, whose process is to outlive the terminal.

    SIGINT is handled even if it is ignored, because shells ignore it for commands that a script starts with `&`.
    """
    for number in _SIGNALS:
        if number.name != "SIGHUP" or signal.getsignal(number) is not signal.SIG_IGN:
            yield number
