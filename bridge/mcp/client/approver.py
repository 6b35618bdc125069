"""Finds what must be held back of a tool server, since its definitions are not as in the lock; see `bridge.pinned`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from bridge.errors import echoed
from bridge.mcp.client.values import SharedItemKind, ToolListing
from bridge.mcp.tools import StandInKind, Tool, UnservableTool
from bridge.pinned.definitions import NOUNS, Definitions, ItemKind, entries_of
from bridge.pinned.guard import DefinitionGuard, held_back_words
from bridge.text.jsonvalues import JsonObject

_STOOD_FOR: Final[Mapping[ItemKind, StandInKind]] = {"prompts": "prompts", "templates": "resources"}
"""What the tools that stand for something stand for, by the kind of the items in the lock."""


class ServerApprover:
    """Finds what must be held back of a server; see `Approver`."""

    def __init__(self, guard: DefinitionGuard, title: str) -> None:
        self._guard = guard
        self._title = title
        self._listed: ToolListing | None = None
        self._approved = ToolListing()
        self._version = -1

    def __call__(self, listing: ToolListing) -> ToolListing:
        """The listing with what is held back. It is compared again only for another listing or another lock."""
        if listing is not self._listed or self._version != self._guard.version:
            self._listed, self._version = listing, self._guard.version
            self._approved = self._judged(listing)
        return self._approved

    @property
    def refuses(self) -> bool:
        """See `Approver`."""
        return self._guard.mode_of(self._title) == "refuse"

    def refusal(self, kind: SharedItemKind, name: str, entry: JsonObject | None) -> str:
        """See `Approver`."""
        present = None if entry is None else entries_of(kind, [entry]).get(name)
        difference = self._guard.refusal(self._title, kind, name, present)
        if difference is None:
            return ""
        return f"The {NOUNS[kind]} {echoed(name)} is held back: {held_back_words(difference)}"

    def _judged(self, listing: ToolListing) -> ToolListing:
        refused = self._guard.refused(self._title, definitions_in(listing))
        if not refused:
            return listing
        held = {
            tool.name: refused[key]
            for tool in (*listing.tools, *listing.stand_ins)
            if (key := _key_of(tool)) in refused
        }
        return replace(
            listing,
            held_back=tuple(
                UnservableTool(name, held_back_words(difference)) for name, difference in held.items()
            ),
        )


def definitions_in(listing: ToolListing) -> Definitions:
    """The definitions of a listing. Prompts and templates count if tools stand for them."""
    definitions: dict[ItemKind, Mapping[str, JsonObject]] = {
        "tools": entries_of("tools", [tool.listed for tool in listing.tools])
    }
    kinds = {tool.stands_for.kind for tool in listing.stand_ins if tool.stands_for is not None}
    for kind, stands_for in _STOOD_FOR.items():
        if stands_for in kinds:
            listed = [
                tool.stands_for.entry
                for tool in listing.stand_ins
                if tool.stands_for is not None and tool.stands_for.kind == stands_for
            ]
            definitions[kind] = entries_of(kind, listed)
    return definitions


def _key_of(tool: Tool) -> tuple[ItemKind, str]:
    if tool.stands_for is None:
        return "tools", tool.name
    entry = tool.stands_for.entry
    if tool.stands_for.kind == "prompts":
        return "prompts", str(entry.get("name"))
    return "templates", str(entry.get("uriTemplate"))
