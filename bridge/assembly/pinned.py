"""Compares what tool servers list and what cards of agents show with the lock; see `bridge.pinned`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from bridge.a2a.client.agent_card import FoundCard
from bridge.a2a.model.objects import AgentCard, AgentExtension
from bridge.errors import PeerError, echoed
from bridge.mcp.client.values import SharedItemKind, ToolListing
from bridge.mcp.tools import StandInKind, Tool, UnservableTool
from bridge.pinned.definitions import NOUNS, Definitions, ItemKind, entries_of, skill_definition
from bridge.pinned.differences import Difference
from bridge.pinned.guard import MEND, DefinitionGuard
from bridge.text.jsonvalues import JsonObject
from bridge.translate.extensions import apps
from bridge.translate.extensions.bridge import URI
from bridge.translate.skill_tools import skills_by_id

_STOOD_FOR: Final[Mapping[ItemKind, StandInKind]] = {"prompts": "prompts", "templates": "resources"}
"""What the tools that stand for something stand for, by the kind of the items in the lock."""


def held_back_words(difference: Difference) -> str:
    """Why an item is not offered, as the end of a sentence."""
    said = "is not approved yet" if difference.change == "new" else "has changed since it was approved"
    return f"its definition {said}: {MEND}"


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


class ApprovedCard:
    """The part of an agent's card that may be used: its approved skills."""

    def __init__(self, guard: DefinitionGuard, title: str) -> None:
        self._guard = guard
        self._title = title

    def __call__(self, found: FoundCard) -> FoundCard:
        """The approved part of a card.

        Raises:
            PeerError: no skill of the card is approved.
        """
        refused = self._guard.refused(self._title, {"skills": skills_in(found.card)})
        names = {name for _, name in refused}
        if not names:
            return found
        skills = tuple(skill for skill in found.card.skills if skill.id not in names)
        if not skills:
            raise PeerError(f"none of its skills is approved: {MEND}")
        extensions = tuple(
            _without(extension, names) for extension in found.card.capabilities.extensions or ()
        )
        capabilities = found.card.capabilities.changed(extensions=extensions or None)
        return replace(found, card=found.card.changed(skills=skills, capabilities=capabilities))


def skills_in(card: AgentCard) -> dict[str, JsonObject]:
    """The definitions of the skills of a card, by their ids, and of the tools that only apps may call."""
    declared = _declared(card)
    definitions = {
        skill_id: skill_definition(skill.to_object(), declared.get(skill_id))
        for skill_id, skill in skills_by_id(card).items()
    }
    for tool in apps.declared_app_tools(card.capabilities.extensions):
        if isinstance(tool.listed, dict):
            definitions.setdefault(tool.id, skill_definition({}, tool.listed))
    return definitions


def _declared(card: AgentCard) -> Mapping[str, JsonObject]:
    """The tools that a bridge's card declares for its skills."""
    params = next(
        (extension.params for extension in card.capabilities.extensions or () if extension.uri == URI), None
    )
    params = params or {}
    tools = params.get("tools")
    return dict(_objects(tools)) if isinstance(tools, dict) else {}


def _objects(tools: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for name, tool in tools.items():
        if isinstance(tool, dict):
            yield name, tool


def _without(extension: AgentExtension, names: set[str]) -> AgentExtension:
    """A declaration of tools without the tools of these skills."""
    params = extension.params or {}
    tools = params.get("tools")
    if extension.uri not in (URI, apps.URI) or not isinstance(tools, dict):
        return extension
    kept = {name: tool for name, tool in tools.items() if name not in names}
    return extension.changed(params={**params, "tools": kept})
