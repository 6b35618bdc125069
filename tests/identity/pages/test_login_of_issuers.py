"""Principals of an issuer show in a browser who they are, and what else an issuer or a browser may bring."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import jwt
import pytest

from bridge.a2a.client.login_lead import login_lead
from bridge.http.request_checks import FaceAddress
from bridge.identity.callers.issuer_login import IssuerLogin
from bridge.identity.callers.issuers import LoginClient
from bridge.identity.callers.key_sets import KeySource
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.identity.logins.login_files import LoginFiles
from bridge.identity.pages.login_links import LoginLink, start_url
from bridge.identity.pages.login_pages import LoginPages, LoginPlaces
from tests.identity.pages.test_login_pages import HERE, Browser, Desk
from tests.support.issuer import LIMITS, issuer_at, jwk, signed
from tests.support.login_server import LoginServer
from tests.support.people_issuer import PeopleIssuer

pytestmark = pytest.mark.outside

ALICE: Final = "corp:alice"


@dataclass
class IssuerDesk(Desk):
    """A bridge whose callers are known to an issuer, and whose tool server `crm` wants a login of each."""

    people: PeopleIssuer = field(default_factory=PeopleIssuer)
    client: LoginClient = field(default_factory=lambda: LoginClient("bridge"))
    keys: KeySource | None = None

    @property
    def replica(self) -> LoginPages:
        places = LoginPlaces(
            lambda place: self.login_config if place == "tool_servers.crm" else None,
            list,
            self.login_of,
            login_lead,
            30,
        )
        return LoginPages(FaceAddress(self.public_url), self.seals, places)

    def login_of(self, principal: str) -> IssuerLogin | None:
        if not principal.startswith("corp:"):
            return None
        assert self.keys is not None
        issuer = issuer_at(self.people.url, {}, login=self.client)
        return IssuerLogin(issuer, self.keys, LIMITS.leeway_seconds)


@asynccontextmanager
async def desk(tmp_path: Path) -> AsyncIterator[IssuerDesk]:
    server, people = LoginServer(), PeopleIssuer()
    with anyio.fail_after(30):
        async with (
            server.serve() as url,
            people.serve() as issuer,
            httpx2.AsyncClient() as http,
        ):
            login_config = LoginConfig(url, LoginFiles(tmp_path), "crm", scopes=("read",))
            keys = KeySource("corp", issuer_at(issuer, {}).place, http, LIMITS)
            yield IssuerDesk(server, login_config, people=people, keys=keys)


async def shows(browser: Browser, link: str) -> int:
    """Opens a link, and goes to the issuer of its principal and back."""
    await browser.opens(link)
    status = await browser.sends(link, who="yes")
    if status != 200:
        return status
    status = await browser.opens(await browser.goes_to_the_issuer())
    return await browser.opens(link) if status == 303 else status


async def test_a_principal_of_an_issuer_shows_there_who_it_is_and_has_a_login_of_its_own(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as here:
        link, browser = here.link_of(ALICE), Browser(here.replica)
        await browser.opens(link)
        assert f"Log in at corp</button> ({here.people.url})" in browser.page.text
        assert 'name="token"' not in browser.page.text
        assert await browser.sends(link, who="yes") == 200
        back = await browser.goes_to_the_issuer()
        assert back.startswith(f"{HERE}/login/who?")
        browser.app = here.replica  # which has seen nothing of this
        assert await browser.opens(back) == 303
        assert browser.page.headers["location"] == link
        await browser.opens(link)
        assert ALICE in browser.page.text
        assert here.server.authorizations == []
        assert await browser.sends(link, approve="yes") == 200
        assert await browser.opens(await browser.goes_to_the_issuer()) == 200
        assert await here.logins() == [ALICE]


async def test_a_login_says_who_vouched_for_its_principal_and_a_link_of_another_issuer_opens_nothing(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as here:
        browser = Browser(here.replica)

        def link_of(voucher: str) -> str:
            link = LoginLink("tool_servers.crm", ALICE, "desk", time.time() + 60, voucher)
            return start_url(HERE, here.seals.sealed(link))

        assert await browser.opens(link_of("sub of https://before.example")) == 404
        voucher = f"sub of {here.people.url}"
        link = link_of(voucher)
        assert await shows(browser, link) == 200
        assert await browser.sends(link, approve="yes") == 200
        assert await browser.opens(await browser.goes_to_the_issuer()) == 200
        ((_, login),) = (await here.login_config.keeper.all()).logins
        assert login.vouched_by == voucher


async def test_the_issuer_is_asked_for_who_it_is_and_for_nothing_else(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        here.client = LoginClient("bridge", "s3cret", "post")
        assert await shows(Browser(here.replica), here.link_of(ALICE)) == 200
        (query,), (form,) = here.people.asked, here.people.forms
        drawn = {name: query.pop(name) for name in ("state", "nonce", "code_challenge")}
        assert len(set(drawn.values())) == 3
        assert query == {
            "response_type": "code",
            "client_id": "bridge",
            "redirect_uri": f"{HERE}/login/who",
            "scope": "openid",
            "code_challenge_method": "S256",
        }
        assert len(form.pop("code_verifier")) == 43
        assert form == {
            "grant_type": "authorization_code",
            "code": "code-1",
            "redirect_uri": f"{HERE}/login/who",
            "client_id": "bridge",
            "client_secret": "s3cret",
        }


async def test_bob_of_the_same_issuer_opens_alices_link_in_vain_before_and_after_she_has_approved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "bridge")
    async with desk(tmp_path) as here:
        link, alice, bob = here.link_of(ALICE), Browser(here.replica), Browser(here.replica)
        here.people.person = "bob"
        assert await shows(bob, link) == 403
        here.people.person = "alice"
        await shows(alice, link)
        await alice.sends(link, approve="yes")
        here.people.person = "bob"
        assert await shows(bob, link) == 403
        assert await bob.opens(link) == 200
        assert await bob.sends(link, approve="yes") == 403
        assert await bob.opens(await alice.goes_to_the_issuer()) == 403
        assert await here.logins() == []
    said = "tool_servers.crm: {} opened the login of corp:alice, and nothing was stored"
    assert [record.getMessage() for record in caplog.records] == [
        said.format("corp:bob"),
        said.format("corp:bob"),
        said.format("somebody who has not shown who it is"),
        "an answer to a login was refused, and nothing was stored: this browser began no login, from 127.0.0.1",
    ]


async def test_who_is_in_a_browser_is_shown_in_that_browser_alone_and_once(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        app, link = here.replica, here.link_of(ALICE)
        alice, bob = Browser(app), Browser(app)
        for browser in (alice, bob):
            await browser.opens(link)
            await browser.sends(link, who="yes")
        back = await alice.goes_to_the_issuer()
        assert await bob.opens(back) == 403  # the state is of another browser
        assert await Browser(app).opens(back) == 403
        kept = dict(alice.client.cookies)
        assert await alice.opens(back) == 303
        assert await alice.opens(back) == 403  # its cookie is gone
        alice.client.cookies.update(kept)
        assert await alice.opens(back) == 410
        assert await bob.opens(link) == 200
        assert await bob.sends(link, approve="yes") == 403


def unsigned(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, None, algorithm="none")


def by_public_key(claims: dict[str, Any]) -> str:
    secret = str(jwk("one")).encode()
    return jwt.encode(claims, secret, algorithm="HS256", headers={"kid": "one"})


WRONG: Final[dict[str, tuple[dict[str, Any], Callable[[dict[str, Any]], str] | None]]] = {
    "that answers another request": ({"nonce": "other"}, None),
    "that answers another request ": ({"nonce": None}, None),
    "that is for another audience": ({"aud": "another client"}, None),
    "that is for another client": ({"aud": ["bridge", "another client"]}, None),
    "that is for another client ": ({"azp": "another client"}, None),
    "that is of another issuer": ({"iss": "https://other.example"}, None),
    "that has expired": ({"exp": 1}, None),
    "that lacks a claim that it needs": ({"exp": None}, None),
    "that does not name its principal": ({"sub": ""}, None),
    "that is not signed with a key of its issuer": (
        {},
        lambda claims: signed(claims, "two", kid="one", typ="JWT"),
    ),
    "that is not signed with an accepted algorithm": ({}, unsigned),
    "that is not signed with an accepted algorithm ": ({}, by_public_key),
    "that is no ID token": ({}, signed),
}


@pytest.mark.parametrize("words", WRONG)
async def test_a_wrong_id_token_shows_nothing(
    words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "bridge")
    async with desk(tmp_path) as here:
        here.people.claims, sign = WRONG[words]
        here.people.sign = sign or here.people.sign
        link, browser = here.link_of(ALICE), Browser(here.replica)
        assert await shows(browser, link) == 502
        assert "Try the link again" in browser.page.text
        await browser.opens(link)
        assert await browser.sends(link, approve="yes") == 403
        line = f"issuers.corp: {ALICE} has not shown who it is: {here.people.url} gave an ID token {words.strip()}"
        assert caplog.records[0].getMessage() == line


@pytest.mark.parametrize(
    ("back", "status", "words"),
    [
        ({"state": "other"}, 403, "the answer belongs to another sign-in"),
        ({"iss": ""}, 502, "the answer names no issuer in `iss`"),
        ({"iss": "https://other.example"}, 502, "the answer names the issuer https://other.example in `iss`"),
        ({"error": "access_denied", "code": ""}, 502, "gave no code: access_denied"),
        ({"code": ""}, 502, "answered without a code"),
    ],
)
async def test_a_wrong_answer_of_an_issuer_is_not_sent_on(
    back: dict[str, str], status: int, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "bridge")
    async with desk(tmp_path) as here:
        here.people.back = back
        assert await shows(Browser(here.replica), here.link_of(ALICE)) == status
        assert here.people.forms == []
        (record,) = caplog.records
        assert words in record.getMessage()


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"authorization_endpoint": None}, "names no authorization_endpoint"),
        ({"authorization_endpoint": "http://login.example/"}, "no https:// URL"),
        ({"authorization_endpoint": "https://login.example/'; url=x"}, "that is not a URL"),
        ({"issuer": "https://other.example"}, "is the metadata of another issuer"),
    ],
)
async def test_an_issuer_without_a_page_for_browsers_gets_none(
    metadata: dict[str, Any], words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "bridge")
    async with desk(tmp_path) as here:
        here.people.tokens.metadata |= metadata
        link, browser = here.link_of(ALICE), Browser(here.replica)
        assert await shows(browser, link) == 502
        assert "corp cannot identify you now" in browser.page.text
        (record,) = caplog.records
        assert re.match(r"issuers\.corp: corp:alice cannot show who it is: ", record.getMessage())
        assert words in record.getMessage()


async def test_a_principal_whose_issuer_left_the_file_while_it_was_there_opens_nothing(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as here:
        link, browser = here.link_of(ALICE), Browser(here.replica)
        await browser.opens(link)
        await browser.sends(link, who="yes")
        back = await browser.goes_to_the_issuer()
        here.login_config = replace(here.login_config, name="gone")
        gone = LoginPlaces(lambda _: here.login_config, list, lambda _: None, login_lead, 30)
        browser.app = LoginPages(FaceAddress(HERE), here.seals, gone)
        assert await browser.opens(back) == 404
        assert here.people.forms == []
