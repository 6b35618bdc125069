"""`mcp-a2a init`: a configuration file to start from."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bridge.errors import UsageError
from bridge.text.safe_text import shell_word

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bridge.config.starter import Starter

_FILE: Final = "bridge.toml"
_STEM_CHARACTERS: Final = 34
"""The longest name before a suffix, as a table name has at most 40 characters."""


@click.command()
@click.argument(
    "file", required=False, default=Path(_FILE), type=click.Path(path_type=Path), metavar="[FILE]"
)
@click.option(
    "--server",
    "servers",
    multiple=True,
    metavar="[NAME=]URL|COMMAND",
    help="An MCP server: its URL, or the command that starts it, as one text. Repeatable.",
)
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="[NAME=]URL",
    help="A remote A2A agent: its base URL, or the URL of its card. Repeatable.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init(**options: Any) -> int:
    """Write a configuration file to start from, with comments.

    FILE defaults to bridge.toml in the current folder. At a terminal the command asks for an MCP server and an A2A
    agent, unless options name them. Without a terminal it asks nothing. If you name neither, the file has an example
    server.

    \b
    mcp-a2a init
    mcp-a2a init --server "npx -y @modelcontextprotocol/server-everything"
    mcp-a2a init team.toml --server weather=https://weather.example.com/mcp --agent https://research.example.com

    The command also writes mcp-a2a.schema.json beside the file. Editors use it to complete and check the file.
    """
    from bridge.cli import render
    from bridge.config.starter import SCHEMA_FILE

    path: Path = options["file"]
    if path.exists() and not options["force"]:
        raise UsageError(f"{path} exists: overwrite it with --force, or name another file")
    starter = _starter(options)
    _write(path, starter.text())
    render.say(f"The configuration is in {path}")
    schema = path.parent / SCHEMA_FILE
    if options["force"] or not schema.exists():
        _write(schema, _schema())
        render.say(f"Its schema, for editors, is in {schema}")
    named = "" if path == Path(_FILE) else f" {shell_word(str(path))}"
    render.say(f"Next: mcp-a2a check{named}, then mcp-a2a serve{named}")
    return 0


def _starter(options: dict[str, Any]) -> Starter:
    from bridge.config.ready_mappings import ready_mapping_for
    from bridge.config.starter import EXAMPLE, Starter

    servers = dict(_server_from(text) for text in options["servers"])
    agents = dict(_agent_from(text) for text in options["agents"])
    _require_apart(options["servers"], servers)
    _require_apart(options["agents"], agents)
    if not servers and not agents:
        servers, agents = _ask_for_peers()
    if not servers and not agents:
        servers = {"everything": EXAMPLE}
    published = next(iter(servers)) if len(servers) == 1 else "tools"
    while published in agents:  # otherwise a `from` would be ambiguous
        published = f"{published[:_STEM_CHARACTERS]}-tools"
    commands = {name: place for name, place in servers.items() if not isinstance(place, str)}
    mappings = {name: ready_mapping_for(command) for name, command in commands.items()}
    ready = {name: mapping.name for name, mapping in mappings.items() if mapping is not None}
    return Starter(servers, agents, published, ready=ready)


def _ask_for_peers() -> tuple[dict[str, str | Sequence[str]], dict[str, str]]:
    """Ask the person at the terminal for servers and agents; empty without a terminal."""
    from bridge.cli import render
    from bridge.config.starter import EXAMPLE

    if not render.can_ask():
        return {}, {}
    server = _answer(
        f"An MCP server, its URL or command ({shlex.join(EXAMPLE)}; - for none):", shlex.join(EXAMPLE)
    )
    servers = dict([_renamed(*_server_from(server))]) if server else {}
    agent = _answer("An A2A agent, its URL (none):", "")
    return servers, dict([_renamed(*_agent_from(agent))]) if agent else {}


def _renamed(name: str, value: Any) -> tuple[str, Any]:
    chosen = _answer(f"Its name in the file ({name}):", name) or name
    _require_name(chosen)
    return chosen, value


def _answer(question: str, otherwise: str) -> str:
    from bridge.cli import render

    given = render.ask(question)
    if given is None:
        raise click.Abort
    return {"": otherwise, "-": ""}.get(given.strip(), given.strip())


def _server_from(text: str) -> tuple[str, str | Sequence[str]]:
    from bridge.text.short_names import name_of, slug

    name, target = _named(text)
    if _is_url(target):
        _require_url(target)
        return name or slug(name_of(target)), target
    try:
        words = shlex.split(target)
    except ValueError as exc:
        raise UsageError(f"{target!r} is not a command: {exc}") from exc
    if not words:
        raise UsageError("a server is named by its URL, or by the command that starts it")
    return name or slug(name_of(words)), words


def _agent_from(text: str) -> tuple[str, str]:
    from bridge.text.short_names import name_for

    name, url = _named(text)
    _require_url(url)
    return name or name_for(url), url


def _named(text: str) -> tuple[str, str]:
    """Split `NAME=TARGET`. The name is "" for a URL or command alone, which may contain `=`, too."""
    name, equals, rest = text.partition("=")
    if not equals or not name.replace("-", "").replace("_", "").isalnum():
        return "", text.strip()
    _require_name(name)
    return name, rest.strip()


def _require_name(name: str) -> None:
    from bridge.config.text.wording import NAME

    if not re.fullmatch(NAME, name):
        raise UsageError(f"a name takes at most 40 small letters, digits, - and _, not {name!r}")


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _require_url(url: str) -> None:
    from pydantic import TypeAdapter, ValidationError

    from bridge.config.tables.values import HttpUrl
    from bridge.config.text.wording import shown_url

    try:
        TypeAdapter(HttpUrl).validate_python(url)
    except ValidationError as exc:
        raise UsageError(
            f"{shown_url(url)!r} is not the URL of a server: such a URL begins with http:// or https://"
        ) from exc


def _require_apart(given: Sequence[str], named: Mapping[str, object]) -> None:
    if len(given) != len(named):
        raise UsageError("two of them would have the same name in the file: name one with NAME=...")


def _schema() -> str:
    from bridge.config.file_schema import file_schema

    return json.dumps(file_schema(), indent=2, ensure_ascii=False) + "\n"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise UsageError(f"cannot write {path}: {exc.strerror or exc}") from exc
