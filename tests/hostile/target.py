"""What is attacked: how a case is made, and what has to hold for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import anyio

CASE_SECONDS: Final = 20.0
"""How long one case may take: whatever hangs is a find."""

_LOGGERS: Final = ("bridge", "asyncio", "uvicorn.error", "anyio")
"""(The MCP SDK logs with a traceback whatever it cannot read.)"""

Check = Callable[[Any], Awaitable[None]]
"""Takes a case; raises when what has to hold does not."""


@dataclass(frozen=True)
class Target:
    """One parser, at the entry that is closest to the wire."""

    name: str
    case: Callable[[Random], Any]
    """Makes a case: a plain value, the same for the same chance."""
    scene: Callable[[], AbstractAsyncContextManager[Check]]
    """What has to run meanwhile, entered once for many cases."""
    share: int = 1
    """How many of all cases are its, beside the shares of the others."""
    examples: int = 100
    """Cases of the tests in `make fuzz`; the suite takes the share of its profile of Hypothesis."""


class FindError(AssertionError):
    """Something that must not be, whatever the input."""


class Watch(logging.Handler):
    """Hears what is logged as a fault of ours, and what the loop complains of, while it is entered."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what was said; the traceback says where."""
        words = self.format(record)
        self.heard.append(words)

    def complain(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What a loop's exception handler is told."""
        self.heard.append(f"{context.get('message')}: {context.get('exception')!r}")

    def require_silence(self) -> None:
        """Nothing was logged as a fault since the last time."""
        heard, self.heard = self.heard, []
        if heard:
            raise FindError("\n".join(heard)[:6000])

    def add_to(self, exc: Exception) -> None:
        """What was logged says more than what came of it."""
        for words in self.heard:
            exc.add_note(words[-3000:])
        self.heard = []

    def __enter__(self) -> Watch:
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self)


@asynccontextmanager
async def watched(target: Target) -> AsyncIterator[Check]:
    """A target's scene, where also a fault that is only logged, a task that is left, or a hang is a find."""
    with Watch() as watch:
        asyncio.get_running_loop().set_exception_handler(watch.complain)
        async with target.scene() as check:

            async def checked(case: Any) -> None:
                try:
                    with anyio.fail_after(CASE_SECONDS):
                        await check(case)
                except TimeoutError as exc:
                    raise FindError(f"no end within {CASE_SECONDS:g} s") from exc
                except Exception as exc:
                    watch.add_to(exc)
                    raise
                watch.require_silence()

            yield checked
        watch.require_silence()


class Tasks:
    """The tasks that run; more of them after a case than before it are a find."""

    def __init__(self) -> None:
        self._before = asyncio.all_tasks()

    async def require_none_left(self) -> None:
        """Wait until every task that was begun since then has ended."""
        with anyio.move_on_after(5) as patience:
            while left := asyncio.all_tasks() - self._before:
                await anyio.sleep(0.002)
        if patience.cancelled_caught:
            raise FindError(f"left running: {left}")


@asynccontextmanager
async def alone(check: Check) -> AsyncIterator[Check]:
    """The scene of what needs none."""
    yield check
