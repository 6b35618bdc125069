"""The tools of an MCP server made of agents: the agents' skills, with the configured names and descriptions. Pure.

Names are assigned first, so that hiding one tool never changes the name of another. A configured name is used only if
hosts accept it and no other tool has it or is configured to have it: a call must never reach a skill that was not
meant.

Skills of two agents with the same name get tool names with the agent as prefix, so a name depends on which cards are
known. The rules of the configuration and the rights of principals hold whichever cards are known: see `RuleNames` and
`OfferedNames`.

Agents come and go, so a rule that fits no skill is not an error. The bridge reports the rule, and serves the other
tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from bridge.identity.callers.principals import OfferedNames
from bridge.mcp.tools import tools_from
from bridge.text.jsonvalues import JsonObject
from bridge.translate.arguments import quick_problems_of
from bridge.translate.overrides import (
    ABSENT,
    NEVER_GIVEN,
    Remark,
    RuleNames,
    ToolOverride,
    declared_arguments,
    is_hidden,
    override_for,
    qualified_names_of_one,
    shown_schema,
    unmatched_patterns,
    with_default_arguments,
)
from bridge.translate.skill_tools import AgentTool
from bridge.translate.tool_names import RESERVED, hosts_accept, slug

_NO_RULE: Final = ToolOverride()

SkillKey = tuple[str, str | None]
"""Identifies a tool independently of its name: the key of its agent, and the id of its skill."""


@dataclass(frozen=True, slots=True, eq=False)
class PublishedTool:
    """A tool as hosts see it, and its rules from the configuration."""

    tool: AgentTool
    default_name: str
    """The tool's name unless the configuration gives another."""
    override: ToolOverride
    names: OfferedNames
    """The names to which rights apply."""

    @property
    def name(self) -> str:
        """The name that hosts see."""
        return self.tool.name

    @property
    def agent_key(self) -> str:
        """The key of its agent."""
        return self.tool.source_key

    @property
    def skill_id(self) -> str | None:
        """The id of its skill; None for an agent as a whole."""
        return self.tool.skill_id

    @property
    def listed(self) -> JsonObject:
        """The tool as tools/list or find_skill shows it."""
        return self.tool.listed

    @property
    def key(self) -> SkillKey:
        """Identifies the tool, independently of its name."""
        return self.agent_key, self.skill_id


@dataclass(frozen=True, eq=False)
class Tools:
    """All tools of an MCP server made of agents, in the order of the agents and their cards."""

    published: tuple[PublishedTool, ...] = ()
    hidden: tuple[AgentTool, ...] = ()
    """The tools that are neither listed nor callable, under the names that they would have."""
    refused_names: Mapping[str, str] = field(default_factory=dict)
    """The configured names that could not be used, by the default names of their tools."""

    @cached_property
    def by_name(self) -> Mapping[str, PublishedTool]:
        """The tools by the names that hosts see."""
        return {tool.name: tool for tool in self.published}

    def names_of(self, name: str) -> OfferedNames:
        """The names, to which rights apply, of the tool that hosts see under this name."""
        tool = self.by_name.get(name)
        return OfferedNames(name) if tool is None else tool.names


def published_tools(
    tools: Sequence[AgentTool], overrides: Mapping[str, ToolOverride], unknown: Collection[str] = ()
) -> Tools:
    """The tools as hosts see them. `tools` are all tools, under their default names. `unknown` are the keys of agents
    and catalogs that were never read: their skills may still force an agent prefix on a name."""
    unclear = tuple(slug(key) for key in unknown)
    things = ((slug(tool.source_key), tool.qualified, _own_names(tool)) for tool in tools)
    of_one = qualified_names_of_one(things, unclear)
    overridden = {tool.name: _override_of(tool, overrides, of_one) for tool in tools}
    served = [tool for tool in tools if not overridden[tool.name].hidden]
    wanted = {tool.name: overridden[tool.name].name or tool.name for tool in served}
    names = _assigned_names(wanted)
    return Tools(
        tuple(
            PublishedTool(
                _with_override(tool, names[tool.name], overridden[tool.name]),
                tool.name,
                overridden[tool.name],
                _offered_names(tool, names[tool.name], of_one, is_whole=not unknown),
            )
            for tool in served
        ),
        tuple(tool for tool in tools if overridden[tool.name].hidden),
        {name: wish for name, wish in wanted.items() if names[name] != wish},
    )


def _own_names(tool: AgentTool) -> frozenset[str]:
    """A tool's own names, and the name that is shown."""
    return frozenset(filter(None, (tool.name, tool.skill_id, tool.every_name[-1])))


def _override_of(
    tool: AgentTool, overrides: Mapping[str, ToolOverride], of_one: frozenset[str]
) -> ToolOverride:
    if not overrides:
        return _NO_RULE
    return override_for(overrides, _rule_names(tool, of_one)) or _NO_RULE


