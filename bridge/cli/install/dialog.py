"""`install` without arguments: finds the installed hosts, and asks a person for the rest.

A token is never shown, and is in no file of a host. A host that keeps secrets asks for the token itself; for others the
token is written to a file that only this user can read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from bridge.cli import render
from bridge.cli.install import checks, command
from bridge.errors import PeerError, UsageError, fault_policy_of
from bridge.hosts import places, secrets
from bridge.text import short_names

if TYPE_CHECKING:
    from bridge.a2a.client.agent_card import FoundCard
    from bridge.a2a.model.objects import AgentCard
    from bridge.cli.card import AgentConnection

_NO: Final = frozenset({"n", "no"})


def install(options: dict[str, Any]) -> int:
    """Ask for the hosts, the agent, its name and its token, and add the agent to each host.

    Returns the exit code. It is not 0 if a host's file could not be edited, or the server does not work in a host.

    Raises:
        UsageError: no host is installed.
        click.Abort: the person ended the input.
    """
    found = _found_hosts()
    if not found:
        looked = ", ".join(host.title for host in places.HOSTS.values())
        raise UsageError(
            f"no MCP host is found here (looked for {looked}). `mcp-a2a install mcp-json URL` prints the server"
            " for any other host"
        )
    chosen = _chosen(found)
    url, found_card = _agent()
    options = {**options, "urls": (url,), "check": True}
    name = _name(options)
    option = _option_for(found_card.card)
    token = _token(url, found_card, option, secrets.variable_for(name))
    files = ", ".join(str(file) for _, file in chosen)
    if _ask(f"Add {name} ({url}) to {files}? [Y/n]").lower() in _NO:
        _leave()
    code = 0
    for key, _ in chosen:
        try:
            _put({**options, "host": key, "name": name}, places.HOSTS[key], option, token)
        except (PeerError, UsageError) as exc:  # the other hosts may still work
            render.complain(f"{places.HOSTS[key].title}: {exc}{exc.detail}")
            code = max(code, fault_policy_of(exc).exit_code)
    return code


def _found_hosts() -> list[tuple[str, Path]]:
    """The installed hosts, each with its file."""
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
        answer = _ask(f"Which one? (1 to {len(found)}, several with commas) [1]") or "1"
        numbers = [word.strip() for word in answer.split(",") if word.strip()]
        if numbers and all(
            number.isascii() and number.isdigit() and 1 <= int(number) <= len(found) for number in numbers
        ):
            return [found[int(number) - 1] for number in dict.fromkeys(numbers)]
        render.say(f"Type a number from 1 to {len(found)}.")


def _agent() -> tuple[str, FoundCard]:
    """The URL of an agent, and its card."""
    import anyio

    while True:
        url = command.agent_of(_ask("Address of the agent (https://...):"))
        if not url:
            continue
        try:
            found = anyio.run(_connection(url).card_to_show)
        except (PeerError, UsageError) as exc:
            render.say(str(exc))
            continue
        card = found.card
        skills = ", ".join(skill.id for skill in card.skills[:5])
        more = f" and {len(card.skills) - 5} more" if len(card.skills) > 5 else ""
        render.say(f"{card.name}: {card.description.strip().partition(chr(10))[0]}")
        render.say(f"Its skills: {skills}{more}" if skills else "It names no skills.")
        return url, found


def _option_for(card: AgentCard) -> str:
    """The option for the kind of credential that the agent asks for."""
    schemes = card.security_schemes or {}
    needed = {name for requirement in card.security_requirements or () for name in requirement.schemes}
    fields = {field for name in needed or schemes for field in schemes.get(name, {})}
    # Fields with other names are from older versions of A2A.
    kinds = {field for field in fields if field.endswith("SecurityScheme")}
    return "api_key" if kinds == {"apiKeySecurityScheme"} else "bearer"


def _name(options: dict[str, Any]) -> str:
    preferred = checks.card_name(options) or short_names.name_for(options["urls"][0])
    while True:
        name = _ask(f"Name of the server in the host [{preferred}]:") or preferred
        if command.is_name(name):
            return name
        render.say("Hosts take at most 64 letters, digits, - and _.")


def _token(url: str, found: FoundCard, option: str, variable: str) -> str:
    """Ask for a token or API key until the agent accepts it; "" if the person gives none."""
    import anyio

    word = "API key" if option == "api_key" else "Token"
    while True:
        answer = render.ask_secret(f"{word} for it (not shown; Enter for none):")
        if answer is None:
            _leave()
        token = answer.strip()
        if not token.isascii() or not token.isprintable():
            render.say("It has characters that HTTP does not allow.")
            continue
        os.environ[variable] = token  # only trials of this process read it
        connection = _connection(url, **({option: f"env:{variable}"} if token else {}))
        statuses: list[int] = []
        if not (fault := anyio.run(checks.refusal_of, connection, found, statuses)):
            return token
        if token and statuses:  # the other message names options, and the person typed none
            fault = (
                f"The agent does not take the {'token' if option == 'bearer' else word}: HTTP {statuses[-1]}"
            )
        render.say(f"{fault}. (Ctrl+D leaves, and nothing is written.)")


def _put(options: dict[str, Any], host: places.Host, option: str, token: str) -> None:
    name = options["name"]
    if not token:
        command.put(options, host)
        return
    if host.inputs_key:
        asked, variable = secrets.input_for(name), secrets.variable_for(name)
        secret = command.AskedSecret(asked, variable, secrets.input_value(asked["id"]))
        command.put({**options, option: f"env:{variable}"}, host, secret)
        render.say(f"{host.title} asks for the token when it first starts {name}, and keeps it.")
        return
    before = secrets.files_in(checks.token_folder())
    file = secrets.kept_in_file(checks.token_folder(), name, token)
    try:
        command.put({**options, option: f"file:{file}"}, host)
    except BaseException:
        if file not in before:
            file.unlink(missing_ok=True)
        raise
    render.say(f"The token is in {file}, which only you can read.")


def _connection(url: str, **secret: str) -> AgentConnection:
    from bridge.cli.card import AgentConnection

    return AgentConnection.from_options({"url": url, "header": (), **secret})


def _ask(line: str) -> str:
    answer = render.ask(line)
    if answer is None:
        _leave()
    return answer.strip()


def _leave() -> NoReturn:
    render.say("Nothing was written.")
    raise click.Abort
