"""People sign in at the console with the code flow of their issuer. Wrong answers and wrong browsers are refused."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import Plan, ProcessPlan
from bridge.console import issuer_sign_in, sign_ins
from bridge.identity.callers.issuers import Issuer, LoginClient
from bridge.identity.callers.principals import OperatorRole, Principal
from bridge.identity.callers.verifiers import Credential, Scheme
from tests.support.console import ConsoleBrowser, console_of
from tests.support.issuer import issuer_at, signed
from tests.support.people_issuer import PeopleIssuer
from tests.support.running import profile_of

pytestmark = pytest.mark.outside

HERE: Final = "https://bridge.example"
AUDIENCE: Final = f"{HERE}/console"
SCOPES: Final = {"read": frozenset({"ops:read"}), "answer": frozenset({"ops:answer"})}


@dataclass
class Desk:
    """A bridge whose people sign in at an issuer."""

    bridge: Bridge
    people: PeopleIssuer
    scope: str = "tools ops:answer"
    """The scopes that the issuer gives."""

    def __post_init__(self) -> None:
        self.people.access = lambda query: self.people.tokens.token(
            query.get("resource", "nothing"), self.people.person, scope=self.scope
        )

    def browser(self) -> ConsoleBrowser:
        return ConsoleBrowser(self.bridge, HERE)


def corp(url: str, **changes: Any) -> Issuer:
    operators = {OperatorRole(role): scopes for role, scopes in SCOPES.items()}
    known: dict[str, Any] = {
        "login": LoginClient("bridge"),
        "scopes": (("tools", ("*",)),),
        "operators": operators,
    }
    return issuer_at(url, changes.pop("audiences", {}), **known | changes)


@asynccontextmanager
async def desk(
    tmp_path: Path, *credentials: Credential, public_url: str | None = HERE, **changes: Any
) -> AsyncIterator[Desk]:
    people = PeopleIssuer()
    with anyio.fail_after(30):
        async with people.serve() as url:
            place = ProcessPlan(console=True, keys=("k" * 32,), state=tmp_path, public_url=public_url)
            issuers = {"corp": corp(url, **changes)}
            plan = Plan(profile_of("default"), place, credentials, issuers=issuers)
            async with console_of(plan) as bridge:
                yield Desk(bridge, people)


async def begins(browser: ConsoleBrowser) -> httpx2.Response:
    """Presses the button of the issuer."""
    await browser.opens()
    return await browser.posts("/sign-in", {"issuer": "corp"})


async def answer_of(begun: httpx2.Response) -> str:
    """The address to which the issuer sends a browser back."""
    assert begun.status_code == 200, begun.text
    async with httpx2.AsyncClient() as http:
        page = await http.get(begun.json()["to"])
    location: str = page.headers["location"]
    return location


async def comes_back(browser: ConsoleBrowser, address: str) -> httpx2.Response:
    """Follows the issuer's redirect: cookies that are `SameSite=Strict` are not sent."""
    own = {cookie.name: cookie for cookie in browser.client.cookies.jar}
    lax = [f"{name}={one.value}" for name, one in own.items() if name.endswith("-begun")]
    request = browser.client.build_request("GET", address, headers={"Sec-Fetch-Site": "cross-site"})
    request.headers["cookie"] = "; ".join(lax)
    return await browser.client.send(request)


async def signs_in(browser: ConsoleBrowser) -> httpx2.Response:
    return await comes_back(browser, await answer_of(await begins(browser)))


