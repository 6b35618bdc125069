"""`mcp-a2a expose`: remote A2A agents as the tools of an MCP server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from bridge.cli.card import dialect_option, tls_options, with_options
from bridge.cli.login.login import with_stored_logins
from bridge.cli.wrap import serving_options

if TYPE_CHECKING:
    from bridge.assembly.plan import Plan
    from bridge.cli.option_document import OptionsDocument

_Command = TypeVar("_Command", bound=Callable[..., Any])

_CALLING_OPTIONS: Final = (
    click.option("--mapping", metavar="NAME|FILE", help="Mapping profile. Default: default."),
    click.option("--bearer", metavar="env:NAME|file:PATH", help="Token for the agents."),
    click.option(
        "--api-key",
        metavar="env:NAME|file:PATH",
        help="API key for the agents, sent as their cards ask: in a header, the query or a cookie.",
    ),
    click.option(
        "--header",
        multiple=True,
        metavar="NAME=env:VAR|file:PATH|VALUE",
        help="HTTP header for the agents. Repeatable.",
    ),
    click.option(
        "--trust",
        multiple=True,
        metavar="ORIGIN",
        help="Send credentials to this origin too, if a card says to call the agent there. Repeatable.",
    ),
    click.option(
        "--allow-private",
        is_flag=True,
        help="Call an agent even if a public card or host name leads to a private address.",
    ),
    *tls_options("the agents"),
    dialect_option("the agents speak, if their cards name none or a wrong one"),
)

_AGENTS_OPTIONS: Final = (
    click.option(
        "--granularity",
        type=click.Choice(["skill", "agent", "search"]),
        help="A tool for each skill, one for each agent, or two to find and call skills. Default: the profile's.",
    ),
    *_CALLING_OPTIONS,
    click.option(
        "--answer-within-seconds",
        type=click.FloatRange(min=0, min_open=True),
        help="After this time, a call returns a handle for the result of a slow agent. Default: the profile's.",
    ),
)


def calling_options(command: _Command) -> _Command:
    """Add the options for calling agents."""
    return with_options(command, _CALLING_OPTIONS)


def agents_options(command: _Command) -> _Command:
    """Add the options for calling agents and for their tools."""
    return with_options(command, _AGENTS_OPTIONS)


def names_of_agents_options() -> list[str]:
    """The parameter names of `agents_options`."""
    return [str(option.name) for option in agents_options(click.Command("")).params]


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="AGENT_URL...")
@click.option("--name", help="The name of the MCP server.")
@agents_options
@click.option(
    "--http", "over_http", is_flag=True, help="Serve over Streamable HTTP instead of stdin and stdout."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="With --http: address to listen on.")
@click.option(
    "--port",
    default=8090,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="With --http: port; 0 takes a free one.",
)
@click.option(
    "--public-url",
    metavar="URL",
    help="With --http: the URL at which others reach this bridge. Agents send push notifications there.",
)
@serving_options("warning")
def expose(**options: Any) -> int:
    """Offer remote A2A agents as the tools of an MCP server.

    Each skill of each agent becomes a tool. An MCP host starts this command, and speaks to it over stdin and stdout.
    With --http the command listens on a port instead.

    \b
    mcp-a2a expose https://agent.example.com
    mcp-a2a expose --http --port 8090 http://127.0.0.1:8080 https://agent.example.com
    mcp-a2a expose --print-toml https://agent.example.com > bridge.toml
    """
    import anyio

    from bridge.cli import logs, option_document

    logs.set_up(options["log_format"], options["log_level"])
    asked = option_document.exposed(options)
    plan = plan_from(asked, options)
    if options["print_toml"]:
        return asked.write()
    if not options["over_http"]:
        from bridge.process.agents_over_stdio import serve_agents

        return anyio.run(serve_agents, plan)
    from bridge.cli import banner
    from bridge.process.serve import serve_http

    return anyio.run(serve_http, plan, banner.Quiet(plan))


def plan_from(asked: OptionsDocument, options: dict[str, Any]) -> Plan:
    """The plan of the equivalent file, with the names on the agents' cards and with settings that no file can hold.

    Raises:
        UsageError: the options do not fit together, or a secret cannot be read.
    """
    plan = with_stored_logins(asked.plan())
    ((name, server),) = plan.offered.items()
    changes = {
        key: options[key] for key in ("granularity", "answer_within_seconds") if options[key] is not None
    }
    profile = server.profile.having(agents=server.profile.agents.model_copy(update=changes))
    offered = replace(
        server,
        profile=profile,
        named=False,
        server_name=options["name"] or "mcp-a2a",
        requires_an_agent=True,
    )
    return replace(plan, offered={name: offered})
