"""What the command line shows. The only module that knows how."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from bridge.app import Bridge

err = Console(stderr=True, highlight=False, soft_wrap=True)


def serving(bridge: Bridge, host: str, port: int, public_url: str | None, *, needs_token: bool) -> None:
    """What is served, and how to call it."""
    base = f"{public_url or _url(host, port)}{bridge.path}"
    greeting, upstream = bridge.upstream.greeting, bridge.upstream
    if greeting is None or upstream.down is not None:
        err.print(f"[yellow]{escape(upstream.name)} is down:[/] {escape(upstream.down or '')}")
        err.print("It is tried again in the background; its skills appear on the card once it is up.")
    else:
        err.print(
            f"[bold]{escape(greeting.name)}[/] {escape(greeting.version)} [dim]({escape(str(upstream.target))})[/]"
        )
        skills = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
        for skill in bridge.agent.skills:
            skills.add_row(f"[cyan]{escape(skill.id)}[/]", escape(skill.description.partition("\n")[0][:90]))
        err.print(skills)
    err.print(f"[bold]Agent[/]  {base}")
    err.print(f"[bold]Card[/]   {base}/.well-known/agent-card.json")
    err.print(f"[bold]Tasks[/]  {escape(bridge.store)}")
    err.print("\nTry it:")
    err.print(f"  {escape(_curl(bridge, base, needs_token=needs_token))}", markup=False)


def draining() -> None:
    """The first Ctrl+C."""
    err.print("Stopping: running tasks may end. Press Ctrl+C again to stop them now.")


def _curl(bridge: Bridge, base: str, *, needs_token: bool) -> str:
    skills = bridge.agent.skills
    text = next(
        (example for skill in skills for example in skill.examples or () if not example.startswith("{")),
        "hello",
    )
    body = (
        '{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":'
        '{"messageId":"\'$RANDOM\'","role":"ROLE_USER","parts":[{"text":"' + _in_json(text) + '"}]}}}'
    )
    token = " -H 'Authorization: Bearer TOKEN'" if needs_token else ""
    return f"curl -s {base} -H 'A2A-Version: 1.0' -H 'Content-Type: application/json'{token} -d '{body}'"


def _in_json(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("'", "'\\''")


def _url(host: str, port: int) -> str:
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