def _rule_names(tool: AgentTool, of_one: frozenset[str] = frozenset()) -> RuleNames:
    every = tuple(dict.fromkeys(filter(None, (*tool.every_name, tool.skill_id, *tool.far_names))))
    qualified = frozenset((tool.qualified, *tool.far_names[:1]))
    return RuleNames(every, _own_names(tool), qualified, of_one & {tool.qualified})


def _offered_names(tool: AgentTool, name: str, of_one: frozenset[str], *, is_whole: bool) -> OfferedNames:
    others = () if is_whole else (tool.name, *((tool.qualified,) if tool.name == tool.every_name[-1] else ()))
    later = tuple(other for other in dict.fromkeys(others) if other != name)
    return OfferedNames(name, later, tool.qualified if tool.qualified in of_one else "")


def _assigned_names(wanted: Mapping[str, str]) -> dict[str, str]:
    """The names to assign, by default names. Of several tools that want the same name, those whose default name differs
    get their default name."""
    names = {own: wish if may_be_tool_name(wish) else own for own, wish in wanted.items()}
    while True:
        counted = Counter(names.values())
        colliding = [own for own, name in names.items() if counted[name] > 1 and name != own]
        if not colliding:
            return names
        for own in colliding:
            names[own] = own


def may_be_tool_name(name: str) -> bool:
    """Whether a tool may have this name."""
    return hosts_accept(name) and name not in RESERVED


def _with_override(tool: AgentTool, name: str, override: ToolOverride) -> AgentTool:
    words = {"name": name, "title": override.title, "description": override.description}
    changes: JsonObject = {key: word for key, word in words.items() if word is not None}
    if override.arguments:
        schema = tool.listed["inputSchema"]
        assert isinstance(schema, dict)
        changes["inputSchema"] = shown_schema(schema, override.arguments)
    if all(tool.listed.get(key) == value for key, value in changes.items()):
        return tool
    return replace(tool, name=name, listed={**tool.listed, **changes})


def tool_remarks(
    tools: Tools, overrides: Mapping[str, ToolOverride], *, are_known: bool
) -> tuple[Remark, ...]:
    """The remarks on the configuration. `are_known` says that each card was read, so that a missing skill is a
    fault."""
    missing = _rules_for_nothing(tools, overrides) if are_known else ()
    remarks = (line for tool in tools.published for line in _on_arguments(tool, overrides))
    return (*missing, *_on_names(tools), *remarks)


def _rules_for_nothing(tools: Tools, overrides: Mapping[str, ToolOverride]) -> Iterator[Remark]:
    agent_tools = (*(published.tool for published in tools.published), *tools.hidden)
    there = (_rule_names(tool) for tool in agent_tools)
    for pattern, words in unmatched_patterns(overrides, there).items():
        yield Remark(("tools", pattern), words, is_of_nothing=True)


def _on_names(tools: Tools) -> Iterator[Remark]:
    for own, wish in tools.refused_names.items():
        if wish in RESERVED:
            why = f"{wish!r} is the name of a tool of the bridge"
        elif not hosts_accept(wish):
            why = f"hosts refuse the name {wish!r} (they take 1 to 64 of A-Z, a-z, 0-9, _ and -)"
        else:
            why = f"another tool has or wants the name {wish!r}"
        yield Remark(("tools", own, "name"), f"{why}, so it stays {own!r}")


def _on_arguments(tool: PublishedTool, overrides: Mapping[str, ToolOverride]) -> Iterator[Remark]:
    """Remarks on the rules for the arguments of one tool. No caller could correct these faults."""
    rules, schema = tool.override.arguments, tool.tool.input_schema
    if not rules:
        return
    for name in sorted(_named_exactly(tool, overrides) - declared_arguments(schema)):
        yield Remark(("tools", tool.default_name, "arguments", name), "the tool has no such argument")
    # Always a schema: a tool without a usable one is not listed.
    for problem in quick_problems_of(
        tools_from([{"name": tool.name, "inputSchema": schema}])[0][0],
        with_default_arguments({}, schema, rules),
    ):
        where = ("tools", tool.default_name, "arguments", problem.name)
        if problem.name in rules and rules[problem.name].default is not ABSENT:
            yield Remark((*where, "default"), problem.message)
        elif is_hidden(problem.name, rules):
            yield Remark(where, NEVER_GIVEN)


def _named_exactly(tool: PublishedTool, overrides: Mapping[str, ToolOverride]) -> frozenset[str]:
    """The arguments in rules for exactly this tool. Arguments in a glob's rules may be meant for other tools."""
    own = [overrides[name] for name in _rule_names(tool.tool).every if name in overrides]
    return frozenset(name for override in own for name in override.arguments)
