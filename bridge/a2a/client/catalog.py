"""A client of a catalog of agents: reads its pages, and selects the agents that are wanted and may be reached.

The format is that of the server's `catalog.py`, or one of those in `discovery.py`. A catalog is untrusted, like a card.
So only names and URLs are taken from it, and each card is read from its agent.

Spec: A2A 1.0 section 8.2; its guide on discovery, "Curated Registries". RFC 9111 as in `http_cache.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from http import HTTPStatus
from pathlib import Path
from typing import Final

import httpx2
from pydantic import BaseModel, ConfigDict, JsonValue

from bridge.a2a.client import discovery
from bridge.a2a.client.card_places import read_url
from bridge.a2a.client.http import json_from, origin_of, redacted_url, url_from, url_within
from bridge.a2a.client.http_cache import (
    CachedResource,
    CachedValue,
    FreshnessBounds,
    StoredResponse,
    fresh_seconds,
    may_be_stored,
    validators_of,
)
from bridge.a2a.client.interfaces import ConnectionPolicy, Trust
from bridge.errors import PeerError, counted, echoed
from bridge.http.client import NO_CREDENTIALS, CredentialsSource
from bridge.http.private_addresses import AddressGuard, is_private_host

logger = logging.getLogger(__name__)

PAGE_SIZE: Final = 100
"""Agents in one page: the most that the bridge's own catalog serves."""
MOST_PAGES: Final = 50
MOST_AGENTS: Final = 1000
"""The most agents in one catalog. The card of each wanted agent is read and watched."""
_NAME_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """An agent of a catalog."""

    name: str
    """The agent's name, which is unique in its catalog."""
    card_url: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The wanted agents, by globs of their names."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def takes(self, name: str) -> bool:
        """Whether an agent of this name is included and not excluded."""
        return any(fnmatchcase(name, glob) for glob in self.include) and not any(
            fnmatchcase(name, glob) for glob in self.exclude
        )


class _ListedAgent(BaseModel):
    """An agent as a page lists it."""

    model_config = ConfigDict(frozen=True)

    name: str
    card_url: str


class _CachedPage(BaseModel):
    """A page in the cache."""

    model_config = ConfigDict(frozen=True)

    place: str
    """The URL of the page."""
    validators: dict[str, str]
    """The conditional headers for the next request."""
    agents: tuple[_ListedAgent, ...]
    next_token: str


class _StoredCatalog(StoredResponse):
    """A catalog in the cache: all agents that it lists, wanted or not."""

    pages: tuple[_CachedPage, ...]


_CachedCatalog = CachedValue[_StoredCatalog, tuple[CatalogEntry, ...]]


