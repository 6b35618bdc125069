"""A tool server that needs a login: how its lack is said, and that a login is used as soon as it is there."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
from starlette.responses import Response

from bridge.assembly.plan import ServerPlan
from bridge.identity.logins.kept_logins import Login
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.identity.logins.login_files import LoginFiles
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.streamable_http import HttpTarget
from tests.assembly.test_bridge import Live, agent, live
from tests.support.login_server import LoginServer
from tests.support.mcp_wire import LEGACY
from tests.support.recording_server import Got, RecordingServer
from tests.support.running import call_part, profile_with

PROFILE = profile_with(server={"fail": "open", "longest_pause_seconds": 0.1, "connect_seconds": 2.0})
TOOLS = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}


def with_token(result: Any, token: str) -> Any:
    """An answer for those who show a token."""

    def answer(got: Got) -> Any:
        return result if got.headers.get("authorization") == f"Bearer {token}" else Response(status_code=401)

    return answer


@asynccontextmanager
async def crm(tmp_path: Path, issuer: LoginServer, **answers: Any) -> AsyncIterator[tuple[LoginConfig, Live]]:
    """A bridge with an agent of one server, `crm`, which needs a login."""
    tools = RecordingServer(LEGACY, answers=answers)
    with anyio.fail_after(60):
        async with issuer.serve(), tools.serve() as url:
            login_config = LoginConfig(url, LoginFiles(tmp_path / "state"), "crm", allow_private=True)
            target = HttpTarget(
                url,
                oauth=login_config,
                connect_seconds=20,
                result_limit_bytes=1 << 20,
                result_json_values=10_000,
            )
            plan = ServerPlan.as_profile_says(target, Era.LEGACY, PROFILE.server, PROFILE.run)
            async with live(tmp_path, servers={"crm": plan}, published={"desk": agent("crm")}) as there:
                yield login_config, there


async def put(login_config: LoginConfig, issuer: LoginServer, **changes: Any) -> None:
    access, refresh = issuer.start()
    now = time.time()
    login = Login(issuer.issuer, f"{issuer.issuer}/token", "b", access, now, now, refresh_token=refresh)
    async with login_config.keeper.held(login_config.key) as held:
        await held.write(replace(login, **changes))


async def test_a_server_without_a_login_is_down_with_the_command_and_up_once_somebody_logs_in(
    tmp_path: Path,
) -> None:
    issuer = LoginServer()
    async with crm(tmp_path, issuer, **{"tools/list": with_token(TOOLS, "access-1")}) as (
        login_config,
        there,
    ):
        down = (await there.json("/readyz", 503))["agents"]["desk"]["servers"]["crm"]
        assert "login needed" in down["why"]
        assert "Run `mcp-a2a login crm`" in down["why"]
        await put(login_config, issuer)
        while (await there.client.get(f"{there.url}/readyz")).status_code != 200:
            await anyio.sleep(0.01)
        assert await there.skills("desk") == ["echo"]


async def test_a_task_whose_login_was_revoked_says_the_command(tmp_path: Path) -> None:
    issuer = LoginServer(revoked=True)
    calls = with_token({"content": []}, "no token")
    answers = {"tools/list": lambda _: TOOLS, "tools/call": calls}
    async with crm(tmp_path, issuer, **answers) as (login_config, there):
        await put(login_config, issuer)
        while (await there.client.get(f"{there.url}/readyz")).status_code != 200:
            await anyio.sleep(0.01)
        task = await there.rpc("desk").send(call_part("echo"))
    text = json.dumps(task)
    assert "TASK_STATE_FAILED" in text
    assert "login needed" in text
    assert "Run `mcp-a2a login crm`" in text
    assert "access-" not in text
