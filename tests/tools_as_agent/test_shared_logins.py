"""Requests of MCP to a server that wants a login of each caller: from the task without a login to the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from bridge.assembly.plan import OfferedPlan
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from tests.assembly.test_bridge import agent
from tests.assembly.test_caller_logins import TOKENS, Office, Town, link_in, town
from tests.assembly.test_logins import PROFILE, put
from tests.support.recording_server import Answer, Got
from tests.support.running import Rpc
from tests.tools_as_agent.test_shared_requests import ACTIVE, ALL, BOTH, asked
from tests.tools_as_agent.test_shared_requests import Client as Caller

pytestmark = [pytest.mark.outside, pytest.mark.proves("oauth-each")]

Json = dict[str, Any]
AUTH: Final = "TASK_STATE_AUTH_REQUIRED"
DONE: Final = "TASK_STATE_COMPLETED"
REQUESTS: Final[dict[str, Json]] = {
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": {"uri": "n:1"},
    "prompts/list": {},
    "prompts/get": {"name": "p"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "p"},
        "argument": {"name": "x", "value": ""},
    },
}


class Desk:
    """A server with resources and prompts, and the tokens that its requests had."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, str]] = []

    @property
    def answers(self) -> dict[str, Answer]:
        """Its answers by the method."""
        return {**dict.fromkeys(REQUESTS, self._answer), "resources/subscribe": self._subscribed}

    def _note(self, got: Got) -> None:
        self.shown.append((got.method, got.headers["authorization"].removeprefix("Bearer ")))

    def _answer(self, got: Got) -> Json:
        self._note(got)
        return {
            "resources": [{"uri": uri, "name": "n"} for uri in ("n:1", "n:2")],
            "resourceTemplates": [],
            "contents": [{"uri": "n:1", "text": "one"}],
            "prompts": [],
            "messages": [],
            "completion": {"values": ["x"]},
        }

    def _subscribed(self, got: Got) -> Json:
        self._note(got)
        return {}


@asynccontextmanager
async def desks(folder: Path, link_seconds: float = 600) -> AsyncIterator[tuple[Town, Desk]]:
    """A server that wants a login of each caller."""
    desk = Desk()
    async with town(folder, link_seconds, others=desk.answers, capabilities=ALL) as here:
        yield here, desk


SHARING: Final[Json] = {"published": {"desk": agent("crm", share=BOTH)}}


def client_of(office: Office, who: str) -> Caller:
    headers = {**ACTIVE, "Authorization": f"Bearer {TOKENS[who]}"}
    return Caller(Rpc(office.there.client, f"{office.there.url}/agents/desk", headers))


async def sent(office: Office, who: str, method: str, params: Json | None = None) -> Json:
    """The task that waits for the login of the caller of a request."""
    task: Json = (await client_of(office, who).rpc.call("SendMessage", asked(method, params)))["task"]
    assert task["status"]["state"] == AUTH
    return task


def answer_in(task: Json) -> Json:
    """The data of the message with which a task has ended."""
    (part,) = task["status"]["message"]["parts"]
    data: Json = part["data"]
    return data


@pytest.mark.parametrize("method", [*REQUESTS])
async def test_a_request_goes_on_by_itself_once_its_caller_has_a_login(method: str, tmp_path: Path) -> None:
    async with desks(tmp_path) as (here, desk), here.opens(**SHARING) as office:
        task = await sent(office, "alice", method, REQUESTS[method])
        assert link_in(task).startswith(f"{office.there.url}/login/start/")
        assert desk.shown == []
        await put(replace(here.login_config, principal="alice"), here.issuer)
        assert list(answer_in(await office.becomes("alice", task, DONE))) == ["result"]
        assert desk.shown == [(method, "access-2")]
        # The next request needs no task, and goes with the same login.
        await client_of(office, "alice").result(method, REQUESTS[method])
        assert desk.shown == [(method, "access-2")] * 2
        # Another caller has not logged in.
        await sent(office, "bob", method, REQUESTS[method])
        assert len(desk.shown) == 2


