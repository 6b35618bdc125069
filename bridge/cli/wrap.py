"""`mcp-a2a wrap`: an MCP server as an A2A agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from bridge.cli.card import tls_options, with_options
from bridge.cli.login.login import with_stored_logins

if TYPE_CHECKING:
    from bridge.assembly.plan import Plan, ServerPlan
    from bridge.cli.option_document import OptionsDocument


_Command = TypeVar("_Command", bound=Callable[..., Any])


def serving_options(log_level: str) -> Callable[[_Command], _Command]:
    """Add the options for callers, for the log and for `--print-toml`, to a command that serves."""
    options = (
        click.option(
            "--auth",
            multiple=True,
            metavar="[PRINCIPAL=]bearer:env:NAME|file:PATH",
            help="Let in callers with this token. Repeatable.",
        ),
        click.option(
            "--allow-unauthenticated",
            is_flag=True,
            help="Listen on an address beyond this machine even without --auth.",
        ),
        click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            default=log_level,
            show_default=True,
        ),
        click.option(
            "--print-toml",
            is_flag=True,
            help="Print the equivalent configuration file, and serve nothing.",
        ),
    )
    return partial(with_options, options=options)


_PUBLISHED_OPTIONS: Final = (
    click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on."),
    click.option(
        "--port",
        default=8080,
        show_default=True,
        type=click.IntRange(0, 65535),
        help="Port; 0 takes a free one.",
    ),
    click.option("--public-url", metavar="URL", help="The address on the card, for a bridge behind a proxy."),
    click.option(
        "--allow-host", multiple=True, metavar="NAME", help="Answer under this host name too. Repeatable."
    ),
    click.option(
        "--store",
        metavar="PLACE",
        help="Where to keep tasks: a file, or memory:. Default: a file in your state folder.",
    ),
    click.option(
        "--push",
        is_flag=True,
        help="Send push notifications to the webhooks that clients name (docs/push.md).",
    ),
    click.option(
        "--push-allow",
        multiple=True,
        metavar="HOST:PORT",
        help="As --push, and also allow this receiver on this machine or in its network. Repeatable.",
    ),
    click.option(
        "--grpc",
        metavar="HOST:PORT",
        help="Serve the agent over gRPC, too, at this separate address (docs/guides/grpc.md).",
    ),
    click.option("--console", is_flag=True, help="Serve the console for people at /console."),
)


def published_options(command: _Command) -> _Command:
    """Add the options for where an agent is served, and how, to a command that serves one agent."""
    return with_options(command, _PUBLISHED_OPTIONS)


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("target", nargs=-1, metavar="URL | -- COMMAND ARGS...")
@click.option(
    "--from-json",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Wrap the servers of an MCP host's file (its mcpServers) as one agent.",
)
@click.option("--only", multiple=True, metavar="NAME", help="With --from-json: only this server. Repeatable.")
@published_options
@click.option("--name", help="The agent's name. Default: the server's name.")
@click.option("--description", help="The agent's description. Default: the server's instructions.")
@click.option("--mapping", default="default", show_default=True, metavar="NAME|FILE", help="Mapping profile.")
@click.option(
    "--header",
    multiple=True,
    metavar="NAME=env:VAR|file:PATH|VALUE",
    help="HTTP header for the server. Repeatable.",
)
@partial(with_options, options=tls_options("the server"))
@click.option(
    "--allow-private",
    is_flag=True,
    help="Connect even if a public host name in the URL leads to a private address.",
)
@click.option(
    "--env", "variables", multiple=True, metavar="NAME[=VALUE]", help="Variable for the command. Repeatable."
)
@click.option(
    "--era",
    type=click.Choice(["auto", "legacy", "modern"]),
    default="auto",
    show_default=True,
    help="The server's generation of MCP: legacy is 2025-11-25 and older, modern 2026-07-28.",
)
@click.option(
    "--no-known",
    is_flag=True,
    help="Give a well-known server no ready mapping, which has phrases for its tools.",
)
@click.option(
    "--connect-seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="How long a server may take to start and to list its tools. Default: the profile's (30).",
)
@click.option(
    "--call-timeout-seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="How long a tool may take. Default: the profile's.",
)
@click.option(
    "--fail",
    type=click.Choice(["open", "closed"]),
    help="If a server is down at the start: open retries, closed exits. Default: the profile's (closed).",
)
@click.option(
    "--share",
    metavar="resources,prompts,apps,logging,tasks",
    help="Also pass on the server's resources, prompts, MCP Apps, log messages, need of tasks (docs/extensions.md).",
)
@click.option(
    "--prompts",
    type=click.Choice(["skills"]),
    help="Make each prompt of the server a skill, for clients that know nothing of MCP.",
)
@click.option(
    "--resources",
    type=click.Choice(["skills"]),
    help="Make each resource template a skill, and one skill that finds and reads the other resources.",
)
@click.option(
    "--links",
    type=click.Choice(["serve"]),
    help="Serve the resources that results link to, each for a day and for its caller alone.",
)
@serving_options("info")
def wrap(**options: Any) -> int:
    """Serve an MCP server as an A2A agent.

    Name the server by its URL (Streamable HTTP), or by a command after --. The command speaks MCP over stdin and
    stdout. Each tool of the server becomes a skill of the agent, and each call of a skill becomes a task.

    \b
    mcp-a2a wrap -- npx -y @modelcontextprotocol/server-everything
    mcp-a2a wrap --port 9000 --header Authorization=env:TOKEN https://tools.example.com/mcp
    mcp-a2a wrap --from-json ~/.cursor/mcp.json --only github --only weather
    mcp-a2a wrap --print-toml -- python server.py > bridge.toml

    Ctrl+C lets running tasks end. A second Ctrl+C stops them.
    """
    import anyio

    from bridge.cli import banner, logs, option_document
    from bridge.config.toml_text import shown_values
    from bridge.console.served_values import FixedConfiguration
    from bridge.process.serve import serve_http

    logs.set_up(options["log_format"], options["log_level"])
    asked = option_document.wrapped(options)
    plan = plan_from(asked, options)
    if options["print_toml"]:
        return asked.write()
    audience = banner.InLog if options["log_format"] == "json" else banner.OnTerminal
    # Read now: the variable of a secret may be gone when somebody opens the page.
    shown = shown_values(asked.loaded()) if plan.place.console else ()
    return anyio.run(serve_http, plan, audience(plan), None, FixedConfiguration(lambda: shown))


def plan_from(asked: OptionsDocument, options: dict[str, Any]) -> Plan:
    """The plan of the equivalent file, with settings that no file can hold.

    Raises:
        UsageError: the options do not fit together, or a secret cannot be read.
    """
    plan = with_stored_logins(asked.plan())
    if options["from_json"]:
        return replace(
            plan, servers={name: _adjusted(server, options) for name, server in plan.servers.items()}
        )
    if options["name"]:
        return plan
    # The server itself gives the name, once it is connected.
    ((server,), (agent,)) = plan.servers.values(), plan.published.values()
    return replace(plan, servers={"": server}, published={"": replace(agent, servers=("",))})


def _adjusted(server: ServerPlan, options: dict[str, Any]) -> ServerPlan:
    """A server of a host's file, with the options that such a file cannot hold."""
    from bridge.mcp.client.transports.streamable_http import HttpTarget

    target, seconds = server.target, options["connect_seconds"]
    if options["no_known"]:
        server = replace(server, ready=None)
    if isinstance(target, HttpTarget) and options["allow_private"]:
        target = replace(target, allow_private=True)
    if seconds is None:
        return replace(server, target=target)
    if isinstance(target, HttpTarget):
        target = replace(target, connect_seconds=seconds)
    return replace(server, target=target, settings=server.settings.having(connect_seconds=seconds))
