"""A person's login at an authorization server, and what servers, browsers and pages elsewhere can do wrong."""

from __future__ import annotations

import gzip
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx2
import pytest
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.errors import UsageError
from bridge.identity.logins.kept_logins import BegunLogin, Login
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.identity.logins.login_files import LoginFiles
from bridge.identity.logins.login_flow import LoginFlowError, begin_login, finish_login, log_in
from bridge.identity.logins.login_landing import LoginLanding, login_landing
from bridge.identity.tokens.token_endpoint import ANSWER_BYTES
from tests.support.login_server import METADATA, RESOURCE, LoginServer
from tests.support.running import listening


class Browser:
    """A browser of a person who consents to everything. It keeps the pages that it was given."""

    def __init__(self, verify: ssl.SSLContext | bool = True) -> None:
        self._verify = verify
        self.opened: list[str] = []
        self.back: list[httpx2.Response] = []

    async def __call__(self, url: str) -> None:
        self.opened.append(url)
        async with httpx2.AsyncClient(timeout=30, verify=self._verify) as client:
            page = await client.get(url)
            self.back.append(await client.get(page.headers["location"]))


@asynccontextmanager
async def began(
    server: LoginServer, tmp_path: Path, **wished: Any
) -> AsyncIterator[tuple[LoginConfig, LoginLanding]]:
    """A login that can begin."""
    with anyio.fail_after(60):
        async with server.serve() as url, login_landing("127.0.0.1", 0) as landing:
            yield LoginConfig(url, LoginFiles(tmp_path), "tools", **wished), landing


async def login_at(server: LoginServer, tmp_path: Path, **wished: Any) -> Login:
    async with began(server, tmp_path, **wished) as (login_config, landing):
        return await log_in(login_config, landing, Browser(), 30)


async def refusal(server: LoginServer, tmp_path: Path, **wished: Any) -> str:
    """Why there is no login."""
    async with began(server, tmp_path, **wished) as (login_config, landing):
        with pytest.raises(LoginFlowError) as caught:
            await log_in(login_config, landing, Browser(), 30)
    return str(caught.value).replace(server.issuer, "ISSUER")


async def test_a_person_logs_in_at_the_issuer_that_the_server_names(tmp_path: Path) -> None:
    server, before = LoginServer(), time.time()
    login = await login_at(server, tmp_path)
    assert login == Login(
        issuer=server.issuer,
        token_url=f"{server.issuer}/token",
        client_id="registered",
        access_token="access-2",
        refresh_token="refresh-2",
        got_at=login.got_at,
        since=login.got_at,
        expires_at=login.got_at + 3600,
        scopes=("read",),
        resource=server.url,
    )
    assert before <= login.got_at <= time.time()
    (asked,) = server.authorizations
    assert (asked["code_challenge_method"], asked["resource"], asked["client_id"]) == (
        "S256",
        server.url,
        "registered",
    )
    (registered,) = server.registered
    assert registered["redirect_uris"] == [asked["redirect_uri"]]
    assert registered["application_type"] == "native"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (3600.5, 3600.5),
        ("3600", 3600),
        ("soon", None),
        pytest.param(10**400, None, id="more than a float holds"),
    ],
)
async def test_an_answer_with_an_unusual_expires_in_is_a_login(
    said: Any, seconds: float | None, tmp_path: Path
) -> None:
    answer = {"access_token": "access-9", "expires_in": said, "scope": ["read"]}
    login = await login_at(LoginServer(token=lambda: JSONResponse(answer)), tmp_path)
    assert login.access_token == "access-9"
    assert login.expires_at == (None if seconds is None else login.got_at + seconds)


