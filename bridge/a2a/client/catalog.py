"""A catalog of agents that is followed: which agents it lists, kept on disk, and fresh while a bridge runs.

It reads what `catalog.py` serves. A catalog is a stranger's word for where agents are, as a card is: names and
addresses are taken from it and nothing else, each agent's card is read where it is. A catalog that cannot be read
anew lists what it listed.

Spec: A2A 1.0 section 8.2; its guide on discovery, "Curated Registries". RFC 9111 as in `http_cache.py`.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Final, NoReturn

import anyio
import anyio.to_thread
import httpx2
from pydantic import BaseModel, ConfigDict, JsonValue

from bridge.a2a.client.card import NOT_MODIFIED, read_place
from bridge.a2a.client.http import UnansweredError, json_from, origin_of, shown, url_from
from bridge.a2a.client.http_cache import CardBounds, Kept, fresh_seconds, may_be_stored, validators_in
from bridge.a2a.client.interfaces import Reach, Trust
from bridge.errors import PeerError
from bridge.networks import Guard, is_private_host

logger = logging.getLogger(__name__)

PAGE_SIZE: Final = 100
"""What is asked for at a time: the most that our own catalog gives."""
MOST_PAGES: Final = 50
MOST_AGENTS: Final = 1000
"""Agents that one catalog may list: for each, a card is read and watched."""
_NAME_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Entry:
    """An agent of a catalog."""

    name: str
    """What the catalog calls it; no other agent of it is called so."""
    card_url: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Which agents are wanted, by globs of their names."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def takes(self, name: str) -> bool:
        """Whether it is included, and not excluded."""
        return any(fnmatchcase(name, glob) for glob in self.include) and not any(
            fnmatchcase(name, glob) for glob in self.exclude
        )


class _Agent(BaseModel):
    """An agent as a page lists it."""

    model_config = ConfigDict(frozen=True)

    name: str
    card_url: str


class _Page(BaseModel):
    """A page as it is kept."""

    model_config = ConfigDict(frozen=True)

    place: str
    validators: dict[str, str]
    """The conditional headers by which it is asked for anew."""
    agents: tuple[_Agent, ...]
    next_token: str


class _Kept(Kept):
    """A catalog as it is kept: all that it lists, whatever is wanted of it."""

    pages: tuple[_Page, ...]


class CatalogSource:
    """Where one catalog comes from."""

    def __init__(
        self,
        http: httpx2.AsyncClient,
        url: str,
        folder: Path | None,
        bounds: CardBounds | None = None,
        *,
        headers: Mapping[str, str] = MappingProxyType({}),
        selection: Selection | None = None,
        trust: Trust | None = None,
    ) -> None:
        """`folder` keeps it between two runs; None keeps it in memory alone. `headers` go to `url`'s origin."""
        self.url = url
        self._http = http
        self._bounds = bounds or CardBounds()
        self._headers = dict(headers)
        self._selection = selection or Selection()
        self._trust = trust or Trust()
        self.reach = Reach(url, self._trust)
        """How connections are judged that are made for the agents that it lists."""
        name = hashlib.sha256(f"catalog {url}".encode()).hexdigest()[:32]
        self._file = folder / f"{name}.json" if folder else None
        self._kept: _Kept | None = None
        self._entries: tuple[Entry, ...] | None = None

    def cached(self) -> tuple[Entry, ...] | None:
        """What was listed last, in this run or an earlier one, however long ago; None when it was never read."""
        if self._kept is None and self._file is not None:
            self._kept = _Kept.read(self._file)
            self._entries = self._wanted(self._kept.pages) if self._kept else None
        return self._entries

    async def refresh(self) -> tuple[Entry, ...]:
        """What is listed now, asked for with what is known of it.

        Raises:
            PeerError: it cannot be reached, or what is there is no catalog. What was known stays `cached`.
        """
        self.cached()
        try:
            with anyio.fail_after(self._bounds.answer_seconds):
                kept = await self._read_pages()
        except TimeoutError as exc:
            late = f"{shown(self.url)} gave no catalog within {self._bounds.answer_seconds:g} s"
            raise UnansweredError(late) from exc
        if self._entries is None or _listed(kept) != (self._kept and _listed(self._kept)):
            self._entries = self._wanted(kept.pages)
        self._kept = kept
        if self._file is not None:
            await anyio.to_thread.run_sync(kept.write, self._file)
        return self._entries

    async def watch(self, on_change: Callable[[tuple[Entry, ...]], Awaitable[None]]) -> NoReturn:
        """Ask for the catalog whenever it has grown old, for ever, and tell of what it lists when that is new.

        A catalog that was not there at the start is new when it comes. What goes wrong is logged, and asked again.
        """
        pauses = self._bounds.pauses()
        while True:
            before = self.cached()
            await anyio.sleep(self._seconds_left() if before is not None else 0)
            try:
                entries = await self.refresh()
            except PeerError as exc:
                logger.warning("a catalog of agents is not read anew: %s", exc)
                await anyio.sleep(pauses.next())
                continue
            pauses.reset()
            if entries != before:
                await on_change(entries)

    def is_own(self, card_url: str) -> bool:
        """Whether an agent is at the catalog's own origin: only there may it be shown the catalog's credentials."""
        return origin_of(card_url) == origin_of(self.url)

    def guard(self, card_url: str) -> Guard | None:
        """What judges connections made to read a card that the catalog named; None when any address will do."""
        return self.reach.guard(card_url, self._private_words(card_url))

    def _seconds_left(self) -> float:
        left = self._kept.fresh_until - time.time() if self._kept else 0
        return min(max(left, 0), self._bounds.max_seconds)

    # Reading

    async def _read_pages(self) -> _Kept:
        known = {page.place: page for page in (self._kept.pages if self._kept else ())}
        pages: dict[str, _Page] = {}
        fresh, storable, token = self._bounds.max_seconds, True, ""
        while True:
            place = self._place(token)
            if place in pages or len(pages) >= MOST_PAGES:
                raise PeerError(f"the catalog at {shown(self.url)} does not end within {len(pages)} pages")
            response, page = await self._read_page(place, known.get(place))
            pages[place] = page
            fresh = min(fresh, fresh_seconds(response.headers, self._bounds))
            storable = storable and may_be_stored(response.headers)
            if sum(len(one.agents) for one in pages.values()) > MOST_AGENTS:
                raise PeerError(f"the catalog at {shown(self.url)} lists more than {MOST_AGENTS} agents")
            if not (token := page.next_token):
                until = time.time() + fresh
                return _Kept(pages=tuple(pages.values()), fresh_until=until, may_be_stored=storable)

    def _place(self, token: str) -> str:
        asked = {"pageSize": str(PAGE_SIZE), **({"pageToken": token} if token else {})}
        return str(url_from(self.url).copy_merge_params(asked))

    async def _read_page(self, place: str, known: _Page | None) -> tuple[httpx2.Response, _Page]:
        headers = {**self._headers, **(known.validators if known else {})}
        answer = await read_place(self._http, place, headers, self.reach.guard(self.url))
        if answer is None:
            raise PeerError(f"there is no catalog of agents at {shown(self.url)}")
        response, text = answer
        validators = validators_in(response.headers)
        if response.status_code != NOT_MODIFIED:
            return response, _page_from(text, place, validators)
        if known is None:
            raise PeerError(f"{shown(self.url)} says that it has not changed, but it was never seen")
        return response, known.model_copy(update={"validators": {**known.validators, **validators}})

    # What is taken of it

    def _wanted(self, pages: Sequence[_Page]) -> tuple[Entry, ...]:
        """The agents that are wanted and may be reached; those that may not are logged."""
        found: dict[str, Entry] = {}
        for agent in (agent for page in pages for agent in page.agents if self._selection.takes(agent.name)):
            try:
                entry = Entry(agent.name, self._card_url(agent.card_url))
            except PeerError as exc:
                logger.warning("the agent %s is left out: %s", agent.name, exc)
                continue
            if found.setdefault(agent.name, entry) != entry:
                logger.warning("%s lists %s twice; the first one counts", shown(self.url), agent.name)
        return tuple(found.values())

    def _card_url(self, given: str) -> str:
        """Where a card is, as the catalog says.

        Raises:
            PeerError: it is no URL of a card, or may not be asked for.
        """
        try:
            place = url_from(self.url).join(given).copy_with(fragment=None)
        except httpx2.InvalidURL as exc:
            raise PeerError(f"{shown(given)!r} is no URL: {exc}") from exc
        if place.scheme not in ("http", "https") or not place.host or place.userinfo:
            raise PeerError(f"{shown(given)!r} is not where a card can be read")
        url = str(place)
        leads_inside = is_private_host(place.host) and not self.reach.is_private
        if leads_inside and not (self._trust.allow_private or origin_of(url) in self._trust.origins):
            raise PeerError(self._private_words(url))
        return url

    def _private_words(self, card_url: str) -> str:
        return f"the catalog at {shown(self.url)} is public and names {shown(card_url)}, which is a private address"


