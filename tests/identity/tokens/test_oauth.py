"""How the bridge gets access tokens as itself, and what an authorization server can do wrong."""

from __future__ import annotations

import math
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.errors import ConfigError, UsageError, leaf_of
from bridge.http.client import PeerAuth, lacked_scopes
from bridge.identity.tokens.oauth import REFUSED_SECONDS, ClientToken, TokenCredentials, bearer_credentials
from bridge.identity.tokens.token_endpoint import (
    ANSWER_BYTES,
    AccessToken,
    OAuthClient,
    TokenError,
    access_token_in,
)
from bridge.mcp.client.transports.streamable_http import HttpTarget
from bridge.notices import Notice, TokenListener, TokenNotice
from tests.support.authorization_server import METADATA, AuthorizationServer, TokenRequest
from tests.support.limits import url_at
from tests.support.mcp_wire import LEGACY
from tests.support.recording_server import Got, RecordingServer
from tests.support.running import config_for, listening, wrapped

SECRET = "s3cret/+"


def client_at(issuer: str, **changes: Any) -> OAuthClient:
    base = OAuthClient(issuer, "bridge", SECRET, "basic", ("read", "write"), "https://tools.example/mcp")
    return replace(base, **changes)


@asynccontextmanager
async def source_at(server: AuthorizationServer, **changes: Any) -> AsyncIterator[TokenCredentials]:
    with anyio.fail_after(30):
        async with server.serve() as issuer:
            yield bearer_credentials(ClientToken(client_at(issuer, **changes), 20), {})


async def refusal(server: AuthorizationServer, **changes: Any) -> str:
    """Why no token could be had."""
    async with source_at(server, **changes) as source:
        with pytest.raises(TokenError) as caught:
            await source()
    assert SECRET not in str(caught.value)
    return str(caught.value).replace(server.issuer, "ISSUER")


FORM = {"grant_type": "client_credentials", "scope": "read write", "resource": "https://tools.example/mcp"}


async def test_a_token_is_requested_with_the_secret_in_the_header() -> None:
    server = AuthorizationServer()
    async with source_at(server) as source:
        shown = await source()
    assert shown.headers == {"Authorization": "Bearer token-1"}
    # RFC 6749 section 2.3.1: both are form-encoded before they are joined.
    assert server.asked == [TokenRequest(FORM, "Basic YnJpZGdlOnMzY3JldCUyRiUyQg==")]


async def test_a_token_is_requested_with_the_secret_in_the_body() -> None:
    server = AuthorizationServer()
    async with source_at(server, method="post", resource="", scopes=()) as source:
        await source()
    form = {"grant_type": "client_credentials", "client_id": "bridge", "client_secret": SECRET}
    assert server.asked == [TokenRequest(form, None)]


async def test_a_token_is_requested_with_an_assertion_for_the_issuer() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    server = AuthorizationServer()
    async with source_at(server, method="private_key_jwt", secret=pem) as source:
        await source()
    (asked,) = server.asked
    claims = jwt.decode(
        asked.form["client_assertion"], key.public_key(), algorithms=["ES256"], audience=server.issuer
    )
    assert (claims["iss"], claims["sub"], claims["exp"] - claims["iat"]) == ("bridge", "bridge", 60)


async def test_a_token_is_requested_with_the_current_jwt_of_the_platform(tmp_path: Path) -> None:
    server, file = AuthorizationServer(), tmp_path / "token"
    async with source_at(server, secret="", method="none", platform_jwt=file) as source:
        for jwt_then in ("first.jwt.is", "second.jwt.is"):
            file.write_text(f"{jwt_then}\n")
            source.refused(await source())
    assert [asked.form for asked in server.asked] == [
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "assertion": jwt_then,
            "client_id": "bridge",
            "scope": "read write",
            "resource": "https://tools.example/mcp",
        }
        for jwt_then in ("first.jwt.is", "second.jwt.is")
    ]
    assert [asked.authorization for asked in server.asked] == [None, None]


