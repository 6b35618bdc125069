"""`mcp-a2a install`: A2A agents as an MCP server in a host's own configuration."""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click

from bridge import short_names
from bridge.cli import install_checks, install_file
from bridge.cli.expose import agents_options
from bridge.errors import UsageError
from bridge.hosts import edit, entry, files, places
from bridge.jsonvalues import JsonObject

_PRINTED: Final = "mcp-json"
_HOSTS: Final[Mapping[str, places.Host]] = {**places.HOSTS, _PRINTED: places.ANY_HOST}

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Server names that every host accepts."""


@click.command(no_args_is_help=True)
@click.argument("host", type=click.Choice(list(_HOSTS)), metavar="HOST", required=False)
@click.argument("urls", nargs=-1, metavar="URL... | FILE.toml")
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
@click.option("--remove", is_flag=True, help="Remove the server from the host's file.")
@click.option("--dry-run", is_flag=True, help="Show the changes, and write nothing.")
@click.option(
    "--check",
    is_flag=True,
    help="First read the agents' cards, start the server as the host would, and list its tools.",
)
def install(**options: Any) -> int:
    """Add A2A agents to an MCP host, as a server that the host starts.

    Name the agents by their URLs, or name a configuration file. Of a file, the command adds one MCP server.

    \b
    HOST is one of
      claude-desktop, claude-code, cursor, vscode, gemini, windsurf, zed
      goose         prints what to put into its YAML file
      mcp-json      prints the server as JSON, for any other host

    \b
    mcp-a2a install claude-desktop https://agent.example.com
    mcp-a2a install claude-code --bearer env:TOKEN https://agent.example.com
    mcp-a2a install cursor --bearer file:~/.secrets/token --check https://agent.example.com
    mcp-a2a install vscode --remove https://agent.example.com
    mcp-a2a install claude-code bridge.toml --face team
    mcp-a2a install --list

    Everything else in the host's file stays as it is. The command keeps the last five backups beside the file. A secret
    is written as the place that it is read from. env:NAME is for hosts that start from a shell (claude-code, gemini).
    """
    if options["lists"]:
        return _list(options)
    if options["host"] is None:
        raise UsageError(f"which host? One of {', '.join(_HOSTS)}")
    host = _HOSTS[options["host"]]
    _require_consistent(options, host)
    if options["remove"]:
        return _remove(options, host)
    arguments, offers, variables = _offered_from(options, host)
    server = entry.entry_for(_program(), arguments, host, variables)
    if host.is_yaml or (options["host"] == _PRINTED and not options["path"]):
        return _print(options, host, server)
    return _add(options, host, server, offers)


def _list(options: dict[str, Any]) -> int:
    from bridge.cli import install_list

    if options["urls"] or options["remove"] or options["check"]:
        raise UsageError("--list shows what there is: it takes a HOST, or nothing")
    named = options["host"]
    if named is not None and (named == _PRINTED or _HOSTS[named].is_yaml):
        raise UsageError(f"the file of {named} is not read, so nothing is known of it")
    return install_list.show([_HOSTS[named]] if named else list(places.HOSTS.values()))


def _require_consistent(options: dict[str, Any], host: places.Host) -> None:
    if options["face"] and not install_file.is_meant(options):
        raise UsageError("--face names an MCP server of a configuration file: name that file as well")
    if not options["urls"] and not (options["remove"] and options["name"]):
        raise UsageError(f"which agents? mcp-a2a install {options['host']} URL...")
    if options["remove"] and options["check"]:
        raise UsageError("--check starts a server: it does not go with --remove")
    project = options["scope"] == places.InstallScope.PROJECT
    if options["path"] and project:
        raise UsageError("--file names the file, so --scope has nothing to say")
    if host.is_yaml and (options["remove"] or options["path"]):
        raise UsageError(
            f"{host.title} keeps its servers in YAML, which is not edited here: "
            f"change {_user_file(host)} yourself, or with `goose configure`"
        )
    if host.is_yaml or (options["host"] == _PRINTED and not options["path"]):
        given = {"--remove": options["remove"], "--dry-run": options["dry_run"], "--scope project": project}
        for option in (option for option, is_given in given.items() if is_given):
            raise UsageError(
                f"{options['host']} prints and has no file: {option} needs another host, or --file"
            )
    if options["name"] is not None and not _NAME.fullmatch(options["name"]):
        raise UsageError("--name takes at most 64 letters, digits, - and _: hosts take no more than that")


def _offered_from(
    options: dict[str, Any], host: places.Host
) -> tuple[tuple[str, ...], tuple[str, ...], Sequence[str]]:
    """The arguments of the command, the offers that identify the server, and the variables that it reads."""
    if install_file.is_meant(options):
        served = install_file.served_from(options, host)
        return served.arguments, served.offers, ()
    exposed = _exposed_from(options, host)
    return exposed.arguments(_absolute), exposed.urls, exposed.from_environment()


def _exposed_from(options: dict[str, Any], host: places.Host) -> entry.Exposed:
    """The options of `expose`, checked as `expose` does."""
    from bridge.cli import option_document

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
    )
    entry.require_readable(exposed, host)
    option_document.exposed({**options, "name": None}).require_right()
    return exposed


def _absolute(path: str) -> str:
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
            "this installation is one that uvx made for a single run, and goes away: "
            "install it with `uv tool install` from where uvx got it, and run that"
        )
    return entry.installed_program(executable, lambda path: Path(path).is_file())


def _name(options: dict[str, Any], there: Mapping[str, JsonObject], offers: tuple[str, ...]) -> str:
    """The server's name: from `--name`, from the host's file if the server is there already, or from its agent."""
    if options["name"]:
        return str(options["name"])
    if known := _ours(there, offers):
        return known[0]
    if install_file.is_meant(options):
        return short_names.short(install_file.face_of(options))
    return install_checks.card_name(options) or short_names.name_for(options["urls"][0])


def _ours(there: Mapping[str, JsonObject], offers: tuple[str, ...]) -> list[str]:
    """The names of our servers with exactly these offers."""
    return [name for name, server in there.items() if entry.offered_by(server) == offers]


def _print(options: dict[str, Any], host: places.Host, server: JsonObject) -> int:
    from bridge.cli import render

    install_checks.require_cards(options)
    install_checks.check_as_host(options, host, server)
    name = _name(options, {}, ())
    if not host.is_yaml:
        pasted = {host.servers_key: {name: server}}
        render.write_document(json.dumps(pasted, indent=2, ensure_ascii=False) + "\n")
        return 0
    render.write_document(entry.yaml_for(name, server, host))
    render.say(
        f"{host.title} keeps its servers in YAML, which is not edited here: put this into {_user_file(host)} yourself,"
        f" below the {host.servers_key} that are there. {host.afterwards}."
    )
    return 0


@dataclass(frozen=True)
class _Edit:
    """A host's file, and the slot of one server in it."""

    file: files.HostFile
    slot: edit.Slot
    present: JsonObject | None

    @classmethod
    def of(cls, file: files.HostFile, host: places.Host, name: str) -> _Edit:
        slot = edit.Slot(host.servers_key, name, host.comments)
        return cls(file, slot, edit.server_in(file.text, slot) if file.text.strip() else None)

    def require_ours(self, offers: tuple[str, ...], *, is_named: bool) -> None:
        """Refuse to change a server that is not ours, or another of ours that has the generated name."""
        if self.present is None:
            return
        there, name = entry.offered_by(self.present), self.slot.name
        if there is None:
            raise UsageError(f"{name} in {self.file.path} is a server of another kind: give another --name")
        if there != offers and not is_named:
            raise UsageError(
                f"{name} in {self.file.path} exposes {', '.join(there)}: "
                f"give --name {name} if that one is meant, else another"
            )


