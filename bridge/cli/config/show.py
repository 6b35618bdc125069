"""`mcp-a2a show`: prints a configuration as it was read, a generated card, or a list of tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bridge.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.assembly.bridge import Bridge
    from bridge.assembly.plan import Plan
    from bridge.text.jsonvalues import JsonObject

    Look = Callable[[Bridge], tuple[JsonObject, list[str]]]
    """Returns the value to print, and the reasons why it may be incomplete."""

_AT_FAULT: Final = 1


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@click.option("--sources", is_flag=True, help="Print the source of each value after it.")
@click.option("--card", metavar="NAME", help="Print the Agent Card of this agent as JSON.")
@click.option("--tools", metavar="NAME", help="Print the tools of this MCP server (agents_as_tools) as JSON.")
def show(**options: Any) -> int:
    """Show a configuration file as the bridge reads it, or a card or tool list that is made from it.

    FILE defaults to bridge.toml in the current folder. Without options the command prints all settings as TOML: those
    of the file, the defaults, and as comments those of the mapping profiles. A secret is printed as the place that it
    is read from.

    --card and --tools connect to the servers and agents behind the card or the list, as `mcp-a2a check` does.

    \b
    mcp-a2a show --sources
    mcp-a2a show --card devtools | jq .skills
    mcp-a2a show --tools team team.toml
    """
    from bridge.assembly.plan_from_file import plan_from_file
    from bridge.cli import logs, render
    from bridge.cli.serve import config_file, loaded_from, plan_of
    from bridge.config.toml_text import shown_values, text_of_shown
    from bridge.process.place_findings import tls_faults

    if options["card"] and options["tools"]:
        raise UsageError("give --card or --tools, not both")
    if options["sources"] and (options["card"] or options["tools"]):
        raise UsageError("--sources is about the file: it goes with neither --card nor --tools")
    loaded = loaded_from(config_file(options["file"]), {})
    logs.set_up("text", "error")
    if options["card"]:
        return _print_card(plan_of(loaded), options["card"])
    if options["tools"]:
        return _print_tools(plan_of(loaded), options["tools"])
    render.write_document(text_of_shown(shown_values(loaded), sources=options["sources"]))
    for name, fault in loaded.left_out.items():
        render.say(f"agents.{name} at {fault.place} is left out: {fault.words}")
    for tls_fault in tls_faults(plan_from_file(loaded)):
        render.say(str(tls_fault))
    return 0


def _print_card(plan: Plan, name: str) -> int:
    from bridge.assembly.plan import with_one_agent
    from bridge.cli.banner import root_url

    _require(name, plan.published, "tools_as_agent")
    root = root_url(plan.place, plan.place.port)

    def read(bridge: Bridge) -> tuple[JsonObject, list[str]]:
        (one,) = bridge.published
        down = [f"{state.key}: {state.down}" for state in one.agent.sources if state.down]
        return one.server.card(f"{root}{one.path}").to_object(), down

    return _print(with_one_agent(plan, name), read)


def _print_tools(plan: Plan, name: str) -> int:
    from bridge.assembly.plan import with_one_server

    _require(name, plan.offered, "agents_as_tools")

    def read(bridge: Bridge) -> tuple[JsonObject, list[str]]:
        (one,) = bridge.offered
        down = [f"{state.key}: {state.down}" for state in one.face.sources if state.down]
        down += [f"{key}: {one.down}" for key, one in bridge.upstreams.items() if one.down]
        down += [
            f"{key}: its list was not read" for key, one in bridge.catalogs.items() if one.cached() is None
        ]
        return {"tools": list(one.face.tools())}, down

    return _print(with_one_server(plan, name), read)


def _require(name: str, known: object, table: str) -> None:
    from bridge.config.text.wording import meant

    names = list(known) if isinstance(known, dict) else []
    if name not in names:
        hint = meant(name, names)
        raise UsageError(f"there is no [{table}.{name}]" + (f": {hint}" if hint else ""))


def _print(plan: Plan, look: Look) -> int:
    import anyio

    from bridge.cli import render
    from bridge.cli.config import check_report
    from bridge.process.preview import previewed

    async def preview() -> tuple[JsonObject, list[str]]:
        async with previewed(plan, check_report.CheckProgress()) as bridge:
            return look(bridge)

    value, down = anyio.run(preview)
    render.write_document(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    for why in down:
        render.say(f"incomplete, because this cannot be called: {why}")
    return _AT_FAULT if down else 0
