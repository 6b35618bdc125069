"""mcp-a2a: a bridge between the Model Context Protocol and the Agent2Agent protocol.

As a library: `load` reads a configuration file, and `open` runs what it says as an ASGI application, which may be
mounted in another one. Everything else is private.

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
        bridge.errors.UsageError: it is not as it should be; its text says everything that is wrong, and where.
    """
    from bridge.config.load import load as load_file  # the command line imports this package for its version

    return load_file(Path(path), environment)


@asynccontextmanager
async def open(config: LoadedConfig, *, own_url: str | None = None) -> AsyncIterator[ASGIApp]:  # noqa: A001
    """Run what a configuration says, as long as this is entered; gives the application that serves it.

    The application has no lifespan of its own: enter this in the lifespan of the one that it is mounted in. What
    `[bridge]` says of host and port does not count, as somebody else listens. `own_url` is where this process
    reaches the application, with the path under which it is mounted; it is needed only for a server made of agents
    that are published here.

    Raises:
        bridge.errors.PeerError: a tool server is down that must not be.
        bridge.errors.UsageError: a command cannot be started; a store is in use; `own_url` is needed.
    """
    from bridge.assembly.bridge import Bridge  # imports the MCP SDK, which takes most of a second
    from bridge.assembly.plan_from_file import plan_from_file

    plan = plan_from_file(config)
    bridge = Bridge(plan, own_url=own_url)
    async with bridge.run():
        await bridge.apply(plan)
        yield bridge.app
