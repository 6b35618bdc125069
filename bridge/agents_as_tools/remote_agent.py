"""One remote agent: its card, kept fresh, and a client for it; or why it cannot be called."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, NoReturn, Protocol

import anyio
import anyio.abc
import httpx2

from bridge.a2a.client.card import FoundCard
from bridge.a2a.client.client import AgentClient, ClientOptions
from bridge.a2a.client.http import redacted_url
from bridge.a2a.model.objects import AgentCard
from bridge.errors import PeerError
from bridge.http.private_addresses import AddressGuard
from bridge.seal import agent_mark
from bridge.source_state import SourceState
from bridge.translate.extension import URI
from bridge.translate.tool_names import slug

logger = logging.getLogger(__name__)

_NOT_READ: Final = "its card has not been read yet"


class CardProvider(Protocol):
    """Where an agent's card comes from; see `CardSource`."""

    def cached(self) -> FoundCard | None:
        """As it was last seen; None when it never was."""
        ...

    async def refresh(self) -> FoundCard:
        """As it is now.

        Raises:
            PeerError: it cannot be had.
        """
        ...

    async def watch(self, on_change: Callable[[FoundCard], Awaitable[None]]) -> NoReturn:
        """Tell of each one that says something new, for ever."""
        ...


class RemoteAgent:
    """An agent behind a URL. It may be down; then its tools, as far as they are known, say so. One face has it."""

    def __init__(
        self,
        url: str,
        source: CardProvider,
        http: httpx2.AsyncClient,
        options: ClientOptions,
        *,
        key: str | None = None,
        account: str = "",
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`key` is what it is called, whatever its card says. `account` tells it from others at its URL.

        The account stands in for the credentials: the far side has tasks of its own for each, and a handle has to
        come back to whom it began with. So it is what names them (their references), which outlives their
        rotation, and never what they are.
        """
        self.url = url
        self._own_key = key
        self._card: AgentCard | None = None
        self.deviations: tuple[str, ...] = ()
        """What in its card is not as the specification asks."""
        self.key = self.wanted_key
        """What it is called in names and messages; told apart from others by who has them all."""
        self.mark = agent_mark(f"{url}\0{account}" if account else url)
        """What stands for it in handles."""
        self._now_ms = now_ms
        self._state = SourceState("", _NOT_READ, now_ms())
        self._source = source
        self._http = http
        self._options = options
        self._client: AgentClient | None = None

    @property
    def wanted_key(self) -> str:
        """The key that it was given, or its name as far as its card is known, else its host's."""
        if self._own_key is not None:
            return self._own_key
        host = httpx2.URL(self.url).host
        return slug(self._card.name if self._card else host if host[:1].isalpha() else f"agent {host}")

    @property
    def has_own_key(self) -> bool:
        """Whether it is called what it is whatever its card says."""
        return self._own_key is not None

    @property
    def has_card(self) -> bool:
        """Whether its card has been read, by this run or an earlier one."""
        return self._card is not None

    @property
    def is_heard_of(self) -> bool:
        """Whether something has become of reading its card: it was read, or that failed."""
        return self.down != _NOT_READ

    @property
    def guard(self) -> AddressGuard | None:
        """What judges connections to its own URL."""
        return self._options.reach.guard(self.url) if self._options.reach else None

    @property
    def down(self) -> str | None:
        """Why it cannot be called, in words; None while it can."""
        return self._state.down

    @property
    def state(self) -> SourceState:
        """How it is, and since when."""
        return replace(self._state, key=self.key)

    @property
    def card(self) -> AgentCard:
        """Its card, which it has once `has_card`."""
        assert self._card is not None, "it has been read"
        return self._card

    @property
    def client(self) -> AgentClient:
        """A client for it.

        Raises:
            PeerError: it cannot be called; why, in words.
        """
        if self._client is None:
            raise PeerError(f"The agent {self.key} at {redacted_url(self.url)} cannot be called: {self.down}")
        return self._client

    @property
    def extension_active(self) -> bool:
        """Whether it is one of ours, whose results say what the tool's were."""
        return self._client is not None and URI in self._client.extensions

    def use_what_is_remembered(self) -> None:
        """Take its card as it was last seen, so that a start need not wait for it."""
        if (found := self._source.cached()) is None:
            return
        try:
            self._take(found)
        except PeerError as exc:
            logger.warning("%s: %s", self.key, exc)

    async def refresh(self) -> None:
        """Read its card now.

        Raises:
            PeerError: it cannot be reached, or its card cannot be used.
        """
        try:
            self._take(await self._source.refresh())
        except PeerError as exc:
            if self._client is None:
                self._be(str(exc))
            raise

    async def watch(self, on_change: Callable[[], None]) -> None:
        """Read its card, now if that was never tried, and whenever it is due; `on_change` when it is another one."""
        if not self.is_heard_of:
            try:
                await self.refresh()
            except PeerError as exc:
                logger.warning("%s: %s", self.key, exc)
            else:
                on_change()

        async def changed(found: FoundCard) -> None:
            before = self._card
            try:
                self._take(found)
            except PeerError as exc:
                logger.warning("%s: its new card cannot be used: %s", self.key, exc)
            if self._card != before:
                on_change()

        await self._source.watch(changed)

    def _take(self, found: FoundCard) -> None:
        """Use a card.

        Raises:
            PeerError: its agent cannot be called as the card says.
        """
        self._card, self.deviations = found.card, found.deviations
        try:
            self._client = AgentClient(self._http, found, self._options)
        except PeerError as exc:
            self._client = None
            self._be(str(exc))
            raise
        self._be(None)

    def _be(self, down: str | None) -> None:
        """Be up or down from now on."""
        self._state = self._state.then(down, self._now_ms())


async def read_cards(agents: list[RemoteAgent], within_seconds: float) -> None:
    """Read the cards of all agents side by side, as far as they answer in time."""

    async def read(agent: RemoteAgent) -> None:
        try:
            await agent.refresh()
        except PeerError as exc:
            logger.warning("%s: %s", agent.key, exc)

    with anyio.move_on_after(within_seconds):
        async with anyio.create_task_group() as tasks:
            for agent in agents:
                tasks.start_soon(read, agent)