class CatalogSource(CachedResource[_StoredCatalog, tuple[CatalogEntry, ...]]):
    """One catalog, cached and refreshed."""

    word = "catalog"
    kept_under = "catalog "
    kept_type = _StoredCatalog

    def __init__(
        self,
        http: httpx2.AsyncClient,
        url: str,
        folder: Path | None,
        bounds: FreshnessBounds,
        credentials: CredentialsSource = NO_CREDENTIALS,
        *,
        selection: Selection | None = None,
        trust: Trust | None = None,
        uses_proxy: bool = True,
    ) -> None:
        """`selection` selects the wanted agents, and `trust` says which private addresses the catalog may name.
        `uses_proxy` is as in `ConnectionPolicy`."""
        super().__init__(http, url, folder, bounds, credentials)
        self._selection = selection or Selection()
        self._trust = trust or Trust()
        self.reach = ConnectionPolicy(url, self._trust, uses_proxy=uses_proxy)
        """The policy for connections to the listed agents."""

    def is_own(self, card_url: str) -> bool:
        """Whether an agent is at the catalog's own origin. Only such an agent may get the catalog's credentials."""
        return origin_of(card_url) == origin_of(self.url)

    def guard(self, card_url: str) -> AddressGuard | None:
        """The guard for connections to a card that the catalog names; None if any address is allowed."""
        return self.reach.guard(card_url, self._private_words(card_url))

    # Reading

    async def _fetch(self, held: _CachedCatalog | None) -> _CachedCatalog:
        stored = await self._read_pages(held.kept.pages if held else ())
        # An unchanged catalog is not read again, so its skipped agents are logged only once.
        is_same = held is not None and _listed(stored) == _listed(held.kept)
        return CachedValue(stored, held.value if held and is_same else self._read(stored))

    async def _read_pages(self, before: Sequence[_CachedPage]) -> _StoredCatalog:
        known = {page.place: page for page in before}
        pages: dict[str, _CachedPage] = {}
        fresh, storable, token = self._bounds.max_seconds, True, ""
        while True:
            page_url = self._page_url(token)
            if page_url in pages or len(pages) >= MOST_PAGES:
                raise PeerError(
                    f"the catalog at {redacted_url(self.url)} does not end within {len(pages)} pages"
                )
            response, page = await self._read_page(page_url, known.get(page_url))
            pages[page_url] = page
            fresh = min(fresh, fresh_seconds(response.headers, self._bounds))
            storable = storable and may_be_stored(response.headers)
            if sum(len(page.agents) for page in pages.values()) > MOST_AGENTS:
                raise PeerError(
                    f"the catalog at {redacted_url(self.url)} lists more than {MOST_AGENTS} agents"
                )
            if not (token := page.next_token):
                until = time.time() + fresh
                return _StoredCatalog(pages=tuple(pages.values()), fresh_until=until, may_be_stored=storable)

    def _page_url(self, token: str) -> str:
        url = url_from(self.url)
        if discovery.is_document(url.path) and not token:
            return str(url)
        query = {"pageSize": str(PAGE_SIZE), **({"pageToken": token} if token else {})}
        return str(url.copy_merge_params(query))

    async def _read_page(self, url: str, known: _CachedPage | None) -> tuple[httpx2.Response, _CachedPage]:
        guard = self.reach.guard(self.url)
        validators = known.validators if known else {}
        answer = await read_url(self._http, url, self._credentials, guard, validators)
        if answer is None:
            raise PeerError(f"there is no catalog of agents at {redacted_url(self.url)}")
        response, text = answer
        if response.status_code != HTTPStatus.NOT_MODIFIED:
            return response, _page_from(text, url, validators_of(response))
        if known is None:
            raise PeerError(
                f"{redacted_url(self.url)} says that it has not changed, but the bridge has never read it"
            )
        return response, known.model_copy(update={"validators": validators_of(response, known.validators)})

    # The agents of the catalog

    def _read(self, stored: _StoredCatalog) -> tuple[CatalogEntry, ...]:
        """The agents that the configuration selects and the bridge may connect to. A selected agent to which the bridge
        may not connect is logged."""
        entries: dict[str, CatalogEntry] = {}
        for agent in (agent for agent in _listed(stored) if self._selection.takes(agent.name)):
            try:
                entry = CatalogEntry(agent.name, self._card_url(agent.card_url))
            except PeerError as exc:
                logger.warning("the agent %s is left out: %s", agent.name, exc)
                continue
            if entries.setdefault(agent.name, entry) != entry:
                logger.warning(
                    "%s lists %s twice; the first entry is used", redacted_url(self.url), agent.name
                )
        return tuple(entries.values())

    def _is_news(self, before: tuple[CatalogEntry, ...], now: tuple[CatalogEntry, ...]) -> bool:
        return now != before

    def _card_url(self, card_url: str) -> str:
        """The absolute URL of a card that the catalog names.

        Raises:
            PeerError: the text is not the URL of a card, or it is a private URL that is not allowed.
        """
        parsed = url_within(self.url, card_url).copy_with(fragment=None)
        if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
            raise PeerError(f"{echoed(redacted_url(card_url))!r} is not the URL of a card")
        url = str(parsed)
        leads_inside = is_private_host(parsed.host) and not self.reach.is_private
        if leads_inside and not (self._trust.allow_private or origin_of(url) in self._trust.origins):
            raise PeerError(self._private_words(url))
        return url

    def _private_words(self, card_url: str) -> str:
        return (
            f"the catalog at {redacted_url(self.url)} is public and names {redacted_url(card_url)}, which is"
            " a private address"
        )


def _page_from(text: bytes, url: str, validators: dict[str, str]) -> _CachedPage:
    """The page in a text.

    Raises:
        PeerError: the text is not a page of a catalog.
    """
    value = json_from(text, redacted_url(url))
    agents = value.get("agents") if isinstance(value, dict) else None
    token = (value.get("nextPageToken") or "") if isinstance(value, dict) else None
    if isinstance(value, dict) and "agents" not in value:
        try:
            agents, token = discovery.agents_in(value), ""
        except PeerError as exc:
            raise PeerError(f"the catalog at {redacted_url(url)} cannot be read: {exc}") from exc
    if not isinstance(agents, list) or not isinstance(token, str):
        raise PeerError(
            f"what is at {redacted_url(url)} is not a catalog of agents: it has no list of `agents` or `entries`"
        )
    read = [_agent_from(agent) for agent in agents]
    if read.count(None):
        nameless = counted(read.count(None), "agent")
        logger.warning("%s lists %s without a name or a URL", redacted_url(url), nameless)
    listed = tuple(agent for agent in read if agent is not None)
    return _CachedPage(place=url, validators=validators, agents=listed, next_token=token)


def _agent_from(value: JsonValue) -> _ListedAgent | None:
    """An agent on a page, with the URL of its card or else its base URL; None if it has no name or no URL."""
    if not isinstance(value, dict):
        return None
    name, card_url = value.get("name"), value.get("cardUrl") or value.get("url")
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= _NAME_CHARACTERS:
        return None
    return _ListedAgent(name=name, card_url=card_url) if isinstance(card_url, str) else None


def _listed(stored: _StoredCatalog) -> list[_ListedAgent]:
    return [agent for page in stored.pages for agent in page.agents]
