"""Which addresses are private, and what becomes of connections to a name that leads to one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import anyio
import anyio.abc
import httpx2
import pytest

from bridge.a2a.client.card import FoundCard, fetch_card
from bridge.a2a.client.catalog import CatalogSource
from bridge.a2a.client.client import AgentClient, ClientOptions
from bridge.a2a.client.http import NotReachedError, origin_of
from bridge.a2a.client.interfaces import Reach, Trust
from bridge.a2a.model.objects import AgentCard
from bridge.errors import PeerError
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.streamable_http import Url, explained_at
from bridge.mcp.client.upstream import Upstream
from bridge.networks import is_private_host
from tests.support.scripted_agent import plain_card

PUBLIC = "93.184.216.34"


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",
        "10.0.0.1",
        "100.64.0.1",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:0:10.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:a9fe:a9fe::1",
        "3fff::1",
        "5f00::1",
        "fd00::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
        "[::1]",
        "localhost",
        "localhost.",
        "a.localhost",
        "printer.local",
        "db.internal",
        "2130706433",
    ],
)
def test_what_is_of_this_machine_or_its_own_network_is_private(host: str) -> None:
    assert is_private_host(host)


@pytest.mark.parametrize(
    "host",
    [
        PUBLIC,
        "1.1.1.1",
        "100.128.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "198.20.0.1",
        "223.255.255.255",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",
        "2002:101:101::1",
        "2606:4700::1111",
        "2a00:1450::1",
        "agent.example.com",
    ],
)
def test_all_else_is_public(host: str) -> None:
    assert not is_private_host(host)


@dataclass
class Neighbour:
    """Somebody on this machine who must not be spoken to."""

    port: int = 0
    connections: int = 0
    heard: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        """A public name to us, and this machine to the system."""
        return f"http://127.1:{self.port}/"

    async def hear(self, stream: anyio.abc.SocketStream) -> None:
        """One connection."""
        self.connections += 1
        async with stream:
            async for chunk in stream:
                self.heard.append(chunk)
                await stream.send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")


@asynccontextmanager
async def neighbour() -> AsyncIterator[Neighbour]:
    """Listens as long as this is entered."""
    there = Neighbour()
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        there.port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, there.hear)
            yield there
            tasks.cancel_scope.cancel()


@dataclass
class Names:
    """Says what a name stands for, the last for ever."""

    answers: list[Sequence[str]]

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """See `Resolve`."""
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def client_of(http: httpx2.AsyncClient, url: str, reach: Reach, *, card_url: str = "") -> AgentClient:
    card = AgentCard.model_validate(plain_card(url))
    return AgentClient(
        http, FoundCard(card_url or url, b"", card), ClientOptions(trust=reach.trust, reach=reach)
    )


FLIPPED = (
    r"127\.1 led to the public address 93\.184\.216\.34 and now leads to the private address 127\.0\.0\.1,"
    r" which was not connected to\. If that is right, set `allow_private = true`"
)


@pytest.mark.parametrize(
    ("answers", "connections"),
    [([[PUBLIC]], 1), ([[PUBLIC], ["127.0.0.1"]], 1), ([[PUBLIC], [PUBLIC, "127.0.0.1"]], 1)],
)
async def test_a_name_of_the_users_own_that_flips_after_its_card_was_read_is_not_spoken_to(
    answers: list[Sequence[str]], connections: int
) -> None:
    async with neighbour() as there, httpx2.AsyncClient() as http:
        reach = Reach(there.url, resolve=Names(answers))
        with pytest.raises(NotReachedError, match=FLIPPED):
            await fetch_card(http, there.url, guard=reach.guard(there.url))
        with pytest.raises(NotReachedError, match=FLIPPED):
            await client_of(http, there.url, reach).get("t")
    assert there.heard == []
    assert there.connections == connections + (answers == [[PUBLIC]])


async def test_a_name_of_the_users_own_may_lead_inside_from_the_start_or_where_it_is_allowed() -> None:
    async with neighbour() as there, httpx2.AsyncClient() as http:
        for reach in (
            Reach(there.url, resolve=Names([["127.0.0.1"], [PUBLIC], ["127.0.0.1"]])),
            Reach(there.url, Trust(allow_private=True), Names([[PUBLIC], ["127.0.0.1"]])),
            Reach(there.url, Trust(frozenset({origin_of(there.url)})), Names([[PUBLIC], ["127.0.0.1"]])),
        ):
            there.heard.clear()
            for _ in range(3):
                with pytest.raises(PeerError, match="404"):
                    await client_of(http, there.url, reach).get("t")
            assert len(there.heard) == 3


async def test_a_name_that_was_learned_is_judged_before_it_is_connected_to_also_by_who_calls() -> None:
    async with neighbour() as there, httpx2.AsyncClient() as http:
        catalog = CatalogSource(http, "https://catalog.example.com/agents", None)
        for answer, connections in (["127.0.0.1"], 0), ([PUBLIC, "::1"], 0), ([PUBLIC], 1):
            reach = replace(catalog.reach, resolve=Names([answer]))
            with pytest.raises(NotReachedError, match="which is a private address"):
                await client_of(http, there.url, reach).get("t")
            assert there.connections == connections
    assert there.heard == []


async def test_a_tool_server_whose_name_flips_is_not_spoken_to() -> None:
    async with neighbour() as there:
        target = Url(there.url)
        target.seen.judge("127.1", "")([PUBLIC])
        upstream = Upstream("tools", target, era=Era.LEGACY)
        async with upstream.run():
            with pytest.raises(PeerError, match=FLIPPED):
                await upstream.ready()
        assert str(await explained_at(target, PeerError("down"))) == "down"
        assert there.heard == []
        assert replace(target, allow_private=True).guard is None
        assert Url(there.url.replace("127.1", "127.0.0.1")).guard is None
