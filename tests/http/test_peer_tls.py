"""Client certificates for peers, and the authorities of the peers' certificates, over real TLS."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509

from bridge.http.client import GuardedClient, PeerAuth, PeerCredentials, fixed_credentials
from bridge.http.request_checks import IDENTITIES
from bridge.http.tls import PeerTls, TlsFiles, TlsPoint, peer_faults_of
from tests.support.certificates import Authority, Issued
from tests.support.running import listening

pytestmark = [pytest.mark.anyio, pytest.mark.outside]


@dataclass
class Peer:
    """A server that requires client certificates."""

    url: str
    authority: Authority

    def tls(self, name: str) -> PeerTls:
        """The settings that send the certificate of this name."""
        issued = self.authority.issues(name)
        return PeerTls(issued.certificate, issued.key, self.authority.file)

    def auth(self, tls: PeerTls) -> PeerAuth:
        """Send the certificate to this server only."""
        return PeerAuth(self.url, fixed_credentials(PeerCredentials(tls=tls)))


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the identities of the connection, or redirects to the URL in the query."""
    shown = ", ".join(scope.get(IDENTITIES, ())).encode()
    to = scope["query_string"]
    headers = [(b"location", to)] if to else []
    await send({"type": "http.response.start", "status": 307 if to else 200, "headers": headers})
    await send({"type": "http.response.body", "body": shown})


@asynccontextmanager
async def peer(folder: Path, wants: str = "optional") -> AsyncIterator[Peer]:
    folder.mkdir(exist_ok=True)
    authority = Authority(folder, folder.name)
    issued = authority.issues("peer", x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    tls = TlsFiles(issued.certificate, issued.key, authority.file, wants)  # type: ignore[arg-type]
    async with listening(_echo, tls=TlsPoint(tls)) as url:
        yield Peer(url, authority)


def client(trusting: ssl.SSLContext | bool = True, **options: Any) -> httpx2.AsyncClient:
    return GuardedClient(verify=trusting, trust_env=False, timeout=30, **options)


async def test_a_peer_gets_our_certificate_and_is_verified_with_its_authority(tmp_path: Path) -> None:
    async with peer(tmp_path, "required") as one, client() as http:
        answer = await http.get(one.url, auth=one.auth(one.tls("bridge")))
        assert answer.text == "subject:CN=bridge"
        with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await http.get(one.url)


async def test_a_connection_serves_no_request_with_another_certificate_or_none(tmp_path: Path) -> None:
    async with peer(tmp_path) as one, client(one.authority.trusted()) as http:
        ann, bob = (one.auth(one.tls(name)) for name in ("ann", "bob"))
        seen = [
            (await http.get(one.url, **with_)).text
            for with_ in ({"auth": ann}, {"auth": bob}, {}, {"auth": ann})
        ]
    assert seen == ["subject:CN=ann", "subject:CN=bob", "", "subject:CN=ann"]


async def test_a_certificate_is_not_sent_to_another_origin_that_a_peer_names(tmp_path: Path) -> None:
    async with peer(tmp_path / "a") as one, peer(tmp_path / "b") as other:
        trusting = one.authority.trusted()
        trusting.load_verify_locations(other.authority.file)
        async with client(trusting, follow_redirects=True) as http:
            answer = await http.get(f"{one.url}/?{other.url}", auth=one.auth(one.tls("bridge")))
    assert (str(answer.url), answer.text) == (other.url, "")


async def test_the_next_connection_sends_a_renewed_certificate_and_never_a_broken_one(
    tmp_path: Path,
) -> None:
    async with peer(tmp_path) as one:
        tls = one.tls("bridge")
        seen = []
        for change in ("", "renewed", "broken"):
            if change == "renewed":
                one.authority.issues("renewed", as_file="bridge")
            elif change == "broken":
                _write(tls.certificate, "nothing")
            async with client() as http:
                seen.append((await http.get(one.url, auth=one.auth(tls))).text)
    assert seen == ["subject:CN=bridge", "subject:CN=renewed", "subject:CN=renewed"]


async def test_unusable_files_are_explained(tmp_path: Path) -> None:
    async with peer(tmp_path) as one, client() as http:
        tls = one.tls("bridge")
        _write(tls.ca, "nothing")
        with pytest.raises(httpx2.ConnectError, match="holds no certificates in PEM"):
            await http.get(one.url, auth=one.auth(tls))


def test_faults_of_the_files_for_a_peer_are_reported(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = Authority(tmp_path)
    mine, other, old = authority.issues("mine"), authority.issues("other"), authority.issues("old", days=-1)

    def faults(issued: Issued, key: Path | None = None, ca: Path | None = None) -> list[str]:
        return [
            f"{name}: {words}"
            for name, words in peer_faults_of(PeerTls(issued.certificate, key or issued.key, ca), now)
        ]

    assert faults(mine) == []
    assert faults(mine, ca=authority.file) == []
    assert faults(mine, other.key) == [
        f"certificate: the key in {other.key} does not match the certificate in {mine.certificate}"
    ]
    assert [one.split(" expired")[0] for one in faults(old)] == [
        f"certificate: the certificate in {old.certificate}"
    ]
    none = tmp_path / "none.pem"
    assert [*peer_faults_of(PeerTls(ca=none), now)] == [
        ("ca", f"{none} cannot be read: No such file or directory")
    ]


def _write(file: Path | None, text: str) -> None:
    assert file is not None
    file.write_text(text)