async def test_a_person_signs_in_at_its_issuer_with_the_rights_that_its_token_gives(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        browser = here.browser()
        page = await browser.opens()
        assert "Sign in at corp" in page.text
        assert here.people.url in page.text
        back = await signs_in(browser)
        assert (back.status_code, back.headers["refresh"]) == (200, "0;url=/console")
        page = await browser.opens("/people")
        assert (page.status_code, "<b>corp:alice</b>" in page.text) == (200, True)
        here.scope = "tools"
        other = here.browser()
        assert (await signs_in(other)).status_code == 200
        assert (await other.opens()).status_code == 200
        assert (await other.opens("/people")).status_code == 403


async def test_the_issuer_is_asked_for_a_token_of_the_console_with_the_scopes_that_the_file_names(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as here:
        assert (await signs_in(here.browser())).status_code == 200
        (query,), (form,) = here.people.asked, here.people.forms
        told = {name: query[name] for name in ("client_id", "redirect_uri", "scope", "resource")}
        assert told == {
            "client_id": "bridge",
            "redirect_uri": f"{HERE}/console/signed-in",
            "scope": "openid tools ops:read ops:answer",
            "resource": AUDIENCE,
        }
        assert (form["resource"], form["redirect_uri"]) == (AUDIENCE, f"{HERE}/console/signed-in")


@pytest.mark.parametrize(
    ("login", "audiences", "scope", "resource"),
    [
        (
            LoginClient("bridge", scopes=("api://desk/.default",), resource=""),
            None,
            "api://desk/.default",
            None,
        ),
        (LoginClient("bridge", scopes=(), resource="urn:desk"), None, "", "urn:desk"),
        (LoginClient("bridge", scopes=("a",)), frozenset({"api://desk"}), "a", "api://desk"),
        (LoginClient("bridge", scopes=("a",)), frozenset({"desk"}), "a", None),
        (LoginClient("bridge", scopes=("a",)), frozenset({"api://desk", "api://team"}), "a", None),
    ],
    ids=["none", "of the file", "the audience", "an audience that is no URI", "several audiences"],
)
async def test_the_file_can_set_scopes_and_resource_for_an_issuer(
    tmp_path: Path, login: LoginClient, audiences: frozenset[str] | None, scope: str, resource: str | None
) -> None:
    given = {} if audiences is None else {"audiences": {"console": audiences}}
    async with desk(tmp_path, login=login, **given) as here:
        audience = AUDIENCE if audiences is None else min(audiences)
        here.people.access = lambda _: here.people.tokens.token(audience)
        assert (await signs_in(here.browser())).status_code == 200
        (query,), (form,) = here.people.asked, here.people.forms
        assert query["scope"] == f"openid {scope}".strip()
        assert (query.get("resource"), form.get("resource")) == (resource, resource)


async def test_the_state_of_a_sign_in_is_in_a_lax_cookie_and_the_session_in_a_strict_cookie(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as here:
        browser = here.browser()
        begun = await begins(browser)
        name, ours = "__Host-mcp-a2a-console-begun", "__Host-mcp-a2a-console"
        cookie = SimpleCookie(begun.headers["set-cookie"])[name]
        assert (cookie["samesite"], cookie["httponly"], cookie["secure"], cookie["max-age"]) == (
            "Lax",
            True,
            True,
            "600",
        )
        back = await comes_back(browser, await answer_of(begun))
        cookies = {
            key: one
            for line in back.headers.get_list("set-cookie")
            for key, one in SimpleCookie(line).items()
        }
        assert (cookies[ours]["samesite"], cookies[name].value, cookies[name]["max-age"]) == (
            "Strict",
            "",
            "0",
        )


async def test_an_answer_of_an_issuer_is_accepted_once_and_only_in_its_browser(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with desk(tmp_path) as here:
        browser, other = here.browser(), here.browser()
        begun = await begins(browser)
        own = next(one for one in browser.client.cookies.jar if one.name.endswith("-begun"))
        address = await answer_of(begun)
        await begins(other)
        for foreign in (here.browser(), other):
            assert (await comes_back(foreign, address)).status_code == 403
        assert (await comes_back(browser, address.replace("state=", "state=x"))).status_code == 403
        assert here.people.forms == []
        assert (await comes_back(browser, address)).status_code == 200
        browser.client.cookies.jar.set_cookie(own)
        assert (await comes_back(browser, address)).status_code == 410
        assert len(here.people.forms) == 1
        # A page of another site may send a browser here. That locks nobody out.
        assert "429" not in {str((await comes_back(other, f"{address}{n}")).status_code) for n in range(9)}
    assert "code-1" not in caplog.text


@pytest.mark.parametrize(
    ("access", "why"),
    [
        (lambda here: "", "there is none"),
        (lambda here: "opaque", "is not known"),
        (lambda here: here.people.tokens.token(f"{HERE}/agents/desk"), "is for another audience"),
        (lambda here: here.people.tokens.token(AUDIENCE, exp=1), "has expired"),
        (lambda here: here.people.tokens.token(AUDIENCE, "bob"), "it is that of corp:bob"),
        (lambda here: "token-of-ada", "it is that of ada"),
        (lambda here: signed(here.people.tokens.claims(AUDIENCE), key="two"), "is not"),
    ],
    ids=["none", "opaque", "of a face", "expired", "of another person", "a secret of the file", "forged"],
)
async def test_an_id_token_signs_nobody_in_without_an_access_token_that_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, access: Any, why: str
) -> None:
    async with desk(tmp_path, Credential(Principal("ada"), "token-of-ada")) as here:
        here.people.access = lambda _: access(here)
        browser = here.browser()
        back = await signs_in(browser)
        assert (back.status_code, "corp has identified you, but gives you no rights here" in back.text) == (
            403,
            True,
        )
        assert (await browser.opens()).status_code == 401
    lines = [one.message for one in caplog.records if one.name == issuer_sign_in.__name__]
    (line,) = lines
    assert line.startswith(
        "issuers.corp: the console does not let in corp:alice, whose access token is not accepted"
    )
    assert why in line


@pytest.mark.parametrize(
    "wrong",
    [
        {"back": {"error": "access_denied", "code": ""}},
        {"back": {"iss": "https://evil.example"}},
        {"back": {"iss": ""}},
        {"claims": {"nonce": "another"}},
        {"claims": {"aud": "another-client"}},
        {"claims": {"exp": 1}},
        {"sign": lambda claims: ""},
        {"sign": lambda claims: signed(claims, key="two", typ="JWT")},
    ],
    ids=["declined", "mixed up", "no issuer", "replayed", "of another client", "expired", "none", "forged"],
)
async def test_an_invalid_answer_of_an_issuer_signs_nobody_in(
    tmp_path: Path, wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with desk(tmp_path) as here:
        for name, value in wrong.items():
            setattr(here.people, name, value)
        browser = here.browser()
        back = await signs_in(browser)
        assert (back.status_code, "The sign-in at corp has failed" in back.text) == (502, True)
        assert (await browser.opens()).status_code == 401
    assert len([one for one in caplog.records if one.name == issuer_sign_in.__name__]) == 1


async def test_a_session_ends_with_its_token_and_at_once_with_the_issuer(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as here:
        browser, brief = here.browser(), here.browser()
        assert (await signs_in(browser)).status_code == 200
        here.people.access = lambda _: here.people.tokens.token(AUDIENCE, exp=int(time.time()) - 29)
        assert (await signs_in(brief)).status_code == 200
        assert (await brief.opens()).status_code == 200
        await anyio.sleep(1.1)  # the issuer's clock may be 30 s behind
        assert (await brief.opens()).status_code == 401
        assert (await browser.opens()).status_code == 200
        await here.bridge.apply(replace(here.bridge.plan, issuers={}, credentials=(ADA,)))
        assert (await browser.opens()).status_code == 401


ADA: Final = Credential(Principal("ada"), "key-of-ada", Scheme.API_KEY)


async def test_who_has_failed_five_times_waits_a_minute(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        here.people.access = lambda _: "opaque"
        browser = here.browser()
        found = [(await signs_in(browser)).status_code for _ in range(5)]
        assert found == [403] * 5
        begun = await begins(browser)
        assert (begun.status_code, int(begun.headers["retry-after"]) <= 61) == (429, True)
        assert (await browser.posts("/sign-in", {"token": "x"})).status_code == 429


async def test_only_our_own_page_begins_a_sign_in_and_only_at_a_configured_issuer(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        browser = here.browser()
        await browser.opens()
        for headers in ({"Origin": "https://evil.example"}, {"X-CSRF-Token": "x"}):
            assert (await browser.posts("/sign-in", {"issuer": "corp"}, **headers)).status_code == 403
        assert (await browser.posts("/sign-in", {"issuer": "other"})).status_code == 404
        assert here.people.asked == []


async def test_an_issuer_without_a_client_or_an_audience_has_no_button(tmp_path: Path) -> None:
    for changes in ({"login": None}, {"public_url": None}):
        async with desk(tmp_path, **changes) as here:
            browser = ConsoleBrowser(here.bridge) if "public_url" in changes else here.browser()
            page = await browser.opens()
            assert (page.status_code, "Sign in at" in page.text) == (401, False)
            assert (await browser.posts("/sign-in", {"issuer": "corp"})).status_code == 404


async def test_an_issuer_that_is_away_is_told_and_nothing_is_begun(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with desk(tmp_path) as here:
        here.people.tokens.metadata["authorization_endpoint"] = "http://evil.example/authorize"
        begun = await begins(here.browser())
        assert (begun.status_code, "set-cookie" in begun.headers) == (502, False)
        assert "The sign-in at corp has failed" in begun.json()["error"]["message"]
    assert "issuers.corp: the console does not let in somebody" in caplog.text


async def test_few_sign_ins_ask_an_issuer_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer_sign_in, "_AT_ONCE", 0)
    async with desk(tmp_path) as here:
        begun = await begins(here.browser())
        assert (begun.status_code, begun.headers["retry-after"]) == (503, "5")


async def test_a_sign_in_waits_ten_minutes_for_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_sign_in, "BEGUN_SECONDS", -1.0)
    async with desk(tmp_path) as here:
        browser = here.browser()
        assert (await signs_in(browser)).status_code == 403
    assert sign_ins.BEGUN_SECONDS == 600
