"""Who is measured, and the command of each. All serve on loopback, with the same uvicorn settings."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tests.peers.node import everything_command
from tests.support.limits import PROFILE
from tests.support.running import RAW_SERVER

Store = Literal["memory", "sqlite"]
Server = Literal["raw", "everything"]
Face = Literal["stdio-legacy", "stdio-modern", "http-legacy", "http-modern"]
"""`mcp-a2a expose`: its transport, and the mode of its client."""

BRIDGE: Final = "bridge"
SDK_AGENT: Final = "a2a-sdk agent"
DIRECT: Final = "MCP SDK client"
AGENT_CLIENT: Final = "AgentClient"
STREAMED: Final = "AgentClient, streamed"
SDK_CLIENT: Final = "a2a-sdk client"

AGENT_CLIENTS: Final = {AGENT_CLIENT: "bridge", STREAMED: "bridge-streamed", SDK_CLIENT: "a2a-sdk"}
"""Who asks an agent without `expose`, and what `agent_client` calls them."""

MODES: Final = {"legacy": "legacy", "modern": MODERN_PROTOCOL_VERSIONS[-1]}
"""What `mcp.Client` calls the modes."""


@dataclass(frozen=True)
class Echo:
    """The echo tool of a server: what its argument is called and what stands before its answer."""

    argument: str
    prefix: str


ECHOES: Final[dict[Server, Echo]] = {"raw": Echo("text", ""), "everything": Echo("message", "Echo: ")}

STORED: Final[dict[tuple[str, Store], str]] = {
    (BRIDGE, "memory"): "nothing",
    (SDK_AGENT, "memory"): "nothing (InMemoryTaskStore)",
    (BRIDGE, "sqlite"): (
        "the task and each of its events, before a client sees it, and the message's id against repeats"
        " (WAL, synchronous=FULL)"
    ),
    (SDK_AGENT, "sqlite"): (
        "the task in its newest state, one row written anew at each event; no events, no message ids"
        " (DatabaseTaskStore; SQLite's defaults: rollback journal, synchronous=FULL)"
    ),
}
"""What is on the disk once SendMessage has answered."""


def server_command(server: Server) -> list[str]:
    """The command of a tool server on stdio."""
    return [sys.executable, str(RAW_SERVER)] if server == "raw" else everything_command()


def bridge_command(port: int, store: str, server: Server = "raw", options: Sequence[str] = ()) -> list[str]:
    """`mcp-a2a wrap`; `store` is `memory:` or a path."""
    words = ["-P", "-m", "bridge", "wrap", "--era", "legacy", "--log-level", "warning"]
    place = ["--port", str(port), "--store", store, *options]
    return [sys.executable, *words, *place, "--", *server_command(server)]


def sdk_agent_command(port: int, store: str, server: Server = "raw") -> list[str]:
    """The agent made with a2a-sdk; `store` is `memory:` or a path."""
    words = ["-m", "tests.benchmarks.sdk_agent", "--port", str(port), "--store", store]
    return [sys.executable, *words, "--", *server_command(server)]


def direct_command(servers: int = 1, server: Server = "raw") -> list[str]:
    """The MCP SDK's client, which says `ready` and then takes plans."""
    words = ["-m", "tests.benchmarks.direct_client", "--servers", str(servers)]
    return [sys.executable, *words, "--", *server_command(server)]


def expose_command(url: str, port: int | None = None) -> list[str]:
    """`mcp-a2a expose` of one agent, on stdio or on a port."""
    words = [sys.executable, "-P", "-m", "bridge", "expose", "--log-level", "error"]
    return [*words, *(["--http", "--port", str(port)] if port else []), url]


def face_client_command(mode: str, *command: str) -> list[str]:
    """The MCP SDK's client, in a mode, of a command on stdio or of a URL; says `ready` and then takes plans."""
    words = ["-m", "tests.benchmarks.direct_client", "--mode", MODES[mode]]
    return [sys.executable, *words, "--", *command]


def agent_client_command(name: str, url: str) -> list[str]:
    """A client of an agent, which takes plans."""
    return [sys.executable, "-m", "tests.benchmarks.agent_client", "--client", AGENT_CLIENTS[name], url]


def bare_mcp_command() -> list[str]:
    """The SDK's low-level server on stdio."""
    return [sys.executable, "-m", "tests.benchmarks.bare_mcp"]


def import_command() -> list[str]:
    """Python with the SDK imported and nothing else, which then says so."""
    return [sys.executable, "-c", "import mcp; print('ready', flush=True)"]


def many_servers_command(servers: int) -> list[str]:
    """So many bridges in one process, each with a raw server, which says `ready`."""
    return [sys.executable, "-m", "tests.benchmarks.many_servers", "--servers", str(servers)]


def bare_streams_command(port: int) -> list[str]:
    """Starlette's own streams, with a heartbeat as often as the bridge sends one."""
    words = ["-m", "tests.benchmarks.bare_streams", "--port", str(port)]
    return [sys.executable, *words, "--heartbeat-seconds", str(PROFILE.streams.heartbeat_seconds)]


def load_command() -> list[str]:
    """The load generator, which takes one plan."""
    return [sys.executable, "-m", "tests.benchmarks.load"]
