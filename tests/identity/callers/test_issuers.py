"""Tokens of an issuer as credentials: which are accepted, which are refused and why, and when keys are fetched."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import anyio
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.types import Receive, Scope, Send

from bridge.http.request_checks import RefusedError
from bridge.identity.callers.issuer_verifier import IssuerVerifier
from bridge.identity.callers.issuers import Issuer, IssuerPlace
from bridge.identity.callers.key_sets import KeySource, metadata_urls
from bridge.identity.callers.principals import OperatorRole, Principal
from bridge.identity.callers.verifiers import Access, Credential, verifiers_of
from tests.support.issuer import (
    LIMITS,
    OAUTH,
    OPENID,
    TokenIssuer,
    answer,
    bearer,
    ec_key,
    issuer_at,
    jwk,
    rsa_jwk,
    rsa_key,
    signed,
)

DESK, OTHER = "/agents/desk", "/mcp/other"
AUDIENCES = {DESK: frozenset({"api://desk"}), OTHER: frozenset({"api://other"})}
LOGIN = "https://login.example.com"


@dataclass
class Door:
    """Who is let in by an issuer, which answers in process."""

    issuer: TokenIssuer
    access: Access
    source: KeySource
    trusted: Issuer

    async def lets_in(self, token: str, face: str = DESK) -> Principal:
        """The principal of a token."""
        return await self.access.principal_of(bearer(token), face)

    async def refuses(self, token: str, face: str = DESK) -> RefusedError:
        """The refusal of a token."""
        with pytest.raises(RefusedError) as refused:
            await self.access.principal_of(bearer(token), face)
        return refused.value


@asynccontextmanager
async def door(
    issuer: TokenIssuer | None = None, limits: Any = LIMITS, **changes: Any
) -> AsyncIterator[Door]:
    """An issuer that is trusted."""
    there = issuer or TokenIssuer(LOGIN)
    trusted = issuer_at(there.url, AUDIENCES, **changes)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=there)) as http:
        # No connection is made, so no address is judged: see test_issuer_addresses.py.
        place = replace(trusted.place, allow_private=True)
        source = KeySource(trusted.name, place, http, limits)
        yield Door(there, Access([IssuerVerifier(trusted, source, limits)]), source, trusted)


@pytest.mark.proves("web-auth", "oauth-jwt")
@pytest.mark.parametrize("kind", ["at+jwt", "application/at+jwt", "JWT", None])
async def test_a_token_of_a_trusted_issuer_stands_for_its_subject(kind: str | None) -> None:
    async with door() as one:
        claims = one.issuer.claims(["api://desk", "api://else"], "alice")
        found = await one.lets_in(signed(claims, typ=kind))
        assert found == Principal("corp:alice")
        assert found.expires_at == claims["exp"] + LIMITS.leeway_seconds
        endless = await one.lets_in(one.issuer.token("api://desk", exp=10**400))
        assert endless.expires_at == 2**53 + LIMITS.leeway_seconds
        assert await one.lets_in(one.issuer.token("api://other", "bob"), OTHER) == Principal("corp:bob")


@pytest.mark.proves("web-auth", "oauth-jwt")
@pytest.mark.parametrize("algorithm", ["RS256", "PS256"])
async def test_a_key_without_an_algorithm_takes_every_accepted_one_of_its_type(algorithm: str) -> None:
    async with door(TokenIssuer(LOGIN, [jwk("one"), rsa_jwk("two", use="sig")])) as one:
        claims = one.issuer.claims("api://desk")
        assert (await one.lets_in(signed(claims, "two", algorithm))).name == "corp:alice"
        assert "accepted algorithm" in str(await one.refuses(signed(claims, "two", "RS512")))


def altered(token: str, **claims: Any) -> str:
    """The token with other claims and its old signature."""
    head, body, signature = token.split(".")
    whole = {**json.loads(base64.urlsafe_b64decode(body + "==")), **claims}
    return f"{head}.{base64.urlsafe_b64encode(json.dumps(whole).encode()).decode().rstrip('=')}.{signature}"


def public_text(name: str) -> bytes:
    """A public key as text, which a careless verifier takes for the secret of HS256."""
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return rsa_key(name).public_key().public_bytes(*form)


def with_public_key_as_secret(claims: dict[str, Any]) -> str:
    """A token signed with HS256 and the public key, which PyJWT refuses to make."""
    parts = ({"alg": "HS256", "typ": "at+jwt", "kid": "two"}, claims)
    text = ".".join(base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in parts)
    mac = hmac.new(public_text("two"), text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


WRONG = {
    "another audience": (lambda one: one.token("api://other"), "is for another audience"),
    "no audience": (lambda one: signed(one.claims("x", aud=None)), "lacks a claim that it needs"),
    "another issuer": (
        lambda one: one.token("api://desk", iss="https://evil.example"),
        "is of another issuer",
    ),
    "its issuer with a slash": (lambda one: one.token("api://desk", iss=f"{LOGIN}/"), "is of another issuer"),
    "expired": (lambda one: one.token("api://desk", exp=int(time.time()) - 31), "has expired"),
    "no expiry": (lambda one: one.token("api://desk", exp=None), "lacks a claim that it needs"),
    "no subject": (lambda one: one.token("api://desk", sub=None), "lacks a claim that it needs"),
    "an empty subject": (lambda one: one.token("api://desk", sub=""), "does not name its principal"),
    "a long subject": (lambda one: one.token("api://desk", sub="a" * 256), "does not name its principal"),
    "a hidden subject": (
        lambda one: one.token("api://desk", sub="ali\u202ece"),
        "unprintable characters",
    ),
    "half a character": (
        lambda one: one.token("api://desk", sub="ali\ud800ce"),
        "unprintable characters",
    ),
    "not valid yet": (lambda one: one.token("api://desk", nbf=int(time.time()) + 600), "is not valid yet"),
    "an endless expiry": (lambda one: one.token("api://desk", exp=1e999), "is not valid"),
    "another key": (
        lambda one: signed(one.claims("api://desk"), "two", kid="one"),
        "is not signed with a key",
    ),
    "an unknown key": (lambda one: signed(one.claims("api://desk"), "two"), "is not signed with a key"),
    "a key that comes with it": (
        lambda one: signed(one.claims("api://desk"), "two", kid="one", jwk=jwk("two")),
        "is not signed with a key",
    ),
    "a key that it leads to": (
        lambda one: signed(one.claims("api://desk"), "two", jku=f"{LOGIN}/evil", x5u=f"{LOGIN}/evil"),
        "is not signed with a key",
    ),
    "altered": (lambda one: altered(one.token("api://desk"), sub="bob"), "is not signed with a key"),
    "unsigned": (lambda one: one.token("api://desk").rpartition(".")[0] + ".", "is not signed with a key"),
    "alg none": (
        lambda one: jwt.encode(one.claims("api://desk"), None, algorithm="none", headers={"typ": "at+jwt"}),
        "is not signed with an accepted algorithm",
    ),
    "a symmetric key": (
        lambda one: with_public_key_as_secret(one.claims("api://desk")),
        "is not signed with an accepted algorithm",
    ),
    "an ID-JAG": (
        lambda one: signed(one.claims("api://desk"), typ="oauth-id-jag+jwt"),
        "is no access token",
    ),
    "an extension that has to be known": (
        lambda one: signed(one.claims("api://desk"), crit=["x"], x=1),
        "cannot be read",
    ),
    "broken": (lambda one: one.token("api://desk").replace(".", ".e30", 1), "cannot be read"),
    "without an issuer": (lambda one: one.token("api://desk", iss=None), "cannot be read"),
    "no JSON": (lambda _: "a.b.c", "cannot be read"),
}


@pytest.mark.proves("web-auth", "oauth-jwt", "oauth-bad-input")
@pytest.mark.parametrize("case", WRONG)
async def test_a_token_that_is_not_valid_is_refused_with_one_line_in_the_log(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    make, said = WRONG[case]
    async with door(
        TokenIssuer(LOGIN, [jwk("one"), rsa_jwk("two")] if case == "a symmetric key" else [jwk("one")])
    ) as one:
        token = make(one.issuer)
        with caplog.at_level(logging.INFO):
            refused = await one.refuses(token)
            await one.refuses(token)
        assert refused.status == 401
        assert said in str(refused)
        logged = [record.getMessage() for record in caplog.records if record.name.startswith("bridge")]
        assert len(logged) == 1
        assert all(said in line and token not in line and "eyJ" not in line for line in logged)
        assert await one.lets_in(one.issuer.token("api://desk")) == Principal("corp:alice")
        assert set(one.issuer.asked) <= {OAUTH, OPENID, "/jwks"}


@pytest.mark.proves("oauth-jwt", "oauth-bad-input")
async def test_a_key_that_is_too_short_signs_nothing() -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    public = jwt.algorithms.RSAAlgorithm.to_jwk(short.public_key(), as_dict=True) | {"kid": "short"}
    async with door(TokenIssuer(LOGIN, [jwk("one"), public])) as one:
        with pytest.warns(jwt.InsecureKeyLengthWarning):
            token = jwt.encode(
                one.issuer.claims("api://desk"), short, algorithm="RS256", headers={"kid": "short"}
            )
        assert (await one.refuses(token)).status == 401
        assert await one.lets_in(one.issuer.token("api://desk")) == Principal("corp:alice")


@pytest.mark.parametrize("text", ["", "a", "a.b", "a.b.c.d.e", "." * 2, "\u00e9.\u00e9.\u00e9"])
async def test_a_value_that_is_no_token_is_unknown_and_causes_no_fetch(text: str) -> None:
    async with door() as one:
        assert "is not known" in str(await one.refuses(text)) or not text
        assert "cannot be read" in str(
            await one.refuses(f"{base64.urlsafe_b64encode(b'[' * 9000).decode()}.e30.x")
        )
        assert one.issuer.asked == []


@pytest.mark.proves("oauth-scopes")
async def test_the_scopes_of_a_token_say_what_it_may_use() -> None:
    scopes = (("tools:read", ("search", "get_*")), ("tools:write", ("desk/put", "other/*")))
    async with door(scopes=scopes) as one:
        for given, skills in {
            "tools:read": ("search", "get_*"),
            "tools:read tools:write other": ("search", "get_*", "desk/put", "other/*"),
            "": (),
            "tools": (),
        }.items():
            found = await one.lets_in(one.issuer.token("api://desk", scope=given))
            assert found == Principal("corp:alice", skills=skills, scopes=scopes)
        for claims in ({"scp": ["tools:read"]}, {"scope": ["tools:read"]}, {"scp": "tools:read x"}):
            found = (await one.lets_in(one.issuer.token("api://desk", **claims))).in_face("desk")
            assert found.skills == ("search", "get_*")
            assert found.scope_for("put") == "tools:write"
            assert found.scope_for("search") == "tools:read"
            assert found.scope_for("drop") is None
        whole = await one.lets_in(one.issuer.token("api://desk", scope="tools:read tools:write"))
        for face, held in {"desk": ["tools:read", "tools:write"], "third": ["tools:read"]}.items():
            assert whole.in_face(face).held_scopes() == held
        assert found.held_scopes() == ["tools:read"]
        for claims in ({"scope": 7}, {"scope": None, "scp": {}}, {"scope": [7, None]}):
            assert (await one.lets_in(one.issuer.token("api://desk", **claims))).skills == ()


@pytest.mark.proves("oauth-scopes")
async def test_the_scopes_of_a_token_say_whether_its_holder_is_an_operator() -> None:
    roles = {
        OperatorRole.READ: frozenset({"bridge:see", "bridge:audit"}),
        OperatorRole.ANSWER: frozenset({"bridge:answer"}),
    }
    async with door(operators=roles) as one:
        for given, role in {
            "bridge:audit": OperatorRole.READ,
            "bridge:see other bridge:answer": OperatorRole.ANSWER,
            "bridge:answer": OperatorRole.ANSWER,
            "bridge": None,
            "": None,
        }.items():
            found = await one.lets_in(one.issuer.token("api://desk", scope=given))
            assert found == Principal("corp:alice", operator=role)
        assert one.access.first_scopes == ()


@pytest.mark.proves("oauth-jwt")
async def test_another_claim_may_identify_principals() -> None:
    async with door(principal_claim="email") as one:
        token = one.issuer.token("api://desk", email="alice@example.com")
        assert (await one.lets_in(token)).name == "corp:alice@example.com"
        assert "does not name its principal" in str(await one.refuses(one.issuer.token("api://desk")))


@pytest.mark.proves("web-auth")
async def test_tokens_of_an_issuer_work_beside_configured_secrets() -> None:
    async with door() as one:
        carol = Principal("carol")
        both = Access([*verifiers_of([Credential(carol, "carols-token")]), *one.access._verifiers])
        assert await both.principal_of(bearer("carols-token"), DESK) == carol
        assert one.issuer.asked == []
        assert await both.principal_of(bearer(one.issuer.token("api://desk")), DESK) == Principal(
            "corp:alice"
        )
        with pytest.raises(RefusedError, match="is for another audience"):
            await both.principal_of(bearer(one.issuer.token("api://other")), DESK)


# Keys


@pytest.mark.proves("oauth-keys")
async def test_keys_are_fetched_once_for_many_requests_at_the_same_time() -> None:
    async with door() as one:
        token = one.issuer.token("api://desk")
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(one.lets_in, token)
        assert one.issuer.asked == [OAUTH, OPENID, "/jwks"]
        assert await one.lets_in(token) == Principal("corp:alice")
        assert len(one.issuer.asked) == 3


@pytest.mark.proves("oauth-keys")
async def test_a_flood_of_unknown_keys_does_not_reach_the_issuer() -> None:
    async with door() as one:
        await one.lets_in(one.issuer.token("api://desk"))
        for number in range(50):
            await one.refuses(signed(one.issuer.claims("api://desk"), kid=f"unknown-{number}"))
        assert len(one.issuer.asked) == 3


@pytest.mark.proves("oauth-keys")
async def test_a_new_key_of_the_issuer_is_found() -> None:
    async with door(limits=LIMITS.having(unknown_key_seconds=0)) as one:
        await one.lets_in(one.issuer.token("api://desk"))
        one.issuer.keys = [jwk("two")]
        claims = one.issuer.claims("api://desk")
        assert await one.lets_in(signed(claims, "two")) == Principal("corp:alice")
        assert "is not signed with a key of its issuer" in str(await one.refuses(signed(claims, "one")))


@pytest.mark.proves("oauth-keys")
@pytest.mark.parametrize("name", [None, "current"])
async def test_a_new_key_without_an_id_or_with_the_id_of_the_old_key_is_found(name: str | None) -> None:
    """A set of one key need not name it (RFC 7517 section 4.5)."""
    named = {} if name is None else {"kid": name}

    def key(of: str) -> dict[str, Any]:
        return {field: value for field, value in jwk(of).items() if field != "kid"} | named

    def token(of: str) -> str:
        claims = one.issuer.claims("api://desk")
        return jwt.encode(claims, ec_key(of), algorithm="ES256", headers=named or None)

    limits = LIMITS.having(unknown_key_seconds=0)
    async with door(TokenIssuer(LOGIN, [key("one")]), limits=limits) as one:
        assert await one.lets_in(token("one")) == Principal("corp:alice")
        one.issuer.keys = [key("two")]
        assert await one.lets_in(token("two")) == Principal("corp:alice")
        assert "is not signed with a key of its issuer" in str(await one.refuses(token("one")))


@pytest.mark.proves("oauth-keys")
async def test_a_key_without_an_id_may_have_signed_a_token_that_names_a_key_id() -> None:
    """Whether it has, the signature says."""
    nameless = {field: value for field, value in jwk("one").items() if field != "kid"}
    async with door(TokenIssuer(LOGIN, [nameless, jwk("two")])) as one:
        claims = one.issuer.claims("api://desk")
        assert await one.lets_in(signed(claims, "one")) == Principal("corp:alice")
        assert await one.lets_in(signed(claims, "two")) == Principal("corp:alice")
        assert "is not signed with a key of its issuer" in str(await one.refuses(signed(claims, "three")))


@pytest.mark.proves("oauth-keys")
async def test_a_flood_of_tokens_that_nobody_has_signed_does_not_reach_the_issuer() -> None:
    async with door() as one:
        await one.lets_in(one.issuer.token("api://desk"))
        for number in range(50):
            await one.refuses(altered(one.issuer.token("api://desk"), sub=f"bob-{number}"))
        assert len(one.issuer.asked) == 3


@pytest.mark.proves("oauth-keys", "oauth-bad-input")
async def test_the_last_good_keys_stay_while_the_issuer_fails(caplog: pytest.LogCaptureFixture) -> None:
    async with door(limits=LIMITS.having(keys_seconds=0, retry_seconds=0, document_limit_bytes=5000)) as one:
        token = one.issuer.token("api://desk")
        assert await one.lets_in(token) == Principal("corp:alice")
        for keys, said in (
            ([], "no public key for signatures"),
            ([jwk("one")] * 101, "more than 5000 bytes"),
            ([{"kty": "oct", "k": "AA", "kid": "one"}], "no public key for signatures"),
            ([jwk("one", use="enc"), jwk("one", key_ops=["encrypt"])], "no public key for signatures"),
            ([rsa_jwk("two") | {"n": 7}, {"kty": "EC"}, {}, 7, None], "no public key for signatures"),
        ):
            one.issuer.keys = keys
            caplog.clear()
            assert await one.lets_in(token) == Principal("corp:alice")
            assert [said in line.getMessage() for line in caplog.records if line.levelname == "WARNING"] == [
                True
            ]
        one.issuer.answers["/jwks"] = one.issuer.answers[OPENID] = gone
        assert await one.lets_in(token) == Principal("corp:alice")


async def gone(scope: Any, receive: Any, send: Any) -> None:
    """Answer as an issuer that fails."""
    await answer(send, 502, b"")


async def huge(scope: Any, receive: Any, send: Any) -> None:
    """Answer without end."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(1000):
        await send({"type": "http.response.body", "body": b" " * 65536, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def slow(scope: Any, receive: Any, send: Any) -> None:
    """Never answer."""
    await anyio.sleep_forever()


async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
    """Redirect to the keys."""
    await answer(send, 302, b"", location=f"{LOGIN}/jwks")


async def packed(scope: Any, receive: Any, send: Any) -> None:
    """Answer packed, though nobody asked for that."""
    await answer(send, 200, b"{}", content_encoding="gzip")


async def nested(scope: Any, receive: Any, send: Any) -> None:
    """Answer with arrays in arrays."""
    await answer(send, 200, b"[" * 90000)


async def page(scope: Any, receive: Any, send: Any) -> None:
    """Answer with a web page, as sites do that have one for every path."""
    await answer(send, 200, b"<!doctype html><title>Log in</title>", content_type="text/html")


@pytest.mark.proves("oauth-keys")
@pytest.mark.parametrize("other", [page, elsewhere, gone])
async def test_metadata_is_found_after_a_url_with_another_document(other: Any) -> None:
    async with door(TokenIssuer(LOGIN, answers={OAUTH: other})) as one:
        assert await one.lets_in(one.issuer.token("api://desk")) == Principal("corp:alice")
        assert one.issuer.asked == [OAUTH, OPENID, "/jwks"]


BAD_ISSUERS = {
    "down": ({"/jwks": gone}, "answered with 502"),
    "huge": ({"/jwks": huge}, "more than 1048576 bytes"),
    "slow": ({"/jwks": slow}, "did not come within 0.05 s"),
    "redirecting": ({"/jwks": elsewhere}, "answered with 302"),
    "packed": ({"/jwks": packed}, "answered with a compressed body"),
    "nested": ({"/jwks": nested}, "gave an answer that is not JSON"),
    "without metadata": ({OPENID: slow}, "did not come within 0.05 s"),
    "with redirecting metadata": ({OPENID: elsewhere}, "answered with 302"),
}


@pytest.mark.proves("oauth-keys", "oauth-bad-input")
@pytest.mark.parametrize("case", BAD_ISSUERS)
async def test_before_the_first_key_set_a_token_cannot_be_judged(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    answers, said = BAD_ISSUERS[case]
    limits = LIMITS.having(fetch_seconds=0.05) if "0.05" in said else LIMITS
    async with door(TokenIssuer(LOGIN, answers=dict(answers)), limits=limits) as one:
        token = one.issuer.token("api://desk")
        refused = await one.refuses(token)
        assert refused.status == 503
        assert 1 <= int(refused.headers["Retry-After"]) <= LIMITS.retry_seconds
        assert (await one.refuses(token)).status == 503
        (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert said in line
        assert "its tokens cannot be checked" in line
        assert (await one.refuses(one.issuer.token("api://desk", iss="x"))).status == 401
    if limits is not LIMITS:
        return  # with so little time, the keys might be late on a busy machine, too
    async with door(TokenIssuer(LOGIN, answers=dict(answers)), limits=limits.having(retry_seconds=0)) as one:
        token = one.issuer.token("api://desk")
        assert (await one.refuses(token)).status == 503
        one.issuer.answers.clear()
        assert await one.lets_in(token) == Principal("corp:alice")


@pytest.mark.proves("oauth-keys", "oauth-bad-input")
@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"issuer": f"{LOGIN}/"}, "the metadata of another issuer"),
        ({"jwks_uri": None}, "has no jwks_uri"),
        ({"jwks_uri": "file:///etc/passwd"}, "has no jwks_uri"),
        ({"jwks_uri": "http://login.example.com/jwks"}, "not served over HTTPS"),
        ({"jwks_uri": "https://[/jwks"}, "Invalid IPv6 URL"),
    ],
)
async def test_metadata_of_another_issuer_or_with_unsafe_urls_is_refused(
    metadata: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with door(TokenIssuer(LOGIN, metadata=metadata)) as one:
        assert (await one.refuses(one.issuer.token("api://desk"))).status == 503
        assert said in caplog.text


@pytest.mark.proves("oauth-keys", "oauth-bad-input")
async def test_a_set_of_too_many_keys_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with door(TokenIssuer(LOGIN, [jwk("one")] * (LIMITS.keys_most + 1))) as one:
        assert (await one.refuses(one.issuer.token("api://desk"))).status == 503
        assert (
            f"it has {LIMITS.keys_most + 1} keys, and at most {LIMITS.keys_most} are allowed" in caplog.text
        )


@pytest.mark.proves("oauth-keys")
async def test_a_caller_that_leaves_does_not_keep_others_from_the_keys() -> None:
    async with door() as one:
        release, asked = anyio.Event(), anyio.Event()

        async def held(scope: Any, receive: Any, send: Any) -> None:
            asked.set()
            await release.wait()
            del one.issuer.answers["/jwks"]
            await one.issuer(scope, receive, send)

        one.issuer.answers["/jwks"] = held
        token, found = one.issuer.token("api://desk"), list[Principal]()

        async def come() -> None:
            found.append(await one.lets_in(token))

        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as first:
                first.start_soon(come)
                await asked.wait()
                tasks.start_soon(come)
                first.cancel_scope.cancel()
            release.set()
        assert found == [Principal("corp:alice")]


@pytest.mark.proves("oauth-keys", "oauth-bad-input")
async def test_other_callers_are_accepted_while_keys_are_fetched() -> None:
    async with door(limits=LIMITS.having(fetch_seconds=30)) as one:
        release, asked = anyio.Event(), anyio.Event()

        async def held(scope: Scope, receive: Receive, send: Send) -> None:
            asked.set()
            await release.wait()
            del one.issuer.answers["/jwks"]
            await one.issuer(scope, receive, send)

        one.issuer.answers["/jwks"] = held
        carol, found = Principal("carol"), list[Principal]()
        both = Access([*verifiers_of([Credential(carol, "carols-token")]), *one.access._verifiers])

        async def come(token: str) -> None:
            found.append(await both.principal_of(bearer(token), DESK))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(come, one.issuer.token("api://desk"))
                await asked.wait()
                await come("carols-token")
                assert found == [carol]
                with pytest.raises(RefusedError, match="is not known"):
                    await come("unknown")
                with pytest.raises(RefusedError, match="is not signed with an accepted algorithm"):
                    await come(jwt.encode(one.issuer.claims("api://desk"), None, algorithm="none"))
                release.set()
        assert found == [carol, Principal("corp:alice")]


async def test_the_urls_of_metadata_follow_both_specifications() -> None:
    assert metadata_urls("https://a.example") == (f"https://a.example{OAUTH}", f"https://a.example{OPENID}")
    assert metadata_urls("https://a.example/t/1/") == (
        f"https://a.example{OAUTH}/t/1",
        f"https://a.example{OPENID}/t/1",
        f"https://a.example/t/1{OPENID}",
    )


async def test_keys_at_a_configured_url_need_no_metadata() -> None:
    place = IssuerPlace(LOGIN, f"{LOGIN}/jwks")
    async with door(place=place) as one:
        assert await one.lets_in(one.issuer.token("api://desk")) == Principal("corp:alice")
        assert one.issuer.asked == ["/jwks"]
