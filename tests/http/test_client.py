"""The credentials and certificates that a request carries, and that only its own origin gets them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import count

import anyio
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bridge.http.client import PeerAuth, PeerCredentials, RenewableCredentials, fixed_credentials

Seen = list[Request]
URL = "https://peer.example/mcp?v=1"
TOKEN = fixed_credentials(PeerCredentials({"Authorization": "Bearer t", "X-Key": "k"}, {"key": "q"}))


@pytest.fixture
def seen() -> Seen:
    return []


@pytest.fixture
async def http(seen: Seen) -> AsyncIterator[httpx2.AsyncClient]:
    """A client whose requests all go to one server, whatever their origin is."""

    async def peer(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(Request(scope, receive))
        await Response()(scope, receive, send)

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(peer)) as http:
        yield http


def own(request: Request, *names: str) -> dict[str, str | None]:
    """The values of these headers in a request."""
    return {name: request.headers.get(name) for name in names}


def said(request: Request) -> list[tuple[str, str]]:
    """All headers of a request except those of the connection."""
    return [
        pair for pair in request.headers.items() if pair[0] not in ("host", "accept-encoding", "connection")
    ]


async def test_each_request_asks_for_credentials_and_waits_for_them(
    http: httpx2.AsyncClient, seen: Seen
) -> None:
    numbers = count(1)

    async def source() -> PeerCredentials:
        await anyio.lowlevel.checkpoint()
        return PeerCredentials({"Authorization": f"Bearer {next(numbers)}"}, {"key": "q"})

    auth = PeerAuth(URL, source)
    for _ in range(2):
        await http.post(URL, auth=auth, json={})
    assert [request.headers["authorization"] for request in seen] == ["Bearer 1", "Bearer 2"]
    assert [str(request.query_params) for request in seen] == ["v=1&key=q"] * 2


@pytest.mark.parametrize(
    "url",
    [
        "http://peer.example/mcp",
        "https://peer.example:8443/mcp",
        "https://other.example/mcp",
        "https://peer.example.other.example/",
        "https://peer.example@other.example/",
    ],
)
async def test_credentials_are_not_sent_to_another_origin(
    url: str, http: httpx2.AsyncClient, seen: Seen
) -> None:
    async def never() -> PeerCredentials:
        raise AssertionError("nobody is to be asked for these")

    await http.get(url, auth=PeerAuth(URL, never))
    (request,) = seen
    assert "x-key" not in request.headers
    assert request.headers.get("authorization", "Basic ").startswith("Basic ")


@pytest.mark.parametrize("url", ["https://peer.example/other", "https://PEER.example:443/", URL])
async def test_credentials_are_sent_to_every_url_of_the_origin(
    url: str, http: httpx2.AsyncClient, seen: Seen
) -> None:
    await http.get(url, auth=PeerAuth(URL, TOKEN))
    assert own(seen[0], "authorization", "x-key") == {"authorization": "Bearer t", "x-key": "k"}
    assert seen[0].query_params["key"] == "q"


async def test_credentials_replace_only_headers_of_the_library(http: httpx2.AsyncClient, seen: Seen) -> None:
    mine = {"User-Agent": "me", "cookie": "a=b", "accept": "text/html", "Mcp-Method": "x", "X-Key": "k"}
    auth = PeerAuth(URL, fixed_credentials(PeerCredentials(mine)))
    http.cookies.set("session", "1", domain="peer.example")
    protocol = {"Accept": "application/json", "Mcp-Method": "ping"}
    await http.get(URL, auth=auth, headers=protocol)
    await http.get(URL, auth=auth)
    assert said(seen[0]) == [
        ("user-agent", "me"),
        ("cookie", "a=b"),
        ("x-key", "k"),
        ("accept", "application/json"),
        ("mcp-method", "ping"),
    ]
    assert said(seen[1]) == list(zip(map(str.lower, mine), mine.values(), strict=True))


async def test_the_user_in_a_url_takes_precedence(http: httpx2.AsyncClient, seen: Seen) -> None:
    await http.get("https://ada:pass@peer.example/", auth=PeerAuth(URL, TOKEN))
    assert own(seen[0], "authorization", "x-key") == {"authorization": "Basic YWRhOnBhc3M=", "x-key": "k"}


class Renewed(RenewableCredentials):
    """Gives another token after each refusal."""

    def __init__(self) -> None:
        self.number = 1

    async def __call__(self) -> PeerCredentials:
        return PeerCredentials({"Authorization": f"Bearer {self.number}"})

    def refused(self, shown: PeerCredentials) -> None:
        self.number += 1

    async def widened(self, shown: PeerCredentials, scopes: Sequence[str]) -> bool:
        return False


@pytest.mark.parametrize("says_length", [True, False])
@pytest.mark.parametrize(("size", "last"), [(0, "Bearer 2"), (65_536, "Bearer 2"), (65_537, "Bearer 1")])
async def test_a_request_is_retried_after_a_short_refusal_with_or_without_its_length(
    size: int, last: str, *, says_length: bool
) -> None:
    """A long response stays unread for the caller."""
    page, sent = b"x" * size, list[str]()

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, size, 1000):
            yield page[start : start + 1000]

    async def peer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.headers["authorization"])
        if sent[-1] == "Bearer 2":
            return httpx2.Response(200)
        return httpx2.Response(401, content=page if says_length else chunks())

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(peer)) as http:
        answer = await http.post(URL, auth=PeerAuth(URL, Renewed()))
    assert sent[-1] == last
    assert answer.content == (page if last == "Bearer 1" else b"")


def test_credentials_are_not_in_a_repr() -> None:
    assert "s3cret" not in repr(PeerCredentials({"X": "s3cret"}, {"x": "s3cret"}))
