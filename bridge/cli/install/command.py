"""The command `mcp-a2a install`. `edits.py` changes a host's file, and `dialog.py` asks at a terminal."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import click
from click.core import ParameterSource

from bridge.cli.expose import agents_options
from bridge.cli.install import checks, from_file
from bridge.errors import PeerError, UsageError
from bridge.hosts import entry, links, places
from bridge.text import short_names
from bridge.text.jsonvalues import JsonObject

_PRINTED: Final = "mcp-json"
_HOSTS: Final[Mapping[str, places.Host]] = {**places.HOSTS, _PRINTED: places.ANY_HOST}

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Server names that every host accepts."""


@click.command()
@click.argument("host", type=click.Choice(list(_HOSTS)), metavar="HOST", required=False)
@click.argument("urls", nargs=-1, metavar="[URL... | FILE.toml | NAME]")
@click.option(
    "--name",
    help="The server's name in the host. Default: the name on the first agent's card, or in the file.",
)
@click.option("--face", metavar="NAME", help="With a file: the name of its MCP server (agents_as_tools).")
@agents_options
@click.option(
    "--scope",
    type=click.Choice([scope.value for scope in places.InstallScope]),
    default=places.InstallScope.USER.value,
    show_default=True,
    help="For you everywhere, or for the project in the current folder.",
)
@click.option("--file", "path", metavar="PATH", help="Write this file instead of the host's own.")
@click.option("--create", is_flag=True, help="Write the file even if the host is not found.")
@click.option(
    "--list",
    "lists",
    is_flag=True,
    help="List the servers of mcp-a2a in the files of all hosts, or of HOST.",
)
@click.option("--add", is_flag=True, help="Add the agents to an installed server: the only one, or --name.")
@click.option(
    "--remove", is_flag=True, help="Remove a server from the host's file, or agents from their server."
)
@click.option("--dry-run", is_flag=True, help="Show the changes, and write nothing.")
@click.option(
    "--bundle",
    metavar="FILE",
    help="With claude-desktop: write an MCP bundle, which asks for the address and the token when it is installed.",
)
@click.option(
    "--link",
    "links",
    is_flag=True,
    help="With cursor or vscode: print a link that adds the server, and what it will write.",
)
@click.option(
    "--check",
    is_flag=True,
    help="First read the agents' cards, try the credentials, start the server as the host would, and list its tools.",
)
def install(**options: Any) -> int:
    """Add A2A agents to an MCP host, as a server that the host starts.

    Name the agents by their URLs, or name a configuration file. Of a file, the command adds one MCP server. Without
    arguments, at a terminal, the command finds the installed hosts, and asks for everything.

    \b
    HOST is one of
      claude-desktop, claude-code, cursor, vscode, gemini, windsurf, zed
      goose         prints what to put into its YAML file
      mcp-json      prints the server as JSON, for any other host

    \b
    mcp-a2a install
    mcp-a2a install claude-desktop https://agent.example.com
    mcp-a2a install claude-code --bearer env:TOKEN https://agent.example.com
    mcp-a2a install cursor --bearer file:~/.secrets/token --check https://agent.example.com
    mcp-a2a install cursor --add https://other.example.com
    mcp-a2a install vscode --remove https://agent.example.com
    mcp-a2a install claude-code bridge.toml --face team
    mcp-a2a install claude-desktop --bundle agent.mcpb https://agent.example.com
    mcp-a2a install cursor --link https://agent.example.com
    mcp-a2a install --list

    Everything else in the host's file stays as it is. The command keeps the last five backups beside the file. A secret
    is written as the place that it is read from. env:NAME is for hosts that start from a shell (claude-code, gemini).

    --remove takes the name of a server, the URLs of agents, or a file. Of a server with several agents, it removes only
    the named agents.
    """
    from bridge.cli import render
    from bridge.cli.install import dialog, edits

    if options["lists"]:
        return _list(options)
    if options["host"] is None:
        if render.can_ask() and not _has_arguments(options):
            return dialog.install(options)
        if not _has_arguments(options):
            context = click.get_current_context()
            raise UsageError(f"which host? At a terminal, the command asks.\n\n{context.get_help()}")
        raise UsageError(f"which host? One of {', '.join(_HOSTS)}")
    host = _HOSTS[options["host"]]
    options["urls"] = tuple(map(agent_of, options["urls"]))
    if options["bundle"] is not None:
        from bridge.cli.install import bundle

        return bundle.write(options)
    _require_consistent(options, host)
    if options["remove"]:
        return edits.remove(options, host)
    if options["add"]:
        return edits.add_agents(options, host)
    return put(options, host)


