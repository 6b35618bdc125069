"""Logins at peers that want a client certificate, or whose own certificate comes from a company: all over real TLS."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from bridge.a2a.client.login_lead import login_lead
from bridge.identity.logins.kept_logins import Login
from bridge.identity.logins.login_credentials import LoginConfig, LoginToken
from bridge.identity.logins.login_files import LoginFiles
from bridge.identity.logins.login_flow import log_in
from bridge.identity.logins.login_landing import login_landing
from bridge.identity.logins.login_revocation import revoke
from tests.identity.logins.test_login_flow import Browser
from tests.support.certificates import Company
from tests.support.command import run_here
from tests.support.login_agent import LoginAgent
from tests.support.login_server import LoginServer

pytestmark = pytest.mark.outside


async def logged_in(login_config: LoginConfig, browser: Browser) -> Login:
    """Log in, and keep it."""
    async with login_landing("127.0.0.1", 0) as landing:
        made = await log_in(login_config, landing, browser, 30, await login_lead(login_config, 30))
    async with login_config.keeper.held(login_config.key) as held:
        await held.write(made)
    return made


async def test_a_login_at_an_agent_that_wants_a_certificate_and_a_call_of_it(tmp_path: Path) -> None:
    company, issuer = Company.at(tmp_path), LoginServer()
    agent, tls = LoginAgent(lambda: issuer.given, shows_card=False), company.tls
    with anyio.fail_after(60):
        async with issuer.serve(), agent.serve(company.serving("required")) as url:
            agent.issuer = issuer.issuer
            files = LoginFiles(tmp_path / "mcp-a2a")
            await logged_in(LoginConfig(url, files, allow_private=True, kind=None, tls=tls), Browser())
            named = ["--cert", str(tls.certificate), "--key", str(tls.key), "--ca", str(tls.ca)]
            run = partial(run_here, "call", url, *named, "--text", "hi", state=tmp_path)
            done: subprocess.CompletedProcess[str] = await anyio.to_thread.run_sync(run)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert agent.shown == ["Bearer access-2"]


async def test_a_login_at_a_server_that_is_its_own_issuer_shows_the_certificate_to_all_of_it(
    tmp_path: Path,
) -> None:
    company, server = Company.at(tmp_path), LoginServer()
    browser = Browser(company.tls.context())
    with anyio.fail_after(60):
        async with server.serve(company.serving("required")) as url:
            server.metadata = {"revocation_endpoint": f"{server.issuer}/revoke"}
            login_config = LoginConfig(url, LoginFiles(tmp_path), "crm", tls=company.tls)
            made = await logged_in(login_config, browser)
            tokens = LoginToken(login_config, 30)
            tokens.refused(await tokens())
            assert (await tokens()).value != made.access_token
            renewed = await login_config.keeper.find(login_config.key)
            assert renewed is not None
            assert await revoke(login_config, renewed, 30) == ""
    assert [form["grant_type"] for form in server.asked] == ["authorization_code", "refresh_token"]


async def test_an_issuer_at_another_origin_does_not_get_the_certificate_for_a_peer(tmp_path: Path) -> None:
    company, issuer = Company.at(tmp_path), LoginServer()
    agent = LoginAgent(lambda: issuer.given)
    with anyio.fail_after(60):
        async with issuer.serve(company.serving("required")), agent.serve(company.serving("required")) as url:
            agent.issuer = issuer.issuer
            login_config = LoginConfig(
                url, LoginFiles(tmp_path), "desk", allow_private=True, kind="agents", tls=company.tls
            )
            async with login_landing("127.0.0.1", 0) as landing:
                with pytest.raises(Exception, match="its certificate comes from an authority"):
                    await log_in(login_config, landing, Browser(), 30, await login_lead(login_config, 30))
    assert issuer.registered == []


def test_wrap_and_expose_write_the_certificate_into_the_file_that_they_print(tmp_path: Path) -> None:
    named = [
        "--cert",
        str(tmp_path / "b.pem"),
        "--key",
        str(tmp_path / "b.key"),
        "--ca",
        str(tmp_path / "ca.pem"),
    ]
    peers = {"wrap": "https://tools.example/mcp", "expose": "https://agent.example"}
    for command, url in peers.items():
        done = run_here(command, "--print-toml", *named, url, state=tmp_path)
        assert done.returncode == 0, done.stderr
        for key, file in {"certificate": "b.pem", "key": "b.key", "ca": "ca.pem"}.items():
            assert f"{key} = '{tmp_path / file}'" in done.stdout.replace('"', "'")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--cert", "a", "https://tools.example/mcp"], "--cert and --key go together"),
        (["--ca", "a", "--", "python", "server.py"], "--ca is for a URL"),
        (["--ca", "a", "--from-json", "b"], "it does not go with --ca"),
        (["--ca", "a", "http://tools.example/mcp"], "is reached without TLS"),
    ],
)
def test_certificate_options_that_do_not_fit_are_refused(words: list[str], says: str, tmp_path: Path) -> None:
    (tmp_path / "b").write_text('{"mcpServers": {"x": {"command": "x"}}}')
    done = run_here("wrap", *words, state=tmp_path, folder=tmp_path)
    assert done.returncode == 2
    assert says in " ".join(done.stderr.split())
