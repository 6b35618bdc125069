"""Implements `bridge.mcp.serving.ToolFace` over remote agents: what is listed, and who is called.

Lists are made of the agents' cards as they are known, and never wait for an agent. An agent that is down keeps
the tools of its last card; without one it has a single tool, which says what is wrong.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import anyio
import anyio.abc

from bridge import __version__
from bridge.agents_as_tools.call import AgentCall
from bridge.agents_as_tools.follow_up import FollowUp
from bridge.agents_as_tools.handles import Handles
from bridge.agents_as_tools.mcp_tasks import McpTasks
from bridge.agents_as_tools.options import FaceOptions
from bridge.agents_as_tools.remote_agent import RemoteAgent, read_cards
from bridge.agents_as_tools.resources import TEMPLATE, card_resource, read_card, read_part
from bridge.agents_as_tools.sending import Unnamed
from bridge.agents_as_tools.surroundings import Surroundings
from bridge.errors import PeerError
from bridge.jsonvalues import JsonObject
from bridge.mcp.serving import INTERNAL_ERROR, INVALID_PARAMS, Incoming, McpRefusal
from bridge.seal import HandleError
from bridge.translate.call_to_message import BadArgumentsError
from bridge.translate.skill_tools import AgentTool, Source, find_skills, listing, tools_of_agents

logger = logging.getLogger(__name__)

_FOLLOW_UPS: Final = frozenset({"task_result", "task_reply", "task_cancel"})
_FOUND: Final = 10
"""Skills that find_skill gives unless it is asked for another number."""


class AgentsFace:
    """The tools of some agents. Entered to be served."""

    def __init__(self, agents: Sequence[RemoteAgent], handles: Handles, options: FaceOptions) -> None:
        self._in_order = tuple(agents)
        self._agents: dict[str, RemoteAgent] = {}
        self._by_mark = {agent.mark: agent for agent in agents}
        self._handles = handles
        self._options = options
        self._around: Surroundings | None = None
        self._tasks: McpTasks | None = None
        self._tools: dict[str, AgentTool] = {}
        self._listed: tuple[JsonObject, ...] = ()
        self._list()

    @property
    def name(self) -> str:
        """What it calls itself."""
        return self._options.name

    @property
    def version(self) -> str:
        """Its version: ours, as the agents have each their own."""
        return __version__

    @property
    def title(self) -> str | None:
        """The agent's name, when there is one agent."""
        return next(iter(self._agents.values())).card.name if len(self._agents) == 1 else None

    @property
    def instructions(self) -> str | None:
        """What the agents say of themselves."""
        return "\n\n".join(f"{agent.card.name}: {agent.card.description}" for agent in self._agents.values())

    @property
    def website_url(self) -> str | None:
        """The documentation of the only agent."""
        return next(iter(self._agents.values())).card.documentation_url if len(self._agents) == 1 else None

    @property
    def icons(self) -> Sequence[JsonObject]:
        """The icon of the only agent."""
        icon = next(iter(self._agents.values())).card.icon_url if len(self._agents) == 1 else None
        return ({"src": icon},) if icon else ()

    @asynccontextmanager
    async def run(
        self, on_change: Callable[[], None], first_cards_seconds: float
    ) -> AsyncIterator[AgentsFace]:
        """Read the cards and keep them fresh; `on_change` is called when the tools have changed.

        What is remembered of an agent is listed at once; the start waits for the others only so long.
        """
        agents = self._in_order
        for agent in agents:
            try:
                agent.use_what_is_remembered()
            except PeerError as exc:
                logger.warning("%s: %s", agent.key, exc)

        def changed() -> None:
            self._list()
            on_change()

        async with anyio.create_task_group() as group:
            self._around = Surroundings(self._handles, self._options, group, Unnamed())
            self._tasks = McpTasks(self._around, self._found)
            await read_cards([agent for agent in agents if agent.down is not None], first_cards_seconds)
            self._list()
            for agent in agents:
                group.start_soon(agent.watch, changed)
            try:
                yield self
            finally:
                group.cancel_scope.cancel()

    @property
    def tasks(self) -> McpTasks | None:
        """The calls that became tasks, once this is entered."""
        return self._tasks

    def tools(self) -> Sequence[JsonObject]:
        """See `ToolFace.tools`."""
        return self._listed

    def resources(self) -> Sequence[JsonObject]:
        """The agents' cards."""
        return [card_resource(agent) for _, agent in sorted(self._agents.items())]

    def templates(self) -> Sequence[JsonObject]:
        """Where the parts are that are too large for a result."""
        return (TEMPLATE,)

    def prompts(self) -> Sequence[JsonObject]:
        """The examples of the skills."""
        return [
            {
                "name": name,
                "title": f"{tool.listed.get('title') or tool.name}: an example",
                "description": example,
            }
            for name, (tool, example) in sorted(self._examples().items())
        ]

    async def call(self, incoming: Incoming) -> JsonObject:
        """See `ToolFace.call`."""
        try:
            if incoming.name in _FOLLOW_UPS and self._options.follow_up_tools:
                return await self._follow_up(incoming)
            if self._options.rules.granularity == "search":
                return await self._search(incoming)
            return await self._call(incoming.name, incoming)
        except (PeerError, BadArgumentsError) as exc:
            return {"content": [{"type": "text", "text": str(exc)}], "isError": True}

    async def read(self, uri: str, principal: str) -> JsonObject:
        """See `ToolFace.read`."""
        for agent in self._agents.values():
            if uri == card_resource(agent)["uri"]:
                return read_card(agent, uri)
        try:
            return await read_part(uri, self._by_mark, self._handles, principal)
        except PeerError as exc:
            raise McpRefusal(INTERNAL_ERROR, str(exc)) from exc

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> JsonObject:  # noqa: ARG002 - ours take none
        """See `ToolFace.prompt`."""
        found = self._examples().get(name)
        if found is None:
            raise McpRefusal(INVALID_PARAMS, f"There is no prompt {name[:200]}")
        text = f"Use the tool {found[0].name}: {found[1]}"
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}

    def _found(self, mark: str, name: str) -> tuple[RemoteAgent, AgentTool | None] | None:
        """The agent with a mark, and its tool of this name."""
        agent, tool = self._by_mark.get(mark), self._tools.get(name)
        if agent is None:
            return None
        return agent, tool if tool and tool.source_key == agent.key else None

    def _list(self) -> None:
        """Take over what the agents' cards now say. An agent is called what its card calls it, numbered where
        others are called so too."""
        self._agents = {}
        for agent in self._in_order:
            key = wanted = agent.wanted_key
            number = 2
            while key in self._agents:
                key, number = f"{wanted}_{number}", number + 1
            agent.key = key
            self._agents[key] = agent
        sources = [Source(agent.key, agent.card) for agent in self._agents.values()]
        tools = tools_of_agents(sources, self._options.rules)
        self._tools = {tool.name: tool for tool in tools}
        self._listed = listing(tools, self._options.rules, follow_up_tools=self._options.follow_up_tools)

    def _examples(self) -> dict[str, tuple[AgentTool, str]]:
        """The examples of the skills by the names of their prompts."""
        examples: dict[str, tuple[AgentTool, str]] = {}
        for tool in self._tools.values():
            skills = self._agents[tool.source_key].card.skills
            for skill in skills:
                if skill.id == tool.skill_id:
                    for number, example in enumerate(skill.examples or (), 1):
                        examples[f"{tool.name}_{number}"] = (tool, example)
        return examples

    async def _call(self, name: str, incoming: Incoming) -> JsonObject:
        tool = self._tools.get(name)
        if tool is None:
            raise McpRefusal(INVALID_PARAMS, f"Unknown tool: {name[:200]}")
        assert self._around is not None
        return await AgentCall(self._agents[tool.source_key], tool, incoming, self._around)()

    async def _search(self, incoming: Incoming) -> JsonObject:
        arguments = incoming.arguments
        if incoming.name == "call_skill":
            name, given = arguments.get("skill"), arguments.get("arguments", {})
            if not isinstance(name, str) or not isinstance(given, dict):
                raise BadArgumentsError("skill: the name of one that find_skill gave; arguments: an object")
            tool = self._tools.get(name)
            if tool is None:
                raise BadArgumentsError(f"There is no skill {name[:200]!r}; find_skill gives their names")
            assert self._around is not None
            inner = replace(incoming, name=name, arguments=given)
            return await AgentCall(self._agents[tool.source_key], tool, inner, self._around)()
        query, limit = arguments.get("query", ""), arguments.get("limit", _FOUND)
        if not isinstance(query, str) or not isinstance(limit, int):
            raise BadArgumentsError("query: what the skill should do, in words; limit: a number")
        found = find_skills(list(self._tools.values()), query, limit)
        structured: JsonObject = {"skills": [tool.listed for tool in found]}
        lines = [f"{tool.name}: {tool.listed.get('description', '')}" for tool in found] or [
            "No skill was found."
        ]
        return {"content": [{"type": "text", "text": "\n".join(lines)}], "structuredContent": structured}

    async def _follow_up(self, incoming: Incoming) -> JsonObject:
        handle = incoming.arguments.get("handle")
        try:
            far = self._handles.task(handle if isinstance(handle, str) else "", incoming.principal)
        except HandleError as exc:
            raise BadArgumentsError(f"handle: {exc}") from exc
        agent = self._by_mark.get(far.agent)
        if agent is None:
            raise BadArgumentsError(f"handle: {HandleError()}")
        assert self._around is not None
        follow_up = FollowUp(agent, far, incoming, self._around)
        match incoming.name:
            case "task_result":
                return await follow_up.result()
            case "task_reply":
                return await follow_up.reply()
            case _:
                return await follow_up.cancel()
