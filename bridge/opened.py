"""The context of an open bridge. One task may enter the context and another task leave it.

The bridge consists of task groups, and only the task that entered a task group can leave it. But fixtures of
pytest-asyncio set up in one task and tear down in another, and an application may open and close its resources in
different tasks. So a separate task holds all scopes, and the context only starts and ends that task. Errors come out as
a single plain exception, never as a group.
"""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType

import anyio
from starlette.types import ASGIApp

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import Plan
from bridge.errors import BridgeError, UsageError, leaves_of

logger = logging.getLogger(__name__)


class Opened:
    """The context of an open bridge. Enter it only once. See `bridge.open`."""

    def __init__(self, plan: Plan, own_url: str | None) -> None:
        self._plan = plan
        self._own_url = own_url
        self._task: asyncio.Task[None] | None = None
        self._app: ASGIApp | None = None
        self._fault: BaseException | None = None

    async def __aenter__(self) -> ASGIApp:
        if self._task is not None:
            raise UsageError("this bridge was opened before: call `bridge.open` again")
        self._started, self._left = _event(), _event()
        # No task group can own this task: a group would bind the context to the task that entered it.
        self._task = asyncio.get_running_loop().create_task(self._hold(), name="mcp-a2a bridge")
        try:
            await self._started.wait()
        except BaseException:
            self._task.cancel()
            await self._end(self._task)
            raise
        if self._app is None:
            await self._end(self._task)
            self._raise_fault()
        assert self._app is not None
        return self._app

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        assert self._task is not None, "the context has been entered"
        await self._end(self._task)
        if error is None:
            self._raise_fault()

    async def _hold(self) -> None:
        """Run the bridge until the context is left. The context raises an error of the bridge when it is left."""
        bridge = Bridge(self._plan, own_url=self._own_url)
        try:
            async with bridge.run():
                await bridge.apply(self._plan)
                self._app = bridge.app
                self._started.set()
                await self._left.wait()
        except Exception as exc:  # raised by the context
            self._fault = _plain(exc)
            if self._app is not None:
                logger.exception("the bridge ended before its context was left")
        finally:
            self._started.set()

    async def _end(self, task: asyncio.Task[None]) -> None:
        """Let the bridge end, and wait for it. The bridge's own deadlines bound the wait; a second cancellation ends it
        at once."""
        self._left.set()
        with anyio.CancelScope(shield=True):
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                task.cancel()
                await asyncio.wait({task})
                raise

    def _raise_fault(self) -> None:
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault


def _event() -> asyncio.Event:
    try:
        asyncio.get_running_loop()
    except RuntimeError as exc:
        raise UsageError("a bridge runs on asyncio: open it there, and not on another event loop") from exc
    return asyncio.Event()


def _plain(exc: Exception) -> BaseException:
    """The error that best explains a failure, with its details and the other errors as notes."""
    leaves = leaves_of(exc)
    first, *others = sorted(leaves, key=lambda leaf: not isinstance(leaf, BridgeError))
    if isinstance(first, BridgeError) and first.detail:
        first.add_note(first.detail.removeprefix("; "))
    for other in dict.fromkeys(str(leaf) for leaf in others if isinstance(leaf, BridgeError)):
        if other != str(first):
            first.add_note(f"And: {other}")
    return first
