"""Tokens that only their issuer can read: what it is asked, which answers count, and for how long."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qs

import anyio
import httpx2
import pytest

from bridge.http.request_checks import RefusedError
from bridge.identity.callers.introspection import TokenQuestions
from bridge.identity.callers.issuer_verifier import IssuerVerifier
from bridge.identity.callers.issuers import IntrospectionClient, IssuerPlace
from bridge.identity.callers.key_sets import KeySource
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Access, Credential, verifiers_of
from tests.identity.callers.test_issuers import AUDIENCES, DESK, LOGIN, gone, slow
from tests.support.drivers import PATIENCE_SECONDS
from tests.support.issuer import LIMITS, TokenIssuer, answer, bearer, issuer_at

pytestmark = pytest.mark.proves("oauth-introspection")

CLIENT = IntrospectionClient("the bridge", "s:cret")
BASIC = base64.b64encode(b"the%20bridge:s%3Acret").decode()


@dataclass
class Asked:
    """An issuer that is asked about tokens, and who is let in by it."""

    issuer: TokenIssuer
    tokens: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What the issuer says of each token."""
    unanswered: frozenset[str] = frozenset()
    """Tokens about which the issuer says nothing."""
    questions: list[str] = field(default_factory=list)
    begun: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(0))
    """Counts the questions."""
    access: Access = field(default_factory=lambda: Access([]))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer about one token, to the bridge alone."""
        form = parse_qs((await receive())["body"].decode())
        headers = dict(scope["headers"])
        assert headers[b"authorization"] == f"Basic {BASIC}".encode()
        assert form["token_type_hint"] == ["access_token"]
        (token,) = form["token"]
        self.questions.append(token)
        self.begun.release()
        if token in self.unanswered:
            await anyio.sleep_forever()
        await answer(send, 200, json.dumps(self.tokens.get(token, {"active": False})).encode())

    async def lets_in(self, token: str) -> Principal:
        """The principal of a token."""
        return await self.access.principal_of(bearer(token), DESK)

    async def refuses(self, token: str) -> RefusedError:
        """The refusal of a token."""
        with pytest.raises(RefusedError) as refused:
            await self.lets_in(token)
        return refused.value


@asynccontextmanager
async def asked(
    limits: Any = LIMITS, place: IssuerPlace | None = None, principal_claim: str = "sub", **metadata: Any
) -> AsyncIterator[Asked]:
    """Such an issuer, beside a principal of the file."""
    said = {"introspection_endpoint": f"{LOGIN}/introspect", **metadata}
    there = Asked(TokenIssuer(LOGIN, metadata=said))
    there.issuer.answers["/introspect"] = there
    scopes = (("read", ("get_*",)), ("write", ("*",)))
    trusted = issuer_at(
        LOGIN,
        AUDIENCES,
        client=CLIENT,
        scopes=scopes,
        place=place or IssuerPlace(LOGIN),
        principal_claim=principal_claim,
    )
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=there.issuer)) as http:
        source = KeySource("corp", replace(trusted.place, allow_private=True), http, limits)
        verifier = IssuerVerifier(trusted, source, limits, TokenQuestions(trusted, source, http, limits))
        secrets = verifiers_of([Credential(Principal("carol"), "carols-token")])
        there.access.update([*secrets, verifier])
        yield there


_DAY_SECONDS: Final = 86_400
"""Answers are made as the tests are collected, and a run may take long after that."""


def active(**more: Any) -> dict[str, Any]:
    """What an issuer says of a good token."""
    expires = int(time.time()) + _DAY_SECONDS
    good = {"active": True, "iss": LOGIN, "aud": "api://desk", "sub": "alice", "exp": expires}
    return {name: value for name, value in {**good, **more}.items() if value is not None}


async def test_an_active_token_identifies_its_subject_and_is_introspected_once() -> None:
    async with asked() as there:
        there.tokens["opaque"] = active(scope="read")
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(there.lets_in, "opaque")
        found = await there.lets_in("opaque")
        assert (found.name, found.skills) == ("corp:alice", ("get_*",))
        assert found.expires_at == there.tokens["opaque"]["exp"] + LIMITS.leeway_seconds
        assert len(there.questions) <= 8
        before = len(there.questions)
        assert await there.lets_in("opaque") == found
        assert len(there.questions) == before


NO_TIMES: Final[Sequence[Any]] = ("soon", "1", True, [], {}, float("inf"), float("nan"), 10**400, -(10**400))


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ({"active": False}, "is not active"),
        ({"active": "true"}, "is not active"),
        ({}, "is not active"),
        ([], "is not active"),
        (active(aud="api://other"), "is for another audience"),
        (active(aud=["api://other", 7]), "is for another audience"),
        (active(aud=None), "is for another audience"),
        (active(iss="https://evil.example"), "is of another issuer"),
        (active(exp=1), "has expired"),
        *((active(exp=value), "`exp` that is not a time") for value in NO_TIMES),
        *((active(nbf=value), "`nbf` that is not a time") for value in NO_TIMES),
        ({**active(), "exp": None}, "`exp` that is not a time"),
        (active(nbf=time.time() + _DAY_SECONDS / 2), "is not valid yet"),
        (active(sub=None), "does not name its principal"),
        (active(sub=None, client_id="app"), "does not name its principal"),
        (active(sub=None, username="alice", client_id="app"), "does not name its principal"),
    ],
)
async def test_any_other_answer_is_401_and_is_remembered(said: Any, fault: str) -> None:
    async with asked() as there:
        there.tokens["opaque"] = said
        for _ in range(2):
            refused = await there.refuses("opaque")
            assert (refused.status, fault in str(refused)) == (401, True)
        assert there.questions == ["opaque"]


async def test_a_token_counts_from_the_moment_that_the_issuer_says_within_the_leeway() -> None:
    async with asked() as there:
        there.tokens["opaque"] = active(nbf=time.time() + LIMITS.leeway_seconds - 10, exp=time.time() + 600.5)
        assert (await there.lets_in("opaque")).name == "corp:alice"


async def test_clients_are_principals_if_the_configuration_says_so() -> None:
    async with asked(principal_claim="client_id") as there:
        there.tokens["of-a-client"] = active(sub=None, client_id="reports")
        assert (await there.lets_in("of-a-client")).name == "corp:reports"


async def test_an_answer_expires() -> None:
    async with asked(LIMITS.having(introspection_seconds=0)) as there:
        there.tokens["opaque"] = active(iss=None, exp=None)
        assert (await there.lets_in("opaque")).expires_at is None
        there.tokens["opaque"] = {"active": False}
        assert "is not active" in str(await there.refuses("opaque"))


async def test_a_token_that_was_active_waits_for_no_unknown_token() -> None:
    async with asked(LIMITS.having(introspection_seconds=0, fetch_seconds=PATIENCE_SECONDS)) as there:
        there.tokens["opaque"] = active()
        alice = await there.lets_in("opaque")
        await there.begun.acquire()
        unknown = [f"unknown-{number}" for number in range(20)]
        there.unanswered = frozenset(unknown)
        async with anyio.create_task_group() as tasks:
            for one in unknown:
                tasks.start_soon(there.lets_in, one)
            for _ in range(8):
                await there.begun.acquire()
            assert await there.lets_in("opaque") == alice
            tasks.cancel_scope.cancel()
        assert there.questions == ["opaque", *unknown[:8], "opaque"]


async def test_secrets_of_the_file_and_json_web_tokens_are_not_introspected() -> None:
    async with asked() as there:
        assert await there.lets_in("carols-token") == Principal("carol")
        assert (await there.lets_in(there.issuer.token("api://desk"))).name == "corp:alice"
        assert "is for another audience" in str(await there.refuses(there.issuer.token("api://x")))
        assert "is not known" in str(await there.refuses(""))
        for joined in ("opaque, Bearer carols-token", "opaque,carols-token", "opaque carols-token"):
            there.tokens[joined] = active()
            assert "is not known" in str(await there.refuses(joined))
        assert there.questions == []


@pytest.mark.proves("oauth-bad-input")
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (gone, "answered with 502"),
        (slow, "gave no answer within"),
        (None, "no usable introspection_endpoint"),
    ],
)
async def test_while_the_issuer_cannot_be_asked_a_token_is_503(
    broken: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = {} if broken else {"introspection_endpoint": "http://login.example.com/introspect"}
    limits, place = (LIMITS, None)
    if broken is slow:  # the keys would have to come as quickly
        limits = LIMITS.having(fetch_seconds=0.05)
        place = IssuerPlace(LOGIN, f"{LOGIN}/jwks", f"{LOGIN}/introspect")
    async with asked(limits, place, **metadata) as there:
        there.tokens["opaque"] = active()
        if broken:
            there.issuer.answers["/introspect"] = broken
        for _ in range(2):
            refused = await there.refuses("opaque")
            assert (refused.status, refused.headers) == (503, {"Retry-After": "5"})
        (line,) = [one.getMessage() for one in caplog.records if "introspected" in one.getMessage()]
        assert said in line
        assert "opaque" not in caplog.text
        assert "cret" not in caplog.text
        if broken is not slow:
            assert (await there.lets_in(there.issuer.token("api://desk"))).name == "corp:alice"


@pytest.mark.proves("oauth-bad-input")
@pytest.mark.parametrize(
    "place", ["https://[bad", "https://h:99999/x", "https://h:port/x", "https://h/\n", "https:"]
)
async def test_an_invalid_url_in_metadata_counts_as_an_issuer_that_cannot_be_asked(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with asked(introspection_endpoint=place) as there:
        refused = await there.refuses("opaque")
        assert (refused.status, refused.headers) == (503, {"Retry-After": "5"})
        assert "issuers.corp: a token cannot be introspected" in caplog.text
        assert (await there.lets_in(there.issuer.token("api://desk"))).name == "corp:alice"


@pytest.mark.parametrize("metadata", [{"jwks_uri": None}, {"jwks_uri": f"{LOGIN}/gone"}])
async def test_an_issuer_without_keys_is_introspected(
    metadata: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with asked(**metadata) as there:
        there.tokens |= {"opaque": active(), "other": active(sub="bob")}
        assert (await there.lets_in("opaque")).name == "corp:alice"
        before = len(there.issuer.asked)
        assert (await there.lets_in("other")).name == "corp:bob"
        assert there.issuer.asked[before:] == ["/introspect"]
        assert len([line for line in caplog.messages if "its keys cannot be fetched" in line]) == 1
        with pytest.raises(RefusedError, match="keys of its issuer are not known yet"):
            await there.lets_in(there.issuer.token("api://desk"))


async def test_the_introspection_url_may_be_configured() -> None:
    place = IssuerPlace(LOGIN, f"{LOGIN}/jwks", f"{LOGIN}/introspect")
    async with asked(place=place) as there:
        there.tokens["opaque"] = active()
        assert (await there.lets_in("opaque")).name == "corp:alice"
        assert there.issuer.asked == ["/introspect"]
    assert "s:cret" not in repr(CLIENT)
