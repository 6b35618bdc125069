"""Callers that log in, to a bridge that trusts issuers, and servers that ask it for tokens: nobody of them is ours.

The issuers are oidc-provider's. The callers are a2a-sdk and the official MCP clients in Python and TypeScript, and the
protected server is the MCP SDK's. What the bridge does is in a file, as a user writes it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
import httpx2
import jwt
import mcp_types as types
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.client.client import ClientCallContext
from a2a.types import AgentCard, a2a_pb2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from google.protobuf.json_format import ParseDict
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import TokenStorage
from mcp.client.session import ElicitationFnT
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from bridge.errors import leaf_of
from tests.agents_as_tools.test_on_behalf import SeeingAgent
from tests.peers import PeerClient, PeerRefused, Transport, user_message
from tests.peers.js_client import JsClient
from tests.peers.node import js_mcp_client_command
from tests.peers.oidc_provider import (
    ASSERTION,
    CALLBACK,
    EXCHANGE,
    TOKEN_TYPE,
    Browser,
    OidcProvider,
    RegisteredClient,
)
from tests.peers.py_client import PyClient
from tests.support.protected_server import ProtectedServer
from tests.support.running import Rpc, call_part, texts
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


@pytest.mark.parametrize("sdk", [PyClient, JsClient])
@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.smoke("JSONRPC-PyClient", "HTTP+JSON-JsClient")
async def test_the_official_clients_call_a_wrapped_server_with_a_token_of_the_agent_alone(
    transport: Transport, sdk: type[PeerClient], trusting: Trusting, issuers: Issuers
) -> None:
    client = await issuers["corp"].register(token_endpoint_auth_method="none")
    asked = {"scope": "tools:read tools:write"}
    token = await client.token_of("alice", trusting.agent, **asked)
    async with sdk(trusting.agent, transport, headers=bearer(token)) as alice:
        task = (await alice.send(calling("put", text="hello")))["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert "hello" in texts(task["artifacts"][0]["parts"])[0]
        assert (await alice.list())["tasks"][0]["id"] == task["id"]
    wrong = await client.token_of("alice", trusting.server, **asked)
    # The client reads the extended card first, which takes a token.
    with pytest.raises(PeerRefused) as refused:
        async with sdk(trusting.agent, transport, headers=bearer(wrong)) as alice:
            await alice.send(calling("look"))
    assert refused.value.code == 401 or "is for another audience" in refused.value.message
    assert [name for name, _ in trusting.tools.calls] == ["put"]


async def test_what_else_an_issuer_signs_or_gives_opens_nothing(
    trusting: Trusting, issuers: Issuers, caplog: pytest.LogCaptureFixture
) -> None:
    corp = issuers["corp"]
    opaque = await corp.register(token_endpoint_auth_method="none", access_token_format="opaque")
    client = await corp.register(
        grant_types=["authorization_code", "refresh_token", EXCHANGE], token_endpoint_auth_method="none"
    )
    given = await client.login(Browser("alice"), trusting.agent, "openid tools:read")
    subject = {"subject_token": given["access_token"], "subject_token_type": f"{TOKEN_TYPE}access_token"}
    jag = await client.grant(
        EXCHANGE, **subject, requested_token_type=f"{TOKEN_TYPE}id-jag", audience=trusting.agent
    )
    wrong = {
        "ID token": given["id_token"],
        "refresh token": given["refresh_token"],
        "ID-JAG for the agent": jag["access_token"],
        "opaque token": await opaque.token_of("alice", trusting.agent, "tools:read"),
    }
    assert all(wrong.values())
    async with httpx2.AsyncClient(timeout=WAIT_SECONDS) as http:
        for token in wrong.values():
            for url in (trusting.agent, trusting.server):
                answer = await http.post(url, json={}, headers=bearer(token))
                assert answer.status_code == 401
                assert token not in answer.text
                assert token not in answer.headers["www-authenticate"]
        right = Rpc(http, trusting.agent, bearer(given["access_token"]))
        assert answered(await right.send(call_part("look")))
    assert not [token for token in wrong.values() if token in caplog.text]


async def test_a_token_that_only_its_issuer_can_read_opens_the_face_that_it_is_for(
    issuers: Issuers, tmp_path: Path
) -> None:
    corp = issuers["corp"]
    asking = await corp.machine()
    person = await corp.register(token_endpoint_auth_method="none", access_token_format="opaque")
    asked = f'introspection = {{ client_id = "{asking.id}", client_secret = {{ env = "SECRET" }} }}'
    text = BRIDGE.replace("[issuers.partner]", f"{asked}\n\n[issuers.partner]")
    async with AsyncExitStack() as stack:
        tools = await stack.enter_async_context(ToolServer("one", [listed("look")]).run())
        places = {name: issuer.url for name, issuer in issuers.items()}
        bridge = serving_file(tmp_path, text, {"SECRET": asking.secret}, tools=tools.url, **places)
        root = await stack.enter_async_context(bridge)
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=WAIT_SECONDS))
        agent, server = f"{root}/agents/desk", f"{root}/mcp/team"
        token = await person.token_of("alice", agent, "tools:read")
        assert answered(await Rpc(http, agent, bearer(token)).send(call_part("look")))
        await corp.answer("/token/revocation", data={"client_id": person.id, "token": token})
        for wrong in (token, await person.token_of("alice", agent), "unknown"):
            refused = await http.post(server, json={}, headers=bearer(wrong))
            assert refused.status_code == 401


class AsTheCardSays(CredentialService):
    """Gets a token of an issuer as a client of its own, where the card of the agent says."""

    def __init__(self, card: AgentCard, client: RegisteredClient) -> None:
        self._card, self._client = card, client

    async def get_credentials(
        self, security_scheme_name: str, context: ClientCallContext | None
    ) -> str | None:
        """A token for the scheme of client credentials; no other is known."""
        scheme = self._card.security_schemes[security_scheme_name].oauth2_security_scheme
        if scheme.flows.client_credentials.token_url != f"{self._client.issuer.url}/token":
            return None
        scope = " ".join(scheme.flows.client_credentials.scopes)
        return await self._client.token(resource=self._card.supported_interfaces[0].url, scope=scope)


async def test_a2a_sdk_gets_a_token_as_the_card_says(trusting: Trusting, issuers: Issuers) -> None:
    client = await issuers["corp"].machine()
    with anyio.fail_after(WAIT_SECONDS):
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
            resolver = A2ACardResolver(http, trusting.agent)
            while (
                not (card := await resolver.get_agent_card())
                .security_schemes["corp-client"]
                .HasField("oauth2_security_scheme")
            ):
                await anyio.sleep(0.01)  # the card says it once the issuer has answered
            caller = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(
                card, interceptors=[AuthInterceptor(AsTheCardSays(card, client))]
            )
            asked = ParseDict(calling("put", text="hello"), a2a_pb2.SendMessageRequest())
            (answer,) = [event async for event in caller.send_message(asked)]
    assert answer.task.status.state == a2a_pb2.TASK_STATE_COMPLETED
    assert [event["event"] for event in await issuers["corp"].seen(client.id)] == [
        "registration",
        "grant.success",
    ]


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
    server: str,
    mode: str,
    auth: httpx2.Auth | None = None,
    answers: ElicitationFnT | None = None,
    **headers: str,
) -> AsyncIterator[Client]:
    """The official client, entered; it declares elicitation if `answers` is there."""
    with anyio.fail_after(WAIT_SECONDS):
        async with httpx2.AsyncClient(auth=auth, headers=headers, timeout=WAIT_SECONDS) as http:
            transport = streamable_http_client(server, http_client=http)
            made = Client(transport, mode=mode, cache=None, elicitation_callback=answers)  # type: ignore[arg-type]
            async with made as client:
                yield client


def said(result: types.CallToolResult) -> str:
    """The text of a result."""
    assert not result.is_error, result
    (content, *_) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


async def test_a_token_of_the_agent_does_not_open_the_mcp_server(
    trusting: Trusting, issuers: Issuers
) -> None:
    client = await issuers["corp"].register(token_endpoint_auth_method="none")
    tokens = {
        face: await client.token_of("alice", face, "tools:read") for face in (trusting.server, trusting.agent)
    }
    async with httpx2.AsyncClient(timeout=WAIT_SECONDS) as http:
        for face, status in ((trusting.server, 400), (trusting.agent, 401)):
            answer = await http.post(trusting.server, json={}, headers=bearer(tokens[face]))
            assert answer.status_code == status


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


@pytest.mark.parametrize("sdk", ["client", "sdk"])
@pytest.mark.smoke("client")
async def test_the_clients_in_typescript_do_the_same(sdk: str, trusting: Trusting, issuers: Issuers) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [("look", {}), ("put", {"text": "hello"}), ("look", {})]
    command = js_mcp_client_command(sdk, trusting.server, CALLBACK, "alice", calls)
    with anyio.fail_after(WAIT_SECONDS):
        done = await anyio.run_process(command, stderr=None)
    told = json.loads(done.stdout)
    assert [one["scope"] for one in told["came"]] == ["tools:read", *["tools:read tools:write"] * 2]
    assert "hello" in told["came"][1]["content"][0]["text"]
    assert [event["event"] for event in await issuers["corp"].seen(told["client_id"])] == [
        "registration",
        *["authorization.success", "grant.success"] * 2,
    ]
    assert [name for name, _ in trusting.tools.calls] == ["look", "put", "look"]


# An agent that is called in the names of callers, exposed

ACTING = """
[bridge]
public_url = "{root}"

