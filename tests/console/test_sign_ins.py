"""The session of a browser: its lifetime, its end by a sign-out, and links from other sites."""

from __future__ import annotations

import time
from dataclasses import replace
from http.cookies import SimpleCookie
from pathlib import Path

import anyio
import pytest

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import SharedStore
from bridge.assembly.remote_agents import keys_of
from bridge.console.app import mount_console
from bridge.console.sign_ins import IDLE_SECONDS, SESSION_SECONDS, SessionSeal, new_session
from tests.console.test_console_access import ADA, KEY, plan_with, signed_in
from tests.console.test_task_pages import served
from tests.support.console import HERE, ConsoleBrowser, console_of, news, told_to
from tests.support.in_process import client_of
from tests.support.postgres import new_database_url


async def test_a_copy_of_a_cookie_is_useless_after_the_sign_out(tmp_path: Path) -> None:
    async with signed_in(tmp_path) as (bridge, browser):
        thief = ConsoleBrowser(bridge)
        thief.client.cookies = browser.client.cookies
        assert (await thief.opens()).status_code == 200
        assert (await browser.posts("/sign-out", {})).status_code == 200
        assert (await thief.opens()).status_code == 401


async def test_a_sign_out_deletes_the_cookie_so_that_any_process_refuses_the_browser(
    tmp_path: Path,
) -> None:
    async with signed_in(tmp_path) as (bridge, browser):
        answer = await browser.posts("/sign-out", {})
        cookie = SimpleCookie(answer.headers["set-cookie"])["mcp-a2a-console"]
        assert (cookie.value, cookie["max-age"], cookie["path"]) == ("", "0", "/")
        assert (cookie["samesite"], bool(cookie["httponly"])) == ("Strict", True)
        mount_console(bridge)  # one that has heard nothing
        assert (await browser.opens()).status_code == 401


async def test_after_a_sign_out_in_another_tab_a_tab_is_asked_to_sign_in(
    tmp_path: Path,
) -> None:
    async with signed_in(tmp_path) as (_, browser):
        assert (await browser.posts("/sign-out", {})).status_code == 200
        assert (await browser.posts("/news", {})).status_code == 401
        assert (await browser.posts("/news", {}, Origin="http://127.0.0.1:3000")).status_code == 403


async def until_it_hears(other: Bridge, one: Bridge) -> None:
    """Wait until a word of one replica arrives at another replica."""
    heard = anyio.Event()
    other.words.listen("test", lambda _: heard.set())
    while not heard.is_set():
        one.words.send("test", "")
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
def test_a_session_ends_when_its_browser_is_idle(after: float, counts: bool) -> None:
    seal, session = SessionSeal([KEY.encode()]), new_session(1000.0, "secret")
    assert (seal.opened(seal.sealed(session), 1000.0 + after) == session) is counts


def test_a_session_ends_after_eight_hours_however_busy_it_is() -> None:
    session = new_session(0.0, "secret").seen(SESSION_SECONDS - 1)
    assert not session.is_over(SESSION_SECONDS - 0.5)
    assert session.is_over(SESSION_SECONDS)


def test_a_forged_cookie_or_a_cookie_of_another_key_is_ignored() -> None:
    foreign = SessionSeal([b"x" * 32]).sealed(new_session(0.0, "secret"))
    assert [
        SessionSeal([KEY.encode()]).opened(text, 0.0) for text in (foreign, "", "no base64!", "AAAA")
    ] == [None] * 4


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


async def test_a_link_of_another_site_leads_only_to_our_own_pages(tmp_path: Path) -> None:
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


async def test_requests_for_news_do_not_extend_the_session_of_an_idle_tab(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, ADA) as here, client_of(here.bridge.app) as client:
        headers = {"Origin": HERE, "X-CSRF-Token": "shown"}
        client.cookies.set("mcp-a2a-console", session_seen_before(tmp_path, IDLE_SECONDS - 2))
        async with client.stream("POST", f"{HERE}/console/news", json={}, headers=headers) as stream:
            assert stream.status_code == 200
            with anyio.fail_after(10):
                assert [one async for one in news(stream)] != []
