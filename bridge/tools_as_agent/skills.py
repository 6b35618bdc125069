"""The skills of an agent: the tools of its servers, with ids and the configured descriptions. Pure.

Ids are assigned first, so that hiding one tool never changes the id of another. A configured id is used only if no
other skill has or wants it: a call must never reach a tool that was not meant.

Tools of two servers with the same name get ids with the server as prefix, so an id depends on which servers have listed
their tools. Rules and rights do not depend on that: see `RuleNames` and `OfferedNames`.

Tools come and go, so a rule without effect is not an error: it gets a remark, and the agent is served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from bridge.a2a.model.errors import FORBIDDEN, A2AError
from bridge.a2a.model.objects import AgentSkill, Message, Part, Role
from bridge.identity.callers.challenges import insufficient_scope
from bridge.identity.callers.principals import OfferedNames, Principal, ScopeRule
from bridge.mcp.apps import is_for_model
from bridge.mcp.tools import Tool
from bridge.tools_as_agent.options import AgentOptions
from bridge.translate.arguments import properties_of, quick_problems_of
from bridge.translate.language.plain_words import PhraseBook, SkillWords, phrase_faults
from bridge.translate.message_to_call import RouteRules, SkillCall, call_from_message
from bridge.translate.overrides import (
    ABSENT,
    NEVER_GIVEN,
    Remark,
    RuleNames,
    SkillOverride,
    declared_arguments,
    is_hidden,
    merged,
    overridden,
    override_for,
    qualified_names_of_one,
    unmatched_patterns,
    with_default_arguments,
)
from bridge.translate.skills import NO_RULE, ToolKey, ids_of, qualified_id, skill_from, skill_ids

_NO_ROUTES: Final = RouteRules(())
_NO_READY: Final[Mapping[str, Mapping[str, SkillOverride]]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Skill:
    """One skill: a tool of a server."""

    id: str
    source_key: str
    listed: Tool
    """The tool as its server lists it."""
    tool: Tool
    """The tool as callers see it. Its name is still its name on the server."""
    shown: AgentSkill
    override: SkillOverride
    default_id: str
    """The skill's id unless the configuration gives another."""
    names: OfferedNames
    """The names to which rights apply."""
    ready: SkillOverride = NO_RULE
    """The phrases of the mapping profile and of the server's ready mapping, and whether they call the tool
    read-only."""

    @property
    def key(self) -> ToolKey:
        """Identifies the tool, independently of the skill's id."""
        return self.source_key, self.tool.name

    @property
    def is_for_apps(self) -> bool:
        """Whether only an app of its server may call it."""
        return not is_for_model(self.listed.listed)

    @property
    def may_be_brief(self) -> bool:
        """Whether calls are answered with a Message. Such a call is not stored: if its message is sent again, the tool
        runs again."""
        return self.override.reply == "message" and self.tool.is_repeatable

    @property
    def only_reads(self) -> bool | None:
        """Whether the operator, the mapping or the server says that the tool changes nothing. The first of them that
        says anything decides; None if none of them does."""
        for says in (
            self.override.read_only,
            self.ready.read_only,
            self.tool.annotations.get("readOnlyHint"),
        ):
            if says is not None:
                return says is True
        return None

    @property
    def is_read_only(self) -> bool:
        """Whether the tool is known to change nothing."""
        return self.only_reads is True


_Rights = tuple[tuple[str, ...], tuple[ScopeRule, ...]]
"""The rights of a principal: its globs, and the scope rules of its issuer."""