@pytest.mark.parametrize(("named", "says"), [("/", ""), ("", "/")])
@pytest.mark.parametrize("is_configured", [False, True])
async def test_an_issuer_with_a_trailing_slash_equals_the_issuer_without_it(
    named: str, says: str, is_configured: bool, tmp_path: Path
) -> None:
    server = LoginServer(named=lambda issuer: [f"{issuer}{named}"])
    async with began(server, tmp_path) as (login_config, landing):
        server.metadata["issuer"] = f"{server.issuer}{says}"
        server.metadata["authorization_response_iss_parameter_supported"] = True
        server.back["iss"] = f"{server.issuer}{says}"
        login_config = replace(login_config, issuer=server.issuer) if is_configured else login_config
        login = await log_in(login_config, landing, Browser(), 30)
    assert login.issuer.rstrip("/") == server.issuer


@pytest.mark.parametrize(("says", "iss"), [("", "/"), ("/", "")])
async def test_the_iss_of_an_answer_is_compared_with_the_metadata_letter_by_letter(
    says: str, iss: str, tmp_path: Path
) -> None:
    """RFC 9207 section 2.4 and SEP-2468: no normalization there."""
    server = LoginServer()
    async with began(server, tmp_path) as (login_config, landing):
        server.metadata["issuer"] = f"{server.issuer}{says}"
        server.back["iss"] = f"{server.issuer}{iss}"
        with pytest.raises(LoginFlowError, match="in `iss`"):
            await log_in(login_config, landing, Browser(), 30)


@pytest.mark.parametrize("blank", ["", " "])
async def test_a_blank_field_of_metadata_counts_as_absent(blank: str, tmp_path: Path) -> None:
    names = ("service_documentation", "op_policy_uri", "op_tos_uri", "introspection_endpoint", "jwks_uri")
    login = await login_at(LoginServer(metadata=dict.fromkeys(names, blank)), tmp_path)
    assert login.access_token == "access-2"


async def test_the_configured_issuer_is_chosen_from_the_servers_list_even_with_a_slash(
    tmp_path: Path,
) -> None:
    server = LoginServer(named=lambda issuer: ["https://other.example", f"{issuer}/"])
    async with began(server, tmp_path) as (login_config, landing):
        login = await log_in(replace(login_config, issuer=server.issuer), landing, Browser(), 30)
    assert login.issuer == server.issuer


async def test_metadata_of_another_issuer_is_refused_with_advice(
    tmp_path: Path,
) -> None:
    why = await refusal(LoginServer(metadata={"issuer": "https://other.example"}), tmp_path)
    assert (
        "https://other.example != ISSUER. If you trust the first of the two, set `issuer` to it (--issuer)"
        in why
    )


async def test_a_registered_client_logs_in_with_its_secret_and_the_configured_scopes(tmp_path: Path) -> None:
    server = LoginServer()
    login = await login_at(server, tmp_path, client_id="bridge", secret="s3cret", scopes=("read", "write"))
    assert server.registered == []
    assert (server.authorizations[0]["client_id"], server.authorizations[0]["scope"]) == (
        "bridge",
        "read write",
    )
    assert server.authorization_headers == ["Basic YnJpZGdlOnMzY3JldA=="]
    assert (login.client_id, login.client_secret, login.client_auth) == ("bridge", "s3cret", "basic")


@pytest.mark.parametrize(
    ("taken", "sent"),
    [
        (None, "basic"),
        (["none", "client_secret_post", "client_secret_basic"], "basic"),
        (["private_key_jwt", "client_secret_post"], "post"),
        (["none"], "none"),
    ],
)
async def test_a_registration_without_a_method_sends_its_secret_as_the_issuer_supports(
    taken: list[str] | None, sent: str, tmp_path: Path
) -> None:
    server = LoginServer(
        {"token_endpoint_auth_methods_supported": taken}, gives_client={"client_secret": "s3cret"}
    )
    login = await login_at(server, tmp_path)
    assert (login.client_secret, login.client_auth) == ("s3cret", sent)
    assert (server.authorization_headers[0] is not None) is (sent == "basic")
    assert server.asked[0].get("client_secret") == ("s3cret" if sent == "post" else None)


