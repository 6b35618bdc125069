"""`--check` of `install`: the server is started as the host would, and its tools are shown."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.hosts import places

if TYPE_CHECKING:
    from bridge.jsonvalues import JsonObject


def check(options: dict[str, Any], host: places.Host, server: JsonObject) -> None:
    """Start the server as the host would, and show its tools.

    Raises:
        PeerError: it does not work.
    """
    if not options["check"]:
        return
    import anyio

    from bridge.cli import logs, render
    from bridge.cli.trial import Start, tools_of

    logs.set_up("text", "warning")
    arguments = server["args"] if isinstance(server["args"], list) else []
    start = Start(str(server["command"]), [str(word) for word in arguments], _environment(host, server))
    tools = anyio.run(tools_of, start)
    say = render.say if host is places.ANY_HOST else lambda line: render.write(f"{line}\n")
    say(f"{len(tools)} tools, as {host.title} would see them:")
    for tool in sorted(tools, key=lambda tool: tool.name):
        description = (tool.description or "").strip().partition("\n")[0]
        say(f"  {tool.name}  {render.unseen(description)}")


def _environment(host: places.Host, server: JsonObject) -> dict[str, str]:
    """The variables that the host gives a server, as far as they differ from host to host."""
    if host.from_shell:
        given = dict(os.environ)
    else:
        given = {"HOME": str(Path.home())}
        path = places.DESKTOP_PATH[places.system_of(sys.platform)]
        if path:
            given["PATH"] = path
    own = server.get("env")
    return given | {name: str(value) for name, value in own.items()} if isinstance(own, dict) else given
