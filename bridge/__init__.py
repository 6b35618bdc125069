"""mcp-a2a: a bridge between the Model Context Protocol and the Agent2Agent protocol.

As a library: `load` reads a configuration file and `loads` a text or a dict, `open` runs the configuration as an ASGI
application, which another application may mount, and `bridge.testing` calls an agent in memory. They raise the errors
in `bridge.errors`. Everything else is private.

    config = bridge.load("bridge.toml")
    async with bridge.open(config) as app:
        ...
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from bridge.config.load import LoadedConfig
    from bridge.mcp.client.transports.in_process import ServerObject

from bridge.version import __version__

__all__ = ["__version__", "load", "loads", "open"]


def load(
    path: str | os.PathLike[str],
    environment: Mapping[str, str] = os.environ,
    *,
    servers: Mapping[str, ServerObject] | None = None,
) -> LoadedConfig:
    """Read a configuration file, with its profiles and secrets, without starting anything.

    `servers` are tool servers in this process, objects of the MCP SDK (`MCPServer`, or a low-level `Server`), by the
    names of their tables in `[tool_servers]`. An object replaces the command or the URL of its table, and the limits of
    the table apply. An object without a table is added.

    Raises:
        bridge.errors.ConfigError: the file has errors; the message lists all errors with their places.
        bridge.errors.UsageError: an object is no server of the MCP SDK.
    """
    from bridge.config.load import load as load_file  # the command line imports this package for its version

    return load_file(Path(path), environment, _required(servers))


def loads(
    configuration: str | Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
    *,
    servers: Mapping[str, ServerObject] | None = None,
) -> LoadedConfig:
    """Read a configuration from a text, or from its tables as a dict.

    Relative paths start in the current folder. `servers` is as for `load`.

    Raises:
        bridge.errors.ConfigError: the configuration has errors. For a dict the message shows them as TOML.
        bridge.errors.UsageError: an object is no server of the MCP SDK.
    """
    from bridge.config.load import load_text
    from bridge.config.toml_text import toml_of

    text = configuration if isinstance(configuration, str) else toml_of(configuration)
    return load_text(text, environment, _required(servers))


def open(  # noqa: A001
    config: LoadedConfig, *, own_url: str | None = None
) -> AbstractAsyncContextManager[ASGIApp]:
    """Run a configuration while the context is open, and return the application that serves it.

    The application has no lifespan of its own: open this context in the lifespan of the application that mounts it,
    or in a fixture. A task of its own runs the bridge, so a different task may leave the context. `host` and `port` of
    `[bridge]` are ignored, because the surrounding application listens. `own_url` is the URL, with the mount path, at
    which this process reaches the application. It is needed only if an MCP server exposes agents that the same file
    publishes.

    Raises:
        bridge.errors.PeerError: a tool server is down, and its `fail` is `closed`.
        bridge.errors.UsageError: a command cannot be started; a store is in use; `own_url` is needed.
    """
    from bridge.assembly.plan_from_file import plan_from_file
    from bridge.opened import Opened  # imports the MCP SDK, which takes most of a second

    return Opened(plan_from_file(config), own_url)


def _required(servers: Mapping[str, ServerObject] | None) -> Mapping[str, object]:
    if not servers:
        return {}
    from bridge.mcp.client.transports.in_process import low_level

    return {name: low_level(name, server) for name, server in servers.items()}