def _add(options: dict[str, Any], host: places.Host, server: JsonObject, offers: tuple[str, ...]) -> int:
    file = files.read(_file(options, host))
    install_checks.require_cards(options)
    try:
        there = edit.servers_in(file.text, host.servers_key, comments=host.comments)
        change = _Edit.of(file, host, _name(options, there, offers))
        change.require_ours(offers, is_named=bool(options["name"]))
        whole = {**(change.present or {}), **server}  # additions by the user stay
        if isinstance(own := (change.present or {}).get("env"), dict) and isinstance(
            ours := server.get("env"), dict
        ):
            whole["env"] = {**own, **ours}
        text = edit.with_server(file.text, change.slot, whole)
    except edit.BrokenFileError as exc:
        pasted = {host.servers_key: {_name(options, {}, offers): server}}
        raise UsageError(
            f"{file.path}: {exc}. Nothing was written",
            detail=f"\nTo add it by hand, put this into the file:\n{json.dumps(pasted, indent=2, ensure_ascii=False)}",
        ) from exc
    install_checks.check_as_host(options, host, whole)
    return _finish(options, host, change, text)


def _remove(options: dict[str, Any], host: places.Host) -> int:
    from bridge.cli import render

    file = files.read(_file(options, host))
    try:
        # With --name the server is found even when its configuration file is gone.
        is_file = install_file.is_meant(options) and not options["name"]
        offers = install_file.offers(options) if is_file else options["urls"]
        there = edit.servers_in(file.text, host.servers_key, comments=host.comments)
        names = [options["name"]] if options["name"] else _ours(there, offers)
        if not names:
            render.say(f"nothing in {file.path} offers {' '.join(offers)}: nothing to change")
            return 0
        if len(names) > 1:
            raise UsageError(
                f"{file.path} has it as {', '.join(names)}: give --name with the one that is meant"
            )
        change = _Edit.of(file, host, names[0])
        change.require_ours(offers, is_named=bool(options["name"]))
        text = edit.without_server(file.text, change.slot)
    except edit.BrokenFileError as exc:
        raise UsageError(f"{file.path}: {exc}. Nothing was written") from exc
    return _finish(options, host, change, text)


