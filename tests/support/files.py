"""Configuration files of tests: the raw server, and what is made of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.command import ROOT, Wrapping, environment
from tests.support.forked import Forked
from tests.support.lines import first_line
from tests.support.ports import free_port
from tests.support.running import RAW_SERVER

RAW = f"[tool_servers.raw]\ncommand = {json.dumps([sys.executable, str(RAW_SERVER)])}\nera = 'legacy'\n"
"""A tool server that is there at once."""

DEVTOOLS = "[tools_as_agent.devtools]\nfrom = ['raw']\n"
TEAM = "[agents_as_tools.team]\nfrom = ['devtools']\n"
"""An MCP server made of an agent of the same file."""


def written(folder: Path, *parts: str, name: str = "bridge.toml") -> Path:
    """A file of these parts."""
    path = folder / name
    path.write_text("".join(parts), encoding="utf-8")
    return path


@contextmanager
def started(
    *words: str, state: Path, until: str, under: tuple[str, ...] = (), port: int = 0, **more: str
) -> Iterator[Wrapping]:
    """Start a command whose last option is its port, by default a free one, without a terminal; wait for these words.

    `under` is another command that starts it.
    """
    port = port or free_port()
    with Forked(
        [*under, sys.executable, "-P", "-m", "bridge", *words, str(port)],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environment(state, XDG_CACHE_HOME=str(state / "cache"), **more),
        start_new_session=True,
    ) as process:
        running = Wrapping(process, port)
        try:
            running.read_until(until)
            yield running
        finally:
            if process.poll() is None:
                process.kill()


@contextmanager
def an_agent() -> Iterator[str]:
    """A foreign agent in a process of its own; its URL."""
    command = [sys.executable, "-m", "tests.peers.echo_agent", "--port", "0"]
    with Forked(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as agent:
        try:
            yield first_line(agent)
        finally:
            agent.kill()
