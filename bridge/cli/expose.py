"""`mcp-a2a expose`: remote A2A agents as the tools of an MCP server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from bridge.errors import UsageError

if TYPE_CHECKING:
    from bridge.assembly.plan import Plan


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="AGENT_URL...")
@click.option("--name", help="What the MCP server calls itself.")
@click.option(
    "--granularity",
    type=click.Choice(["skill", "agent", "search"]),
    help="A tool for each skill, for each agent, or two tools to find and call skills. Default: the profile's.",
)
@click.option("--mapping", default="default", show_default=True, metavar="NAME|FILE", help="Mapping profile.")
@click.option("--bearer", metavar="env:NAME|file:PATH", help="Token for the agents.")
@click.option(
    "--api-key",
    metavar="env:NAME|file:PATH",
    help="API key for the agents, sent as their cards ask: in a header, the query or a cookie.",
)
@click.option(
    "--header",
    multiple=True,
    metavar="NAME=env:VAR|file:PATH|VALUE",
    help="HTTP header for the agents. Repeatable.",
)
@click.option(
    "--trust",
    multiple=True,
    metavar="ORIGIN",
    help="Send credentials also to this origin, when a card says to call it there. Repeatable.",
)
@click.option(
    "--allow-private",
    is_flag=True,
    help="Call an agent also when its card, or its name later, leads from the public network to a private address.",
)
@click.option(
    "--answer-within-seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="When a call of a slow agent is answered with a handle to come back with. Default: the profile's.",
)
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
    "--auth",
    multiple=True,
    metavar="[PRINCIPAL=]bearer:env:NAME|file:PATH",
    help="With --http: let in who has this token. Repeatable.",
)
@click.option("--allow-unauthenticated", is_flag=True, help="Listen beyond this machine without --auth.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
)
@click.option(
    "--print-toml", is_flag=True, help="Serve nothing: print the configuration file that says the same."
)
def expose(**options: Any) -> int:
    """Offer remote A2A agents as the tools of an MCP server.

    Each skill of each agent becomes a tool. MCP hosts start this as a command and speak to it over stdin and
    stdout; with --http it listens instead.

    \b
    mcp-a2a expose https://agent.example.com
    mcp-a2a expose --http --port 8090 http://127.0.0.1:8080 https://agent.example.com
    mcp-a2a expose --print-toml https://agent.example.com > bridge.toml
    """
    import anyio

    from bridge.cli import logs

    logs.set_up(options["log_format"], options["log_level"])
    plan = plan_from(options)
    if options["print_toml"]:
        from bridge.cli import printed

        return printed.print_expose(options, *plan.offered)
    if not options["over_http"]:
        from bridge.alone import serve_agents

        return anyio.run(serve_agents, plan)
    from bridge.cli import banner
    from bridge.run import serve

    return anyio.run(serve, plan, banner.Quiet(plan))


def _require_place(url: str) -> None:
    """Refuse what leads nowhere before anything is started."""
    from bridge.config.text.wording import shown_url

    try:
        place = urlsplit(url)
        leads = place.scheme in ("http", "https") and bool(place.hostname) and place.port != 0
    except ValueError as exc:
        raise UsageError(f"{shown_url(url)!r} is no URL: {exc}") from exc
    if not leads:
        raise UsageError(f"{shown_url(url)!r} names no host")


def plan_from(options: dict[str, Any]) -> Plan:
    """What the options ask to serve.

    Raises:
        UsageError: they do not fit together, or a secret cannot be read.
    """
    from bridge.a2a.client.http import origin_of
    from bridge.address import meant_url
    from bridge.assembly.naming import slug
    from bridge.assembly.plan import OfferedPlan, Place, Plan, RemotePlan
    from bridge.cli.card import secret_given
    from bridge.cli.wrap import credentials_from
    from bridge.config.tables.profile import load_profile
    from bridge.config.text.secrets import header_from
    from bridge.config.text.wording import shown_url

    for url in options["urls"]:
        if not url.startswith(("http://", "https://")):
            meant = meant_url(url)
            hint = f": did you mean {meant}?" if meant else ""
            raise UsageError(f"an agent is named by its http(s) URL, not {shown_url(url)!r}{hint}")
        _require_place(url)
    profile = load_profile(options["mapping"])
    changes = {
        key: options[key] for key in ("granularity", "answer_within_seconds") if options[key] is not None
    }
    profile = profile.model_copy(update={"agents": profile.agents.model_copy(update=changes)})
    for origin in options["trust"]:
        _require_place(origin)
    agents = {
        url: RemotePlan(
            url,
            headers=dict(header_from(text) for text in options["header"]),
            bearer=secret_given(options, "bearer"),
            api_key=secret_given(options, "api_key"),
            trusted=frozenset(map(origin_of, options["trust"])),
            allow_private=options["allow_private"] or None,
            on_command_line=True,
        )
        for url in dict.fromkeys(options["urls"])
    }
    name = options["name"] or "mcp-a2a"
    offered = OfferedPlan(tuple(agents), profile, named=False, server_name=name, requires_an_agent=True)
    return Plan(
        profile=profile,
        place=Place(options["host"], options["port"]),
        credentials=credentials_from(options["auth"]),
        allow_unauthenticated=options["allow_unauthenticated"],
        agents=agents,
        offered={slug(name): offered},
    )
