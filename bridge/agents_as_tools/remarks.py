"""What in the configuration of a face does nothing, or cannot be done, with the skills that there are. Pure.

Skills come and go, so that none of this is an error: it is said, and the face is served.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bridge.agents_as_tools.tools import PublishedTool, Tools
from bridge.mcp.tools import tools_from
from bridge.translate.arguments import problems_of
from bridge.translate.names import RESERVED, hosts_take
from bridge.translate.overrides import (
    ABSENT,
    NEVER_GIVEN,
    Remark,
    ToolOverride,
    declared_arguments,
    is_hidden,
    unmatched_patterns,
    with_default_arguments,
)


def tool_remarks(
    tools: Tools, overrides: Mapping[str, ToolOverride], *, are_known: bool
) -> tuple[Remark, ...]:
    """All of it; `are_known` says whether each agent's card has been read, so that what is missing is not there."""
    missing = _rules_for_nothing(tools, overrides) if are_known else ()
    found = (line for tool in tools.published for line in _on_arguments(tool, overrides))
    return (*missing, *_on_names(tools), *found)


def _rules_for_nothing(tools: Tools, overrides: Mapping[str, ToolOverride]) -> Iterator[Remark]:
    there = {name for one in tools.published for name in (one.default_name, one.skill_id)}
    there |= {name for tool in tools.hidden for name in (tool.name, tool.skill_id)}
    for pattern, words in unmatched_patterns(overrides, filter(None, there)).items():
        yield Remark(("tools", pattern), words, is_of_nothing=True)


def _on_names(tools: Tools) -> Iterator[Remark]:
    for own, wish in tools.refused_names.items():
        if wish in RESERVED:
            why = f"{wish!r} is the name of a tool of the bridge"
        elif not hosts_take(wish):
            why = f"hosts refuse the name {wish!r} (they take 1 to 64 of A-Z, a-z, 0-9, _ and -)"
        else:
            why = f"another tool has or wants the name {wish!r}"
        yield Remark(("tools", own, "name"), f"{why}, so it stays {own!r}")


def _on_arguments(one: PublishedTool, overrides: Mapping[str, ToolOverride]) -> Iterator[Remark]:
    """Faults in what is said of the arguments of one tool: no call could mend them."""
    rules, schema = one.override.arguments, one.tool.input_schema
    if not rules:
        return
    for name in sorted(_named_exactly(one, overrides) - declared_arguments(schema)):
        yield Remark(("tools", one.default_name, "arguments", name), "the tool has no such argument")
    # Always one: it is listed, and so are tools only whose schemas can be used.
    for problem in problems_of(
        tools_from([{"name": one.name, "inputSchema": schema}])[0][0],
        with_default_arguments({}, schema, rules),
    ):
        where = ("tools", one.default_name, "arguments", problem.name)
        if problem.name in rules and rules[problem.name].default is not ABSENT:
            yield Remark((*where, "default"), problem.message)
        elif is_hidden(problem.name, rules):
            yield Remark(where, NEVER_GIVEN)


def _named_exactly(one: PublishedTool, overrides: Mapping[str, ToolOverride]) -> frozenset[str]:
    """The arguments that a rule for this tool alone speaks of; a glob's may be meant for others."""
    own = [overrides[name] for name in (one.default_name, one.skill_id or "") if name in overrides]
    return frozenset(name for override in own for name in override.arguments)
