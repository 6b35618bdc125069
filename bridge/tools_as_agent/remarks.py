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
    SkillOverride,
    completed,
    declared,
    exact_names,
    is_hidden,
)


def remarks_on(
    skills: Skills, options: AgentOptions, overrides: Mapping[str, SkillOverride], *, are_known: bool
) -> tuple[str, ...]:
    """In words; `are_known` says whether each server has listed its tools, so that what is missing is not there."""
    missing = (*_rules_for_nothing(skills, overrides), *_routes_to_nothing(skills, options))
    found = (line for skill in skills.skills for line in _on_skill(skill, overrides))
    return (*(missing if are_known and skills.skills else ()), *_on_ids(skills), *found)


def _rules_for_nothing(skills: Skills, overrides: Mapping[str, SkillOverride]) -> Iterator[str]:
    there = {name for skill in skills.skills for name in (skill.default_id, skill.tool.name)}
    there |= {
        name for (_, tool_name), default_id in skills.hidden.items() for name in (tool_name, default_id)
    }
    for pattern in sorted(exact_names(overrides) - there):
        yield f"skills.{pattern}: there is no such tool"


def _routes_to_nothing(skills: Skills, options: AgentOptions) -> Iterator[str]:
    route = options.route
    if route.default_skill is not None and route.default_skill not in skills.by_id:
        yield f"route.default_skill: there is no skill {route.default_skill!r}"
    for skill_id, name in route.text_into.items():
        if skill_id not in skills.by_id:
            yield f"route.text_into: there is no skill {skill_id!r}"
        elif name not in properties_of(skills.tools[skill_id].input_schema):
            yield f"route.text_into: {skill_id} has no property {name!r}"


def _on_ids(skills: Skills) -> Iterator[str]:
    for skill_id, wanted in skills.refused_ids.items():
        yield f"skills.{skill_id}.id: another skill has or wants the id {wanted!r}, so it stays {skill_id!r}"


def _on_skill(skill: Skill, overrides: Mapping[str, SkillOverride]) -> Iterator[str]:
    """Faults in what is said of one skill: no call could mend them."""
    rules, schema = skill.override.arguments, skill.listed.input_schema
    own = [overrides[name] for name in {skill.default_id, skill.tool.name} if name in overrides]
    if not own and not rules:
        return
    # What a glob says may be meant for others.
    for name in sorted({name for override in own for name in override.arguments} - declared(schema)):
        yield f"skills.{skill.id}.arguments.{name}: the tool has no such argument"
    if any(override.reply == "message" for override in own) and not skill.may_be_brief:
        yield (
            f"skills.{skill.id}.reply: calls of it are tasks, since its server does not say that it only reads or can"
            " be repeated"
        )
    if not rules:
        return
    for problem in problems_of(skill.tool, completed({}, schema, rules)):
        if problem.name in rules and rules[problem.name].default is not ABSENT:
            yield f"skills.{skill.id}.arguments.{problem.name}.default: {problem.message}"
        elif is_hidden(problem.name, rules):
            yield (
                f"skills.{skill.id}.arguments.{problem.name}: it is hidden and required, and has no default, so that"
                " no call can succeed"
            )
