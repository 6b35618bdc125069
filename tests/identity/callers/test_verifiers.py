"""Who is let in, and by what."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio
import pytest
from starlette.datastructures import Headers

from bridge.errors import UsageError
from bridge.http.request_checks import RefusedError
from bridge.identity.callers.principals import ANONYMOUS, LOCAL, Principal
from bridge.identity.callers.verifiers import Access, Credential, Scheme, WrongCredential, verifiers_of

ALICE, BOB = Principal("alice"), Principal("bob")
ACCESS = Access(verifiers_of([Credential(ALICE, "token-a"), Credential(BOB, "token-b")]))


@pytest.mark.proves("web-auth")
@pytest.mark.parametrize(
    ("authorization", "principal"),
    [("Bearer token-a", ALICE), ("bearer token-b", BOB), ("BEARER   token-a ", ALICE)],
)
async def test_a_token_stands_for_its_principal(authorization: str, principal: Principal) -> None:
    assert ACCESS.needs_token
    assert await ACCESS.principal_of({"authorization": authorization}) == principal


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
async def test_without_a_known_token_the_answer_says_which_scheme(
    authorization: str | None, said: str
) -> None:
    with pytest.raises(RefusedError, match=said) as refused:
        await ACCESS.principal_of({"authorization": authorization} if authorization is not None else {})
    is_wrong = (authorization or "").startswith("Bearer token")  # RFC 6750 section 3.1
    challenge = 'Bearer realm="mcp-a2a"' + (', error="invalid_token"' if is_wrong else "")
    assert (refused.value.status, refused.value.headers) == (401, {"WWW-Authenticate": challenge})


@pytest.mark.proves("web-auth")
@pytest.mark.parametrize("everyone", [LOCAL, ANONYMOUS])
async def test_without_credentials_everyone_is_one_principal(everyone: Principal) -> None:
    access = Access([], everyone)
    assert not access.needs_token
    assert access.schemes == ()
    given: list[dict[str, str]] = [
        {},
        {"authorization": "Bearer x"},
        {"authorization": "odd"},
        {"x-api-key": "x"},
    ]
    assert {await access.principal_of(headers) for headers in given} == {everyone}


KEYS = Access(
    verifiers_of(
        [
            Credential(ALICE, "key-a", Scheme.API_KEY),
            Credential(ALICE, "key-b", Scheme.API_KEY),
            Credential(BOB, "token-b"),
            Credential(BOB, "key-a"),
        ]
    )
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
async def test_each_secret_stands_for_its_principal_in_its_own_header(
    headers: dict[str, str], principal: Principal
) -> None:
    assert KEYS.schemes == (Scheme.BEARER, Scheme.API_KEY)
    assert await KEYS.principal_of(Headers(headers)) == principal


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
async def test_a_request_is_accepted_only_if_all_its_secrets_agree(
    headers: dict[str, str], said: str
) -> None:
    with pytest.raises(RefusedError, match=said) as refused:
        await KEYS.principal_of(Headers(headers))
    is_wrong = (
        headers.get("authorization", "").startswith("Bearer") and "Bearer token-b" not in headers.values()
    )
    challenge = (
        BOTH_CHALLENGES.replace('a2a"', 'a2a", error="invalid_token"', 1) if is_wrong else BOTH_CHALLENGES
    )
    assert (refused.value.status, refused.value.headers) == (401, {"WWW-Authenticate": challenge})


@pytest.mark.proves("web-auth")
async def test_a_header_of_a_scheme_that_is_not_accepted_is_ignored() -> None:
    keys = Access(verifiers_of([Credential(ALICE, "key", Scheme.API_KEY)]))
    assert await keys.principal_of({"x-api-key": "key", "authorization": "Basic for-a-proxy"}) == ALICE
    assert await ACCESS.principal_of({"x-api-key": "other", "authorization": "Bearer token-a"}) == ALICE
    with pytest.raises(RefusedError) as refused:
        await keys.principal_of({"authorization": "Bearer key"})
    assert refused.value.headers == {"WWW-Authenticate": 'ApiKey realm="mcp-a2a", header="X-API-Key"'}


@pytest.mark.proves("web-auth")
async def test_the_accepted_callers_can_change_while_access_is_in_use() -> None:
    access = Access(verifiers_of([Credential(ALICE, "one")]))
    access.update(verifiers_of([Credential(BOB, "two", Scheme.API_KEY)]))
    assert access.schemes == (Scheme.API_KEY,)
    assert await access.principal_of({"x-api-key": "two"}) == BOB
    with pytest.raises(RefusedError):
        await access.principal_of({"authorization": "Bearer one"})
    access.update([], ANONYMOUS)
    assert await access.principal_of({}) == ANONYMOUS


async def test_a_secret_of_two_principals_is_refused_and_changes_nothing() -> None:
    access = Access(verifiers_of([Credential(ALICE, "one")]))
    with pytest.raises(UsageError, match="bob and carol have the same secret"):
        access.update(verifiers_of([Credential(BOB, "two"), Credential(Principal("carol"), "two")]))
    assert await access.principal_of({"authorization": "Bearer one"}) == ALICE
    assert Access(verifiers_of([Credential(BOB, "two"), Credential(BOB, "two")])).needs_token


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="everyone"):
        Credential(ALICE, "")


def test_a_repr_shows_no_token() -> None:
    assert "token-a" not in repr(Credential(ALICE, "token-a"))


def signed(name: str) -> dict[str, str]:
    """The header of a token that says whose it is, and is signed as it should be."""
    return {"authorization": f"Bearer {name}.{hashlib.sha256(name.encode()).hexdigest()}"}


@dataclass
class Signatures:
    """Knows tokens that are signed, once it has fetched the keys."""

    scheme = Scheme.BEARER
    issuer = metadata = None
    is_declared = True
    is_asked: anyio.Event = field(default_factory=anyio.Event)
    has_keys: anyio.Event = field(default_factory=anyio.Event)

    async def verify(self, headers: Mapping[str, str], face: str) -> Principal | WrongCredential | None:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        name, dot, signature = token.partition(".")
        if not dot:
            return None
        self.is_asked.set()
        await self.has_keys.wait()
        if signature != hashlib.sha256(name.encode()).hexdigest():
            return WrongCredential("is not signed by anyone who is trusted")
        return Principal(name, skills=(f"{name}/*",))


@pytest.mark.proves("web-auth")
async def test_a_verifier_that_waits_works_beside_verifiers_of_secrets() -> None:
    signatures = Signatures()
    access = Access([signatures, *verifiers_of([Credential(ALICE, "token-a"), Credential(BOB, "one.two")])])
    assert await access.principal_of({"authorization": "Bearer token-a"}) == ALICE
    found: list[Principal] = []

    async def ask() -> None:
        found.append(await access.principal_of(signed("carol")))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await signatures.is_asked.wait()
        assert found == []
        signatures.has_keys.set()
    assert found == [Principal("carol", skills=("carol/*",))]
    assert await access.principal_of({"authorization": "Bearer one.two"}) == BOB
    for headers, said in (
        ({"authorization": "Bearer token-b"}, "is not known"),
        ({"authorization": "Bearer carol.x"}, "is not signed by anyone who is trusted"),
        ({}, "is missing"),
    ):
        with pytest.raises(RefusedError, match=f"^A bearer token is needed and {said}$"):
            await access.principal_of(headers)


@pytest.mark.proves("web-auth")
async def test_two_accepted_credentials_must_belong_to_one_principal() -> None:
    signatures = Signatures()
    signatures.has_keys.set()
    keys = verifiers_of([Credential(ALICE, "key", Scheme.API_KEY)])
    access = Access([*keys, signatures])
    assert access.schemes == (Scheme.BEARER, Scheme.API_KEY)
    with pytest.raises(RefusedError, match="is not known") as refused:
        await access.principal_of({"x-api-key": "key", **signed("bob")})
    assert refused.value.headers == {"WWW-Authenticate": BOTH_CHALLENGES}
    with pytest.raises(RefusedError, match="is not signed"):
        await access.principal_of({"x-api-key": "key", "authorization": "Bearer bob.x"})
    assert await access.principal_of(signed("bob")) == Principal("bob", skills=("bob/*",))


@pytest.mark.proves("web-auth")
async def test_a_principal_removed_while_a_verifier_waits_is_refused() -> None:
    signatures = Signatures()
    access = Access([signatures])

    async def take_away() -> None:
        await signatures.is_asked.wait()
        access.update(verifiers_of([Credential(ALICE, "token-a")]))
        signatures.has_keys.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_away)
        with pytest.raises(RefusedError, match="is not known"):
            await access.principal_of(signed("carol"))
