"""The operator logs in at agents that take only callers of an issuer, and exposes them: issuer and client are not ours.

The issuers are oidc-provider's, the host is the official MCP client, and one of the agents is a2a-sdk's. The login is
that of the command, in whose browser a script is Alice.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import jwt
import pytest
from mcp import Client
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from bridge.identity.logins.kept_logins import Login, LoginKey, peer_of
from bridge.identity.logins.login_files import LoginFiles
from bridge.local.user_folders import state_folder
from tests.interop.test_oauth_journeys import BRIDGE, mcp_client, said
from tests.peers.echo_agent import build_app
from tests.peers.oidc_provider import OidcProvider
from tests.support.command import environment, run_command
from tests.support.forked import Forked
from tests.support.issuer import bearer
from tests.support.lines import Lines
from tests.support.ports import free_port
from tests.support.postgres import new_database_url
from tests.support.protected_server import ProtectedServer
from tests.support.running import Rpc, call_part, listening
from tests.support.serving_file import serving_file
from tests.support.tool_server import ToolServer, listed

pytestmark = [pytest.mark.outside, pytest.mark.long]

Issuers = Mapping[str, OidcProvider]
WAIT_SECONDS = 60

BROWSER = """
import sys
import anyio
from tests.peers.oidc_provider import Browser

async def log_in():
    async with Browser(sys.argv[1]) as browser:
        print((await browser.visit(sys.argv[2])).text)

anyio.run(log_in)
"""
EXPOSED = """
[agents.desk]
card = "{agent}"
allow_private = true
auth = { oauth2 = { grant = "authorization_code" } }

[agents_as_tools.team]
from = ["desk"]
"""


async def log_in(agent: str, folder: Path) -> str:
    """Log in with the command; what it says."""
    (file := folder / "login.toml").write_text(EXPOSED.replace("{agent}", agent))
    return await ran(folder, "login", "desk", str(file))


async def ran(folder: Path, *words: str, person: str = "alice", **more: str) -> str:
    """What a command says that ends well. `person` is in its browser, `more` in its environment."""
    (browser := folder / "browser.py").write_text(BROWSER)
    state, command = Path(os.environ["XDG_STATE_HOME"]), f"{sys.executable} {browser} {person} %s"
    run = partial(run_command, *words, **{"state": state, "BROWSER": command, **more})
    done: subprocess.CompletedProcess[str] = await anyio.to_thread.run_sync(run)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


async def login_at(agent: str, **changes: Any) -> Login:
    """The login that is kept, after these changes."""
    async with LoginFiles(state_folder()).held(LoginKey(peer_of(agent))) as held:
        assert held.login is not None
        if changes:
            await held.write(replace(held.login, **changes))
        return held.login


async def call_exposed(agent: str, folder: Path, tool: str, **arguments: str) -> str:
    """What the tool of an agent answers to the official client, through a bridge that is started for it."""
    async with (
        serving_file(folder, EXPOSED, agent=agent) as root,
        mcp_client(f"{root}/mcp/team", "auto") as host,
    ):
        await listed_in(host, tool)
        return said(await host.call_tool(tool, arguments))


async def listed_in(host: Client, tool: str) -> None:
    """Wait until a tool is listed: the card of its agent may be read after the start."""
    while tool not in [one.name for one in (await host.list_tools()).tools]:
        pass


def claims_in(token: str) -> dict[str, Any]:
    found: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return found


@asynccontextmanager
async def protected_sdk_agent(issuer: str) -> AsyncIterator[tuple[str, ProtectedServer]]:
    """An agent of a2a-sdk behind a check of tokens, whose 401 leads to the metadata of the resource (RFC 9728)."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    agent, judge = build_app(url), ProtectedServer(issuer, url=f"{url}/")
    link = f'Bearer resource_metadata="{url}/metadata", scope="read"'

    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if request.url.path == "/metadata":
            found = {"resource": f"{url}/", "authorization_servers": [issuer]}
            await JSONResponse(found)(scope, receive, send)
        elif request.method == "POST" and await judge.verify_token(token) is None:
            await Response(status_code=401, headers={"WWW-Authenticate": link})(scope, receive, send)
        else:
            await agent(scope, receive, send)

    async with listening(app, port):
        yield url, judge


