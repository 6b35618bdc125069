"""The file that `init` writes: the requested servers and agents, and commented examples of other tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bridge.config.toml_text import toml_value

SCHEMA_FILE: Final = "mcp-a2a.schema.json"
EXAMPLE: Final = ("npx", "-y", "@modelcontextprotocol/server-everything")
"""The server in the file if the user names none: it has a tool of each kind, and needs no account."""

_HEAD: Final = f"""\
#:schema ./{SCHEMA_FILE}
# The peers of mcp-a2a, and what it serves. `mcp-a2a check` checks this file, and `mcp-a2a serve` serves it.
# This file holds no secrets, only where to read them: {{ env = "NAME" }} or {{ file = "PATH" }}.

[bridge]
# host = "127.0.0.1"                            # an address for other machines needs [principals]
# port = 8080
# grpc = "127.0.0.1:50051"                      # serves agents over gRPC, too; needs mcp-a2a[grpc]
# public_url = "https://bridge.example.com"     # the address on cards, behind a proxy
# store = "tasks.db"                            # the file for tasks; by default in your state folder
"""

_SERVER: Final = "An MCP server: its tools become skills of an agent."
_AGENT: Final = "A remote A2A agent: its skills become tools of an MCP server."

_KNOWN: Final = (
    "# known = false                                 # leaves out its ready mapping, {}: phrases\n"
)

_EXAMPLE_SERVER: Final = """
# An MCP server: its tools become skills of an agent.
# [tool_servers.weather]
# url = "https://weather.example.com/mcp"       # or command = ["npx", "-y", "PACKAGE"]
# auth = { bearer = { env = "WEATHER_TOKEN" } }
"""
_EXAMPLE_AGENT: Final = """
# A remote A2A agent: its skills become tools of an MCP server.
# [agents.research]
# card = "https://research.example.com"
# auth = { bearer = { env = "RESEARCH_TOKEN" } }
"""
_EXAMPLE_SKILLS: Final = """\
# skills."delete_*" = { hidden = true }         # neither listed nor callable
# skills.search = { name = "Search the web", call_timeout_seconds = 60 }
"""
_EXAMPLE_OFFERED: Final = """
# An MCP server at /mcp/team, made of agents.
# [agents_as_tools.team]
# from = ["research"]
"""
_TAIL: Final = """
# Who may call. Without principals everyone who reaches the bridge may, and it listens on this machine only.
# [principals.alice]
# bearer = { env = "ALICE_TOKEN" }
# skills = ["*"]
"""


@dataclass(frozen=True)
class Starter:
    """The servers and agents of a new file."""

    servers: Mapping[str, str | Sequence[str] | Mapping[str, Any]] = field(default_factory=dict)
    """By name: the URL, the command, or the keys of the table."""
    agents: Mapping[str, str] = field(default_factory=dict)
    """By name: the URL."""
    published: str = "tools"
    """The name of the agent that the servers become."""
    offered: str = "team"
    """The name of the MCP server that the agents become."""
    ready: Mapping[str, str] = field(default_factory=dict)
    """The names of the ready mappings of well-known servers, by server."""
    remarks: Mapping[str, str] = field(default_factory=dict)
    """Where servers are from, by server."""

    def text(self) -> str:
        """The file."""
        return "".join((_HEAD, *self._servers(), *self._agents(), *self._faces(), _TAIL))

    def addition(self) -> str:
        """The servers and the agent that they become, for the end of a file that exists."""
        return "".join((*self._servers(), *self._faces()[:1]))

    def _servers(self) -> Sequence[str]:
        tables = [self._server(name, server) for name, server in self.servers.items()]
        return tables or [_EXAMPLE_SERVER]

    def _server(self, name: str, place: str | Sequence[str] | Mapping[str, Any]) -> str:
        keys = (
            place if isinstance(place, Mapping) else {"url" if isinstance(place, str) else "command": place}
        )
        words = f"{_SERVER}\n# {self.remarks[name]}" if name in self.remarks else _SERVER
        line = _KNOWN.format(self.ready[name]) if name in self.ready else ""
        return _table(words, "tool_servers", name, **keys) + line

    def _agents(self) -> Sequence[str]:
        tables = [_table(_AGENT, "agents", name, card=url) for name, url in self.agents.items()]
        return tables or [_EXAMPLE_AGENT]

    def _faces(self) -> Sequence[str]:
        faces = []
        if self.servers:
            words = f"An A2A agent at /agents/{self.published}, made of tools."
            faces += [
                _table(words, "tools_as_agent", self.published, **{"from": list(self.servers)}),
                _EXAMPLE_SKILLS,
            ]
        if not self.agents:
            return [*faces, _EXAMPLE_OFFERED]
        words = f"An MCP server at /mcp/{self.offered}, made of agents."
        return [*faces, _table(words, "agents_as_tools", self.offered, **{"from": list(self.agents)})]


def _table(words: str, section: str, name: str, **keys: Any) -> str:
    lines = (f"{key} = {toml_value(value)}\n" for key, value in keys.items())
    return f"\n# {words}\n[{section}.{name}]\n{''.join(lines)}"
