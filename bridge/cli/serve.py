"""`mcp-a2a serve`: serves a configuration file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from bridge import __version__
from bridge.errors import UsageError

if TYPE_CHECKING:
    from bridge.assembly.plan import Plan
    from bridge.config.load import LoadedConfig, SettingOverride
    from bridge.process.reload import ReadConfig

CONFIG_FILE_NAME: Final = "bridge.toml"
"""The default name of the file."""

_OF_A_PORT: Final = ("host", "port", "replica_url", "metrics", "grpc", "console")
_OF_THE_FILE: Final = (*_OF_A_PORT, "log_format", "log_level")
"""Options that override settings of the file. The first ones are for a bridge that listens."""


def _refuse_workers(_: click.Context, __: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise UsageError(
            "--workers is gone: several processes now serve one port as replicas, each started as `mcp-a2a serve FILE"
            " --fd N --replica-url unix:/PATH` with one listening socket, which systemd passes by itself"
            " (docs/replicas.md, Many cores)"
        )


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@click.option("--host", help="Address to listen on. Default: the file's.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port; 0 takes a free one. Default: the file's, else 8080."
)
@click.option(
    "--stdio",
    is_flag=False,
    flag_value="",
    metavar="[NAME]",
    help="Serve one MCP server of the file (agents_as_tools) over stdin and stdout, and nothing else.",
)
@click.option(
    "--replica-url",
    metavar="URL",
    help="The URL at which other replicas on the same PostgreSQL reach this process. Default: the file's.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Serve /metrics at this separate address. Each process needs its own. Default: the file's.",
)
@click.option(
    "--grpc",
    metavar="HOST:PORT",
    help="Serve agents over gRPC, too, at this separate address. Each process needs its own. Default: the file's.",
)
@click.option(
    "--console", is_flag=True, help="Serve the console for people at /console. Default: the file's."
)
@click.option(
    "--require-auth",
    is_flag=True,
    help="Require a credential of every caller, on loopback too. The file needs principals or issuers.",
)
@click.option("--workers", hidden=True, expose_value=False, callback=_refuse_workers, metavar="N")
@click.option(
    "--fd",
    type=click.IntRange(0),
    metavar="N",
    help="Accept connections on the listening socket that this process has inherited as descriptor N. Other processes"
    " may share the socket. A socket from systemd needs no option (LISTEN_FDS).",
)
@click.option(
    "--audit-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The audit file of this process ([audit]). Default: the file's.",
)
@click.option("--no-reload", is_flag=True, help="Do not apply changes of the file.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Default: the file's.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Default: the file's."
)
@click.version_option(__version__, package_name="mcp-a2a", prog_name="mcp-a2a")
@click.pass_context
def serve(context: click.Context, /, **options: Any) -> int:
    """Serve the agents and MCP servers of a configuration file.

    FILE defaults to bridge.toml in the current folder. `mcp-a2a init` writes a file to start from. `mcp-a2a check`
    shows its mistakes, and what would be served.

    \b
    mcp-a2a serve
    mcp-a2a serve --port 9000 team.toml
    mcp-a2a serve team.toml --stdio
    mcp-a2a serve team.toml --stdio research
    mcp-a2a serve team.toml --fd 3 --replica-url unix:/run/mcp-a2a/1.sock

    With --stdio an MCP host starts the command (`mcp-a2a install` tells the host how). You may leave out NAME if the
    file has one MCP server. If that server is made of agents of the same file, they run in the same process. Nobody
    else can call them, and their tasks end with the process.

    One process uses one core. Several processes may share one listening socket: --fd names it, or systemd passes it.
    They are replicas of one bridge on one PostgreSQL, and each has a --replica-url of its own (docs/replicas.md).

    You may change the file while the bridge runs. The bridge applies the changes without a restart, and loses no call.
    It refuses a file with mistakes, and continues with the last valid file.

    Ctrl+C lets running tasks end. A second Ctrl+C stops them.
    """
    import os

    import anyio

    from bridge.cli import banner, logs
    from bridge.console.served_values import FixedConfiguration
    from bridge.process.reload import Reload
    from bridge.process.serve import serve_http as serve_plan
    from bridge.process.shared_listener import shared_listener

    path, changes = config_file(options["file"]), overrides_from(context)
    if options["stdio"] is not None:
        return _serve_stdio(path, changes, options)
    with shared_listener(options["fd"], os.environ) as shared:
        if shared is not None and (refused := [name for name in ("host", "port") if name in changes]):
            raise UsageError(f"{shared.said} brings its own address: it does not go with --{refused[0]}")

        def read() -> ReadConfig:
            config = read_from(loaded_from(path, changes))
            plan = config.plan
            if options["audit_file"] is not None:
                plan = _audited(plan, options["audit_file"], path)
            # A reload may remove the last principal: the bridge then refuses every caller.
            plan = requiring_credentials(plan) if options["require_auth"] else plan
            return replace(config, plan=plan if shared is None else shared.placed(plan))

        first = read()
        if options["require_auth"]:
            require_credentials(first.plan, path)
        logs.set_up(first.log_format, first.log_level)
        audience = banner.InLog if first.log_format == "json" else banner.OnTerminal
        reload = None if options["no_reload"] else Reload(read, first, logs.set_up)
        served = FixedConfiguration(first.shown)
        return anyio.run(serve_plan, first.plan, audience(first.plan), reload, served, shared)


def _audited(plan: Plan, file: Path, path: Path) -> Plan:
    """The plan, with `file` for its audit.

    Raises:
        UsageError: the plan has no audit.
    """
    if plan.place.audit is None:
        raise UsageError(f"--audit-file needs an audit: write a table [audit] in {path}")
    return replace(plan, place=replace(plan.place, audit=replace(plan.place.audit, file=file.absolute())))


def _serve_stdio(path: Path, changes: dict[str, SettingOverride], options: dict[str, Any]) -> int:
    import secrets

    import anyio

    from bridge.assembly.plan import calls_itself, for_stdio
    from bridge.cli import logs
    from bridge.process.reload import Reload
    from bridge.process.serve import serve_stdio

    of_file = [name for name in _OF_A_PORT if name in changes]
    if refused := [*of_file, *(name for name in ("fd", "audit_file") if options[name] is not None)]:
        raise UsageError(f"--stdio opens no port: it does not go with --{refused[0].replace('_', '-')}")
    if options["require_auth"]:
        raise UsageError("--stdio opens no port: it does not go with --require-auth")
    loaded = loaded_from(path, changes)
    name, token = server_named(loaded, options["stdio"]), secrets.token_urlsafe(32)
    first = read_from(loaded)
    first = replace(first, plan=for_stdio(first.plan, name, token))
    logs.set_up(first.log_format, first.log_level)

    def read() -> ReadConfig:
        loaded = loaded_from(path, changes)
        again = read_from(loaded)
        plan = for_stdio(again.plan, server_named(loaded, name), token)
        if calls_itself(plan) and not calls_itself(first.plan):
            raise UsageError(f"{name} now uses an agent of this file, which takes a restart")
        return replace(again, plan=plan)

    reload = None if options["no_reload"] else Reload(read, first, logs.set_up)
    return anyio.run(serve_stdio, first.plan, reload)


def requiring_credentials(plan: Plan) -> Plan:
    """The plan, with a credential required of every caller."""
    return replace(plan, allow_unauthenticated=False)


def require_credentials(plan: Plan, path: Path) -> None:
    """Require a plan that asks for credentials.

    Raises:
        UsageError: the plan would let everyone in.
    """
    if not plan.asks_for_credentials:
        raise UsageError(
            f"{path} has neither [principals.NAME] nor [issuers.NAME], so everyone would be let in, which"
            " --require-auth forbids"
        )


def server_named(loaded: LoadedConfig, name: str) -> str:
    """The name of an MCP server of the file; "" names the only one.

    Raises:
        UsageError: there is no such server, or "" is given and there are several.
    """
    from bridge.config.text.wording import listed, meant

    names = list(loaded.config.agents_as_tools)
    if not names:
        raise UsageError(f"{loaded.path} has no MCP server: write a table [agents_as_tools.NAME]")
    if name and name not in names:
        hint = "the file comes before --stdio" if name.endswith(".toml") else meant(name, names)
        raise UsageError(f"{loaded.path} has no MCP server {name!r}: {hint}")
    if not name and len(names) > 1:
        raise UsageError(f"{loaded.path} has several MCP servers: name one, {listed(names)}")
    return name or names[0]


def config_file(file: Path | None) -> Path:
    """The named configuration file, or bridge.toml in the current folder.

    Raises:
        UsageError: no file is named, and the folder has no bridge.toml.
    """
    if file is not None:
        return file
    here = Path(CONFIG_FILE_NAME)
    if not here.is_file():
        raise UsageError(
            f"there is no {CONFIG_FILE_NAME} in {Path.cwd()}: name the file, or write one with `mcp-a2a init`"
        )
    return here


def overrides_from(context: click.Context) -> dict[str, SettingOverride]:
    """The settings of the file that the command line or the environment overrides."""
    from bridge.config.load import SettingOverride

    overrides: dict[str, SettingOverride] = {}
    for name in _OF_THE_FILE:
        source = context.get_parameter_source(name)
        value = context.params.get(name)
        if value is None or source not in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT):
            continue
        option = f"--{name.replace('_', '-')}"
        variable = f"{context.auto_envvar_prefix}_{name.upper()}"
        overrides[name] = SettingOverride(
            value, option if source is ParameterSource.COMMANDLINE else variable
        )
    return overrides


def loaded_from(path: Path, changes: dict[str, SettingOverride]) -> LoadedConfig:
    """The file, with its overridden settings."""
    from bridge.config.load import load

    return load(path).given(**changes)


def read_from(loaded: LoadedConfig) -> ReadConfig:
    """The values of a file that are served, and read again at a reload."""
    from functools import partial

    from bridge.config.toml_text import shown_values
    from bridge.process.reload import ReadConfig

    table = loaded.config.bridge
    shown = partial(shown_values, loaded)
    return ReadConfig(plan_of(loaded), loaded.files, table.log_format, table.log_level, shown)


def plan_of(loaded: LoadedConfig) -> Plan:
    """The plan of a file.

    Raises:
        UsageError: the file serves nothing.
    """
    from bridge.assembly.plan_from_file import plan_from_file

    plan = plan_from_file(loaded)
    if not plan.published and not plan.offered:
        raise UsageError(
            f"{loaded.path} serves nothing: it has neither [tools_as_agent.NAME] nor [agents_as_tools.NAME] nor"
            " [agents_as_agent.NAME]"
        )
    return plan