def _finish(options: dict[str, Any], host: places.Host, change: _Edit, text: str) -> int:
    from bridge.cli import render

    name, path = change.slot.name, change.file.path
    if text == change.file.text:
        render.say(f"{name} is {'not' if options['remove'] else 'already'} in {path}: nothing to change")
        return 0
    if options["dry_run"]:
        render.write(_diff(change.file.text, text, str(path)))
        return 0
    shared = options["scope"] == places.InstallScope.PROJECT
    backup = files.write(change.file, text, datetime.now().astimezone(), shared=shared)
    render.say(f"{name} is {'no longer' if options['remove'] else 'now'} in {path}")
    if backup:
        render.say(f"What was there before is in {backup}")
    if options["remove"]:
        render.say(f"Restart {host.title}: until then what it has started goes on.")
        return 0
    if shared:
        render.say("It names a path of this machine: on another, each has to install it")
    if host.afterwards:
        render.say(f"{host.afterwards}.")
    return 0


def _diff(before: str, after: str, path: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), path, f"{path} (new)"
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _file(options: dict[str, Any], host: places.Host) -> Path:
    """The host's file to change.

    Raises:
        UsageError: the host or the file's folder does not exist, and `--create` is not given.
    """
    if options["path"]:
        path = Path(_absolute(options["path"]))
        if not path.parent.is_dir() and not options["create"]:
            raise UsageError(f"there is no folder {path.parent}: --create makes it")
        return path
    if options["scope"] == places.InstallScope.PROJECT:
        return Path(places.project_place(host, Path.cwd()).file)
    known = _user_places(host)
    for place in known:
        if any(Path(sign).exists() for sign in place.signs):
            return Path(place.file)
    if options["create"]:
        return Path(known[-1].file)
    looked = " and ".join(str(sign) for place in known for sign in place.signs)
    raise UsageError(
        f"{host.title} is not found here (looked for {looked}): start it once, "
        f"or give --create to write {known[-1].file} all the same"
    )


def _user_places(host: places.Host) -> tuple[places.HostFilePlace, ...]:
    return places.user_places(host, places.this_machine())


def _user_file(host: places.Host) -> str:
    return str(_user_places(host)[0].file)
