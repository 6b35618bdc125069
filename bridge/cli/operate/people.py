"""`mcp-a2a people`: gives a person a token, and puts the hash of the token into the configuration file."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bridge.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bridge.config.load import LoadedConfig

_TOKEN_BYTES: Final = 32
_KEPT_IN: Final = "~/.mcp-a2a-token"
"""The file for the token in the printed commands."""
_HOST: Final = "claude-code"

_file = click.option(
    "--file",
    "-f",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The configuration file. Default: bridge.toml.",
)
_to = click.option(
    "--to",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PATH",
    help="Write the token into this new file, which only you can read, and name the file in the configuration.",
)


@click.group()
def people() -> None:
    """Give people tokens to call with, and change tokens.

    \b
    Give Ann a token:                        mcp-a2a people add ann --group team
    Give her a second token:                 mcp-a2a people rotate ann
    Remove her old token:                    mcp-a2a people rotate ann --finish
    """


@people.command(short_help="Give a person a token.")
@click.argument("name")
@click.option("--group", metavar="NAME", help="The group that says what the person may do ([groups.NAME]).")
@_to
@_file
def add(**options: Any) -> int:
    """Make a token for NAME, and put its hash into the file as [principals.NAME].

    \b
    mcp-a2a people add ann
    mcp-a2a people add ann --group team --file /etc/mcp-a2a/bridge.toml
    mcp-a2a people add ci --to /etc/mcp-a2a/secrets/ci

    The command prints the token once, and stores only its hash in the file. The rest of the file stays as it is, and
    its last five versions are kept beside it. A running bridge applies the change. The command also prints what to do
    on the person's machine.

    Exit codes: 0 done; 2 the name is taken, there is no such group, or the file cannot be written.
    """
    from bridge.config.text.edit import with_table

    name, group = options["name"], options["group"]
    _require_name(name)

    def edit(text: str, reference: str) -> str:
        lines = [*([f"group = {json.dumps(group)}"] if group else []), f"bearer = {reference}"]
        return with_table(text, ("principals", name), lines)

    return _give(options, edit)


@people.command(short_help="Give a person a second token, or remove the old token.")
@click.argument("name")
@click.option("--finish", is_flag=True, help="Remove the older of the two tokens.")
@_to
@_file
def rotate(**options: Any) -> int:
    """Make a second token for NAME. Both tokens are valid until you remove the old one with --finish.

    \b
    mcp-a2a people rotate ann
    mcp-a2a people rotate ann --finish

    Exit codes: 0 done; 2 there is no such person or no token to rotate, or the file cannot be written.
    """
    from bridge.config.text.edit import with_another, without_the_first

    table = ("principals", options["name"])
    if not options["finish"]:
        return _give(options, lambda text, reference: with_another(text, table, reference))
    if options["to"] is not None:
        raise UsageError("--finish makes no token: it does not go with --to")
    from bridge.cli import render

    path = _changed(options["file"], lambda text: without_the_first(text, table))
    render.say(
        f"removed the old token of {options['name']} from {path}: a running bridge refuses it from now on"
    )
    return 0


def _give(options: dict[str, Any], edit: Callable[[str, str], str]) -> int:
    """Make a token, write its hash or path into the file, and print the token and what to do with it."""
    from bridge.cli import render
    from bridge.cli.serve import loaded_from

    token, place = secrets.token_urlsafe(_TOKEN_BYTES), options["to"]
    if place is None:
        reference = f'{{ sha256 = "{hashlib.sha256(token.encode()).hexdigest()}" }}'
    else:
        reference = f"{{ file = {json.dumps(str(place.absolute()))} }}"
        _keep(token, place.absolute())
    try:
        path = _changed(options["file"], lambda text: edit(text, reference))
    except BaseException:
        if place is not None:
            place.unlink()
        raise
    what = f"in {place}" if place else "which is kept nowhere else"
    render.say(f"{path} has a token of {options['name']} now. This is the token, {what}:")
    render.result(token)
    for line in _instructions(loaded_from(path, {}), options["name"]):
        render.say(line)
    return 0


def _require_name(name: str) -> None:
    from bridge.config.text.wording import NAME

    if not re.fullmatch(NAME, name):
        raise UsageError(f"{name!r} is no name for a table: small letters, digits, - and _")


def _keep(token: str, place: Path) -> None:
    from bridge.local.private_files import write_privately

    if place.exists():
        raise UsageError(f"{place} exists, and is not replaced: name another file")
    try:
        write_privately(place, f"{token}\n".encode(), lasting=True)
    except OSError as exc:
        raise UsageError(f"{place} cannot be written: {exc.strerror}") from exc


def _changed(file: Path | None, edit: Callable[[str], str]) -> Path:
    """Change the file, and return its path. The file has to be valid before and after the change."""
    from bridge.cli.serve import config_file, loaded_from
    from bridge.config.load import load_edited
    from bridge.hosts import files

    path = config_file(file)
    loaded_from(path, {})  # it raises if the file has mistakes
    there = files.read(path)
    text = edit(there.text)
    load_edited(path, text)
    files.write(there, text, datetime.now(UTC))
    return path


def _instructions(loaded: LoadedConfig, name: str) -> Iterator[str]:
    """The commands for the machine of the person."""
    place = loaded.config.bridge
    root = place.public_url or _root_of(loaded)
    token = shlex.quote(_KEPT_IN).strip("'")
    yield ""
    yield f"On the machine of {name}, once (paste the token, then Enter and Ctrl+D):"
    yield f"  install -m 600 /dev/stdin {token}"
    agents = [*loaded.config.tools_as_agent, *loaded.config.agents_as_agent]
    for agent in agents:
        yield f"  mcp-a2a install {_HOST} --bearer file:{token} {root}/agents/{agent}"
    for server in loaded.config.agents_as_tools:
        header = f'--header "Authorization: Bearer $(cat {token})"'
        yield f"  claude mcp add --transport http {server} {root}/mcp/{server} {header}"
    if loaded.config.agents_as_tools or agents:
        yield "`mcp-a2a install --help` names the other hosts."


def _root_of(loaded: LoadedConfig) -> str:
    """The URL of a bridge that has no `public_url`."""
    place = loaded.config.bridge
    host = next(iter(place.hosts), place.host)
    scheme = "http" if place.tls is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{place.port}"
