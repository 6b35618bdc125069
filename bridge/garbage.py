"""When Python looks for objects that keep each other alive: seldom, as each look takes time from calls.

Most objects are freed without a look, as soon as nobody refers to them. What ended with an error, and parts of the
bridge that know each other, are not.
"""

from __future__ import annotations

import gc
from typing import Final

_LOOKED_AFTER: Final = (50_000, 6, 4)
"""New objects before the youngest are looked through for cycles (a few megabytes), and how many such looks come
before those that survived one, or two, are looked through as well. Python's own: 700, 10, 10. By those, a quarter of
the time of a call and a sixth of the time of a start went into looking. With more looks between, what was alive at a
first look and then ended would be kept for millions of objects more: hundreds of megabytes."""


def look_seldom() -> None:
    """Have it so from here on."""
    gc.set_threshold(*_LOOKED_AFTER)


def keep_what_is_there() -> None:
    """What is there by now stays: it is not looked through any more."""
    gc.freeze()


def free_what_was_replaced() -> None:
    """Much was replaced: look through everything once, so that the old is freed, and keep what is there by now."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
