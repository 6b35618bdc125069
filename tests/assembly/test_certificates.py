"""Callers that are known by a certificate of their connection, or by what a trusted proxy says."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from cryptography import x509

from bridge.assembly.bridge import Bridge
from bridge.assembly.health.findings import Health
from bridge.assembly.plan_from_file import plan_from_file
from bridge.assembly.routes import Router
from bridge.config.load import load
from bridge.http.request_checks import FaceAddress, TrustedProxies
from bridge.http.tls import TlsFiles, TlsPoint
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Access, Credential, Scheme
from tests.support.certificates import Authority, Issued
from tests.support.running import config_for, listening, raw_command

pytestmark = pytest.mark.anyio

ANN: Final = Principal("ann", skills=("echo",))
BOB: Final = Principal("bob", skills=("add",))
PROXY: Final = TrustedProxies("x-user", (ipaddress.ip_network("127.0.0.0/8"),))
ELSEWHERE: Final = TrustedProxies("x-user", (ipaddress.ip_network("192.0.2.0/24"),))
CARD: Final = "/.well-known/agent-card.json"
EXTENDED: Final = {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "params": {}}


@dataclass
class Served:
    """A bridge and its certificates."""

    url: str
    authority: Authority
    bridge: Bridge

    async def asked(
        self, shown: Issued | None = None, headers: Sequence[tuple[str, str] | tuple[bytes, bytes]] = ()
    ) -> httpx2.Response:
        """The answer to a request for the card of its caller."""
        async with self.client(shown) as client:
            lines = [("A2A-Version", "1.0"), *headers]
            return await client.post(self.url, json=EXTENDED, headers=lines)

    async def skills(
        self, shown: Issued | None = None, headers: Sequence[tuple[str, str] | tuple[bytes, bytes]] = ()
    ) -> list[str] | int:
        """The skills that a caller may use; the status if it is refused."""
        answer = await self.asked(shown, headers)
        if answer.status_code != 200:
            return answer.status_code
        return [skill["id"] for skill in answer.json()["result"]["skills"]]

    def client(self, shown: Issued | None = None) -> httpx2.AsyncClient:
        verify: Any = self.authority.trusted(shown) if self.url.startswith("https") else False
        return httpx2.AsyncClient(verify=verify)


@asynccontextmanager
async def serving(
    folder: Path,
    *credentials: Credential,
    proxies: TrustedProxies = TrustedProxies(),  # noqa: B008 - frozen
    is_secure: bool = True,
) -> AsyncIterator[Served]:
    authority = Authority(folder)
    issued = authority.issues("bridge", x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    tls = TlsFiles(issued.certificate, issued.key, authority.file, "optional") if is_secure else None
    plan = config_for(raw_command(), credentials=credentials).plan()
    plan = replace(plan, place=replace(plan.place, tls=tls, proxies=proxies))
    bridge = Bridge(plan)
    async with bridge.run():
        await bridge.apply(plan)
        async with listening(bridge.app, tls=TlsPoint(tls) if tls else None) as url:
            yield Served(url, authority, bridge)


def of_connection(principal: Principal, identity: str) -> Credential:
    return Credential(principal, identity, Scheme.CONNECTION)


async def test_a_certificate_says_who_calls_by_its_subject_or_an_alternative_name(tmp_path: Path) -> None:
    known = of_connection(ANN, "subject:CN=ann"), of_connection(BOB, "uri:spiffe://team/bob")
    async with serving(tmp_path, *known) as served:
        ann = served.authority.issues("ann")
        bob = served.authority.issues("b", x509.UniformResourceIdentifier("spiffe://team/bob"))
        assert [await served.skills(one) for one in (ann, bob)] == [["echo"], ["add"]]


async def test_a_certificate_of_nobody_lets_nobody_in_and_a_token_beside_it_does(tmp_path: Path) -> None:
    known = of_connection(ANN, "subject:CN=ann"), Credential(BOB, "bobs-token")
    async with serving(tmp_path, *known) as served:
        stranger = served.authority.issues("stranger")
        token = [("Authorization", "Bearer bobs-token")]
        assert await served.skills(stranger) == 401
        assert await served.skills(stranger, token) == ["add"]
        assert await served.skills(None, token) == ["add"]


async def test_a_certificate_and_a_token_of_different_callers_are_refused(tmp_path: Path) -> None:
    known = of_connection(ANN, "subject:CN=ann"), Credential(BOB, "bobs-token")
    async with serving(tmp_path, *known) as served:
        ann = served.authority.issues("ann")
        assert await served.skills(ann, [("Authorization", "Bearer bobs-token")]) == 401


async def test_a_certificate_of_two_principals_is_refused(tmp_path: Path) -> None:
    known = of_connection(ANN, "subject:CN=both"), of_connection(BOB, "dns:both.example")
    async with serving(tmp_path, *known) as served:
        both = served.authority.issues("both", x509.DNSName("both.example"))
        assert await served.skills(both) == 401


async def test_a_card_declares_mutual_tls_where_certificates_are_known(tmp_path: Path) -> None:
    async with serving(tmp_path, of_connection(ANN, "subject:CN=ann")) as served, served.client() as client:
        card = (await client.get(served.url + CARD)).json()
        assert card["securitySchemes"] == {"mtls": {"mtlsSecurityScheme": {}, "type": "mutualTLS"}}
        refused = await served.asked()
        assert refused.headers["www-authenticate"] == 'Certificate realm="mcp-a2a"'
        assert refused.json()["error"]["message"].startswith("A client certificate is needed")


async def test_a_trusted_proxy_says_who_calls(tmp_path: Path) -> None:
    known = of_connection(ANN, "forwarded:ann@example.com")
    async with serving(tmp_path, known, proxies=PROXY, is_secure=False) as served:
        assert await served.skills(headers=[("X-User", "ann@example.com")]) == ["echo"]
        assert await served.skills(headers=[("X-User", "eve@example.com")]) == 401
        assert await served.skills() == 401


FILE: Final = """
[bridge]
trusted_proxies = ["::ffff:10.0.0.0/104"]
principal_header = "X-User"
[principals.ann]
forwarded = "ann"
[tool_servers.a]
command = ["a"]
[tools_as_agent.a]
from = ["a"]
"""


@pytest.mark.parametrize("connection", ["10.0.0.7", "::ffff:10.0.0.7"])
async def test_a_proxy_of_ipv4_is_trusted_also_where_its_network_is_written_in_ipv6(
    connection: str, tmp_path: Path
) -> None:
    (file := tmp_path / "mcp-a2a.toml").write_text(FILE, encoding="utf-8")
    proxies = plan_from_file(load(file)).place.proxies
    lines = [(b"x-user", b"ann")]
    assert proxies.identity_in({"client": (connection, 4711), "headers": lines}) == "ann"


async def test_what_a_trusted_proxy_says_is_read_as_utf_8_and_as_nothing_else(tmp_path: Path) -> None:
    name = "jürgen@example.com"
    known = (
        of_connection(ANN, f"forwarded:{name}"),
        of_connection(BOB, f"forwarded:{name.encode().decode('latin-1')}"),
    )
    async with serving(tmp_path, *known, proxies=PROXY, is_secure=False) as served:
        assert await served.skills(headers=[(b"X-User", name.encode())]) == ["echo"]
        assert await served.skills(headers=[(b"X-User", name.encode("latin-1"))]) == 401


async def test_what_a_trusted_proxy_says_twice_is_a_bad_request(tmp_path: Path) -> None:
    known = of_connection(ANN, "forwarded:ann")
    async with serving(tmp_path, known, proxies=PROXY, is_secure=False) as served:
        assert await served.skills(headers=[("X-User", "eve"), ("X-User", "ann")]) == 400


async def test_what_anyone_else_says_about_the_caller_is_removed(tmp_path: Path) -> None:
    known = of_connection(ANN, "forwarded:ann"), Credential(BOB, "bobs-token")
    async with serving(tmp_path, *known, proxies=ELSEWHERE, is_secure=False) as served:
        said = [("X-User", "ann"), ("X-User", "ann"), ("Mcp-A2a-Shown", '["forwarded:ann"]')]
        assert await served.skills(headers=said) == 401
        assert await served.skills(headers=[*said, ("Authorization", "Bearer bobs-token")]) == ["add"]


async def unasked(*_: object) -> Health:
    raise AssertionError("nobody asks for the health of the bridge here")


async def test_no_client_can_say_what_its_connection_has_shown() -> None:
    inner: list[bytes] = []

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        inner.extend(name for name, _ in scope["headers"])

    lines = [(b"host", b"localhost"), (b":shown", b'["subject:CN=ann"]')]
    scope = {"type": "http", "method": "GET", "path": "/agents", "headers": lines, "client": ("127.0.0.1", 1)}
    router = Router(FaceAddress(), Access([]), noted, lambda _: {}, health=unasked)
    await router(scope, None, None)  # type: ignore[arg-type] - which nobody uses
    assert inner == [b"host"]


async def test_the_door_of_the_bridge_itself_opens_to_nobody_else(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as served,
        listening(served.bridge.own_door) as door,
        httpx2.AsyncClient() as client,
    ):
        guessed = {"X-MCP-A2A-Own": "guess"}
        assert (await client.get(door + CARD)).status_code == 403
        assert (await client.get(door + CARD, headers=guessed)).status_code == 403
