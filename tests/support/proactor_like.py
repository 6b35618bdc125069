"""An event loop that refuses what the one of Windows refuses, on any system.

Windows' loop (Proactor) cannot wait for descriptors and has no receivers of signals. anyio then waits for sockets in a
thread, as select does there, and for nothing else. Children are waited for without pidfd, as on macOS.

A process has such loops once `install` was called. Programs of the fork server call it when the variable `VARIABLE` is
set.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

VARIABLE: Final = "MCP_A2A_TESTS_LIKE_WINDOWS"

_NOT_A_SOCKET: Final = 10038
"""WSAENOTSOCK, the error of select."""


class ProactorLikeLoop(asyncio.SelectorEventLoop):
    """Refuses what `asyncio.ProactorEventLoop` does not implement.

    The loop's own transports go on, as they do there; they need the pairs of what is refused (`remove_reader`).
    """

    def __init__(self) -> None:
        super().__init__()
        if sys.version_info >= (3, 14):
            self._watcher = asyncio.unix_events._ThreadedChildWatcher()

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> NoReturn:
        """Refuse to wait for a descriptor."""
        _refuse(fd)

    def add_writer(self, fd: Any, callback: Any, *args: Any) -> NoReturn:
        """Refuse to wait for a descriptor."""
        _refuse(fd)

    def add_signal_handler(self, sig: Any, callback: Any, *args: Any) -> NoReturn:
        """Refuse to receive a signal."""
        raise NotImplementedError


def _refuse(fd: Any) -> NoReturn:
    descriptor = fd if isinstance(fd, int) else fd.fileno()
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        raise OSError(_NOT_A_SOCKET, "no socket: nothing else can be waited for")
    raise NotImplementedError


@contextmanager
def _policies_allowed() -> Iterator[None]:
    """Policies are deprecated from Python 3.14 on, and the only way to the loops that others make."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def install() -> None:
    """Make every event loop that this process makes from here on such a loop."""
    with _policies_allowed():
        policy: Any = asyncio.DefaultEventLoopPolicy()
        policy._loop_factory = ProactorLikeLoop
        if sys.version_info < (3, 14):  # where the policy waits for children, and not the loop
            policy._watcher = asyncio.ThreadedChildWatcher()
        asyncio.set_event_loop_policy(policy)


@contextmanager
def installed() -> Iterator[None]:
    """Make every event loop such a loop, here and in programs that the fork server starts meanwhile."""
    with _policies_allowed():
        before = asyncio.get_event_loop_policy()
    install()
    os.environ[VARIABLE] = "1"
    try:
        yield
    finally:
        with _policies_allowed():
            asyncio.set_event_loop_policy(before)
        del os.environ[VARIABLE]
