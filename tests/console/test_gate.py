"""Who gets into the console, and what a page of another origin can do with a browser that is in it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from http.cookies import SimpleCookie
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from bridge.access.principals import Principal
from bridge.access.verifiers import NOT_KNOWN, Credential, Scheme, Verdict
from bridge.assembly.bridge import Bridge
from bridge.assembly.offered_server import keys_of
from bridge.assembly.plan import Plan, ProcessPlan, SharedStore
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import SettingOverride, load
from bridge.console import gate, sessions
from bridge.console.app import ConsoleApp
from bridge.console.sessions import IDLE_SECONDS, SESSION_SECONDS, SessionSeal, new_session
from bridge.http.request_checks import TrustedProxies
from tests.console.test_tasks import served
from tests.support.console import HERE, ConsoleBrowser, console_of, told_to
from tests.support.in_process import client_of
from tests.support.issuer import TokenIssuer, issuer_at
from tests.support.postgres import new_database_url
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


async def test_a_browser_on_this_machine_needs_no_sign_in_where_no_credentials_are_asked_for(
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
async def test_a_request_that_a_proxy_has_passed_on_is_not_one_of_this_machine(
    header: str, tmp_path: Path
) -> None:
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
async def test_without_credentials_the_console_is_for_this_machine_alone(
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
async def test_a_cookie_is_for_this_host_alone_and_for_no_script(
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


async def test_a_token_is_taken_over_https_alone_from_other_machines(tmp_path: Path) -> None:
    async with console_of(plan_with(tmp_path, ADA, host="0.0.0.0")) as bridge:
        browser = ConsoleBrowser(bridge, "http://192.0.2.7:8080", address="192.0.2.9")
        assert (await browser.opens()).status_code == 403


async def test_after_five_wrong_tokens_in_a_minute_a_right_one_has_to_wait(tmp_path: Path) -> None:
    async with console_of(plan_with(tmp_path, ADA)) as bridge:
        browser, other = ConsoleBrowser(bridge), ConsoleBrowser(bridge, address="127.0.0.2")
        assert [await browser.signs_in(f"guess-{number}") for number in range(5)] == [403] * 5
        await browser.opens()
        answer = await browser.posts("/sign-in", {"token": ADA.token})
        assert answer.status_code == 429
        assert 0 < int(answer.headers["retry-after"]) <= 60
        assert await other.signs_in(ADA.token) == 200


@dataclass
class WaitingVerifier:
    """Judges bearer tokens as an issuer does that takes its time."""

    answered: anyio.Event = field(default_factory=anyio.Event)
    asked: list[str] = field(default_factory=list)
    scheme = Scheme.BEARER
    issuer = metadata = None
    is_declared = True

    async def verify(self, headers: Mapping[str, str], face: str) -> Verdict:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if token:
            self.asked.append(token)
            await self.answered.wait()
        return (ADA.principal if token == ADA.token else NOT_KNOWN) if token else None


async def sign_ins_at_once(
    browser: ConsoleBrowser, verifier: WaitingVerifier, tokens: list[str]
) -> list[int]:
    """The answers to tokens that are all sent before the first of them is judged."""
    statuses: list[int] = []

    async def one(token: str) -> None:
        statuses.append((await browser.posts("/sign-in", {"token": token})).status_code)

    async with anyio.create_task_group() as group:
        for token in tokens:
            group.start_soon(one, token)
        while len(statuses) + len(verifier.asked) < len(tokens):
            await anyio.wait_all_tasks_blocked()
        verifier.answered.set()
    return sorted(statuses)


async def test_guesses_that_are_made_at_once_do_not_outrun_the_bound(tmp_path: Path) -> None:
    async with console_of(plan_with(tmp_path, ADA)) as bridge:
        browser, verifier = ConsoleBrowser(bridge), WaitingVerifier()
        bridge.access.update([verifier])
        await browser.opens()
        guesses = [f"guess-{number}" for number in range(30)]
        with anyio.fail_after(20):
            assert await sign_ins_at_once(browser, verifier, guesses) == [403] * 5 + [429] * 25
        assert len(verifier.asked) == 5
        assert (await browser.posts("/sign-in", {"token": ADA.token})).status_code == 429


async def test_sign_ins_that_succeed_at_once_count_against_nobody(tmp_path: Path) -> None:
    async with console_of(plan_with(tmp_path, ADA)) as bridge:
        browser, verifier = ConsoleBrowser(bridge), WaitingVerifier()
        bridge.access.update([verifier])
        await browser.opens()
        with anyio.fail_after(20):
            assert await sign_ins_at_once(browser, verifier, [ADA.token] * 5) == [200] * 5
        assert [await ConsoleBrowser(bridge).signs_in(f"guess-{number}") for number in range(6)] == [
            *[403] * 5,
            429,
        ]


async def test_behind_a_trusted_proxy_each_browser_has_failures_of_its_own(tmp_path: Path) -> None:
    proxies = TrustedProxies(networks=(ip_network("127.0.0.0/8"),))
    async with console_of(plan_with(tmp_path, ADA, proxies=proxies)) as bridge:
        guessing, other, lying = (
            ConsoleBrowser(bridge, headers={"X-Forwarded-For": said})
            for said in ("192.0.2.1", "192.0.2.2", "192.0.2.3, 192.0.2.1")
        )
        assert [await guessing.signs_in(f"guess-{number}") for number in range(6)] == [403] * 5 + [429]
        assert [await lying.signs_in(ADA.token), await other.signs_in(ADA.token)] == [429, 200]


async def test_a_sign_in_ends_at_once_when_its_principal_goes(tmp_path: Path) -> None:
    async with signed_in(tmp_path) as (bridge, browser):
        await bridge.apply(plan_with(tmp_path, BOB))
        assert (await browser.opens()).status_code == 401
        assert (await browser.posts("/sign-out", {})).status_code == 401


async def test_a_sign_in_ends_with_another_token_of_the_same_principal(tmp_path: Path) -> None:
    async with signed_in(tmp_path) as (bridge, browser):
        await bridge.apply(plan_with(tmp_path, replace(ADA, token="another-token")))
        assert (await browser.opens()).status_code == 401


async def test_a_copy_of_a_cookie_is_of_no_use_after_the_sign_out(tmp_path: Path) -> None:
    async with signed_in(tmp_path) as (bridge, browser):
        thief = ConsoleBrowser(bridge)
        thief.client.cookies = browser.client.cookies
        assert (await thief.opens()).status_code == 200
        assert (await browser.posts("/sign-out", {})).status_code == 200
        assert (await thief.opens()).status_code == 401


async def test_a_sign_out_takes_the_cookie_from_the_browser_so_that_it_counts_with_no_worker(
    tmp_path: Path,
) -> None:
    async with signed_in(tmp_path) as (bridge, browser):
        answer = await browser.posts("/sign-out", {})
        cookie = SimpleCookie(answer.headers["set-cookie"])["mcp-a2a-console"]
        assert (cookie.value, cookie["max-age"], cookie["path"]) == ("", "0", "/")
        assert (cookie["samesite"], bool(cookie["httponly"])) == ("Strict", True)
        bridge.app.console = ConsoleApp(
            bridge, plan_with(tmp_path, ADA, BOB).place
        )  # one that has heard nothing
        assert (await browser.opens()).status_code == 401


async def test_a_tab_of_a_browser_that_has_signed_out_in_another_one_is_told_to_sign_in(
    tmp_path: Path,
) -> None:
    async with signed_in(tmp_path) as (_, browser):
        assert (await browser.posts("/sign-out", {})).status_code == 200
        assert (await browser.posts("/news", {})).status_code == 401
        assert (await browser.posts("/news", {}, Origin="http://127.0.0.1:3000")).status_code == 403


async def until_it_hears(other: Bridge, one: Bridge) -> None:
    """Wait until what one process tells of sign-outs arrives at another."""
    heard, take = anyio.Event(), other.sign_outs.take

    def hear(mark: str) -> None:
        heard.set()
        take(mark)

    other.sign_outs.take = hear
    while not heard.is_set():
        one.sign_outs.pass_on("0" * 32)
        await anyio.sleep(0.01)


async def test_a_sign_out_ends_the_session_at_the_other_replicas_too(tmp_path: Path) -> None:
    plan = plan_with(tmp_path, ADA, shared_store=SharedStore(new_database_url()))
    with anyio.fail_after(30):
        async with console_of(plan) as one, console_of(plan) as two:
            browser, thief = ConsoleBrowser(one), ConsoleBrowser(two)
            assert await browser.signs_in(ADA.token) == 200
            await browser.opens()
            thief.client.cookies.update(browser.client.cookies)
            thief.csrf = browser.csrf
            await until_it_hears(two, one)
            async with told_to(thief) as told:
                assert (await browser.posts("/sign-out", {})).status_code == 200
                assert [news async for news in told] == []
            assert (await thief.opens()).status_code == 401


@pytest.mark.parametrize(
    ("after", "counts"),
    [
        (IDLE_SECONDS - 1, True),
        (IDLE_SECONDS, False),
    ],
)
def test_a_session_ends_when_its_browser_asks_for_nothing(after: float, counts: bool) -> None:
    seal, session = SessionSeal([KEY.encode()]), new_session(1000.0, "secret")
    assert (seal.opened(seal.sealed(session), 1000.0 + after) == session) is counts


def test_a_session_ends_after_eight_hours_however_busy_it_is() -> None:
    session = new_session(0.0, "secret").seen(SESSION_SECONDS - 1)
    assert not session.is_over(SESSION_SECONDS - 0.5)
    assert session.is_over(SESSION_SECONDS)


def test_a_cookie_of_another_key_or_of_nobody_opens_nothing() -> None:
    foreign = SessionSeal([b"x" * 32]).sealed(new_session(0.0, "secret"))
    assert [
        SessionSeal([KEY.encode()]).opened(text, 0.0) for text in (foreign, "", "no base64!", "AAAA")
    ] == [None] * 4


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
        bridge.app.console = None
        assert (await ConsoleBrowser(bridge).opens()).status_code == 404


CROSS_SITE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}


async def test_a_link_of_another_site_leads_on_and_ends_no_session(tmp_path: Path) -> None:
    async with signed_in(tmp_path) as (bridge, browser):
        without = ConsoleBrowser(bridge)  # a browser sends no Strict cookie with such a request
        for path in ("/tasks?state=working&skill=a%20b%22", ".json", ""):
            page = await without.opens(path, **CROSS_SITE)
            assert (page.status_code, page.headers["refresh"]) == (200, f"0;url=/console{path}")
            assert "set-cookie" not in page.headers
            assert "signed in as" not in page.text
        page = await without.opens("", **{**CROSS_SITE, "Sec-Fetch-Mode": "no-cors"})
        assert (page.status_code, "set-cookie" in page.headers) == (401, False)
        assert (await browser.posts("/lines/a/b", {})).status_code == 404  # its session counts


async def test_a_link_of_another_site_leaves_the_forms_of_older_tabs_of_an_open_console(
    tmp_path: Path,
) -> None:
    async with console_of(plan_with(tmp_path)) as bridge:
        browser = ConsoleBrowser(bridge)
        await browser.opens()
        led = await ConsoleBrowser(bridge).opens("/tasks", **CROSS_SITE)
        assert (led.headers["refresh"], "set-cookie" in led.headers) == ("0;url=/console/tasks", False)
        assert (await browser.posts("/lines/a/b", {})).status_code == 404


async def test_a_link_of_another_site_leads_to_our_own_place_alone(tmp_path: Path) -> None:
    async with console_of(plan_with(tmp_path)) as bridge:
        for path in ("//evil.example/x", "/\\evil.example", "?//evil.example", "/%2F%2Fevil.example"):
            place = (await ConsoleBrowser(bridge).opens(path, **CROSS_SITE)).headers["refresh"]
            assert place.startswith(("0;url=/console/", "0;url=/console?"))


def session_seen_before(tmp_path: Path, seconds: float) -> str:
    """The cookie of Ada's browser, which did something so long ago."""
    session = replace(new_session(time.time() - seconds, ADA.token), has_signed_in=True, csrf="shown")
    return SessionSeal(keys_of(plan_with(tmp_path).place)).sealed(session)