async def test_a_client_that_a_document_describes_is_known_by_its_url(tmp_path: Path) -> None:
    server = LoginServer({"client_id_metadata_document_supported": True})
    document = "https://tools.example/mcp-a2a.json"
    login = await login_at(server, tmp_path, client_metadata_url=document)
    assert (login.client_id, server.registered) == (document, [])


@pytest.mark.parametrize("resource", ["https://desk.example", ""])
async def test_the_configured_resource_is_requested(resource: str, tmp_path: Path) -> None:
    server = LoginServer()
    login = await login_at(server, tmp_path, resource=resource)
    assert login.resource == resource
    assert server.authorizations[0].get("resource", "") == resource
    assert server.asked[0].get("resource", "") == resource


async def test_metadata_without_s256_is_refused_unless_pkce_is_assumed(tmp_path: Path) -> None:
    server = LoginServer({"code_challenge_methods_supported": None})
    assert "does not say that it checks PKCE with S256" in await refusal(server, tmp_path)
    assert (server.authorizations, server.asked) == ([], [])
    assert (await login_at(server, tmp_path, pkce="assume")).access_token


async def test_an_issuer_that_is_not_configured_gets_nothing(tmp_path: Path) -> None:
    server = LoginServer()
    words = await refusal(
        server, tmp_path, issuer="https://login.example", client_id="bridge", secret="s3cret"
    )
    assert words.endswith(
        "the server leads to the issuer ISSUER, and `issuer` is https://login.example. If you trust the first, write it"
        " as `issuer` (--issuer)"
    )
    assert server.registered == []
    assert (server.authorizations, server.asked) == ([], [])


@pytest.mark.parametrize("iss", ["https://evil.example", ""])
async def test_a_wrong_or_missing_iss_sends_no_code(iss: str, tmp_path: Path) -> None:
    server = LoginServer(back={"iss": iss})
    assert "iss" in await refusal(server, tmp_path)
    assert server.asked == []


async def test_a_denied_consent_is_reported(tmp_path: Path) -> None:
    server = LoginServer(back={"code": "", "error": "access_denied", "error_description": "not today"})
    assert (await refusal(server, tmp_path)).endswith("ISSUER gave no code: access_denied: not today")
    assert server.asked == []


async def test_an_answer_with_another_state_changes_nothing(tmp_path: Path) -> None:
    server, pages = LoginServer(), []

    async with (
        began(server, tmp_path) as (login_config, landing),
        httpx2.AsyncClient() as client,
    ):

        async def show(url: str) -> None:
            for query in ("code=stolen&state=other", "code=stolen", "code=a&state=x&state=y"):
                pages.append((await client.get(f"{landing.redirect_uri}?{query}")).status_code)
            await Browser()(url)

        login = await log_in(login_config, landing, show, 30)
    assert pages == [400, 400, 400]
    assert login.access_token == "access-2"
    assert [form["code"] for form in server.asked] == ["code-1"]


async def test_a_code_that_comes_twice_is_used_once(tmp_path: Path) -> None:
    server = LoginServer()
    async with (
        began(server, tmp_path) as (login_config, landing),
        httpx2.AsyncClient() as client,
    ):

        async def show(url: str) -> None:
            page = await client.get(url)
            statuses.extend([(await client.get(page.headers["location"])).status_code for _ in range(2)])

        statuses: list[int] = []
        await log_in(login_config, landing, show, 30)
    assert statuses == [200, 410]
    assert len(server.asked) == 1


@pytest.mark.outside
async def test_a_request_with_another_host_or_path_gets_an_error_page(tmp_path: Path) -> None:
    async with login_landing("127.0.0.1", 0) as landing, httpx2.AsyncClient() as client:
        landing.state = "ours"
        root = landing.redirect_uri.removesuffix("/callback")
        other = {"Host": f"evil.example:{landing.port}"}
        answers = [
            await client.get(f"{landing.redirect_uri}?state=ours&code=1", headers=other),
            await client.get(f"{root}/favicon.ico"),
            await client.post(f"{landing.redirect_uri}?state=ours&code=1"),
        ]
        assert [one.status_code for one in answers] == [421, 404, 405]
        assert not landing.came.is_set()


