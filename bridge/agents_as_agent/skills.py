"""The skills of remote agents as skills of one agent, and which skill and agent a message names. Pure.

Spec: A2A 1.0 section 4.4.5 (AgentSkill).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from bridge.a2a.model.objects import AgentSkill, Message
from bridge.identity.callers.principals import OfferedNames, Principal
from bridge.text.jsonvalues import JsonObject
from bridge.translate.overrides import Remark, RuleNames, SkillOverride, override_for, unmatched_patterns
from bridge.translate.skills import ids_of, qualified_id, skill_ids


@dataclass(frozen=True, slots=True)
class ForwardedSkill:
    """A skill of a remote agent, as the card shows it."""

    id: str
    agent: str
    """The key of the remote agent."""
    remote_id: str
    """The id of the skill at the remote agent."""
    shown: AgentSkill
    override: SkillOverride
    names: OfferedNames
    """The names to which rights apply."""


@dataclass(frozen=True)
class ForwardedSkills:
    """All skills of an agent made of agents, in the order of the card."""

    skills: tuple[ForwardedSkill, ...] = ()
    hidden: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The skills that nobody may name, by the keys of their agents and their ids there, with the ids that they would
    have."""

    @cached_property
    def by_id(self) -> Mapping[str, ForwardedSkill]:
        """The skills by their ids."""
        return {skill.id: skill for skill in self.skills}

    @property
    def on_card(self) -> tuple[AgentSkill, ...]:
        """The skills that the card shows to everyone."""
        return tuple(skill.shown for skill in self.skills if skill.override.public is not False)

    def seen_by(self, principal: Principal) -> tuple[AgentSkill, ...]:
        """The skills that a principal may use, or could with another scope."""
        return tuple(skill.shown for skill in self.skills if principal.may_see(skill.names))

    def usable_by(self, principal: Principal) -> tuple[ForwardedSkill, ...]:
        """The skills that a principal may use."""
        return tuple(skill for skill in self.skills if principal.may_use(skill.names))

    def named(self, name: str) -> ForwardedSkill | None:
        """The skill that a client means by a word: its id, or its name for people if no other skill has the name."""
        if (skill := self.by_id.get(name)) is not None:
            return skill
        word = name.strip().strip(".!\"'`").casefold()
        meant = [skill for skill in self.skills if word in (skill.id.casefold(), skill.shown.name.casefold())]
        return meant[0] if len(meant) == 1 else None


def forwarded_skills(
    cards: Sequence[tuple[str, Sequence[AgentSkill]]], overrides: Mapping[str, SkillOverride]
) -> ForwardedSkills:
    """The skills of these agents, each with its key. Skills that share an id are prefixed by the keys of their
    agents."""
    listed = {(key, skill.id): skill for key, skills in cards for skill in skills}
    ids = skill_ids(listed)
    rules = {key: override_for(overrides, _rule_names(key, ids[key])) or SkillOverride() for key in listed}
    served = [key for key in listed if not rules[key].hidden]
    wanted = {key: rules[key].id or ids[key] for key in served}
    taken = [*wanted.values()]
    shown = []
    for key in served:
        skill_id = wanted[key] if taken.count(wanted[key]) == 1 else ids[key]
        shown.append(_forwarded(key, skill_id, listed[key], rules[key]))
    return ForwardedSkills(tuple(shown), {key: ids[key] for key in listed if rules[key].hidden})


def remarks_on(
    cards: Iterable[tuple[str, Sequence[AgentSkill]]], overrides: Mapping[str, SkillOverride]
) -> tuple[Remark, ...]:
    """The rules that fit no skill of these agents."""
    listed = {(key, skill.id): skill for key, skills in cards for skill in skills}
    ids = skill_ids(listed)
    there = (_rule_names(key, ids[key]) for key in listed)
    return tuple(
        Remark(("skills", pattern), words, is_of_nothing=True)
        for pattern, words in unmatched_patterns(overrides, there, "skill").items()
    )


def name_in(message: Message, metadata: JsonObject, keys: Sequence[str]) -> str | None:
    """The skill that a message names in its metadata, or in that of its request; None if it names none."""
    for values in (message.metadata or {}, metadata):
        for key in keys:
            if isinstance(name := values.get(key), str):
                return name
    return None


def _rule_names(key: tuple[str, str], skill_id: str) -> RuleNames:
    return RuleNames(ids_of(key), frozenset({skill_id, key[1]}), frozenset({qualified_id(key)}), frozenset())


def _forwarded(
    key: tuple[str, str], skill_id: str, skill: AgentSkill, override: SkillOverride
) -> ForwardedSkill:
    shown = skill.changed(
        id=skill_id,
        name=override.name or skill.name,
        description=override.description or skill.description,
        tags=tuple(dict.fromkeys((*skill.tags, *(override.tags or ())))),
        examples=skill.examples if override.examples is None else override.examples or None,
        security_requirements=None,
    )
    names = OfferedNames(skill_id, qualified=qualified_id(key))
    return ForwardedSkill(skill_id, key[0], key[1], shown, override, names)
