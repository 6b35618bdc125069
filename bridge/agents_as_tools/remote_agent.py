"""One remote agent: its card, kept fresh, and a client for it; or why it cannot be called."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
import anyio.abc
import httpx2

from bridge.a2a.card import FoundCard
from bridge.a2a.cards import CardSource
from bridge.a2a.client import AgentClient, ClientOptions
from bridge.a2a.models import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from bridge.errors import PeerError
from bridge.seal import agent_mark
from bridge.translate.extension import URI
from bridge.translate.names import slug

logger = logging.getLogger(__name__)


class RemoteAgent:
    """An agent behind a URL. It may be down; then its tools say so."""

    def __init__(
        self, url: str, source: CardSource, http: httpx2.AsyncClient, options: ClientOptions
    ) -> None:
        self.url = url
        self._card: AgentCard | None = None
        self.key = self.wanted_key
        """What it is called in names and messages; told apart from others by who has them all."""
        self.mark = agent_mark(url)
        self.down: str | None = "its card has not been read yet"
        """Why it cannot be called, in words; None while it can."""
        self._source = source
        self._http = http
        self._options = options
        self._client: AgentClient | None = None

    @property
    def wanted_key(self) -> str:
        """Its name as far as its card is known, else its host's."""
        host = httpx2.URL(self.url).host
        return slug(self._card.name if self._card else host if host[:1].isalpha() else f"agent {host}")

    @property
    def card(self) -> AgentCard:
        """Its card; without one, the least that can be said of it, so that there is a tool that says what is wrong."""
        return self._card or AgentCard(
            name=self.key,
            description=f"The agent at {self.url}, whose card could not be read yet",
            supported_interfaces=(
                AgentInterface(url=self.url, protocol_binding="JSONRPC", protocol_version="1.0"),
            ),
            version="0",
            capabilities=AgentCapabilities(),
            default_input_modes=("text/plain",),
            default_output_modes=("text/plain",),
            skills=(
                AgentSkill(id="message", name="Message", description="Send it a message", tags=(self.key,)),
            ),
        )

    @property
    def client(self) -> AgentClient:
        """A client for it.

        Raises:
            PeerError: it cannot be called; why, in words.
        """
        if self._client is None:
            raise PeerError(f"The agent {self.key} at {self.url} cannot be called: {self.down}")
        return self._client

    @property
    def extension_active(self) -> bool:
        """Whether it is one of ours, whose results say what the tool's were."""
        return self._client is not None and URI in self._client.extensions

    def use_what_is_remembered(self) -> None:
        """Take its card as it was last seen, so that a start need not wait for it."""
        found = self._source.cached()
        if found is not None:
            self._take(found)

    async def refresh(self) -> None:
        """Read its card now.

        Raises:
            PeerError: it cannot be reached, or its card cannot be used.
        """
        try:
            self._take(await self._source.refresh())
        except PeerError as exc:
            if self._client is None:
                self.down = str(exc)
            raise

    async def watch(self, on_change: Callable[[], None]) -> None:
        """Read its card again whenever it is due; `on_change` is called when it is another one."""

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
        self._card = found.card
        try:
            self._client = AgentClient(self._http, found, self._options)
        except PeerError as exc:
            self._client, self.down = None, str(exc)
            raise
        self.down = None


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
