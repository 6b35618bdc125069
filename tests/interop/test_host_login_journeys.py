"""Hosts that log in, and hosts that open links for people: the client, the issuers and what is behind are not ours.

The host is the official MCP client, the issuers are oidc-provider's, the agents are a2a-sdk's, and the tool server is
the MCP SDK's. Scripts are the people at the browsers.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import mcp_types as types
import pytest
from mcp import Client

from tests.interop.test_each_login_journeys import (
    BRIDGE,
    OF_AN_ISSUER,
    OF_THE_FILE,
    SECRETS,
    TOKENS,
    Visitor,
    link_in,
    logins,
    operator_logs_in,
)
from tests.interop.test_login_journeys import claims_in, listed_in, protected_sdk_agent, ran
from tests.interop.test_oauth_journeys import Kept, bearer, mcp_client, provider_of, said
from tests.peers import sdk_behaviours
from tests.peers.oidc_provider import Browser, OidcProvider, RegisteredClient
from tests.support.ports import free_port
from tests.support.protected_server import ProtectedServer
from tests.support.running import listening
from tests.support.serving_file import serving_file

pytestmark = [pytest.mark.outside, pytest.mark.long]

Issuers = Mapping[str, OidcProvider]
Opens = Callable[[str], Awaitable[None]]
WAIT_SECONDS: Final = 60
MODES: Final = ("auto", "legacy")

# An exposed agent of others


TRUSTING: Final = """
[bridge]
public_url = "{root}"

[agents.desk]
card = "{agent}"

[agents_as_tools.team]
from = ["desk"]

[issuers.corp]
issuer = "{corp}"
scopes."tools:read" = ["plain", "data"]
scopes."tools:write" = ["ask"]
"""


@asynccontextmanager
async def foreign_agent() -> AsyncIterator[tuple[str, list[str]]]:
    """An agent of a2a-sdk; its URL, and the credentials that were shown to it."""
    port, shown = free_port(), list[str]()
    agent = sdk_behaviours.build_app(url := f"http://127.0.0.1:{port}")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        shown.extend(value.decode() for name, value in scope.get("headers", ()) if name == b"authorization")
        await agent(scope, receive, send)

    async with listening(app, port):
        yield url, shown


@pytest.mark.parametrize("mode", MODES)
async def test_the_official_client_logs_in_and_steps_up_by_itself_for_an_agent_of_a2a_sdk(
    mode: str, issuers: Issuers, tmp_path: Path
) -> None:
    """It knows nothing but the URL. Its tokens are the bridge's to check, and go to no agent."""
    corp, kept = issuers["corp"], Kept()

    async def answers(_: Any, asked: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(asked, types.ElicitRequestFormParams)
        content = {"count": 3, "gift": False} if "How many" in asked.message else {"answer": "red"}
        return types.ElicitResult(action="accept", content={**content})

    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(WAIT_SECONDS))
        agent, shown = await stack.enter_async_context(foreign_agent())
        root = await stack.enter_async_context(serving_file(tmp_path, TRUSTING, agent=agent, corp=corp.url))
        browser = await stack.enter_async_context(Browser("alice"))
        auth = provider_of(server := f"{root}/mcp/team", browser, kept)
        host = await stack.enter_async_context(mcp_client(server, mode, auth, answers))
        await listed_in(host, "ask")
        assert said(await host.call_tool("plain", {"message": "hello"})) == "You said: hello"
        assert kept.tokens is not None
        assert kept.tokens.scope == "tools:read"
        # The agent asks twice before it gives anything. Its numbers are those of protocol buffers.
        assert said(await host.call_tool("ask", {"message": "order"})) == "Ordered 3.0"
        assert kept.tokens.scope == "tools:read tools:write"
        assert "21.5" in said(await host.call_tool("data", {"message": "-"}))
    assert kept.client is not None
    assert kept.client.client_id is not None
    assert [event["event"] for event in await corp.seen(kept.client.client_id)] == [
        "registration",
        *["authorization.success", "grant.success"] * 2,
    ]
    assert claims_in(kept.tokens.access_token)["aud"] == server
    assert shown == []


