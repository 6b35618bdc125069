"""Where the keys of an issuer may be fetched from: what the operator wrote, and what metadata leads to."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from bridge.http.client import GuardedClient
from bridge.identity.callers.issuers import IssuerPlace
from bridge.identity.callers.key_sets import KeySource, NoKeysError
from tests.support.issuer import LIMITS, TokenIssuer
from tests.support.running import listening

pytestmark = [pytest.mark.outside, pytest.mark.proves("oauth-private", "oauth-bad-input")]

LOOPBACK, PUBLIC = "127.0.0.1", "93.184.215.14"


class Names:
    """A resolver whose names lead where the test says."""

    def __init__(self, **addresses: str) -> None:
        self.addresses = addresses

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """The address of a name; the same for an address."""
        return [self.addresses.get(host.partition(".")[0], host)]


@asynccontextmanager
async def source_of(
    issuer: TokenIssuer, names: Names | None = None, **place: Any
) -> AsyncIterator[KeySource]:
    """The keys of an issuer that answers on loopback."""
    async with GuardedClient(timeout=None) as http:
        limits = LIMITS.having(keys_seconds=0, retry_seconds=0)
        yield KeySource("corp", IssuerPlace(issuer.url, **place), http, limits, names or Names())


async def test_a_configured_url_may_be_private() -> None:
    issuer = TokenIssuer("")
    async with listening(issuer) as issuer.url, source_of(issuer) as source:
        assert [key.key_id for key in await source.keys()] == ["one"]
        async with source_of(issuer, jwks_url=f"{issuer.url}/jwks") as written:
            assert [key.key_id for key in await written.keys()] == ["one"]


@pytest.mark.parametrize("elsewhere", ["http://127.0.0.1:{port}", "http://metadata.internal:{port}"])
async def test_metadata_does_not_lead_to_another_private_origin_unless_that_is_allowed(
    elsewhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    issuer, names = TokenIssuer(""), Names(login=LOOPBACK, metadata=LOOPBACK)
    async with listening(issuer) as url:
        port = url.rpartition(":")[2]
        issuer.url = f"http://login.example.com:{port}"
        issuer.metadata = {"jwks_uri": f"{elsewhere.format(port=port)}/jwks"}
        async with source_of(issuer, names) as source:
            with caplog.at_level(logging.WARNING), pytest.raises(NoKeysError):
                await source.keys()
            (line,) = [record.getMessage() for record in caplog.records]
            assert "the metadata of issuers.corp leads to" in line
            assert "set `allow_private = true` for it" in line
            assert "/jwks" not in issuer.asked
        issuer.url, issuer.metadata = url, {"jwks_uri": f"http://localhost:{port}/jwks"}
        async with source_of(issuer) as refusing, source_of(issuer, allow_private=True) as allowing:
            with pytest.raises(NoKeysError):
                await refusing.keys()
            assert [key.key_id for key in await allowing.keys()] == ["one"]


async def test_a_public_name_that_leads_to_a_private_address_is_not_connected_to(
    caplog: pytest.LogCaptureFixture,
) -> None:
    issuer, names = TokenIssuer(""), Names(login=LOOPBACK, keys=LOOPBACK)
    async with listening(issuer) as url:
        port = url.rpartition(":")[2]
        issuer.url = f"http://login.example.com:{port}"
        issuer.metadata = {"jwks_uri": f"http://keys.example.com:{port}/jwks"}
        async with source_of(issuer, names) as source:
            with pytest.raises(NoKeysError):
                await source.keys()
        assert "keys.example.com" in caplog.text
        assert "/jwks" not in issuer.asked


async def test_a_name_of_the_operator_that_was_public_does_not_become_private(
    caplog: pytest.LogCaptureFixture,
) -> None:
    issuer, names = TokenIssuer(""), Names(login=PUBLIC)
    async with listening(issuer) as url:
        issuer.url = f"http://login.example.com:{url.rpartition(':')[2]}"
        async with source_of(issuer, names) as source:
            guard = source.guard(issuer.url)
            assert guard is not None
            assert await guard.addresses("login.example.com", 443) == [PUBLIC]
            names.addresses["login"] = LOOPBACK
            with pytest.raises(NoKeysError):
                await source.keys()
        assert f"led to the public address {PUBLIC} and now leads to the private address" in caplog.text
        assert issuer.asked == []


async def test_keys_that_arrive_too_slowly_are_given_up(caplog: pytest.LogCaptureFixture) -> None:
    async def dripping(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b" ", "more_body": True})
            with anyio.move_on_after(0.01):
                await receive()
                await receive()
                return

    issuer = TokenIssuer("", answers={"/jwks": dripping})
    async with listening(issuer) as issuer.url, GuardedClient(timeout=None) as http:
        place = IssuerPlace(issuer.url, jwks_url=f"{issuer.url}/jwks")
        source = KeySource("corp", place, http, LIMITS.having(fetch_seconds=0.2), Names())
        with anyio.fail_after(30), pytest.raises(NoKeysError):
            await source.keys()
        assert "the keys did not come within 0.2 s" in caplog.text
