"""The process's use of the system and of Python: descriptors, memory, and garbage collection.

Systems start programs with a low limit of descriptors. A program may raise it up to a hard limit (systemd: 1024 and
524288). Python frees most objects as soon as nothing refers to them. Objects in reference cycles, such as those of an
exception or of replaced parts of a bridge, remain until the collector runs, and the collector takes time from calls."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress
from typing import Final

_LOOKED_AFTER: Final = (50_000, 6, 4)
"""The thresholds of `gc.set_threshold`: new objects before a collection of the youngest generation (a few megabytes),
and the number of such collections before the second and the third generation are collected too. Python's defaults are
700, 10, 10; with them, a quarter of the time of a call and a sixth of the time of a start went into the collector. With
higher second and third numbers, objects that survived one collection would be kept for millions of new objects, which
is hundreds of megabytes."""

_M_ARENA_MAX: Final = -8
"""A parameter of mallopt(3)."""
_HEAPS: Final = 2
"""At most two threads allocate memory at the same time: one that runs Python, and one that waits for SQLite."""


def collect_garbage_seldom() -> None:
    """Set the thresholds of the garbage collector."""
    gc.set_threshold(*_LOOKED_AFTER)


def keep_code() -> None:
    """Exclude the imported modules from garbage collection: they are most of an idle bridge's memory, and stay.

    Call this before the process makes objects that may be replaced.
    """
    gc.freeze()


def free_what_was_replaced() -> None:
    """Collect garbage after parts of a bridge were replaced: they refer to each other."""
    gc.collect()


def share_malloc_arenas() -> None:
    """Let all threads allocate from the same two heaps.

    By default glibc gives each thread a heap, up to eight for each core, and a heap does not shrink. The sum of their
    peaks would be several times the memory in use.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _HEAPS)


NO_LIMIT: Final = 1_000_000
"""The number for a system without a known limit: more descriptors than any process opens."""

_MACOS_MOST: Final = 10_240
"""OPEN_MAX of macOS. The system calls its hard limit infinite, and refuses more than this."""


def raise_descriptors() -> int:
    """Raise the limit of descriptors as far as the system allows. Returns the limit. Windows has none."""
    if sys.platform == "win32":
        return NO_LIMIT
    else:  # noqa: RET505 - otherwise mypy reports the rest as unreachable on Windows
        import resource  # which Windows does not have

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        for wanted in (hard, _MACOS_MOST):
            if soft == resource.RLIM_INFINITY or 0 <= wanted <= soft:
                break
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                soft = wanted
                break
        return NO_LIMIT if soft == resource.RLIM_INFINITY else min(soft, NO_LIMIT)