# Links that a host opens


OF_AN_AGENT: Final = """
[bridge]
public_url = "{root}"

[agents.clerk]
card = "{agent}"
auth = { oauth2 = { grant = "authorization_code", issuer = "{partner}" } }
login = "each"

[agents_as_tools.team]
from = ["clerk"]
"""
OF_A_SERVER: Final = f'{BRIDGE}\n[agents_as_tools.team]\nfrom = ["desk"]\n'


@asynccontextmanager
async def host_of(server: str, mode: str, token: str, opens: Opens | None) -> AsyncIterator[Client]:
    """The official client with a token; `opens` is how it opens URLs, and without it declares that it opens none."""

    async def asked_to(_: Any, asked: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(asked, types.ElicitRequestURLParams)
        assert opens is not None
        await opens(asked.url)
        return types.ElicitResult(action="accept")

    async with mcp_client(server, mode, None, asked_to if opens else None, **bearer(token)) as host:
        yield host


@asynccontextmanager
async def served(
    behind: str, kind: str, issuers: Issuers, folder: Path
) -> AsyncIterator[tuple[str, list[str], dict[str, str]]]:
    """A bridge whose MCP server leads to a peer that wants a login of each caller.

    The URL of the MCP server, the tokens that the peer is shown, and a token for each person.
    """
    corp, partner = issuers["corp"], issuers["partner"]
    text = (OF_A_SERVER if behind == "server" else OF_AN_AGENT) + (
        OF_THE_FILE if kind == "file" else OF_AN_ISSUER
    )
    async with AsyncExitStack() as stack:
        if behind == "server":
            judge = await stack.enter_async_context(ProtectedServer(partner.url).run())
            text = text.replace("{tools}", judge.url)
        else:
            agent, judge = await stack.enter_async_context(protected_sdk_agent(partner.url))
            text = text.replace("{agent}", agent)
        caller = await corp.register(token_endpoint_auth_method="none")
        text = await with_issuers(text, corp, partner)
        if behind == "server":
            await operator_logs_in(folder, text.replace("{root}", "http://127.0.0.1:9"))
        root = await stack.enter_async_context(serving_file(folder, text, SECRETS))
        url = f"{root}/mcp/team"
        yield url, judge.shown, TOKENS if kind == "file" else await tokens_of(caller, url)


async def with_issuers(text: str, corp: OidcProvider, partner: OidcProvider) -> str:
    """The text with the issuers of the callers and of the peer, and with the bridge's client for its pages."""
    back = ["http://127.0.0.1/login/who"]  # of any port (RFC 8252 section 7.3)
    client = await corp.register(redirect_uris=back, token_endpoint_auth_method="none")
    places = {"corp": corp.url, "partner": partner.url, "client": client.id}
    for name, value in places.items():
        text = text.replace(f"{{{name}}}", value)
    return text


async def tokens_of(caller: RegisteredClient, server: str) -> dict[str, str]:
    """A token for the MCP server of each person, by the issuer of the callers."""
    return {name: await caller.token_of(name, server) for name in TOKENS}


async def used_by(host: Client, behind: str) -> str:
    """What a call gives: whose rights the server was called with, or the words that the agent says back."""
    if behind == "server":
        return str(json.loads(said(await host.call_tool("whoami", {})))["subject"])
    return said(await host.call_tool("echo", {"message": "hello"}))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["file", "issuer"])
