"""`mcp-a2a serve`: serves a configuration file, in one process or several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from bridge import __version__
from bridge.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.assembly.plan import Plan
    from bridge.config.load import LoadedConfig, SettingOverride
    from bridge.process.reload import ReadConfig

CONFIG_FILE_NAME: Final = "bridge.toml"
"""The default name of the file."""

_OF_THE_FILE: Final = ("host", "port", "replica_url", "metrics", "console", "log_format", "log_level")
"""Options that override the file."""


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
    help="Where the other replicas on the same PostgreSQL reach this process alone. Default: the file's.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Serve metrics at /metrics of an address of its own, which differs for each process. Default: the file's.",
)
@click.option(
    "--console", is_flag=True, help="Serve the pages for people at /console, too. Default: the file's."
)
@click.option(
    "--require-auth",
    is_flag=True,
    help="Serve nobody without a credential: the file needs principals or issuers, on loopback too.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Serve with N processes, one for each core. Takes a PostgreSQL (`store`) and `keys` in [bridge]. Default: 1.",
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
    mcp-a2a serve team.toml --workers 4

    With --stdio an MCP host starts the command (`mcp-a2a install` tells the host how). You may leave out NAME if the
    file has one MCP server. If that server is made of agents of the same file, they run in the same process. Nobody
    else can call them, and their tasks end with the process.

    One process uses one core. With --workers several processes serve the same port as one bridge. Each tool server
    that the bridge starts runs once, for all of them (`each_worker = true` starts it in each). The limits of the file
    are divided among them. A worker that dies is started anew; 5 deaths in a minute end the whole with exit code 1.

    You may change the file while the bridge runs. The bridge applies the changes without a restart, and loses no call.
    It refuses a file with mistakes, and goes on with the last one.

    Ctrl+C lets running tasks end. A second Ctrl+C stops them.
    """
    import anyio

    from bridge.cli import banner, logs
    from bridge.process.reload import Reload
    from bridge.process.serve import serve_http as serve_plan
    from bridge.process.served_values import FixedConfiguration

    path, changes = found(options["file"]), given(context)
    if options["stdio"] is not None:
        return _serve_stdio(path, changes, options)

    def read() -> ReadConfig:
        given = read_from(loaded_from(path, changes))
        # A file that loses its last principal is taken over, and nobody is let in then.
        return replace(given, plan=closed(given.plan)) if options["require_auth"] else given

    first = read()
    if options["require_auth"]:
        require_credentials(first.plan, path)
    logs.set_up(first.log_format, first.log_level)
    if options["workers"] > 1:
        return _serve_with_workers(read, first, options)
    audience = banner.InLog if first.log_format == "json" else banner.OnTerminal
    reload = None if options["no_reload"] else Reload(read, first, logs.set_up)
    served = FixedConfiguration(first.shown)
    return anyio.run(serve_plan, first.plan, audience(first.plan), reload, served)


def _serve_with_workers(read: Callable[[], ReadConfig], first: ReadConfig, options: dict[str, Any]) -> int:
    import sys
    from functools import partial

    import anyio

    from bridge.cli import banner, logs
    from bridge.process.reload import Reload
    from bridge.process.supervisor import Supervisor

    # -P: what lies in the current folder is not imported, as it is not by the command itself.
    command = (sys.executable, "-P", "-m", "bridge.cli.worker")
    observer = banner.WorkersInLog() if first.log_format == "json" else banner.WorkersOnTerminal()
    log = (first.log_format, first.log_level)
    supervisor = Supervisor(first.plan, options["workers"], command, observer, log, first.shown)
    set_up = partial(supervisor.set_up_log, logs.set_up)
    reload = None if options["no_reload"] else Reload(read, first, set_up)
    return anyio.run(supervisor.serve, reload)


