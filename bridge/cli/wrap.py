"""`mcp-a2a wrap`: an MCP server as an A2A agent."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from bridge.errors import UsageError

if TYPE_CHECKING:
    from bridge.access.verifiers import Credential
    from bridge.assembly.plan import Plan, ServerPlan
    from bridge.config.tables.profile import Profile, ServerTable

SEVERAL: Final = "tools"
"""What the agent is called in its path when it is made of several servers."""


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("target", nargs=-1, metavar="URL | -- COMMAND ARGS...")
@click.option(
    "--from-json",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Wrap the servers of an MCP host's file (its mcpServers) instead, all behind one agent.",
)
@click.option("--only", multiple=True, metavar="NAME", help="With --from-json: only this server. Repeatable.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one."
)
@click.option("--public-url", metavar="URL", help="The address that the card tells others, behind a proxy.")
@click.option(
    "--allow-host", multiple=True, metavar="NAME", help="Also answer under this host name. Repeatable."
)
@click.option("--name", help="The agent's name. Default: what the server calls itself.")
@click.option("--description", help="The agent's description. Default: the server's instructions.")
@click.option(
    "--store",
    metavar="PLACE",
    help="Where tasks are kept: a file, or memory:. Default: the user's state folder.",
)
@click.option("--mapping", default="default", show_default=True, metavar="NAME|FILE", help="Mapping profile.")
@click.option(
    "--header",
    multiple=True,
    metavar="NAME=env:VAR|file:PATH|VALUE",
    help="HTTP header for the server. Repeatable.",
)
@click.option(
    "--allow-private",
    is_flag=True,
    help="Go on also when the name in the URL, once public, leads to a private address.",
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
    "--auth",
    multiple=True,
    metavar="[PRINCIPAL=]bearer:env:NAME|file:PATH",
    help="Let in who has this token. Repeatable.",
)
@click.option("--allow-unauthenticated", is_flag=True, help="Listen beyond this machine without --auth.")
@click.option(
    "--call-timeout-seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="How long a tool may take. Default: the profile's.",
)
@click.option(
    "--fail",
    type=click.Choice(["open", "closed"]),
    help="A server that is down at the start: serve and go on trying, or end. Default: the profile's (closed).",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option(
    "--print-toml", is_flag=True, help="Serve nothing: print the configuration file that says the same."
)
def wrap(**options: Any) -> int:
    """Serve an MCP server as an A2A agent.

    The server is a URL (Streamable HTTP), or after -- a command that speaks MCP over stdin and stdout. Each
    of its tools becomes a skill of the agent, and each call of a skill a task.

    \b
    mcp-a2a wrap -- npx -y @modelcontextprotocol/server-everything
    mcp-a2a wrap --port 9000 --header Authorization=env:TOKEN https://tools.example.com/mcp
    mcp-a2a wrap --from-json ~/.cursor/mcp.json --only github --only weather
    mcp-a2a wrap --print-toml -- python server.py > bridge.toml

    Ctrl+C once lets running tasks end, twice stops them.
    """
    import anyio

    from bridge.cli import banner, logs
    from bridge.run import serve

    logs.set_up(options["log_format"], options["log_level"])
    plan = plan_from(options)
    if options["print_toml"]:
        return _print(plan, options)
    audience = banner.InLog if options["log_format"] == "json" else banner.OnTerminal
    return anyio.run(serve, plan, audience(plan))


def plan_from(options: dict[str, Any]) -> Plan:
    """What the options ask to serve.

    Raises:
        UsageError: they do not fit together, or a secret cannot be read.
    """
    from bridge.assembly.plan import Place, Plan, PublishedPlan
    from bridge.config.tables.profile import load_profile
    from bridge.config.text.wording import shown_url

    profile = load_profile(options["mapping"])
    if options["call_timeout_seconds"]:
        if not math.isfinite(options["call_timeout_seconds"]):
            raise UsageError("--call-timeout-seconds takes a number of seconds")
        run = profile.run.model_copy(update={"call_timeout_seconds": options["call_timeout_seconds"]})
        profile = profile.model_copy(update={"run": run})
    public_url = options["public_url"]
    if public_url is not None and not public_url.startswith(("http://", "https://")):
        raise UsageError(f"--public-url takes an http(s) URL, not {shown_url(public_url)!r}")
    servers = _servers_from(options, profile)
    return Plan(
        profile=profile,
        place=Place(
            host=options["host"],
            port=options["port"],
            public_url=public_url.rstrip("/") if public_url else None,
            hosts=frozenset(one.lower() for one in options["allow_host"]),
        ),
        credentials=credentials_from(options["auth"]),
        allow_unauthenticated=options["allow_unauthenticated"],
        servers=servers,
        published={
            _face_name(options["name"], servers): PublishedPlan(
                servers=tuple(servers),
                profile=profile,
                store=_store_from(options["store"]),
                card_name=options["name"],
                card_description=options["description"],
                fail=options["fail"],
            )
        },
    )


def _face_name(name: str | None, servers: Mapping[str, object]) -> str:
    """What the agent is called in its path: what was said, or its only server's name ("" when that says it)."""
    from bridge.assembly.naming import slug

    if name:
        return slug(name)
    return next(iter(servers)) if len(servers) == 1 else SEVERAL