async def test_a_jwt_of_the_platform_authenticates_a_client(tmp_path: Path) -> None:
    server = AuthorizationServer()
    (file := tmp_path / "token").write_text("a.jwt.is")
    async with source_at(server, secret="", method="platform_jwt", platform_jwt=file) as source:
        await source()
    assert [asked.form for asked in server.asked] == [
        FORM
        | {
            "client_id": "bridge",
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            "client_assertion": "a.jwt.is",
        }
    ]


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (None, "the JWT of the platform cannot be read: {}: No such file or directory"),
        (b"", "{} holds no JWT"),
        (b"s3cret/+", "{} holds no JWT"),
        (b"a.b.c\nd.e.f", "{} holds no JWT"),
        (
            b"a.b." + b"c" * 65_536,
            "the JWT of the platform cannot be read: {}: it is larger than 65,536 bytes, the most that is read",
        ),
    ],
    ids=["missing", "empty", "another secret", "two", "huge"],
)
async def test_a_file_without_a_jwt_of_the_platform_is_reported_and_nothing_is_sent(
    held: bytes | None, words: str, tmp_path: Path
) -> None:
    server, file = AuthorizationServer(), tmp_path / "token"
    if held is not None:
        file.write_bytes(held)
    assert await refusal(server, method="none", platform_jwt=file) == words.format(file)
    assert server.asked == []


def test_a_key_that_cannot_sign_is_refused_at_the_start() -> None:
    with pytest.raises(UsageError, match="the private key of the client bridge cannot sign"):
        ClientToken(client_at("https://login.example", method="private_key_jwt", secret="no key"), 1)


async def test_callers_at_the_same_time_share_one_request_for_a_token() -> None:
    server = AuthorizationServer()
    async with source_at(server) as source, anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(source)
    assert len(server.asked) == 1


async def test_callers_at_the_same_time_share_one_refusal() -> None:
    server = AuthorizationServer(token=lambda _: JSONResponse({"error": "invalid_client"}, 401))
    refusals: list[str] = []

    async def ask(source: TokenCredentials) -> None:
        with pytest.raises(TokenError) as caught:
            await source()
        refusals.append(str(caught.value))

    async with source_at(server) as source, anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(ask, source)
    assert len(refusals) == 20
    assert len(set(refusals)) == len(server.asked) == 1


async def test_a_refusal_is_remembered_for_a_moment_only() -> None:
    now, server = [100.0], AuthorizationServer(token=lambda _: Response(status_code=503))
    async with server.serve() as issuer:
        source = ClientToken(client_at(issuer), 20, now=lambda: now[0])
        for _ in range(3):
            with pytest.raises(TokenError):
                await source()
        assert len(server.asked) == 1
        server.token = None
        now[0] += REFUSED_SECONDS
        assert (await source()).value == "token-2"


async def test_a_token_that_cannot_be_replaced_early_serves_to_its_end() -> None:
    now, server = [0.0], AuthorizationServer(lives_seconds=100)
    async with server.serve() as issuer:
        source = ClientToken(client_at(issuer), 20, now=lambda: now[0])
        first = await source()
        server.token = lambda _: Response(status_code=503)
        now[0] = 71
        assert await source() is first
        now[0] = 100
        with pytest.raises(TokenError, match="answered HTTP 503"):
            await source()
    assert len(server.asked) == 3


async def test_a_caller_that_leaves_while_it_asks_is_no_refusal_for_the_others() -> None:
    server, asked, may_answer = AuthorizationServer(), anyio.Event(), anyio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/token" and not asked.is_set():
            asked.set()
            await may_answer.wait()
        await server(scope, receive, send)

    given: list[AccessToken] = []

    async def stay(source: ClientToken) -> None:
        given.append(await source())

    with anyio.fail_after(30):
        async with listening(slow) as server.issuer, anyio.create_task_group() as tasks:
            source = ClientToken(client_at(server.issuer), 20)
            async with anyio.create_task_group() as leaving:
                leaving.start_soon(source)
                await asked.wait()
                tasks.start_soon(stay, source)
                leaving.cancel_scope.cancel()
            may_answer.set()
    assert [one.value[:6] for one in given] == ["token-"]


async def test_a_token_without_a_known_end_is_kept_until_it_is_refused() -> None:
    server = AuthorizationServer(lives_seconds=None)
    async with source_at(server) as source:
        first = await source()
        assert await source() is first
        source.refused(first)
        second = await source()
        source.refused(first)  # by another caller, which was shown it too
        assert await source() is second
    assert server.paths == [METADATA, "/token", "/token"]