def _serve_stdio(path: Path, changes: dict[str, SettingOverride], options: dict[str, Any]) -> int:
    import secrets

    import anyio

    from bridge.assembly.plan import calls_itself, for_stdio
    from bridge.cli import logs
    from bridge.process.reload import Reload
    from bridge.process.serve import serve_stdio

    if options["workers"] > 1:
        raise UsageError("--stdio serves one host: it does not go with --workers")
    if refused := [name for name in ("host", "port", "replica_url", "metrics", "console") if name in changes]:
        raise UsageError(f"--stdio listens nowhere: it does not go with --{refused[0].replace('_', '-')}")
    if options["require_auth"]:
        raise UsageError("--stdio listens nowhere: it does not go with --require-auth")
    loaded = loaded_from(path, changes)
    name, token = face_named(loaded, options["stdio"]), secrets.token_urlsafe(32)
    first = read_from(loaded)
    first = replace(first, plan=for_stdio(first.plan, name, token))
    logs.set_up(first.log_format, first.log_level)

    def read() -> ReadConfig:
        loaded = loaded_from(path, changes)
        again = read_from(loaded)
        plan = for_stdio(again.plan, face_named(loaded, name), token)
        if calls_itself(plan) and not calls_itself(first.plan):
            raise UsageError(f"{name} is made of an agent of this file now, which takes a restart")
        return replace(again, plan=plan)

    reload = None if options["no_reload"] else Reload(read, first, logs.set_up)
    return anyio.run(serve_stdio, first.plan, reload)


def closed(plan: Plan) -> Plan:
    """The plan, which lets nobody in without a credential."""
    return replace(plan, allow_unauthenticated=False)


def require_credentials(plan: Plan, path: Path) -> None:
    """Require a plan that asks for credentials.

    Raises:
        UsageError: it would let everyone in.
    """
    if not plan.asks_for_credentials:
        raise UsageError(
            f"{path} has neither [principals.NAME] nor [issuers.NAME], so everyone would be let in, which"
            " --require-auth forbids"
        )


def face_named(loaded: LoadedConfig, name: str) -> str:
    """The MCP server of a file that is meant; "" is the only one.

    Raises:
        UsageError: there is none of this name, or several.
    """
    from bridge.config.text.wording import listed, meant

    names = list(loaded.config.agents_as_tools)
    if not names:
        raise UsageError(f"{loaded.path} has no MCP server: it takes a table [agents_as_tools.NAME]")
    if name and name not in names:
        hint = "the file comes before --stdio" if name.endswith(".toml") else meant(name, names)
        raise UsageError(f"{loaded.path} has no MCP server {name!r}: {hint}")
    if not name and len(names) > 1:
        raise UsageError(f"{loaded.path} has several MCP servers: say which one, {listed(names)}")
    return name or names[0]


def found(file: Path | None) -> Path:
    """The configuration file that is meant.

    Raises:
        UsageError: none was named, and there is none in this folder.
    """
    if file is not None:
        return file
    here = Path(CONFIG_FILE_NAME)
    if not here.is_file():
        raise UsageError(
            f"there is no {CONFIG_FILE_NAME} in {Path.cwd()}: name the file, or write one with `mcp-a2a init`"
        )
    return here


def given(context: click.Context) -> dict[str, SettingOverride]:
    """What the command line or the environment says in the file's place."""
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
    """The file, with what is said in its place."""
    from bridge.config.load import load

    return load(path).given(**changes)


def read_from(loaded: LoadedConfig) -> ReadConfig:
    """What a file says, as it is served and read again."""
    from functools import partial

    from bridge.config.toml_text import shown_values
    from bridge.process.reload import ReadConfig

    table = loaded.config.bridge
    shown = partial(shown_values, loaded)
    return ReadConfig(plan_of(loaded), loaded.files, table.log_format, table.log_level, shown)


def plan_of(loaded: LoadedConfig) -> Plan:
    """What a file says is to be served; there has to be something.

    Raises:
        UsageError: there is nothing.
    """
    from bridge.assembly.plan_from_file import plan_from_file

    plan = plan_from_file(loaded)
    if not plan.published and not plan.offered:
        raise UsageError(
            f"{loaded.path} serves nothing: it has neither [tools_as_agent.NAME] nor [agents_as_tools.NAME]"
        )
    return plan
