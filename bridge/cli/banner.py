"""Reports on a bridge to a terminal or a log: the progress of its start, its URLs, and an example call."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bridge.a2a.client.http import redacted_url
from bridge.assembly.call_lines import a2a_line
from bridge.cli.render import err, styled
from bridge.errors import counted
from bridge.http.request_checks import API_KEY_HEADER
from bridge.identity.callers.verifiers import Scheme
from bridge.text.safe_text import ascii_json, shell_line, shell_word, with_visible_characters
from bridge.translate.arguments import required_of
from bridge.translate.examples import example_of

if TYPE_CHECKING:
    from bridge.assembly.bridge import Bridge
    from bridge.assembly.offered_server import OfferedServer
    from bridge.assembly.plan import Plan, ProcessPlan
    from bridge.assembly.published_agent import PublishedAgent
    from bridge.identity.callers.verifiers import Credential
    from bridge.mcp.client.upstream import Upstream
    from bridge.text.jsonvalues import JsonObject
    from bridge.tools_as_agent.skills import Skill

logger = logging.getLogger(__name__)

_GREETING: Final = "hello there"
"""What is said to an agent that is made of remote agents."""
_MOST_ROWS: Final = 40
_WIDTH: Final = 110
"""The widest table in columns; longer lines are hard to read."""
_NAME_WIDTH: Final = 36
"""Columns for names beside their descriptions. A longer name has a line of its own."""
_INDENT: Final = 4

_OPTIONS: Final = {Scheme.BEARER: "--bearer", Scheme.API_KEY: "--api-key"}
_HEADERS: Final = {Scheme.BEARER: "Authorization: Bearer ", Scheme.API_KEY: f"{API_KEY_HEADER}: "}


class OnTerminal:
    """Reports to a person at the terminal."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def connecting(self, key: str, target: object) -> None:
        """Report that the bridge starts or calls a server."""
        err.say(("Connecting to ", "dim"), *_named(key, "dim "), (str(target), "dim"))

    def connected(self, key: str, upstream: Upstream) -> None:
        """Report that a server is up."""
        greeting = upstream.greeting
        name = f"{greeting.name} {greeting.version}".strip() if greeting else upstream.name
        server = self._plan.servers.get(key)
        ready = f", with the ready mapping {server.ready.name}" if server is not None and server.ready else ""
        tools = counted(len(upstream.listing.tools), "tool")
        err.say(("✓ ", "green"), *_named(key), f"{name}, {tools}{ready}")

    def failed(self, key: str, why: str) -> None:
        """Report that a server is down."""
        err.say(("✗ ", "yellow"), *_named(key), f"is down: {why}")
        again = (
            "  The bridge tries again in the background; the skills appear on the card once the server is up."
        )
        err.say((again, "dim"))

    def serving(self, bridge: Bridge, port: int) -> None:
        """Print what is served, and how to call it."""
        root = root_url(self._plan.place, port)
        for agent in bridge.published:
            base = f"{root}{agent.path}"
            err.say("\n", ("Agent", "bold"), f"  {base}")
            err.say(("Card", "bold"), f"   {base}/.well-known/agent-card.json")
            if said := agent.grpc_address(base):
                err.say(("gRPC", "bold"), f"   {said}")
            err.say(("Tasks", "bold"), f"  {agent.store}")
            err.print(_skills(agent), soft_wrap=False, crop=False)
        for offered in bridge.offered:
            err.say("\n", ("MCP", "bold"), f"    {root}/mcp/{offered.name}")
            err.print(_tools(offered), soft_wrap=False, crop=False)
            for remote in offered.remote_agents:
                if not remote.has_card:
                    when = f"its tools are listed once {redacted_url(remote.url)} gives its card"
                    err.say(("✗ ", "yellow"), *_named(remote.key), when)
        for pages in bridge.app.pages:
            err.say("\n", (pages.title, "bold"), f"  {root}{pages.path}")
        if len(bridge.published) == 1:
            (agent,) = bridge.published
            lines = list(lines_for(agent, f"{root}{agent.path}", self._plan.credentials))
            if lines:
                err.print("\nTry it:")
            for line in lines:
                err.say(f"  {line}") if "\n" not in line else err.print(f"  {line}")

    def stopping(self, running: int) -> None:
        """Print that the bridge stops, after the first Ctrl+C."""
        _say_stopping(running)