def _servers_from(options: dict[str, Any], profile: Profile) -> dict[str, ServerPlan]:
    from bridge.assembly.naming import slug
    from bridge.assembly.plan import ServerPlan
    from bridge.mcp.client.eras import Era

    if options["from_json"]:
        return _servers_of_a_host(options, profile)
    if options["only"]:
        raise UsageError("--only is for --from-json")
    if not options["target"]:
        raise UsageError("Missing argument: the URL of a server, -- COMMAND ARGS..., or --from-json FILE")
    server = profile.server
    target = _target_from(options, server)
    plan = ServerPlan.as_profile_says(target, Era(options["era"]), server, profile.run)
    return {slug(options["name"]) if options["name"] else "": plan}


def _servers_of_a_host(options: dict[str, Any], profile: Profile) -> dict[str, ServerPlan]:
    """The servers of a host's file, or some of them; what is wrong with others is the host's business."""
    from bridge.assembly.from_file import server_plan
    from bridge.config.mcp_json import read_host_file
    from bridge.config.text.diagnostics import ConfigError
    from bridge.config.text.wording import meant, table_name

    given = {
        "a URL or command": options["target"],
        "--header": options["header"],
        "--env": options["variables"],
    }
    for what in (what for what, is_given in given.items() if is_given):
        raise UsageError(f"--from-json names the servers, and says all of them: it does not go with {what}")
    if options["era"] != "auto":
        raise UsageError("--era is for one server: it does not go with --from-json")
    file = read_host_file(options["from_json"], os.environ)
    wanted = [table_name(name) for name in options["only"]] or sorted(file.names)
    for name in wanted:
        if name not in file.names:
            raise UsageError(
                f"{options['from_json']} has no server {name!r}: {meant(name, sorted(file.names))}"
            )
    if refused := [one for name in wanted for one in file.refused.get(name, ())]:
        raise ConfigError(refused)
    if not wanted:
        raise UsageError(f"{options['from_json']} holds no server that is not disabled")
    order = [name for name in file.servers if name in wanted]
    plans = {name: server_plan(file.servers[name].server, profile) for name in order}
    return {name: _as_said_here(plan, options) for name, plan in plans.items()}


def _as_said_here(plan: ServerPlan, options: dict[str, Any]) -> ServerPlan:
    """A server of a host's file, of which the command line says what such a file cannot."""
    from bridge.mcp.client.transports.streamable_http import Url

    if not isinstance(plan.target, Url):
        return plan
    target = replace(plan.target, allow_private=options["allow_private"], on_command_line=True)
    return replace(plan, target=target)


def _print(plan: Plan, options: dict[str, Any]) -> int:
    from bridge.assembly.naming import name_of, slug
    from bridge.cli.printed import print_wrap

    ((name, one),) = plan.published.items()
    named = name or slug(name_of(plan.servers[name].target))
    return print_wrap(options, named, [source or named for source in one.servers])


def _store_from(said: str | None) -> str | None:
    """`memory:`, or the path that is meant."""
    scheme, memory = "sqlite:///", "memory:"
    if said is None or said == memory:
        return said
    if said == memory.rstrip(":"):
        raise UsageError(f"--store {said}: did you mean {memory}, or ./{said} for a file of that name?")
    if "://" in said and not said.startswith(scheme):
        raise UsageError(f"--store takes memory:, sqlite:///PATH or a path, not {said!r}")
    return str(Path(said.removeprefix(scheme)).expanduser())


def credentials_from(texts: tuple[str, ...]) -> list[Credential]:
    """Who may call.

    Raises:
        UsageError: a token cannot be read, or two principals have the same.
    """
    from bridge.config.text.secrets import credential_from

    credentials = [credential_from(text) for text in texts]
    by_token: dict[str, str] = {}
    for known in credentials:
        other = by_token.setdefault(known.token, known.principal.name)
        if other != known.principal.name:
            raise UsageError(
                f"{other} and {known.principal.name} have the same token: nobody could tell them apart"
            )
    return credentials


def _target_from(options: dict[str, Any], server: ServerTable) -> Any:
    from bridge.address import meant_url
    from bridge.config.text.masking import shown_words
    from bridge.config.text.secrets import child_variable_from, header_from
    from bridge.config.text.wording import shown_url
    from bridge.mcp.client.transports.stdio import Command
    from bridge.mcp.client.transports.streamable_http import Url

    words: tuple[str, ...] = options["target"]
    if len(words) == 1 and words[0].startswith(("http://", "https://")):
        if options["variables"]:
            raise UsageError("--env is for a command; a URL takes --header")
        try:
            urlsplit(words[0]).port  # noqa: B018 - looks whether host and port can be read
        except ValueError as exc:
            raise UsageError(f"{shown_url(words[0])!r} is no URL: {exc}") from exc
        headers = dict(header_from(text) for text in options["header"])
        return Url(
            words[0],
            headers,
            server.connect_seconds,
            server.result_limit_bytes,
            server.result_json_values,
            allow_private=options["allow_private"],
            on_command_line=True,
        )
    if words[0].startswith(("http://", "https://")):
        raise UsageError(f"give a URL or a command, not both: {' '.join(shown_words(words))}")
    if options["header"]:
        raise UsageError("--header is for a URL; a command takes --env")
    if options["allow_private"]:
        raise UsageError("--allow-private is for a URL: nothing is looked up for a command")
    meant = meant_url(words[0]) if len(words) == 1 and shutil.which(words[0]) is None else None
    if meant is not None and not Path(words[0]).exists():
        raise UsageError(
            f"{words[0]!r} is no command; an address begins with its scheme: did you mean {meant}?"
        )
    variables = dict(child_variable_from(text) for text in options["variables"])
    return Command(
        words,
        variables,
        str(Path.cwd()),
        server.result_limit_bytes,
        server.result_json_values,
        tuple(shown_words(words)),
    )
