"""What an HTTP face checks before it looks at a protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from starlette.datastructures import Headers

from bridge.errors import UsageError
from bridge.web import (
    ANONYMOUS,
    LOCAL,
    Access,
    Credential,
    Place,
    Principal,
    RefusedError,
    Scheme,
    body_of,
    host_name,
    is_loopback,
    may_use,
    require_json,
)

PLACE = Place("https://bridge.example.com/base", frozenset({"other.example", "0.0.0.0"}))
BARE = Place()
ALICE, BOB = Principal("alice"), Principal("bob")
ACCESS = Access([Credential(ALICE, "token-a"), Credential(BOB, "token-b")])


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
def test_a_host_that_is_ours_or_in_digits_is_let_in(host: str) -> None:
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
def test_a_host_that_is_not_ours_is_misdirected(host: str) -> None:
    with pytest.raises(RefusedError) as refused:
        PLACE.require_own(Headers({"host": host}))
    assert refused.value.status == 421


def test_without_a_host_nothing_is_let_in() -> None:
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
def test_a_web_page_is_let_in_only_when_it_is_our_own(origin: str, let_in: bool) -> None:
    headers = Headers({"host": "localhost:8080", "origin": origin})
    if let_in:
        PLACE.require_own(headers)
    else:
        with pytest.raises(RefusedError) as refused:
            PLACE.require_own(headers)
        assert refused.value.status == 403


@pytest.mark.proves("web-host")
@pytest.mark.parametrize("name", ["host", "Origin", "authorization", "x-api-key"])
def test_a_header_that_decides_who_is_let_in_is_sent_once(name: str) -> None:
    once = [(b"host", b"localhost"), (b"origin", b"http://localhost")]
    twice = [(name.encode().lower(), b"localhost"), (name.encode().lower(), b"localhost")]
    BARE.require_own(Headers(raw=once))
    with pytest.raises(RefusedError, match=f"The header {name.lower()} is sent more than once") as refused:
        BARE.require_own(Headers(raw=[*once, *twice]))
    assert refused.value.status == 400


def scope(client: str | None) -> dict[str, Any]:
    return {"scheme": "http", "client": (client, 5) if client else None}


FORWARDED = {"x-forwarded-proto": "https", "x-forwarded-host": "other.example", "x-forwarded-prefix": "/a2a/"}
BASES: list[tuple[Place, str | None, dict[str, str], str]] = [
    (PLACE, "127.0.0.1", FORWARDED, "https://bridge.example.com/base"),
    (BARE, "127.0.0.1", {}, "http://localhost:8080"),
    (Place(hosts=frozenset({"other.example"})), "127.0.0.1", FORWARDED, "https://other.example/a2a"),
    (Place(hosts=frozenset({"other.example"})), "::1", FORWARDED, "https://other.example/a2a"),
    (Place(hosts=frozenset({"other.example"})), "192.168.1.5", FORWARDED, "http://localhost:8080"),
    (Place(hosts=frozenset({"other.example"})), None, FORWARDED, "http://localhost:8080"),
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
def test_the_base_is_the_public_one_or_what_a_proxy_on_loopback_forwards(
    place: Place, client: str | None, headers: dict[str, str], base: str
) -> None:
    assert place.base_url(scope(client), Headers({"host": "localhost:8080", **headers})) == base


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


USES: list[tuple[tuple[str, ...], str, str, bool]] = [
    (("*",), "devtools", "anything/at all", True),
    ((), "devtools", "echo", False),
    (("create_*",), "devtools", "create_issue", True),
    (("create_*",), "", "create_issue", True),
    (("create_*",), "devtools", "delete_issue", False),
    (("create_*",), "devtools", "Create_issue", False),
    (("create_*", "echo"), "devtools", "echo", True),
    (("devtools/create_*",), "devtools", "create_issue", True),
    (("devtools/create_*",), "weather", "create_issue", False),
    (("devtools/create_*",), "", "create_issue", False),
    (("devtools/create_*",), "weather", "devtools/create_issue", False),
    (("devtools/*",), "devtools", "create_issue", True),
    (("dev*/echo",), "devtools", "echo", True),
    (("*/issue/create",), "devtools", "issue/create", True),
    (("devtools/issue/create",), "devtools", "issue/create", True),
    (("issue/create",), "devtools", "issue/create", False),
    (("admin*",), "devtools", "admin/reset", True),
    (("[ab]dd",), "devtools", "add", True),
]


@pytest.mark.proves("web-skills")
@pytest.mark.parametrize(("globs", "face", "skill", "may"), USES)
def test_a_principal_may_use_what_a_glob_names_in_that_face(
    globs: tuple[str, ...], face: str, skill: str, may: bool
) -> None:
    assert may_use(Principal("eve", skills=globs), face, skill) is may


@pytest.mark.proves("a2a-13.4-secrets")
def test_a_token_does_not_stand_in_a_repr() -> None:
    assert "token-a" not in repr(Credential(ALICE, "token-a"))


class Body:
    """A request's body, chunk by chunk, as a server hands it over."""

    def __init__(self, chunks: Sequence[bytes | None]) -> None:
        self.left = list(chunks)

    async def __call__(self) -> dict[str, Any]:
        chunk = self.left.pop(0)
        if chunk is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunk, "more_body": bool(self.left)}


@pytest.mark.parametrize("chunks", [[b"12345"], [b"12", b"", b"345"], [bytes([byte]) for byte in b"12345"]])
async def test_a_body_up_to_the_limit_is_read_whole(chunks: list[bytes]) -> None:
    assert await body_of(Body(chunks), Headers({"content-length": "5"}), 5) == b"12345"
    assert await body_of(Body([b""]), Headers({}), 0) == b""


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
        await body_of(body, Headers({"content-length": declared}), 5)
    assert refused.value.status == 413
    assert len(body.left) == unread


async def test_a_client_that_goes_away_in_its_body_is_refused() -> None:
    with pytest.raises(RefusedError) as refused:
        await body_of(Body([b"12", None]), Headers({}), 5)
    assert refused.value.status == 400


ACCEPTED = frozenset({"application/json", "application/a2a+json"})


@pytest.mark.parametrize(
    "given", ["application/json", "Application/JSON; charset=utf-8", "application/a2a+json "]
)
def test_json_is_taken(given: str) -> None:
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
def test_what_a_form_can_post_is_not_taken(given: str) -> None:
    with pytest.raises(RefusedError, match="application/a2a\\+json or application/json") as refused:
        require_json(Headers({"content-type": given}), ACCEPTED)
    assert refused.value.status == 415


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("x", False),
    ],
)
def test_loopback_is_this_machines(host: str, loopback: bool) -> None:
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