@dataclass(frozen=True, eq=False)
class Skills:
    """All skills of an agent, in the order of the card."""

    skills: tuple[Skill, ...]
    hidden: Mapping[ToolKey, str] = field(default_factory=dict)
    """The tools that are not served, with the ids that they would have."""
    refused_ids: Mapping[str, str] = field(default_factory=dict)
    """The configured ids that could not be used, by the id that the skill has instead."""
    route: RouteRules = _NO_ROUTES
    holds_back: bool = False
    """Whether some tools are not served because their definitions are not approved."""
    _usable: dict[tuple[str, ...], Skills] = field(default_factory=dict, init=False, repr=False)
    _seen: dict[_Rights, Skills] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def by_id(self) -> Mapping[str, Skill]:
        """The skills by id."""
        return {skill.id: skill for skill in self.skills}

    @cached_property
    def by_key(self) -> Mapping[ToolKey, Skill]:
        """The skills by key."""
        return {skill.key: skill for skill in self.skills}

    @cached_property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by the ids of their skills, as callers see them."""
        return {skill.id: skill.tool for skill in self.skills}

    @cached_property
    def book(self) -> PhraseBook:
        """The sentences that mean these skills."""
        return PhraseBook([self._words_of(skill) for skill in self.skills], self.route.language)

    def _words_of(self, skill: Skill) -> SkillWords:
        names = dict.fromkeys((skill.id, skill.tool.name, skill.shown.name))
        return SkillWords(
            skill.id,
            () if skill.ready.by_name is False else tuple(names),
            skill.tool,
            skill.override.phrases or (),
            skill.ready.phrases or (),
            skill.ready.examples or (),
            is_read_only=skill.is_read_only,
            text_into=skill.override.text_into or self.route.text_into.get(skill.id),
        )

    @cached_property
    def on_card(self) -> tuple[AgentSkill, ...]:
        """The skills as a card shows them: sentences that the agent understands come before the other examples."""
        return tuple(self._on_card(skill) for skill in self.skills)

    def _on_card(self, skill: Skill) -> AgentSkill:
        if skill.override.examples is not None:
            return skill.shown
        sentences = self.book.examples(skill.id)
        if self.route.default_skill is not None or len(self.skills) == 1:
            # A skill that takes all text takes sentences, too, unless they are phrases of the operator.
            calls = {sentence: self.call_of_example(sentence, self.route) for sentence in sentences}
            sentences = tuple(
                text for text, call in calls.items() if call and call.skill_id == skill.id and call.said
            )
        if not sentences:
            return skill.shown
        return skill.shown.changed(examples=(*sentences, *(skill.shown.examples or ())))

    def call_of_example(self, example: str, route: RouteRules) -> SkillCall | None:
        """The call that an example on the card means."""
        message = Message(message_id="example", role=Role.USER, parts=(Part(text=example),))
        call = call_from_message(message, {}, self.tools, route, self.book)
        return call if isinstance(call, SkillCall) else None

    def of_question(self, skill_id: str, source_key: str, tool_name: str) -> Skill | None:
        """The skill that a question was about. The skill's id may have changed meanwhile, or belong to another tool
        now."""
        return self.by_key.get((source_key, tool_name)) if tool_name else self.by_id.get(skill_id)

    def only(self, skill: Skill | None) -> Skills:
        """Only this skill."""
        return replace(self, skills=() if skill is None else (skill,))

    def named(self, name: str) -> Skill | None:
        """The skill that the configuration names, by its id or as SERVER_TOOL; None while the id may still come to
        belong to another tool."""
        for skill in self.skills:
            if skill.names.qualified == name:
                return skill
        named_skill = self.by_id.get(name)
        return None if named_skill is None or named_skill.names.later else named_skill

    def require_scope(self, principal: Principal, skill_id: str) -> None:
        """Require the scope for a skill that the principal named.

        Raises:
            A2AError: FORBIDDEN, the token lacks the scope that allows the skill.
        """
        skill = self.by_id.get(skill_id)
        scope = None if skill is None else principal.missing_scope(skill.names)
        if scope is not None:
            words = f"The skill {skill_id} needs a token with the scope {scope}"
            raise A2AError(FORBIDDEN, words, metadata={"scope": scope}, headers=insufficient_scope(scope))

    @cached_property
    def for_everyone(self) -> Skills:
        """The skills that are not for apps only."""
        left = tuple(skill for skill in self.skills if not skill.is_for_apps)
        return self if len(left) == len(self.skills) else replace(self, skills=left)

    @cached_property
    def public(self) -> Skills:
        """The skills that the card shows to everyone."""
        left = tuple(skill for skill in self.skills if skill.override.public is not False)
        return self if len(left) == len(self.skills) else replace(self, skills=left)

    def seen_by(self, principal: Principal) -> Skills:
        """The skills that a principal may use, or could with another scope. Cached like `all_usable_by`."""
        if "*" in principal.skills:
            return self
        rights = principal.skills, principal.scopes
        if rights not in self._seen:
            left = tuple(skill for skill in self.skills if principal.may_see(skill.names))
            self._seen[rights] = replace(self, skills=left)
        return self._seen[rights]

    def usable_by(self, principal: Principal) -> Skills:
        """The skills that a principal may use, without those for apps only."""
        return self.all_usable_by(principal).for_everyone

    def all_usable_by(self, principal: Principal) -> Skills:
        """The skills that a principal may use. Cached for all principals with the same rights."""
        if "*" in principal.skills:
            return self
        if principal.skills not in self._usable:
            left = tuple(skill for skill in self.skills if principal.may_use(skill.names))
            self._usable[principal.skills] = replace(self, skills=left)
        return self._usable[principal.skills]


def skills_of(
    listed: Sequence[tuple[str, Tool]],
    overrides: Mapping[str, SkillOverride],
    before: Skills | None = None,
    *,
    unknown: Collection[str] = (),
    held_back: Collection[ToolKey] = (),
    route: RouteRules = _NO_ROUTES,
    ready: Mapping[str, Mapping[str, SkillOverride]] = _NO_READY,
) -> Skills:
    """The skills for these tools, each with the key of its server.

    Unchanged skills of `before` are reused, since the servers of an agent come up one by one. `unknown` are the keys of
    servers that have never listed their tools: their tools may still force a server prefix on an id. `held_back`
    are tools that must not be served. `ready` are the ready mappings of servers, by the keys of the servers and the
    names of their tools.
    """
    known = before.by_key if before else {}
    tools = {(source_key, tool.name): tool for source_key, tool in listed}
    ids = skill_ids(tools)
    of_one = qualified_names_of_one(((key[0], qualified_id(key), (key[1],)) for key in tools), unknown)
    overridden = {
        key: override_for(overrides, _rule_names(key, ids[key], of_one)) or SkillOverride() for key in tools
    }
    mapped = {
        key: _mapped(
            ready.get(key[0], {}).get(key[1]),
            override_for(route.ready, _rule_names(key, ids[key], of_one)) if route.ready else None,
            tool,
        )
        for key, tool in tools.items()
    }
    served = [key for key in tools if not overridden[key].hidden and key not in held_back]
    own = {key: ids[key] for key in served}
    wanted = {key: overridden[key].id or ids[key] for key in served}
    unique_ids = _unique(own, wanted)
    names = {
        key: _offered_names(key, unique_ids[key], ids[key], of_one, is_whole=not unknown) for key in served
    }
    return Skills(
        tuple(
            _same(known.get(key), tools[key], names[key], ids[key], overridden[key], mapped[key])
            or _skill(tools[key], key, names[key], ids[key], overridden[key], mapped[key])
            for key in served
        ),
        {key: ids[key] for key in tools if overridden[key].hidden},
        {unique_ids[key]: wanted[key] for key in served if unique_ids[key] != wanted[key]},
        route,
        holds_back=any(key in held_back for key in tools),
    )


def _mapped(ready: SkillOverride | None, profile: SkillOverride | None, tool: Tool) -> SkillOverride:
    """What the server's ready mapping and the mapping profile say of a tool; the profile takes precedence. If the
    server says that the tool writes, the ready mapping cannot call it read-only."""
    if ready is None:
        return profile or NO_RULE
    says = tool.annotations
    writes = says.get("readOnlyHint") is False or (
        says.get("destructiveHint") is True and says.get("readOnlyHint") is not True
    )
    if ready.read_only and writes:
        ready = replace(ready, read_only=None)
    return ready if profile is None else merged(ready, profile)


def _rule_names(key: ToolKey, default_id: str, of_one: frozenset[str] = frozenset()) -> RuleNames:
    qualified = frozenset({qualified_id(key)})
    return RuleNames(ids_of(key), frozenset({default_id, key[1]}), qualified, qualified & of_one)


def _offered_names(
    key: ToolKey, skill_id: str, default_id: str, of_one: frozenset[str], *, is_whole: bool
) -> OfferedNames:
    qualified = qualified_id(key)
    others = () if is_whole else (default_id, *((qualified,) if default_id == key[1] else ()))
    later = tuple(name for name in dict.fromkeys(others) if name != skill_id)
    return OfferedNames(skill_id, later, qualified if qualified in of_one else "")


def _unique(own: Mapping[ToolKey, str], wanted: Mapping[ToolKey, str]) -> dict[ToolKey, str]:
    """The ids to assign. Of several tools that want the same id, those whose default id differs get their default
    id."""
    ids = dict(wanted)
    while True:
        counted = Counter(ids.values())
        colliding = [key for key in ids if counted[ids[key]] > 1 and ids[key] != own[key]]
        if not colliding:
            return ids
        for key in colliding:
            ids[key] = own[key]


def _same(
    skill: Skill | None,
    tool: Tool,
    names: OfferedNames,
    default_id: str,
    override: SkillOverride,
    ready: SkillOverride,
) -> Skill | None:
    if skill is None or skill.listed is not tool:
        return None
    now = (names, default_id, override, ready)
    is_same = (skill.names, skill.default_id, skill.override, skill.ready) == now
    return skill if is_same else None


def _skill(
    tool: Tool,
    key: ToolKey,
    names: OfferedNames,
    default_id: str,
    override: SkillOverride,
    ready: SkillOverride,
) -> Skill:
    skill_id = names.name
    seen = overridden(tool, override if override.id == skill_id else replace(override, id=None))
    shown = skill_from(seen, skill_id, key[0], override)
    return Skill(skill_id, key[0], tool, seen, shown, override, default_id, names, ready)


def skill_remarks(
    skills: Skills, options: AgentOptions, overrides: Mapping[str, SkillOverride], *, are_known: bool
) -> tuple[Remark, ...]:
    """The remarks on the configuration. `are_known` says that each server has listed its tools, so that a missing tool
    is a fault."""
    missing = (*_rules_for_nothing(skills, overrides), *_routes_to_nothing(skills, options))
    remarks = (line for skill in skills.skills for line in _on_skill(skill, overrides))
    has_phrases = any(one.phrases for rules in (overrides, skills.route.ready) for one in rules.values())
    on_phrases = _on_phrases(skills, overrides) if has_phrases else ()
    has_examples = any(rule.examples for rule in overrides.values())
    on_examples = _on_examples(skills, options) if has_examples else ()
    has_tools = bool(skills.skills or skills.hidden)
    return (
        *(missing if are_known and has_tools else ()),
        *_on_ids(skills),
        *remarks,
        *on_phrases,
        *on_examples,
    )


def _rules_for_nothing(skills: Skills, overrides: Mapping[str, SkillOverride]) -> Iterator[Remark]:
    ids = {**{skill.key: skill.default_id for skill in skills.skills}, **skills.hidden}
    there = (_rule_names(key, default_id) for key, default_id in ids.items())
    for pattern, words in unmatched_patterns(overrides, there).items():
        yield Remark(("skills", pattern), words, is_of_nothing=True)


def _routes_to_nothing(skills: Skills, options: AgentOptions) -> Iterator[Remark]:
    route = options.route
    if route.default_skill is not None and skills.named(route.default_skill) is None:
        yield Remark(("route", "default_skill"), f"there is no skill {route.default_skill!r}")
    for skill_id, name in route.text_into.items():
        if skill_id not in skills.by_id:
            yield Remark(("route", "text_into"), f"there is no skill {skill_id!r}")
        elif name not in properties_of(skills.tools[skill_id].input_schema):
            yield Remark(("route", "text_into"), f"{skill_id} has no property {name!r}")


def _on_ids(skills: Skills) -> Iterator[Remark]:
    for skill_id, wanted in skills.refused_ids.items():
        words = f"another skill has or wants the id {wanted!r}, so it stays {skill_id!r}"
        yield Remark(("skills", skill_id, "id"), words)


def _on_phrases(skills: Skills, overrides: Mapping[str, SkillOverride]) -> Iterator[Remark]:
    """Remarks on the phrases of the configuration and of the mapping profile. A glob's phrases may be meant for other
    tools."""
    of_profile = {text for rule in skills.route.ready.values() for text in rule.phrases or ()}
    for skill in skills.skills:
        names = ids_of(skill.key)
        if any(overrides[name].phrases for name in names if name in overrides):
            for words in phrase_faults(skill.override.phrases or (), skill.tool):
                yield Remark(("skills", skill.id, "phrases"), words)
        for name in names:
            if name in skills.route.ready:
                for words in phrase_faults(skills.route.ready[name].phrases or (), skill.tool):
                    yield Remark(("route", "phrases", name), words)
    for skill_id, said, others in skills.book.overlaps(of_profile):
        also = ", ".join(others)
        words = f"sentences of the phrase {said.by!r} also fit {also}, so the client is asked which is meant"
        where = ("skills", skill_id, "phrases") if said.origin == "phrase" else ("route", "phrases", skill_id)
        yield Remark(where, words)


def _on_examples(skills: Skills, options: AgentOptions) -> Iterator[Remark]:
    """Remarks on configured examples that the agent does not understand, though its card shows them."""
    for skill in skills.skills:
        for example in skill.override.examples or ():
            call = skills.call_of_example(example, options.route)
            if call is None or call.skill_id != skill.id:
                words = (
                    f"the example {example!r} is no sentence or call of this skill that the agent understands"
                )
                yield Remark(("skills", skill.id, "examples"), words)


def _on_skill(skill: Skill, overrides: Mapping[str, SkillOverride]) -> Iterator[Remark]:
    """Remarks on the rules for one skill. No caller could correct these faults."""
    rules, schema = skill.override.arguments, skill.listed.input_schema
    own = [overrides[name] for name in ids_of(skill.key) if name in overrides]
    if not own and not rules:
        return
    # A glob's rules may be meant for other tools.
    for name in sorted(
        {name for override in own for name in override.arguments} - declared_arguments(schema)
    ):
        yield Remark(("skills", skill.id, "arguments", name), "the tool has no such argument")
    if any(override.reply == "message" for override in own) and not skill.may_be_brief:
        words = "its calls are tasks, since the server does not say that it only reads or can be repeated"
        yield Remark(("skills", skill.id, "reply"), words)
    if not rules:
        return
    for problem in quick_problems_of(skill.tool, with_default_arguments({}, schema, rules)):
        where = ("skills", skill.id, "arguments", problem.name)
        if problem.name in rules and rules[problem.name].default is not ABSENT:
            yield Remark((*where, "default"), problem.message)
        elif is_hidden(problem.name, rules):
            yield Remark(where, NEVER_GIVEN)


def with_routes(options: AgentOptions, skills: Skills) -> AgentOptions:
    """The options with routes for the current skills: with the `text_into` of single skills, and with the current id of
    the default skill. The default skill has no id while another tool may still get it."""
    properties = {skill.id: skill.override.text_into for skill in skills.skills}
    chosen = {skill_id: name for skill_id, name in properties.items() if name is not None}
    wanted = options.route.default_skill
    named_skill = None if wanted is None else skills.named(wanted)
    default = "" if wanted in skills.by_id else wanted
    route = replace(
        options.route,
        text_into={**options.route.text_into, **chosen},
        default_skill=default if named_skill is None else named_skill.id,
    )
    return options if route == options.route else replace(options, route=route)
