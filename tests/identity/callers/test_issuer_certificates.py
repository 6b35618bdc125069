"""Certificates that the issuer of access tokens is shown, in place of a secret, and the authorities of its own."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.errors import ConfigError, leaf_of
from bridge.http.tls import PeerTls
from bridge.identity.logins.login_credentials import LoginConfig, LoginToken
from bridge.identity.logins.login_files import LoginFiles
from bridge.identity.logins.login_flow import LoginFlowError, begin_login
from bridge.identity.logins.login_revocation import revoke
from bridge.identity.tokens.oauth import ClientToken
from bridge.identity.tokens.token_endpoint import OAuthClient
from bridge.mcp.client.transports.streamable_http import HttpTarget
from bridge.process.place_findings import place_faults
from tests.cli.login.test_login_certificates import logged_in
from tests.identity.logins.test_login_flow import Browser
from tests.support.authorization_server import METADATA, AuthorizationServer, TokenRequest
from tests.support.certificates import Company
from tests.support.login_server import LoginServer
from tests.support.running import listening

pytestmark = pytest.mark.outside


async def test_a_certificate_authenticates_a_client_without_a_secret(tmp_path: Path) -> None:
    company, server = Company.at(tmp_path), AuthorizationServer()
    with anyio.fail_after(30):
        async with server.serve(company.serving("required")) as issuer:
            client = OAuthClient(issuer, "bridge", "", "none", tls=company.tls)
            assert (await ClientToken(client, 20)()).value == "token-1"
    form = {"grant_type": "client_credentials", "client_id": "bridge"}
    assert server.asked == [TokenRequest(form, None)]


async def test_only_clients_with_a_certificate_use_the_mtls_alias(tmp_path: Path) -> None:
    company, server = Company.at(tmp_path), AuthorizationServer()
    with anyio.fail_after(30):
        async with server.serve(company.serving("optional")) as issuer:
            server.metadata = {"mtls_endpoint_aliases": {"token_endpoint": f"{issuer}/token?mtls"}}
            server.metadata["token_endpoint"] = f"{issuer}/none"
            client = OAuthClient(issuer, "bridge", "s3", "post", tls=company.tls)
            assert (await ClientToken(client, 20)()).value == "token-1"
            without = replace(client, tls=PeerTls(ca=company.tls.ca))
            with pytest.raises(Exception, match="HTTP 404"):
                await ClientToken(without, 20)()
    assert server.paths == [METADATA, "/token", METADATA, "/none"]


async def test_a_login_sends_the_issuer_its_own_client_certificate(tmp_path: Path) -> None:
    company, server, issuer = Company.at(tmp_path), LoginServer(), LoginServer()
    with anyio.fail_after(30):
        async with issuer.serve(company.serving("required")), server.serve() as url:
            server.named = lambda _: [issuer.issuer]
            login_config = LoginConfig(
                url, LoginFiles(tmp_path), "crm", issuer=issuer.issuer, issuer_tls=company.tls, client_id="b"
            )
            made = await logged_in(login_config, Browser(company.tls.context()))
    assert (made.issuer, made.access_token) == (issuer.issuer, "access-2")


async def test_a_login_is_made_renewed_and_revoked_at_an_issuer_that_requires_certificates(
    tmp_path: Path,
) -> None:
    """The issuer asks nobody for a certificate but at the aliases, and has nothing at the endpoints for all."""
    company, server, issuer = Company.at(tmp_path), LoginServer(), LoginServer()
    plain = PeerTls(ca=company.tls.ca)
    with anyio.fail_after(30):
        async with (
            issuer.serve(company.serving("optional")),
            listening(issuer, tls=company.serving("required")) as alias,
            server.serve() as url,
        ):
            server.named = lambda _: [issuer.issuer]
            aliases = {"token_endpoint": f"{alias}/token", "revocation_endpoint": f"{alias}/revoke"}
            # The page is for a browser, which has no certificate, and the issuer is not to be replaced.
            aliases |= {"authorization_endpoint": f"{alias}/authorize", "issuer": "https://evil.example"}
            none = dict.fromkeys(("token_endpoint", "revocation_endpoint"), f"{issuer.issuer}/none")
            issuer.metadata = {**none, "mtls_endpoint_aliases": aliases}
            login_config = LoginConfig(
                url,
                LoginFiles(tmp_path),
                "crm",
                issuer=issuer.issuer,
                issuer_tls=company.tls,
                client_id="b",
                allow_private=True,
            )
            made = await logged_in(login_config, browser := Browser(plain.context()))
            tokens = LoginToken(login_config, 30)
            tokens.refused(await tokens())
            renewed = await tokens()
            kept = await login_config.keeper.find(login_config.key)
            assert kept is not None
            assert await revoke(login_config, kept, 30) == ""
            without = replace(login_config, issuer_tls=plain)
            with pytest.raises(ExceptionGroup) as caught:
                await logged_in(without, Browser(plain.context()))
            assert "gave no tokens: HTTP 404" in str(leaf_of(caught.value))
            assert "did not revoke the refresh token: HTTP 404" in await revoke(without, kept, 30)
    assert browser.opened[0].startswith(f"{issuer.issuer}/authorize?")
    assert (made.issuer, made.token_url) == (issuer.issuer, f"{alias}/token")
    assert (kept.access_token, renewed.value) == ("access-3", "access-3")
    assert [form["grant_type"] for form in issuer.asked] == ["authorization_code", "refresh_token"]
    assert [form["token"] for form in issuer.given_back] == ["refresh-3", "access-3"]


async def test_a_login_uses_no_private_alias_and_no_alias_that_gets_no_certificate(
    tmp_path: Path,
) -> None:
    company, server = Company.at(tmp_path), LoginServer()
    with anyio.fail_after(30):
        async with server.serve(company.serving("optional")) as url:
            server.metadata = {"mtls_endpoint_aliases": {"token_endpoint": "https://10.0.0.1/token"}}
            browser = Browser(company.tls.context())
            # The certificate is for the server. At another origin it is not shown, so the alias there is of no use.
            own = LoginConfig(url, LoginFiles(tmp_path), "crm", tls=company.tls)
            assert (await logged_in(own, browser)).token_url == f"{server.issuer}/token"
            said = replace(own, tls=None, issuer=server.issuer, issuer_tls=company.tls)
            with pytest.raises(
                LoginFlowError, match=r"10\.0\.0\.1, a private address, where nothing was sent"
            ):
                await begin_login(said, "http://127.0.0.1/callback", 30)
    assert len(server.asked) == 1


FILE = """
[tool_servers.crm]
url = "https://crm.example/mcp"
[tool_servers.crm.auth.oauth2]
grant = "client_credentials"
issuer = "https://login.example"
client_id = "b"
resource = ""
tls = { certificate = "b.pem", key = "b.key" }
[agents.desk]
card = "https://desk.example"
[agents.desk.auth.oauth2]
grant = "authorization_code"
issuer = "https://login.example"
tls = { ca = "ca.pem" }
[tools_as_agent.one]
from = ["crm"]
[agents_as_tools.two]
from = ["desk"]
"""


def test_a_file_configures_the_certificate_for_an_issuer_and_check_reports_its_faults(
    tmp_path: Path,
) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(FILE)
    plan = plan_from_file(load(file, {}))
    target = plan.servers["crm"].target
    assert isinstance(target, HttpTarget)
    shown = PeerTls(tmp_path / "b.pem", tmp_path / "b.key")
    assert target.oauth == OAuthClient("https://login.example", "b", "", "none", (), "", tls=shown)
    assert [str(fault).partition(" cannot")[0] for fault in place_faults(plan)] == [
        f"tool_servers.crm: auth.oauth2.tls.certificate: {tmp_path / 'b.pem'}",
        f"agents.desk: auth.oauth2.tls.ca: {tmp_path / 'ca.pem'}",
    ]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('grant = "client_credentials", tls = { ca = "ca.pem" }', "needs `client_secret`, `private_key`"),
        ('grant = "client_credentials", tls = { key = "b.key" }', "`key` needs `certificate` beside it"),
        ('grant = "authorization_code", tls = { certificate = "b.pem", key = "b.key" }', "needs `issuer`"),
        ('grant = "authorization_code", issuer = "http://127.0.0.1", tls = { ca = "a" }', "without TLS"),
    ],
)
def test_a_certificate_that_is_sent_to_no_issuer_is_refused(keys: str, words: str, tmp_path: Path) -> None:
    file, more = tmp_path / "bridge.toml", "" if "authorization" in keys else ', issuer = "https://a.example"'
    file.write_text(f"""
[tool_servers.crm]
url = "https://crm.example/mcp"
auth = {{ oauth2 = {{ {keys}, client_id = "b"{more} }} }}
""")
    with pytest.raises(ConfigError, match=re.escape(words)):
        load(file, {})
