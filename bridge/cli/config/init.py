"""`mcp-a2a init`: a configuration file to start from."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
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
@click.option(
    "--from-registry",
    metavar="NAME[@VERSION]",
    help="An MCP server by its name in an MCP registry, such as io.github.owner/server. An existing file gets it, too.",
)
@click.option(
    "--registry", metavar="URL", help="The registry. Default: https://registry.modelcontextprotocol.io."
)
@click.option("--pick", type=int, metavar="N", help="Which package or remote server of the entry to take.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=VALUE",
    help="A value that the entry asks for. Repeatable.",
)
@click.option("--yes", is_flag=True, help="Write what the registry says without a question.")
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

    With --from-registry the command reads the entry of a server in an MCP registry, shows the exact version, digests
    and the command that would run, and asks before it writes. Secrets become references to environment variables. The
    bridge itself never asks a registry.

    \b
    mcp-a2a init --from-registry io.github.owner/server@1.2.0 --input path=/srv/files

    The command also writes mcp-a2a.schema.json beside the file. Editors use it to complete and check the file.
    """
    from bridge.cli import render
    from bridge.config.starter import SCHEMA_FILE

    path: Path = options["file"]
    if not options["from_registry"]:
        _require_with_registry(options)
    elif path.exists() and not options["force"]:
        return _add_from_registry(path, options)
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


def _require_with_registry(options: dict[str, Any]) -> None:
    for option in ("registry", "pick", "inputs", "yes"):
        if options[option]:
            raise UsageError(
                f"--{option.removesuffix('s') if option == 'inputs' else option} is for --from-registry"
            )


def _add_from_registry(path: Path, options: dict[str, Any]) -> int:
    """Add a server of a registry to the end of a file that exists."""
    from bridge.cli import render
    from bridge.cli.config.registry import server_from_registry
    from bridge.config.starter import Starter

    if options["servers"] or options["agents"]:
        raise UsageError(f"{path} exists: only --from-registry adds to it, without --server and --agent")
    try:
        before = path.read_text(encoding="utf-8")
        data = tomllib.loads(before)
    except (OSError, ValueError) as exc:
        raise UsageError(f"cannot read {path}: {exc}") from exc
    found = server_from_registry(options)
    for section in ("tool_servers", "tools_as_agent"):
        if found.name in data.get(section, {}):
            raise UsageError(
                f"{path} has [{section}.{found.name}] already: rename this table, or take it out"
            )
    starter = Starter({found.name: found.keys}, published=found.name, remarks={found.name: found.remark})
    _write(path, f"{before.rstrip()}\n{starter.addition()}")
    render.say(f"{path} has [tool_servers.{found.name}] and [tools_as_agent.{found.name}] now")
    return 0


def _starter(options: dict[str, Any]) -> Starter:
    from bridge.config.ready_mappings import ready_mapping_for
    from bridge.config.starter import EXAMPLE, Starter

    servers: dict[str, Any] = dict(_server_from(text) for text in options["servers"])
    agents = dict(_agent_from(text) for text in options["agents"])
    _require_apart(options["servers"], servers)
    _require_apart(options["agents"], agents)
    remarks: dict[str, str] = {}
    if options["from_registry"]:
        from bridge.cli.config.registry import server_from_registry

        found = server_from_registry(options)
        if found.name in servers:
            raise UsageError(f"another server has the name {found.name} of the server in the registry")
        servers[found.name], remarks[found.name] = found.keys, found.remark
    if not servers and not agents:
        servers, agents = _ask_for_peers()
    if not servers and not agents:
        servers = {"everything": EXAMPLE}
    published = next(iter(servers)) if len(servers) == 1 else "tools"
    while published in agents:  # otherwise a `from` would be ambiguous
        published = f"{published[:_STEM_CHARACTERS]}-tools"
    commands = {
        name: place.get("command", ()) if isinstance(place, dict) else place
        for name, place in servers.items()
        if not isinstance(place, str)
    }
    mappings = {name: ready_mapping_for(command) for name, command in commands.items()}
    ready = {name: mapping.name for name, mapping in mappings.items() if mapping is not None}
    return Starter(servers, agents, published, ready=ready, remarks=remarks)


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
