"""Real bridges for a real Prometheus: `mcp-a2a serve` on a file, with one principal, and what is asked of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
import httpx2

from tests.support.command import children_of, environment, gone
from tests.support.forked import Forked
from tests.support.lines import Lines
from tests.support.mcp_wire import MODERN, Http
from tests.support.running import Rpc

TOKEN: Final = "t" * 40
"""The principal's, in the variable `ANN_TOKEN`."""


@dataclass
class Serving:
    """A bridge that serves a file."""

    process: subprocess.Popen[str]
    file: Path
    root: str
    client: httpx2.AsyncClient
    said: Lines = field(init=False)

    def __post_init__(self) -> None:
        self.said = Lines(self.process, self.process.stderr)

    def agent(self, name: str) -> Rpc:
        """A client of an agent."""
        return Rpc(self.client, f"{self.root}/agents/{name}")

    def tools(self, name: str) -> Http:
        """A client of an MCP server made of agents."""
        return Http(self.client, f"{self.root}/mcp/{name}", MODERN)

    async def until(self, words: str) -> None:
        """Read the log until a line holds these words."""
        await anyio.to_thread.run_sync(self.said.until, words)

    async def rewrite(self, text: str, until: str) -> None:
        """Change the file, and wait until the log says these words."""
        self.file.write_text(text)
        await self.until(until)


@asynccontextmanager
async def served(
    file: Path, port: int, *options: str, until: str = "curl -s", **variables: Any
) -> AsyncIterator[Serving]:
    """`mcp-a2a serve` with a file that says this port, once the log has said these words."""
    words = [sys.executable, "-P", "-m", "bridge", "serve", str(file), *options]
    known = environment(file.parent, ANN_TOKEN=TOKEN, **variables)
    with Forked(words, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=known) as process:
        left: list[int] = []
        try:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with httpx2.AsyncClient(headers=headers, timeout=60) as client:
                one = Serving(process, file, f"http://127.0.0.1:{port}", client)
                await one.until(until)
                yield one
        finally:
            left = children_of(process.pid)
            if process.poll() is None:
                process.kill()
            assert gone(left)
