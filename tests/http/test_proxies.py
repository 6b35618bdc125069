"""The proxy of the environment on the way to tool servers, agents and catalogs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpcore2
import httpx2
import pytest
from anyio.abc import SocketStream

import bridge
from bridge.a2a.client.interfaces import ConnectionPolicy, Trust
from bridge.assembly.plan_from_file import plan_from_file
from bridge.http.client import GuardedClient, GuardedTransport, guarded_by
from bridge.http.private_addresses import AddressGuard, PrivateAddressError, refusing_private
from bridge.http.proxies import proxy_of
from bridge.identity.logins.login_credentials import LoginToken

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize(
    ("variables", "scheme", "host", "proxy"),
    [
        ({}, "https", "a.example", None),
        ({"HTTPS_PROXY": "http://p:3128"}, "https", "a.example", "http://p:3128"),
        ({"HTTPS_PROXY": "http://p:3128"}, "http", "a.example", None),
        ({"HTTPS_PROXY": "p:3128"}, "https", "a.example", "http://p:3128"),
        ({"ALL_PROXY": "http://p:3128"}, "http", "a.example", "http://p:3128"),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "b.example,a.example"}, "https", "a.example", None),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": ".example"}, "https", "a.example", None),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "*"}, "https", "a.example", None),
        ({"HTTP_PROXY": "http://p:3128"}, "http", "127.0.0.1", None),
        ({"HTTP_PROXY": "http://p:3128"}, "http", "localhost", None),
    ],
)
def test_the_environment_names_the_proxy_of_an_origin_but_none_for_this_machine(
    variables: dict[str, str], scheme: str, host: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_of(scheme, host, 443) == proxy


def test_a_proxy_of_an_unknown_kind_is_refused_with_a_hint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://p:1080")
    with pytest.raises(httpcore2.ProxyError, match=r"the scheme 'socks5'.*NO_PROXY"):
        proxy_of("https", "a.example")


@asynccontextmanager
async def proxying(answer: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A proxy that gives each request this answer. Yields its address and the request heads that it got."""
    heads: list[bytes] = []

    async def serve(stream: SocketStream) -> None:
        async with stream:
            heads.append(await stream.receive())
            await stream.send(answer)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        yield f"http://u:p%40@127.0.0.1:{port}", heads
        tasks.cancel_scope.cancel()


async def test_a_request_to_a_tool_server_goes_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxying(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi") as (proxy, heads):
        monkeypatch.setenv("HTTP_PROXY", proxy)
        async with httpx2.AsyncClient(transport=GuardedTransport(uses_proxy=True)) as http:
            response = await http.get("http://tools.example/mcp")
    assert response.text == "hi"
    assert heads[0].startswith(b"GET http://tools.example/mcp HTTP/1.1\r\n")
    assert b"proxy-authorization: basic dtpwqa==" in heads[0].lower()


async def test_an_https_request_asks_the_proxy_for_a_tunnel_and_sends_it_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with proxying(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n") as (
        proxy,
        heads,
    ):
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        async with httpx2.AsyncClient(transport=GuardedTransport(uses_proxy=True)) as http:
            with pytest.raises(httpx2.ProxyError, match="407"):
                await http.get("https://tools.example/mcp", headers={"Authorization": "Bearer secret"})
    assert heads[0].startswith(b"CONNECT tools.example:443 HTTP/1.1\r\n")
    assert b"secret" not in heads[0]


async def test_a_private_address_is_refused_before_the_proxy_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guard = guarded_by(AddressGuard(refusing_private("it is private")))
    async with proxying(b"") as (proxy, heads):
        monkeypatch.setenv("HTTP_PROXY", proxy)
        async with httpx2.AsyncClient(transport=GuardedTransport(uses_proxy=True)) as http:
            with pytest.raises(PrivateAddressError, match="it is private"):
                await http.get("http://10.0.0.1/mcp", extensions=guard)
    assert heads == []


@pytest.mark.parametrize("host", ["10.0.0.1", "[fd00::1]"])
async def test_a_private_address_of_an_agent_is_refused_before_the_proxy_is_asked(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = guarded_by(AddressGuard(refusing_private("it is private")))
    async with proxying(b"") as (proxy, heads):
        monkeypatch.setenv("HTTP_PROXY", proxy)
        async with GuardedClient() as http:
            with pytest.raises(PrivateAddressError, match="it is private"):
                await http.get(f"http://{host}/a2a", extensions=guard)
    assert heads == []


async def test_a_guarded_request_to_a_name_still_goes_through_the_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guard = guarded_by(AddressGuard(refusing_private("it is private")))
    async with proxying(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi") as (proxy, heads):
        monkeypatch.setenv("HTTP_PROXY", proxy)
        async with GuardedClient() as http:
            response = await http.get("http://agents.example/a2a", extensions=guard)
    assert response.text == "hi"
    assert heads[0].startswith(b"GET http://agents.example/a2a HTTP/1.1\r\n")


HELLO = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"


@pytest.mark.parametrize("trust", [Trust(), Trust(allow_private=True)])
async def test_an_agent_without_the_proxy_is_reached_directly(
    trust: Trust, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxying(HELLO) as (proxy, heads), proxying(HELLO) as (agent, heard):
        monkeypatch.setenv("HTTP_PROXY", proxy)
        url = f"http://127.0.0.1:{agent.rpartition(':')[2]}/a2a"
        guard = guarded_by(ConnectionPolicy(url, trust, uses_proxy=False).guard(url))
        async with GuardedClient() as http:
            assert (await http.get(url, extensions=guard)).text == "hi"
    assert heads == []
    assert heard[0].startswith(b"GET /a2a HTTP/1.1\r\n")


async def test_without_the_proxy_the_addresses_of_a_name_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def inside(_: str, __: int) -> list[str]:
        return ["10.0.0.1"]

    policy = ConnectionPolicy("https://agents.example", resolve=inside, uses_proxy=False)
    guard = guarded_by(policy.guard("https://other.example", "it is private"))
    async with proxying(HELLO) as (proxy, heads):
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        async with GuardedClient() as http:
            with pytest.raises(PrivateAddressError, match="it is private"):
                await http.get("https://other.example/a2a", extensions=guard)
    assert heads == []


@pytest.mark.parametrize(
    ("key", "uses_proxy"), [("", True), ('proxy = "environment"', True), ('proxy = "none"', False)]
)
def test_the_file_says_whether_an_agent_a_catalog_and_their_logins_have_a_proxy(
    key: str, uses_proxy: bool
) -> None:
    login = 'auth = { oauth2 = { grant = "authorization_code", issuer = "https://login.example" } }'
    plan = plan_from_file(
        bridge.loads(
            f"""
            [agents.far]
            card = "https://far.example"
            {login}
            {key}
            [catalogs.more]
            url = "https://more.example/agents"
            {login}
            {key}
            [agents_as_tools.desk]
            from = ["far", "more"]
            """
        )
    )
    (agent,), (catalog,) = plan.agents.values(), plan.catalogs.values()
    assert (agent.uses_proxy, catalog.uses_proxy) == (uses_proxy, uses_proxy)
    for one in (agent, catalog):
        assert isinstance(one.tokens, LoginToken)
        assert one.tokens.login_config.uses_proxy is uses_proxy