async def test_a_request_for_an_invalid_url_does_not_end_the_landing() -> None:
    async with login_landing("127.0.0.1", 0) as landing:
        landing.state = "ours"
        async with await anyio.connect_tcp("127.0.0.1", landing.port) as stream:
            await stream.send(f"GET //[ HTTP/1.1\r\nHost: 127.0.0.1:{landing.port}\r\n\r\n".encode())
            assert (await stream.receive()).startswith(b"HTTP/1.1 400 ")
        async with httpx2.AsyncClient() as client:
            assert (await client.get(f"{landing.redirect_uri}?state=ours&code=1")).status_code == 200


async def test_a_code_is_not_carried_to_another_origin_by_a_redirect(tmp_path: Path) -> None:
    server, other = LoginServer(), LoginServer()
    with anyio.fail_after(60):
        async with other.serve():
            server.token = lambda: RedirectResponse(f"{other.issuer}/token", 307)
            assert "307" in await refusal(server, tmp_path)
    assert (len(server.asked), other.asked) == (1, [])


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"token_endpoint": "https://169.254.169.254/token"}, "a private address"),
        ({"token_endpoint": "http://login.example/token"}, "no https:// URL"),
        ({"authorization_endpoint": "http://login.example/authorize"}, "no https:// URL"),
        ({"authorization_endpoint": "file:///etc/passwd"}, "no login at"),
        ({"issuer": "https://evil.example"}, "evil.example"),
    ],
)
async def test_unsafe_metadata_ends_a_login(said: dict[str, Any], words: str, tmp_path: Path) -> None:
    assert words in await refusal(LoginServer(said), tmp_path)


async def test_metadata_leads_no_registration_to_a_private_address(tmp_path: Path) -> None:
    server = LoginServer({"registration_endpoint": "https://169.254.169.254/register"})
    assert "169.254.169.254, a private address" in await refusal(server, tmp_path)


async def test_a_tool_server_leads_to_no_issuer_at_a_private_address(tmp_path: Path) -> None:
    server = LoginServer(named=lambda _: ["https://169.254.169.254"])
    assert "169.254.169.254, a private address" in await refusal(server, tmp_path)


async def test_a_challenge_leads_to_no_metadata_at_a_private_address(tmp_path: Path) -> None:
    server = LoginServer(challenge='Bearer resource_metadata="https://169.254.169.254/meta"')
    assert "169.254.169.254, a private address" in await refusal(server, tmp_path)


def packed(path: str, *, hides: bytes = b" " * 1_000_000) -> ASGIApp:
    """A login server whose answer at a path is packed, whatever was asked for."""
    server = LoginServer()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        server.issuer = "http://{}:{}".format(*scope["server"])
        if scope["path"] == path:
            headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
            await Response(gzip.compress(hides), headers=headers)(scope, receive, send)
        else:
            await server(scope, receive, send)

    return app


@pytest.mark.parametrize("path", [RESOURCE, METADATA])
async def test_a_compressed_answer_is_refused(path: str, tmp_path: Path) -> None:
    async with listening(packed(path)) as url:
        login_config = LoginConfig(f"{url}/mcp", LoginFiles(tmp_path), "tools")
        with anyio.fail_after(60), pytest.raises(LoginFlowError, match=f"{path} sent a compressed answer"):
            await begin_login(login_config, "http://127.0.0.1:1/callback", 30)


