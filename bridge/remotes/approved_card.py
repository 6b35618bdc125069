"""The part of an agent's card that may be used, since its definitions are as in the lock; see `bridge.pinned`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from bridge.a2a.client.agent_card import FoundCard
from bridge.a2a.model.objects import AgentCard, AgentExtension
from bridge.errors import PeerError
from bridge.pinned.definitions import skill_definition
from bridge.pinned.guard import MEND, DefinitionGuard
from bridge.text.jsonvalues import JsonObject
from bridge.translate.extensions import apps
from bridge.translate.extensions.bridge import URI
from bridge.translate.skill_tools import skills_by_id


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
