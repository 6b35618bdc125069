"""How callers' tokens are exchanged: what is asked, what is held for whom and how long, and what may be wrong."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest

from bridge.identity.tokens.caller_token import CallerToken
from bridge.identity.tokens.oauth import REFUSED_SECONDS
from bridge.identity.tokens.token_endpoint import OAuthClient, TokenError
from bridge.identity.tokens.token_exchange import UNSAID_SECONDS, CallerTokenError, CallerTokens, Exchange
from bridge.notices import Notice, TokenListener, TokenNotice
from tests.support.issuer import TokenIssuer
from tests.support.running import listening
from tests.support.token_desk import GRANTS, TYPES, TokenDesk, desk_at

pytestmark = pytest.mark.proves("oauth-callers")

PEER = "https://peer.example/"


@dataclass
class Exchanging:
    """An issuer that exchanges tokens, and what is held of them."""

    issuer: TokenIssuer
    desk: TokenDesk
    tokens: CallerTokens
    now: list[float]

    def caller(self, subject: str = "alice", **changes: Any) -> CallerToken:
        """A caller of the issuer, with a new token."""
        value = self.issuer.token("api://bridge", subject, jti=str(time.monotonic_ns()))
        return replace(CallerToken(self.issuer.url, f"corp:{subject}", value, time.time() + 600), **changes)

    async def got(self, caller: CallerToken) -> str:
        """The token that is got for a caller."""
        return (await self.tokens.of(caller)()).value


@asynccontextmanager
async def exchanging(most: int = 10, **exchange: Any) -> AsyncIterator[Exchanging]:
    """Such an issuer."""
    issuer, now = TokenIssuer(""), [0.0]
    with anyio.fail_after(30):
        async with listening(issuer) as issuer.url:
            client = OAuthClient(issuer.url, "bridge", "s3cret", "post", ("read",), PEER)
            tokens = CallerTokens(Exchange(client, **exchange), 20, most, now=lambda: now[0])
            yield Exchanging(issuer, desk_at(issuer), tokens, now)


async def test_a_callers_token_is_exchanged_for_one_of_the_peer() -> None:
    async with exchanging(audience="api://peer") as there:
        alice = there.caller()
        assert await there.got(alice) == "alice-1"
        assert there.desk.asked == [
            {
                "grant_type": f"{GRANTS}token-exchange",
                "subject_token": alice.value,
                "subject_token_type": f"{TYPES}access_token",
                "requested_token_type": f"{TYPES}access_token",
                "scope": "read",
                "resource": PEER,
                "audience": "api://peer",
                "client_id": "bridge",
                "client_secret": "s3cret",
            }
        ]
        assert alice.value not in repr(alice)


async def test_an_exchanged_token_serves_only_the_token_of_its_caller() -> None:
    async with exchanging() as there:
        alice, again, bob = there.caller(), there.caller(), there.caller("bob")
        first = [await there.got(one) for one in (alice, again, bob)]
        assert first == ["alice-1", "alice-2", "bob-3"]
        assert [await there.got(one) for one in (alice, again, bob)] == first
        # The same token that was verified for somebody else finds nothing.
        assert await there.got(replace(alice, subject="corp:mallory")) == "alice-4"


async def test_callers_at_the_same_time_share_the_exchange_of_one_token() -> None:
    async with exchanging() as there:
        alice, bob = there.caller(), there.caller("bob")
        found: list[str] = []

        async def get(caller: CallerToken) -> None:
            found.append(await there.got(caller))

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(get, alice)
                tasks.start_soon(get, bob)
        assert len(there.desk.asked) == 2
        assert sorted({one.partition("-")[0] for one in found}) == ["alice", "bob"]
        assert len(found) == 20


@pytest.mark.parametrize(
    ("life", "left", "used"),
    [(300, 600, 300), (300, 100, 100), (None, 100, 100), (None, None, UNSAID_SECONDS)],
)
async def test_an_exchanged_token_is_used_until_it_or_the_callers_token_expires(
    life: int | None, left: int | None, used: float
) -> None:
    async with exchanging() as there:
        there.desk.life = life
        caller = there.caller(expires_at=None if left is None else time.time() + left)
        token = await there.tokens.of(caller)()
        assert used - 5 < token.life_seconds <= used
        there.now[0] = used / 3
        assert await there.got(caller) == "alice-1"
        there.now[0] = used
        assert await there.got(caller) == "alice-2"


async def test_the_number_of_held_tokens_is_limited() -> None:
    async with exchanging(most=2) as there:
        alice, bob, carol = (there.caller(name) for name in ("alice", "bob", "carol"))
        for one in (alice, bob, alice, carol, alice, bob):
            await there.got(one)
        assert there.desk.subjects == ["alice", "bob", "carol", "bob"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"issuer": "https://other.example"}, "the request has no access token of ISSUER"),
        ({"expires_at": 1.0}, "the caller's token of ISSUER has expired"),
    ],
)
async def test_a_token_that_expired_or_is_of_another_issuer_is_not_sent(
    changes: dict[str, Any], words: str
) -> None:
    async with exchanging() as there:
        with pytest.raises(CallerTokenError) as caught:
            there.tokens.of(there.caller(**changes))
        said = str(caught.value).replace(there.issuer.url, "ISSUER")
        assert said == f"this acts with the rights of its caller, and {words}"
        with pytest.raises(CallerTokenError, match="the request has no access token"):
            there.tokens.of(None)
        with pytest.raises(CallerTokenError, match="there is no caller"):
            await there.tokens()
        assert there.desk.asked == []


async def test_a_token_that_expires_during_its_request_is_not_exchanged_again() -> None:
    async with exchanging() as there:
        caller = there.caller()
        source = there.tokens.of(caller)
        await source()
        object.__setattr__(caller, "expires_at", 1.0)  # time has gone by
        with pytest.raises(CallerTokenError, match="has expired"):
            await source()


@pytest.mark.parametrize("answer", [None, (400, {"error": "invalid_grant"})])
async def test_a_token_that_expires_while_it_is_exchanged_is_reported_as_expired(
    answer: tuple[int, dict[str, str]] | None,
) -> None:
    async with exchanging() as there:
        caller = there.caller()

        def said(_: dict[str, str]) -> tuple[int, dict[str, str]] | None:
            object.__setattr__(caller, "expires_at", 1.0)  # time has gone by
            return answer

        there.desk.said = said
        with pytest.raises(CallerTokenError, match=r"the caller's token of .* has expired"):
            await there.got(caller)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (
            400,
            {"error": "invalid_grant", "error_description": "not for you"},
            "ISSUER gave no token to bridge: invalid_grant: not for you. The issuer does not accept the token or"
            " JWT: check its issuer, audience and expiry",
        ),
        (
            200,
            {"access_token": "t", "token_type": "Bearer", "issued_token_type": f"{TYPES}refresh_token"},
            "ISSUER gave a token of another type than requested",
        ),
        (
            200,
            {"access_token": "t", "token_type": "Bearer"},
            "ISSUER gave a token of another type than requested",
        ),
        (
            200,
            {"access_token": "t", "token_type": "N_A", "issued_token_type": f"{TYPES}access_token"},
            "ISSUER gave a token that is not of the type Bearer",
        ),
    ],
)
async def test_an_exchange_that_gives_no_token_for_the_peer_is_refused_for_that_caller_alone(
    status: int, body: dict[str, str], words: str
) -> None:
    async with exchanging() as there:
        there.desk.said = lambda form: (status, body)
        alice = there.caller()
        for _ in range(3):
            with pytest.raises(TokenError) as caught:
                await there.got(alice)
            assert str(caught.value).replace(there.issuer.url, "ISSUER") == words
        assert len(there.desk.asked) == 1
        there.desk.said = lambda form: None
        assert await there.got(there.caller("bob")) == "bob-2"
        there.now[0] += REFUSED_SECONDS
        assert await there.got(alice) == "alice-3"


async def test_an_identity_assertion_is_exchanged_at_the_authorization_server_of_the_peer() -> None:
    theirs = TokenIssuer("")
    async with listening(theirs) as theirs.url:
        desk = desk_at(theirs)
        there_client = OAuthClient(theirs.url, "bridge-there", "other", "post", ("read",), PEER)
        async with exchanging(id_jag=there_client) as there:
            alice = there.caller()
            assert await there.got(alice) == "alice-1"
            (asked,) = there.desk.asked
            assert (asked["requested_token_type"], asked["audience"], asked["resource"]) == (
                f"{TYPES}id-jag",
                theirs.url,
                PEER,
            )
            (shown,) = desk.asked
            assert shown.pop("assertion").count(".") == 2
            assert shown == {
                "grant_type": f"{GRANTS}jwt-bearer",
                "scope": "read",
                "resource": PEER,
                "client_id": "bridge-there",
                "client_secret": "other",
            }
            # The caller's token and each secret went to their own issuer alone.
            assert alice.value not in str(desk.asked)
            assert "other" not in str(there.desk.asked)


async def test_each_exchange_is_notified_with_its_principal_and_no_token() -> None:
    async with exchanging() as there:
        told: list[Notice] = []
        there.tokens.listener = TokenListener("crm", told.append)
        alice = there.caller()
        assert await there.got(alice) == await there.got(alice)
        (notice,) = told
        assert isinstance(notice, TokenNotice)
        assert replace(notice, seconds=0) == TokenNotice("crm", "token_exchange", "given", 0, "corp:alice")
        assert alice.value not in repr(notice)