@pytest.mark.parametrize(
    "there_now", [Response("<p>Gone", 404), Response("<p>Away", 502), RedirectResponse("/new")]
)
async def test_a_token_endpoint_that_moves_is_found_again(there_now: Response) -> None:
    now, server = [0.0], AuthorizationServer()
    with anyio.fail_after(30):
        async with server.serve() as issuer:
            source = ClientToken(client_at(issuer), 20, lambda: now[0])
            source.refused(await source())
            server.token = lambda server: there_now if server.paths[-1] == "/token" else server.granted()
            server.metadata["token_endpoint"] = f"{issuer}/moved/token"
            with pytest.raises(TokenError, match=f"answered HTTP {there_now.status_code} instead of a token"):
                await source()
            now[0] += REFUSED_SECONDS
            assert (await source()).value == "token-3"
    assert server.paths == [METADATA, "/token", "/token", METADATA, "/moved/token"]


async def test_a_token_endpoint_that_refuses_is_not_looked_up_again() -> None:
    now, server = [0.0], AuthorizationServer(token=lambda _: JSONResponse({"error": "invalid_scope"}, 400))
    with anyio.fail_after(30):
        async with server.serve() as issuer:
            source = ClientToken(client_at(issuer), 20, lambda: now[0])
            for _ in range(2):
                with pytest.raises(TokenError, match="invalid_scope"):
                    await source()
                now[0] += REFUSED_SECONDS
    assert server.paths == [METADATA, "/token", "/token"]


async def test_the_metadata_of_another_issuer_gets_no_secret() -> None:
    server = AuthorizationServer({"issuer": "https://evil.example"})
    assert await refusal(server) == (
        f"ISSUER{METADATA} is the metadata of another issuer: https://evil.example."
        " If this issuer is right, write `issuer` exactly like this"
    )
    assert server.asked == []


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("https://169.254.169.254/token", "leads to 169.254.169.254, a private address"),
        ("http://login.example/token", "no https:// URL"),
        ("https://user@login.example/token", "no https:// URL"),
        ("https://[/token", "that is not a URL"),
        (7, "names no token_endpoint"),
    ],
)
async def test_unsafe_metadata_gets_no_secret(endpoint: object, words: str) -> None:
    assert words in await refusal(AuthorizationServer({"token_endpoint": endpoint}))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            Response(b"x" * (ANSWER_BYTES + 1)),
            f"ISSUER{METADATA} answered with more than {ANSWER_BYTES} bytes",
        ),
        (
            RedirectResponse("https://evil.example/"),
            f"ISSUER has no metadata: ISSUER{METADATA} answered HTTP 307",
        ),
        (Response(b"[" * 90_000), f"ISSUER has no metadata: ISSUER{METADATA} answered HTTP 200, not JSON"),
        (Response(status_code=503), f"ISSUER has no metadata: ISSUER{METADATA} answered HTTP 503"),
    ],
)
async def test_a_document_that_is_no_metadata_gets_no_secret(said: Response, words: str) -> None:
    server = AuthorizationServer(said=lambda _: said)
    assert (await refusal(server)).startswith(words)
    assert server.asked == []


async def test_a_redirect_is_not_followed_with_a_secret() -> None:
    server = AuthorizationServer(token=lambda server: RedirectResponse(f"{server.issuer}/elsewhere", 307))
    assert await refusal(server) == "ISSUER answered HTTP 307 instead of a token"
    assert server.paths == [METADATA, "/token"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Response("no json"), "ISSUER answered HTTP 200 instead of a token"),
        (Response("x" * (ANSWER_BYTES + 1)), f"ISSUER/token answered with more than {ANSWER_BYTES} bytes"),
        (JSONResponse({}), "ISSUER answered without an access token that a header can carry"),
        (
            JSONResponse({"access_token": "a\nb", "token_type": "Bearer"}),
            "ISSUER answered without an access token that a header can carry",
        ),
        (
            JSONResponse({"access_token": "t", "token_type": "DPoP"}),
            "ISSUER gave a token that is not of the type Bearer",
        ),
        (
            JSONResponse({"error": "invalid_client"}, 401),
            "ISSUER gave no token to bridge: invalid_client. Check `client_id` and its secret or key",
        ),
        (
            JSONResponse({"error": "invalid_target", "error_description": "what\x1b?"}, 400),
            "ISSUER gave no token to bridge: invalid_target: what\\x1b?. Set `resource` to a name that the issuer"
            ' knows, or to "" to send none',
        ),
        (
            JSONResponse({"error": "invalid_scope"}, 400),
            "ISSUER gave no token to bridge: invalid_scope. Check `scopes`",
        ),
        (
            JSONResponse({"error": "unauthorized_client"}, 400),
            "ISSUER gave no token to bridge: unauthorized_client. Allow this client the grant at the issuer",
        ),
    ],
)
async def test_an_answer_without_a_token_says_whose_fault_it_is(answer: Response, words: str) -> None:
    assert await refusal(AuthorizationServer(token=lambda _: answer)) == words


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (3600, 3600),
        (3600.5, 3600.5),
        ("3600", 3600),
        *((unsaid, math.inf) for unsaid in (0, -1, "", "soon", "nan", True, None, [60])),
        pytest.param(10**400, math.inf, id="more than a float holds"),
    ],
)
def test_a_token_lives_as_long_as_its_issuer_says_and_else_until_it_is_refused(
    said: Any, seconds: float
) -> None:
    answer = {"access_token": "t", "token_type": "bearer", "expires_in": said}
    assert access_token_in(answer, "https://login.example") == AccessToken("t", seconds)


