"""Which addresses are private, and what happens to connections to a name with such an address."""

from __future__ import annotations

import ast
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import anyio.abc
import httpx2
import pytest
from anyio.streams.tls import TLSListener

import bridge
from bridge.a2a.client.agent_card import CardSource, FoundCard, fetch_card
from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.catalog import CatalogSource
from bridge.a2a.client.http import NotReachedError, origin_of
from bridge.a2a.client.interfaces import ConnectionPolicy, Trust
from bridge.a2a.model.objects import AgentCard
from bridge.assembly.offered_server import other_kind_at
from bridge.assembly.plan import RemotePlan
from bridge.errors import PeerError
from bridge.http.client import GuardedClient
from bridge.http.private_addresses import AddressGuard, PrivateAddressError, is_private_host
from bridge.http.probe import WantedKind, kind_at
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.streamable_http import explained_at
from bridge.mcp.client.upstream import Upstream
from bridge.remotes.remote_agent import RemoteAgent, read_cards
from tests.support.certificates import served_as
from tests.support.limits import calls, card_bounds, client_options, server_settings, url_at
from tests.support.scripted_agent import plain_card

PUBLIC = "93.184.216.34"
PACKAGE = Path(bridge.__file__).parent
CONNECTING = {
    "AsyncClient",
    "AsyncHTTPTransport",
    "Client",
    "HTTPTransport",
    "connect_tcp",
    "open_connection",
    "urlopen",
}


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
def test_addresses_of_this_machine_and_its_network_are_private(host: str) -> None:
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
def test_all_other_addresses_are_public(host: str) -> None:
    assert not is_private_host(host)


@dataclass
class Neighbour:
    """A server on this machine that must get no request."""

    port: int = 0
    connections: int = 0
    heard: list[bytes] = field(default_factory=list)
    answer: bytes = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"

    @property
    def url(self) -> str:
        """A name that is public for the bridge, and this machine for the system."""
        return f"http://127.1:{self.port}/"

    async def hear(self, stream: anyio.abc.ByteStream) -> None:
        """Serves a connection."""
        self.connections += 1
        async with stream:
            async for chunk in stream:
                self.heard.append(chunk)
                await stream.send(self.answer)


@asynccontextmanager
async def neighbour() -> AsyncIterator[Neighbour]:
    """Listens while this context is open."""
    there = Neighbour()
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        there.port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, there.hear)
            yield there
            tasks.cancel_scope.cancel()


@dataclass
class Names:
    """Resolves a name to these addresses in turn, the last one from then on."""

    answers: list[Sequence[str]]

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """See `Resolve`."""
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def client_of(
    http: httpx2.AsyncClient, url: str, reach: ConnectionPolicy, *, card_url: str = ""
) -> AgentClient:
    card = AgentCard.model_validate(plain_card(url))
    return AgentClient(
        http, FoundCard(card_url or url, b"", card), client_options(trust=reach.trust, reach=reach)
    )


FLIPPED = (
    r"127\.1 led to the public address 93\.184\.216\.34 and now leads to the private address 127\.0\.0\.1,"
    r" so no connection was made\. If that is right, set `allow_private = true`"
)


@pytest.mark.parametrize("answer", [["127.0.0.1"], [PUBLIC, "127.0.0.1"]])
async def test_no_connection_is_made_if_a_users_name_becomes_private_after_its_card_was_read(
    answer: Sequence[str],
) -> None:
    async with neighbour() as there, GuardedClient() as http:
        reach = ConnectionPolicy(there.url, resolve=Names([answer]))
        reach.seen.judge("127.1", "")([PUBLIC])
        with pytest.raises(NotReachedError, match=FLIPPED):
            await fetch_card(http, there.url, guard=reach.guard(there.url))
        with pytest.raises(NotReachedError, match=FLIPPED):
            await client_of(http, there.url, reach).get("t")
    assert there.connections == 0


