"""The skills of an agent at a time: the tools of its servers, under their ids, as the configuration wants them shown.

Ids are given before anything else, so that hiding one tool never changes what another is called. A configured id
is taken only when nobody else has or wants it: a call must never reach another tool than was meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from bridge.a2a.model.objects import AgentSkill
from bridge.access.principals import Principal
from bridge.mcp.tools import Tool
from bridge.translate.overrides import SkillOverride, overridden, override_for
from bridge.translate.skills import ToolKey, skill_from, skill_ids


@dataclass(frozen=True, slots=True, eq=False)
class Skill:
    """One skill: a tool of a server."""

    id: str
    source_key: str
    listed: Tool
    """As its server lists it."""
    tool: Tool
    """As callers see it; what it is called on its server is its name."""
    shown: AgentSkill
    override: SkillOverride
    default_id: str
    """Its id where the configuration does not say another."""

    @property
    def place(self) -> ToolKey:
        """What it is, whatever it is called here."""
        return self.source_key, self.tool.name

    @property
    def may_be_brief(self) -> bool:
        """Whether its calls are answered with a Message: nothing is kept of them, so that one that is sent again is
        made again."""
        return self.override.reply == "message" and self.tool.is_repeatable


@dataclass(frozen=True, eq=False)
class Skills:
    """All of them, in the order of the card."""

    skills: tuple[Skill, ...]
    hidden: Mapping[ToolKey, str] = field(default_factory=dict)
    """The tools that are not served, and what their ids would be."""
    refused_ids: Mapping[str, str] = field(default_factory=dict)
    """Ids of skills, and those that the configuration says but that could not be given to them."""
    _usable: dict[tuple[str, ...], Skills] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def by_id(self) -> Mapping[str, Skill]:
        """By what clients call them."""
        return {skill.id: skill for skill in self.skills}

    @cached_property
    def by_place(self) -> Mapping[ToolKey, Skill]:
        """By what they are."""
        return {skill.place: skill for skill in self.skills}

    @cached_property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by the ids of their skills, as callers see them."""
        return {skill.id: skill.tool for skill in self.skills}

    def usable_by(self, principal: Principal) -> Skills:
        """Those that it may use, as if there were no others. Found once for all who may use the same."""
        if "*" in principal.skills:
            return self
        if principal.skills not in self._usable:
            left = tuple(skill for skill in self.skills if principal.may_use(skill.id))
            self._usable[principal.skills] = replace(self, skills=left)
        return self._usable[principal.skills]


def skills_of(
    listed: Sequence[tuple[str, Tool]],
    overrides: Mapping[str, SkillOverride],
    before: Skills | None = None,
) -> Skills:
    """The skills for these tools, each with the key of its server.

    Those of `before` that would be the same are taken over: the servers of an agent come up one by one.
    """
    known = before.by_place if before else {}
    tools = {(source_key, tool.name): tool for source_key, tool in listed}
    ids = skill_ids(tools)
    said = {place: override_for(overrides, ids[place], place[1]) or SkillOverride() for place in tools}
    served = [place for place in tools if not said[place].hidden]
    own = {place: ids[place] for place in served}
    wanted = {place: said[place].id or ids[place] for place in served}
    given = _unique(own, wanted)
    return Skills(
        tuple(
            _same(known.get(place), tools[place], given[place], ids[place], said[place])
            or _skill(tools[place], place, given[place], ids[place], said[place])
            for place in served
        ),
        {place: ids[place] for place in tools if said[place].hidden},
        {given[place]: wanted[place] for place in served if given[place] != wanted[place]},
    )


def _unique(own: Mapping[ToolKey, str], wanted: Mapping[ToolKey, str]) -> dict[ToolKey, str]:
    """The wanted ids; where several want the same, those that have another of their own get that."""
    ids = dict(wanted)
    while True:
        counted = Counter(ids.values())
        colliding = [place for place in ids if counted[ids[place]] > 1 and ids[place] != own[place]]
        if not colliding:
            return ids
        for place in colliding:
            ids[place] = own[place]


def _same(
    skill: Skill | None, tool: Tool, skill_id: str, default_id: str, override: SkillOverride
) -> Skill | None:
    if skill is None or skill.listed is not tool:
        return None
    is_same = (skill.id, skill.default_id, skill.override) == (skill_id, default_id, override)
    return skill if is_same else None


def _skill(tool: Tool, place: ToolKey, skill_id: str, default_id: str, override: SkillOverride) -> Skill:
    seen = overridden(tool, override if override.id == skill_id else replace(override, id=None))
    shown = skill_from(seen, skill_id, place[0], override)
    return Skill(skill_id, place[0], tool, seen, shown, override, default_id)
