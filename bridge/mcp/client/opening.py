"""How a connection to a tool server is opened: over which transport, and by which handshake.

A process may take longer to start (docker pull, the first npx or uvx, loading a model) than a connection may take. Then
the server counts as down, but the bridge goes on waiting for it.

The transport and the handshake that worked are remembered for the next time. A server is asked in the newest way first,
and in an older way if it answers like older servers:

* A URL that does not speak Streamable HTTP is tried over HTTP+SSE.
* A process that ends at a first message other than `initialize` (rmcp before 3.0) is started again with `initialize`.

Spec: MCP 2025-11-25 basic/transports (backwards compatibility), 2026-07-28 basic/versioning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any, Final, Protocol

import anyio

from bridge.errors import PeerError, leaf_of
from bridge.mcp.client.eras import Era
from bridge.mcp.client.faults import ServerDownError
from bridge.mcp.client.known_servers import Fact, ServerMemory
from bridge.mcp.client.server_connection import (
    Deadline,
    EndedAtGreetingError,
    NoStreamableHttpError,
    ServerConnection,
    SilentServerError,
    open_connection,
)
from bridge.mcp.client.stderr import LastWords
from bridge.mcp.client.transports.stdio import StdioTarget
from bridge.mcp.client.transports.streamable_http import HttpTarget, ServerTarget
from bridge.settings import ServerSettings

logger = logging.getLogger(__name__)

_HTTP_SSE: Final = "http-sse"
"""The value of `Fact.TRANSPORT` for a server that is reached over HTTP+SSE."""

_ERA_HINT: Final = 'a server that takes `initialize` alone as its first message needs era = "legacy"'


_TOLD_EACH_SECONDS: Final = 10.0
"""How often the user is told that a process is still starting."""


class _OpenConnection(Protocol):
    def __call__(
        self, era: Era, *, over_http_sse: bool = False, is_guess: bool = False
    ) -> AbstractAsyncContextManager[ServerConnection]: ...


class Opener:
    """Opens the connections of one session."""

    def __init__(
        self,
        target: ServerTarget,
        era: Era,
        memory: ServerMemory,
        settings: ServerSettings,
        on_question: Callable[[], None],
        *,
        shows_apps: bool = False,
    ) -> None:
        """`on_question` and `shows_apps` are as in `open_connection`."""
        self._target = target
        self._server = str(target)
        self._era = era
        self._memory = memory
        self._open_connection = partial(
            open_connection,
            attribution_seconds=settings.attribution_seconds,
            on_question=on_question,
            unanswered_most=settings.unanswered_most,
            shows_apps=shows_apps,
        )
        self._settings = settings
        self.last_words = LastWords()
        """The last lines on the stderr of the latest child."""
        self._was_silent = False
        """Whether the last process did not answer the probe for its era."""

    def next_era(self) -> Era:
        """The era for the next connection. The probe is skipped for a server that was legacy, for a server that can ask
        questions only in the legacy way, and once for a process that the probe may have silenced. A modern server
        answers the probe at once, so it is probed again."""
        if self._era is not Era.AUTO:
            return self._era
        was_legacy = self._memory.recall(Fact.ERA, self._server) == Era.LEGACY
        is_mute = self._memory.recall(Fact.MUTE, self._server) is not None
        return Era.LEGACY if was_legacy or is_mute or self._was_silent else Era.AUTO

    def deadline(self) -> Deadline:
        """The deadline of a connection that begins now."""
        settings = self._settings
        if isinstance(self._target, StdioTarget) and settings.start_seconds > settings.connect_seconds:
            return Deadline.after(settings.start_seconds, "start_seconds")
        return Deadline.after(settings.connect_seconds)

    async def tell_of_start(self, name: str, is_late: Callable[[str, str], None]) -> None:
        """Tell the user of a process that is starting. `is_late` is called with a message and its details once the
        process has taken longer than a connection may."""
        if not isinstance(self._target, StdioTarget):
            return
        settings, began = self._settings, anyio.current_time()
        due = settings.connect_seconds if settings.start_seconds > settings.connect_seconds else float("inf")
        while True:
            passed = anyio.current_time() - began
            await anyio.sleep(min(_TOLD_EACH_SECONDS, due - passed))
            passed = anyio.current_time() - began
            if passed >= due:
                due = float("inf")
                is_late(self._late_words(name), str(self.last_words))
            else:
                logger.info("%s is still starting, for %.0f s now", name, passed)

    def _late_words(self, name: str) -> str:
        settings = self._settings
        limit = f"within {settings.connect_seconds:g} s (`connect_seconds` is the limit)"
        waited = f"its process is waited for up to {settings.start_seconds:g} s (`start_seconds`)"
        return f'{name} was started, but is not up {limit}; where `fail` is "open", {waited}'

    async def open(self, stack: AsyncExitStack, name: str, era: Era, deadline: Deadline) -> ServerConnection:
        """Connect; the connection ends with `stack`.

        Raises:
            UsageError, PeerError: as `open_connection` does.
        """

        def open_one(
            era: Era, *, over_http_sse: bool = False, is_guess: bool = False
        ) -> AbstractAsyncContextManager[ServerConnection]:
            self.last_words = LastWords()
            more: dict[str, Any] = {
                "over_http_sse": over_http_sse,
                "is_guess": is_guess,
                "last_words": self.last_words,
            }
            return self._open_connection(name, self._target, era, deadline, **more)

        if isinstance(self._target, StdioTarget):
            return await self._open_process(stack, name, era, open_one)
        if not isinstance(self._target, HttpTarget):
            return await stack.enter_async_context(open_one(era))
        if self._target.transport == "sse":
            return await stack.enter_async_context(open_one(Era.LEGACY, over_http_sse=True))
        return await self._open_url(stack, name, era, open_one)

    async def _open_process(
        self, stack: AsyncExitStack, name: str, era: Era, open_one: _OpenConnection
    ) -> ServerConnection:
        self._was_silent = False
        try:
            return await stack.enter_async_context(open_one(era))
        except Exception as exc:
            fault = leaf_of(exc)
            self._was_silent = era is Era.AUTO and isinstance(fault, SilentServerError)
            if not isinstance(fault, EndedAtGreetingError) or era is Era.LEGACY:
                raise
            if era is Era.MODERN:
                raise PeerError(f"{fault}; {_ERA_HINT}", detail=fault.detail) from exc
        logger.info("%s ended when it was asked for its era; it is started again with `initialize`", name)
        try:
            return await stack.enter_async_context(open_one(Era.LEGACY))
        except Exception as exc:
            fault = leaf_of(exc)
            if not isinstance(fault, EndedAtGreetingError):
                raise
            words = f'{fault}, by either handshake (era = "auto")'
            raise PeerError(words, detail=fault.detail) from exc

    async def _open_url(
        self, stack: AsyncExitStack, name: str, era: Era, open_one: _OpenConnection
    ) -> ServerConnection:
        if self._memory.recall(Fact.TRANSPORT, self._server) == _HTTP_SSE:
            try:
                return await stack.enter_async_context(open_one(Era.LEGACY, over_http_sse=True))
            except Exception as exc:
                fault = leaf_of(exc)
                if isinstance(fault, ServerDownError):
                    raise
                logger.debug("%s is no longer reached over HTTP+SSE: %s", name, fault)
                self._memory.forget(Fact.TRANSPORT, self._server)
        try:
            return await stack.enter_async_context(open_one(era))
        except Exception as exc:
            fault = leaf_of(exc)
            if not isinstance(fault, NoStreamableHttpError):
                raise
        try:
            old = open_one(Era.LEGACY, over_http_sse=True, is_guess=not fault.is_certain)
            connection = await stack.enter_async_context(old)
        except Exception as exc:
            raise fault.also(leaf_of(exc)) from exc
        self._memory.remember(Fact.TRANSPORT, self._server, _HTTP_SSE)
        return connection