[issuers.corp]
issuer = "{corp}"

[agents.desk]
card = "{agent}/.well-known/agent-card.json"

[agents.desk.auth.oauth2]
grant = "token_exchange"
issuer = "{corp}"
client_id = "{client}"
client_secret = { env = "SECRET" }
scopes = ["read"]
{there}

[agents_as_tools.team]
from = ["desk"]
"""
THERE = 'id_jag = { issuer = "{partner}", client_id = "{other}", client_secret = { env = "OTHER" } }'
OF_EXCHANGES: dict[str, Any] = {"redirect_uris": [], "response_types": [], "application_type": "web"}


@pytest.mark.parametrize("giver", ["corp", "partner"])
@pytest.mark.smoke("partner")
async def test_an_agent_gets_a_token_in_the_name_of_whoever_calls_the_tool(
    giver: str, issuers: Issuers, tmp_path: Path
) -> None:
    corp, partner = issuers["corp"], issuers["partner"]
    other = await partner.register(grant_types=[ASSERTION], **OF_EXCHANGES)
    client = await corp.register(grant_types=[EXCHANGE], id_jag_client_id=other.id, **OF_EXCHANGES)
    person = await corp.register(token_endpoint_auth_method="none")
    text = ACTING.replace("{there}", THERE if giver == "partner" else "")
    seeing = SeeingAgent()
    async with seeing.serve() as agent:
        places = {"agent": agent, "corp": corp.url, "partner": partner.url}
        secrets = {"SECRET": client.secret, "OTHER": other.secret}
        ids = {"client": client.id, "other": other.id}
        async with serving_file(tmp_path, text, secrets, **places, **ids) as root:
            server = f"{root}/mcp/team"
            tokens = {
                name: await person.token_of(name, server, "openid read write") for name in ("alice", "bob")
            }
            for token in tokens.values():
                async with mcp_client(server, "auto", **bearer(token)) as caller:
                    assert said(await caller.call_tool("act", {"message": "go"})).startswith("Bearer ")
    shown = [str(one).removeprefix("Bearer ") for one in seeing.shown]
    found = [jwt.decode(one, options={"verify_signature": False}) for one in shown]
    assert [(one["sub"], one["iss"], one["scope"]) for one in found] == [
        (name, issuers[giver].url, "read") for name in tokens
    ]
    assert {one["aud"].rstrip("/") for one in found} == {agent.rstrip("/")}
    if giver == "corp":
        assert {one["act"]["sub"] for one in found} == {client.id}
    assert set(seeing.cards) == {None}
    assert not {*shown} & {*tokens.values()}
    assert [event["event"] for event in await corp.seen(client.id)] == [
        "registration",
        *["grant.success"] * 2,
    ]


# A protected server, wrapped

WRAPPED = """
[tool_servers.crm]
url = "{server}"

