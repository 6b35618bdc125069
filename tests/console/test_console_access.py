"""Access to the console, and attacks by a page of another origin through a signed-in browser."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import AuditPlan, Plan, ProcessPlan
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import SettingOverride, load
from bridge.console import console_access, sign_ins
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential, Scheme
from tests.support.console import HERE, ConsoleBrowser, console_of
from tests.support.in_process import client_of
from tests.support.issuer import TokenIssuer, issuer_at
from tests.support.running import listening, profile_of

ADA = Credential(Principal("ada"), "token-of-ada")
BOB = Credential(Principal("bob"), "key-of-bob", Scheme.API_KEY)
KEY = "k" * 32


def plan_with(tmp_path: Path, *credentials: Credential, **place: Any) -> Plan:
    """A plan that serves the console and nothing else."""
    where = ProcessPlan(console=True, keys=(KEY,), state=tmp_path, **place)
    return Plan(profile_of("default"), where, credentials)


@asynccontextmanager
async def signed_in(tmp_path: Path, **place: Any) -> AsyncIterator[tuple[Bridge, ConsoleBrowser]]:
    async with console_of(plan_with(tmp_path, ADA, BOB, **place)) as bridge:
        browser = ConsoleBrowser(bridge)
        assert await browser.signs_in(ADA.token) == 200
        await browser.opens()
        yield bridge, browser


async def test_without_credentials_a_local_browser_needs_no_sign_in(
    tmp_path: Path,
) -> None:
    async with console_of(plan_with(tmp_path)) as bridge:
        for base in (HERE, "http://localhost:8080", "http://[::1]:8080"):
            page = await ConsoleBrowser(bridge, base).opens()
            assert (page.status_code, "open on this machine as" in page.text) == (200, True)


@pytest.mark.parametrize(
    "header",
    [
        *(
            f"X-Forwarded-{name}"
            for name in ("For", "Host", "Proto", "Server", "Ssl", "Prefix", "Port", "User")
        ),
        *("Forwarded", "Via", "X-Real-IP", "CF-Connecting-IP", "CF-Ray", "True-Client-IP", "X-Client-IP"),
        *("Fastly-Client-IP", "X-Envoy-External-Address", "X-Original-Forwarded-For", "X-Amzn-Trace-Id"),
    ],
)
async def test_a_request_through_a_proxy_is_not_local(header: str, tmp_path: Path) -> None:
    async with console_of(plan_with(tmp_path)) as bridge:
        page = await ConsoleBrowser(bridge, headers={header: "127.0.0.1"}).opens()
        assert page.status_code == 403
        assert "Add [principals.NAME]" in page.text


@pytest.mark.parametrize(("version", "status"), [("1.0", 403), ("1.1", 200), ("2", 200)])
async def test_a_request_over_http_1_0_comes_from_a_proxy_and_not_from_a_browser(
    version: str, status: int, tmp_path: Path
) -> None:
    async with console_of(plan_with(tmp_path)) as bridge:

        async def at_version(scope: Scope, receive: Receive, send: Send) -> None:
            await bridge.app({**scope, "http_version": version}, receive, send)

        async with client_of(at_version) as client:
            assert (await client.get(f"{HERE}/console")).status_code == status


@pytest.mark.parametrize(
    "place",
    [{"host": "0.0.0.0"}, {"public_url": "https://bridge.example"}, {"hosts": frozenset({"devbox"})}],
    ids=["other machines reach it", "it has a public address", "it is asked for by another name"],
)
async def test_without_credentials_the_console_is_for_this_machine_only(
    place: dict[str, Any], tmp_path: Path
) -> None:
    plan = replace(plan_with(tmp_path, **place), allow_unauthenticated=True)
    async with console_of(plan) as bridge:
        base = "http://devbox:8080" if "hosts" in place else HERE
        page = await ConsoleBrowser(bridge, base).opens()
        assert page.status_code == 403


async def test_a_name_that_was_rebound_to_this_machine_is_refused(tmp_path: Path) -> None:
    async with console_of(plan_with(tmp_path)) as bridge:
        page = await ConsoleBrowser(bridge, "http://evil.example:8080").opens()
        assert page.status_code == 421


async def test_a_token_and_an_api_key_sign_their_principals_in(tmp_path: Path) -> None:
    async with console_of(plan_with(tmp_path, ADA, BOB)) as bridge:
        for credential in (ADA, BOB):
            browser = ConsoleBrowser(bridge)
            assert (await browser.opens()).status_code == 401
            assert await browser.signs_in(credential.token) == 200
            page = await browser.opens()
            assert (page.status_code, f"<b>{credential.principal.name}</b>" in page.text) == (200, True)


@pytest.mark.parametrize(
    ("base_url", "name", "flags"),
    [
        (HERE, "mcp-a2a-console", {"httponly", "samesite"}),
        ("https://bridge.example", "__Host-mcp-a2a-console", {"httponly", "samesite", "secure"}),
    ],
)
async def test_a_cookie_is_for_this_host_only_and_hidden_from_scripts(
    base_url: str, name: str, flags: set[str], tmp_path: Path
) -> None:
    public = base_url if base_url.startswith("https") else None
    async with console_of(plan_with(tmp_path, ADA, public_url=public)) as bridge:
        browser = ConsoleBrowser(bridge, base_url)
        await browser.opens()
        answer = await browser.posts("/sign-in", {"token": ADA.token})
        cookie = SimpleCookie(answer.headers["set-cookie"])[name]
        assert {key for key in ("httponly", "samesite", "secure") if cookie[key]} == flags
        assert (cookie["samesite"], cookie["path"], cookie["domain"]) == ("Strict", "/", "")
        assert ADA.token not in answer.headers["set-cookie"]


async def test_other_machines_sign_in_over_https_only(tmp_path: Path) -> None:
    async with console_of(plan_with(tmp_path, ADA, host="0.0.0.0")) as bridge:
        browser = ConsoleBrowser(bridge, "http://192.0.2.7:8080", address="192.0.2.9")
        assert (await browser.opens()).status_code == 403


async def test_a_sign_in_ends_at_once_when_its_principal_is_removed(tmp_path: Path) -> None:
    async with signed_in(tmp_path) as (bridge, browser):
        await bridge.apply(plan_with(tmp_path, BOB))
        assert (await browser.opens()).status_code == 401
        assert (await browser.posts("/sign-out", {})).status_code == 401


async def test_a_sign_in_ends_with_another_token_of_the_same_principal(tmp_path: Path) -> None:
    async with signed_in(tmp_path) as (bridge, browser):
        await bridge.apply(plan_with(tmp_path, replace(ADA, token="another-token")))
        assert (await browser.opens()).status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "http://127.0.0.1:3000"}, 403),
        ({"Origin": "https://127.0.0.1:8080"}, 403),
        ({"Origin": "null"}, 403),
        ({"X-CSRF-Token": "guessed"}, 403),
        ({"X-CSRF-Token": ""}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
async def test_only_our_own_page_changes_anything(
    headers: dict[str, str], status: int, tmp_path: Path
) -> None:
    async with signed_in(tmp_path) as (_, browser):
        assert (await browser.posts("/sign-out", {}, **headers)).status_code == status
        assert (await browser.opens()).status_code == 200


async def test_a_request_without_an_origin_changes_nothing(tmp_path: Path) -> None:
    async with signed_in(tmp_path) as (_, browser):
        answer = await browser.client.post(
            "/console/sign-out", json={}, headers={"X-CSRF-Token": browser.csrf}
        )
        assert answer.status_code == 403


async def test_the_token_of_a_page_is_of_no_use_to_another_browser(tmp_path: Path) -> None:
    async with signed_in(tmp_path) as (bridge, browser):
        other = ConsoleBrowser(bridge)
        assert await other.signs_in(BOB.token) == 200
        assert (await browser.posts("/sign-out", {}, **{"X-CSRF-Token": other.csrf})).status_code == 403


async def test_no_page_runs_or_frames_or_keeps_anything(tmp_path: Path) -> None:
    async with signed_in(tmp_path) as (_, browser):
        for path in ("", "/nothing", ".json", "/static/console.js"):
            headers = (await browser.opens(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            for part in (
                "frame-ancestors 'none'",
                "require-trusted-types-for 'script'",
                "trusted-types 'none'",
            ):
                assert part in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
            assert "no-store" in headers["cache-control"] or path.startswith("/static/")


async def test_every_page_is_json_too_by_its_name_or_its_accept_header(tmp_path: Path) -> None:
    async with signed_in(tmp_path) as (_, browser):
        by_name = await browser.opens(".json")
        by_header = await browser.opens("", Accept="application/json")
        assert by_name.headers["content-type"] == by_header.headers["content-type"] == "application/json"
        assert by_name.json() == by_header.json()


async def test_json_without_a_sign_in_is_refused_in_json(tmp_path: Path) -> None:
    async with console_of(plan_with(tmp_path, ADA)) as bridge:
        page = await ConsoleBrowser(bridge).opens(".json")
        assert (page.status_code, list(page.json())) == (401, ["error"])


async def test_without_the_console_there_is_nothing_at_its_path(tmp_path: Path) -> None:
    async with console_of(plan_with(tmp_path)) as bridge:
        bridge.app.pages = ()
        assert (await ConsoleBrowser(bridge).opens()).status_code == 404


@pytest.mark.parametrize(("size", "status"), [(console_access.BODY_BYTES + 10, 413), (10, 403)])
async def test_a_form_is_bounded(size: int, status: int, tmp_path: Path) -> None:
    async with console_of(plan_with(tmp_path, ADA)) as bridge:
        browser = ConsoleBrowser(bridge)
        await browser.opens()
        assert (await browser.posts("/sign-in", {"token": "x" * size})).status_code == status


async def test_a_token_too_long_for_a_cookie_is_refused(tmp_path: Path) -> None:
    async with console_of(plan_with(tmp_path, ADA)) as bridge:
        browser = ConsoleBrowser(bridge)
        await browser.opens()
        answer = await browser.posts("/sign-in", {"token": "x" * sign_ins.COOKIE_BYTES})
        assert answer.status_code == 413


async def test_a_token_of_an_issuer_signs_in_if_it_is_for_the_console(tmp_path: Path) -> None:
    issuer, here = TokenIssuer(""), "https://bridge.example"
    async with listening(issuer) as issuer.url:
        plan = plan_with(tmp_path, public_url=here)
        plan = replace(plan, issuers={"corp": issuer_at(issuer.url, {})})
        async with console_of(plan) as bridge:
            browser = ConsoleBrowser(bridge, here)
            assert await browser.signs_in(issuer.token(f"{here}/agents/devtools")) == 403
            assert await browser.signs_in(issuer.token(f"{here}/console")) == 200
            assert "<b>corp:" in (await browser.opens()).text
            await bridge.apply(replace(plan, issuers={}, credentials=(BOB,)))
            assert (await browser.opens()).status_code == 401


@pytest.mark.outside
@pytest.mark.long
def test_without_its_package_the_start_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['jinja2'] = None\n"
        "from bridge.errors import UsageError\n"
        "try:\n    import bridge.console.app\n"
        "except UsageError as exc:\n    print(exc)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "`console` in [bridge] needs Jinja2: pip install 'mcp-a2a[console]'\n"


def test_an_option_serves_the_console_of_a_file_that_does_not_name_it(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text('[tool_servers.a]\nurl = "https://a.example/mcp"\n[tools_as_agent.a]\nfrom = ["a"]\n')
    assert not plan_from_file(load(file)).place.console
    asked = {"console": SettingOverride(True, "--console")}
    assert plan_from_file(load(file).given(**asked)).place.console


async def test_the_audit_has_requests_that_are_refused_because_of_their_sender(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with console_of(plan_with(tmp_path, ADA, audit=AuditPlan(file, 1 << 20, 7))) as bridge:
        browser, stranger = ConsoleBrowser(bridge), ConsoleBrowser(bridge)
        assert await browser.signs_in(ADA.token) == 200
        await browser.opens()
        refused = [
            await stranger.opens("/tasks.json"),
            await stranger.posts("/news", {}),
            await ConsoleBrowser(bridge, "http://evil.example:8080").opens("/tasks"),
            await browser.opens("/people"),
            await browser.posts("/sign-out", {}, Origin="http://localhost:3000"),
            await browser.posts("/sign-out", {}, **{"X-CSRF-Token": "guessed"}),
            await browser.opens("/nothing"),
            await browser.posts("/sign-in", {"token": "wrong"}),
        ]
        assert (await browser.opens("/people")).status_code == 403  # there is no room for its line
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    told = [(one["error"], one.get("principal", "")) for one in lines if one["event"] == "refused"]
    assert [one.status_code for one in refused] == [401, 401, 421, 403, 403, 403, 404, 403]
    assert told == [
        ("HTTP_401", ""),
        ("HTTP_401", ""),
        ("HTTP_421", ""),
        ("HTTP_403", "ada"),
        ("HTTP_403", ""),  # a foreign page: its browser is not looked at
        ("HTTP_403", "ada"),
        ("HTTP_403", "ada"),
    ]
    assert lines[-1]["unlisted"] == 1
