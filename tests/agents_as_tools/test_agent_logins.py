"""Agents and catalogs that need a person's login: where to log in, who gets the token, and how a missing login is
reported."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from bridge.a2a.client.login_lead import login_lead
from bridge.assembly.plan import CatalogPlan, OfferedPlan, RemotePlan
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.errors import ConfigError, PeerError
from bridge.identity.logins.kept_logins import Login, LoginKey
from bridge.identity.logins.login_credentials import LoginConfig, LoginToken
from bridge.identity.logins.login_files import LoginFiles
from bridge.identity.logins.login_flow import log_in
from bridge.identity.logins.login_landing import LoginLanding, login_landing
from bridge.local.user_folders import state_folder
from bridge.process.preview import findings_of
from tests.assembly.test_bridge import Live, live
from tests.identity.logins.test_login_flow import Browser
from tests.support.login_agent import LoginAgent, with_scheme
from tests.support.login_server import METADATA, LoginServer
from tests.support.running import profile_with

pytestmark = pytest.mark.proves("oauth-agents")

PROFILE = profile_with(agents={"first_cards_seconds": 30.0})
"""A start waits for the cards, however busy the machine is."""


@dataclass
class There:
    """An issuer, an agent that takes its tokens, and the login of the operator there."""

    issuer: LoginServer
    agent: LoginAgent
    login_config: LoginConfig

    async def log_in(self, **wished: Any) -> Login:
        """Log in as `mcp-a2a login` does."""
        login_config = replace(self.login_config, **wished)
        async with login_landing("127.0.0.1", 0) as landing:
            made = await self._logged_in(login_config, landing)
        async with login_config.keeper.held(login_config.key) as held:
            await held.write(made)
        return made

    async def refusal(self, **wished: Any) -> str:
        """Why there is no login."""
        async with login_landing("127.0.0.1", 0) as landing:
            with pytest.raises(PeerError) as caught:
                await self._logged_in(replace(self.login_config, **wished), landing)
        words = str(caught.value).replace(self.issuer.issuer, "ISSUER")
        return words.replace(self.agent.url, "AGENT")

    async def _logged_in(self, login_config: LoginConfig, landing: LoginLanding) -> Login:
        return await log_in(login_config, landing, Browser(), 30, await login_lead(login_config, 30))

    @asynccontextmanager
    async def tools(self, folder: Path, **remote: Any) -> AsyncIterator[Live]:
        """A bridge that offers the agent as tools."""
        agents = {"desk": RemotePlan(self.agent.url, tokens=LoginToken(self.login_config, 20), **remote)}
        async with live(folder, agents=agents, offered={"team": OfferedPlan(("desk",), PROFILE)}) as there:
            yield there


@asynccontextmanager
async def there(folder: Path, *, says: dict[str, Any] | None = None, **agent: Any) -> AsyncIterator[There]:
    """Both of them, with loopback allowed as the place of an issuer."""
    issuer = LoginServer(says or {})
    made = LoginAgent(lambda: issuer.given, **agent)
    with anyio.fail_after(60):
        async with issuer.serve(), made.serve() as url:
            made.issuer = issuer.issuer
            files = LoginFiles(folder / "logins")
            yield There(issuer, made, LoginConfig(url, files, "desk", allow_private=True, kind="agents"))


async def called(bridge: Live) -> tuple[bool, str]:
    """Whether a call of the tool failed, and its words."""
    async with bridge.mcp("team") as host:
        return await call_in(host)


async def call_in(host: Client) -> tuple[bool, str]:
    """The same, once the tool is there: a catalog may be read after the start."""
    while not (names := [tool.name for tool in (await host.list_tools()).tools if "act" in tool.name]):
        pass
    result = await host.call_tool(names[0], {"message": "go"})
    return bool(result.is_error), result.content[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize("shows_card", [True, False])
async def test_a_person_logs_in_at_the_issuer_that_the_metadata_of_an_agent_names(
    shows_card: bool, tmp_path: Path
) -> None:
    async with there(tmp_path, shows_card=shows_card) as one:
        made = await one.log_in()
        async with one.tools(tmp_path) as bridge:
            assert await called(bridge) == (False, "done")
    assert made == Login(
        issuer=one.issuer.issuer,
        token_url=f"{one.issuer.issuer}/token",
        client_id="registered",
        access_token="access-2",
        refresh_token="refresh-2",
        got_at=made.got_at,
        since=made.got_at,
        expires_at=made.got_at + 3600,
        scopes=("read",),
        resource=f"{one.agent.url}/",
        allow_private=True,
    )
    assert set(one.agent.shown) == {"Bearer access-2"}


def code_flow(issuer: str, **more: Any) -> dict[str, Any]:
    pages = {"authorizationUrl": f"{issuer}/authorize", "tokenUrl": f"{issuer}/token", "scopes": {}}
    return {"flows": {"authorizationCode": {**pages, **more}}}


async def test_the_card_names_the_issuer_if_the_agent_has_no_metadata(tmp_path: Path) -> None:
    async with there(tmp_path, has_metadata=False) as one:
        issuer = one.issuer.issuer
        schemes: list[dict[str, Any]] = [
            {"oauth2SecurityScheme": {**code_flow(issuer), "oauth2MetadataUrl": f"{issuer}{METADATA}"}},
            {
                "openIdConnectSecurityScheme": {
                    "openIdConnectUrl": f"{issuer}/.well-known/openid-configuration"
                }
            },
            {"type": "openIdConnect", "openIdConnectUrl": f"{issuer}/.well-known/openid-configuration"},
        ]
        for scheme in schemes:
            one.agent.card = with_scheme(scheme, "tickets:read")
            made = await one.log_in()
            assert (made.issuer, made.resource) == (issuer, f"{one.agent.url}/")
            assert one.issuer.authorizations[-1]["scope"] == "tickets:read"
            assert one.issuer.authorizations[-1]["resource"] == f"{one.agent.url}/"


async def test_metadata_of_another_resource_at_the_agents_origin_is_not_used(
    tmp_path: Path,
) -> None:
    async with there(tmp_path, has_metadata=False, has_neighbour=True) as one:
        place = f"{one.issuer.issuer}/.well-known/openid-configuration"
        one.agent.card = with_scheme({"openIdConnectSecurityScheme": {"openIdConnectUrl": place}})
        assert (await one.log_in()).issuer == one.issuer.issuer


async def test_a_card_that_names_only_endpoints_needs_a_known_client_and_pkce_in_the_configuration(
    tmp_path: Path,
) -> None:
    async with there(tmp_path, has_metadata=False) as one:
        one.agent.card = with_scheme({"oauth2SecurityScheme": code_flow(one.issuer.issuer)}, "read")
        assert "Set `client_id` (--client-id)" in await one.refusal()
        assert "does not say that it checks PKCE" in await one.refusal(client_id="bridge")
        made = await one.log_in(client_id="bridge", pkce="assume")
        assert (made.client_id, made.token_url) == ("bridge", f"{one.issuer.issuer}/token")
        flow = code_flow(one.issuer.issuer, pkceRequired=True)
        one.agent.card = with_scheme({"oauth2SecurityScheme": flow}, "read")
        assert (await one.log_in(client_id="bridge")).access_token
    assert one.issuer.registered == []


async def test_a_card_with_login_endpoints_of_two_origins_allows_no_login(tmp_path: Path) -> None:
    async with there(tmp_path, has_metadata=False) as one, there(tmp_path / "other") as other:
        honest = other.issuer.issuer
        flow = code_flow(one.issuer.issuer, authorizationUrl=f"{honest}/authorize", pkceRequired=True)
        one.agent.card = with_scheme({"oauth2SecurityScheme": flow}, "read")
        refusal = await one.refusal(client_id="bridge")
        assert "somebody else. If both belong to one issuer, set `issuer`" in refusal
        assert honest.removeprefix("http://") in refusal
    assert (one.issuer.asked, other.issuer.authorizations) == ([], [])


async def test_a_login_is_refreshed_at_the_cards_refresh_url_of_the_same_origin(tmp_path: Path) -> None:
    async with there(tmp_path, has_metadata=False) as one:
        issuer = one.issuer.issuer
        flow = code_flow(issuer, refreshUrl=f"{issuer}/renew", pkceRequired=True)
        one.agent.card = with_scheme({"oauth2SecurityScheme": flow}, "read")
        made = await one.log_in(client_id="bridge")
        tokens = LoginToken(one.login_config, 20)
        tokens.refused(await tokens())
        assert (await tokens()).value == "access-3"
    assert (made.token_url, made.refresh_url) == (f"{issuer}/token", f"{issuer}/renew")
    assert one.issuer.asked_at == ["/token", "/renew"]
    assert [form["grant_type"] for form in one.issuer.asked] == ["authorization_code", "refresh_token"]


async def test_a_refresh_token_is_never_sent_to_an_origin_that_did_not_issue_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = LoginServer()
    async with other.serve(), there(tmp_path, has_metadata=False) as one:
        flow = code_flow(one.issuer.issuer, refreshUrl=f"{other.issuer}/renew", pkceRequired=True)
        one.agent.card = with_scheme({"oauth2SecurityScheme": flow}, "read")
        # Neither does it once the operator trusts that origin with the token of the agent.
        for trusted in (frozenset[str](), frozenset({other.issuer})):
            made = await one.log_in(client_id="bridge", trusted=trusted)
            assert made.refresh_url == ""
        tokens = LoginToken(one.login_config, 20)
        tokens.refused(await tokens())
        await tokens()
    assert one.issuer.asked_at == ["/token", "/token", "/token"]
    assert (other.asked, other.authorizations) == ([], [])
    assert f"says to renew a login at {other.issuer}, which did not give it" in caplog.text


@pytest.mark.parametrize("url", ["http://login.example/renew", "file:///etc/passwd", "https://a@b.example/"])
async def test_a_card_with_a_refresh_url_without_tls_allows_no_login(url: str, tmp_path: Path) -> None:
    async with there(tmp_path, has_metadata=False) as one:
        flow = code_flow(one.issuer.issuer, refreshUrl=url, pkceRequired=True)
        one.agent.card = with_scheme({"oauth2SecurityScheme": flow}, "read")
        assert "no https:// URL" in await one.refusal(client_id="bridge")
    assert one.issuer.asked == []


@pytest.mark.parametrize("has_pages", [True, False])
async def test_a_url_without_a_card_counts_as_an_mcp_server(has_pages: bool, tmp_path: Path) -> None:
    server = LoginServer(has_pages=has_pages)
    async with server.serve() as url:
        assert await login_lead(LoginConfig(url, LoginFiles(tmp_path), kind=None), 30) is None


async def test_the_configured_issuer_overrides_the_card(tmp_path: Path) -> None:
    async with there(tmp_path, has_metadata=False) as one:
        one.agent.card = with_scheme({"oauth2SecurityScheme": code_flow("https://evil.example")})
        # Its address is private, and the operator wrote it.
        made = await one.log_in(issuer=one.issuer.issuer, allow_private=False)
        assert made.issuer == one.issuer.issuer
        assert "scope" not in one.issuer.authorizations[-1]
        assert "has no metadata. Check `issuer`" in await one.refusal(issuer=f"{one.issuer.issuer}/other")


async def test_an_agent_that_names_no_issuer_needs_a_configured_issuer(tmp_path: Path) -> None:
    async with there(tmp_path, has_metadata=False) as one:
        assert await one.refusal() == ("no login at AGENT/: it names no issuer. Set `issuer` (--issuer)")
    assert one.issuer.registered == []


@pytest.mark.parametrize("has_metadata", [True, False])
async def test_neither_metadata_nor_a_card_leads_a_login_to_a_private_address_elsewhere(
    has_metadata: bool, tmp_path: Path
) -> None:
    async with there(tmp_path, has_metadata=has_metadata) as one:
        scheme = {"oauth2SecurityScheme": {**code_flow("https://10.0.0.1")}}
        one.agent.issuer = "https://10.0.0.1"
        one.agent.card = with_scheme(scheme)
        words = await one.refusal(allow_private=False, client_id="bridge", pkce="assume")
    assert "a private address" in words
    assert (one.issuer.asked, one.issuer.registered) == ([], [])


async def test_a_login_is_never_for_another_resource_than_the_agent(tmp_path: Path) -> None:
    async with there(tmp_path, has_metadata=False) as one:
        elsewhere = {
            "url": "https://victim.example/a2a",
            "protocolBinding": "JSONRPC",
            "protocolVersion": "1.0",
        }
        one.agent.card = {"supportedInterfaces": [elsewhere]}
        made = await one.log_in(issuer=one.issuer.issuer)
    assert made.resource == one.agent.url


def state_of_desk(bridge: Any) -> Any:
    return bridge.bridge.readiness()["mcp"]["team"]["agents"]["desk"]


async def test_tools_of_an_agent_without_a_login_name_the_command_and_work_after_the_login(
    tmp_path: Path,
) -> None:
    async with there(tmp_path) as one, one.tools(tmp_path) as bridge:
        needed = f"login needed at {one.agent.url}/: nobody has logged in. Run `mcp-a2a login desk`"
        state = (await bridge.json("/readyz", 503))["mcp"]["team"]["agents"]["desk"]
        assert (state["up"], state["why"]) == (False, needed)
        async with bridge.mcp("team") as host:
            is_error, words = await call_in(host)
            assert is_error
            assert needed in words
            await one.log_in()
            assert await call_in(host) == (False, "done")
        while not state_of_desk(bridge)["up"]:
            await anyio.sleep(0.01)


async def test_an_agent_whose_card_needs_a_login_as_well_is_down_with_the_command(tmp_path: Path) -> None:
    async with there(tmp_path, shows_card=False) as one, one.tools(tmp_path) as bridge:
        state = (await bridge.json("/readyz", 503))["mcp"]["team"]["agents"]["desk"]
        assert "nobody has logged in. Run `mcp-a2a login desk`" in state["why"]
        await one.log_in()
        while not state_of_desk(bridge)["up"]:
            await anyio.sleep(0.01)
        assert await called(bridge) == (False, "done")


async def test_a_login_that_was_revoked_fails_the_call_with_the_command(tmp_path: Path) -> None:
    async with there(tmp_path) as one:
        await one.log_in()
        async with one.tools(tmp_path) as bridge:
            assert await called(bridge) == (False, "done")
            one.issuer.forget()
            one.issuer.revoked = True
            is_error, words = await called(bridge)
    assert is_error
    assert "login needed" in words
    assert "invalid_grant: revoked. Run `mcp-a2a login desk`" in words
    assert not re.search(r"access-\d|refresh-\d", words)


async def test_an_agent_that_refuses_the_logins_token_differs_from_a_missing_login(
    tmp_path: Path,
) -> None:
    async with there(tmp_path) as one:
        await one.log_in()
        one.agent.known = lambda: ()  # as when the token is for another audience
        async with one.tools(tmp_path) as bridge:
            is_error, words = await called(bridge)
    assert is_error
    assert "answered HTTP 401 Unauthorized" in words
    hint = "The peer does not accept the token of the login: check `resource` and `scopes`. Run `mcp-a2a login desk`"
    assert hint in words


async def test_a_login_that_has_expired_is_renewed_for_an_agent(tmp_path: Path) -> None:
    async with there(tmp_path) as one:
        made = await one.log_in()
        async with one.login_config.keeper.held(one.login_config.key) as held:
            await held.write(replace(made, got_at=0.0, expires_at=time.time() - 60))
        async with one.tools(tmp_path) as bridge:
            assert await called(bridge) == (False, "done")
    assert [form["grant_type"] for form in one.issuer.asked] == ["authorization_code", "refresh_token"]
    assert one.issuer.asked[1]["resource"] == f"{one.agent.url}/"


async def test_check_names_the_login_that_an_agent_needs(tmp_path: Path) -> None:
    async with there(tmp_path) as one, one.tools(tmp_path) as bridge:
        findings = await findings_of(bridge.plan, bridge.bridge)
        (peer,) = findings.peers
        assert (
            peer.down == f"login needed at {one.agent.url}/: nobody has logged in. Run `mcp-a2a login desk`"
        )
        await one.log_in()
        (agent,) = bridge.bridge.offered[0].remote_agents
        await agent.refresh()
        assert (await findings_of(bridge.plan, bridge.bridge)).faults == ()


async def test_check_names_the_login_that_a_catalog_needs(tmp_path: Path) -> None:
    async with there(tmp_path) as one:
        catalog = f"{one.agent.url}/agents"
        login_config = replace(one.login_config, url=catalog, kind="catalogs", name="firm")
        plan = CatalogPlan(catalog, tokens=LoginToken(login_config, 20))
        offered = {"team": OfferedPlan(("firm",), PROFILE)}
        async with live(tmp_path, catalogs={"firm": plan}, offered=offered) as bridge:
            (peer,) = (await findings_of(bridge.plan, bridge.bridge)).peers
    assert peer.down == f"login needed at {catalog}: nobody has logged in. Run `mcp-a2a login firm`"


async def test_the_login_at_a_catalog_serves_the_agents_of_its_origin(tmp_path: Path) -> None:
    async with there(tmp_path) as one:
        catalog = f"{one.agent.url}/agents"
        login_config = replace(one.login_config, url=catalog, kind="catalogs", name="firm")
        plan = CatalogPlan(catalog, tokens=LoginToken(login_config, 20))
        await replace(one, login_config=login_config).log_in(resource=one.agent.url)
        offered = {"team": OfferedPlan(("firm",), PROFILE)}
        async with live(tmp_path, catalogs={"firm": plan}, offered=offered) as bridge:
            assert await called(bridge) == (False, "done")
    assert set(one.agent.shown) == {"Bearer access-2"}


FILE = """
[agents.research]
card = "https://research.example/.well-known/agent-card.json"
trust = ["https://api.research.example"]
auth = { oauth2 = { grant = "authorization_code" } }
[catalogs.firm]
url = "https://firm.example/agents"
[catalogs.firm.auth.oauth2]
grant = "authorization_code"
issuer = "https://login.example"
client_id = "bridge"
scopes = ["read"]
pkce = "assume"
[agents_as_tools.team]
from = ["research", "firm"]
"""


def test_the_configuration_says_which_logins_an_agent_and_a_catalog_need(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(FILE)
    plan = plan_from_file(load(file, {}))
    keeper, seconds = LoginFiles(state_folder()), plan.profile.agents.agent_connect_seconds
    research = LoginConfig(
        "https://research.example/",
        keeper,
        "research",
        kind="agents",
        trusted=frozenset({"https://api.research.example:443"}),
    )
    firm = LoginConfig(
        "https://firm.example/agents",
        keeper,
        "firm",
        kind="catalogs",
        issuer="https://login.example",
        client_id="bridge",
        scopes=("read",),
        pkce="assume",
    )
    assert plan.agents["research"].tokens == LoginToken(research, seconds)
    assert plan.catalogs["firm"].tokens == LoginToken(firm, seconds)
    assert research.key == LoginKey("https://research.example/")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('on_behalf_of = "caller"', "`on_behalf_of` is not for the grant `authorization_code`"),
        ('private_key = { env = "SECRET" }', "`private_key` is not for the grant `authorization_code`"),
        ('client_id = "b", client_secret = { env = "SECRET" }', "needs `issuer`"),
        ('issuer = "http://login.example"', "takes an https:// URL"),
    ],
)
@pytest.mark.parametrize("section", ["agents", "catalogs"])
def test_a_login_that_would_give_a_secret_away_is_refused(
    section: str, keys: str, words: str, tmp_path: Path
) -> None:
    if section == "catalogs" and "on_behalf_of" in keys:
        words = "on_behalf_of"
    file, place = tmp_path / "bridge.toml", "card" if section == "agents" else "url"
    file.write_text(f"""
[{section}.desk]
{place} = "https://desk.example/"
auth = {{ oauth2 = {{ grant = "authorization_code", {keys} }} }}
""")
    with pytest.raises(ConfigError, match=re.escape(words)):
        load(file, {"SECRET": "s3cret"})
