"""What `mcp-a2a wrap` shows on a terminal: what it found, where it serves, and how to call it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from bridge.cli.render import err

if TYPE_CHECKING:
    from bridge.app import Bridge, WrapConfig

logger = logging.getLogger(__name__)


class OnTerminal:
    """Tells a person."""

    def __init__(self, config: WrapConfig) -> None:
        self._config = config

    def connecting(self, target: object) -> None:
        """What is started or called, before it has answered."""
        err.print(f"[dim]Connecting to {escape(str(target))}[/]")

    def serving(self, bridge: Bridge, port: int) -> None:
        """What is served, and how to call it."""
        base = _base_url(bridge, self._config, port)
        greeting, upstream = bridge.upstream.greeting, bridge.upstream
        if greeting is None or upstream.down is not None:
            err.print(f"[yellow]{escape(upstream.name)} is down:[/] {escape(upstream.down or '')}")
            err.print("It is tried again in the background; its skills appear on the card once it is up.")
        else:
            err.print(f"[bold]{escape(greeting.name)}[/] {escape(greeting.version)}")
            err.print(_skills(bridge))
        err.print(f"[bold]Agent[/]  {base}")
        err.print(f"[bold]Card[/]   {base}/.well-known/agent-card.json")
        err.print(f"[bold]Tasks[/]  {escape(bridge.store)}")
        err.print("\nTry it:")
        err.print(f"  {_curl(bridge, base, needs_token=bool(self._config.credentials))}", markup=False)

    def stopping(self, running: int) -> None:
        """The first Ctrl+C."""
        if not running:
            err.print("Stopping.")
            return
        tasks = "1 running task" if running == 1 else f"{running} running tasks"
        seconds = self._config.profile.run.drain_seconds
        err.print(f"Stopping: waiting up to {seconds:g} s for {tasks}. Press Ctrl+C again to stop now.")


class InLog:
    """Tells a machine: one log line each."""

    def __init__(self, config: WrapConfig) -> None:
        self._config = config

    def connecting(self, target: object) -> None:
        """What is started or called, before it has answered."""
        logger.info("connecting to %s", target)

    def serving(self, bridge: Bridge, port: int) -> None:
        """What is served, and where."""
        base = _base_url(bridge, self._config, port)
        logger.info("serving %s at %s, tasks in %s", bridge.upstream.name, base, bridge.store)

    def stopping(self, running: int) -> None:
        """The first signal."""
        logger.info("stopping, %d tasks running", running)


def _base_url(bridge: Bridge, config: WrapConfig, port: int) -> str:
    return f"{config.public_url or _url(config.host, port)}{bridge.path}"


def _skills(bridge: Bridge) -> Table:
    skills = Table(box=None, show_header=False, padding=(0, 0, 0, 2), width=min(err.width, 110))
    skills.add_column(no_wrap=True, style="cyan")
    skills.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for skill in bridge.agent.skills:
        skills.add_row(escape(skill.id), escape(skill.description.strip().partition("\n")[0]))
    return skills


def _curl(bridge: Bridge, base: str, *, needs_token: bool) -> str:
    skills = bridge.agent.skills
    text = next(
        (example for skill in skills for example in skill.examples or () if not example.startswith("{")),
        "hello",
    )
    body = (
        '{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":'
        '{"messageId":"\'$(date +%s)\'","role":"ROLE_USER","parts":[{"text":"' + _in_json(text) + '"}]}}}'
    )
    token = " -H 'Authorization: Bearer TOKEN'" if needs_token else ""
    return f"curl -s {base} -H 'A2A-Version: 1.0' -H 'Content-Type: application/json'{token} -d '{body}'"


def _in_json(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("'", "'\\''")


def _url(host: str, port: int) -> str:
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
