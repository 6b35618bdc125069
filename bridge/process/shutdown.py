"""Signals that stop a process: the first one asks it to stop, and the second one to stop at once.

The event loop on Windows cannot handle signals. So on all systems the interpreter writes the number of each signal to a
socket, and the event loop reads the socket.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Final

import anyio
import anyio.abc

logger = logging.getLogger(__name__)

_SIGNALS: Final = ("SIGINT", "SIGBREAK", "SIGTERM", "SIGHUP")
"""On Windows, SIGBREAK is Ctrl+Break, or the end of a console or a session. Windows has no SIGHUP."""

_AT_ONCE: Final = 64
"""The most signals that are read together."""


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

    def handle_signal(self, number: int) -> None:
        """Handle a signal."""
        logger.info("received %s", signal.Signals(number).name)
        if self.on_hangup is not None and self.serving and number == getattr(signal, "SIGHUP", None):
            self.on_hangup()
        elif self.signal is None:
            self.signal = number
            self.ask()
        else:
            self.at_once.set()

    def ask(self) -> None:
        """Ask the process to stop, without a signal: the next signal counts as the first."""
        self.asked.set()
        if not self.serving:
            self.starting.cancel()


async def watch_signals(stopping: Shutdown, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    """Handle signals from now on, until cancelled. Only the main thread can do this."""
    loop = asyncio.get_running_loop()
    with _numbers_of_signals() as numbers:
        task_status.started()
        while True:
            for number in await loop.sock_recv(numbers, _AT_ONCE):
                stopping.handle_signal(number)


@contextmanager
def _numbers_of_signals() -> Iterator[socket.socket]:
    """A socket from which the number of each signal can be read, as a byte.

    A handler alone is not enough: the system may deliver a signal to any thread, and the main thread then goes on
    waiting.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        wakes = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        before = {number: signal.signal(number, _tell_the_socket) for number in heard_signals()}
        try:
            yield ours
        finally:
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)
            signal.set_wakeup_fd(wakes)


def _tell_the_socket(number: int, frame: object) -> None:
    """Do nothing: the interpreter has written the number to the socket, as it does for signals that have a handler."""


def heard_signals(system: ModuleType = signal) -> Iterator[signal.Signals]:
    """The signals to handle, of those that the system has.

    SIGHUP stays ignored under `nohup`, whose process is to outlive the terminal. SIGINT is handled even if it is
    ignored, because shells ignore it for commands that a script starts with `&`.
    """
    for name in _SIGNALS:
        number = getattr(system, name, None)
        if number is not None and not (name == "SIGHUP" and system.getsignal(number) is signal.SIG_IGN):
            yield number