@dataclass(frozen=True)
class AskedSecret:
    """A secret that the host asks its user for, and keeps."""

    asked: JsonObject
    """The entry of the host's list of inputs."""
    variable: str
    """The variable in which the server gets it."""
    value: str = field(repr=False)
    """The text in the host's file that stands for it."""


def put(options: dict[str, Any], host: places.Host, secret: AskedSecret | None = None) -> int:
    """Put a server into the host's file, or print it."""
    from bridge.cli.install import edits

    asked = {secret.variable: secret.value} if secret else {}
    arguments, offers, variables = _offered_from(options, host, asked)
    server = entry.entry_for(_program(), arguments, host, variables, asked)
    if options["links"]:
        return _print_link(options, host, server)
    if host.is_yaml or (options["host"] == _PRINTED and not options["path"]):
        return _print(options, host, server)
    return edits.add(options, host, server, offers, secret)


def _has_arguments(options: Mapping[str, Any]) -> bool:
    context = click.get_current_context()
    sources = map(context.get_parameter_source, options)
    return any(source not in (None, ParameterSource.DEFAULT) for source in sources)


def agent_of(word: str) -> str:
    """The URL of an agent, from this URL itself or from the URL of its card; any other word as it is."""
    if "://" not in word:
        return word
    from bridge.a2a.client.card_places import base_url

    try:
        base = base_url(word)
    except PeerError:  # the later use of the word reports the fault
        return word
    return word if base == word else base.rstrip("/")


def _list(options: dict[str, Any]) -> int:
    from bridge.cli.install import installed

    if options["urls"] or options["remove"] or options["add"] or options["check"]:
        raise UsageError("--list shows the installed servers: it takes a HOST, or nothing")
    named = options["host"]
    if named is not None and (named == _PRINTED or _HOSTS[named].is_yaml):
        raise UsageError(f"mcp-a2a does not read the file of {named}")
    return installed.show([_HOSTS[named]] if named else list(places.HOSTS.values()))


def _require_consistent(options: dict[str, Any], host: places.Host) -> None:
    if options["face"] and not from_file.is_meant(options):
        raise UsageError("--face names an MCP server of a configuration file: name that file as well")
    if not options["urls"] and not (options["remove"] and options["name"]):
        if options["remove"]:
            raise UsageError(
                f"remove what? mcp-a2a install {options['host']} --remove NAME, URL... or FILE.toml"
            )
        raise UsageError(f"which agents? mcp-a2a install {options['host']} URL...")
    if options["remove"] and options["check"]:
        raise UsageError("--check starts a server: it does not go with --remove")
    if options["remove"] and options["add"]:
        raise UsageError("--add and --remove are opposites: give one of them")
    if options["add"] and from_file.is_meant(options):
        raise UsageError("--add takes the URLs of agents: a file is a server of its own")
    if options["links"]:
        _require_link(options)
    project = options["scope"] == places.InstallScope.PROJECT
    if options["path"] and project:
        raise UsageError("--file names the file: it does not go with --scope")
    changes = options["remove"] or options["add"]
    if host.is_yaml and (changes or options["path"]):
        raise UsageError(
            f"{host.title} keeps its servers in YAML, which mcp-a2a does not edit: "
            f"change {_user_file(host)} yourself, or with `goose configure`"
        )
    if host.is_yaml or (options["host"] == _PRINTED and not options["path"]):
        given = {
            "--remove": options["remove"],
            "--add": options["add"],
            "--dry-run": options["dry_run"],
            "--scope project": project,
        }
        for option in (option for option, is_given in given.items() if is_given):
            raise UsageError(
                f"{options['host']} prints and writes no file: {option} needs another host, or --file"
            )
    if options["name"] is not None and not is_name(options["name"]):
        raise UsageError("--name takes at most 64 letters, digits, - and _: hosts take no more than that")