async def test_an_agent_of_a2a_sdk_behind_an_issuer_is_exposed_with_the_login_of_the_operator(
    issuers: Issuers, tmp_path: Path
) -> None:
    corp = issuers["corp"]
    with anyio.fail_after(WAIT_SECONDS):
        async with protected_sdk_agent(corp.url) as (url, judge):
            async with (
                serving_file(tmp_path, EXPOSED, agent=url) as root,
                mcp_client(f"{root}/mcp/team", "auto") as host,
            ):
                await listed_in(host, "echo")
                refused = await host.call_tool("echo", {"message": "hello"})
                assert refused.is_error
                assert "Run `mcp-a2a login desk`" in str(refused.content)
                assert f"Logged in at {url}/, with {corp.url}" in await log_in(url, tmp_path)
                assert said(await host.call_tool("echo", {"message": "hello"})) == "hello"
            # It has expired when the next bridge starts, which renews it.
            made = await login_at(url, got_at=0.0, expires_at=time.time() - 60)
            assert await call_exposed(url, tmp_path, "echo", message="again") == "again"
            renewed = await login_at(url)
    shown = [claims_in(token) for token in judge.shown if token]
    assert {(one["sub"], one["iss"], one["aud"], one["scope"]) for one in shown} == {
        ("alice", corp.url, f"{url}/", "read")
    }
    assert renewed.access_token != made.access_token
    assert renewed.refresh_token != made.refresh_token
    assert [event["event"] for event in await corp.seen(made.client_id)] == [
        "registration",
        "authorization.success",
        *["grant.success"] * 2,
    ]


async def test_a_wrapped_server_behind_an_issuer_is_exposed_by_what_its_card_says_and_steps_up(
    issuers: Issuers, tmp_path: Path
) -> None:
    places = {name: issuer.url for name, issuer in issuers.items()}
    (there := tmp_path / "there").mkdir()
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            ToolServer("one", [listed("look"), listed("put")]).run() as tools,
            serving_file(there, BRIDGE, tools=tools.url, **places) as root,
        ):
            agent = f"{root}/agents/desk"
            assert f"with {issuers['corp'].url}" in await log_in(agent, tmp_path)
            async with (
                serving_file(tmp_path, EXPOSED, agent=agent) as exposed,
                mcp_client(f"{exposed}/mcp/team", "auto") as host,
            ):
                await listed_in(host, "look")
                assert "look" in said(await host.call_tool("look", {}))
                kept = await login_at(agent)
                refused = await host.call_tool("put", {})
                assert "wants the scopes tools:write for this. Run `mcp-a2a login desk`" in str(
                    refused.content
                )
                await log_in(agent, tmp_path)
                assert "put" in said(await host.call_tool("put", {}))
                assert "look" in said(await host.call_tool("look", {}))
            wider = await login_at(agent)
    found = claims_in(kept.access_token)
    assert (found["sub"], found["iss"], found["aud"]) == ("alice", issuers["corp"].url, agent)
    assert (kept.scopes, set(wider.scopes)) == (("tools:read",), {"tools:read", "tools:write"})


@asynccontextmanager
async def running(*words: str, until: str) -> AsyncIterator[subprocess.Popen[str]]:
    """A command that serves, in a process of its own, once it has said these words."""
    command = [sys.executable, "-P", "-m", "bridge", *words]
    state = Path(os.environ["XDG_STATE_HOME"])
    with Forked(
        command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=environment(state)
    ) as process:
        try:
            said_so_far = Lines(process, process.stderr)
            await anyio.to_thread.run_sync(said_so_far.until, until)
            yield process
            assert process.poll() is None, "it ran all the time"
        finally:
            process.kill()


FILE = """
[agents.desk]
card = "{agent}"
auth = { oauth2 = { grant = "authorization_code", issuer = "{issuer}" } }

[tool_servers.tools]
url = "{server}"
fail = "open"
auth = { oauth2 = { grant = "authorization_code", issuer = "{issuer}" } }

[agents_as_tools.team]
from = ["desk"]

[tools_as_agent.one]
from = ["tools"]
"""


async def why_down(root: str, token: str = "") -> str:
    """Why something is down, as /readyz says it to an operator; "" if nothing is."""
    async with httpx2.AsyncClient(headers=bearer(token) if token else {}) as http:
        found = (await http.get(f"{root}/readyz")).json()
    faces = [*found["agents"].values(), *found["mcp"].values()]
    peers = [one for face in faces for kind in ("servers", "agents") for one in face.get(kind, {}).values()]
    return " ".join(one["why"] for one in peers if not one["up"])


async def up_at(root: str, token: str = "") -> None:
    """Wait until nothing is down any more."""
    while await why_down(root, token):
        await anyio.sleep(0.05)


