"""One target with cases that are guided by what they reach. Atheris is no dependency: it is used where it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from random import Random
from types import FunctionType
from typing import Any

import atheris
from anyio.from_thread import start_blocking_portal

from tests.hostile.target import Target, watched


class _Bytes(Random):
    """Chance that is read out of a fuzzer's bytes, and is nought at their end."""

    def __init__(self, said: bytes) -> None:
        self._left = said
        super().__init__(0)

    def random(self) -> float:
        """The next two bytes, as a number below one."""
        return self.getrandbits(16) / (1 << 16)

    def getrandbits(self, k: int) -> int:
        """The next bits."""
        count = -(-k // 8)
        taken, self._left = self._left[:count], self._left[count:]
        return int.from_bytes(taken.ljust(count, b"\0"), "little") & ((1 << k) - 1)

    def _randbelow(self, n: int) -> int:
        # Bytes run out: to draw again until a number is small enough could take for ever.
        return self.getrandbits(n.bit_length() + 8) % n


def _functions_of_the_bridge() -> Iterator[FunctionType]:
    """Those of its modules and of their classes, as far as they are imported."""
    modules = [module for name, module in sys.modules.items() if name.startswith("bridge.")]
    things = [thing for module in modules for thing in vars(module).values()]
    methods = [method for thing in things if isinstance(thing, type) for method in vars(thing).values()]
    for found in (*things, *methods):
        if isinstance(found, FunctionType) and found.__module__.startswith("bridge."):
            yield found


def run_guided(target: Target, seconds: float) -> None:
    """Run until a find, or time is up; libFuzzer says how much it has run, and ends the process."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(watched(target)) as check:

        def one(said: bytes) -> Any:
            portal.call(check, target.case(_Bytes(said)))

        for function in _functions_of_the_bridge():
            atheris.instrument_func(function)
        atheris.Setup([sys.argv[0], f"-max_total_time={seconds:g}", "-max_len=4096"], one)
        atheris.Fuzz()