@pytest.mark.parametrize(
    ("path", "headers", "status", "counts"),
    [
        ("/lines/a/b", {}, 404, False),
        ("/lines/devtools/echo", {}, 200, True),
        ("/try/devtools/echo", {}, 422, True),
        ("/lines/devtools/echo", {"X-CSRF-Token": "guessed"}, 403, False),
        ("/lines/devtools/echo", {"Origin": "http://127.0.0.1:3000"}, 403, False),
    ],
    ids=[
        "nothing there",
        "a form that is filled",
        "a form that does not fit",
        "no page of ours",
        "a foreign page",
    ],
)
async def test_a_form_keeps_its_session_alive_as_a_page_does(
    path: str, headers: dict[str, str], status: int, counts: bool, tmp_path: Path
) -> None:
    async with served(tmp_path, ADA) as here:
        browser = ConsoleBrowser(here.bridge, csrf="shown")
        browser.client.cookies.set("mcp-a2a-console", session_seen_before(tmp_path, IDLE_SECONDS - 60))
        answer = await browser.posts(path, {"arguments": {"text": 7}}, **headers)
        assert (answer.status_code, "set-cookie" in answer.headers) == (status, counts)
        if counts:
            kept = SimpleCookie(answer.headers["set-cookie"])["mcp-a2a-console"].value
            seal = SessionSeal(keys_of(here.plan.place))
            assert seal.opened(kept, time.time() + IDLE_SECONDS - 30) is not None


