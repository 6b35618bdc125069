"""Reads the pages of a list of prompts, templates or resources, within bounds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from bridge.mcp.client.faults import ServerRefusedError
from bridge.text.jsonvalues import JsonObject, json_bytes

PAGES_MOST: Final = 1000
"""The most pages of one list, so that a server whose list never ends cannot hang a call."""

Ask = Callable[[str, JsonObject], Awaitable[JsonObject]]


@dataclass(frozen=True, slots=True)
class ListBounds:
    """How much of a list is read."""

    entries_most: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """The entries that were read."""

    entries: tuple[JsonObject, ...]
    odd: str = ""
    """Why the list ends where it does, if its server has more; empty if this is the whole list."""


async def entries_of(ask: Ask, method: str, key: str, bounds: ListBounds) -> ReadEntries:
    """The entries under `key` on all pages that `method` gives. A list that exceeds its bounds is cut.

    Raises:
        PeerError: the server cannot give the first page.
    """
    entries: list[JsonObject] = []
    cursors: set[str] = set()
    size_bytes, params = 0, JsonObject()
    while True:
        try:
            page = await ask(method, params)
        except ServerRefusedError as exc:
            if not params:
                raise
            return ReadEntries(tuple(entries), f"it refuses the cursor that it gave: {exc}")
        listed, cursor = page.get(key), page.get("nextCursor")
        size_bytes += len(json_bytes(page))
        news = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
        entries += news
        if len(entries) > bounds.entries_most:
            return ReadEntries(tuple(entries[: bounds.entries_most]), f"more than {bounds.entries_most}")
        if size_bytes > bounds.limit_bytes:
            return ReadEntries(tuple(entries), f"more than {bounds.limit_bytes} bytes")
        if not isinstance(cursor, str) or not cursor:
            return ReadEntries(tuple(entries))
        if cursor in cursors:
            return ReadEntries(tuple(entries), "its nextCursor never advances")
        if len(cursors) + 1 >= PAGES_MOST:
            return ReadEntries(tuple(entries), f"more than {PAGES_MOST} pages")
        cursors.add(cursor)
        params = {"cursor": cursor}
