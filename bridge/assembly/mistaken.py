"""Which of the addresses that were given as agents' give no card, since something else stands there.

Only what a person wrote down is looked at: an address that a catalog names is not asked for anything but its card.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from bridge.a2a.client.http import redacted_url
from bridge.address import WantedKind, explained
from bridge.agents_as_tools.remote_agent import RemoteAgent
from bridge.assembly.plan import RemotePlan
from bridge.errors import PeerError
from bridge.http_client import GuardedClient
from bridge.networks import AddressGuard

logger = logging.getLogger(__name__)


async def other_kind_at(agent: RemoteAgent, plan: RemotePlan) -> str | None:
    """What there is in place of an agent whose card was never read, in words; None when it may still be one."""
    if agent.has_card or not agent.is_heard_of or plan.own_card or plan.catalog:
        return None
    return await other_than_agent(plan.url, agent.guard)


async def require_one_agent(agents: Mapping[RemoteAgent, RemotePlan]) -> None:
    """Refuse to serve only what is no agent, and will not be one for being waited for.

    Raises:
        PeerError: each of the addresses is something else.
    """
    if any(agent.has_card for agent in agents):
        return
    found = [await other_kind_at(agent, plan) for agent, plan in agents.items()]
    if found and all(found):
        raise PeerError("\n".join(filter(None, found)))
    _warn(filter(None, found))


def _warn(words: Iterable[str]) -> None:
    for line in words:
        logger.warning("%s", line)


async def other_than_agent(url: str, guard: AddressGuard | None = None) -> str | None:
    """What stands at a URL that gives no card, in words that say what to do; None when that cannot be told."""
    fault = PeerError(f"{redacted_url(url)} is no A2A agent")
    async with GuardedClient() as http:
        told = await explained(fault, http, url, WantedKind.AGENT, guard)
    return None if told is fault else str(told)