async def test_a_tab_that_asks_for_news_keeps_no_session_alive(tmp_path: Path) -> None:
    async with served(tmp_path, ADA) as here, client_of(here.bridge.app) as client:
        headers = {"Origin": HERE, "X-CSRF-Token": "shown"}
        client.cookies.set("mcp-a2a-console", session_seen_before(tmp_path, 600))
        async with client.stream("POST", f"{HERE}/console/news", json={}, headers=headers) as stream:
            assert (stream.status_code, "set-cookie" in stream.headers) == (200, False)


@pytest.mark.parametrize(("size", "status"), [(gate.BODY_BYTES + 10, 413), (10, 403)])
async def test_a_form_is_bounded(size: int, status: int, tmp_path: Path) -> None:
    async with console_of(plan_with(tmp_path, ADA)) as bridge:
        browser = ConsoleBrowser(bridge)
        await browser.opens()
        assert (await browser.posts("/sign-in", {"token": "x" * size})).status_code == status


async def test_a_token_that_fits_no_cookie_is_refused(tmp_path: Path) -> None:
    async with console_of(plan_with(tmp_path, ADA)) as bridge:
        browser = ConsoleBrowser(bridge)
        await browser.opens()
        answer = await browser.posts("/sign-in", {"token": "x" * sessions.COOKIE_BYTES})
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
