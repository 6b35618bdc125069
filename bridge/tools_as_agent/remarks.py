"""What in the configuration of an agent does nothing, or cannot be done, with the tools that there are. Pure.

Tools come and go, so that none of this is an error: it is said, and the agent is served.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bridge.tools_as_agent.options import AgentOptions
from bridge.tools_as_agent.skills import Skill, Skills
from bridge.translate.arguments import problems_of, properties_of
from bridge.translate.overrides import (
    ABSENT,
    NEVER_GIVEN,
    Remark,
    SkillOverride,
    declared_arguments,
    is_hidden,
    unmatched_patterns,
    with_default_arguments,
)


def skill_remarks(
    skills: Skills, options: AgentOptions, overrides: Mapping[str, SkillOverride], *, are_known: bool
) -> tuple[Remark, ...]:
    """All of it; `are_known` says whether each server has listed its tools, so that what is missing is not there."""
    missing = (*_rules_for_nothing(skills, overrides), *_routes_to_nothing(skills, options))
    found = (line for skill in skills.skills for line in _on_skill(skill, overrides))
    has_tools = bool(skills.skills or skills.hidden)
    return (*(missing if are_known and has_tools else ()), *_on_ids(skills), *found)


def _rules_for_nothing(skills: Skills, overrides: Mapping[str, SkillOverride]) -> Iterator[Remark]:
    there = {name for skill in skills.skills for name in (skill.default_id, skill.tool.name)}
    there |= {
        name for (_, tool_name), default_id in skills.hidden.items() for name in (tool_name, default_id)
    }
    for pattern, words in unmatched_patterns(overrides, there).items():
        yield Remark(("skills", pattern), words, is_of_nothing=True)


def _routes_to_nothing(skills: Skills, options: AgentOptions) -> Iterator[Remark]:
    route = options.route
    if route.default_skill is not None and route.default_skill not in skills.by_id:
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


def _on_skill(skill: Skill, overrides: Mapping[str, SkillOverride]) -> Iterator[Remark]:
    """Faults in what is said of one skill: no call could mend them."""
    rules, schema = skill.override.arguments, skill.listed.input_schema
    own = [overrides[name] for name in {skill.default_id, skill.tool.name} if name in overrides]
    if not own and not rules:
        return
    # What a glob says may be meant for others.
    for name in sorted(
        {name for override in own for name in override.arguments} - declared_arguments(schema)
    ):
        yield Remark(("skills", skill.id, "arguments", name), "the tool has no such argument")
    if any(override.reply == "message" for override in own) and not skill.may_be_brief:
        words = "calls of it are tasks, since its server does not say that it only reads or can be repeated"
        yield Remark(("skills", skill.id, "reply"), words)
    if not rules:
        return
    for problem in problems_of(skill.tool, with_default_arguments({}, schema, rules)):
        where = ("skills", skill.id, "arguments", problem.name)
        if problem.name in rules and rules[problem.name].default is not ABSENT:
            yield Remark((*where, "default"), problem.message)
        elif is_hidden(problem.name, rules):
            yield Remark(where, NEVER_GIVEN)