@pytest.mark.parametrize(
    ("on_command_line", "allowing"),
    [(False, r"right, set `allow_private = true` for it$"), (True, r"right, add --allow-private$")],
)
async def test_the_hint_of_a_refusal_works_where_the_peer_is_named(
    on_command_line: bool, allowing: str
) -> None:
    url = "http://agent.example.com/"
    reach = ConnectionPolicy(url, Trust(on_command_line=on_command_line), Names([["127.0.0.1"]]))
    server = url_at(url, on_command_line=on_command_line)
    for seen, guard in (reach.seen, reach.guard(url)), (server.seen, server.guard):
        assert guard is not None
        seen.judge("agent.example.com", "")([PUBLIC])
        with pytest.raises(PrivateAddressError, match=allowing):
            guard.judge(["127.0.0.1"])


async def test_a_name_is_resolved_once_and_connections_go_only_to_judged_addresses() -> None:
    async with neighbour() as there, GuardedClient() as http:
        url = f"http://agent.example.com:{there.port}/"
        reach = ConnectionPolicy(url, resolve=Names([["127.0.0.1"], [PUBLIC]]))
        with pytest.raises(PeerError, match="404"):
            await client_of(http, url, reach).get("t")
        assert f"host: agent.example.com:{there.port}".encode() in b"".join(there.heard).lower()


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/", "https://[::1]:65536/"])
async def test_an_impossible_port_is_a_connection_error(url: str) -> None:
    async with GuardedClient() as http:
        with pytest.raises(httpx2.ConnectError, match="there is no port"):
            await http.get(url)


async def test_the_next_judged_address_is_tried_if_one_is_unreachable() -> None:
    async with neighbour() as there, GuardedClient() as http:
        url = f"http://agent.example.com:{there.port}/"
        reach = ConnectionPolicy(url, resolve=Names([["127.0.0.2", "127.0.0.1"]]))
        with pytest.raises(PeerError, match="404"):
            await client_of(http, url, reach).get("t")
        url = f"http://other.example.com:{there.port}/"
        reach = ConnectionPolicy(url, resolve=Names([["127.0.0.2", "127.0.0.3"]]))
        with pytest.raises(NotReachedError, match="cannot be reached: Connection refused"):
            await client_of(http, url, reach).get("t")


async def test_the_certificate_must_match_the_name_and_not_the_address(tmp_path: Path) -> None:
    trusted = ssl.create_default_context()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    tls = TLSListener(listener, served_as("agent.example.com", tmp_path, trusted), standard_compatible=False)
    there = Neighbour(listener.extra(anyio.abc.SocketAttribute.local_port))
    async with tls, GuardedClient(verify=trusted) as http, anyio.create_task_group() as tasks:
        tasks.start_soon(tls.serve, there.hear)
        for name, answer in ("agent.example.com", "404"), ("other.example.com", "for another host name"):
            url = f"https://{name}:{there.port}/"
            with pytest.raises(PeerError, match=answer):
                await client_of(http, url, ConnectionPolicy(url, resolve=Names([["127.0.0.1"]]))).get("t")
        tasks.cancel_scope.cancel()


async def test_an_idle_connection_is_judged_by_the_guard_of_the_next_request() -> None:
    async with neighbour() as there, GuardedClient() as http:
        url = f"http://agent.example.com:{there.port}/"
        inside = Names([["127.0.0.1"]])
        allowed = ConnectionPolicy(url, resolve=inside)
        for _ in range(2):
            with pytest.raises(PeerError, match="404"):
                await client_of(http, url, allowed).get("t")
        assert (there.connections, len(there.heard)) == (1, 2)
        learned = ConnectionPolicy("https://catalog.example.com/", resolve=inside)
        with pytest.raises(NotReachedError, match="which is a private address"):
            await client_of(http, url, learned).get("t")
        assert (there.connections, len(there.heard)) == (1, 2)
        with pytest.raises(PeerError, match="404"):
            await client_of(http, url, allowed).get("t")
        assert (there.connections, len(there.heard)) == (2, 3)


