"""OAuth access tokens that the bridge gets for agents: which agents of each generation get them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.responses import JSONResponse

from bridge.a2a.client.http import origin_of
from bridge.assembly.plan import CatalogPlan, RemotePlan
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.errors import ConfigError, UsageError
from bridge.identity.tokens.oauth import ClientToken
from bridge.identity.tokens.token_endpoint import OAuthClient
from tests.agents_as_tools.test_generations import METHODS, Conversing
from tests.agents_as_tools.test_hermes import obeying
from tests.support.authorization_server import AuthorizationServer
from tests.support.exposing import exposing, exposing_catalog
from tests.support.hermes_agent import HermesAgent
from tests.support.scripted_agent import scripted_agent

pytestmark = pytest.mark.proves("oauth-agents")

WAIT_SECONDS = 30
Headers = list[Mapping[str, str]]


@asynccontextmanager
async def token_of(server: AuthorizationServer, **changes: Any) -> AsyncIterator[ClientToken]:
    """A token that the server gives."""
    async with server.serve() as issuer:
        yield ClientToken(OAuthClient(issuer, "bridge", "s3cret", "basic", **changes), 20)


def shown_in(heard: Headers) -> list[str | None]:
    return [headers.get("authorization") for headers in heard]


@pytest.mark.parametrize("generation", METHODS)
async def test_an_agent_of_each_generation_gets_the_token_with_its_card_and_each_message(
    generation: str, tmp_path: Path
) -> None:
    server, heard = AuthorizationServer(), Headers()
    agent = Conversing(generation, in_tasks=True)
    kind = {"is_older": generation == "0.3", "is_first": generation == "0.1"}
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            token_of(server) as tokens,
            scripted_agent(agent, heard=heard, **kind) as url,
            exposing(tmp_path, url, tokens=tokens) as there,
            there.client("auto") as host,
        ):
            assert (await host.call_tool("act", {"message": "go"})).content[0].text == "turn 1"
    assert len(heard) >= 2
    assert set(shown_in(heard)) == {"Bearer token-1"}
    assert len(server.asked) == 1


async def test_an_agent_of_hermes_gets_the_token_with_each_request(tmp_path: Path) -> None:
    server, agent = AuthorizationServer(), HermesAgent(obeying)
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            token_of(server) as tokens,
            agent.served() as url,
            exposing(tmp_path, url, dialect="hermes", tokens=tokens) as there,
            there.client("auto") as host,
        ):
            assert "done: go" in (await host.call_tool("act", {"message": "go"})).content[0].text
    assert set(shown_in(agent.headers)) == {"Bearer token-1"}


OAUTH: dict[str, Any] = {
    "securitySchemes": {
        "sso": {"oauth2SecurityScheme": {"flows": {}}},
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
    },
    "securityRequirements": [{"schemes": {"sso": {"list": ["other:scope"]}}}],
}


async def test_a_token_has_the_configured_scopes_whatever_the_card_asks_for(
    tmp_path: Path,
) -> None:
    server, heard = AuthorizationServer(), Headers()
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            token_of(server, scopes=("read",), resource="https://agent.example/") as tokens,
            scripted_agent(Conversing("1.0", in_tasks=False), OAUTH, heard) as url,
            exposing(tmp_path, url, tokens=tokens) as there,
            there.client("auto") as host,
        ):
            await host.call_tool("act", {"message": "go"})
    assert set(shown_in(heard)) == {"Bearer token-1"}
    assert [one.form for one in server.asked] == [
        {"grant_type": "client_credentials", "scope": "read", "resource": "https://agent.example/"}
    ]


async def test_a_token_that_an_agent_refuses_is_replaced_once(tmp_path: Path) -> None:
    server, heard = AuthorizationServer(), Headers()
    agent = Conversing("1.0", in_tasks=False)
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            token_of(server) as tokens,
            scripted_agent(agent, heard=heard, refused={"Bearer token-1"}) as url,
            exposing(tmp_path, url, tokens=tokens) as there,
            there.client("auto") as host,
        ):
            assert (await host.call_tool("act", {"message": "go"})).content[0].text == "turn 1"
    assert shown_in(heard) == ["Bearer token-1", "Bearer token-2", "Bearer token-2"]


async def test_a_card_that_leads_to_another_origin_gets_no_token_there(tmp_path: Path) -> None:
    server, there_heard, elsewhere_heard = AuthorizationServer(), Headers(), Headers()
    answer = Conversing("1.0", in_tasks=False)
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            token_of(server) as tokens,
            scripted_agent(answer, heard=elsewhere_heard) as elsewhere,
            scripted_agent(
                answer,
                {
                    "supportedInterfaces": [
                        {"url": elsewhere, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
                    ]
                },
                there_heard,
            ) as url,
            exposing(tmp_path, url, tokens=tokens) as there,
            there.client("auto") as host,
        ):
            result = await host.call_tool("act", {"message": "go"})
    assert result.is_error
    assert "which is another origin, so the credentials are not sent there" in result.content[0].text
    assert set(shown_in(there_heard)) == {"Bearer token-1"}
    assert elsewhere_heard == []


async def test_without_a_token_an_agent_is_not_called_and_is_down_with_the_reason(tmp_path: Path) -> None:
    server = AuthorizationServer(token=lambda _: JSONResponse({"error": "invalid_client"}, 401))
    heard = Headers()
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            token_of(server) as tokens,
            scripted_agent(Conversing("1.0", in_tasks=False), heard=heard) as url,
            exposing(tmp_path, url, tokens=tokens) as there,
        ):
            (state,) = there.exposure.face.sources
            assert "gave no token to bridge: invalid_client" in (state.down or "")
    assert [one for one in shown_in(heard) if one] == []


FILE = """
[agents.research]
card = "https://research.example/a/.well-known/agent-card.json?key=1"
[agents.research.auth]
api_key = { env = "KEY" }
[agents.research.auth.oauth2]
grant = "client_credentials"
issuer = "https://login.example"
client_id = "b"
client_secret = { env = "SECRET" }
[agents.again]
card = "https://research.example/a/.well-known/agent-card.json?key=1"
[catalogs.firm]
url = "https://firm.example/agents"
[catalogs.firm.auth.oauth2]
grant = "client_credentials"
issuer = "https://login.example"
client_id = "b"
client_secret = { env = "SECRET" }
client_auth = "post"
scopes = ["read"]
[agents_as_tools.team]
from = ["research", "firm"]
"""
FOUND = {"SECRET": "s3", "KEY": "k"}


def test_the_configuration_says_how_an_agent_and_a_catalog_get_their_tokens(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(FILE)
    plan = plan_from_file(load(file, FOUND))
    seconds = plan.profile.agents.agent_connect_seconds
    client = OAuthClient("https://login.example", "b", "s3", "basic", (), "https://research.example/a")
    url = "https://research.example/a/.well-known/agent-card.json?key=1"
    tokens = ClientToken(client, seconds)
    account = "env:KEY b https://login.example"
    assert plan.agents["research"] == RemotePlan(url, api_key="k", tokens=tokens, account=account)
    of_catalog = OAuthClient(
        "https://login.example", "b", "s3", "post", ("read",), "https://firm.example/agents"
    )
    assert plan.catalogs["firm"] == CatalogPlan(
        "https://firm.example/agents", tokens=ClientToken(of_catalog, seconds)
    )
    assert "s3" not in repr(plan).replace("https", "")
    assert (
        plan_from_file(load(file, {**FOUND, "SECRET": "other"})).agents["research"] != plan.agents["research"]
    )


def test_a_trusted_origin_may_omit_the_default_port(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    trust = 'trust = ["https://api.example", "https://other.example:443/"]'
    file.write_text(f'[agents.a]\ncard = "https://a.example"\n{trust}\n')
    plan = plan_from_file(load(file, FOUND))
    called = ("https://api.example/a2a", "https://other.example/a2a")
    assert plan.agents["a"].trusted == frozenset(map(origin_of, called))


@pytest.mark.parametrize(
    ("auth", "words"),
    [
        ("bearer = { env = 'SECRET' }, oauth2 = {CLIENT}", "has both `bearer` and `oauth2`"),
        ("oauth2 = { grant = 'client_credentials', client_id = 'b' }", "needs `issuer`"),
        ("oauth2 = { grant = 'password' }", '`grant` takes "client_credentials"'),
    ],
)
def test_a_file_that_gives_an_agent_two_tokens_or_none_is_refused(
    auth: str, words: str, tmp_path: Path
) -> None:
    client = (
        "{ grant = 'client_credentials', issuer = 'https://login.example', client_id = 'b',"
        " client_secret = { env = 'SECRET' } }"
    )
    file = tmp_path / "bridge.toml"
    file.write_text(
        f"[agents.a]\ncard = 'https://a.example'\nauth = {{ {auth.replace('{CLIENT}', client)} }}\n"
    )
    with pytest.raises(ConfigError, match=re.escape(words)):
        load(file, FOUND)


def test_a_key_that_cannot_sign_is_a_configuration_error(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(FILE.replace("client_secret", "private_key").replace('client_auth = "post"', ""))
    with pytest.raises(UsageError, match="the private key of the client b cannot sign"):
        plan_from_file(load(file, FOUND))


async def test_agents_at_the_origin_of_their_catalog_share_its_token(tmp_path: Path) -> None:
    server, heard, others = AuthorizationServer(), Headers(), Headers()
    agent = Conversing("1.0", in_tasks=False)

    with anyio.fail_after(WAIT_SECONDS):
        async with (
            token_of(server) as tokens,
            scripted_agent(agent, heard=others) as elsewhere,
            scripted_agent(agent, heard=heard, listed=(("far", elsewhere), ("near", ""))) as url,
            exposing_catalog(tmp_path, CatalogPlan(f"{url}/agents", tokens=tokens)) as there,
            there.client("auto") as host,
        ):
            tools = [tool.name for tool in (await host.list_tools()).tools if "act" in tool.name]
            assert len(tools) == 2
            for tool in tools:
                await host.call_tool(tool, {"message": "go"})
    assert set(shown_in(heard)) == {"Bearer token-1"}
    assert set(shown_in(others)) == {None}
    assert len(server.asked) == 1