@pytest.mark.parametrize("behind", ["server", "agent"])
async def test_the_official_client_opens_the_link_of_each_caller_and_its_call_goes_on_with_that_login(
    behind: str, kind: str, mode: str, issuers: Issuers, tmp_path: Path
) -> None:
    """By URL elicitation: in the call of the modern era, and beside the open call of the legacy one."""
    peer, tool = ("crm", "whoami") if behind == "server" else ("clerk", "echo")
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(WAIT_SECONDS))
        url, shown, tokens = await stack.enter_async_context(served(behind, kind, issuers, tmp_path))
        for name, token in tokens.items():
            visitor = Visitor(name, token if kind == "file" else None)
            links: list[str] = []

            async def opens(link: str, visitor: Visitor = visitor, links: list[str] = links) -> None:
                links.append(link)
                await visitor.logs_in(link, peer)

            async with visitor.browser, host_of(url, mode, token, opens) as host:
                await listed_in(host, tool)
                expected = name if behind == "server" else "hello"
                # The second call asks nobody.
                assert [await used_by(host, behind), await used_by(host, behind)] == [expected] * 2
            (link,) = links
            assert link.startswith(f"{url.removesuffix('/mcp/team')}/login/start/")
            assert name in {claims_in(one)["sub"] for one in shown if one}
        prefix = "" if kind == "file" else "corp:"
        people = {(f"{prefix}{name}", "") for name in TOKENS}
        assert await logins() == people | ({("", "")} if behind == "server" else set())
    assert not {*tokens.values()} & {*shown}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("behind", ["server", "agent"])
async def test_an_official_client_that_opens_no_links_gets_it_in_words_and_calls_again(
    behind: str, mode: str, issuers: Issuers, tmp_path: Path
) -> None:
    peer, tool = ("crm", "whoami") if behind == "server" else ("clerk", "echo")
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(WAIT_SECONDS))
        url, shown, tokens = await stack.enter_async_context(served(behind, "issuer", issuers, tmp_path))
        visitor = Visitor("alice", None)
        await stack.enter_async_context(visitor.browser)
        host = await stack.enter_async_context(host_of(url, mode, tokens["alice"], None))
        await listed_in(host, tool)
        told = await host.call_tool(tool, {} if behind == "server" else {"message": "hello"})
        await visitor.logs_in(link_in([str(told.content)]), peer)
        assert await used_by(host, behind) == ("alice" if behind == "server" else "hello")
    assert {claims_in(one)["sub"] for one in shown if one} - {"operator"} == {"alice"}


@pytest.mark.parametrize("behind", ["server", "agent"])
async def test_a_caller_that_is_logged_out_gets_a_link_with_the_next_call_and_the_other_one_none(
    behind: str, issuers: Issuers, tmp_path: Path
) -> None:
    """By the command, while the bridge runs and has called with that login."""
    peer, tool = ("crm", "whoami") if behind == "server" else ("clerk", "echo")
    arguments = {} if behind == "server" else {"message": "hello"}
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(WAIT_SECONDS))
        url, shown, tokens = await stack.enter_async_context(served(behind, "file", issuers, tmp_path))
        hosts: dict[str, Client] = {}
        visitors = {name: Visitor(name, token) for name, token in tokens.items()}
        for name, visitor in visitors.items():
            await stack.enter_async_context(visitor.browser)
            host = await stack.enter_async_context(host_of(url, "auto", tokens[name], None))
            hosts[name] = host
            await listed_in(host, tool)
            asked = await host.call_tool(tool, arguments)
            await visitor.logs_in(link_in([str(asked.content)]), peer)
            await used_by(host, behind)
        words = ("logout", peer, str(tmp_path / "bridge.toml"), "--principal", "bob")
        assert "forgotten: the login of bob" in await ran(tmp_path, *words, **SECRETS)
        before = [*shown]
        asked = await hosts["bob"].call_tool(tool, arguments)
        assert asked.is_error
        assert "/login/start/" in str(asked.content)
        assert await used_by(hosts["alice"], behind) == ("alice" if behind == "server" else "hello")
        assert shown == before
        visitors["bob"].browser.becomes("robert")
        await visitors["bob"].logs_in(link_in([str(asked.content)]), peer)
        await used_by(hosts["bob"], behind)
    assert {claims_in(one)["sub"] for one in shown[len(before) :] if one} == {"robert"}
