"""mcp-a2a: a bridge between the Model Context Protocol and the Agent2Agent protocol.

As a library: `load` reads a configuration file, and `open` runs the configuration as an ASGI application, which
another application may mount. Everything else is private.

    config = bridge.load("bridge.toml")
    async with bridge.open(config) as app:
        ...
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from bridge.config.load import LoadedConfig

from bridge.version import __version__

__all__ = ["__version__", "load", "open"]


def load(path: str | os.PathLike[str], environment: Mapping[str, str] = os.environ) -> LoadedConfig:
    """Read a configuration file, with its profiles and secrets. Nothing is started.

    Raises:
        bridge.errors.UsageError: the file has errors; the message lists all of them with their places.
    """
    from bridge.config.load import load as load_file  # the command line imports this package for its version

    return load_file(Path(path), environment)


@asynccontextmanager
async def open(config: LoadedConfig, *, own_url: str | None = None) -> AsyncIterator[ASGIApp]:  # noqa: A001
    """Run a configuration while the context is open; yield the application that serves it.

    The application has no lifespan of its own: open this context in the lifespan of the application that mounts it.
    `host` and `port` of `[bridge]` are ignored, because the surrounding application listens. `own_url` is the URL at
    which this process reaches the application, with its mount path. Only an MCP server made of agents that the same
    file publishes needs `own_url`.

    Raises:
        bridge.errors.PeerError: a tool server is down, and its `fail` is `closed`.
        bridge.errors.UsageError: a command cannot be started; a store is in use; `own_url` is needed.
    """
    from bridge.assembly.bridge import Bridge  # imports the MCP SDK, which takes most of a second
    from bridge.assembly.plan_from_file import plan_from_file

    plan = plan_from_file(config)
    bridge = Bridge(plan, own_url=own_url)
    async with bridge.run():
        await bridge.apply(plan)
        yield bridge.app
