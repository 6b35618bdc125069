"""A login at the URL of a command line that is made while the bridge runs: it is looked for when a peer refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from bridge.assembly.plan import OfferedPlan, RemotePlan
from bridge.errors import UsageError
from bridge.http.client import PeerAuth
from bridge.identity.logins.kept_logins import Login
from bridge.identity.logins.later_login import LaterLogin
from bridge.identity.logins.login_credentials import LoginConfig, LoginNeededError
from bridge.identity.logins.login_files import LoginFiles
from bridge.identity.tokens.token_endpoint import TokenError
from bridge.mcp.client.transports.streamable_http import HttpTarget
from tests.agents_as_tools.test_agent_logins import PROFILE, call_in, called, code_flow
from tests.assembly.test_bridge import Live, live
from tests.support.login_agent import LoginAgent, with_scheme
from tests.support.login_server import LoginServer

pytestmark = pytest.mark.outside


@dataclass
class Place:
    """Where a login may be found. It counts how often somebody looks."""

    login_config: LoginConfig
    looks: int = 0
    has_login: bool = False
    fault: str = ""

    @property
    def display_url(self) -> str:
        """The URL for a person."""
        return self.login_config.key.url

    def find(self) -> LoginConfig | None:
        """The login, if there is one."""
        self.looks += 1
        if self.fault:
            raise UsageError(self.fault)
        return self.login_config if self.has_login else None

    async def log_in(self, server: LoginServer, **changes: Any) -> None:
        """Have a login from now on."""
        access, refresh = server.start()
        made = Login(server.issuer, f"{server.issuer}/token", "b", access, 0, 0, refresh_token=refresh)
        async with self.login_config.keeper.held(self.login_config.key) as held:
            await held.write(replace(made, allow_private=True, **changes))
        self.has_login = True


@dataclass
class Asked:
    """A tool server, and what it was asked by a client with the credentials of a target."""

    server: LoginServer
    place: Place
    target: HttpTarget
    sent: list[str | None] = field(default_factory=list)
    """The tokens of all requests that left."""

    async def post(self) -> int:
        """Send a request; the status of the answer."""

        async def note(request: httpx2.Request) -> None:
            self.sent.append(request.headers.get("authorization"))

        auth = PeerAuth(self.target.url, self.target.credentials)
        async with httpx2.AsyncClient(event_hooks={"request": [note]}) as http:
            return (await http.post(self.target.url, json={}, auth=auth)).status_code


@asynccontextmanager
async def asked(folder: Path) -> AsyncIterator[Asked]:
    """A server that wants a login which is not there."""
    server = LoginServer()
    with anyio.fail_after(60):
        async with server.serve() as url:
            place = Place(LoginConfig(url, LoginFiles(folder), kind=None))
            target = HttpTarget(
                url,
                {"X-Team": "desk"},
                LaterLogin(place, 20),
                connect_seconds=20,
                result_limit_bytes=1 << 20,
                result_json_values=1 << 20,
                on_command_line=True,
            )
            yield Asked(server, place, target)


async def test_a_refused_request_is_sent_once_while_nobody_has_logged_in(tmp_path: Path) -> None:
    async with asked(tmp_path) as there:
        assert [await there.post() for _ in range(2)] == [401, 401]
        assert there.target.how_to_log_in == f"Run `mcp-a2a login {there.server.url}`"
    assert (there.sent, there.place.looks) == ([None, None], 2)


async def test_a_refused_request_is_sent_again_with_a_login_made_meanwhile(
    tmp_path: Path,
) -> None:
    async with asked(tmp_path) as there:
        await there.post()
        await there.place.log_in(there.server)
        assert [await there.post() for _ in range(2)] == [200, 200]
    assert there.sent == [None, None, "Bearer access-1", "Bearer access-1"]
    assert there.place.looks == 2  # and never once it is known


async def test_nothing_is_looked_for_at_a_server_that_refuses_nothing(tmp_path: Path) -> None:
    async with asked(tmp_path) as there:
        open_one = replace(
            there, target=replace(there.target, url=f"{there.server.issuer}/authorize?state=1&redirect_uri=x")
        )
        assert await open_one.post() != 401
    assert there.place.looks == 0


async def test_a_found_login_is_renewed_and_a_lost_login_is_needed_again(tmp_path: Path) -> None:
    async with asked(tmp_path) as there:
        await there.place.log_in(there.server, expires_at=60.0)
        assert await there.post() == 200
        assert there.sent == [None, "Bearer access-2"]
        there.server.forget()
        there.server.revoked = True
        with pytest.raises(LoginNeededError, match=r"invalid_grant: revoked\. Run `mcp-a2a login http"):
            await there.post()


async def test_a_place_of_logins_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    async with asked(tmp_path) as there:
        there.place.fault = "the key is gone"
        with pytest.raises(TokenError, match=r"the login at http\S+ cannot be read: the key is gone"):
            await there.post()


async def test_without_a_login_the_error_names_the_command(tmp_path: Path) -> None:
    async with asked(tmp_path) as there:
        login = LaterLogin(there.place, 20)
        with pytest.raises(LoginNeededError, match=r"nobody has logged in\. Run `mcp-a2a login http\S+/mcp`"):
            await login()
        assert (await login.lack(), login.is_there) == ("", False)
        assert login == LaterLogin(there.place, 20)


@dataclass
class Exposed:
    """An agent that wants a login which is not there, and a bridge that offers it."""

    issuer: LoginServer
    agent: LoginAgent
    place: Place
    bridge: Live

    async def why(self) -> str | None:
        """Why the agent is down, as /readyz says it; None if it is up."""
        found = (await self.bridge.client.get(f"{self.bridge.url}/readyz")).json()
        (state,) = found["mcp"]["team"]["agents"].values()
        return None if state["up"] else str(state["why"]).replace(self.agent.url, "AGENT")


@asynccontextmanager
async def exposed(folder: Path, **options: Any) -> AsyncIterator[Exposed]:
    """Both of them."""
    issuer = LoginServer()
    scheme = options.pop("scheme", None)
    agent = LoginAgent(lambda: issuer.given, **options)
    with anyio.fail_after(60):
        async with issuer.serve(), agent.serve() as url:
            agent.issuer = issuer.issuer
            agent.card = with_scheme(scheme(issuer.issuer)) if scheme else agent.card
            place = Place(LoginConfig(f"{url}/", LoginFiles(folder), kind=None))
            agents = {"desk": RemotePlan(url, tokens=LaterLogin(place, 20), on_command_line=True)}
            offered = {"team": OfferedPlan(("desk",), PROFILE)}
            async with live(folder, agents=agents, offered=offered) as bridge:
                yield Exposed(issuer, agent, place, bridge)


async def test_the_call_after_an_agents_refusal_uses_the_login(tmp_path: Path) -> None:
    async with exposed(tmp_path) as there:
        failed, words = await called(there.bridge)
        assert failed
        assert f"Run `mcp-a2a login {there.agent.url}`" in words
        await there.place.log_in(there.issuer)
        assert await called(there.bridge) == (False, "done")
    assert there.agent.shown == [None, None, "Bearer access-1"]


CLOSED: dict[str, dict[str, Any]] = {
    "its card": {"shows_card": False},
    "its card says so": {"scheme": lambda issuer: {"oauth2SecurityScheme": code_flow(issuer)}},
}


@pytest.mark.parametrize("kind", CLOSED)
async def test_an_agent_that_cannot_be_called_without_a_login_comes_up_by_itself(
    kind: str, tmp_path: Path
) -> None:
    async with exposed(tmp_path, **CLOSED[kind]) as there:
        assert "Run `mcp-a2a login AGENT" in (await there.why() or "")
        await there.place.log_in(there.issuer)
        while await there.why() is not None:
            await anyio.sleep(0.02)
        assert await called(there.bridge) == (False, "done")
        # It is a login like any other from here on.
        there.issuer.forget()
        there.issuer.revoked = True
        failed, words = await called(there.bridge)
        assert failed
        assert "invalid_grant: revoked. Run `mcp-a2a login" in words
    assert set(there.agent.shown) == {"Bearer access-1"}


async def test_an_agent_at_another_origin_than_its_card_never_gets_the_login(
    tmp_path: Path,
) -> None:
    issuer = LoginServer()
    elsewhere = LoginAgent(lambda: issuer.given)
    async with elsewhere.serve(), exposed(tmp_path) as there:
        interface = {"url": f"{elsewhere.url}/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        there.agent.card = {"supportedInterfaces": [interface]}
        agents = {
            "desk": RemotePlan(there.agent.url, tokens=LaterLogin(there.place, 20), on_command_line=True)
        }
        offered = {"team": OfferedPlan(("desk",), PROFILE)}
        (second := tmp_path / "second").mkdir()
        async with live(second, agents=agents, offered=offered) as bridge, bridge.mcp("team") as host:
            assert (await call_in(host))[0]
            await there.place.log_in(there.issuer)
            assert (await call_in(host))[0]
    assert set(elsewhere.shown) == {None}
