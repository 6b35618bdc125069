"""The MCP servers that agents share, and the names that hosts see of their resources and prompts. Pure.

If an MCP server of the bridge has one agent, and the agent shares one server, names and URIs are those of the server.
Otherwise each has the prefix of its agent, and of its server if the agent shares several. The prefix depends on the
configuration and on the agent's own card alone, and never on what other agents list.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model.objects import AgentCard
from bridge.agents_as_tools.resources import SCHEME
from bridge.errors import PeerError, echoed
from bridge.mcp.apps import SCHEME as APPS
from bridge.text.jsonvalues import JsonObject
from bridge.translate.blocks import with_shown_uri
from bridge.translate.extensions.mcp_requests import COMPLETE, declared_servers

logger = logging.getLogger(__name__)

_KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
"""The keys of servers that can stand in a URI and in the name of a prompt."""

_SERVERS_MOST: Final = 100
"""The most servers of one agent. The keys of a file are far fewer; any agent may have written the card."""

LISTS: Final[Mapping[str, tuple[str, str]]] = {
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
    "prompts/list": ("prompts", "name"),
}
"""The field of each list, and the field that identifies an entry."""

_CHANGES_OF: Final[Mapping[str, Sequence[str]]] = {
    "resources": ("subscribe", "listChanged"),
    "prompts": ("listChanged",),
}
"""The features of capabilities that notify of changes."""

_CONTENTS: Final[Mapping[str, tuple[str, type]]] = {
    **{method: (key, list) for method, (key, _) in LISTS.items()},
    "resources/read": ("contents", list),
    "prompts/get": ("messages", list),
    COMPLETE: ("completion", dict),
}
"""The field that a result must have, and its type."""


@dataclass(frozen=True, slots=True)
class SharedServer:
    """An MCP server that an agent shares."""

    agent_key: str
    key: str
    """The server's key on the card; "" for the only server of its agent."""
    capabilities: JsonObject
    uri_prefix: str = ""
    """What hosts see before the server's own URIs and templates."""
    name_prefix: str = ""
    """What hosts see before the server's own names of prompts."""
    card_key: str = ""
    """The server's key on the card, which tools refer to."""

    @property
    def id(self) -> str:
        """Identifies the server within the MCP server of the bridge."""
        return f"{self.agent_key}/{self.key}"

    @property
    def app_prefix(self) -> str:
        """What hosts see in place of `ui://`, with which the URIs of all apps begin."""
        return APPS + self.uri_prefix.removeprefix(SCHEME)

    def can(self, capability: str, feature: str = "") -> bool:
        """Whether the server has a capability, and a feature of it."""
        declared = self.capabilities.get(capability)
        return isinstance(declared, dict) and (not feature or declared.get(feature) is True)

    def shown(self, method: str, result: JsonObject) -> JsonObject:
        """A result of the server as hosts see it. Without a prefix, only entries that no host could read are left out.

        Raises:
            PeerError: the result has another form than the method asks for.
        """
        if "inputRequests" in result or result.get("resultType") == "input_required":
            return result
        field_name, kind = _CONTENTS[method]
        content = result.get(field_name)
        if not isinstance(content, kind):
            raise PeerError(f"{self.id} answered {method} without the field {field_name}")
        if method in LISTS:
            return {**result, field_name: [*self._entries(method, result)]}
        if not self.uri_prefix or method == COMPLETE:
            return result
        as_shown = self._shown_contents if method == "resources/read" else self._shown_message
        return {**result, field_name: [as_shown(entry) for entry in _listed(content)]}

    def _entries(self, method: str, result: JsonObject) -> Iterator[JsonValue]:
        field_name, name = LISTS[method]
        listed = result[field_name]
        shown = self._shown_name if name == "name" else self.shown_uri
        for entry in _listed(listed):
            own = entry.get(name) if isinstance(entry, dict) else None
            if (
                not isinstance(entry, dict)
                or not isinstance(own, str)
                or not isinstance(entry.get("name"), str)
            ):
                logger.warning("%s: an entry of %s has no %s, and is left out", self.id, method, name)
                continue
            yield {**entry, name: shown(own)} if self.uri_prefix else entry

    def _shown_name(self, name: str) -> str:
        return self.name_prefix + name

    def _shown_contents(self, contents: JsonValue) -> JsonValue:
        if isinstance(contents, dict) and isinstance(uri := contents.get("uri"), str):
            return {**contents, "uri": self.shown_uri(uri)}
        return contents

    def _shown_message(self, message: JsonValue) -> JsonValue:
        if not isinstance(message, dict) or "content" not in message:
            return message
        return {**message, "content": with_shown_uri(message["content"], self.shown_uri)}

    def shown_uri(self, uri: str) -> str:
        """The URI by which hosts know a resource of the server."""
        if uri.startswith(APPS):
            return self.app_prefix + uri.removeprefix(APPS)
        return self.uri_prefix + uri

    def own_uri(self, uri: str) -> str:
        """The server's own URI of a resource."""
        if self.uri_prefix and uri.startswith(self.app_prefix):
            return APPS + uri.removeprefix(self.app_prefix)
        return uri.removeprefix(self.uri_prefix)

    def own_params(self, method: str, params: JsonObject) -> JsonObject:
        """The params of a request of a host in the server's own names."""
        if not self.uri_prefix:
            return params
        if method == COMPLETE and isinstance(about := params.get("ref"), dict):
            return {**params, "ref": self._own_names(about)}
        return self._own_names(params)

    def _own_names(self, names: JsonObject) -> JsonObject:
        changed = dict(names)
        if isinstance(uri := names.get("uri"), str):
            changed["uri"] = self.own_uri(uri)
        if isinstance(name := names.get("name"), str):
            changed["name"] = name.removeprefix(self.name_prefix)
        return changed


