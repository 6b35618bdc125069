"""The checks of an HTTP endpoint before any protocol."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.datastructures import Headers

from bridge.http.request_checks import (
    FaceAddress,
    RefusedError,
    TrustedProxies,
    host_name,
    is_loopback,
    network_of,
    request_body,
    require_json,
)

PLACE = FaceAddress("https://bridge.example.com/base", frozenset({"other.example", "0.0.0.0"}))
BARE = FaceAddress()


@pytest.mark.proves("web-host")
@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:8080",
        "localhost.",
        "127.0.0.1:8080",
        "[::1]:8080",
        "[::1]",
        "192.168.1.5",
        "other.example:1",
        "bridge.example.com",
    ],
)
def test_our_host_or_an_ip_address_is_admitted(host: str) -> None:
    PLACE.require_own(Headers({"host": host}))


@pytest.mark.proves("web-host")
@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "evil.example:8080",
        "localhost:80@evil.example",
        "localhost@evil.example",
        "localhost/evil",
        "localhost:x",
        "127.0.0.1.evil.example",
        "[::1].evil.example",
        "[localhost",
        "local host",
    ],
)
def test_another_host_is_misdirected(host: str) -> None:
    with pytest.raises(RefusedError) as refused:
        PLACE.require_own(Headers({"host": host}))
    assert refused.value.status == 421


def test_a_request_without_a_host_is_refused() -> None:
    with pytest.raises(RefusedError, match="asked for by name") as refused:
        BARE.require_own(Headers({}))
    assert refused.value.status == 421


@pytest.mark.proves("web-host")
@pytest.mark.parametrize(
    ("origin", "let_in"),
    [
        ("http://localhost:8080", True),
        ("https://localhost:8080", True),
        ("https://bridge.example.com", True),
        ("https://evil.example", False),
        ("http://localhost:9090", False),
        ("http://localhost", False),
        ("http://bridge.example.com", False),
        ("null", False),
        ("", False),
        ("localhost:8080", False),
    ],
)
def test_only_our_own_web_page_is_admitted(origin: str, let_in: bool) -> None:
    headers = Headers({"host": "localhost:8080", "origin": origin})
    if let_in:
        PLACE.require_own(headers)
    else:
        with pytest.raises(RefusedError) as refused:
            PLACE.require_own(headers)
        assert refused.value.status == 403


@pytest.mark.proves("web-host")
@pytest.mark.parametrize("name", ["host", "Origin", "authorization", "x-api-key"])
def test_a_header_that_decides_about_admission_may_come_only_once(name: str) -> None:
    once = [(b"host", b"localhost"), (b"origin", b"http://localhost")]
    twice = [(name.encode().lower(), b"localhost"), (name.encode().lower(), b"localhost")]
    BARE.require_own(Headers(raw=once))
    with pytest.raises(RefusedError, match=f"The header {name.lower()} is sent more than once") as refused:
        BARE.require_own(Headers(raw=[*once, *twice]))
    assert refused.value.status == 400


def scope(client: str | None) -> dict[str, Any]:
    return {"scheme": "http", "client": (client, 5) if client else None}


FORWARDED = {"x-forwarded-proto": "https", "x-forwarded-host": "other.example", "x-forwarded-prefix": "/a2a/"}
BASES: list[tuple[FaceAddress, str | None, dict[str, str], str]] = [
    (PLACE, "127.0.0.1", FORWARDED, "https://bridge.example.com/base"),
    (BARE, "127.0.0.1", {}, "http://localhost:8080"),
    (FaceAddress(hosts=frozenset({"other.example"})), "127.0.0.1", FORWARDED, "https://other.example/a2a"),
    (FaceAddress(hosts=frozenset({"other.example"})), "::1", FORWARDED, "https://other.example/a2a"),
    (BARE, "::ffff:127.0.0.1", FORWARDED, "https://localhost:8080/a2a"),
    (FaceAddress(hosts=frozenset({"other.example"})), "192.168.1.5", FORWARDED, "http://localhost:8080"),
    (FaceAddress(hosts=frozenset({"other.example"})), None, FORWARDED, "http://localhost:8080"),
    (BARE, "127.0.0.1", FORWARDED, "https://localhost:8080/a2a"),
    (BARE, "127.0.0.1", {"x-forwarded-proto": "https, http"}, "https://localhost:8080"),
    (BARE, "127.0.0.1", {"x-forwarded-proto": "javascript"}, "http://localhost:8080"),
    (BARE, "127.0.0.1", {"x-forwarded-prefix": ".evil.example"}, "http://localhost:8080"),
    (BARE, "127.0.0.1", {"x-forwarded-prefix": "@evil.example"}, "http://localhost:8080"),
    (BARE, "127.0.0.1", {"x-forwarded-prefix": "//evil.example"}, "http://localhost:8080"),
    (BARE, "127.0.0.1", {"x-forwarded-prefix": "/a?b"}, "http://localhost:8080"),
    (BARE, "127.0.0.1", {"x-forwarded-prefix": "/"}, "http://localhost:8080"),
    (BARE, "127.0.0.1", {"x-forwarded-prefix": "/a/b, /c"}, "http://localhost:8080/a/b"),
]


@pytest.mark.proves("card-base")
@pytest.mark.parametrize(("place", "client", "headers", "base"), BASES)
def test_the_base_url_is_public_url_or_forwarded_by_a_proxy_on_loopback(
    place: FaceAddress, client: str | None, headers: dict[str, str], base: str
) -> None:
    assert place.base_url(scope(client), Headers({"host": "localhost:8080", **headers})) == base


class Body:
    """The chunks of a request's body, as a server delivers them."""

    def __init__(self, chunks: Sequence[bytes | None]) -> None:
        self.left = list(chunks)

    async def __call__(self) -> dict[str, Any]:
        chunk = self.left.pop(0)
        if chunk is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunk, "more_body": bool(self.left)}


