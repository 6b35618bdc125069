"""The issuers that the tests trust: that they do what `oidc_provider.py` promises to tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jwt
import pytest

from tests.peers.oidc_provider import (
    ASSERTION,
    CALLBACK,
    EXCHANGE,
    TOKEN_TYPE,
    AuthorizationRefused,
    Browser,
    OidcProvider,
)

pytestmark = pytest.mark.outside

Issuers = Mapping[str, OidcProvider]
DESK, TOOLS = "https://desk.example.com/mcp", "https://tools.example.com/mcp"
LOGIN = {"grant_types": ["authorization_code", "refresh_token"], "token_endpoint_auth_method": "none"}


def claims_of(token: str) -> dict[str, Any]:
    """The claims of a token that matter here."""
    found = jwt.decode(token, options={"verify_signature": False})
    return {name: found[name] for name in ("iss", "sub", "aud", "scope", "client_id", "act") if name in found}


async def test_a_client_gets_tokens_for_itself(issuers: Issuers) -> None:
    corp = issuers["corp"]
    client = await corp.machine(access_token_seconds=7)
    answer = await client.grant("client_credentials", resource=DESK, scope="read other")
    assert answer["expires_in"] == 7
    assert jwt.get_unverified_header(answer["access_token"])["typ"] == "at+jwt"
    assert claims_of(answer["access_token"]) == {
        "iss": corp.url,
        "sub": client.id,
        "aud": DESK,
        "scope": "read",
        "client_id": client.id,
    }
    opaque = await corp.machine(access_token_format="opaque")
    assert "." not in await opaque.token(resource=DESK)
    with pytest.raises(AuthorizationRefused, match="invalid_target"):
        await client.token(resource="https://forbidden.example.com")


async def test_a_person_logs_in_and_a_refresh_token_serves_once(issuers: Issuers) -> None:
    corp = issuers["corp"]
    client = await corp.register(**LOGIN)
    answer = await client.login(Browser("alice"), DESK, "read write")
    named = {"iss": corp.url, "sub": "alice", "aud": DESK, "client_id": client.id}
    assert claims_of(answer["access_token"]) == {**named, "scope": "read write"}
    assert claims_of(await client.token_of("bob", DESK, "read"))["sub"] == "bob"
    assert "scope" not in claims_of(await client.token_of("bob", DESK))
    again = await client.grant("refresh_token", refresh_token=answer["refresh_token"])
    assert claims_of(again["access_token"]) == {**named, "scope": "read write"}
    for spent in (answer["refresh_token"], again["refresh_token"]):
        with pytest.raises(AuthorizationRefused, match="invalid_grant"):
            await client.grant("refresh_token", refresh_token=spent)
    assert [event["event"] for event in await corp.seen(client.id)] == [
        "registration",
        *["authorization.success", "grant.success"] * 3,
        "grant.success",
        "grant.revoked",
        "grant.error",
        "grant.error",
    ]


async def test_a_person_may_decline_and_nobody_cannot_log_in(issuers: Issuers) -> None:
    client = await issuers["corp"].register(**LOGIN)
    with pytest.raises(AuthorizationRefused, match="access_denied"):
        await client.login(Browser("alice", approves=False), DESK)
    with pytest.raises(AuthorizationRefused, match="nobody is at this browser"):
        await client.login(Browser(None), DESK)


async def test_a_token_is_exchanged_for_one_of_another_audience_with_no_more_scope(issuers: Issuers) -> None:
    corp, partner = issuers["corp"], issuers["partner"]
    person = await corp.register(**LOGIN)
    subject = {
        "subject_token": await person.token_of("alice", DESK, "read"),
        "subject_token_type": f"{TOKEN_TYPE}jwt",
    }
    for issuer in (corp, partner):
        bridge = await issuer.machine()
        with pytest.raises(AuthorizationRefused, match="grant type is not allowed"):
            await bridge.grant(EXCHANGE, **subject, resource=TOOLS)
        bridge = await issuer.register(grant_types=[EXCHANGE], redirect_uris=[], response_types=[])
        answer = await bridge.grant(EXCHANGE, **subject, resource=TOOLS, scope="read write")
        assert answer["issued_token_type"] == f"{TOKEN_TYPE}access_token"
        assert claims_of(answer["access_token"]) == {
            "iss": issuer.url,
            "sub": "alice",
            "aud": TOOLS,
            "scope": "read",
            "client_id": bridge.id,
            "act": {"sub": bridge.id},
        }
        with pytest.raises(AuthorizationRefused, match="invalid_grant"):
            await bridge.grant(EXCHANGE, **{**subject, "subject_token": "e30.e30.e30"}, resource=TOOLS)


async def test_an_id_jag_of_one_issuer_is_a_token_of_the_other(issuers: Issuers) -> None:
    corp, partner = issuers["corp"], issuers["partner"]
    there = await partner.register(grant_types=[ASSERTION], redirect_uris=[], response_types=[])
    here = await corp.register(
        grant_types=[EXCHANGE], redirect_uris=[], response_types=[], id_jag_client_id=there.id
    )
    person = await corp.register(**LOGIN)
    asked = {
        "subject_token": await person.token_of("alice", DESK, "read"),
        "subject_token_type": f"{TOKEN_TYPE}access_token",
        "requested_token_type": f"{TOKEN_TYPE}id-jag",
        "resource": TOOLS,
        "scope": "read",
    }
    jag = await here.grant(EXCHANGE, **asked, audience=partner.url)
    assert (jag["issued_token_type"], jag["token_type"]) == (f"{TOKEN_TYPE}id-jag", "N_A")
    answer = await there.grant(ASSERTION, assertion=jag["access_token"])
    assert claims_of(answer["access_token"]) == {
        "iss": partner.url,
        "sub": "alice",
        "aud": TOOLS,
        "scope": "read",
        "client_id": there.id,
    }
    elsewhere = await here.grant(EXCHANGE, **asked, audience="https://else.example.com")
    for wrong in (elsewhere["access_token"], asked["subject_token"]):
        with pytest.raises(AuthorizationRefused, match="invalid_grant"):
            await there.grant(ASSERTION, assertion=wrong)


async def test_a_client_that_registered_with_one_scope_may_ask_for_another(issuers: Issuers) -> None:
    client = await issuers["corp"].register(**LOGIN, scope="tools:read")
    async with Browser("alice") as browser:
        came = await browser.redirected(
            f"{client.issuer.url}/auth?{'&'.join(STEP_UP)}&client_id={client.id}", CALLBACK
        )
    assert came["iss"] == client.issuer.url
    assert "code" in came


STEP_UP = (
    "response_type=code",
    f"redirect_uri={CALLBACK}",
    f"resource={DESK}",
    "scope=tools:read%20tools:write",
    "code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
    "code_challenge_method=S256",
)
