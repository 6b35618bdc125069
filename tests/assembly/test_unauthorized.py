"""A peer that does not take the credentials of the bridge has a state of its own: `unauthorized`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from bridge.assembly.plan import OfferedPlan, ProcessPlan, RemotePlan
from bridge.errors import PeerError
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from tests.assembly.test_bridge import PROFILE, Live, agent, live, server, servers
from tests.support.limits import url_at
from tests.support.running import call_part, listening, texts
from tests.support.tool_server import ToolServer, listed
from tests.telemetry.test_metrics import read as metrics_of

OURS, OTHERS = "token-of-ours", "token-of-others"


@dataclass
class Locked(ToolServer):
    """A tool server that lists its tools for everybody, and answers calls with 401 while it is locked."""

    is_locked: bool = True
    says_json: bool = False

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Locked]:
        inner: Server[Any] = Server(self.name, on_list_tools=self._list, on_call_tool=self._call)
        manager = StreamableHTTPSessionManager(inner)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            body = await Request(scope, receive).body() if scope["method"] == "POST" else b""
            sent = [{"type": "http.request", "body": body, "more_body": False}]

            async def again() -> Any:
                return sent.pop() if sent else await receive()

            if self.is_locked and b'"tools/call"' in body:
                error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Bad key"}}
                refusal = JSONResponse(error, 401) if self.says_json else Response("", 401)
                await refusal(scope, again, send)
                return
            await manager.handle_request(scope, again, send)

        async with manager.run(), listening(app) as root_url:
            self.url = f"{root_url}/mcp"
            yield self


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = "does not accept the credentials of the bridge"
    return [one.message for one in caplog.records if one.levelno >= logging.WARNING and said in one.message]


def credentials(token: str) -> list[Credential]:
    return [Credential(Principal("ours"), token)]


async def state_of(there: Live, kind: str, face: str, peer: str, status: int = 503) -> Any:
    told = (await there.json("/readyz", status))[kind][face]
    return told["servers" if kind == "agents" else "agents"][peer]


def place(folder: Path) -> ProcessPlan:
    return ProcessPlan(state=folder / "state", cache=folder / "cache", metrics=("127.0.0.1", 0))


async def outcomes(there: Live, name: str) -> set[str]:
    """The outcomes of the requests that a metric counts."""
    found = await metrics_of(there.bridge)
    return {dict(labels)["outcome"] for (family, labels) in found if family == f"{name}_count"}


@pytest.mark.parametrize("says_json", [False, True])
async def test_a_tool_server_that_answers_401_to_calls_is_unauthorized_until_it_takes_one(
    says_json: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Locked("a", [listed("echo")], says_json=says_json).run() as one:
        plan: dict[str, Any] = {"servers": {"a": server(one.target)}, "published": {"d": agent("a")}}
        async with live(tmp_path, place=place(tmp_path), **plan) as there:
            assert (await state_of(there, "agents", "d", "a", 200))["state"] == "up"
            for _ in range(3):
                task = await there.rpc("d").send(call_part("echo"))
                assert task["status"]["state"] == "TASK_STATE_FAILED"
                assert "answered HTTP 401" in texts(task["status"]["message"]["parts"])[0]
                assert ("Bad key" in texts(task["status"]["message"]["parts"])[0]) is says_json
            told = await state_of(there, "agents", "d", "a")
            assert (told["up"], told["state"]) == (False, "unauthorized")
            assert "answered HTTP 401" in told["why"]
            assert len(warned(caplog)) == 1
            found = await metrics_of(there.bridge)
            assert found["mcp_a2a_peer_unauthorized", (("peer", "a"), ("protocol", "mcp"))] == 1
            assert await outcomes(there, "mcp_client_operation_duration_seconds") == {"unauthorized"}
            assert await outcomes(there, "a2a_server_operation_duration_seconds") == {"unauthorized"}
            one.is_locked = False
            task = await there.rpc("d").send(call_part("echo"))
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
            assert (await state_of(there, "agents", "d", "a", 200))["state"] == "up"
            one.is_locked = True
            await there.rpc("d").send(call_part("echo"))
            assert (await state_of(there, "agents", "d", "a"))["state"] == "unauthorized"
            assert len(warned(caplog)) == 1


async def test_a_tool_server_that_answers_401_to_everything_is_unauthorized(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with servers("one") as (one,):
        far: dict[str, Any] = {
            "servers": {"one": server(one.target)},
            "published": {"a": agent("one")},
            "offered": {"m": OfferedPlan(("a",), PROFILE)},
            "credentials": credentials(OTHERS),
        }
        async with live(tmp_path / "far", **far) as other:
            target = url_at(f"{other.url}/mcp/m")
            target = replace(target, headers={"Authorization": f"Bearer {OURS}"})
            near: dict[str, Any] = {"servers": {"m": server(target)}, "published": {"d": agent("m")}}
            async with live(tmp_path / "near", place=place(tmp_path / "near"), **near) as there:
                told = await state_of(there, "agents", "d", "m")
                assert (told["up"], told["state"]) == (False, "unauthorized")
                assert len(warned(caplog)) == 1
                assert "answered HTTP 401" in told["why"]
                found = await metrics_of(there.bridge)
                assert found["mcp_a2a_peer_unauthorized", (("peer", "m"), ("protocol", "mcp"))] == 1
                with pytest.raises(PeerError, match=r"m is down: .* answered HTTP 401") as caught:
                    async with there.bridge.upstreams["m"].queue("ann", "") as queue:
                        await queue.session.request("tools/list", {})
                assert caught.value.outcome == "unauthorized"
                assert await outcomes(there, "mcp_client_operation_duration_seconds") == {"unauthorized"}
                await other.apply(credentials=credentials(OURS))
                with anyio.fail_after(30):
                    while there.bridge.upstreams["m"].down is not None:
                        await anyio.sleep(0.05)
                assert (await state_of(there, "agents", "d", "m", 200))["state"] == "up"


async def test_an_agent_that_answers_401_to_calls_is_unauthorized_until_it_takes_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with servers("one") as (one,):
        far: dict[str, Any] = {
            "servers": {"one": server(one.target)},
            "published": {"a": agent("one")},
            "credentials": credentials(OTHERS),
        }
        async with live(tmp_path / "far", **far) as other:
            remote = RemotePlan(f"{other.url}/agents/a", bearer=OURS)
            near: dict[str, Any] = {
                "agents": {"a": remote},
                "offered": {"m": OfferedPlan(("a",), PROFILE)},
            }
            async with live(tmp_path / "near", place=place(tmp_path / "near"), **near) as there:
                assert (await state_of(there, "mcp", "m", "a", 200))["state"] == "up"
                async with there.mcp("m") as host:
                    for _ in range(3):
                        result = await host.call_tool("echo", {})
                        assert result.is_error
                        assert "UNAUTHENTICATED" in str(result.content)
                    told = await state_of(there, "mcp", "m", "a")
                    assert (told["up"], told["state"]) == (False, "unauthorized")
                    assert "answered HTTP 401" in told["why"]
                    assert len(warned(caplog)) == 1
                    found = await metrics_of(there.bridge)
                    assert found["mcp_a2a_peer_unauthorized", (("peer", "a"), ("protocol", "a2a"))] == 1
                    assert await outcomes(there, "a2a_client_operation_duration_seconds") == {"unauthorized"}
                    assert "unauthorized" in await outcomes(there, "mcp_server_operation_duration_seconds")
                    await other.apply(credentials=credentials(OURS))
                    assert not (await host.call_tool("echo", {})).is_error
                    assert (await state_of(there, "mcp", "m", "a", 200))["state"] == "up"


async def test_an_agent_that_gives_no_card_without_credentials_is_unauthorized(tmp_path: Path) -> None:
    async def refuses(scope: Scope, receive: Receive, send: Send) -> None:
        await Response("", 401)(scope, receive, send)

    async with listening(refuses) as url:
        near: dict[str, Any] = {
            "agents": {"a": RemotePlan(url)},
            "offered": {"m": OfferedPlan(("a",), PROFILE)},
        }
        async with live(tmp_path, place=place(tmp_path), **near) as there:
            told = await state_of(there, "mcp", "m", "a")
            assert (told["up"], told["state"]) == (False, "unauthorized")
            (agent_of_m,) = there.bridge.offered[0].remote_agents
            with pytest.raises(PeerError, match=r"cannot be called: .*401") as caught:
                _ = agent_of_m.client
            assert caught.value.outcome == "unauthorized"