def _page_from(text: bytes, place: str, validators: dict[str, str]) -> _Page:
    """A page out of its text.

    Raises:
        PeerError: it is none.
    """
    value = json_from(text, shown(place))
    agents = value.get("agents") if isinstance(value, dict) else None
    token = (value.get("nextPageToken") or "") if isinstance(value, dict) else None
    if not isinstance(agents, list) or not isinstance(token, str):
        raise PeerError(f"what is at {shown(place)} is no catalog of agents: it has no list of `agents`")
    read = [_agent_from(one) for one in agents]
    if read.count(None):
        logger.warning("%s lists %d agents without a name or a URL", shown(place), read.count(None))
    listed = tuple(agent for agent in read if agent is not None)
    return _Page(place=place, validators=validators, agents=listed, next_token=token)


def _agent_from(value: JsonValue) -> _Agent | None:
    """An agent of a page, by where its card is, or else by its base; None when it has no name, or neither."""
    if not isinstance(value, dict):
        return None
    name, card_url = value.get("name"), value.get("cardUrl") or value.get("url")
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= _NAME_CHARACTERS:
        return None
    return _Agent(name=name, card_url=card_url) if isinstance(card_url, str) else None


def _listed(kept: _Kept) -> list[_Agent]:
    return [agent for page in kept.pages for agent in page.agents]
