"""Runs many cases of a target, by the numbers of a seed, and says which one did not hold."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass
from random import Random

import anyio

from bridge.errors import leaf_of
from tests.hostile.target import Target, watched


@dataclass(frozen=True)
class Outcome:
    """What became of a run."""

    target: str
    cases: int
    seconds: float
    finds: tuple[str, ...] = ()


def chance_of(seed: int, target: str, number: int) -> Random:
    """What one case of a run is made from."""
    return Random(f"{seed}:{target}:{number}")


def _words_of(exc: BaseException) -> str:
    """What went wrong first, and where in the bridge and here."""
    exc = leaf_of(exc)
    frames = traceback.extract_tb(exc.__traceback__)
    ours = [frame for frame in frames if "/bridge/" in frame.filename or "/hostile/" in frame.filename]
    shown = [*ours[-7:], *frames[-2:]]
    lines = [f"  {frame.filename}:{frame.lineno} {frame.name}: {frame.line}" for frame in shown]
    return "\n".join([*lines, f"{type(exc).__name__}: {str(exc)[-3000:]}", *getattr(exc, "__notes__", ())])


def run(
    target: Target, seed: int, cases: range, until: float, *, most_finds: int = 5, verbose: bool = False
) -> Outcome:
    """Run cases until they are all done, or time is up, or there were enough finds."""
    began, done, finds = time.monotonic(), 0, []
    left = iter(cases)

    async def some() -> bool:
        """Run cases in one scene; whether that was all. A find may have broken the scene: it is made anew."""
        nonlocal done
        number = -1
        try:
            async with watched(target) as check:
                for number in left:
                    if time.monotonic() > until or len(finds) >= most_finds:
                        return True
                    done += 1
                    await check(target.case(chance_of(seed, target.name, number)))
        except Exception as exc:  # noqa: BLE001 - whatever it is, it is a find
            finds.append(f"{target.name}, seed {seed}, case {number}:\n{_words_of(exc)}")
            if verbose:
                print(repr(target.case(chance_of(seed, target.name, number)))[:3000])
            return False
        return True

    while not anyio.run(some):
        pass
    return Outcome(target.name, done, time.monotonic() - began, tuple(finds))
