"""An agent whose skills are the tools of a server."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Final

from bridge.a2a.errors import OVERLOADED, A2AError
from bridge.a2a.job import Turn, Work
from bridge.a2a.life import INTERRUPTED
from bridge.a2a.models import AgentCard, AgentSkill, TaskState
from bridge.mcp.tools import Tool
from bridge.mcp.upstream import QueueFullError, Upstream
from bridge.tools_as_agent.card import make_card
from bridge.tools_as_agent.kept import FollowedTask, ServerQuestion, Way, kept_from
from bridge.tools_as_agent.options import AgentOptions
from bridge.tools_as_agent.route import Ask, End, Follow, RunTool, decide
from bridge.tools_as_agent.run import Conclusion, Question, ToolRun
from bridge.translate.arguments import properties_of
from bridge.translate.extension import URI
from bridge.translate.skills import skill_from

logger = logging.getLogger(__name__)

_CALL_GONE: Final = (
    "The bridge restarted while the tool waited for an answer, and its call is gone. It was not made again, since"
    " the server does not say that the tool can be repeated"
)

_CARDS_KEPT: Final = 16
"""Cards kept ready, one for each base under which the agent is asked for."""


class ToolsAgent:
    """Implements `bridge.a2a.job.Agent` over one tool server."""

    def __init__(
        self, upstream: Upstream, server_key: str, options: AgentOptions, *, needs_token: bool
    ) -> None:
        """`server_key` is what the server is called in tags."""
        self._upstream = upstream
        self._server_key = server_key
        self._options = options
        self._needs_token = needs_token
        self._card_at = lru_cache(_CARDS_KEPT)(self._make_card)
        self._tools: dict[str, Tool] = {}
        self._skills: list[tuple[AgentSkill, Tool]] = []
        self.refresh()

    @property
    def extensions(self) -> frozenset[str]:
        """The URIs of the extensions that a client may activate."""
        return frozenset({URI})

    @property
    def skills(self) -> tuple[AgentSkill, ...]:
        """The skills as the card shows them."""
        return tuple(skill for skill, _ in self._skills)

    def refresh(self) -> None:
        """Take over what the server now lists, and whether it is up."""
        tools = self._upstream.listing.tools
        self._tools = {tool.name: tool for tool in tools}
        self._skills = [(skill_from(tool, tool.name, self._server_key), tool) for tool in tools]
        self._card_at.cache_clear()
        self._warn_of_rules_for_nothing()

    def card(self, base_url: str) -> AgentCard:
        """What the agent says of itself, reachable at this base."""
        return self._card_at(base_url)

    def plan(self, turn: Turn) -> Work:
        """Decide what a turn means, and take a place on the server when it means a call.

        Raises:
            A2AError: CONTENT_TYPE_NOT_SUPPORTED (see `decide`), or OVERLOADED when too many calls wait.
        """
        decision = decide(turn, self._tools, self._options)
        match decision:
            case RunTool() | Follow():
                try:
                    self._upstream.reserve()
                except QueueFullError as exc:
                    raise A2AError(OVERLOADED, str(exc), headers={"Retry-After": "1"}) from exc
                return ToolRun(decision, self._upstream, self._options)
            case Ask():
                return Question(decision)
            case End():
                return Conclusion(decision)

    def resume(self, kept: bytes, state: TaskState) -> Work | None:
        """What goes on with a task of an earlier process: one that the server works on is followed further.

        A call that was open while it asked is gone with that process. It is made anew once the answer comes,
        when the server says that it can be repeated; else its task ends here.
        """
        match kept_from(kept):
            case FollowedTask() as task:
                self._upstream.reserve(even_if_full=True)
                return ToolRun(Follow(task.skill_id, task), self._upstream, self._options)
            case ServerQuestion(way=Way.OPEN, is_repeatable=False) if state in INTERRUPTED:
                return Conclusion(End(TaskState.FAILED, _CALL_GONE))
            case _:
                return None

    def _warn_of_rules_for_nothing(self) -> None:
        """A profile that names what is not there would be noticed by clients only."""
        route = self._options.route
        if not self._tools:
            return
        if route.default_skill is not None and route.default_skill not in self._tools:
            logger.warning("route.default_skill: there is no skill %r", route.default_skill)
        for skill_id, name in route.text_into.items():
            if skill_id not in self._tools:
                logger.warning("route.text_into: there is no skill %r", skill_id)
            elif name not in properties_of(self._tools[skill_id].input_schema):
                logger.warning("route.text_into: %s has no property %r", skill_id, name)

    def _make_card(self, base_url: str) -> AgentCard:
        return make_card(
            base_url,
            self._upstream.greeting,
            self._upstream.down,
            self._skills,
            self._options,
            server_name=self._server_key,
            needs_token=self._needs_token,
        )