async def test_a_server_that_sends_byte_by_byte_cannot_stall_a_login(tmp_path: Path) -> None:
    server, has_left = LoginServer(), anyio.Event()

    async def dripping(scope: Scope, receive: Receive, send: Send) -> None:
        server.issuer = "http://{}:{}".format(*scope["server"])
        if scope["path"] != RESOURCE:
            await server(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        async with anyio.create_task_group() as group:
            group.start_soon(drip, send)
            while (await receive())["type"] != "http.disconnect":
                pass
            has_left.set()
            group.cancel_scope.cancel()

    async def drip(send: Send) -> None:
        while True:
            await send({"type": "http.response.body", "body": b" ", "more_body": True})
            await anyio.sleep(0.02)

    with anyio.fail_after(60):
        async with listening(dripping) as url:
            login_config = LoginConfig(f"{url}/mcp", LoginFiles(tmp_path), "tools")
            with pytest.raises(LoginFlowError, match=r"the requests before its page took longer than 0\.5 s"):
                await begin_login(login_config, "http://127.0.0.1:1/callback", 0.5)
            await has_left.wait()


async def test_a_login_uses_the_same_proxy_as_later_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []

    async def refuse(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            asked.append((await stream.receive()).split(b"\r\n")[0])
            await stream.send(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")

    server = LoginServer(named=lambda _: ["https://login.example.invalid"])
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as proxy,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(proxy.serve, refuse)
        port = proxy.extra(anyio.abc.SocketAttribute.local_port)
        for name in ("NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
            monkeypatch.setenv(name.lower(), f"http://127.0.0.1:{port}")
        async with server.serve() as url:
            login_config = LoginConfig(url, LoginFiles(tmp_path), "tools")
            with pytest.raises(LoginFlowError, match="502"):
                await begin_login(login_config, "http://127.0.0.1:1/callback", 30)
        tasks.cancel_scope.cancel()
    # The tool server itself is reached directly, as it is when it is called.
    assert set(asked) == {b"CONNECT login.example.invalid:443 HTTP/1.1"}


async def test_a_huge_answer_is_not_read(tmp_path: Path) -> None:
    server = LoginServer(token=lambda: JSONResponse({"access_token": "x" * ANSWER_BYTES}))
    assert f"more than {ANSWER_BYTES} bytes" in await refusal(server, tmp_path)


async def test_a_server_that_requires_no_login_is_reported(tmp_path: Path) -> None:
    server = LoginServer()
    async with began(server, tmp_path) as (login_config, landing):
        elsewhere = replace(login_config, url=f"{server.issuer}{METADATA}")
        with pytest.raises(UsageError, match="requires no login: it answered HTTP 200"):
            await log_in(elsewhere, landing, Browser(), 30)


async def test_a_login_that_began_is_finished_from_its_fields_only(tmp_path: Path) -> None:
    server, back = LoginServer(), "https://bridge.example/login/back"
    async with server.serve() as url:
        login_config = LoginConfig(url, LoginFiles(tmp_path), "tools", "alice")
        begun = await begin_login(login_config, back, 30)
        fields = json.loads(json.dumps(asdict(begun)))
        bare = Login(**fields.pop("bare") | {"scopes": begun.bare.scopes})
        again = BegunLogin(**fields, bare=bare)
        async with httpx2.AsyncClient() as client:
            place = (await client.get(begun.page)).headers["location"]
        login = await finish_login(login_config, again, dict(parse_qsl(urlsplit(place).query)), 30)
    assert place.startswith(f"{back}?")
    assert (login.access_token, login.refresh_token, login.since) == ("access-2", "refresh-2", login.got_at)
    assert server.asked[0]["redirect_uri"] == back


async def test_an_answer_to_another_login_sends_no_code(tmp_path: Path) -> None:
    server = LoginServer()
    async with server.serve() as url:
        login_config = LoginConfig(url, LoginFiles(tmp_path), "tools")
        begun = await begin_login(login_config, "https://bridge.example/login/back", 30)
        with pytest.raises(LoginFlowError, match="does not belong to this login"):
            await finish_login(
                login_config, begun, {"state": "another", "code": "code-1", "iss": begun.bare.issuer}, 30
            )
    assert server.asked == []
