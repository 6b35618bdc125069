"""The checks of `install`: reads the agents' names and, with `--check`, tries the server.

Each agent must give its card first. Then the server is started as the host would start it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from bridge.cli.install import from_file
from bridge.errors import PeerError, counted
from bridge.hosts import places
from bridge.text.short_names import name_from

if TYPE_CHECKING:
    from bridge.a2a.client.agent_card import FoundCard
    from bridge.cli.card import AgentConnection
    from bridge.cli.install.command import AskedSecret
    from bridge.text.jsonvalues import JsonObject

_REFUSALS: Final = (401, 403, 407)

_NAME_SECONDS: Final = 5.0
"""How long an agent may take to give its card for a name; afterwards the URL gives the name."""


def card_name(options: dict[str, Any]) -> str:
    """The first agent's name on its card, as a name for hosts; "" when there is no name or no card."""
    import anyio

    from bridge.cli import render
    from bridge.cli.card import AgentConnection

    async def fetch_name() -> str:
        with anyio.move_on_after(_NAME_SECONDS):
            return (await connection.card()).card.name
        raise PeerError(f"it gave no card within {_NAME_SECONDS:g} s")

    connection = AgentConnection.from_options({**options, "url": options["urls"][0]})
    try:
        return name_from(anyio.run(fetch_name))
    except PeerError as exc:
        render.say(f"The server is named after its URL, because its agent's card could not be read: {exc}")
        return ""


def require_cards(options: dict[str, Any]) -> None:
    """With `--check`, read the card of each agent, and try the credentials. Agents in a file may be down.

    Raises:
        PeerError: an address gives no card, or an agent refuses the credentials. The message says what answers there.
    """
    if not options["check"]:
        return
    import anyio

    from bridge.cli.card import AgentConnection

    if from_file.is_meant(options):
        connections = from_file.connections_of(options)
        refused = [name for name, connection in connections.items() if anyio.run(_is_refused, connection)]
        faults = [
            f"{connections[name].url} does not take the credentials of [agents.{name}]" for name in refused
        ]
    else:
        exposed = [AgentConnection.from_options({**options, "url": url}) for url in options["urls"]]
        faults = [fault for connection in exposed if (fault := anyio.run(_fault_of, connection))]
    if faults:
        raise PeerError("\n".join([*faults, "Nothing was written"]))


async def _fault_of(connection: AgentConnection) -> str:
    try:
        found = await connection.card_to_show()
    except PeerError as exc:
        return str(exc)
    return await refusal_of(connection, found)


async def _is_refused(connection: AgentConnection) -> bool:
    """Whether an agent answers and refuses the credentials."""
    statuses: list[int] = []
    try:
        await refusal_of(connection, await connection.card_to_show(), statuses)
    except PeerError:
        return False
    return bool(statuses) and statuses[-1] in _REFUSALS


async def refusal_of(connection: AgentConnection, found: FoundCard, heard: list[int] | None = None) -> str:
    """Why an agent refuses the credentials, in words; "" if it accepts them, or does not say.

    The probe asks for a task that does not exist, so it changes nothing. Only HTTP 401, 403 and 407 are refusals.
    `heard` gets the HTTP status of each answer.
    """
    import anyio
    import httpx2

    from bridge.a2a.client.bindings import AgentRefusedError
    from bridge.a2a.model.errors import TASK_NOT_FOUND

    statuses = [] if heard is None else heard

    async def note(response: httpx2.Response) -> None:
        statuses.append(response.status_code)

    try:
        # raises if the card asks for other credentials
        async with connection.agent(found, note) as agent:
            with anyio.move_on_after(_NAME_SECONDS):
                await agent.get(str(uuid4()))
    except PeerError as exc:
        # Any other answer shows that the agent let the call in.
        is_let_in = isinstance(exc, AgentRefusedError) and exc.kind is TASK_NOT_FOUND
        return "" if is_let_in else str(exc) if not statuses or statuses[-1] in _REFUSALS else ""
    return ""


def token_folder() -> Path:
    """The folder of the tokens that a person gave to `install`."""
    from bridge.hosts import secrets
    from bridge.local.user_folders import state_folder

    return state_folder() / secrets.FOLDER


def check_as_host(
    options: dict[str, Any], host: places.Host, server: JsonObject, secret: AskedSecret | None = None
) -> None:
    """Start the server as the host would, and show its tools.

    Raises:
        PeerError: the server does not work, or lists no tool of an agent.
    """
    if not options["check"]:
        return
    import anyio

    from bridge.cli import logs, render
    from bridge.cli.install.server_trial import ServerStart, tools_of
    from bridge.translate.own_tools import follow_ups

    logs.set_up("text", "warning")
    arguments = server["args"] if isinstance(server["args"], list) else []
    start = ServerStart(
        str(server["command"]), [str(word) for word in arguments], _environment(host, server, secret)
    )
    tools, words = anyio.run(tools_of, start)
    own_tools = {str(own["name"]) for own in follow_ups(1)}  # the argument does not change their names
    if {tool.name for tool in tools} <= own_tools:
        raise PeerError("the server lists no tool of an agent. Nothing was written", detail=words)
    say = render.say if host is places.ANY_HOST or host.is_yaml else lambda line: render.write(f"{line}\n")
    say(f"{counted(len(tools), 'tool')}, as {host.title} would see {'it' if len(tools) == 1 else 'them'}:")
    for tool in sorted(tools, key=lambda tool: tool.name):
        description = (tool.description or "").strip().partition("\n")[0]
        say(f"  {tool.name}  {description}")
    if words:
        render.say(words.strip())


def _environment(host: places.Host, server: JsonObject, secret: AskedSecret | None = None) -> dict[str, str]:
    """The variables that this host gives a server."""
    inherited = dict(os.environ) if host.from_shell else places.desktop_environment(places.this_machine())
    env = server.get("env")
    named = env if isinstance(env, dict) else {}
    typed = {secret.variable: os.environ[secret.variable]} if secret else {}
    own = {name: str(value) for name, value in named.items() if value != host.variable.format(name)}
    return inherited | own | typed
