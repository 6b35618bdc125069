"""Who is let in, and by what."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from bridge.access.principals import ANONYMOUS, LOCAL, Principal
from bridge.access.verifiers import Access, Credential, Scheme
from bridge.errors import UsageError
from bridge.web import RefusedError

ALICE, BOB = Principal("alice"), Principal("bob")
ACCESS = Access([Credential(ALICE, "token-a"), Credential(BOB, "token-b")])


@pytest.mark.proves("web-auth")
@pytest.mark.parametrize(
    ("authorization", "principal"),
    [("Bearer token-a", ALICE), ("bearer token-b", BOB), ("BEARER   token-a ", ALICE)],
)
def test_a_token_stands_for_its_principal(authorization: str, principal: Principal) -> None:
    assert ACCESS.needs_token
    assert ACCESS.principal_of({"authorization": authorization}) == principal


@pytest.mark.proves("web-auth")
@pytest.mark.parametrize(
    ("authorization", "said"),
    [
        (None, "missing"),
        ("", "missing"),
        ("Bearer", "not known"),
        ("Bearer ", "not known"),
        ("Bearer token-A", "not known"),
        ("Bearer token-a token-b", "not known"),
        ("Basic token-a", "not known"),
        ("token-a", "not known"),
    ],
)
def test_without_a_known_token_the_answer_says_which_scheme(authorization: str | None, said: str) -> None:
    with pytest.raises(RefusedError, match=said) as refused:
        ACCESS.principal_of({"authorization": authorization} if authorization is not None else {})
    assert (refused.value.status, refused.value.headers) == (
        401,
        {"WWW-Authenticate": 'Bearer realm="mcp-a2a"'},
    )


@pytest.mark.proves("web-auth")
@pytest.mark.parametrize("everyone", [LOCAL, ANONYMOUS])
def test_without_credentials_everyone_is_one_principal(everyone: Principal) -> None:
    access = Access([], everyone)
    assert not access.needs_token
    assert access.schemes == ()
    given: list[dict[str, str]] = [
        {},
        {"authorization": "Bearer x"},
        {"authorization": "odd"},
        {"x-api-key": "x"},
    ]
    assert {access.principal_of(headers) for headers in given} == {everyone}


KEYS = Access(
    [
        Credential(ALICE, "key-a", Scheme.API_KEY),
        Credential(ALICE, "key-b", Scheme.API_KEY),
        Credential(BOB, "token-b"),
        Credential(BOB, "key-a"),
    ]
)
BOTH_CHALLENGES = 'Bearer realm="mcp-a2a", ApiKey realm="mcp-a2a", header="X-API-Key"'


@pytest.mark.proves("web-auth")
@pytest.mark.parametrize(
    ("headers", "principal"),
    [
        ({"x-api-key": "key-a"}, ALICE),
        ({"x-api-key": " key-b "}, ALICE),
        ({"authorization": "Bearer token-b"}, BOB),
        ({"authorization": "Bearer key-a"}, BOB),
        ({"x-api-key": "key-a", "authorization": ""}, ALICE),
    ],
)
def test_each_secret_stands_for_its_principal_in_its_own_header(
    headers: dict[str, str], principal: Principal
) -> None:
    assert KEYS.schemes == (Scheme.BEARER, Scheme.API_KEY)
    assert KEYS.principal_of(Headers(headers)) == principal


@pytest.mark.proves("web-auth", "mcp-elicit-own-login")
@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, "A bearer token or an API key \\(X-API-Key\\) is needed and is missing"),
        ({"x-api-key": ""}, "not known"),
        ({"x-api-key": "token-b"}, "not known"),
        ({"x-api-key": "Bearer key-a"}, "not known"),
        ({"authorization": "Bearer key-b"}, "not known"),
        ({"authorization": "ApiKey key-a"}, "not known"),
        ({"x-api-key": "key-a", "authorization": "Bearer other"}, "not known"),
        ({"x-api-key": "other", "authorization": "Bearer token-b"}, "not known"),
        ({"x-api-key": "key-a", "authorization": "Bearer token-b"}, "not known"),
    ],
)
def test_a_request_is_let_in_only_by_secrets_that_agree(headers: dict[str, str], said: str) -> None:
    with pytest.raises(RefusedError, match=said) as refused:
        KEYS.principal_of(Headers(headers))
    assert (refused.value.status, refused.value.headers) == (401, {"WWW-Authenticate": BOTH_CHALLENGES})


@pytest.mark.proves("web-auth")
def test_a_header_of_a_scheme_that_is_not_accepted_is_passed_over() -> None:
    keys = Access([Credential(ALICE, "key", Scheme.API_KEY)])
    assert keys.principal_of({"x-api-key": "key", "authorization": "Basic for-a-proxy"}) == ALICE
    assert ACCESS.principal_of({"x-api-key": "other", "authorization": "Bearer token-a"}) == ALICE
    with pytest.raises(RefusedError) as refused:
        keys.principal_of({"authorization": "Bearer key"})
    assert refused.value.headers == {"WWW-Authenticate": 'ApiKey realm="mcp-a2a", header="X-API-Key"'}


@pytest.mark.proves("web-auth")
def test_whoever_is_let_in_can_be_changed_while_it_is_used() -> None:
    access = Access([Credential(ALICE, "one")])
    access.update([Credential(BOB, "two", Scheme.API_KEY)])
    assert access.schemes == (Scheme.API_KEY,)
    assert access.principal_of({"x-api-key": "two"}) == BOB
    with pytest.raises(RefusedError):
        access.principal_of({"authorization": "Bearer one"})
    access.update([], ANONYMOUS)
    assert access.principal_of({}) == ANONYMOUS


def test_a_secret_of_two_principals_is_refused_and_changes_nothing() -> None:
    access = Access([Credential(ALICE, "one")])
    with pytest.raises(UsageError, match="bob and carol have the same secret"):
        access.update([Credential(BOB, "two"), Credential(Principal("carol"), "two")])
    assert access.principal_of({"authorization": "Bearer one"}) == ALICE
    assert Access([Credential(BOB, "two"), Credential(BOB, "two")]).needs_token


def test_an_empty_secret_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="everyone"):
        Credential(ALICE, "")


def test_a_token_does_not_stand_in_a_repr() -> None:
    assert "token-a" not in repr(Credential(ALICE, "token-a"))
