"""Metrics and audit of tokens, logins and push notifications of a whole bridge."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import AuditPlan, ProcessPlan, PushPlan, ServerPlan
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.identity.logins.login_files import LoginFiles
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.streamable_http import HttpTarget
from bridge.notices import LoginEvent
from tests.assembly.test_bridge import agent, live
from tests.assembly.test_logins import PROFILE, TOOLS, put, with_token
from tests.identity.tokens.test_oauth import client_at
from tests.support.authorization_server import AuthorizationServer
from tests.support.login_server import LoginServer
from tests.support.mcp_wire import LEGACY
from tests.support.receiver import receiving
from tests.support.recording_server import RecordingServer
from tests.support.running import call_part
from tests.telemetry.test_metrics import one, read

pytestmark = pytest.mark.outside


def place_of(folder: Path, **more: Any) -> ProcessPlan:
    """A process that counts, and writes an audit."""
    audit = AuditPlan(folder / "audit.jsonl", 1 << 20, 600)
    return ProcessPlan(
        state=folder / "state", cache=folder / "cache", metrics=("127.0.0.1", 0), audit=audit, **more
    )


def server_at(url: str, oauth: Any) -> ServerPlan:
    """A tool server that wants a token."""
    target = HttpTarget(
        url, oauth=oauth, connect_seconds=20, result_limit_bytes=1 << 20, result_json_values=10_000
    )
    return ServerPlan.as_profile_says(target, Era.LEGACY, PROFILE.server, PROFILE.run)


def told(folder: Path, *events: str) -> list[dict[str, Any]]:
    """The lines of these events, without what varies."""
    lines = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    known = ("event", "principal", "face", "peer", "grant", "outcome")
    return [{key: line[key] for key in known if key in line} for line in lines if line["event"] in events]


async def until_usable(bridge: Bridge, wanted: float) -> None:
    """Wait until the login at the server is told as usable, or as needed."""
    with anyio.fail_after(30):
        while one(await read(bridge), "mcp_a2a_login_usable", peer="crm", protocol="mcp") != wanted:
            await anyio.sleep(0.01)


async def test_a_login_that_is_needed_made_renewed_and_lost_is_counted_and_told(tmp_path: Path) -> None:
    issuer = LoginServer()
    tools = RecordingServer(LEGACY, answers={"tools/list": with_token(TOOLS, "access-2")})
    async with issuer.serve(), tools.serve() as url:
        login_config = LoginConfig(url, LoginFiles(tmp_path / "state"), "crm", allow_private=True)
        servers, place = {"crm": server_at(url, login_config)}, place_of(tmp_path)
        async with live(tmp_path, servers=servers, published={"desk": agent("crm")}, place=place) as there:
            await until_usable(there.bridge, 0)
            await put(login_config, issuer, got_at=0.0, expires_at=60.0)
            await until_usable(there.bridge, 1)
            found = await read(there.bridge)
    assert {
        one(found, "mcp_a2a_logins_total", peer="crm", event=event) for event in get_args(LoginEvent)
    } == {0}
    labels = {"peer": "crm", "grant": "refresh_token", "outcome": "given"}
    assert one(found, "mcp_a2a_token_request_duration_seconds_count", **labels) == 1
    assert told(tmp_path, "token", "login_lost") == [{"event": "token", **labels}]
    assert "access-" not in (tmp_path / "audit.jsonl").read_text()


async def test_a_token_of_the_bridge_itself_is_counted_by_the_peer_that_it_is_for(tmp_path: Path) -> None:
    issuer = AuthorizationServer()
    tools = RecordingServer(LEGACY, answers={"tools/list": with_token(TOOLS, "token-1")})
    async with issuer.serve() as at, tools.serve() as url:
        servers, place = {"crm": server_at(url, client_at(at, resource=url))}, place_of(tmp_path)
        async with live(tmp_path, servers=servers, published={"desk": agent("crm")}, place=place) as there:
            found = await read(there.bridge)
            await there.bridge.apply(replace(there.plan, servers={}, published={}))
            after = await read(there.bridge)
    labels = {"peer": "crm", "grant": "client_credentials", "outcome": "given"}
    assert one(found, "mcp_a2a_token_request_duration_seconds_count", **labels) == 1
    assert not any(name == "mcp_a2a_login_usable" for name, _ in found)
    assert not any(dict(known).get("peer") == "crm" for _, known in after)
    assert told(tmp_path, "token") == [{"event": "token", **labels}]


async def test_push_notifications_are_counted_by_their_agent_and_a_target_of_a_message_is_told(
    tmp_path: Path,
) -> None:
    tools = RecordingServer(LEGACY, answers={"tools/list": lambda _: TOOLS})
    async with receiving() as receiver, tools.serve() as url:
        place = place_of(tmp_path, push=PushPlan(frozenset({receiver.place})), keys=("k" * 32,))
        servers, desk = {"crm": server_at(url, None)}, {"desk": agent("crm")}
        async with live(tmp_path, servers=servers, published=desk, place=place) as there:
            login_config = {"taskPushNotificationConfig": {"url": receiver.url()}}
            await there.rpc("desk").send(
                call_part("echo"), configuration={**login_config, "returnImmediately": True}
            )
            with anyio.fail_after(30):
                found = await read(there.bridge)
                while one(found, "a2a_push_waiting", face="desk") or not receiver.got:
                    await anyio.sleep(0.01)
                    found = await read(there.bridge)
    for outcome in ("failed", "given_up"):
        assert one(found, "a2a_push_attempts_total", face="desk", outcome=outcome) == 0
    sent = one(found, "a2a_push_attempts_total", face="desk", outcome="delivered")
    assert sent == len(receiver.got)
    for name in ("a2a_push_oldest_seconds", "a2a_push_backed_off"):
        assert one(found, name, face="desk") == 0
    assert told(tmp_path, "webhook_added") == [
        {"event": "webhook_added", "principal": "local", "face": "desk"}
    ]
    assert receiver.url() not in (tmp_path / "audit.jsonl").read_text()
