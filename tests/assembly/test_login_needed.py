"""A tool server whose login is lost while calls are made: each fails at once, and the first after a new login works."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import pytest
from starlette.responses import JSONResponse, Response

from bridge.assembly.plan import ServerPlan
from bridge.identity.logins.kept_logins import Login
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.identity.logins.login_files import LoginFiles
from bridge.identity.tokens.caller_token import CallerToken
from bridge.identity.tokens.token_endpoint import OAuthClient
from bridge.identity.tokens.token_exchange import CallerTokens, Exchange
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.streamable_http import HttpTarget
from tests.assembly.test_bridge import PROFILE, Live, agent, live
from tests.support.login_server import LoginServer
from tests.support.mcp_wire import LEGACY, MODERN
from tests.support.recording_server import Answer, Got, RecordingServer
from tests.support.running import Rpc, call_part

pytestmark = pytest.mark.outside

NEEDED = "ISSUER renewed no token: invalid_grant: revoked. Run `mcp-a2a login crm`"


@dataclass
class There:
    """An issuer, a tool server that takes its tokens, and a bridge of it."""

    issuer: LoginServer
    login_config: LoginConfig
    bridge: Live

    async def log_in(self) -> None:
        """Keep a login, as the command does."""
        access, refresh = self.issuer.start()
        now = time.time()
        made = Login(self.issuer.issuer, f"{self.issuer.issuer}/token", "b", access, now, now)
        async with self.login_config.keeper.held(self.login_config.key) as held:
            await held.write(replace(made, refresh_token=refresh, allow_private=True))

    async def call(self) -> tuple[str, str]:
        """The end of a call, and its words."""
        task = await Rpc(self.bridge.client, f"{self.bridge.url}/agents/desk").send(call_part("echo"))
        words = str(task["status"].get("message"))
        return task["status"]["state"], words.replace(self.issuer.issuer, "ISSUER")

    async def why(self) -> str:
        """Why the server is down, as /readyz says it."""
        state = (await self.bridge.client.get(f"{self.bridge.url}/readyz")).json()["agents"]["desk"]
        return str(state["servers"]["crm"].get("why")).replace(self.issuer.issuer, "ISSUER")


@asynccontextmanager
async def there(folder: Path, version: str) -> AsyncIterator[There]:
    """All of them, with a login."""
    issuer = LoginServer()

    def guarded(inner: Answer) -> Answer:
        def answer(got: Got) -> dict[str, object] | list[dict[str, object]] | Response:
            token = got.headers.get("authorization", "").removeprefix("Bearer ")
            return inner(got) if token in issuer.given else Response(status_code=401)

        return answer

    plain: dict[str, Answer] = {
        "tools/list": lambda _: {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
        "tools/call": lambda _: {"content": [{"type": "text", "text": "done"}]},
    }
    tools = RecordingServer(version, answers={name: guarded(one) for name, one in plain.items()})
    with anyio.fail_after(30):  # half of what connecting may take: nobody waits for a person
        async with issuer.serve(), tools.serve() as url:
            login_config = LoginConfig(url, LoginFiles(folder), "crm", issuer=issuer.issuer)
            target = HttpTarget(
                url,
                oauth=login_config,
                connect_seconds=60,
                result_limit_bytes=1 << 20,
                result_json_values=10_000,
            )
            era = Era.MODERN if version == MODERN else Era.LEGACY
            made = ServerPlan.as_profile_says(target, era, PROFILE.server, PROFILE.run)
            settings = made.settings.having(connect_seconds=60)
            plan = {
                "servers": {"crm": replace(made, settings=settings, fail="open")},
                "published": {"desk": agent("crm")},
            }
            async with live(folder, **plan) as bridge:
                one = There(issuer, login_config, bridge)
                await one.log_in()
                while (await bridge.client.get(f"{bridge.url}/readyz")).status_code != 200:
                    await anyio.sleep(0.01)
                yield one


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_a_call_without_a_login_fails_at_once_and_the_next_one_after_a_login_works(
    version: str, tmp_path: Path
) -> None:
    async with there(tmp_path, version) as one:
        assert (await one.call())[0] == "TASK_STATE_COMPLETED"
        one.issuer.forget()
        one.issuer.revoked = True
        for _ in range(3):  # the first finds it out, and the others know
            state, words = await one.call()
            assert state == "TASK_STATE_FAILED"
            assert NEEDED in words
        while NEEDED not in await one.why():
            await anyio.sleep(0.01)
        one.issuer.revoked = False
        await one.log_in()
        assert (await one.call())[0] == "TASK_STATE_COMPLETED"


async def test_a_server_that_is_down_for_want_of_a_login_is_known_to_need_one(tmp_path: Path) -> None:
    async with there(tmp_path, LEGACY) as one:
        assert not needs_login(one)
        one.issuer.forget()
        one.issuer.revoked = True
        await one.call()
        while not needs_login(one):
            await anyio.sleep(0.01)
        one.issuer.revoked = False
        await one.log_in()
        await one.call()
        assert not needs_login(one)


REFUSED: dict[str, tuple[Callable[[HttpTarget, str], HttpTarget], str]] = {
    "login": (
        lambda target, _: target,
        "The peer does not accept the token of the login: check `resource` and `scopes`. Run `mcp-a2a login crm`",
    ),
    "client": (
        lambda target, issuer: replace(target, oauth=OAuthClient(issuer, "b", "s3", "post", ("read",), "")),
        "The peer does not accept the token of ISSUER: check `resource` and `scopes`",
    ),
    "caller": (
        lambda target, issuer: replace(
            target,
            oauth=CallerTokens(Exchange(OAuthClient(issuer, "b", "s3", "post")), 20, 1).of(
                CallerToken(issuer, "alice", "token")
            ),
        ),
        "the exchanged token: check `audience`, `resource` and `scopes`",
    ),
}
"""How a server gets its token, and what is said if it does not take it."""


@pytest.mark.parametrize("kind", REFUSED)
async def test_a_server_that_takes_no_token_is_told_from_one_that_lacks_one(
    kind: str, tmp_path: Path
) -> None:
    """As when the token is for another audience."""
    target_of, words = REFUSED[kind]
    issuer = LoginServer()
    given = {"access_token": "t", "token_type": "Bearer", "issued_token_type": f"{TYPE}access_token"}
    tools = RecordingServer(LEGACY, answers={"initialize": lambda _: Response(status_code=401)})
    async with issuer.serve(), tools.serve() as url:
        issuer.token = lambda: JSONResponse(given)
        login_config = LoginConfig(url, LoginFiles(tmp_path), "crm", issuer=issuer.issuer)
        async with login_config.keeper.held(login_config.key) as held:
            await held.write(
                Login(issuer.issuer, f"{issuer.issuer}/token", "b", "old", 0, 0, refresh_token="r")
            )
        plain = HttpTarget(
            url, oauth=login_config, connect_seconds=20, result_limit_bytes=1, result_json_values=1
        )
        target = target_of(plain, issuer.issuer)
        made = ServerPlan.as_profile_says(target, Era.LEGACY, PROFILE.server, PROFILE.run)
        plan = {"servers": {"crm": replace(made, fail="open")}, "published": {"desk": agent("crm")}}
        async with live(tmp_path, **plan) as bridge:
            state = (await bridge.client.get(f"{bridge.url}/readyz")).json()["agents"]["desk"]["servers"]
    assert "answered HTTP 401 Unauthorized. The peer does not accept the" in state["crm"]["why"]
    assert state["crm"]["why"].replace(issuer.issuer, "ISSUER").endswith(words)


TYPE = "urn:ietf:params:oauth:token-type:"


def needs_login(there: There) -> bool:
    """Whether the bridge knows that its server needs a login."""
    return there.bridge.bridge.upstreams["crm"].needs_login
