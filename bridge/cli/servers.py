"""`mcp-a2a servers`: lists what the bridge remembers of tool servers, and makes it forget."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from bridge.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from bridge.mcp.client.known_servers import KnownServer
    from bridge.text.jsonvalues import JsonObject

_SHORT_ID: Final = 8
"""Characters of an id that are shown; they are enough to tell servers apart."""
_WITHOUT_NAME: Final = "(gave no name)"
_WORDS: Final = {
    ("era", "legacy"): "speaks MCP 2025-11-25 or older",
    ("era", "modern"): "speaks MCP 2026-07-28 or newer",
    ("transport", "http-sse"): "is reached over the older HTTP+SSE",
    ("mute", "yes"): "cannot ask questions in MCP 2026-07-28: gets the older handshake",
    ("serial", "yes"): "asks questions during calls: gets one call at a time",
}
"""The words for each fact and value, as `Fact` spells them."""


def _completed(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from bridge.mcp.client.known_servers import remembered_in

    try:
        words = [server.name or _short(server) for server in remembered_in(_file())]
    except UsageError:
        return []  # the command itself says what is wrong
    return [CompletionItem(word) for word in words if word.startswith(begun)]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.option(
    "--forget",
    multiple=True,
    metavar="NAME|ID",
    shell_complete=_completed,
    help="Forget this server. Repeatable.",
)
@click.option("--forget-all", is_flag=True, help="Forget all servers.")
def servers(**options: Any) -> int:
    """List what the bridge remembers of tool servers, or forget it.

    A bridge remembers of each server that it has connected to: the server's name, its generation of MCP, whether it
    takes one call at a time, and the tools that it listed last. So the next start knows them, and shows the tools even
    while the server is down. The bridge keeps an id of each server, not its command or URL.

    \b
    mcp-a2a servers
    mcp-a2a servers --forget mcp-servers/everything
    mcp-a2a servers --forget 44fbe50c --forget 0a1b2c3d

    A running bridge keeps what it knows. Its next start finds out again what you made it forget.
    """
    from bridge.cli import logs
    from bridge.mcp.client.known_servers import remembered_in

    logs.set_up("text", "warning")
    path = _file()
    known = remembered_in(path)
    if options["as_json"] and (options["forget"] or options["forget_all"]):
        raise UsageError("--json is for the list: it goes with neither --forget nor --forget-all")
    if options["forget"] and options["forget_all"]:
        raise UsageError("give --forget or --forget-all, not both")
    if options["forget_all"]:
        return _forget(path, known)
    if options["forget"]:
        return _forget(path, [_meant(word, known) for word in options["forget"]])
    if options["as_json"]:
        return _print_json(path, known)
    return _print(known)


def _file() -> Path:
    from bridge.local.user_folders import state_folder
    from bridge.mcp.client.known_servers import FILE_NAME

    return state_folder() / FILE_NAME


def _meant(word: str, known: Sequence[KnownServer]) -> KnownServer:
    """The server with this name, or whose id begins with it."""
    from bridge.config.text.wording import listed, meant

    found = [server for server in known if server.name == word]
    if not found and len(word) >= _SHORT_ID:
        found = [server for server in known if server.server_id.startswith(word)]
    match found:
        case [server]:
            return server
        case []:
            hint = meant(word, dict.fromkeys(server.name or _short(server) for server in known))
            raise UsageError(f"the bridge remembers no server {word!r}" + (f": {hint}" if hint else ""))
        case _:
            ids = listed(map(_short, found), "and")
            raise UsageError(f"{len(found)} servers are called {word!r}: give one of the ids {ids}")


def _forget(path: Path, forgotten: Sequence[KnownServer]) -> int:
    from bridge.cli import render
    from bridge.mcp.client.kept_listings import FOLDER_NAME, forget_listings
    from bridge.mcp.client.known_servers import forget_servers

    if not forgotten:
        render.say("the bridge remembers no tool server")
        return 0
    server_ids = {server.server_id for server in forgotten}
    forget_servers(path, server_ids)
    forget_listings(path.with_name(FOLDER_NAME), server_ids.__contains__)
    for title in dict.fromkeys(map(_title, forgotten)):
        render.say(f"forgotten: {title}")
    render.say("A running bridge still remembers this: restart the bridge")
    return 0


def _print(known: Iterable[KnownServer]) -> int:
    from bridge.cli import render

    known = list(known)
    if not known:
        render.say("the bridge remembers no tool server")
    for server in known:
        render.heading(_title(server))
        for line in _lines(server):
            render.result(f"  {line}")
    return 0


def _print_json(path: Path, known: Iterable[KnownServer]) -> int:
    from bridge.cli import render

    listed: list[JsonObject] = [{"id": server.server_id, **server.facts} for server in known]
    render.write_document(
        json.dumps({"file": str(path), "servers": listed}, indent=2, ensure_ascii=False) + "\n"
    )
    return 0


def _title(server: KnownServer) -> str:
    return f"{server.name or _WITHOUT_NAME}  {_short(server)}"


def _short(server: KnownServer) -> str:
    return server.server_id[:_SHORT_ID]


def _lines(server: KnownServer) -> list[str]:
    """The facts about a server without its name. A fact from another version of the bridge is shown as it is."""
    from bridge.mcp.client.known_servers import Fact

    return [
        _WORDS.get((fact, value), f"{fact}: {value}")
        for fact, value in server.facts.items()
        if fact != Fact.NAME
    ]