[tool_servers.crm.auth.oauth2]
grant = "client_credentials"
issuer = "{corp}"
client_id = "{client}"
{secret}
scopes = ["read"]

[tools_as_agent.desk]
from = ["crm"]
"""
SECRET = 'client_secret = { env = "SECRET" }'
PRIVATE_KEY = ec.generate_private_key(ec.SECP256R1())


def public_keys() -> dict[str, Any]:
    """The key set of a client with that private key."""
    public = jwt.algorithms.ECAlgorithm.to_jwk(PRIVATE_KEY.public_key(), as_dict=True)
    return {"keys": [{**public, "use": "sig", "alg": "ES256"}]}


WAYS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "client_secret_basic": (SECRET, {}),
    "client_secret_post": (f'{SECRET}\nclient_auth = "post"', {}),
    "private_key_jwt": ('private_key = { env = "PRIVATE_KEY" }', {"jwks": public_keys()}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.smoke("private_key_jwt")
async def test_a_server_that_wants_tokens_is_wrapped_with_those_of_the_bridge_itself(
    way: str, issuers: Issuers, tmp_path: Path
) -> None:
    corp = issuers["corp"]
    line, metadata = WAYS[way]
    client = await corp.machine(token_endpoint_auth_method=way, **metadata)
    pem = PRIVATE_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    environment = {"SECRET": client.metadata.get("client_secret", "-"), "PRIVATE_KEY": pem}
    with anyio.fail_after(WAIT_SECONDS):
        async with ProtectedServer(corp.url).run() as server, httpx2.AsyncClient() as http:
            places = {"server": server.url, "corp": corp.url, "client": client.id, "secret": line}
            async with serving_file(tmp_path, WRAPPED, environment, **places) as root:
                agent = Rpc(http, f"{root}/agents/desk")
                found = {"subject": client.id, "client": client.id, "scopes": ["read"], "actor": None}
                assert json.loads(answered(await agent.send(call_part("whoami")))) == found
                assert len(server.shown) == 1
                server.revoked.update(server.shown)
                assert json.loads(answered(await agent.send(call_part("whoami")))) == found
    assert len(server.shown) == 2
    seen = await corp.seen(client.id)
    assert [(event["event"], event.get("resource")) for event in seen] == [
        ("registration", None),
        *[("grant.success", server.url)] * 2,
    ]


async def test_a_callers_token_goes_to_no_server_that_the_bridge_calls_in_its_own_name(
    issuers: Issuers, tmp_path: Path
) -> None:
    corp = issuers["corp"]
    client, person = await corp.machine(), await corp.register(token_endpoint_auth_method="none")
    trusting = f'{WRAPPED}\n[bridge]\npublic_url = "{{root}}"\n[issuers.corp]\nissuer = "{corp.url}"\n'
    with anyio.fail_after(WAIT_SECONDS):
        async with ProtectedServer(corp.url).run() as server, httpx2.AsyncClient() as http:
            places = {"server": server.url, "corp": corp.url, "client": client.id, "secret": SECRET}
            async with serving_file(tmp_path, trusting, {"SECRET": client.secret}, **places) as root:
                url = f"{root}/agents/desk"
                token = await person.token_of("alice", url)
                task = await Rpc(http, url, bearer(token)).send(call_part("whoami"))
    assert json.loads(answered(task))["subject"] == client.id
    assert [jwt.decode(one, options={"verify_signature": False})["sub"] for one in server.shown] == [
        client.id
    ]


ACTING_SERVER = """
[bridge]
public_url = "{root}"

