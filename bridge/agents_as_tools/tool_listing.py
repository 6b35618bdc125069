"""What an MCP server made of agents lists: the agents' skills as tools, their cards as resources, their examples as
prompts.

A listing is immutable. When a card or the configuration changes, a new listing is made, so a reader always sees a
consistent listing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from bridge.a2a.client.http import redacted_url
from bridge.agents_as_tools.handles import tool_mark
from bridge.agents_as_tools.mcp_requests.shared_servers import (
    NOTHING_SHARED,
    SharedServers,
    shared_servers,
)
from bridge.agents_as_tools.options import FaceOptions
from bridge.agents_as_tools.resources import card_resource
from bridge.agents_as_tools.tools import PublishedTool, Tools, published_tools, tool_remarks
from bridge.identity.callers.principals import MayUse, OfferedNames, may_use_everything
from bridge.mcp.tools import UnservableTool
from bridge.remotes.remote_agent import RemoteAgent
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import web_link, without_hidden_characters
from bridge.translate.extensions.apps import with_app_link
from bridge.translate.overrides import Remark, ToolOverride
from bridge.translate.skill_tools import AgentTool, ToolSource, listed_tools, skills_by_id, tools_of_agents

Example = tuple[PublishedTool, str]
"""A tool, and an example of its skill."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """The title, instructions and other descriptions of an MCP server."""

    title: str | None = None
    instructions: str | None = None
    website_url: str | None = None
    icon_url: str | None = None


@dataclass(frozen=True, eq=False)
class FaceListing:
    """Everything that an MCP server made of agents lists."""

    agents: Mapping[str, RemoteAgent] = field(default_factory=dict)
    """The agents by key, in their order."""
    tools: Tools = field(default_factory=Tools)
    listed: tuple[JsonObject, ...] = ()
    """The tools as tools/list shows them, including the bridge's own tools."""
    resources: Mapping[str, JsonObject] = field(default_factory=dict)
    """The agents' cards by their keys, as resources/list shows them."""
    examples: Mapping[str, Example] = field(default_factory=dict)
    """The examples by the names of their prompts. An agent that shares prompts has its own prompts instead."""
    introduction: Introduction = field(default_factory=Introduction)
    unknown: tuple[str, ...] = ()
    """The keys of the agents and catalogs whose skills are unknown."""
    remarks: tuple[Remark, ...] = ()
    shared: SharedServers = NOTHING_SHARED
    """The MCP servers that the agents share."""

    @cached_property
    def by_mark(self) -> Mapping[str, RemoteAgent]:
        """The agents by their marks in handles. Of two agents with the same mark, the first counts."""
        return {agent.mark: agent for agent in reversed(tuple(self.agents.values()))}

    @cached_property
    def caller_issuers(self) -> Mapping[str, str]:
        """The issuers from which callers need a token, by the names of the tools that need one."""
        issuers = ((tool.name, self.agents[tool.agent_key].caller_issuer) for tool in self.tools.published)
        return {name: issuer for name, issuer in issuers if issuer is not None}

    def names_by_mark(self, mark: str, tool: str) -> OfferedNames | None:
        """The names, to which rights apply, of the tool with these marks; None without such a tool."""
        if (published := self.published_by_mark(mark, tool)) is not None:
            return published.names
        hidden = self._by_marks.get((mark, tool))
        return None if hidden is None else OfferedNames(hidden.name)

    def find(self, mark: str, tool: str) -> tuple[RemoteAgent, AgentTool | None] | None:
        """The agent and the tool with these marks. The tool is found even when it is hidden or was renamed."""
        agent = self.by_mark.get(mark)
        return None if agent is None else (agent, self._by_marks.get((mark, tool)))

    def published_by_mark(self, mark: str, tool: str) -> PublishedTool | None:
        """The tool with these marks, if it is offered."""
        agent_tool = self.find(mark, tool)
        return next(
            (
                published
                for published in self.tools.published
                if agent_tool and published.tool is agent_tool[1]
            ),
            None,
        )

    def tools_for(self, may_use: MayUse, *, with_apps: bool = False) -> list[JsonObject]:
        """The tools as tools/list shows them to a caller. The bridge's own tools are for everyone. `with_apps` includes
        the tools that only apps may call."""
        return [
            tool for tool in self.listed if self._is_shown(str(tool["name"]), may_use, with_apps=with_apps)
        ]

    def _is_shown(self, name: str, may_use: MayUse, *, with_apps: bool) -> bool:
        published = self.tools.by_name.get(name)
        if published is None:
            return True
        return may_use(published.names) and (with_apps or not published.tool.is_for_apps)

    @cached_property
    def _listed_by_name(self) -> Mapping[str, JsonObject]:
        return {str(tool["name"]): tool for tool in self.listed}

    def tool_for(self, name: str, may_use: MayUse, *, with_apps: bool = False) -> JsonObject | None:
        """The tool of this name as tools/list shows it; None where `tools_for` leaves it out."""
        is_shown = self._is_shown(name, may_use, with_apps=with_apps)
        return self._listed_by_name.get(name) if is_shown else None

    def cards_for(self, may_use: MayUse) -> Mapping[str, JsonObject]:
        """The cards of the agents with at least one tool that a caller may use, by key, as resources/list shows
        them."""
        unusable = {tool.agent_key for tool in self.tools.published}
        unusable -= {tool.agent_key for tool in self.tools.published if may_use(tool.names)}
        return {key: card for key, card in sorted(self.resources.items()) if key not in unusable}

    def skills_for(self, key: str, may_use: MayUse) -> frozenset[str] | None:
        """The ids of an agent's skills that a caller may see; None for all. A caller that may use only some of the
        tools sees no skill without a tool."""
        tools = [tool for tool in self.tools.published if tool.agent_key == key]
        seen = [tool.skill_id for tool in tools if may_use(tool.names)]
        if len(seen) == len(tools):
            return None
        return frozenset(skill for skill in seen if skill is not None)

    def prompts_for(self, may_use: MayUse) -> list[JsonObject]:
        """The examples, as prompts/list shows them to a caller."""
        return [
            {
                "name": name,
                "title": f"{tool.listed.get('title') or tool.name}: an example",
                "description": example,
            }
            for name, (tool, example) in sorted(self.examples.items())
            if may_use(tool.names)
        ]

    def looks_like(self, other: FaceListing) -> bool:
        """Whether hosts see the same in both listings."""
        return self._seen == other._seen

    @property
    def _seen(self) -> tuple[object, ...]:
        return (
            self.introduction,
            self.listed,
            self.resources,
            self.prompts_for(may_use_everything),
            self.shared,
        )

    @cached_property
    def _by_marks(self) -> Mapping[tuple[str, str], AgentTool]:
        tools = (*(published.tool for published in self.tools.published), *self.tools.hidden)
        return {
            (self.agents[tool.source_key].mark, tool_mark(tool.skill_id)): tool for tool in reversed(tools)
        }


