"""How many files and sockets this process may have open.

Systems start programs with a low limit, which any program may raise up to a second one (systemd: 1024 and 524288).
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Final

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
