"""What stands at an address that was given as an agent's and gives no card: an MCP server, or a web page.

Only what a person wrote down is looked at: an address that a catalog names is not asked for anything but its card.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final

import anyio
import httpx2

from bridge.a2a.card import ABSENT, card_places
from bridge.a2a.fetch import Outgoing, exchange, shown
from bridge.agents_as_tools.remote_agent import RemoteAgent
from bridge.assembly.plan import RemotePlan
from bridge.errors import PeerError, UsageError
from bridge.mcp.session import Session
from bridge.mcp.transport import Url

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 5.0
"""How long an address may take to show what it is: it has just answered."""


async def mistaken(agent: RemoteAgent, plan: RemotePlan) -> str | None:
    """What there is in place of an agent whose card was never read, in words; None when it may still be one."""
    if agent.has_card or not agent.is_heard_of or plan.own_card or plan.guard:
        return None
    return await other_than_agent(plan.url, plan.credentials.card_headers())


async def require_agents(agents: Mapping[RemoteAgent, RemotePlan]) -> None:
    """Refuse to serve only what is no agent, and will not be one for being waited for.

    Raises:
        PeerError: each of the addresses is something else.
    """
    if any(agent.has_card for agent in agents):
        return
    found = [await mistaken(agent, plan) for agent, plan in agents.items()]
    if found and all(found):
        raise PeerError("\n".join(filter(None, found)))
    _warn(filter(None, found))


def _warn(words: Iterable[str]) -> None:
    for line in words:
        logger.warning("%s", line)


async def other_than_agent(url: str, headers: Mapping[str, str]) -> str | None:
    """What answers at a URL that gives no card, in words that say what to do; None when that cannot be told."""
    with anyio.move_on_after(_LOOK_SECONDS):
        if (server := await _server_at(url, headers)) is not None:
            return f"{shown(url)} is an MCP server ({server}), not an agent: mcp-a2a wrap {shown(url)} makes one of it"
        if await _is_page(url, headers):
            return (
                f"{shown(url)} is a web page, not an agent: give the URL below which the agent's card is, at"
                " /.well-known/agent-card.json"
            )
    return None


async def _server_at(url: str, headers: Mapping[str, str]) -> str | None:
    """Name and version of the MCP server at a URL, if there is one."""
    session = Session(shown(url), Url(url, headers, _LOOK_SECONDS))
    async with session.run():
        try:
            await session.ready()
        except (PeerError, UsageError):
            return None
        greeting = session.greeting
    return f"{greeting.name} {greeting.version}" if greeting else session.name


async def _is_page(url: str, headers: Mapping[str, str]) -> bool:
    """Whether there is a page, and no card; where the card may only be out of order there is none to be seen."""
    found = [await _looks(place, headers) for place in card_places(url)]
    return _Look.PAGE in found and _Look.UNCLEAR not in found


class _Look(Enum):
    """What a place looks like."""

    PAGE = auto()
    NOTHING = auto()
    UNCLEAR = auto()


async def _looks(url: str, headers: Mapping[str, str]) -> _Look:
    asked = Outgoing("GET", url, {**headers, "Accept": "text/html"})
    try:
        async with httpx2.AsyncClient() as http, exchange(http, asked) as response:
            if response.status_code in ABSENT:
                return _Look.NOTHING
            kind: str = response.headers.get("content-type", "")
            return _Look.PAGE if response.is_success and kind.startswith("text/html") else _Look.UNCLEAR
    except PeerError:
        return _Look.UNCLEAR