def listing_of(
    agents: Sequence[RemoteAgent],
    options: FaceOptions,
    overrides: Mapping[str, ToolOverride],
    unread: Collection[str] = (),
) -> FaceListing:
    """The listing of these agents, from their known cards. Sets the key of each agent. `unread` are the keys of the
    catalogs that were never read."""
    by_key = _keyed(agents)
    known = {key: agent for key, agent in by_key.items() if agent.has_card}
    unreadable: list[tuple[str, UnservableTool]] = []
    sources = [ToolSource(key, agent.card) for key, agent in known.items()]
    agent_tools = tools_of_agents(sources, options.rules, unreadable)
    unknown = (*unread, *(key for key, agent in by_key.items() if not agent.is_settled))
    shared = shared_servers(
        ((key, agent.card) for key, agent in known.items()),
        is_only=options.names_one_agent and len(by_key) == 1,
    )
    tools = published_tools([_linked(tool, shared) for tool in agent_tools], overrides, unknown)
    with_prompts = {server.agent_key for server in shared.with_capability("prompts")}
    return FaceListing(
        by_key,
        tools,
        listed_tools(
            [published.tool for published in tools.published],
            options.rules,
            follow_up_tools=options.agents.follow_up_tools,
            longest_wait_seconds=options.agents.follow_up_seconds,
            gives_pages=options.agents.preview_bytes > 0,
        ),
        {key: card_resource(agent) for key, agent in known.items()},
        _examples(tools, {key: agent for key, agent in known.items() if key not in with_prompts}),
        _introduction(options, tuple(by_key.values())),
        unknown,
        (
            *_on_skills_left_out(known, options.agents.skills_most),
            *_on_unreadable(tools, unreadable),
            *tool_remarks(tools, overrides, are_known=bool(agents) and not unknown),
        ),
        shared,
    )


