"""`install` without arguments: finds the hosts that are there, and asks a person for the rest.

A token is never shown, and stands in no file of a host: a host that keeps secrets asks for it itself; for the others it
goes into a file that only this user can read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from bridge import short_names
from bridge.cli import render
from bridge.cli.install import checks, command
from bridge.errors import PeerError, UsageError
from bridge.hosts import places, secrets

if TYPE_CHECKING:
    from bridge.a2a.client.card import FoundCard
    from bridge.cli.card import AgentConnection

_NO: Final = frozenset({"n", "no"})


def install(options: dict[str, Any]) -> int:
    """Ask for the hosts, the agent, its name and its token, and add it to each host.

    Raises:
        UsageError: no host is there, or its file cannot be edited.
        PeerError: the server does not work as the host would start it.
        click.Abort: the person ended the input.
    """
    found = _found_hosts()
    if not found:
        looked = ", ".join(host.title for host in places.HOSTS.values())
        raise UsageError(
            f"no MCP host is found here (looked for {looked}). `mcp-a2a install mcp-json URL` prints what any other"
            " host takes"
        )
    chosen = _chosen(found)
    url = _agent()
    options = {**options, "urls": (url,), "check": True}
    name = _name(options)
    token = _token(options, name)
    files = ", ".join(str(file) for _, file in chosen)
    if _asked(f"Add {name} ({url}) to {files}? [Y/n]").lower() in _NO:
        _leave()
    for key, _ in chosen:
        _put({**options, "host": key, "name": name}, places.HOSTS[key], token)
    return 0


def _found_hosts() -> list[tuple[str, Path]]:
    """The hosts that are there, each with its file."""
    machine = places.this_machine()
    found = (
        (key, places.found_place(host, machine, lambda path: Path(path).exists()))
        for key, host in places.HOSTS.items()
    )
    return [(key, Path(place.file)) for key, place in found if place is not None]


def _chosen(found: Sequence[tuple[str, Path]]) -> list[tuple[str, Path]]:
    render.say("MCP hosts on this machine:")
    width = max(len(places.HOSTS[key].title) for key, _ in found)
    for number, (key, file) in enumerate(found, 1):
        render.say(f"  {number}  {places.HOSTS[key].title:{width}}  {file}")
    while True:
        answer = _asked(f"Which one? (1 to {len(found)}, several with commas) [1]") or "1"
        numbers = [word.strip() for word in answer.split(",") if word.strip()]
        if numbers and all(
            one.isascii() and one.isdigit() and 1 <= int(one) <= len(found) for one in numbers
        ):
            return [found[int(one) - 1] for one in dict.fromkeys(numbers)]
        render.say(f"Type a number from 1 to {len(found)}.")


def _agent() -> str:
    """The URL of an agent. Its card was read."""
    import anyio

    while True:
        url = command.agent_of(_asked("Address of the agent (https://...):"))
        if not url:
            continue
        try:
            card = anyio.run(_connection(url).card_to_show).card
        except (PeerError, UsageError) as exc:
            render.say(str(exc))
            continue
        skills = ", ".join(skill.id for skill in card.skills[:5])
        more = f" and {len(card.skills) - 5} more" if len(card.skills) > 5 else ""
        render.say(f"{card.name}: {card.description.strip().partition(chr(10))[0]}")
        render.say(f"Its skills: {skills}{more}" if skills else "It names no skills.")
        return url


def _name(options: dict[str, Any]) -> str:
    wish = checks.card_name(options) or short_names.name_for(options["urls"][0])
    while True:
        name = _asked(f"Name of the server in the host [{wish}]:") or wish
        if command.is_name(name):
            return name
        render.say("Hosts take at most 64 letters, digits, - and _.")


def _token(options: dict[str, Any], name: str) -> str:
    """A token that the agent takes; "" without one."""
    import anyio

    url, variable = options["urls"][0], secrets.variable_for(name)
    while True:
        answer = render.ask_secret("Token for it (not shown; Enter for none):")
        if answer is None:
            _leave()
        token = answer.strip()
        if not token.isascii() or not token.isprintable():
            render.say("A token has printable characters of ASCII alone.")
            continue
        os.environ[variable] = token  # read by the trials of this process, and by nothing that outlives it
        connection = _connection(url, f"env:{variable}" if token else None)
        if not (fault := anyio.run(_refusal, connection)):
            return token
        render.say(fault)


async def _refusal(connection: AgentConnection) -> str:
    try:
        found: FoundCard = await connection.card_to_show()
    except PeerError as exc:
        return str(exc)
    return await checks.refusal_of(connection, found)


def _put(options: dict[str, Any], host: places.Host, token: str) -> None:
    name = options["name"]
    if not token:
        command.put(options, host)
        return
    if host.inputs_key:
        asked, variable = secrets.input_for(name), secrets.variable_for(name)
        secret = command.AskedSecret(asked, variable, secrets.input_value(asked["id"]))
        command.put({**options, "bearer": f"env:{variable}"}, host, secret)
        render.say(f"{host.title} asks for the token when it first starts {name}, and keeps it.")
        return
    before = secrets.files_in(checks.token_folder())
    file = secrets.kept_in_file(checks.token_folder(), name, token)
    try:
        command.put({**options, "bearer": f"file:{file}"}, host)
    except BaseException:
        if file not in before:
            file.unlink(missing_ok=True)
        raise
    render.say(f"The token is in {file}, which only you can read.")


def _connection(url: str, bearer: str | None = None) -> AgentConnection:
    from bridge.cli.card import AgentConnection

    return AgentConnection.from_options({"url": url, "header": (), "bearer": bearer})


def _asked(line: str) -> str:
    answer = render.ask(line)
    if answer is None:
        _leave()
    return answer.strip()


def _leave() -> NoReturn:
    render.say("Nothing was written.")
    raise click.Abort
