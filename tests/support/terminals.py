"""Terminals for tests, where the system has those of POSIX."""

from __future__ import annotations

import struct

import pytest


def open_terminal(columns: int | None = None) -> tuple[int, int]:
    """The descriptors of both ends, ours first; skips the calling test where there are no such terminals."""
    pty = pytest.importorskip("pty", reason="the terminals of Windows are others")
    ours, theirs = pty.openpty()
    if columns is not None:
        fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return ours, theirs
