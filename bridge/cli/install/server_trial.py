"""Starts a server as a host would, and asks it for its tools."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TextIO, cast

import anyio
import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

from bridge.errors import PeerError, leaf_of, reason_of

TRIAL_SECONDS: Final = 60.0
"""How long a server may take to list its tools. Claude Desktop gives up after the same time."""

_LAST_CHARACTERS: Final = 4000
"""Characters of a server's stderr that are shown."""

_FAILURES: Final = (MCPError, OSError, ValueError, RuntimeError, ExceptionGroup)
"""The errors of the SDK's client when a server does not start, ends, or does not speak MCP."""


@dataclass(frozen=True)
class ServerStart:
    """How a host starts a server."""

    command: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    """Variables besides those that the SDK gives every server: the user's name, shell and terminal."""


async def tools_of(start: ServerStart) -> tuple[list[types.Tool], str]:
    """Start a server in an empty folder; return its tools, and its output on stderr.

    Raises:
        PeerError: the server does not start, or does not answer in time. The detail is its stderr.
    """
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log,
    ):
        server = StdioServerParameters(
            command=start.command, args=list(start.arguments), env=dict(start.environment), cwd=folder
        )
        try:
            with anyio.fail_after(TRIAL_SECONDS):
                async with Client(stdio_client(server, errlog=cast("TextIO", log)), mode="legacy") as client:
                    tools = await _listed(client)
        except TimeoutError as exc:
            words = f"{start.command} listed no tools within {TRIAL_SECONDS:g} s"
            raise PeerError(words, detail=_last_words(log.fileno())) from exc
        except _FAILURES as exc:
            words = f"{start.command} does not work as the host would start it: {reason_of(leaf_of(exc))}"
            raise PeerError(words, detail=_last_words(log.fileno())) from exc
        return tools, _last_words(log.fileno())


async def _listed(client: Client) -> list[types.Tool]:
    tools: list[types.Tool] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            return tools


def _last_words(handle: int) -> str:
    with open(handle, "rb", closefd=False) as log:
        log.seek(0)
        words = log.read().decode(errors="replace").strip()
    return f"\nIt wrote to stderr:\n{words[-_LAST_CHARACTERS:]}" if words else ""