@dataclass(frozen=True)
class SharedServers:
    """The servers that the agents of an MCP server share, in the order of the agents."""

    servers: Sequence[SharedServer] = ()
    capabilities: JsonObject = field(default_factory=dict)
    """What the servers can do together, in MCP's form; empty if no agent shares a server."""

    def with_capability(self, capability: str) -> list[SharedServer]:
        """The servers with a capability."""
        return [server for server in self.servers if server.can(capability)]

    def of_uri(self, uri: str) -> SharedServer | None:
        """The server whose prefix a URI or template has; None if there is none."""
        having = [
            one
            for one in self.with_capability("resources")
            if uri.startswith((one.uri_prefix, one.app_prefix))
        ]
        return max(having, key=lambda server: len(server.uri_prefix), default=None)

    def of_tool(self, agent_key: str, server: str) -> SharedServer | None:
        """The server of a tool, by its key at the agent; None if its resources are not shared."""
        having = self.with_capability("resources")
        return next((one for one in having if (one.agent_key, one.card_key) == (agent_key, server)), None)

    def of_prompt(self, name: str) -> SharedServer | None:
        """The server whose prefix the name of a prompt has; None if there is none."""
        having = [one for one in self.with_capability("prompts") if name.startswith(one.name_prefix)]
        return max(having, key=lambda server: len(server.name_prefix), default=None)


NOTHING_SHARED: Final = SharedServers()


def shared_servers(cards: Iterable[tuple[str, AgentCard]], *, is_only: bool) -> SharedServers:
    """The servers that agents share, by their keys and cards. `is_only` says that the configuration names one agent."""
    servers = tuple(server for key, card in cards for server in _servers_of(key, card, is_only=is_only))
    return SharedServers(servers, _joined(servers)) if servers else NOTHING_SHARED


def _servers_of(agent_key: str, card: AgentCard, *, is_only: bool) -> Iterator[SharedServer]:
    declared = declared_servers(card.capabilities.extensions)
    for key, capabilities in [*declared.items()][:_SERVERS_MOST]:
        if len(declared) == 1:
            uri_prefix, name_prefix = f"{SCHEME}{agent_key}/r/", f"{agent_key}_"
        else:
            uri_prefix, name_prefix = f"{SCHEME}{agent_key}/{key}/r/", f"{agent_key}_{key}_"
        if is_only and len(declared) == 1:
            uri_prefix = name_prefix = ""
        if len(declared) > 1 and not _KEY.fullmatch(key):
            logger.warning("%s: its server %s is left out: the key is no name", agent_key, echoed(key))
            continue
        can = capabilities if card.capabilities.streaming else _without_changes(capabilities)
        asked_as = key if len(declared) > 1 else ""
        yield SharedServer(agent_key, asked_as, can, uri_prefix, name_prefix, key)


def _without_changes(capabilities: JsonObject) -> JsonObject:
    """Capabilities without notifications, which only a stream of the agent can carry."""
    return {
        name: {feature: can for feature, can in features.items() if feature not in _CHANGES_OF.get(name, ())}
        for name, features in capabilities.items()
        if isinstance(features, dict)
    }


def _joined(servers: Iterable[SharedServer]) -> JsonObject:
    joined: dict[str, JsonObject] = {}
    for server in servers:
        for name in (*_CHANGES_OF, "completions"):
            if server.can(name):
                features = joined.setdefault(name, {})
                features |= {change: True for change in _CHANGES_OF.get(name, ()) if server.can(name, change)}
    return {**joined}


def _listed(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