async def test_a_silent_authorization_server_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        issuer = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TokenError, match=r"gave no token within 0\.05 s"):
            await ClientToken(client_at(issuer), 0.05)()


async def test_a_refused_token_is_replaced_once_and_never_sent_elsewhere() -> None:
    server = AuthorizationServer()
    seen: list[str | None] = []

    async def peer(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(Request(scope).headers.get("authorization"))
        await Response(status_code=401)(scope, receive, send)

    async with source_at(server) as source, httpx2.AsyncClient(transport=httpx2.ASGITransport(peer)) as http:
        auth = PeerAuth("https://tools.example/mcp", source)
        assert (await http.post("https://tools.example/mcp", auth=auth)).status_code == 401
        await http.post("https://other.example/mcp", auth=auth)
    assert seen == ["Bearer token-1", "Bearer token-2", None]


def scope_peer(server: AuthorizationServer, needs: str, seen: list[str | None]) -> ASGIApp:
    """A peer that misses a scope in each token that was not asked for with it."""

    async def peer(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(Request(scope).headers.get("authorization"))
        challenge = f'Bearer error="insufficient_scope", scope="{needs}"'
        has_it = set(needs.split()) <= set(server.asked[-1].form.get("scope", "").split())
        refusal = Response(status_code=403, headers={"WWW-Authenticate": challenge})
        await (Response("done") if has_it else refusal)(scope, receive, send)

    return peer


async def test_a_peer_that_misses_scopes_gets_a_token_with_the_union_once_for_all_calls() -> None:
    server, seen = AuthorizationServer(), list[str | None]()
    peer = scope_peer(server, "write delete", seen)
    transport = httpx2.ASGITransport(peer)
    async with source_at(server) as source, httpx2.AsyncClient(transport=transport) as http:
        auth = PeerAuth("https://tools.example/mcp", source)
        answers = [await http.post("https://tools.example/mcp", auth=auth) for _ in range(2)]
    assert [answer.text for answer in answers] == ["done", "done"]
    assert seen == ["Bearer token-1", "Bearer token-2", "Bearer token-2"]
    assert [asked.form["scope"] for asked in server.asked] == ["read write", "read write delete"]


async def test_a_peer_that_misses_scopes_forever_is_not_asked_in_a_loop() -> None:
    server, seen = AuthorizationServer(), list[str | None]()

    async def peer(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(Request(scope).headers.get("authorization"))
        challenge = 'Bearer scope="admin", error="insufficient_scope"'
        await Response(status_code=403, headers={"WWW-Authenticate": challenge})(scope, receive, send)

    transport = httpx2.ASGITransport(peer)
    async with source_at(server) as source, httpx2.AsyncClient(transport=transport) as http:
        auth = PeerAuth("https://tools.example/mcp", source)
        statuses = [(await http.post("https://tools.example/mcp", auth=auth)).status_code for _ in range(3)]
    assert statuses == [403, 403, 403]
    assert seen == ["Bearer token-1", "Bearer token-2", "Bearer token-2", "Bearer token-2"]
    assert len(server.asked) == 2


async def test_a_token_stays_when_the_issuer_refuses_more_scopes() -> None:
    server, seen = AuthorizationServer(), list[str | None]()

    def granted(server: AuthorizationServer) -> Response:
        if "admin" in server.asked[-1].form["scope"]:
            return JSONResponse({"error": "invalid_scope"}, 400)
        return server.granted()

    server.token = granted

    async def peer(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(Request(scope).headers.get("authorization"))
        challenge = "Bearer error=insufficient_scope, scope=admin"
        await Response(status_code=403, headers={"WWW-Authenticate": challenge})(scope, receive, send)

    transport = httpx2.ASGITransport(peer)
    async with source_at(server) as source, httpx2.AsyncClient(transport=transport) as http:
        auth = PeerAuth("https://tools.example/mcp", source)
        statuses = [(await http.post("https://tools.example/mcp", auth=auth)).status_code for _ in range(2)]
        assert (await source()).headers == {"Authorization": "Bearer token-1"}
    assert (statuses, seen) == ([403, 403], ["Bearer token-1", "Bearer token-1"])
    assert [asked.form["scope"] for asked in server.asked] == ["read write", "read write admin"]


@pytest.mark.parametrize(
    ("status", "challenge", "lacked"),
    [
        (403, 'Bearer error="insufficient_scope", scope="a b a"', ["a", "b"]),
        (403, 'Basic realm="x", Bearer scope="a", error="insufficient_scope"', ["a"]),
        (403, 'Bearer error="insufficient_scope"', []),
        (403, 'Bearer error="invalid_token", scope="a"', []),
        (403, 'Bearer error_description="insufficient_scope", scope="a"', []),
        (401, 'Bearer error="insufficient_scope", scope="a"', []),
        (403, 'Bearer error="insufficient_scope", scope="a\\b \x7f c"', ["c"]),
        (403, f'Bearer error="insufficient_scope", scope="{"x" * 201} d"', ["d"]),
    ],
)
def test_the_scopes_that_a_peer_misses_are_read_from_its_challenge(
    status: int, challenge: str, lacked: list[str]
) -> None:
    response = httpx2.Response(status, headers={"WWW-Authenticate": challenge})
    assert list(lacked_scopes(response)) == lacked


async def test_a_tool_server_that_refuses_its_token_gets_a_new_token() -> None:
    server = AuthorizationServer()

    def listed(got: Got) -> Any:
        if got.headers["authorization"] == "Bearer token-1":
            return Response(status_code=401)
        return {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}

    tools = RecordingServer(LEGACY, answers={"tools/list": listed})
    with anyio.fail_after(30):
        async with server.serve() as issuer, tools.serve() as url:
            target = HttpTarget(
                url,
                oauth=client_at(issuer, resource=url),
                connect_seconds=20,
                result_limit_bytes=1 << 20,
                result_json_values=10_000,
            )
            async with wrapped(config_for(target)):
                pass
    assert [got.headers["authorization"] for got in tools.of("initialize")] == ["Bearer token-1"]
    assert [got.headers["authorization"] for got in tools.of("tools/list")] == [
        "Bearer token-1",
        "Bearer token-2",
    ]
    assert [asked.form["resource"] for asked in server.asked] == [url, url]
    assert SECRET not in repr(target)


async def test_a_tool_server_that_misses_a_scope_gets_a_wider_token() -> None:
    server = AuthorizationServer()
    challenge = 'Bearer error="insufficient_scope", scope="list"'

    def listed(got: Got) -> Any:
        if got.headers["authorization"] == "Bearer token-1":
            return Response("no", status_code=403, headers={"WWW-Authenticate": challenge})
        return {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}

    tools = RecordingServer(LEGACY, answers={"tools/list": listed})
    with anyio.fail_after(30):
        async with (
            server.serve() as issuer,
            tools.serve() as url,
            wrapped(config_for(url_at(url, oauth=client_at(issuer, resource=url)))),
        ):
            pass
    assert [got.headers["authorization"] for got in tools.of("tools/list")] == [
        "Bearer token-1",
        "Bearer token-2",
    ]
    assert [asked.form["scope"] for asked in server.asked] == ["read write", "read write list"]


async def test_the_authorization_servers_that_a_server_names_are_ignored() -> None:
    ours, evil = AuthorizationServer(), AuthorizationServer()
    tools = RecordingServer(LEGACY)
    with anyio.fail_after(30):
        async with ours.serve() as issuer, evil.serve() as elsewhere, tools.serve() as url:
            challenge = f'Bearer resource_metadata="{elsewhere}/prm", authorization_uri="{elsewhere}"'
            refused = Response(status_code=401, headers={"www-authenticate": challenge})
            tools.answers["initialize"] = lambda _: refused
            with pytest.raises(ExceptionGroup) as down:
                async with wrapped(config_for(url_at(url, oauth=client_at(issuer, resource=url)))):
                    raise AssertionError("it serves")
    assert "401" in str(leaf_of(down.value))
    shown = [got.headers.get("authorization") for got in tools.got]
    # What looks for a server elsewhere once it is refused shows nothing.
    assert [one for one in shown if one] == ["Bearer token-1", "Bearer token-2"]
    assert evil.paths == []


def test_a_file_says_how_a_tool_server_gets_its_token(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text("""
[tool_servers]
crm.url = "https://crm.example/mcp"
[tool_servers.crm.auth.oauth2]
grant = "client_credentials"
issuer = "https://login.example"
client_id = "bridge"
client_secret = { env = "SECRET" }
scopes = ["read"]
[tool_servers.hrm]
url = "https://hrm.example/mcp"
allow_private = true
[tool_servers.hrm.auth.oauth2]
grant = "client_credentials"
issuer = "https://login.example"
client_id = "b"
private_key = { env = "KEY" }
resource = ""
[tool_servers.cloud]
url = "https://cloud.example/mcp"
[tool_servers.cloud.auth.oauth2]
grant = "jwt_bearer"
issuer = "https://login.example"
assertion_file = "/var/run/token"
[tool_servers.entra]
url = "https://entra.example/mcp"
[tool_servers.entra.auth.oauth2]
grant = "client_credentials"
issuer = "https://login.example"
client_id = "b"
assertion_file = "token"
resource = ""
[tools_as_agent.desk]
from = ["crm", "hrm", "cloud", "entra"]
""")
    plan = plan_from_file(load(file, {"SECRET": "s3", "KEY": "pem"}))
    targets = [one.target for one in plan.servers.values() if isinstance(one.target, HttpTarget)]
    assert [target.oauth for target in targets] == [
        OAuthClient("https://login.example", "bridge", "s3", "basic", ("read",), "https://crm.example/mcp"),
        OAuthClient("https://login.example", "b", "pem", "private_key_jwt", (), "", allow_private=True),
        OAuthClient(
            "https://login.example",
            "",
            "",
            "none",
            (),
            "https://cloud.example/mcp",
            platform_jwt=Path("/var/run/token"),
        ),
        OAuthClient(
            "https://login.example", "b", "", "platform_jwt", (), "", platform_jwt=tmp_path / "token"
        ),
    ]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('issuer = "http://login.example", client_secret = { env = "SECRET" }', "takes an https:// URL"),
        ('issuer = "https://login.example"', "needs `client_secret`, `private_key` or `assertion_file`"),
        ('client_secret = { env = "SECRET" }', "needs `issuer`"),
        ('client_secret = { env = "SECRET" }, pkce = "assume"', "not for the grant `client_credentials`"),
        (
            'issuer = "https://login.example", client_secret = { env = "SECRET" }, private_key = { env = "SECRET" }',
            "has both `client_secret` and `private_key`",
        ),
    ],
)
def test_a_file_that_would_leak_a_secret_or_has_none_is_refused(
    keys: str, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(f"""
[tool_servers.crm]
url = "https://crm.example/mcp"
auth = {{ oauth2 = {{ grant = "client_credentials", client_id = "bridge", {keys} }} }}
""")
    with pytest.raises(ConfigError, match=re.escape(words)):
        load(file, {"SECRET": "s3"})


async def told_of(server: AuthorizationServer) -> list[TokenNotice]:
    """What is told of a request for a token, and of a second use of it."""
    told: list[Notice] = []
    with anyio.fail_after(30):
        async with server.serve() as issuer:
            tokens = ClientToken(client_at(issuer), 20)
            tokens.listener = TokenListener("crm", told.append)
            for _ in range(2):
                with suppress(TokenError):
                    await tokens()
    return [one for one in told if isinstance(one, TokenNotice)]


async def test_each_request_for_a_token_is_notified_once_with_its_outcome() -> None:
    (given,) = await told_of(AuthorizationServer())
    assert replace(given, seconds=0) == TokenNotice("crm", "client_credentials", "given", 0)
    (refused,) = await told_of(AuthorizationServer(token=lambda _: JSONResponse({"error": "x"}, 400)))
    assert (refused.outcome, 0 < refused.seconds < 20) == ("refused", True)
    for broken in (
        AuthorizationServer(metadata={"issuer": "https://other.example"}),
        AuthorizationServer(token=lambda _: Response("<p>Away", 502)),
    ):
        (failed,) = await told_of(broken)
        assert failed.outcome == "failed"