[issuers.corp]
issuer = "{corp}"

[tool_servers.crm]
url = "{server}"

[tool_servers.crm.auth.oauth2]
grant = "client_credentials"
on_behalf_of = "caller"
issuer = "{corp}"
client_id = "{client}"
client_secret = { env = "SECRET" }
scopes = ["read"]
{there}

[tools_as_agent.desk]
from = ["crm"]
"""


@pytest.mark.parametrize("giver", ["corp", "partner"])
@pytest.mark.smoke("corp")
async def test_a_wrapped_server_gets_a_token_in_the_name_of_whoever_calls_the_skill(
    giver: str, issuers: Issuers, tmp_path: Path
) -> None:
    corp, partner = issuers["corp"], issuers["partner"]
    own = "client_credentials"
    other = await partner.register(grant_types=[own, ASSERTION], **OF_EXCHANGES)
    client = await corp.register(grant_types=[own, EXCHANGE], id_jag_client_id=other.id, **OF_EXCHANGES)
    bridge = client if giver == "corp" else other
    actor = client.id if giver == "corp" else None
    person = await corp.register(token_endpoint_auth_method="none")
    with anyio.fail_after(WAIT_SECONDS):
        async with ProtectedServer(issuers[giver].url).run() as server:
            places = {"server": server.url, "corp": corp.url, "partner": partner.url}
            ids = {"client": client.id, "other": other.id}
            secrets = {"SECRET": client.secret, "OTHER": other.secret}
            text = ACTING_SERVER.replace("{there}", THERE if giver == "partner" else "")
            async with serving_file(tmp_path, text, secrets, **places, **ids) as root:
                url = f"{root}/agents/desk"
                tokens = {name: await person.token_of(name, url, "openid read") for name in ("alice", "bob")}
                for name, token in [*tokens.items()] * 2:
                    async with PyClient(url, "JSONRPC", headers=bearer(token)) as caller:
                        task = (await caller.send(calling("whoami")))["task"]
                    found = {"subject": name, "client": bridge.id, "scopes": ["read"], "actor": actor}
                    assert json.loads(answered(task)) == found
    shown = [jwt.decode(one, options={"verify_signature": False}) for one in server.shown]
    assert [one["sub"] for one in shown] == [bridge.id, "alice", "bob"]
    assert {one["aud"] for one in shown} == {server.url}
    assert not {*server.shown} & {*tokens.values()}


async def test_a_secret_that_the_issuer_refuses_is_said_at_the_start(
    issuers: Issuers, tmp_path: Path
) -> None:
    corp = issuers["corp"]
    client = await corp.machine()
    with anyio.fail_after(WAIT_SECONDS):
        async with ProtectedServer(corp.url).run() as server:
            places = {"server": server.url, "corp": corp.url, "client": client.id, "secret": SECRET}
            with pytest.raises(ExceptionGroup) as refused:
                async with serving_file(tmp_path, WRAPPED, {"SECRET": "wrong"}, **places):
                    raise AssertionError("it serves")
    said_of_it = str(leaf_of(refused.value))
    assert "gave no token" in said_of_it
    assert "invalid_client" in said_of_it
    assert "Check `client_id` and its secret or key" in said_of_it
    assert "wrong" not in said_of_it
    assert server.shown == []


def answered(task: dict[str, Any]) -> str:
    """The text of a completed task."""
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
    return texts(task["artifacts"][0]["parts"])[0]