def _require_link(options: dict[str, Any]) -> None:
    if options["host"] not in links.HOSTS:
        raise UsageError(f"--link is for {' and '.join(links.HOSTS)}: {options['host']} has no such links")
    others = ("add", "remove", "path", "create", "dry_run")
    if any(options[name] for name in others) or options["scope"] == places.InstallScope.PROJECT:
        raise UsageError("--link writes no file: give no option of a file with it")
    for header in options["header"]:
        if not header.partition("=")[2].startswith(("env:", "file:")):
            raise UsageError("the value of a header would stand in the link: give env:NAME or file:PATH")


def is_name(name: str) -> bool:
    """Whether every host takes this name of a server."""
    return _NAME.fullmatch(name) is not None


def _offered_from(
    options: dict[str, Any], host: places.Host, asked: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...], Sequence[str]]:
    """The arguments of the command, the offers that identify the server, and the variables that the server reads."""
    if from_file.is_meant(options):
        served = from_file.served_from(options, host)
        return served.arguments, served.offers, ()
    exposed = exposed_from(options, host, asked)
    return exposed.arguments(absolute), exposed.urls, exposed.from_environment()


def exposed_from(
    options: dict[str, Any], host: places.Host, asked: Mapping[str, str] = MappingProxyType({})
) -> entry.Exposed:
    """The options of `expose`, checked as `expose` does.

    Raises:
        UsageError: the options do not fit together, or the host would not pass them on.
    """
    from bridge.cli import option_document
    from bridge.cli.login.login import tls_given

    files = {name: str(options[name]) if options[name] else None for name in ("cert", "key", "ca")}
    exposed = entry.Exposed(
        options["urls"],
        options["bearer"],
        options["header"],
        options["api_key"],
        options["trust"],
        options["mapping"],
        options["granularity"],
        options["answer_within_seconds"],
        options["allow_private"],
        options["dialect"],
        files["cert"],
        files["key"],
        files["ca"],
    )
    entry.require_readable(exposed, host, asked)
    tls_given(options)
    option_document.exposed({**options, "name": None}).loaded()  # refuses options that no server could have
    return exposed


def absolute(path: str) -> str:
    """The absolute path, so that it is valid from any folder."""
    return os.path.abspath(Path(path).expanduser())


def _program() -> tuple[str, ...]:
    """The words with which a host starts this installation.

    Raises:
        UsageError: the installation is temporary. (The message suggests no package name: the project has published
            nothing, so the name `mcp-a2a` in a registry may belong to anybody.)
    """
    executable = Path(sys.executable)
    if entry.is_passing(executable):
        raise UsageError(
            "uvx made this installation for a single run, and deletes it: "
            "install mcp-a2a with `uv tool install` from the same source, and run that installation"
        )
    return entry.installed_program(executable, lambda path: Path(path).is_file())


def name_for(options: dict[str, Any]) -> str:
    """The name of a new server: that of `--name`, of the file's server, or of the first agent."""
    if options["name"]:
        return str(options["name"])
    if from_file.is_meant(options):
        return short_names.short(from_file.face_of(options))
    return checks.card_name(options) or short_names.name_for(options["urls"][0])


def _print(options: dict[str, Any], host: places.Host, server: JsonObject) -> int:
    from bridge.cli import render

    checks.require_cards(options)
    checks.check_as_host(options, host, server)
    name = name_for(options)
    if not host.is_yaml:
        pasted = {host.servers_key: {name: server}}
        render.write_document(json.dumps(pasted, indent=2, ensure_ascii=False) + "\n")
        return 0
    render.write_document(entry.yaml_for(name, server, host))
    render.say(
        f"{host.title} keeps its servers in YAML, which mcp-a2a does not edit: put this into {_user_file(host)},"
        f" below the {host.servers_key} that are there. {host.afterwards}."
    )
    return 0


def _print_link(options: dict[str, Any], host: places.Host, server: JsonObject) -> int:
    from bridge.cli import render

    checks.require_cards(options)
    checks.check_as_host(options, host, server)
    name = name_for(options)
    render.write_document(links.link_to(options["host"], name, server) + "\n")
    render.say(f"{host.title} asks before it writes this. The link is for this machine only:")
    for line in json.dumps({name: server}, indent=2, ensure_ascii=False).splitlines():
        render.say(line)
    return 0


def _user_file(host: places.Host) -> str:
    return str(places.user_places(host, places.this_machine())[0].file)
