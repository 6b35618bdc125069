"""Callers of an MCP server that is made of an agent of the same bridge: the agent works for each of them alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from bridge.assembly.own_callers import CALLER_HEADER, OwnCallers, UnknownCallerError
from bridge.assembly.plan import OfferedPlan
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.identity.tokens.caller_token import Caller, CallerToken
from tests.assembly.test_bridge import PROFILE, agent, live, server
from tests.assembly.test_caller_logins import TOKENS, Office, office, put
from tests.support.running import call_part
from tests.support.tool_server import ToolServer, listed

pytestmark = pytest.mark.outside

TEAM: Final = {"team": OfferedPlan(("desk",), PROFILE)}
SECRET: Final = "a secret of the bridge that nobody else knows"


@asynccontextmanager
async def host(
    here: Office, who: str, answer: Callable[[str], Any] | None = None, mode: str = "auto"
) -> AsyncIterator[Client]:
    """The official client of a host that opens URLs, as this principal."""

    async def opens(_: Any, asked: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(asked, types.ElicitRequestURLParams)
        assert answer is not None
        return types.ElicitResult(action=await answer(asked.url))

    headers = {"Authorization": f"Bearer {TOKENS[who]}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(
            streamable_http_client(f"{here.there.url}/mcp/team", http_client=http),
            mode=mode,  # type: ignore[arg-type]
            cache=None,
            client_info=types.Implementation(name="Äcme <b>", version="3"),
            elicitation_callback=None if answer is None else opens,
        ) as client,
    ):
        yield client


def words_of(result: types.CallToolResult) -> str:
    return " ".join(block.text for block in result.content if isinstance(block, types.TextContent))


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_host_gets_the_link_of_its_caller_and_the_call_goes_on_by_itself(
    tmp_path: Path, mode: str
) -> None:
    async with office(tmp_path, offered=TEAM) as here:
        links: list[str] = []
        asked: list[str] = []

        async def logs_in(link: str) -> str:
            links.append(link)
            asked.append((await here.is_asked("alice", link))["Asked by"])
            await put(replace(here.login_config, principal="alice"), here.issuer)
            return "accept"

        async with host(here, "alice", logs_in, mode) as client:
            assert words_of(await client.call_tool("echo", {})) == "done"
            assert words_of(await client.call_tool("echo", {})) == "done"
        (link,) = links
        assert link.startswith(f"{here.there.url}/login/start/")
        assert here.calls == ["access-2", "access-2"]
        assert asked == [
            "the agent desk over A2A; the client calls itself &quot;cme &lt;b&gt; 3 (over MCP)&quot;"
        ]


async def test_each_caller_of_an_mcp_server_is_called_for_with_its_own_login(tmp_path: Path) -> None:
    async with office(tmp_path, offered=TEAM) as here:
        for who in TOKENS:
            await put(replace(here.login_config, principal=who), here.issuer)
            async with host(here, who) as client:
                assert words_of(await client.call_tool("echo", {})) == "done"
        assert here.calls == ["access-2", "access-3"]


async def test_a_host_that_opens_no_urls_gets_the_link_in_words(tmp_path: Path) -> None:
    async with office(tmp_path, offered=TEAM) as here, host(here, "bob") as client:
        assert f"{here.there.url}/login/start/" in words_of(await client.call_tool("echo", {}))
        assert here.calls == []


async def test_a_caller_that_declines_at_its_host_or_on_the_page_is_told_so(tmp_path: Path) -> None:
    async with office(tmp_path, offered=TEAM) as here:

        async def declines_on_the_page(link: str) -> str:
            await here.logs_in("bob", link, "decline")
            return "accept"

        async def declines_here(_: str) -> str:
            return "decline"

        for answer in (declines_here, declines_on_the_page):
            async with host(here, "bob", answer) as client:
                result = await client.call_tool("echo", {})
                assert result.is_error
                assert "declined" in words_of(result)
        assert here.calls == []


async def test_a_task_of_a_host_belongs_to_its_caller_and_to_nobody_else(tmp_path: Path) -> None:
    people = [
        Credential(Principal("alice", skills=("team/*",)), TOKENS["alice"]),
        Credential(Principal("bob"), TOKENS["bob"]),
    ]
    async with (
        ToolServer("tools", [listed("echo")]).run() as tools,
        live(
            tmp_path,
            servers={"tools": server(tools.target)},
            published={"desk": agent("tools")},
            offered=TEAM,
            credentials=people,
        ) as there,
    ):
        here: Any = Office(there, None, None, [])  # type: ignore[arg-type]
        # What the caller may use was judged at the MCP server: at the agent itself it may use nothing.
        async with host(here, "alice") as client:
            assert not (await client.call_tool("echo", {})).is_error
        listed_for = {
            who: [one["id"] for one in (await here.rpc(who, "ListTasks", {}))["tasks"]] for who in TOKENS
        }
        assert [len(listed_for[who]) for who in ("alice", "bob")] == [1, 0]
        refused = await here.rpc(
            "alice",
            "SendMessage",
            {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [call_part("echo")]}},
        )
        assert refused["task"]["status"]["state"] != "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("as_whom", ["bob", "nobody"])
async def test_a_stranger_who_writes_the_header_is_itself(tmp_path: Path, as_whom: str) -> None:
    async with office(tmp_path) as here:
        forged = OwnCallers(SECRET).headers(Caller(as_whom))
        task = await here.send("alice", {"parts": [call_part("echo")]})
        answer = await here.there.client.post(
            f"{here.there.url}/agents/desk",
            json={"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}},
            headers={"Authorization": f"Bearer {TOKENS['alice']}", "A2A-Version": "1.0", **forged},
        )
        assert [one["id"] for one in answer.json()["result"]["tasks"]] == [task["id"]]


def test_a_caller_comes_back_with_its_token_and_only_with_the_secret_of_the_bridge() -> None:
    token = CallerToken("https://corp", "corp:ann", "secret-of-ann", 2e9)
    for caller in (Caller("ann"), Caller("corp:ann", token)):
        headers = OwnCallers(SECRET).headers(caller)
        assert "ann" not in headers[CALLER_HEADER]
        principal = OwnCallers(SECRET).principal_in(headers[CALLER_HEADER])
        assert (principal.name, principal.token, principal.is_judged) == (
            caller.principal,
            caller.token,
            True,
        )
        for other in (headers[CALLER_HEADER][:-4], "", "AAAA", "ü"):
            with pytest.raises(UnknownCallerError):
                OwnCallers(SECRET).principal_in(other)
        with pytest.raises(UnknownCallerError):
            OwnCallers(SECRET[::-1]).principal_in(headers[CALLER_HEADER])