def _linked(tool: AgentTool, shared: SharedServers) -> AgentTool:
    """A tool whose app, and whose results, link to resources as hosts can read them."""
    server = shared.of_tool(tool.source_key, tool.server)
    listed = with_app_link(tool.listed, None if server is None else server.shown_uri)
    shown_uri = server.shown_uri if server is not None and server.uri_prefix else None
    if listed is tool.listed and shown_uri is None:
        return tool
    return replace(tool, listed=listed, shown_uri=shown_uri)


def _on_skills_left_out(agents: Mapping[str, RemoteAgent], most: int) -> Iterator[Remark]:
    for key, agent in agents.items():
        if (count := len(agent.card.skills)) > most:
            first = "first" if most == 1 else f"first {most}"
            words = (
                f"{key} has {count} skills, and only the {first} can be called: `skills_most` is the limit"
            )
            yield Remark(("from",), words)


def _on_unreadable(tools: Tools, unreadable: Sequence[tuple[str, UnservableTool]]) -> Iterator[Remark]:
    """Remarks on what is left out because some hosts would refuse all tools because of it."""
    for key, tool in unreadable:
        yield Remark(("from",), f"{key}: the tool {tool.name} is left out: {tool.reason}")
    for published in tools.published:
        for words in published.tool.notes:
            yield Remark(
                ("from",), f"{published.agent_key}: the tool {published.name} is shown only in part: {words}"
            )


def _keyed(agents: Sequence[RemoteAgent]) -> dict[str, RemoteAgent]:
    """The agents by their keys. Equal keys are numbered; agents with a configured key come first."""
    taken: set[str] = set()
    for agent in sorted(agents, key=lambda agent: not agent.has_own_key):
        key = wanted = agent.wanted_key
        number = 2
        while key in taken:
            key, number = f"{wanted}_{number}", number + 1
        agent.key = key
        taken.add(key)
    return {agent.key: agent for agent in agents}


def _introduction(options: FaceOptions, agents: Sequence[RemoteAgent]) -> Introduction:
    cards = [agent.card for agent in agents if agent.has_card]
    only = cards[0] if len(cards) == len(agents) == 1 else None
    unknown = [
        f"{agent.key}: the agent at {redacted_url(agent.url)}, whose card could not be read yet"
        for agent in agents
        if not agent.has_card
    ]
    introduction = "\n\n".join([*(f"{card.name}: {card.description}" for card in cards), *unknown])
    return Introduction(
        options.title or (without_hidden_characters(only.name) if only else None),
        options.instructions or without_hidden_characters(introduction) or None,
        web_link(only.documentation_url) if only else None,
        web_link(only.icon_url) if only else None,
    )


def _examples(tools: Tools, agents: Mapping[str, RemoteAgent]) -> dict[str, Example]:
    skills = {key: skills_by_id(agent.card) for key, agent in agents.items()}
    return {
        f"{tool.name}_{number}": (tool, without_hidden_characters(example))
        for tool in tools.published
        if tool.skill_id is not None and not tool.tool.is_for_apps and tool.agent_key in skills
        for number, example in enumerate(skills[tool.agent_key][tool.skill_id].examples or (), 1)
    }
