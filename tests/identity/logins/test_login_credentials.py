"""How the token of a login is sent and renewed: once for all who share it, written before it is used."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from starlette.responses import JSONResponse, Response

from bridge.errors import leaf_of
from bridge.http.client import PeerAuth
from bridge.identity.logins.each_login import EachLogin
from bridge.identity.logins.kept_logins import DAY_SECONDS, DECLINED, Login, LoginKeeper
from bridge.identity.logins.login_credentials import (
    LoginConfig,
    LoginNeededError,
    LoginToken,
    ScopesNeededError,
    proof_of_client,
)
from bridge.identity.logins.login_files import LoginFiles
from bridge.identity.logins.login_flow import log_in
from bridge.identity.logins.login_landing import login_landing
from bridge.identity.tokens.oauth import TokenCredentials, bearer_credentials
from bridge.identity.tokens.token_endpoint import TokenError
from bridge.notices import LoginNotice, LoginTaken, Notice, TokenListener, TokenNotice
from bridge.store.postgres.login_rows import PostgresLogins
from tests.support.login_server import LoginServer
from tests.support.postgres import new_database_url

KEYS = ("a key of replicas that has 32 bytes",)


async def put(keeper: LoginKeeper, login_config: LoginConfig, login: Login) -> None:
    async with keeper.held(login_config.key) as held:
        await held.write(login)


@asynccontextmanager
async def logged_in(
    server: LoginServer, keeper: LoginKeeper, wished: dict[str, Any] | None = None, **changes: Any
) -> AsyncIterator[LoginConfig]:
    """A wish whose login is there."""
    with anyio.fail_after(60):
        async with server.serve() as url:
            access, refresh = server.start()
            login = Login(server.issuer, f"{server.issuer}/token", "bridge", access, time.time(), time.time())
            login_config = LoginConfig(url, keeper, "tools", **(wished or {}))
            await put(keeper, login_config, replace(login, refresh_token=refresh or None, **changes))
            yield login_config


def source_of(login_config: LoginConfig) -> TokenCredentials:
    return bearer_credentials(LoginToken(login_config, 30), {})


EXPIRED: dict[str, Any] = {"got_at": 0.0, "expires_at": 60.0}


async def refusal(login_config: LoginConfig, server: LoginServer) -> str:
    """Why no token can be sent."""
    with pytest.raises(LoginNeededError) as caught:
        await source_of(login_config)()
    words = str(caught.value)
    assert not re.search(r"access-\d|refresh-\d", words)
    return words.replace(server.issuer, "ISSUER")


async def test_a_fresh_login_is_used_without_a_refresh(tmp_path: Path) -> None:
    server = LoginServer()
    async with logged_in(server, LoginFiles(tmp_path)) as login_config:
        shown = await bearer_credentials(LoginToken(login_config, 30), {"X-Team": "desk"})()
    assert shown.headers == {"Authorization": "Bearer access-1", "X-Team": "desk"}
    assert server.asked == []


async def test_a_login_that_has_expired_is_renewed_and_the_answer_is_stored(
    tmp_path: Path,
) -> None:
    server, files = LoginServer(), LoginFiles(tmp_path)
    changes = {**EXPIRED, "client_auth": "basic", "client_secret": "s3cret", "resource": "https://desk"}
    async with logged_in(server, files, **changes) as login_config:
        first = await source_of(login_config)()
        # A process that starts later, and reads what the first has written.
        after_restart = await source_of(replace(login_config, keeper=LoginFiles(tmp_path)))()
    assert first == after_restart
    assert first.headers == {"Authorization": "Bearer access-2"}
    assert server.asked == [
        {"grant_type": "refresh_token", "refresh_token": "refresh-1", "resource": "https://desk"}
    ]
    assert server.authorization_headers == ["Basic YnJpZGdlOnMzY3JldA=="]
    kept = await files.find(login_config.key)
    assert kept is not None
    assert (kept.access_token, kept.refresh_token, kept.renewing_since) == ("access-2", "refresh-2", None)


@pytest.mark.parametrize(
    ("issuer", "client_id", "sent"),
    [
        (None, "bridge", "Basic YnJpZGdlOm5ldw=="),
        (None, "another", "Basic YnJpZGdlOm9sZA=="),
        ("https://other.example", "bridge", "Basic YnJpZGdlOm9sZA=="),
    ],
)
async def test_a_replaced_secret_is_used_only_for_its_client_at_its_issuer(
    issuer: str | None, client_id: str, sent: str, tmp_path: Path
) -> None:
    server, changes = LoginServer(), {**EXPIRED, "client_auth": "basic", "client_secret": "old"}
    async with logged_in(server, LoginFiles(tmp_path), **changes) as login_config:
        login_config = replace(
            login_config, issuer=issuer or server.issuer, client_id=client_id, secret="new"
        )
        if issuer is None:
            await source_of(login_config)()
            assert server.authorization_headers == [sent]
        kept = await login_config.keeper.find(login_config.key)
        assert kept is not None
        assert proof_of_client(login_config, kept) == ({}, {"Authorization": sent})


async def test_a_token_that_the_peer_refuses_is_renewed_once_and_the_request_sent_again(
    tmp_path: Path,
) -> None:
    server = LoginServer()
    async with logged_in(server, LoginFiles(tmp_path)) as login_config, httpx2.AsyncClient() as client:
        server.forget()
        answer = await client.post(login_config.url, auth=PeerAuth(login_config.url, source_of(login_config)))
    assert answer.json() == {"token": "access-2"}
    assert len(server.asked) == 1


async def test_callers_at_the_same_time_share_one_refresh(tmp_path: Path) -> None:
    server = LoginServer()
    async with logged_in(server, LoginFiles(tmp_path), **EXPIRED) as login_config:
        source = source_of(login_config)
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(source)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "kind", ["files", pytest.param("postgres", marks=[pytest.mark.outside, pytest.mark.long])]
)
async def test_a_hundred_refreshes_at_two_replicas_never_revoke_the_family(tmp_path: Path, kind: str) -> None:
    server = LoginServer()
    url = new_database_url() if kind == "postgres" else ""

    def keeper() -> LoginKeeper:
        return PostgresLogins(url, KEYS, "a database") if url else LoginFiles(tmp_path, KEYS)

    async def use(login_config: LoginConfig) -> None:
        source = source_of(login_config)
        while len(server.asked) < 100:
            source.refused(await source())

    async with logged_in(server, keeper()) as login_config, anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(use, replace(login_config, keeper=keeper()))
    assert not server.revoked
    sent = [form["refresh_token"] for form in server.asked]
    assert len(sent) == len(set(sent)) >= 100


async def test_a_refresh_token_that_stays_the_same_is_kept(tmp_path: Path) -> None:
    server, files = LoginServer(rotates=False), LoginFiles(tmp_path)
    async with logged_in(server, files, **EXPIRED) as login_config:
        await source_of(login_config)()
        kept = await files.find(login_config.key)
    assert kept is not None
    assert (kept.access_token, kept.refresh_token) == ("access-2", "refresh-1")


async def test_without_a_login_a_person_is_told_the_command(tmp_path: Path) -> None:
    server = LoginServer()
    with anyio.fail_after(30):
        async with server.serve() as url:
            login_config = LoginConfig(url, LoginFiles(tmp_path), "tools")
            assert await refusal(login_config, server) == (
                "login needed at ISSUER/mcp: nobody has logged in. Run `mcp-a2a login tools`"
            )
            unnamed = replace(login_config, name="")
            assert (await refusal(unnamed, server)).endswith("Run `mcp-a2a login ISSUER/mcp`")


async def test_a_login_without_a_refresh_token_is_needed_again_after_it_expires(tmp_path: Path) -> None:
    server = LoginServer(has_refresh=False)
    async with logged_in(server, LoginFiles(tmp_path), **EXPIRED) as login_config:
        assert await refusal(login_config, server) == (
            "login needed at ISSUER/mcp: the access token has expired, and ISSUER gave no refresh token."
            " Run `mcp-a2a login tools`"
        )
    assert server.asked == []


async def test_a_login_whose_refresh_token_was_revoked_is_not_tried_again(tmp_path: Path) -> None:
    server = LoginServer(revoked=True)
    async with logged_in(server, LoginFiles(tmp_path), **EXPIRED) as login_config:
        first = await refusal(login_config, server)
        assert first == (
            "login needed at ISSUER/mcp: ISSUER renewed no token: invalid_grant: revoked. Run `mcp-a2a login tools`"
        )
        assert await refusal(login_config, server) == first
    assert len(server.asked) == 1


async def test_a_login_of_an_issuer_that_is_not_configured_is_not_sent(tmp_path: Path) -> None:
    server = LoginServer()
    async with logged_in(server, LoginFiles(tmp_path), {"issuer": "https://login.example"}) as login_config:
        assert await refusal(login_config, server) == (
            "login needed at ISSUER/mcp: the login is at ISSUER, but the configuration names https://login.example."
            " Run `mcp-a2a login tools`"
        )


async def test_a_declined_login_is_reported_as_declined_not_as_of_another_issuer(
    tmp_path: Path,
) -> None:
    server = LoginServer()
    async with logged_in(server, LoginFiles(tmp_path), {"principal": "ann"}) as login_config:
        await put(login_config.keeper, login_config, Login("", "", "", "", got_at=1, since=1, lost=DECLINED))
        why = await refusal(replace(login_config, issuer=server.issuer), server)
    assert "the person declined to log in. Send a message" in why


async def test_a_crash_between_a_refresh_and_its_answer_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = LoginServer(revoked=True)
    async with logged_in(server, LoginFiles(tmp_path), **EXPIRED, renewing_since=0.0) as login_config:
        words = await refusal(login_config, server)
    said = (
        "a refresh that began at 1970-01-01 00:00:00 UTC got no answer: the bridge or the connection ended."
    )
    assert said in words
    assert said in caplog.text
    assert "refresh-1" not in caplog.text


async def test_an_answer_that_breaks_off_leaves_a_note_and_an_error_of_the_server_does_not(
    tmp_path: Path,
) -> None:
    server, files = LoginServer(), LoginFiles(tmp_path)
    async with logged_in(server, files, **EXPIRED) as login_config:
        for answer, has_note in (
            (JSONResponse({"error": "temporarily_unavailable"}, 503), False),
            (JSONResponse({"error": {"code": "busy"}}, 400), False),  # an error is a text by RFC 6749
            (Response("gateway", 502), True),
        ):
            server.token = lambda answer=answer: answer  # type: ignore[misc]
            with pytest.raises(TokenError, match="renewed no token"):
                await source_of(login_config)()
            kept = await files.find(login_config.key)
            assert kept is not None
            assert (kept.renewing_since is not None) is has_note
        server.token = None
        assert (await source_of(login_config)()).headers == {"Authorization": "Bearer access-2"}


async def test_an_answer_without_a_token_type_renews_a_login(tmp_path: Path) -> None:
    server, files = LoginServer(), LoginFiles(tmp_path)
    answer = {"access_token": "access-9", "refresh_token": "refresh-9", "expires_in": "3600"}
    server.token = lambda: JSONResponse(answer)
    async with logged_in(server, files, **EXPIRED) as login_config:
        assert (await source_of(login_config)()).headers == {"Authorization": "Bearer access-9"}
        kept = await files.find(login_config.key)
    assert kept is not None
    assert (kept.refresh_token, kept.expires_at) == ("refresh-9", kept.got_at + 3600)


async def test_a_new_refresh_token_is_stored_even_if_the_access_token_is_unusable(
    tmp_path: Path,
) -> None:
    server, files = LoginServer(), LoginFiles(tmp_path)
    async with logged_in(server, files, **EXPIRED) as login_config:
        for answer, following in (
            ({"access_token": "a", "token_type": "DPoP", "refresh_token": "refresh-8"}, "refresh-8"),
            ({"access_token": "a b", "token_type": "Bearer", "refresh_token": "refresh-9"}, "refresh-9"),
            ({"refresh_token": "refresh-\n"}, "refresh-9"),
        ):
            server.token = lambda answer=answer: JSONResponse(answer)  # type: ignore[misc]
            with pytest.raises(TokenError, match=r"not of the type Bearer|that a header can carry"):
                await source_of(login_config)()
            kept = await files.find(login_config.key)
            assert kept is not None
            assert (kept.access_token, kept.refresh_token, kept.renewing_since) == (
                "access-1",
                following,
                None,
            )
    assert [form["refresh_token"] for form in server.asked] == ["refresh-1", "refresh-8", "refresh-9"]


async def test_an_issuer_that_is_down_loses_no_login(tmp_path: Path) -> None:
    server, files = LoginServer(), LoginFiles(tmp_path)
    async with logged_in(server, files, **EXPIRED) as login_config:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            kept = await files.find(login_config.key)
            assert kept is not None
            down = f"http://127.0.0.1:{closed.getsockname()[1]}/token"
            away = replace(kept, token_url=down)
            private = LoginConfig(login_config.url, files, "tools", allow_private=True)
            await put(files, login_config, away)
            with pytest.raises(TokenError, match="cannot be reached for a token"):
                await source_of(private)()
        assert await files.find(login_config.key) == away


async def test_a_refresh_token_is_not_sent_to_a_private_address_that_is_not_configured(
    tmp_path: Path,
) -> None:
    server, files = LoginServer(), LoginFiles(tmp_path)
    elsewhere = {"token_url": "https://169.254.169.254/token"}
    async with logged_in(server, files, **EXPIRED, **elsewhere) as login_config:
        with pytest.raises(TokenError, match=r"169\.254\.169\.254, a private address"):
            await source_of(login_config)()


async def test_the_answer_to_a_refresh_is_written_even_if_its_caller_leaves(tmp_path: Path) -> None:
    server, files = LoginServer(), LoginFiles(tmp_path)
    async with logged_in(server, files, **EXPIRED) as login_config, anyio.create_task_group() as tasks:

        def leave() -> Response:
            tasks.cancel_scope.cancel()
            return server.granted(server.asked[-1])

        server.token = leave
        tasks.start_soon(source_of(login_config))
    kept = await files.find(login_config.key)
    assert kept is not None
    assert (kept.refresh_token, kept.renewing_since) == ("refresh-2", None)


async def log_in_to(login_config: LoginConfig) -> Login:
    """Log in, and keep the login, as the command does for a person who consents."""

    async def browse(url: str) -> None:
        async with httpx2.AsyncClient(timeout=30) as client:
            await client.get(url, follow_redirects=True)

    async with login_landing("127.0.0.1", 0) as landing:
        made = await log_in(login_config, landing, browse, 30)
    await put(login_config.keeper, login_config, made)
    return made


async def called(
    login_config: LoginConfig, source: TokenCredentials, method: str = "call"
) -> httpx2.Response:
    """What the tool server answers to a call."""
    async with httpx2.AsyncClient() as client:
        return await client.post(
            login_config.url, json={"method": method}, auth=PeerAuth(login_config.url, source)
        )


async def test_a_call_that_needs_more_scopes_fails_and_the_next_login_requests_the_union(
    tmp_path: Path,
) -> None:
    server = LoginServer(needs="write")
    async with logged_in(server, LoginFiles(tmp_path), scopes=("read", "list")) as login_config:
        source = source_of(login_config)
        for _ in range(2):
            with pytest.raises(ScopesNeededError) as caught:
                await called(login_config, source)
        assert str(caught.value).endswith(
            "/mcp: the server wants the scopes write for this. Run `mcp-a2a login tools`"
        )
        other = await called(login_config, source, "other")  # the login serves what it can
        made = await log_in_to(login_config)
        # The bridge that runs takes the new login up by itself.
        answer = await called(login_config, source)
    assert (other.json(), answer.status_code) == ({"token": "access-1"}, 200)
    assert [query["scope"] for query in server.authorizations] == ["read list write"]
    assert [client["scope"] for client in server.registered] == ["read list write"]
    assert (made.scopes, made.wanted_scopes) == (("read", "list", "write"), ())
    assert [form["grant_type"] for form in server.asked] == ["authorization_code"]  # and no refresh


async def test_a_second_step_to_more_scopes_keeps_the_scopes_of_the_first(tmp_path: Path) -> None:
    server = LoginServer()
    async with logged_in(
        server, LoginFiles(tmp_path), {"scopes": ("read",)}, scopes=("read",)
    ) as login_config:
        source = source_of(login_config)
        for server.needs in ("write", "delete"):
            with pytest.raises(ScopesNeededError):
                await called(login_config, source)
            made = await log_in_to(login_config)
            assert (await called(login_config, source)).status_code == 200
    assert [query["scope"] for query in server.authorizations] == ["read write", "read delete write"]
    assert made.scopes == ("read", "delete", "write")


async def test_a_scope_that_the_issuer_does_not_give_is_not_requested_in_a_loop(tmp_path: Path) -> None:
    server = LoginServer(needs="write", grants=frozenset({"read"}))
    async with logged_in(server, LoginFiles(tmp_path), scopes=("read", "write")) as login_config:
        answer = await called(login_config, source_of(login_config))
        kept = await login_config.keeper.find(login_config.key)
    assert answer.status_code == 403
    assert kept is not None
    assert kept.wanted_scopes == ()
    assert (server.asked, server.authorizations) == ([], [])


async def test_the_scopes_of_a_login_are_not_requested_at_another_issuer(tmp_path: Path) -> None:
    server = LoginServer()
    async with logged_in(server, LoginFiles(tmp_path), scopes=("read",)) as login_config:
        async with login_config.keeper.held(login_config.key) as held:
            assert held.login is not None
            gone = replace(
                held.login,
                issuer="https://old.example",
                client_id="the client so far",
                wanted_scopes=("write",),
            )
            await held.write(gone)
        made = await log_in_to(login_config)
    assert (made.issuer, made.client_id, made.refresh_token) == (server.issuer, "registered", "refresh-3")
    assert "scope" not in server.authorizations[0]
    assert len(server.registered) == 1
    told = json.dumps([server.authorizations, server.asked, server.registered])
    assert "the client so far" not in told
    assert "old.example" not in told


async def test_a_registered_client_is_not_used_at_an_issuer_that_the_server_moved_to(tmp_path: Path) -> None:
    server = LoginServer()
    wished = {"client_id": "known"}
    async with logged_in(server, LoginFiles(tmp_path), wished) as login_config:
        async with login_config.keeper.held(login_config.key) as held:
            assert held.login is not None
            await held.write(replace(held.login, issuer="https://old.example", client_id="known"))
        with pytest.raises(ExceptionGroup) as caught:
            await log_in_to(login_config)
        assert (server.authorizations, server.asked) == ([], [])
        # The operator who has registered it there says so.
        made = await log_in_to(replace(login_config, issuer=server.issuer))
    assert str(leaf_of(caught.value)).endswith(
        f"the server has moved from the issuer https://old.example to {server.issuer}, and the client known is"
        " registered at the first. If you have registered it at the second, too, set `issuer` to the second (--issuer)"
    )
    assert made.client_id == "known"


async def test_a_server_that_lets_everyone_initialize_gets_a_login_at_its_first_401(tmp_path: Path) -> None:
    server = LoginServer(greets_anybody=True)
    async with logged_in(server, LoginFiles(tmp_path)) as login_config:
        made = await log_in_to(login_config)
    assert made.issuer == server.issuer


async def test_the_use_of_a_callers_login_is_written_once_a_day_and_of_the_operators_never(
    tmp_path: Path,
) -> None:
    files, month_ago = LoginFiles(tmp_path), time.time() - 30 * DAY_SECONDS
    server = LoginServer()
    async with logged_in(
        server, files, {"principal": "alice"}, got_at=month_ago, since=month_ago
    ) as login_config:
        token = LoginToken(login_config, 30)
        before, first = time.time(), await token()
        noted = await files.find(login_config.key)
        assert noted is not None
        assert before <= noted.last_used <= time.time()
        assert await LoginToken(login_config, 30)() == first
        assert await files.find(login_config.key) == noted
        # Another process a day later.
        await put(files, login_config, replace(noted, used_at=month_ago))
        assert await LoginToken(login_config, 30)() == first
        again = await files.find(login_config.key)
        assert again is not None
        assert again.last_used >= noted.last_used
        operator = replace(login_config, principal="")
        await put(files, operator, old := replace(noted, used_at=None))
        await LoginToken(operator, 30)()
        assert await files.find(operator.key) == old
    assert server.asked == []


async def test_refreshes_and_lost_logins_are_notified(tmp_path: Path) -> None:
    for revoked, outcome in ((False, "given"), (True, "refused")):
        server, told = LoginServer(revoked=revoked), list[Notice]()
        async with logged_in(server, LoginFiles(tmp_path / outcome), **EXPIRED) as login_config:
            tokens = LoginToken(login_config, 30)
            tokens.listener = TokenListener("tools", told.append)
            for _ in range(2):
                with suppress(LoginNeededError):
                    await tokens()
        lost = [LoginNotice("tools", "lost")] if revoked else []
        asked = TokenNotice("tools", "refresh_token", outcome, 0)
        told_of = [replace(one, seconds=0) if isinstance(one, TokenNotice) else one for one in told]
        assert [one for one in told_of if not isinstance(one, LoginTaken)] == [*lost, asked]


async def test_each_login_of_the_operator_is_notified_once(tmp_path: Path) -> None:
    told, files = list[Notice](), LoginFiles(tmp_path)
    async with logged_in(LoginServer(), files) as login_config:
        tokens = LoginToken(login_config, 30)
        tokens.listener = TokenListener("tools", told.append)
        first = await files.find(login_config.key)
        assert first is not None
        await tokens()
        await tokens()
        await put(
            files, login_config, replace(first, since=first.since + 60, access_token="of-another-login")
        )
        tokens.refused(await tokens())
        await tokens()
    assert told == [LoginTaken("tools", first.since), LoginTaken("tools", first.since + 60)]


async def test_a_refresh_of_a_callers_login_is_notified_with_the_caller(tmp_path: Path) -> None:
    server, told = LoginServer(), list[Notice]()
    async with logged_in(server, LoginFiles(tmp_path), **EXPIRED) as login_config:
        async with login_config.keeper.held(login_config.key) as held:
            login = held.login
        async with login_config.keeper.held(replace(login_config, principal="ann").key) as held:
            await held.write(login)
        each = EachLogin(login_config, 30, 2)
        each.listener = TokenListener("tools", told.append)
        await each.of("ann")()
    assert [(one.peer, one.principal) for one in told if isinstance(one, TokenNotice)] == [("tools", "ann")]


async def test_a_replica_uses_the_login_that_its_caller_made_at_another_replica(
    tmp_path: Path,
) -> None:
    server = LoginServer()
    async with logged_in(server, LoginFiles(tmp_path), {"principal": "ann"}) as login_config:
        each = EachLogin(login_config, 30, 2)
        before = each.of("ann")
        assert (await before()).value == "access-1"
        now = time.time()
        await put(
            login_config.keeper,
            login_config,
            Login(server.issuer, f"{server.issuer}/token", "b", "later", now, now),
        )
        before.look_again()
        with pytest.raises(LoginNeededError, match="another login has replaced"):
            await each.of("ann")()
        # No call has come here since, only what follows one of the other replica.
        assert (await each.of("ann")()).value == "later"
        with pytest.raises(LoginNeededError):
            await before()


@asynccontextmanager
async def logged_in_twice(
    folder: Path, principal: str, **changes: Any
) -> AsyncIterator[tuple[LoginToken, list[float]]]:
    """A token of a login in whose place another one has come since, and the seconds of its clock."""
    server, clock = LoginServer(), [0.0]
    async with logged_in(server, LoginFiles(folder), {"principal": principal}, **changes) as login_config:
        tokens = LoginToken(login_config, 30, lambda: clock[0])
        assert (await tokens()).value == "access-1"
        now = time.time()
        await put(
            login_config.keeper,
            login_config,
            Login(server.issuer, f"{server.issuer}/token", "b", "other", now, now),
        )
        yield tokens, clock


async def test_a_callers_login_is_read_again_and_never_replaced_by_another_login(
    tmp_path: Path,
) -> None:
    async with logged_in_twice(tmp_path, "ann") as (tokens, clock):
        assert (await tokens()).value == "access-1"
        clock[0] += 30
        for _ in range(2):
            with pytest.raises(LoginNeededError, match="another login has replaced"):
                await tokens()


async def test_the_operators_login_stays_in_memory_while_its_token_is_fresh(tmp_path: Path) -> None:
    async with logged_in_twice(tmp_path, "", expires_at=time.time() + 86_400) as (tokens, clock):
        clock[0] += 3600
        assert (await tokens()).value == "access-1"


async def test_an_operators_login_whose_token_never_expires_is_read_again(tmp_path: Path) -> None:
    async with logged_in_twice(tmp_path, "") as (tokens, clock):
        assert (await tokens()).value == "access-1"
        clock[0] += 30
        assert (await tokens()).value == "other"
        (file,) = (tmp_path / "logins").glob("*.login")
        kept = file.read_bytes()
        file.write_bytes(b"damaged")
        clock[0] += 30
        assert (await tokens()).value == "other", "its place is needed for another login alone"
        file.write_bytes(kept)
        async with tokens.login_config.keeper.held(tokens.login_config.key) as held:
            await held.remove()
        clock[0] += 30
        for _ in range(2):
            with pytest.raises(LoginNeededError, match="nobody has logged in"):
                await tokens()
