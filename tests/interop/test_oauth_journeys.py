"""Callers that log in, to a bridge that trusts issuers, and servers that ask it for tokens: nobody of them is ours.

The issuers are oidc-provider's. The callers are a2a-sdk and the official MCP clients in Python and TypeScript, and the
protected server is the MCP SDK's. What the bridge does is in a file, as a user writes it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import TokenStorage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from tests.peers import PeerRefused, Transport, user_message
from tests.peers.oidc_provider import CALLBACK, Browser, OidcProvider
from tests.peers.py_client import PyClient
from tests.support.running import call_part, texts
from tests.support.serving_file import serving_file
from tests.support.tool_server import ToolServer, listed

pytestmark = pytest.mark.outside

Issuers = Mapping[str, OidcProvider]
WAIT_SECONDS = 60

BRIDGE = """
[bridge]
public_url = "{root}"

[tool_servers.one]
url = "{tools}"

[tools_as_agent.desk]
from = ["one"]

[agents_as_tools.team]
from = ["desk"]

[issuers.corp]
issuer = "{corp}"
scopes."tools:read" = ["look"]
scopes."tools:write" = ["put"]

[issuers.partner]
issuer = "{partner}"
"""


@dataclass(frozen=True)
class Trusting:
    """A bridge that trusts both issuers, with the faces of one tool server."""

    root: str
    tools: ToolServer

    @property
    def agent(self) -> str:
        """The URL of the agent."""
        return f"{self.root}/agents/desk"

    @property
    def server(self) -> str:
        """The URL of the MCP server."""
        return f"{self.root}/mcp/team"


@pytest.fixture
async def trusting(issuers: Issuers, tmp_path: Path) -> AsyncIterator[Trusting]:
    """Such a bridge."""
    async with AsyncExitStack() as stack:
        made = ToolServer("one", [listed("look"), listed("put", "text", text={"type": "string"})])
        tools = await stack.enter_async_context(made.run())
        places = {name: issuer.url for name, issuer in issuers.items()}
        bridge = serving_file(tmp_path, BRIDGE, tools=tools.url, **places)
        yield Trusting(await stack.enter_async_context(bridge), tools)


# A wrapped server, called through a2a-sdk


def calling(skill: str, **arguments: Any) -> dict[str, Any]:
    """A request to call a skill."""
    asked = user_message("-")
    asked["message"]["parts"] = [call_part(skill, **arguments)]
    return asked


@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
async def test_a2a_sdk_calls_a_wrapped_server_with_a_token_of_the_agent_alone(
    transport: Transport, trusting: Trusting, issuers: Issuers
) -> None:
    client = await issuers["corp"].register(token_endpoint_auth_method="none")
    asked = {"scope": "tools:read tools:write"}
    token = await client.token_of("alice", trusting.agent, **asked)
    async with PyClient(trusting.agent, transport, headers=bearer(token)) as alice:
        task = (await alice.send(calling("put", text="hello")))["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert "hello" in texts(task["artifacts"][0]["parts"])[0]
        assert (await alice.list())["tasks"][0]["id"] == task["id"]
    for wrong in (
        await client.token_of("alice", trusting.server, **asked),
        await client.token_of("alice", "https://else.example.com", **asked),
    ):
        # The client reads the extended card first, which takes a token.
        with pytest.raises(PeerRefused) as refused:
            async with PyClient(trusting.agent, transport, headers=bearer(wrong)) as alice:
                await alice.send(calling("look"))
        assert refused.value.code == 401
    assert [name for name, _ in trusting.tools.calls] == ["put"]


async def test_a_task_is_of_one_person_of_one_issuer_for_a2a_sdk(
    trusting: Trusting, issuers: Issuers
) -> None:
    tokens = {}
    for name, issuer in issuers.items():
        client = await issuer.register(token_endpoint_auth_method="none")
        for person in ("alice", "bob"):
            tokens[name, person] = await client.token_of(person, trusting.agent, "tools:read")
    async with AsyncExitStack() as stack:
        callers = {
            who: await stack.enter_async_context(PyClient(trusting.agent, headers=bearer(token)))
            for who, token in tokens.items()
        }
        tasks = {who: (await one.send(calling("look")))["task"]["id"] for who, one in callers.items()}
        for who, caller in callers.items():
            assert [task["id"] for task in (await caller.list())["tasks"]] == [tasks[who]]
            for other in tasks.keys() - {who}:
                for refused in (caller.get, caller.cancel):
                    with pytest.raises(PeerRefused) as said:
                        await refused(tasks[other])
                    assert said.value.code == -32001


def bearer(token: str) -> dict[str, str]:
    """The header that shows a token."""
    return {"Authorization": f"Bearer {token}"}


# An exposed agent, called by MCP clients that know nothing but its URL


class Kept(TokenStorage):
    """What the official client keeps."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def provider_of(server: str, browser: Browser, kept: Kept) -> OAuthClientProvider:
    """The official client's way to a token, at the browser of a person."""
    came: list[dict[str, str]] = []

    async def redirect(url: str) -> None:
        came.append(await browser.redirected(url, CALLBACK))

    async def callback() -> AuthorizationCodeResult:
        return AuthorizationCodeResult.model_validate(came.pop())

    metadata = OAuthClientMetadata(redirect_uris=[AnyUrl(CALLBACK)], client_name="a client")
    return OAuthClientProvider(server, metadata, kept, redirect, callback)


@asynccontextmanager
async def mcp_client(
    server: str, mode: str, auth: httpx2.Auth | None = None, **headers: str
) -> AsyncIterator[Client]:
    """The official client, entered."""
    with anyio.fail_after(WAIT_SECONDS):
        async with httpx2.AsyncClient(auth=auth, headers=headers, timeout=WAIT_SECONDS) as http:
            transport = streamable_http_client(server, http_client=http)
            async with Client(transport, mode=mode, cache=None) as client:  # type: ignore[arg-type]
                yield client


def said(result: types.CallToolResult) -> str:
    """The text of a result."""
    assert not result.is_error, result
    (content, *_) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_discovers_registers_logs_in_and_steps_up_by_itself(
    mode: str, trusting: Trusting, issuers: Issuers
) -> None:
    kept = Kept()
    async with Browser("alice") as browser:
        auth = provider_of(trusting.server, browser, kept)
        async with mcp_client(trusting.server, mode, auth) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"look", "put"} <= names
            assert "look" in said(await client.call_tool("look", {}))
            assert kept.tokens is not None
            assert kept.tokens.scope == "tools:read"
            assert "hello" in said(await client.call_tool("put", {"text": "hello"}))
            assert kept.tokens.scope == "tools:read tools:write"
            assert "look" in said(await client.call_tool("look", {}))
    assert kept.client is not None
    assert kept.client.client_id is not None
    assert [event["event"] for event in await issuers["corp"].seen(kept.client.client_id)] == [
        "registration",
        *["authorization.success", "grant.success"] * 2,
    ]
