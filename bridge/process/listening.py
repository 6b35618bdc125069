"""Binds the socket of a server, so that a port has one owner on every system.

The system keeps a closed port for some minutes, in case late packets come. On POSIX, SO_REUSEADDR lets a server bind
the port at once, but never while another server listens on it. On Windows, SO_REUSEADDR lets two servers listen on one
port, and either may get a connection. There, SO_EXCLUSIVEADDRUSE keeps other servers out, and a server can bind a
closed port at once without any option.

Sources: socket(7) of Linux; learn.microsoft.com/windows/win32/winsock/using-so-reuseaddr-and-so-exclusiveaddruse.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

from bridge.errors import UsageError

_DEAD_PEER_MS: Final = 60_000
"""The time after which the kernel drops a connection whose peer takes no data."""

_ANOTHER_HELPS: Final = frozenset((errno.EADDRINUSE, errno.EACCES))
"""The errors for which another port helps. Windows answers EACCES for a port that another server owns alone, and for a
port that Windows reserves; POSIX answers EACCES for a port that only root may bind."""

_BY_OPTION: Final = "--port (make run: PORT=...)"


@asynccontextmanager
async def listening(
    host: str, port: int, *, what_for: str = "", choose_by: str = _BY_OPTION
) -> AsyncIterator[socket.socket]:
    """A listening socket for a server. It listens before anything else starts, so that a taken port is noticed early.
    The message of the error names `what_for`, which would listen there, and `choose_by`, which sets another port.

    Raises:
        UsageError: the socket cannot listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only if the protocol is named; otherwise each answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, sole_owner_option(vars(socket)), 1)
        if family == socket.AF_INET6:
            with suppress(OSError):  # on OpenBSD, IPv6 sockets never take IPv4 connections
                # `::` takes connections of IPv4 and IPv6, as it does by default on all systems but Windows.
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_PEER_MS)
        try:
            listener.bind((host, port))
            listener.listen()  # on Linux a port that is only bound can be bound again
        except (OSError, OverflowError) as exc:
            raise refusal_of(host, port, exc, what_for, choose_by) from exc
        listener.set_inheritable(False)
        yield listener
    finally:
        listener.close()


def sole_owner_option(names: Mapping[str, int]) -> int:
    """The socket option of this system that gives a port one owner, and lets a server bind a closed port at once."""
    return names.get("SO_EXCLUSIVEADDRUSE", names["SO_REUSEADDR"])


def refusal_of(
    host: str, port: int, exc: OSError | OverflowError, what_for: str = "", choose_by: str = _BY_OPTION
) -> UsageError:
    """Say why a socket cannot listen, and what helps."""
    reason = exc.strerror if isinstance(exc, OSError) else str(exc)
    another_helps = isinstance(exc, OSError) and exc.errno in _ANOTHER_HELPS
    hint = f"; choose another with {choose_by}" if another_helps else ""
    return UsageError(
        f"cannot listen{f' for {what_for}' if what_for else ''} on {host} port {port}: {reason}{hint}"
    )