@pytest.mark.parametrize("way", ["command line", "file"])
async def test_bridges_that_run_take_up_the_login_that_another_process_makes(
    way: str, issuers: Issuers, tmp_path: Path
) -> None:
    """They said that one is needed, and are not started again."""
    corp, ports = issuers["corp"], [str(free_port()) for _ in range(2)]
    roots = [f"http://127.0.0.1:{port}" for port in ports]
    logins: list[tuple[str, ...]] = []
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(WAIT_SECONDS))
        server = await stack.enter_async_context(ProtectedServer(corp.url).run())
        agent, _ = await stack.enter_async_context(protected_sdk_agent(corp.url))
        if way == "file":
            places, names = {"agent": agent, "server": server.url, "issuer": corp.url}, ("desk", "tools")
            text = FILE
            for name, value in places.items():
                text = text.replace(f"{{{name}}}", value)
            (file := tmp_path / "bridge.toml").write_text(text)
            roots = [roots[0]] * 2
            serving = running("serve", str(file), "--port", ports[0], until="/mcp/team")
            await stack.enter_async_context(serving)
            logins += [("login", name, str(file)) for name in names]
        else:
            wrap = running("wrap", "--fail", "open", "--port", ports[0], server.url, until="Card ")
            expose = running("expose", "--http", "--port", ports[1], agent, until="serving MCP at")
            for one in (wrap, expose):
                await stack.enter_async_context(one)
            logins += [("login", url, "--issuer", corp.url) for url in (agent, server.url)]
        team = f"{roots[1]}/mcp/team" if way == "file" else f"{roots[1]}/mcp"
        host = await stack.enter_async_context(mcp_client(team, "auto"))
        await listed_in(host, "echo")
        refused = await host.call_tool("echo", {"message": "hello"})
        assert refused.is_error
        assert f"Run `mcp-a2a {' '.join(logins[0][:2])}" in str(refused.content)
        assert f"Run `mcp-a2a {' '.join(logins[1][:2])}" in await why_down(roots[0])
        for words in logins:
            await ran(tmp_path, *words)
        assert said(await host.call_tool("echo", {"message": "hello"})) == "hello"
        await up_at(roots[0])
        assert '"subject": "alice"' in await ran(tmp_path, "call", roots[0], "whoami")


REPLICA = """
[bridge]
store = "{database}"
keys = [{ file = "key" }]
public_url = "{root}"

[principals.ops]
bearer = { file = "token" }
operator = "read"

[tool_servers.tools]
url = "{server}"
auth = { oauth2 = { grant = "authorization_code", issuer = "{issuer}" } }
fail = "open"

[tools_as_agent.one]
from = ["tools"]
"""
REFRESHES = 100
OPS = "the-token-of-the-operator"


async def test_two_replicas_renew_a_rotating_token_a_hundred_times_and_the_family_lives(
    issuers: Issuers, tmp_path: Path
) -> None:
    """Two processes on one PostgreSQL. Before each pair of calls, one at each, all tokens so far are refused, so that
    both want another one at the same moment. A refresh token that comes twice would revoke all."""
    corp, ports = issuers["corp"], [str(free_port()) for _ in range(2)]
    roots = [f"http://127.0.0.1:{port}" for port in ports]
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(4 * WAIT_SECONDS))
        server = await stack.enter_async_context(ProtectedServer(corp.url).run())
        text = REPLICA
        places = {"database": new_database_url(), "server": server.url, "issuer": corp.url, "root": roots[0]}
        for name, value in places.items():
            text = text.replace(f"{{{name}}}", value)
        (file := tmp_path / "bridge.toml").write_text(text)
        (key := tmp_path / "key").write_text("a key of these replicas with 32 letters")
        (token := tmp_path / "token").write_text(OPS)
        for one in (key, token):
            one.chmod(0o600)
        await ran(tmp_path, "store", "migrate", str(file))
        for port in ports:
            serving = running("serve", str(file), "--port", port, until="/agents/one")
            await stack.enter_async_context(serving)
        assert "nobody has logged in" in await why_down(roots[0], OPS)
        await ran(tmp_path, "login", "tools", str(file))
        for root in roots:
            await up_at(root, OPS)
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=WAIT_SECONDS))
        (client_id,) = {
            str(jwt.decode(one, options={"verify_signature": False})["client_id"]) for one in server.shown
        }

        async def call(root: str) -> None:
            task = await Rpc(http, f"{root}/agents/one", bearer(OPS)).send(call_part("whoami"))
            assert "alice" in str(task), task

        while len(await renewals(corp, client_id)) < REFRESHES:
            server.revoked |= set(server.shown)
            async with anyio.create_task_group() as tasks:
                for root in roots:
                    tasks.start_soon(call, root)
        assert not await why_down(roots[0], OPS)
        events = [event["event"] for event in await corp.seen(client_id)]
    assert set(events) == {"registration", "authorization.success", "grant.success"}
    assert events.count("grant.success") > REFRESHES


async def renewals(issuer: OidcProvider, client_id: str) -> list[str]:
    """The refreshes of a client that its issuer granted."""
    return [one["event"] for one in await issuer.seen(client_id) if one.get("grant_type") == "refresh_token"]


async def test_a_tool_and_an_agent_are_called_from_a_shell_after_a_login_at_their_urls(
    issuers: Issuers, tmp_path: Path
) -> None:
    corp = issuers["corp"]
    with anyio.fail_after(WAIT_SECONDS):
        async with ProtectedServer(corp.url).run() as server, protected_sdk_agent(corp.url) as (url, _):
            for peer in (server.url, url):
                await ran(tmp_path, "login", peer, "--issuer", corp.url)
            assert '"subject": "alice"' in await ran(tmp_path, "call", server.url, "whoami")
            assert (await ran(tmp_path, "call", url, "--text", "hello")).startswith("hello\n")
