"""What the process asks of the system and of Python: descriptors, memory, and when garbage is collected.

Systems start programs with a low limit of descriptors, which any program may raise up to a second one (systemd: 1024
and 524288). Most objects are freed as soon as nobody refers to them. What ended with an error, and parts of the bridge
that refer to each other, are garbage until Python looks for such, and that takes time from calls."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress
from typing import Final

_LOOKED_AFTER: Final = (50_000, 6, 4)
"""New objects before the youngest are looked through for cycles (a few megabytes), and how many such looks come
before those that survived one, or two, are looked through as well. Python's own: 700, 10, 10. By those, a quarter of
the time of a call and a sixth of the time of a start went into looking. With more looks between, what was alive at a
first look and then ended would be kept for millions of objects more: hundreds of megabytes."""

_M_ARENA_MAX: Final = -8
"""A parameter of mallopt(3)."""
_HEAPS: Final = 2
"""Two threads take memory at the same time at most: one that runs Python, and one that waits for SQLite."""


def collect_garbage_seldom() -> None:
    """Have it so from here on."""
    gc.set_threshold(*_LOOKED_AFTER)


def keep_code() -> None:
    """What was imported by now stays until the end: it is not looked through any more. It is most of what a bridge that
    has little to do holds. To be called before anything is made that may be replaced."""
    gc.freeze()


def free_what_was_replaced() -> None:
    """Much was replaced, and its parts know each other: look through all but the code."""
    gc.collect()


def share_malloc_arenas() -> None:
    """Have all threads take memory from the same heaps. By glibc's own rule each thread has one, up to eight for each
    core, and what a heap once held is not given back: the sum of their peaks would be several times what is used."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # of another C library
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _HEAPS)


NO_LIMIT: Final = 1_000_000
"""What is said where the system has no limit, or does not tell: more than anybody opens."""

if sys.platform == "win32":

    def raise_descriptors() -> int:
        """Allow as many descriptors as can be had; gives how many that is."""
        return NO_LIMIT
else:
    import resource

    _MACOS_MOST: Final = 10_240
    """OPEN_MAX of macOS, which refuses more though it calls its hard limit infinite."""

    def raise_descriptors() -> int:
        """Allow as many descriptors as can be had; gives how many that is."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        for wanted in (hard, _MACOS_MOST):
            if soft == resource.RLIM_INFINITY or 0 <= wanted <= soft:
                break
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                soft = wanted
                break
        return NO_LIMIT if soft == resource.RLIM_INFINITY else min(soft, NO_LIMIT)
