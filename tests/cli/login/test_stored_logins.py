"""Commands that take a URL use the login that was made there, and say how to make one."""

from __future__ import annotations

import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from bridge.assembly.plan import OfferedPlan, RemotePlan
from bridge.cli.login.login import StoredLogin, with_stored_logins
from bridge.cli.option_document import plan_of
from bridge.identity.logins.kept_logins import Login, LoginKey, peer_of
from bridge.identity.logins.later_login import LaterLogin
from bridge.identity.logins.login_credentials import LoginConfig, LoginToken
from bridge.identity.logins.login_files import LoginFiles
from bridge.local.user_folders import state_folder
from bridge.mcp.client.transports.streamable_http import HttpTarget
from tests.assembly.test_bridge import agent, live
from tests.support.command import run_here
from tests.support.login_agent import LoginAgent, with_scheme
from tests.support.login_server import LoginServer
from tests.support.running import profile_with

pytestmark = pytest.mark.outside


@dataclass
class Peers:
    """An issuer with a tool server, and an agent that takes its tokens."""

    issuer: LoginServer
    agent: LoginAgent
    state: Path

    async def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        run = partial(run_here, *words, state=self.state, folder=self.state)
        done = await anyio.to_thread.run_sync(run)
        done.stdout = done.stdout.replace(self.agent.url, "AGENT").replace(self.issuer.issuer, "SERVER")
        done.stderr = done.stderr.replace(self.agent.url, "AGENT").replace(self.issuer.issuer, "SERVER")
        return done

    async def keep(self, url: str, **changes: Any) -> None:
        """Keep a login at a URL, as `login URL` does."""
        access, refresh = self.issuer.start()
        now, issuer = time.time(), self.issuer.issuer
        made = Login(
            issuer, f"{issuer}/token", "b", access, now, now, refresh_token=refresh, allow_private=True
        )
        async with LoginFiles(self.state / "mcp-a2a").held(LoginKey(peer_of(url))) as held:
            await held.write(replace(made, **changes))


@asynccontextmanager
async def peers(folder: Path, **options: Any) -> AsyncIterator[Peers]:
    """Both of them."""
    issuer = LoginServer()
    made = LoginAgent(lambda: issuer.given, **options)
    with anyio.fail_after(60):
        async with issuer.serve(), made.serve():
            made.issuer = issuer.issuer
            yield Peers(issuer, made, folder)


@pytest.mark.parametrize("suffix", ["", "/", "/.well-known/agent-card.json"])
async def test_a_call_uses_the_stored_login_of_its_url(suffix: str, tmp_path: Path) -> None:
    async with peers(tmp_path, shows_card=False) as there:
        await there.keep(there.agent.url)
        done = await there.run("call", f"{there.agent.url}{suffix}", "--text", "hi")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert there.agent.shown == ["Bearer access-1"]


async def test_a_card_is_read_with_the_login_and_an_expired_one_is_renewed(tmp_path: Path) -> None:
    async with peers(tmp_path, shows_card=False) as there:
        await there.keep(there.agent.url, got_at=0.0, expires_at=60.0)
        done = await there.run("card", there.agent.url)
    assert done.returncode == 0, done.stderr
    assert "Says what it was told to" in done.stdout
    assert [form["grant_type"] for form in there.issuer.asked] == ["refresh_token"]


