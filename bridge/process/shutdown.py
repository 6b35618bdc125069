"""How a process is told to stop: by a first signal, and by a second that it has to be at once."""

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
    """How far stopping has come."""

    asked: anyio.Event = field(default_factory=anyio.Event)
    at_once: anyio.Event = field(default_factory=anyio.Event)
    signal: int | None = None
    """The first signal that came."""
    starting: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """What a signal ends at once while nothing is served yet."""
    serving: bool = False
    on_hangup: Callable[[], None] | None = None
    """Who takes SIGHUP, if that is not the end."""

    @property
    def exit_code(self) -> int:
        """What the process ends with."""
        return 130 if self.signal == signal.SIGINT else 0

    def hear(self, number: int) -> None:
        """Take a signal."""
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
    """Take every signal, from now on."""
    with anyio.open_signal_receiver(*_heard()) as signals:
        task_status.started()
        async for number in signals:
            stopping.hear(number)


def _heard() -> Iterator[signal.Signals]:
    """The signals to listen for: SIGHUP not where `nohup` has it ignored, which is to outlive the terminal.

    SIGINT is heard also where it is ignored: shells do that to whatever a script starts with `&`.
    """
    for number in _SIGNALS:
        if number.name != "SIGHUP" or signal.getsignal(number) is not signal.SIG_IGN:
            yield number