async def test_a_probe_for_tls_is_judged_too() -> None:
    looked: list[Sequence[str]] = []

    def judge(addresses: Sequence[str]) -> None:
        looked.append(addresses)
        if len(looked) > 1:
            raise PrivateAddressError("it has flipped")

    async with neighbour() as there, GuardedClient() as http:
        there.answer = b"\x15\x03\x01\x00\x02\x02\x46"
        with pytest.raises(PrivateAddressError):
            await kind_at(http, there.url, WantedKind.SERVER, AddressGuard(judge))
    assert there.connections == 1


async def test_a_missing_agent_is_not_probed_at_an_address_that_became_private() -> None:
    async with neighbour() as there, GuardedClient() as http:
        reach = ConnectionPolicy(there.url, resolve=Names([["127.0.0.1"]]))
        reach.seen.judge("127.1", "")([PUBLIC])
        source = CardSource(http, there.url, None, card_bounds(), guard=reach.guard(there.url))
        agent = RemoteAgent(there.url, source, http, client_options(reach=reach))
        await read_cards([agent], within_seconds=10)
        assert await other_kind_at(agent, RemotePlan(there.url)) is None
    assert there.connections == 0


async def test_a_proxy_of_the_environment_resolves_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async with neighbour() as there:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{there.port}")
        async with GuardedClient() as http:
            url = "http://agent.example.com/"
            reach = ConnectionPolicy("https://catalog.example.com/", resolve=Names([["127.0.0.1"]]))
            with pytest.raises(PeerError, match="404"):
                await client_of(http, url, reach).get("t")
    assert there.heard[0].startswith(b"POST http://agent.example.com/ ")


def test_all_connections_to_peers_are_guarded() -> None:
    made = {
        (str(file.relative_to(PACKAGE)), call.func.attr)
        for file in PACKAGE.rglob("*.py")
        for text in [file.read_text("utf-8")]
        if any(name in text for name in CONNECTING)
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if call.func.attr in CONNECTING and "transport" not in [keyword.arg for keyword in call.keywords]
    }
    # A replica is no peer: its address is in the list of replicas, written with our keys.
    assert made == {
        ("http/client.py", "connect_tcp"),
        ("replicas/relay.py", "connect_tcp"),
    }


async def test_a_users_name_may_be_private_from_the_start_or_if_allowed() -> None:
    async with neighbour() as there, GuardedClient() as http:
        for reach in (
            ConnectionPolicy(there.url, resolve=Names([["127.0.0.1"], [PUBLIC], ["127.0.0.1"]])),
            ConnectionPolicy(there.url, Trust(allow_private=True), Names([[PUBLIC], ["127.0.0.1"]])),
            ConnectionPolicy(
                there.url, Trust(frozenset({origin_of(there.url)})), Names([[PUBLIC], ["127.0.0.1"]])
            ),
        ):
            there.heard.clear()
            for _ in range(3):
                with pytest.raises(PeerError, match="404"):
                    await client_of(http, there.url, reach).get("t")
            assert len(there.heard) == 3


async def test_a_name_from_a_peer_is_judged_before_a_connection_also_in_a_call() -> None:
    async with neighbour() as there, GuardedClient() as http:
        catalog = CatalogSource(http, "https://catalog.example.com/agents", None, card_bounds())
        for answer in ["127.0.0.1"], [PUBLIC, "::1"]:
            reach = replace(catalog.reach, resolve=Names([answer]))
            with pytest.raises(NotReachedError, match="which is a private address"):
                await client_of(http, there.url, reach).get("t")
    assert there.connections == 0


async def test_no_connection_is_made_to_a_tool_server_whose_name_becomes_private() -> None:
    async with neighbour() as there:
        target = url_at(there.url)
        target.seen.judge("127.1", "")([PUBLIC])
        upstream = Upstream("tools", target, era=Era.LEGACY, settings=server_settings(), **calls())
        async with upstream.run():
            with pytest.raises(PeerError, match=FLIPPED):
                await upstream.ready()
        assert str(await explained_at(target, PeerError("down"))) == "down"
        assert there.connections == 0
        assert replace(target, allow_private=True).guard is None
        assert url_at(there.url.replace("127.1", "127.0.0.1")).guard is None
