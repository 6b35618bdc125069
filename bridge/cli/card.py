"""`mcp-a2a card`: what an agent says of itself. Also how every command reaches an agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from bridge.errors import PeerError, UsageError

if TYPE_CHECKING:
    import httpx2

    from bridge.a2a.card import FoundCard

_CONNECT_SECONDS: Final = 10.0
_CARD_SECONDS: Final = 30.0
"""How long an agent may take over its card."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


def connection_options(command: _Command) -> _Command:
    """The options by which a command reaches an agent; `Connection.from_options` reads them."""
    for option in (
        click.option(
            "--bearer",
            metavar="env:NAME|file:PATH",
            help="Token for the agent, sent as Authorization: Bearer.",
        ),
        click.option(
            "--header",
            multiple=True,
            metavar="NAME=env:VAR|file:PATH|VALUE",
            help="HTTP header for the agent. Repeatable.",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True)
class Connection:
    """An agent's URL and the headers that go to it."""

    url: str
    headers: dict[str, str] = field(repr=False)

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> Connection:
        """The connection that the options describe.

        Raises:
            UsageError: the URL is none, or a header cannot be made.
        """
        from bridge.config.secrets import header_from, secret_from

        url: str = options["url"]
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"an agent is reached by an http(s) URL, not {url!r}")
        headers = dict(header_from(text) for text in options["header"])
        if options["bearer"]:
            token = secret_from(options["bearer"])
            if token is None:
                raise UsageError("--bearer takes env:NAME or file:PATH, so that no token stands on the line")
            headers["Authorization"] = f"Bearer {token}"
        if not all(value.isascii() and value.isprintable() for value in headers.values()):
            raise UsageError("a header holds a character that HTTP does not carry")
        return cls(url, headers)

    def client(self) -> httpx2.AsyncClient:
        """An HTTP client with the headers. It waits as long as the agent takes; the caller sets a bound."""
        import httpx2

        timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
        return httpx2.AsyncClient(headers=self.headers, timeout=timeout)

    async def card(self) -> FoundCard:
        """The agent's card.

        Raises:
            PeerError: there is none, or not in time.
        """
        import anyio

        from bridge.a2a.card import fetch_card
        from bridge.a2a.fetch import shown

        try:
            with anyio.fail_after(_CARD_SECONDS):
                async with self.client() as http:
                    return await fetch_card(http, self.url)
        except TimeoutError as exc:
            raise PeerError(f"{shown(self.url)} gave no card within {_CARD_SECONDS:g} s") from exc


@click.command()
@click.argument("url", metavar="URL")
@click.option("--json", "as_json", is_flag=True, help="Print the card as it was received.")
@connection_options
def card(**options: Any) -> int:
    """Show what an agent says of itself.

    URL is the agent's base, below which its card is at /.well-known/agent-card.json, or the card's own URL.

    \b
    mcp-a2a card http://127.0.0.1:8080
    mcp-a2a card --bearer env:TOKEN --json https://agent.example.com | jq .skills

    Exits with 1 when there is no card, or the card is not as A2A 1.0 asks.
    """
    import anyio

    from bridge.cli import render

    connection = Connection.from_options(options)
    found = anyio.run(connection.card)
    if options["as_json"]:
        render.card_text(found)
    else:
        render.card(found)
    render.deviations(found)
    return 1 if found.deviations else 0
