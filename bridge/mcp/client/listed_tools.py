"""Reads all pages of a server's list of tools, and decides when the list is read again.

Spec: MCP 2026-07-28 server/utilities/pagination and server/utilities/caching.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

import anyio
import anyio.to_thread
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND
from pydantic import JsonValue

from bridge.concurrency import Backoff
from bridge.errors import PeerError, counted
from bridge.mcp.client.faults import ServerRefusedError
from bridge.mcp.client.values import ToolListing
from bridge.mcp.tools import SchemaBudget, tools_from
from bridge.settings import ServerSettings
from bridge.text.jsonvalues import JsonObject, json_bytes, shortened_json

MAX_PAGES: Final = 1000
"""The most pages of one tools/list, so that a server that never ends its list cannot hang the bridge."""

_FIRST_GAP_SECONDS: Final = 0.5
"""The shortest time between two listings after an announced list was the same as before. It doubles with each such
list."""
_LONGEST_FRESH_SECONDS: Final = 24 * 3600.0
"""A list that is fresh for longer than a day is read again after a day."""

_LONG_LIST_BYTES: Final = 100_000
"""A longer list of tools is parsed in a thread. Most lists have a tenth of this size."""


Ask = Callable[[str, JsonObject], Awaitable[JsonObject]]


async def listed_tools(name: str, ask: Ask, settings: ServerSettings, *, is_legacy: bool) -> ToolListing:
    """The tools on all pages of tools/list. If no further page can be read, the listing says why.

    Raises:
        PeerError: the server cannot list its tools, or lists more than `settings` allow.
    """
    pages = _Pages(name, settings, is_legacy=is_legacy)
    params: JsonObject = {}
    while not pages.is_last:
        try:
            page = await ask("tools/list", params)
        except ServerRefusedError as exc:
            if not params and exc.code == METHOD_NOT_FOUND:
                pages.end("", nothing="it has no tools: it does not support tools/list")
            elif not params or exc.code != INVALID_PARAMS:
                raise
            else:
                pages.end(f"the server refuses the cursor that it gave: {exc}")
        else:
            pages.add(page)
            params = {"cursor": pages.cursor}
    # Compiling the schemas of a long list takes a second or two.
    return await anyio.to_thread.run_sync(pages.listing) if pages.is_long else pages.listing()


@dataclass
class _Pages:
    """The pages that were read."""

    name: str
    settings: ServerSettings
    is_legacy: bool = field(kw_only=True)
    cursor: JsonValue = None
    is_last: bool = False
    _odd: str = ""
    _nothing: str = ""
    _tools: list[JsonValue] = field(default_factory=list)
    _known: set[bytes] = field(default_factory=set)
    _cursors: set[str] = field(default_factory=set)
    _bytes: int = 0
    _pages: int = 0
    _fresh_seconds: float | None = None

    @property
    def is_long(self) -> bool:
        """Whether the list has to be parsed in a thread."""
        return self._bytes > _LONG_LIST_BYTES

    def add(self, page: JsonObject) -> None:
        """Add a page.

        Raises:
            PeerError: the object is not a page, or the list exceeds the bounds.
        """
        tools = page.get("tools")
        if tools is None and "tools" in page:
            tools, self._nothing = [], "it has no tools: its list of tools is null"
        if not isinstance(tools, list):
            raise PeerError(f"{self.name} answered tools/list without a list of tools")
        news = self._news_in(tools)
        self._tools += news
        self._bytes += len(json_bytes(page))
        self._pages += 1
        self._require_bounds()
        self._take_freshness(page)
        self.cursor = page.get("nextCursor")
        if self.cursor is None:
            self.is_last = True
        elif (odd := self._oddity(advances=bool(news) or not tools)) is not None:
            self.end(odd)

    def _news_in(self, tools: list[JsonValue]) -> list[JsonValue]:
        """The tools of a page that are on no earlier page. A server without paging sends the same tools again."""
        marks = [blake2b(json_bytes(tool), digest_size=16).digest() for tool in tools]
        news = [tool for tool, mark in zip(tools, marks, strict=True) if mark not in self._known]
        self._known.update(marks)
        return news

    def _require_bounds(self) -> None:
        if len(self._tools) > self.settings.tools_most:
            raise PeerError(
                f"{self.name} lists more than {counted(self.settings.tools_most, 'tool')}: `tools_most` is the limit"
            )
        if self._bytes > self.settings.tools_limit_bytes:
            words = f"{self.name} lists tools of more than {self.settings.tools_limit_bytes} bytes"
            raise PeerError(f"{words}: `tools_limit_bytes` is the limit")

    def _take_freshness(self, page: JsonObject) -> None:
        """Note the freshness of a page. The page with the shortest time decides for the list."""
        ttl_ms = page.get("ttlMs")
        if not isinstance(ttl_ms, int) or isinstance(ttl_ms, bool) or ttl_ms <= 0 or self.is_legacy:
            return
        seconds = min(ttl_ms, _LONGEST_FRESH_SECONDS * 1000) / 1000
        self._fresh_seconds = min(seconds, self._fresh_seconds or seconds)

    def _oddity(self, *, advances: bool) -> str | None:
        """Why no further page can be read, although the server announces it; None if it can."""
        cursor = self.cursor
        if not isinstance(cursor, str):
            return f"its nextCursor is not a string: {shortened_json(cursor)}"
        if not cursor and self.is_legacy:
            return "its nextCursor is empty"
        if cursor in self._cursors or not advances:
            return "its nextCursor never advances"
        if self._pages == MAX_PAGES:
            return f"it has more than {MAX_PAGES} pages"
        self._cursors.add(cursor)
        return None

    def end(self, odd: str, *, nothing: str = "") -> None:
        """Read no further page, for the reason `odd`. `nothing` says why there is no tool at all."""
        self.is_last, self._odd, self._nothing = True, odd, nothing

    def listing(self) -> ToolListing:
        """The tools of all pages."""
        tools, left_out = tools_from(self._tools, SchemaBudget(self.settings.schema_values))
        odd = f"its list of tools ends after {len(self._tools)}: {self._odd}" if self._odd else ""
        odd = odd or ("" if self._tools else self._nothing)
        return ToolListing(tools, left_out, odd, self._fresh_seconds)


class ListingPace:
    """When a list is read again: after announced changes, or once it is stale."""

    def __init__(self, settings: ServerSettings) -> None:
        self._gap_seconds = settings.relist_seconds
        self._gaps = Backoff(_FIRST_GAP_SECONDS, settings.relist_seconds)
        self._not_before = -float("inf")

    def fresh_until(self, listing: ToolListing, *, announces_changes: bool) -> float:
        """The time by the event loop's clock until which a new list is fresh; infinite if it never becomes stale."""
        if listing.fresh_seconds is None or announces_changes:
            return float("inf")
        return anyio.current_time() + max(listing.fresh_seconds, self._gap_seconds)

    def note(self, *, is_news: bool) -> None:
        """Note a new list. A server that announces unchanged lists is asked less and less often."""
        if is_news:
            self._gaps.reset()
            self._not_before = -float("inf")
        else:
            self._not_before = anyio.current_time() + self._gaps.next()

    @property
    def seconds_left(self) -> float:
        """How long the next listing has to wait."""
        return max(self._not_before - anyio.current_time(), 0)
