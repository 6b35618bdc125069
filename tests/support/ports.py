"""Ports of loopback for tests, of those that the system gives to nobody by itself.

A port that the system chose (`bind` to 0) goes to the next that asks once it is closed: another worker's server, or a
connection of anybody. A test that closes its port and expects to be refused would then meet a stranger.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from functools import cache
from itertools import cycle
from random import SystemRandom
from typing import Final

_FIRST: Final = 10_100
"""Above 10,080, the last of the ports that `fetch` of Node refuses to call."""
_BLOCK: Final = 2_500
_BLOCKS: Final = 9
"""Together they end below 32,768, where the ports begin that Linux gives by itself. Windows and macOS begin higher."""


def free_port() -> int:
    """A port that nobody listens on, and that this process is given again only after 2,500 others."""
    for _ in range(_BLOCK):
        port = next(_ports_of(os.getpid()))
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise OSError(f"none of the {_BLOCK} ports of this process is free")


@cache
def _ports_of(pid: int) -> Iterator[int]:
    """All ports of a block, again and again: each worker has a block of its own, any other process one by its id.

    A process that is forked begins elsewhere than the one that it was forked from.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    begin = _FIRST + (int(worker) if worker else pid) % _BLOCKS * _BLOCK
    offset = SystemRandom().randrange(_BLOCK)
    return cycle([begin + (offset + step) % _BLOCK for step in range(_BLOCK)])