@pytest.mark.parametrize("chunks", [[b"12345"], [b"12", b"", b"345"], [bytes([byte]) for byte in b"12345"]])
async def test_a_body_up_to_the_limit_is_read_whole(chunks: list[bytes]) -> None:
    assert await request_body(Body(chunks), Headers({"content-length": "5"}), 5) == b"12345"
    assert await request_body(Body([b""]), Headers({}), 0) == b""


@pytest.mark.proves("web-json")
@pytest.mark.parametrize(
    ("declared", "chunks", "unread"),
    [
        ("6", [b"123456"], 1),
        ("5", [b"12345", b"6", b"7"], 1),
        ("x", [b"1234567"], 0),
        ("", [b"12", b"3456"], 0),
    ],
)
async def test_a_body_over_the_limit_is_not_read_further(
    declared: str, chunks: list[bytes], unread: int
) -> None:
    body = Body(chunks)
    with pytest.raises(RefusedError) as refused:
        await request_body(body, Headers({"content-length": declared}), 5)
    assert refused.value.status == 413
    assert len(body.left) == unread


async def test_a_client_that_goes_away_in_its_body_is_refused() -> None:
    with pytest.raises(RefusedError) as refused:
        await request_body(Body([b"12", None]), Headers({}), 5)
    assert refused.value.status == 400


ACCEPTED = frozenset({"application/json", "application/a2a+json"})


@pytest.mark.parametrize(
    "given", ["application/json", "Application/JSON; charset=utf-8", "application/a2a+json "]
)
def test_json_is_accepted(given: str) -> None:
    require_json(Headers({"content-type": given}), ACCEPTED)


@pytest.mark.proves("web-json")
@pytest.mark.parametrize(
    "given",
    [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/jsonx",
        "json",
    ],
)
def test_media_types_of_forms_are_refused(given: str) -> None:
    with pytest.raises(RefusedError, match="application/a2a\\+json or application/json") as refused:
        require_json(Headers({"content-type": given}), ACCEPTED)
    assert refused.value.status == 415


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("x", False),
    ],
)
def test_loopback_addresses_are_recognized(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("A.Example.:1", "a.example"),
        ("[FE80::1%eth0]:1", "fe80::1%eth0"),
        ("a:", "a"),
        ("::1", ""),
        ("a:b:c", ""),
    ],
)
def test_a_host_is_a_name_with_or_without_a_port(host: str, name: str) -> None:
    assert host_name(host) == name


PROXIES = TrustedProxies(networks=tuple(map(ipaddress.ip_network, ("127.0.0.0/8", "10.0.0.0/8", "fd00::/8"))))


@pytest.mark.parametrize(
    ("connection", "said", "address"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", ["203.0.113.9"], "192.0.2.1"),
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("::ffff:127.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("127.0.0.1", ["198.51.100.1, 203.0.113.9, 10.0.0.7"], "203.0.113.9"),
        ("127.0.0.1", ["198.51.100.1", "203.0.113.9", "10.0.0.7"], "203.0.113.9"),
        ("127.0.0.1", ["10.0.0.8,10.0.0.7"], "10.0.0.8"),
        ("127.0.0.1", ["203.0.113.9:4711"], "203.0.113.9"),
        ("fd00::1", ["[2001:db8::9]:4711, fd00::2"], "2001:db8::9"),
        ("127.0.0.1", ["2001:db8::9"], "2001:db8::9"),
        ("127.0.0.1", ["203.0.113.9, unknown, 10.0.0.7"], "10.0.0.7"),
        ("127.0.0.1", ["<script>"], "127.0.0.1"),
        ("127.0.0.1", [""], "127.0.0.1"),
        ("127.0.0.1", [", ".join(["203.0.113.9", *["10.0.0.7"] * 20])], "10.0.0.7"),
        ("", ["203.0.113.9"], ""),
    ],
)
def test_a_request_comes_from_the_last_address_that_no_trusted_proxy_has(
    connection: str, said: Sequence[str], address: str
) -> None:
    lines = [(b"x-forwarded-for", line.encode()) for line in said]
    client = (connection, 4711) if connection else None
    assert PROXIES.address_of({"client": client, "headers": lines}) == address


@pytest.mark.parametrize(
    ("written", "network"),
    [
        ("192.0.2.10", "192.0.2.10/32"),
        ("10.1.2.3/8", "10.0.0.0/8"),
        ("fd00::/8", "fd00::/8"),
        ("::ffff:192.0.2.10", "192.0.2.10/32"),
        ("::ffff:10.1.2.3/104", "10.0.0.0/8"),
        ("::ffff:0.0.0.0/96", "0.0.0.0/0"),
        ("::ffff:0.0.0.0/95", "::fffe:0:0/95"),
    ],
)
def test_an_ipv4_network_mapped_into_ipv6_is_recognized(written: str, network: str) -> None:
    assert str(network_of(written)) == network
