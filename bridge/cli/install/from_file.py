"""A configuration file as the source of `install`: the host starts one MCP server of the file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.cli.expose import names_of_agents_options
from bridge.errors import UsageError
from bridge.hosts import entry

if TYPE_CHECKING:
    from bridge.cli.card import AgentConnection
    from bridge.config.load import LoadedConfig
    from bridge.hosts.places import Host


def is_meant(options: Mapping[str, Any]) -> bool:
    """Whether the options name a file, and not URLs."""
    return any(word.endswith(".toml") and "://" not in word for word in options["urls"])


def served_from(options: Mapping[str, Any], host: Host) -> entry.ConfiguredServer:
    """The MCP server of the file that the host starts.

    Raises:
        UsageError: the file has errors, has no such server, or needs variables that this host does not pass on.
    """
    for option in (option for option in names_of_agents_options() if options[option]):
        raise UsageError(
            f"the file itself has the options for its agents: leave out --{option.replace('_', '-')}"
        )
    loaded = _loaded(options)
    if not host.from_shell:
        _require_no_variables(loaded, host)
    served = entry.ConfiguredServer(str(loaded.path), _face(options, loaded))
    if "${" in served.file:
        raise UsageError("hosts read ${ in a path as a variable: move the file elsewhere")
    return served


def face_of(options: Mapping[str, Any]) -> str:
    """The name of the MCP server in the file."""
    return options["face"] or _face(options, _loaded(options))


def connections_of(options: Mapping[str, Any]) -> Mapping[str, AgentConnection]:
    """By name: the connections to agents of the server that have credentials in the file."""
    from bridge.assembly.plan_from_file import plan_from_file
    from bridge.cli.card import AgentConnection

    loaded = _loaded(options)
    plan = plan_from_file(loaded)
    offered = plan.offered[_face(options, loaded)]
    agents = {name: plan.agents[name] for name in offered.sources if name in plan.agents}
    return {
        name: AgentConnection(
            agent.url,
            {**agent.headers, **({"Authorization": f"Bearer {agent.bearer}"} if agent.bearer else {})},
            agent.trusted,
            agent.api_key,
            bool(agent.allow_private),
            dialect=agent.dialect,
            bindings=agent.bindings,
            tls=agent.tls,
        )
        for name, agent in agents.items()
        if agent.bearer or agent.api_key or agent.headers or agent.tls
    }


def path_of(options: Mapping[str, Any]) -> str:
    """The path of the file, which need not exist."""
    return os.path.abspath(_file(options))


def _face(options: Mapping[str, Any], loaded: LoadedConfig) -> str:
    from bridge.cli.serve import server_named

    return server_named(loaded, options["face"] or "")


def _loaded(options: Mapping[str, Any]) -> LoadedConfig:
    from bridge.config.load import load

    return load(Path(os.path.abspath(_file(options))))


def _file(options: Mapping[str, Any]) -> Path:
    if len(options["urls"]) > 1:
        raise UsageError("give one configuration file, or the URLs of agents")
    return Path(options["urls"][0]).expanduser()


def _require_no_variables(loaded: LoadedConfig, host: Host) -> None:
    from bridge.config.text.secrets import secrets_in

    for secret in secrets_in(loaded.config):
        source, _, name = secret.reference.partition(":")
        if source == "env":
            raise UsageError(
                f"{host.title} does not start from a shell and would not see {name}: keep the secret in a file, and"
                f' write {{ file = "PATH" }} in {loaded.path}'
            )
