"""The options of an agent whose skills are tools, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.mcp.tools import StandInKind
from bridge.settings import ArgumentSettings, CardSettings, ContentSettings, RunSettings
from bridge.tools_as_agent.chooser import Chooser
from bridge.translate.extensions.mcp_requests import Shared
from bridge.translate.extensions.passed_metadata import DeclaredExtension
from bridge.translate.message_to_call import RouteRules

if TYPE_CHECKING:
    from bridge.tools_as_agent.served_links import ServedLinks


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The options of one published agent."""

    route: RouteRules
    card: CardSettings
    arguments: ArgumentSettings
    run: RunSettings
    content: ContentSettings
    extensions: tuple[DeclaredExtension, ...] = ()
    """Extensions that the card declares besides the bridge's own. Their metadata is passed to the tools and back."""
    share: frozenset[Shared] = frozenset()
    """What it passes on of its servers besides tools."""
    stand_ins: frozenset[StandInKind] = frozenset()
    """Which of its servers' prompts and resources are skills, too."""
    links: ServedLinks | None = None
    """The addresses at which it serves linked resources; None serves none."""
    shares_apps: bool = False
    """Whether it passes on the MCP Apps of its servers."""
    shares_logs: bool = False
    """Whether it passes on the log messages of its servers."""
    shares_tasks: bool = False
    """Whether it leaves it to the host of a call whether the call may become a task of its server."""
    chooser: Chooser | None = None
    """The model that is asked what a text means; None asks none."""
    push: bool = False
    """Whether push notifications are sent."""
    face: str = ""
    """The name of the agent in the configuration."""
    name: str | None = None
    description: str | None = None
    """With None, the description comes from the servers, and so does the name for `name`."""
