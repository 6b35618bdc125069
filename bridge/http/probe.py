"""Completes a URL without a scheme, and finds out what is at a URL that is not the wanted peer.

If a command finds no agent or no tool server at a URL, this module says what is there, and which command to use. It
probes only after a failure, and sends no credentials.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpcore2
import httpx2

from bridge.errors import PeerError
from bridge.http.client import connect_guarded, guarded_by
from bridge.http.private_addresses import AddressGuard, PrivateAddressError
from bridge.text.safe_text import shell_word

_PROBE_SECONDS: Final = 5.0
"""The longest time for a probe. A slower peer stays unknown."""

_BODY_BYTES: Final = 1024 * 1024
"""The most bytes of an answer that are read. The card of an agent with many skills is long."""

_HOST: Final = re.compile(
    r"(?:(?P<near>localhost|[\d.]+|\[[\da-f:]+\])|[\w-]+(?:\.[\w-]+)+|[\w.-]+(?=:))(?P<port>:\d+)?(?:[/?].*)?",
    re.IGNORECASE,
)
"""A text that may be a host: `localhost`, an address, or a name with dots or with a port."""

_INITIALIZE: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "mcp-a2a", "version": "0"},
    },
}
_ABSENT: Final = frozenset({httpx2.codes.NOT_FOUND, httpx2.codes.GONE})
_SESSION: Final = "mcp-session-id"
_UNSUPPORTED_VERSION: Final = -32022
"""The error code with which servers that speak only 2026-07-28 refuse the older handshake."""


@dataclass(frozen=True)
class _Prober:
    """The client and the guard of a probe."""

    http: httpx2.AsyncClient
    guard: AddressGuard | None


_DATA: Final = re.compile(rb"^data:[ \t]*\S", re.MULTILINE)
"""The data of an event. A server may first send an event with an id and without data."""


class WantedKind(StrEnum):
    """The kind of peer that the command needs."""

    AGENT = "agent"
    SERVER = "server"


class FoundKind(StrEnum):
    """What is at the URL instead."""

    TLS = "tls"
    AGENT = "agent"
    AGENTS = "agents"
    """A bridge of several agents."""
    SERVER = "server"
    SERVER_BELOW = "server below"
    """A tool server at the usual path `/mcp` below the URL."""
    PAGE = "page"


_HINTS: Final[Mapping[tuple[WantedKind, FoundKind], str]] = {
    **{(wanted, FoundKind.TLS): "It speaks HTTPS there: write https://{rest}" for wanted in WantedKind},
    (
        WantedKind.AGENT,
        FoundKind.AGENTS,
    ): "It serves several agents, each at its own address: {origin}/agents lists them",
    (WantedKind.AGENT, FoundKind.SERVER): (
        "It is an MCP server: mcp-a2a wrap {word} makes an agent of it, and mcp-a2a call {word} calls its tools"
    ),
    (WantedKind.AGENT, FoundKind.SERVER_BELOW): (
        "There is an MCP server at {url}/mcp: mcp-a2a wrap makes an agent of it, and mcp-a2a call calls its tools"
    ),
    (WantedKind.AGENT, FoundKind.PAGE): (
        "It is a web page. Give the address of an agent, which has its card at /.well-known/agent-card.json below it"
    ),
    (WantedKind.SERVER, FoundKind.AGENT): (
        "It is an A2A agent: mcp-a2a expose {word} makes tools of it, and mcp-a2a call {word} calls it"
    ),
    (WantedKind.SERVER, FoundKind.AGENTS): (
        "It serves several A2A agents, which {origin}/agents lists: mcp-a2a expose makes tools of them"
    ),
    (WantedKind.SERVER, FoundKind.SERVER_BELOW): "There is an MCP server at {url}/mcp",
    (WantedKind.SERVER, FoundKind.PAGE): "It is a web page. The path of an MCP server is often /mcp",
}


def url_with_scheme(text: str) -> str | None:
    """The URL for a host that was written without a scheme; None if the text is not a host."""
    try:
        urlsplit(text)
    except ValueError:  # a malformed IPv6 address
        return None
    match = _HOST.fullmatch(text)
    if match is None:
        return None
    return f"http://{text}" if match["near"] or match["port"] else f"https://{text}"


async def explained(
    fault: PeerError,
    http: httpx2.AsyncClient,
    url: str,
    wanted: WantedKind,
    guard: AddressGuard | None = None,
    within_seconds: float = _PROBE_SECONDS,
) -> PeerError:
    """The fault at a URL, with a hint about what is there instead, if a probe finds out in time.

    `guard` judges the connections.
    """
    kind = None
    with suppress(PrivateAddressError):
        kind = await kind_at(http, url, wanted, guard, within_seconds)
    if kind is None:
        return fault
    parsed = urlsplit(url)
    plain = parsed._replace(netloc=parsed.netloc.rpartition("@")[2], query="", fragment="")
    hint = _HINTS[wanted, kind].format(
        url=plain.geturl().rstrip("/"),
        word=shell_word(plain.geturl().rstrip("/")),
        origin=f"{plain.scheme}://{plain.netloc}",
        rest=plain.geturl().partition("://")[2],
    )
    words = str(fault)
    return type(fault)(
        f"{words if words.endswith(('?', '.')) else f'{words}.'} {hint}",
        detail=fault.detail,
        outcome=fault.outcome,
    )


class FaultExplainer:
    """Explains the faults of a URL. A fault equal to the last one gets the same explanation without a probe."""

    def __init__(self, explain: Callable[[PeerError], Awaitable[PeerError]]) -> None:
        """`explain` adds a hint to a fault, as `explained` does."""
        self._explain = explain
        self._fault: str | None = None
        self._words = ""

    async def of(self, fault: PeerError) -> PeerError:
        """The fault with its explanation."""
        if str(fault) != self._fault:
            self._words = str(await self._explain(fault))
            self._fault = str(fault)
        return type(fault)(self._words, detail=fault.detail, outcome=fault.outcome)


async def kind_at(
    http: httpx2.AsyncClient,
    url: str,
    wanted: WantedKind,
    guard: AddressGuard | None = None,
    within_seconds: float = _PROBE_SECONDS,
) -> FoundKind | None:
    """What is at a URL where the wanted peer was not found; None if a probe does not find out in time.

    Raises:
        PrivateAddressError: `guard` refuses an address of the URL.
    """
    prober = _Prober(http, guard)
    probes: dict[FoundKind, Callable[[], Awaitable[bool]]] = {
        FoundKind.TLS: lambda: _speaks_tls(prober, url),
        FoundKind.AGENT: lambda: _is_agent(prober, url),
        FoundKind.SERVER: lambda: _is_server(prober, url),
        FoundKind.AGENTS: lambda: _lists_agents(prober, url),
        FoundKind.SERVER_BELOW: lambda: _is_server(prober, f"{url.partition('?')[0].rstrip('/')}/mcp"),
        FoundKind.PAGE: lambda: _is_page(prober, url, wanted),
    }
    with anyio.move_on_after(min(within_seconds, _PROBE_SECONDS)):
        for kind, probe in probes.items():
            if (wanted, kind) in _HINTS and await probe():
                return kind
    return None


async def _speaks_tls(prober: _Prober, url: str) -> bool:
    """Whether a port that does not answer plain HTTP completes a TLS handshake."""
    parsed = urlsplit(url)
    if parsed.scheme != "http" or not parsed.hostname:
        return False
    answer = await _answer_to(prober, "GET", url)
    if answer is not None and answer.status_code != httpx2.codes.BAD_REQUEST:
        return False
    any_certificate = ssl.create_default_context()
    any_certificate.check_hostname, any_certificate.verify_mode = False, ssl.CERT_NONE
    with suppress(httpcore2.NetworkError):
        stream = await connect_guarded(parsed.hostname, parsed.port or 80, prober.guard)
        try:
            await stream.start_tls(any_certificate, parsed.hostname)
        finally:
            with anyio.CancelScope(shield=True):  # the probe's time may be over
                await stream.aclose()
        return True
    return False


async def _is_agent(prober: _Prober, url: str) -> bool:
    answer = await _answer_to(prober, "GET", _card_url(url))
    card = _json_of(answer) if answer is not None and answer.is_success else None
    return isinstance(card, dict) and "skills" in card


async def _lists_agents(prober: _Prober, url: str) -> bool:
    """Whether the peer is a bridge of several agents, which serves no card at its root."""
    parsed = urlsplit(url)
    answer = await _answer_to(
        prober, "GET", f"{parsed.scheme}://{parsed.netloc.rpartition('@')[2]}/.well-known/agent-card.json"
    )
    body = _json_of(answer) if answer is not None and answer.status_code == httpx2.codes.NOT_FOUND else None
    return "several agents here" in json.dumps(body)


async def _is_server(prober: _Prober, url: str) -> bool:
    """Whether the peer answers the handshake of MCP. A session that the handshake opens is closed again."""
    answer = await _answer_to(prober, "POST", url, _INITIALIZE)
    if answer is None:
        return False
    if session := answer.headers.get(_SESSION):
        await _answer_to(prober, "DELETE", url, headers={_SESSION: session})
    if answer.is_success:
        return b'"protocolVersion"' in answer.content
    if answer.status_code == httpx2.codes.UNAUTHORIZED:
        return "resource_metadata" in answer.headers.get("www-authenticate", "")
    error = body.get("error") if isinstance(body := _json_of(answer), dict) else None
    return isinstance(error, dict) and error.get("code") == _UNSUPPORTED_VERSION


async def _is_page(prober: _Prober, url: str, wanted: WantedKind) -> bool:
    """Whether the URL is a web page. If an agent is wanted, a URL with a broken card counts as no page."""
    if wanted is WantedKind.AGENT:
        card = await _answer_to(prober, "GET", _card_url(url))
        if card is None or not (card.status_code in _ABSENT or _is_html(card)):
            return False
    answer = await _answer_to(prober, "GET", url)
    return answer is not None and _is_html(answer)


def _is_html(answer: httpx2.Response) -> bool:
    kind: str = answer.headers.get("content-type", "")
    return answer.is_success and kind.lower().startswith("text/html")


def _card_url(url: str) -> str:
    return f"{url.partition('?')[0].rstrip('/')}/.well-known/agent-card.json"


async def _answer_to(
    prober: _Prober,
    method: str,
    url: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> httpx2.Response | None:
    """The answer to a request, with at most `_BODY_BYTES` of its body; None if no answer came. A stream is read up to
    its first event with data."""
    accepted = (
        "application/json, text/event-stream" if body is not None else "application/json, text/html, */*"
    )
    request = prober.http.build_request(
        method,
        url,
        json=body,
        headers={"Accept": accepted, **(headers or {})},
        extensions=guarded_by(prober.guard),
    )
    read = bytearray()
    try:
        answer = await prober.http.send(request, stream=True, follow_redirects=False)
        try:
            async for chunk in answer.aiter_bytes():
                read += chunk
                if len(read) > _BODY_BYTES or (_DATA.search(read) and read.endswith((b"\n\n", b"\r\n\r\n"))):
                    break
        finally:
            await answer.aclose()
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL):
        return None
    # The headers stay bytes: a value beyond ASCII that was decoded to text cannot become a header again.
    headers_kept = [
        (name, value) for name, value in answer.headers.raw if name.lower() != b"content-encoding"
    ]
    return httpx2.Response(answer.status_code, headers=headers_kept, content=bytes(read))


def _json_of(answer: httpx2.Response | None) -> object:
    try:
        return answer.json() if answer is not None else None
    except (ValueError, RecursionError):
        return None