async def test_a_subscription_begins_once_its_caller_has_a_login(tmp_path: Path) -> None:
    async with desks(tmp_path) as (here, desk), here.opens(**SHARING) as office:
        wanted = {"notifications": {"resourceSubscriptions": ["n:1"]}}
        task = await sent(office, "alice", "subscriptions/listen", wanted)
        await put(replace(here.login_config, principal="alice"), here.issuer)
        while (now := await office.becomes("alice", task, "TASK_STATE_WORKING"))["status"].get(
            "message"
        ) is None:
            await anyio.sleep(0.01)
        assert answer_in(now)["notifications"][0]["params"] == wanted
        assert desk.shown == [("resources/subscribe", "access-2")]
        ended = await office.rpc("alice", "CancelTask", {"id": task["id"]})
        assert ended["status"]["state"] == "TASK_STATE_CANCELED"


async def test_another_process_goes_on_with_a_request_that_waits(tmp_path: Path) -> None:
    stored = {"desk": agent("crm", share=BOTH, store=str(tmp_path / "tasks.db"))}
    async with desks(tmp_path) as (here, desk):
        async with here.opens(published=stored) as office:
            task = await sent(office, "alice", "resources/read", REQUESTS["resources/read"])
        await put(replace(here.login_config, principal="alice"), here.issuer)
        async with here.opens(published=stored) as office:
            ended = await office.becomes("alice", task, DONE)
        assert answer_in(ended)["result"]["contents"][0]["text"] == "one"
        assert desk.shown == [("resources/read", "access-2")]


async def test_a_message_to_a_request_whose_link_nobody_used_makes_it_again(tmp_path: Path) -> None:
    async with desks(tmp_path, link_seconds=0.01) as (here, desk), here.opens(**SHARING) as office:
        task = await sent(office, "alice", "resources/read", REQUESTS["resources/read"])
        while office.there.bridge.running:
            await anyio.sleep(0.01)
        await put(replace(here.login_config, principal="alice"), here.issuer)
        await office.send("alice", {"taskId": task["id"], "parts": [{"text": "done"}]})
        assert "result" in answer_in(await office.becomes("alice", task, DONE))
        assert desk.shown == [("resources/read", "access-2")]


async def test_whoever_declines_the_login_ends_the_request(tmp_path: Path) -> None:
    async with desks(tmp_path) as (here, desk), here.opens(**SHARING) as office:
        task = await sent(office, "alice", "prompts/list")
        assert (await office.logs_in("alice", link_in(task), "decline")).status_code == 200
        await office.becomes("alice", task, "TASK_STATE_REJECTED")
        assert desk.shown == []


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_host_gets_the_link_and_asks_again(mode: str, tmp_path: Path) -> None:
    offered = {"m": OfferedPlan(("desk",), PROFILE)}
    async with (
        desks(tmp_path) as (here, desk),
        here.opens(**SHARING, offered=offered) as office,
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKENS['alice']}"}, timeout=60) as http,
        Client(
            streamable_http_client(f"{office.there.url}/mcp/m", http_client=http),
            mode=mode,
            cache=None,
        ) as host,
    ):
        with pytest.raises(MCPError, match=r"wants you to log in(?s:.*)/login/start/(?s:.*)ask again"):
            await host.read_resource("n:1")
        assert desk.shown == []
        while office.there.bridge.running:  # the canceled task
            await anyio.sleep(0.01)
        await put(replace(here.login_config, principal="alice"), here.issuer)
        assert (await host.read_resource("n:1")).contents[0].text == "one"  # type: ignore[union-attr]
        assert desk.shown == [("resources/read", "access-2")]


@pytest.mark.parametrize(
    ("method", "left", "state"),
    [
        ("resources/read", ("n:2",), "TASK_STATE_REJECTED"),
        ("resources/list", ("n:2",), DONE),
        ("resources/list", (), "TASK_STATE_REJECTED"),
    ],
)
async def test_rights_that_were_lost_meanwhile_are_lost_for_the_request(
    method: str, left: tuple[str, ...], state: str, tmp_path: Path
) -> None:
    async with desks(tmp_path) as (here, desk), here.opens(**SHARING) as office:
        task = await sent(office, "alice", method, REQUESTS[method])
        fewer = Principal("alice", skills=("echo",), resources=left)
        await office.there.apply(credentials=[Credential(fewer, TOKENS["alice"])])
        await put(replace(here.login_config, principal="alice"), here.issuer)
        ended = await office.becomes("alice", task, state)
        if state == DONE:
            assert [one["uri"] for one in answer_in(ended)["result"]["resources"]] == ["n:2"]
        else:
            assert desk.shown == []
