"""Implements `bridge.mcp.server.face.ToolFace` over remote agents: lists their tools, and passes calls to the agents.

Lists are made from the known cards, and never wait for an agent. An agent that is down keeps the tools of its last
card. An agent whose card was never read has no tools yet; hosts are notified once it has.

Agents, options and overrides can be replaced while the MCP server runs. Calls in flight keep the old ones.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import anyio
import anyio.abc

from bridge import trace
from bridge.agents_as_tools.call import AgentCall
from bridge.agents_as_tools.handles import FarTask, Handles
from bridge.agents_as_tools.mcp_requests.requests import AgentRequests
from bridge.agents_as_tools.mcp_requests.subscriptions import AgentSubscriptions, Sharing
from bridge.agents_as_tools.mcp_tasks import McpTasks
from bridge.agents_as_tools.options import FaceOptions
from bridge.agents_as_tools.own_tools import FollowUp, call_of_skill, found_skills
from bridge.agents_as_tools.push_hints import PushHints
from bridge.agents_as_tools.resources import TEMPLATE, part_place, read_card, read_part
from bridge.agents_as_tools.sending import FaceRuntime, UnnamedMessages
from bridge.agents_as_tools.tool_listing import FaceListing, listing_of
from bridge.agents_as_tools.tool_results import failure
from bridge.agents_as_tools.tools import PublishedTool, SkillKey
from bridge.agents_as_tools.webhooks import TaskWebhooks
from bridge.concurrency import Backoff, ToolLimiters, border
from bridge.errors import BridgeError, echoed, fault_policy_of
from bridge.identity.callers.principals import MayUse, OfferedNames, may_use_everything
from bridge.identity.tokens.caller_token import CallerToken
from bridge.mcp.server.face import INVALID_PARAMS, IncomingCall, McpRefusal, TaskWork, refusal_of
from bridge.remotes.remote_agent import RemoteAgent, read_cards
from bridge.seal import HandleError
from bridge.source_state import SourceState
from bridge.text.jsonvalues import JsonObject
from bridge.translate.call_to_message import BadArgumentsError
from bridge.translate.extensions.availability import unavailable_skills
from bridge.translate.overrides import Remark, ToolOverride
from bridge.translate.skill_tools import AgentTool
from bridge.translate.tool_names import PAGE_TOOL
from bridge.version import __version__

logger = logging.getLogger(__name__)

_MOMENT_SECONDS: Final = 2.0
"""How long a start waits for an agent whose card is remembered. Hosts wait for the start."""

_FIRST_AGAIN_SECONDS: Final = 1.0
_LONGEST_AGAIN_SECONDS: Final = 60.0
"""The pauses before an agent is watched again, after an error in watching it."""

_FOLLOW_UPS: Final = frozenset({"task_result", "task_reply", "task_cancel"})
_HELD_BACK: Final = (
    ". Some tools of this server are held back, because their definitions are new or have changed and its operator has"
    " not approved them"
)
_NOTHING: Final[Mapping[str, ToolOverride]] = MappingProxyType({})


def _tell_nobody() -> None: ...


class AgentsFace:
    """The tools of some agents, as an MCP server. Enter `run` before serving it."""

    def __init__(
        self,
        agents: Sequence[RemoteAgent],
        handles: Handles,
        options: FaceOptions,
        overrides: Mapping[str, ToolOverride] = _NOTHING,
        hints: PushHints | None = None,
        unread: Collection[str] = (),
    ) -> None:
        """`hints` are the push hints of this process; None for no push notifications. `unread` are the keys of catalogs
        that were never read."""
        self._handles = handles
        self._hints = hints or PushHints()
        self._unnamed = UnnamedMessages(options.agents.unnamed_most)
        self._turns: ToolLimiters[SkillKey] = ToolLimiters()
        self._remarked: frozenset[Remark] = frozenset()
        self._on_change: Callable[[], None] = _tell_nobody
        self._group: anyio.abc.TaskGroup | None = None
        self._around: FaceRuntime | None = None
        self._tasks: McpTasks | None = None
        self._watched: dict[RemoteAgent, anyio.CancelScope] = {}
        self._take(agents, options, overrides, unread)
        self.listing = FaceListing()
        """What the agents' cards make now, listed or hidden."""
        sharing = Sharing(lambda: self.listing.shared, self._agent_of, lambda: self._options)
        self._subscriptions = AgentSubscriptions(sharing)
        self._requests = AgentRequests(
            sharing,
            self._subscriptions,
            is_own=self._is_own,
            is_example=lambda name: name in self.listing.examples,
        )
        self._list()

    @property
    def name(self) -> str:
        """The name of this MCP server."""
        return self._options.name

    @property
    def version(self) -> str:
        """The bridge's version, since each agent has a version of its own."""
        return __version__

    @property
    def title(self) -> str | None:
        """The configured title, or the name of the only agent."""
        return self.listing.introduction.title

    @property
    def instructions(self) -> str | None:
        """The configured instructions, or those made from the agents' cards."""
        return self.listing.introduction.instructions

    @property
    def website_url(self) -> str | None:
        """The documentation of the only agent."""
        return self.listing.introduction.website_url

    @property
    def icons(self) -> Sequence[JsonObject]:
        """The icon of the only agent."""
        icon_url = self.listing.introduction.icon_url
        return ({"src": icon_url},) if icon_url else ()

    @property
    def sources(self) -> tuple[SourceState, ...]:
        """The state of each agent, and since when."""
        return tuple(agent.state for agent in self._agents)

    @property
    def waiting(self) -> Counter[str]:
        """How many calls wait for the concurrency limit of their tool, by the key of its agent. Agents without limits
        are left out."""
        return self._turns.waiting(lambda skill: skill[0])

    @property
    def published(self) -> tuple[PublishedTool, ...]:
        """The tools of the agents, in the order of the agents and their cards."""
        return self.listing.tools.published

    @property
    def unknown(self) -> tuple[str, ...]:
        """The keys of agents and catalogs whose skills are unknown."""
        return self.listing.unknown

    @property
    def unread(self) -> Collection[str]:
        """The keys of catalogs that were never read."""
        return self._unread

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """The configured rules that have no effect, or cannot be applied."""
        return self.listing.remarks

    @asynccontextmanager
    async def run(
        self, on_change: Callable[[], None], first_cards_seconds: float
    ) -> AsyncIterator[AgentsFace]:
        """Read the cards and keep them fresh; `on_change` is called when a list has changed.

        The start waits only a limited time for the agents. An agent that does not answer in time is listed by its
        remembered card, if there is one.
        """
        for agent in self._agents:
            agent.use_remembered_card()
        async with anyio.create_task_group() as group:
            webhooks = TaskWebhooks(self._hints, self._handles, group, lambda: self._options.agents)
            self._around = FaceRuntime(
                self._handles, self._options, group, self._unnamed, self._turns, webhooks
            )
            self._tasks = McpTasks(self._surroundings, self._agent_and_tool, self._names_by_mark)
            async with anyio.create_task_group() as reading:
                known = [agent for agent in self._agents if agent.down is None]
                new = [agent for agent in self._agents if agent.down is not None]
                reading.start_soon(read_cards, known, min(_MOMENT_SECONDS, first_cards_seconds))
                reading.start_soon(read_cards, new, first_cards_seconds)
            self._list()
            self._on_change, self._group = on_change, group
            self._subscriptions.run_in(group)
            self._watch()
            try:
                yield self
            finally:
                self._group = None
                self._subscriptions.run_in(None)
                group.cancel_scope.cancel()

    def update(
        self,
        agents: Sequence[RemoteAgent],
        options: FaceOptions,
        overrides: Mapping[str, ToolOverride] = _NOTHING,
        unread: Collection[str] = (),
    ) -> None:
        """Replace the agents, options and overrides; hosts are notified when a list changes.

        For an agent that stays, pass the same object, which keeps its client. A new agent is listed by its remembered
        card, and its card is read in the background. Handles to a removed agent are refused, unless another agent with
        the same URL and account replaces it.
        """
        known = set(self._agents)
        self._take(agents, options, overrides, unread)
        self._unnamed.most = options.agents.unnamed_most
        if self._around is not None:
            self._around = replace(self._around, options=options)
            self._around.webhooks.keep_only(self._agents)
            for agent in self._agents:
                if agent not in known:
                    agent.use_remembered_card()
        self._watch()
        self._changed()

    @property
    def tasks(self) -> McpTasks | None:
        """The calls that became MCP tasks; None before `run` is entered."""
        return self._tasks

    @property
    def requests(self) -> AgentRequests:
        """The requests that the agents answer."""
        return self._requests

    @property
    def has_logs(self) -> bool:
        """See `ToolFace.has_logs`."""
        return any(agent.has_logs for agent in self._agents)

    def tools(self, may_use: MayUse = may_use_everything, *, with_apps: bool = False) -> Sequence[JsonObject]:
        """See `ToolFace.tools`."""
        return self.listing.tools_for(may_use, with_apps=with_apps)

    def tool(
        self, name: str, may_use: MayUse = may_use_everything, *, with_apps: bool = False
    ) -> JsonObject | None:
        """See `ToolFace.tool`."""
        return self.listing.tool_for(name, may_use, with_apps=with_apps)

    def resources(self, may_use: MayUse = may_use_everything) -> Sequence[JsonObject]:
        """The cards of the agents with at least one tool that the caller may use."""
        return tuple(self.listing.cards_for(may_use).values())

    def templates(self) -> Sequence[JsonObject]:
        """The URI template of parts that are too large for a result."""
        return (TEMPLATE,)

    def prompts(self, may_use: MayUse = may_use_everything) -> Sequence[JsonObject]:
        """The examples of the skills, as prompts."""
        return self.listing.prompts_for(may_use)

    def tool_called(self, name: str, arguments: JsonObject) -> str | None:
        """See `ToolFace.tool_called`."""
        if self._options.agents.granularity == "search":
            name = str(arguments.get("skill")) if name == "call_skill" else ""
        return name if name in self.listing.tools.by_name else None

    def names_of(self, tool: str) -> OfferedNames:
        """See `ToolFace.names_of`."""
        return self.listing.tools.names_of(tool)

    def unknown_tool(self, name: str) -> McpRefusal:
        """See `ToolFace.unknown_tool`."""
        holds_back = any(agent.holds_back for agent in self.listing.agents.values())
        return McpRefusal(INVALID_PARAMS, f"Unknown tool: {echoed(name)}{_HELD_BACK if holds_back else ''}")

    def work_of(self, name: str, arguments: JsonObject, principal: str) -> TaskWork:
        """See `ToolFace.work_of`. For a follow-up tool, the handle names the agent and its task."""
        if self._is_follow_up(name):
            try:
                agent, far = self._task_in(arguments, principal)
            except BadArgumentsError:
                return TaskWork(name, "", "")
            return TaskWork(name, agent.key, _id_of_agent(far))
        runs = self.tool_called(name, arguments)
        if runs is None:  # the bridge's own tool, or a name that no tool has
            return TaskWork("" if self.tool(name) is None else name, "", "")
        return TaskWork(runs, self.listing.tools.by_name[runs].agent_key, "")

    @property
    def caller_issuers(self) -> Mapping[str, str]:
        """See `ToolFace.caller_issuers`."""
        return self.listing.caller_issuers

    def _ready_tools(self) -> Callable[[AgentTool], bool]:
        """A check whether a tool's agent is up, and its card does not say that the skill is unavailable."""
        up = {agent.key: unavailable_skills(agent.card) for agent in self._agents if agent.down is None}
        return lambda tool: tool.source_key in up and tool.skill_id not in up[tool.source_key]

    async def call(self, incoming: IncomingCall) -> JsonObject:
        """See `ToolFace.call`."""
        try:
            if self._is_follow_up(incoming.name):
                return await self._follow_up(incoming)
            if self._gives_pages and incoming.name == PAGE_TOOL:
                return await self._page(incoming)
            if self._options.agents.granularity == "search":
                tools, most = self.listing.tools, self._options.agents.found_most
                if incoming.name == "find_skill":
                    return found_skills(incoming, tools.published, most, self._ready_tools())
                return await self._call(call_of_skill(incoming, tools))
            return await self._call(incoming)
        except BridgeError as exc:
            if exc.outcome and (hop := trace.hop.get()) is not None:
                hop.peer_refused = exc.outcome
            logger.log(fault_policy_of(exc).log_level, "a call of %s failed: %s", echoed(incoming.name), exc)
            return failure(str(exc))

    async def read(
        self,
        uri: str,
        principal: str,
        may_use: MayUse = may_use_everything,
        caller: CallerToken | None = None,
    ) -> JsonObject:
        """See `ToolFace.read`."""
        for key, card in self.listing.cards_for(may_use).items():
            if uri == card["uri"]:
                return read_card(self.listing.agents[key], uri, self.listing.skills_for(key, may_use))
        try:
            return await read_part(uri, self.listing.by_mark, self._handles, principal, caller)
        except BridgeError as exc:
            raise refusal_of(exc) from exc

    async def prompt(
        self,
        name: str,
        arguments: Mapping[str, str],  # noqa: ARG002 - ours take none
        may_use: MayUse = may_use_everything,
    ) -> JsonObject:
        """See `ToolFace.prompt`."""
        example = self.listing.examples.get(name)
        if example is None or not may_use(example[0].names):
            raise McpRefusal(INVALID_PARAMS, f"There is no prompt {echoed(name)}")
        text = f"Use the tool {example[0].name}: {example[1]}"
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}

    # Listing

    def _take(
        self,
        agents: Sequence[RemoteAgent],
        options: FaceOptions,
        overrides: Mapping[str, ToolOverride],
        unread: Collection[str],
    ) -> None:
        self._agents = tuple(dict.fromkeys(agents))
        self._options = options
        self._overrides = dict(overrides)
        self._unread = unread

    def _list(self) -> None:
        """Make the listing from the agents' cards as they are now."""
        self.listing = listing_of(self._agents, self._options, self._overrides, self._unread)
        self._turns.set({tool.key: tool.override.concurrency for tool in self.published})
        for remark in self.remarks:
            if remark not in self._remarked:
                logger.warning("%s: %s", self.name, remark)
        self._remarked = frozenset(self.remarks)

    def _changed(self) -> None:
        before = self.listing
        self._list()
        self._subscriptions.reconcile()
        if not self.listing.looks_like(before):
            self._on_change()

    def _is_own(self, uri: str, principal: str) -> bool:
        """Whether a URI is that of a card, or of a part that the principal got a link to."""
        is_card = any(uri == card["uri"] for card in self.listing.resources.values())
        return is_card or part_place(uri, self._handles, principal) is not None

    def _watch(self) -> None:
        """Watch the cards of the current agents, and of no others."""
        if self._group is None:
            return
        for agent in self._watched.keys() - set(self._agents):
            self._watched.pop(agent).cancel()
        for agent in self._agents:
            if agent not in self._watched:
                self._watched[agent] = scope = anyio.CancelScope()
                self._group.start_soon(self._keep_fresh, agent, scope)

    async def _keep_fresh(self, agent: RemoteAgent, scope: anyio.CancelScope) -> None:
        pauses = Backoff(_FIRST_AGAIN_SECONDS, _LONGEST_AGAIN_SECONDS)
        with scope:
            while True:
                with border(logger, str(agent.key)):
                    await agent.watch(self._changed)
                await anyio.sleep(pauses.next())

    def _surroundings(self) -> FaceRuntime:
        assert self._around is not None, "it is entered"
        return self._around

    def _agent_of(self, key: str) -> RemoteAgent | None:
        return self.listing.agents.get(key)

    def _agent_and_tool(self, mark: str, tool: str) -> tuple[RemoteAgent, AgentTool | None] | None:
        return self.listing.find(mark, tool)

    def _names_by_mark(self, mark: str, tool: str) -> OfferedNames | None:
        return self.listing.names_by_mark(mark, tool)

    # Calls

    async def _call(self, incoming: IncomingCall) -> JsonObject:
        tool = self.listing.tools.by_name.get(incoming.name)
        if tool is None:
            raise self.unknown_tool(incoming.name)
        agent = self.listing.agents[tool.agent_key]
        if (hop := trace.hop.get()) is not None:
            hop.skill, hop.peer = tool.name, agent.key
        return await AgentCall(agent, tool, incoming, self._surroundings())()

    async def _follow_up(self, incoming: IncomingCall) -> JsonObject:
        agent, far = self._task_in(incoming.arguments, incoming.principal)
        if (hop := trace.hop.get()) is not None:
            hop.peer, hop.task_id = agent.key, _id_of_agent(far)
        trace.go_on(far.trace, is_answer=incoming.name == "task_reply")
        tool = self.listing.published_by_mark(far.agent, far.tool)
        follow_up = FollowUp(agent, far, incoming, self._surroundings(), tool)
        match incoming.name:
            case "task_result":
                return await follow_up.result()
            case "task_reply":
                return await follow_up.reply()
            case _:
                return await follow_up.cancel()

    @property
    def _gives_pages(self) -> bool:
        agents = self._options.agents
        return agents.preview_bytes > 0 and agents.follow_up_tools

    async def _page(self, incoming: IncomingCall) -> JsonObject:
        # Imported only by a server that shortens texts.
        from bridge.agents_as_tools.result_pages import page_for

        place = part_place(str(incoming.arguments.get("link")), self._handles, incoming.principal)
        agent = None if place is None else self.listing.by_mark.get(place.far.agent)
        if place is not None and agent is not None and (hop := trace.hop.get()) is not None:
            hop.peer, hop.task_id = agent.key, place.far.task_id
        by_mark, limit_bytes = self.listing.by_mark, self._options.agents.preview_bytes
        return await page_for(incoming, by_mark, self._handles, limit_bytes)

    def _is_follow_up(self, name: str) -> bool:
        return name in _FOLLOW_UPS and self._options.agents.follow_up_tools

    def _task_in(self, arguments: JsonObject, principal: str) -> tuple[RemoteAgent, FarTask]:
        """The task that a follow-up tool's handle names, and the task's agent.

        Raises:
            BadArgumentsError: the handle cannot be opened, or its agent was removed.
        """
        handle = arguments.get("handle")
        try:
            far = self._handles.task(handle if isinstance(handle, str) else "", principal)
        except HandleError as exc:
            raise BadArgumentsError(f"handle: {exc}") from exc
        agent = self.listing.by_mark.get(far.agent)
        if agent is None:
            raise BadArgumentsError(f"handle: {HandleError()}")
        return agent, far


def _id_of_agent(far: FarTask) -> str:
    """The agent's own id for a task; empty if the agent has named no task."""
    return "" if UnnamedMessages.is_id(far.task_id) else far.task_id
