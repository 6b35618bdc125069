"""Reads the definitions of all servers and agents of a running bridge, for `pin` and `check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import anyio
from mcp_types import METHOD_NOT_FOUND

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import Plan
from bridge.errors import PeerError
from bridge.mcp.client.approver import definitions_in
from bridge.mcp.client.as_tools.entries import ListBounds, ReadEntries
from bridge.mcp.client.as_tools.entries import entries_of as read_entries
from bridge.mcp.client.faults import ServerRefusedError
from bridge.mcp.client.upstream import Upstream
from bridge.pinned.definitions import Definitions, ItemKind, entries_of
from bridge.pinned.lock import PinnedSource, agent_title, server_title
from bridge.remotes.approved_card import skills_in
from bridge.remotes.remote_agent import RemoteAgent
from bridge.text.jsonvalues import JsonObject

_LIST_SECONDS: Final = 15.0
"""How long a server may take for its list of prompts or of templates."""
_LISTS: Final[Mapping[str, tuple[ItemKind, str, str]]] = {
    "prompts": ("prompts", "prompts/list", "prompts"),
    "resources": ("templates", "resources/templates/list", "resourceTemplates"),
}
"""By the capability of a server: the kind of its items, the request that lists them, and the field with them."""


@dataclass(frozen=True, slots=True)
class ReadDefinitions:
    """The definitions that were read, and why others were not, by the titles of servers and agents."""

    sources: Mapping[str, PinnedSource]
    unread: Mapping[str, str]

    @property
    def definitions(self) -> dict[str, Definitions]:
        """The definitions that were read, by title."""
        return {title: source.definitions for title, source in self.sources.items()}


async def read_definitions(plan: Plan, bridge: Bridge) -> ReadDefinitions:
    """Read the definitions of all servers and agents of a plan that can be reached now."""
    sources: dict[str, PinnedSource] = {}
    unread: dict[str, str] = {}

    async def read(title: str, upstream: Upstream) -> None:
        if upstream.down is not None or upstream.greeting is None:
            unread[title] = upstream.down or "it has not answered yet"
            return
        try:
            definitions = await _definitions_of(upstream)
        except PeerError as exc:
            unread[title] = str(exc)
        else:
            greeting = upstream.greeting
            sources[title] = PinnedSource(definitions, f"{greeting.name} {greeting.version}".strip())

    async with anyio.create_task_group() as reading:
        for key, upstream in bridge.upstreams.items():
            reading.start_soon(read, server_title(key), upstream)
    for agent in _agents_of(plan, bridge):
        title = agent_title(agent.key)
        if agent.whole_card is None:
            unread[title] = agent.down or "its card has not been read yet"
        else:
            card = agent.whole_card
            sources[title] = PinnedSource({"skills": skills_in(card)}, f"{card.name} {card.version}".strip())
    return ReadDefinitions(dict(sorted(sources.items())), unread)


async def _definitions_of(upstream: Upstream) -> Definitions:
    """The definitions of a server that is up.

    Raises:
        PeerError: the server does not give one of its lists whole.
    """
    assert upstream.greeting is not None
    definitions: dict[ItemKind, Mapping[str, JsonObject]] = dict(definitions_in(upstream.whole_listing))
    bounds = ListBounds(upstream.settings.tools_most, upstream.settings.tools_limit_bytes)
    if upstream.whole_listing.odd:
        raise PeerError(upstream.whole_listing.odd)
    for capability, (kind, method, key) in _LISTS.items():
        if capability not in upstream.greeting.capabilities:
            definitions.setdefault(kind, {})
            continue
        with anyio.move_on_after(_LIST_SECONDS) as scope:
            try:
                listed = await read_entries(upstream.ask, method, key, bounds)
            except ServerRefusedError as exc:
                if exc.code != METHOD_NOT_FOUND:
                    raise
                listed = ReadEntries(())  # a server with resources need not have templates
        if scope.cancelled_caught:
            raise PeerError(f"{upstream.name} did not answer {method} within {_LIST_SECONDS:g} s")
        if listed.odd:
            raise PeerError(f"the answer of {upstream.name} to {method} is not whole: {listed.odd}")
        definitions[kind] = entries_of(kind, listed.entries)
    return definitions


def _agents_of(plan: Plan, bridge: Bridge) -> Iterator[RemoteAgent]:
    """The remote agents that have a table of their own, each once."""
    remote = [agent for offered in bridge.offered for agent in offered.remote_agents]
    remote += [agent for published in bridge.published for agent in published.remote_agents]
    by_key = {agent.key: agent for agent in remote if agent.key in plan.agents}
    yield from by_key.values()
