"""TLS of the HTTP server over real sockets: which clients may connect, and how it follows changes of its files."""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import shutil
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest
from cryptography import x509

from bridge.errors import UsageError
from bridge.http.request_checks import IDENTITIES
from bridge.http.tls import PeerTls, TlsFiles, TlsPoint, faults_of, server_context
from bridge.local.private_files import HAS_MODES
from tests.support.certificates import Authority, Issued
from tests.support.running import DEFAULT_LIMITS, listening

pytestmark = pytest.mark.anyio

HERE: Final = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
WAIT_SECONDS: Final = 30.0


async def scheme_asked(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the scheme of the request."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": scope["scheme"].encode()})


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def files(authority: Authority) -> TlsFiles:
    issued = authority.issues("bridge", HERE)
    return TlsFiles(issued.certificate, issued.key)


def put(new: Issued, files: TlsFiles) -> None:
    """Replace the files that the server uses."""
    shutil.copyfile(new.certificate, files.certificate)
    shutil.copyfile(new.key, files.key)


def client_of(authority: Authority, shown: Issued | None = None) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(verify=authority.trusted(shown), trust_env=False)


def serial_of(response: httpx2.Response) -> int:
    tls = response.extensions["network_stream"].get_extra_info("ssl_object")
    return x509.load_der_x509_certificate(tls.getpeercert(binary_form=True)).serial_number


async def test_a_request_over_tls_is_one_of_https(authority: Authority, files: TlsFiles) -> None:
    async with listening(scheme_asked, tls=TlsPoint(files)) as url, client_of(authority) as client:
        assert (await client.get(url)).text == "https"


def test_tls_1_2_is_the_oldest_version(files: TlsFiles) -> None:
    context = server_context(files)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


async def test_a_renewed_certificate_serves_the_next_connection_and_drops_none(
    authority: Authority, files: TlsFiles
) -> None:
    async with listening(scheme_asked, tls=TlsPoint(files)) as url, client_of(authority) as before:
        first = serial_of(await before.get(url))
        put(authority.issues("bridge", HERE, as_file="renewed"), files)
        async with client_of(authority) as after:
            renewed = serial_of(await after.get(url))
        assert serial_of(await before.get(url)) == first != renewed