class InLog:
    """Writes each event as a log line."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def connecting(self, key: str, target: object) -> None:
        """Report that the bridge starts or calls a server."""
        logger.info("connecting to %s%s", f"{key}: " if key else "", target)

    def connected(self, key: str, upstream: Upstream) -> None:
        """Report that a server is up."""
        logger.info("%s is up, %s", key or upstream.name, counted(len(upstream.listing.tools), "tool"))

    def failed(self, key: str, why: str) -> None:
        """Report that a server is down."""
        logger.warning("%s is down: %s", key or "the server", why)

    def serving(self, bridge: Bridge, port: int) -> None:
        """Log what is served, and where."""
        root = root_url(self._plan.place, port)
        for agent in bridge.published:
            logger.info("serving %s at %s%s, tasks in %s", agent.name, root, agent.path, agent.store)
        for name, grpc_port in bridge.grpc_ports.items():
            logger.info("serving %s over gRPC on port %d", name or "agents", grpc_port)
        for offered in bridge.offered:
            logger.info("serving MCP at %s/mcp/%s", root, offered.name)
        for pages in bridge.app.pages:
            logger.info("serving the %s at %s%s", pages.title.lower(), root, pages.path)

    def stopping(self, running: int) -> None:
        """Log that the bridge stops, after the first signal."""
        logger.info("stopping, %s", counted(running, "running task"))


class Quiet(InLog):
    """Prints only the address, for `expose --http`."""

    def serving(self, bridge: Bridge, port: int) -> None:
        """Log the address."""
        alias = "" if len(bridge.offered) == 1 else f"/{bridge.offered[0].name}"
        if (
            logger.getEffectiveLevel() == logging.WARNING
        ):  # the default of the command, which would hide the address
            logger.setLevel(logging.INFO)
        logger.info("serving MCP at %s/mcp%s (Ctrl+C stops)", root_url(self._plan.place, port), alias)


def _say_stopping(running: int) -> None:
    if not running:
        err.print("Stopping.")
        return
    tasks = counted(running, "running task")
    err.print(f"Stopping: waiting for {tasks}. Press Ctrl+C again to stop now.")


def root_url(place: ProcessPlan, port: int) -> str:
    """The URL of a bridge."""
    if place.public_url:
        return place.public_url
    shown = "127.0.0.1" if place.host in ("0.0.0.0", "::") else place.host
    return f"{place.scheme}://[{shown}]:{port}" if ":" in shown else f"{place.scheme}://{shown}:{port}"


def _named(key: str, style: str = "") -> tuple[tuple[str, str], ...]:
    return ((key, f"{style}bold"), (": ", style.strip())) if key else ()


def _skills(agent: PublishedAgent) -> Group:
    skills = ((skill.id, skill.description) for skill in agent.agent.skills)
    return table_of(list(skills), err.width)


def _tools(offered: OfferedServer) -> Group:
    tools = ((str(tool["name"]), str(tool.get("description", ""))) for tool in offered.face.tools())
    return table_of(list(tools), err.width)


def table_of(rows: Sequence[tuple[str, str]], most_columns: int) -> Group:
    """A table of names and the first lines of descriptions, wrapped at words. A name is never cut."""
    width = min(most_columns, _WIDTH)
    names = [cell_len(name) for name, _ in rows[:_MOST_ROWS]]
    column = max((cells for cells in names if cells <= _NAME_WIDTH), default=_INDENT)
    lines: list[RenderableType] = []
    for name, description in rows[:_MOST_ROWS]:
        is_long = cell_len(name) > _NAME_WIDTH
        if is_long:
            lines.append(
                Text(
                    f"  {with_visible_characters(name, in_one_line=True)}",
                    style="cyan",
                    no_wrap=True,
                    overflow="ignore",
                )
            )
        summary = styled(description.strip().partition("\n")[0])
        lines.append(_row("" if is_long else name, summary, column, width))
    if len(rows) > _MOST_ROWS:
        lines.append(_row("…", Text(f"and {len(rows) - _MOST_ROWS} more"), column, width))
    return Group(*lines)


def _row(name: str, summary: Text, column: int, width: int) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 0, 0, 2), width=width)
    table.add_column(no_wrap=True, overflow="ignore", style="cyan", width=column)
    table.add_column(overflow="fold", ratio=1)
    table.add_row(styled(name), summary)
    return table


def lines_for(agent: PublishedAgent, base: str, credentials: Sequence[Credential]) -> Iterator[str]:
    """An example call of one skill, as a line for this command and a line for curl; empty if no skill may be called.

    A read-only tool without required arguments is preferred, so that a person can run the line without effort and
    without effects.
    """
    known = next((one for one in credentials if one.reference), None)
    may_use = known.principal.in_face(agent.name).may_use if known else lambda _: True
    published = () if agent.tools is None else agent.tools.published
    skills = [skill for skill in published if may_use(skill.names)]
    if credentials and known is None:
        return
    if agent.tools is None:
        yield shell_line(["mcp-a2a", "call", base, _GREETING, *_options(known)])
    if not skills:
        return
    skill = min(skills, key=_risk_and_trouble)
    arguments = _example(skill)
    yield shell_line(["mcp-a2a", "call", base, skill.id, *_words(arguments), *_options(known)])
    yield a2a_line(base, skill.id, arguments, _header(known))


def _risk_and_trouble(skill: Skill) -> tuple[bool, bool, bool]:
    says = skill.tool.annotations
    return (
        says.get("destructiveHint") is True or skill.override.confirm is True,
        says.get("readOnlyHint") is not True,
        bool(required_of(skill.tool.input_schema)),
    )


def _example(skill: Skill) -> JsonObject:
    """The example values of the required arguments."""
    required = required_of(skill.tool.input_schema)
    example = (example_of(skill.tool) if required else None) or {}
    return {name: example[name] for name in required if name in example}


def _words(arguments: JsonObject) -> Iterator[str]:
    if any(isinstance(value, dict | list) for value in arguments.values()):
        yield from ("--json", ascii_json(arguments))
        return
    for name, value in arguments.items():
        yield f"{name}={value if isinstance(value, str) else json.dumps(value)}"


def _options(known: Credential | None) -> tuple[str, ...]:
    return (_OPTIONS[known.scheme], known.reference) if known and known.scheme in _OPTIONS else ()


def _header(known: Credential | None) -> str:
    """The option of curl for a secret header; the shell inserts the secret from its variable or file."""
    if known is None or known.scheme not in _HEADERS:
        return ""
    source, _, place = known.reference.partition(":")
    secret = f"${{{place}}}" if source == "env" else f"$(cat {shell_word(place)})"
    return f'-H "{_HEADERS[known.scheme]}{secret}"'