@pytest.mark.parametrize("words", [("call", "--text", "hi"), ("tasks",), ("card",)])
async def test_a_login_that_is_lost_says_the_command_that_makes_another(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    async with peers(tmp_path, shows_card=False) as there:
        await there.keep(there.agent.url, lost="ISSUER renewed no token: invalid_grant")
        done = await there.run(words[0], there.agent.url, *words[1:])
    assert done.returncode == 1
    assert " ".join(done.stderr.split()) == (
        "mcp-a2a: login needed at AGENT/: ISSUER renewed no token: invalid_grant. Run `mcp-a2a login AGENT/`"
    )


async def test_a_token_on_the_command_line_is_used_instead_of_a_login(tmp_path: Path) -> None:
    async with peers(tmp_path) as there:
        await there.keep(there.agent.url)
        (token := tmp_path / "token").write_text(there.issuer.start()[0])
        done = await there.run("call", there.agent.url, "--bearer", f"file:{token}", "--text", "hi")
    assert done.returncode == 0, done.stderr
    assert there.agent.shown == ["Bearer access-2"]


@pytest.mark.parametrize("words", [("call", "--text", "hi"), ("tasks",)])
async def test_an_agent_that_wants_a_login_is_told_with_the_command(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    async with peers(tmp_path) as there:
        done = await there.run(words[0], there.agent.url, *words[1:])
        assert "Run `mcp-a2a login AGENT`, or give it a token" in " ".join(done.stderr.split())
        place = f"{there.issuer.issuer}/.well-known/openid-configuration"
        there.agent.card = with_scheme({"openIdConnectSecurityScheme": {"openIdConnectUrl": place}})
        done = await there.run(words[0], there.agent.url, *words[1:])
        assert "Run `mcp-a2a login AGENT`" in " ".join(done.stderr.split())
    assert done.returncode == 1


async def test_a_wrapped_server_that_wants_a_login_is_told_with_the_command(tmp_path: Path) -> None:
    async with peers(tmp_path) as there:
        plan = plan_of({"tool_servers": {"one": {"url": there.issuer.url}}})
        servers = {"one": replace(plan.servers["one"], fail="open")}
        async with live(tmp_path, servers=servers, published={"desk": agent("one")}) as bridge:
            state = (await bridge.json("/readyz", 503))["agents"]["desk"]["servers"]["one"]
    assert f"answered HTTP 401 Unauthorized. Run `mcp-a2a login {there.issuer.url}`" in state["why"]


async def test_an_exposed_agent_that_wants_a_login_is_told_with_the_command(tmp_path: Path) -> None:
    async with peers(tmp_path) as there:
        agents = {"desk": RemotePlan(there.agent.url, on_command_line=True)}
        offered = {"team": OfferedPlan(("desk",), profile_with(agents={"first_cards_seconds": 30.0}))}
        async with (
            live(tmp_path, agents=agents, offered=offered) as bridge,
            bridge.mcp("team") as host,
        ):
            result = await host.call_tool("act", {"message": "go"})
    assert result.is_error
    words = result.content[0].text.replace(there.agent.url, "AGENT")  # type: ignore[union-attr]
    assert "login needed: AGENT/ answered HTTP 401" in words
    assert "Run `mcp-a2a login AGENT`" in words


async def test_the_plan_of_a_command_line_has_the_logins_of_its_urls(tmp_path: Path) -> None:
    url, other = "https://tools.example/mcp", "https://other.example/mcp"
    files = LoginFiles(state_folder())
    login_config = LoginConfig(url, files, kind=None)
    login = Login("https://login.example", "https://login.example/token", "b", "access-1", 0.0, 0.0)
    async with files.held(login_config.key) as held:
        await held.write(login)
    data: dict[str, Any] = {
        "tool_servers": {
            "one": {"url": url},
            "two": {"url": other},
            "three": {"url": url, "headers": {"authorization": {"env": "HOME"}}},
        },
        "agents": {"four": {"card": url}, "five": {"card": url, "auth": {"bearer": {"env": "HOME"}}}},
    }
    plan = with_stored_logins(plan_of(data))
    targets = [one.target for one in plan.servers.values()]
    place = StoredLogin(other, allow_private=False, tls=None)
    later = LaterLogin(place, plan.profile.server.connect_seconds)
    assert [one.oauth for one in targets if isinstance(one, HttpTarget)] == [login_config, later, None]
    seconds = plan.profile.agents.agent_connect_seconds
    assert [one.tokens for one in plan.agents.values()] == [LoginToken(login_config, seconds), None]
    assert (place.find(), place.display_url) == (None, other)
    async with files.held(login_config.key) as held:
        await held.remove()
