"""`mcp-a2a proxy`: remote A2A agents as one A2A agent."""

from __future__ import annotations

from typing import Any

import click

from bridge.cli.expose import calling_options
from bridge.cli.login.login import with_stored_logins
from bridge.cli.wrap import published_options, serving_options


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="AGENT_URL...")
@published_options
@click.option("--name", help="The agent's name. Default: the name on the remote card.")
@click.option("--description", help="The agent's description. Default: that on the remote card.")
@calling_options
@serving_options("info")
def proxy(**options: Any) -> int:
    """Serve remote A2A agents as one A2A agent.

    Clients reach the remote agents in every version and binding that the bridge speaks, whatever the remote agents
    speak. Tasks, contexts and files have ids of this bridge. With several agents, a new message names a skill in its
    metadata, or the client is asked.

    \b
    mcp-a2a proxy https://agent.example.com
    mcp-a2a proxy --port 9000 --bearer env:TOKEN https://agent.example.com
    mcp-a2a proxy --print-toml https://agent.example.com > bridge.toml

    Ctrl+C lets running tasks end. A second Ctrl+C stops them.
    """
    import anyio

    from bridge.cli import banner, logs, option_document
    from bridge.config.toml_text import shown_values
    from bridge.console.served_values import FixedConfiguration
    from bridge.process.serve import serve_http

    logs.set_up(options["log_format"], options["log_level"])
    asked = option_document.proxied(options)
    plan = with_stored_logins(asked.plan())
    if options["print_toml"]:
        return asked.write()
    audience = banner.InLog if options["log_format"] == "json" else banner.OnTerminal
    # Read now: the variable of a secret may be gone when somebody opens the page.
    shown = shown_values(asked.loaded()) if plan.place.console else ()
    return anyio.run(serve_http, plan, audience(plan), None, FixedConfiguration(lambda: shown))