async def test_a_broken_new_certificate_is_logged_once_and_the_last_one_stays(
    authority: Authority, files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    serials = []
    async with listening(scheme_asked, tls=TlsPoint(files)) as url:
        for step in range(3):
            async with client_of(authority) as client:
                serials.append(serial_of(await client.get(url)))
            if not step:
                shutil.copyfile(authority.issues("bridge", HERE, as_file="other").key, files.key)
    assert len(set(serials)) == 1
    assert caplog.messages == [
        "the new certificate is refused, and the previous one stays in use: "
        f"the key in {files.key} does not match the certificate in {files.certificate}"
    ]


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Simulate a process without a free descriptor."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_one = os.open(os.devnull, os.O_RDONLY)
    os.close(next_one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_one, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("whose", ["server", "peer"])
def test_unreadable_files_are_used_when_they_become_readable_without_a_change(
    authority: Authority, files: TlsFiles, whose: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    point = TlsPoint(files) if whose == "server" else PeerTls(files.certificate, files.key)
    first = point.context()
    put(authority.issues("bridge", HERE, as_file="renewed"), files)
    with no_descriptors():
        assert [point.context() for _ in range(3)] == [first] * 3
    (line,) = caplog.messages
    assert line.endswith(f"{files.certificate} cannot be read: {os.strerror(errno.EMFILE)}")
    renewed = point.context()
    assert renewed is not first
    assert point.context() is renewed


async def test_a_peer_without_a_handshake_delays_no_other(authority: Authority, files: TlsFiles) -> None:
    limits = replace(DEFAULT_LIMITS, connections=DEFAULT_LIMITS.connections.having(new=2))
    async with listening(scheme_asked, limits=limits, tls=TlsPoint(files)) as url:
        port = httpx2.URL(url).port
        assert port is not None
        silent = [await anyio.connect_tcp("127.0.0.1", port) for _ in range(5)]
        try:
            async with client_of(authority) as client:
                assert (await client.get(url)).text == "https"
            # More of them than may wait: the first were closed.
            with (
                anyio.fail_after(WAIT_SECONDS),
                pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)),
            ):
                await silent[0].receive()
        finally:
            for one in silent:
                await one.aclose()


async def test_a_client_without_tls_is_refused_and_the_next_is_served(
    authority: Authority, files: TlsFiles
) -> None:
    async with listening(scheme_asked, tls=TlsPoint(files)) as url, client_of(authority) as client:
        with pytest.raises(httpx2.TransportError):
            await client.get(url.replace("https", "http"))
        assert (await client.get(url)).text == "https"


async def test_a_request_above_a_bound_is_refused_over_tls_too(authority: Authority, files: TlsFiles) -> None:
    async with listening(scheme_asked, tls=TlsPoint(files)) as url, client_of(authority) as client:
        refused = await client.get(url, headers={"X-Much": "x" * 1_000_000})
        assert (refused.status_code, refused.headers["connection"]) == (431, "close")
        assert (await client.get(url)).text == "https"


async def test_a_required_client_certificate_must_be_sent(authority: Authority, files: TlsFiles) -> None:
    asking = replace(files, client_ca=authority.file)
    async with listening(scheme_asked, tls=TlsPoint(asking)) as url:
        async with client_of(authority) as nobody:
            with pytest.raises(httpx2.TransportError):
                await nobody.get(url)
        async with client_of(authority, authority.issues("desk")) as desk:
            assert (await desk.get(url)).text == "https"


async def test_an_optional_client_certificate_may_be_missing_but_not_foreign(
    authority: Authority, files: TlsFiles, tmp_path: Path
) -> None:
    asking = replace(files, client_ca=authority.file, client_certificate="optional")
    stranger = Authority(tmp_path, "A stranger").issues("mallory")
    async with listening(scheme_asked, tls=TlsPoint(asking)) as url:
        async with client_of(authority) as nobody:
            assert (await nobody.get(url)).text == "https"
        async with client_of(authority, stranger) as mallory:
            with pytest.raises(httpx2.TransportError):
                await mallory.get(url)


async def identities_shown(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the identities in the certificate of the connection."""
    while (await receive()).get("more_body"):
        pass
    body = " ".join(scope.get(IDENTITIES, ())).encode()
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(b"\x30\x04\x86\x02\xff\xfe", id="a URI that is no ASCII"),
        pytest.param(b"\x30\x02\xa3\x00", id="an x400Address"),
        pytest.param(b"\x30\x03\x87\x01\x01", id="an address of one byte"),
    ],
)
async def test_a_certificate_that_cannot_be_read_ends_its_connection_and_no_other(
    authority: Authority, files: TlsFiles, names: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    asking = replace(files, client_ca=authority.file, client_certificate="optional")
    odd = authority.issues("ann", raw_names=names)
    async with listening(identities_shown, tls=TlsPoint(asking)) as url:
        for _ in range(2):
            async with client_of(authority, odd) as client:
                with anyio.fail_after(WAIT_SECONDS), pytest.raises(httpx2.TransportError):
                    await client.get(url)
        async with client_of(authority, authority.issues("desk")) as desk:
            assert (await desk.get(url)).text == "subject:CN=desk"
    assert caplog.messages == ["refused a client whose certificate cannot be read, from 127.0.0.1"]


async def test_other_kinds_of_names_in_a_certificate_are_ignored(
    authority: Authority, files: TlsFiles
) -> None:
    user = x509.OtherName(x509.ObjectIdentifier("1.3.6.1.4.1.311.20.2.3"), b"\x0c\x03ann")
    others = (user, x509.RegisteredID(x509.ObjectIdentifier("1.2.3")), x509.DirectoryName(x509.Name([])))
    ann = authority.issues("ann", *others, x509.DNSName("ann.example"))
    point = TlsPoint(replace(files, client_ca=authority.file))
    async with listening(identities_shown, tls=point) as url, client_of(authority, ann) as client:
        assert (await client.get(url)).text == "subject:CN=ann dns:ann.example"


class FailingPoint(TlsPoint):
    """Raises an unexpected error in one handshake."""

    has_failed = False

    def context(self) -> ssl.SSLContext:
        if not self.has_failed:
            self.has_failed = True
            raise ZeroDivisionError
        return super().context()


async def test_an_unexpected_fault_ends_only_its_handshake(
    authority: Authority, files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with listening(scheme_asked, tls=FailingPoint(files)) as url, client_of(authority) as client:
        with anyio.fail_after(WAIT_SECONDS), pytest.raises(httpx2.TransportError):
            await client.get(url)
        assert (await client.get(url)).text == "https"
    assert caplog.messages == ["a connection was closed at its start, by ZeroDivisionError, from 127.0.0.1"]


async def test_changed_client_authorities_apply_to_the_next_handshake(
    authority: Authority, files: TlsFiles, tmp_path: Path
) -> None:
    second = Authority(tmp_path, "The second")
    asking = replace(files, client_ca=tmp_path / "clients.pem")
    assert asking.client_ca is not None
    shutil.copyfile(authority.file, asking.client_ca)
    ann, bob = authority.issues("ann"), second.issues("bob")
    async with listening(identities_shown, tls=TlsPoint(asking)) as url:
        for known, lets_in, refuses in ((authority, ann, bob), (second, bob, ann)):
            shutil.copyfile(known.file, asking.client_ca)
            async with client_of(authority, lets_in) as client:
                assert (await client.get(url)).status_code == 200
            async with client_of(authority, refuses) as client:
                with pytest.raises(httpx2.TransportError):
                    await client.get(url)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ("missing", "{certificate} cannot be read: No such file or directory"),
        ("text", "{certificate} and {key} hold no certificate and key in PEM"),
    ],
)
def test_files_that_are_no_certificate_are_refused_at_the_start(
    files: TlsFiles, broken: str, why: str
) -> None:
    if broken == "missing":
        files.certificate.unlink()
    else:
        files.certificate.write_text("a certificate")
    with pytest.raises(UsageError) as refused:
        TlsPoint(files)
    assert str(refused.value) == why.format(certificate=files.certificate, key=files.key)


NOW: Final = datetime.now(UTC)


def test_faults_of_a_certificate_and_its_key_are_reported(authority: Authority, files: TlsFiles) -> None:
    assert list(faults_of(files, NOW)) == []
    expired = authority.issues("old", HERE, days=-2)
    end = f"{NOW - timedelta(days=2):%Y-%m-%d}"
    assert [*faults_of(TlsFiles(expired.certificate, expired.key), NOW)] == [
        ("certificate", f"the certificate in {expired.certificate} expired on {end}")
    ]
    early = NOW - timedelta(days=20)
    assert [key for key, _ in faults_of(files, early)] == ["certificate"]
    assert [*faults_of(replace(files, key=expired.key), NOW)] == [
        ("certificate", f"the key in {expired.key} does not match the certificate in {files.certificate}")
    ]


@pytest.mark.skipif(not HAS_MODES, reason="modes say nothing here")
def test_a_key_that_others_can_read_is_reported(files: TlsFiles) -> None:
    files.key.chmod(0o644)
    assert [*faults_of(files, NOW)] == [
        ("key", f"other users of this machine can read {files.key}: chmod it to 600")
    ]
