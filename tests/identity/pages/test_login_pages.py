"""The pages of a caller's login, and what somebody else can do with a link, an answer or a cookie of hers."""

from __future__ import annotations

import html
import logging
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Final

import anyio
import httpx2
import pytest
from starlette.responses import Response

from bridge.a2a.client.login_lead import login_lead
from bridge.http.request_checks import NO_PROXIES, FaceAddress, TrustedProxies
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential, Scheme
from bridge.identity.logins.kept_logins import DECLINED, BegunLogin, Login, LoginKey, client_at
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.identity.logins.login_files import LoginFiles
from bridge.identity.pages.login_links import (
    LoginLink,
    LoginLinkError,
    LoginSeals,
    PendingLogin,
    new_person,
    start_url,
)
from bridge.identity.pages.login_pages import LoginPages, LoginPlaces
from bridge.notices import LoginNotice, Notice
from tests.support.login_server import LoginServer

HERE: Final = "https://bridge.example"
KEYS: Final = [b"k" * 32]
SECRETS: Final = {"alice": "token-of-alice", "bob": "token-of-bob"}
CLIENT: Final = client_at("the agent desk over A2A", "curl/8 <script>")
_CSRF: Final = re.compile(r'name="csrf" value="([^"]+)"')
_PAGE: Final = re.compile(r'<a href="([^"]+)"')


@dataclass
class Browser:
    """A browser with its cookies."""

    app: LoginPages
    base_url: str = HERE
    page: httpx2.Response = field(default_factory=lambda: httpx2.Response(200))
    address: str = "127.0.0.1"
    headers: dict[str, str] = field(default_factory=dict)
    client: httpx2.AsyncClient = field(init=False)

    def __post_init__(self) -> None:
        # Each replica is an application of its own, and the browser sees one address.
        self.client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(lambda *asked: self.app(*asked), client=(self.address, 1)),
            base_url=self.base_url,
            headers=self.headers,
        )

    async def opens(self, url: str) -> int:
        self.page = await self.client.get(url)
        return self.page.status_code

    async def sends(self, url: str, **form: str) -> int:
        found = _CSRF.search(self.page.text)
        told = {"csrf": found[1]} if found else {}
        self.page = await self.client.post(url, data=told | form, headers={"Origin": self.base_url})
        return self.page.status_code

    async def shows_who(self, url: str, name: str) -> int:
        """Opens a link, and shows that it is this principal."""
        await self.opens(url)
        status = await self.sends(url, token=SECRETS[name])
        return await self.opens(url) if status == 303 else status

    async def goes_to_the_issuer(self) -> str:
        """Follows the page that was approved; the address that the issuer sends it back to."""
        found = _PAGE.search(self.page.text)
        assert found is not None
        async with httpx2.AsyncClient() as outside:
            answer = await outside.get(found[1].replace("&amp;", "&"))
        return answer.headers["location"]


@dataclass
class Desk:
    """A bridge whose tool server `crm` wants a login of each caller."""

    server: LoginServer
    login_config: LoginConfig
    seals: LoginSeals = field(default_factory=lambda: LoginSeals(KEYS))
    credentials: list[Credential] = field(
        default_factory=lambda: [
            Credential(Principal("alice"), SECRETS["alice"]),
            Credential(Principal("bob"), SECRETS["bob"], Scheme.API_KEY),
        ]
    )
    public_url: str | None = HERE
    proxies: TrustedProxies = NO_PROXIES
    told: list[Notice] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def replica(self) -> LoginPages:
        """The pages of one more replica."""
        places = LoginPlaces(
            lambda place: self.login_config if place == "tool_servers.crm" else None,
            lambda: self.credentials,
            lambda _: None,
            login_lead,
            30,
            notify=self.told.append,
            refused=self.refused.append,
        )
        return LoginPages(FaceAddress(self.public_url), self.seals, places, self.proxies)

    def link_of(self, principal: str = "alice", seconds: float = 600) -> str:
        link = LoginLink("tool_servers.crm", principal, CLIENT, time.time() + seconds)
        return start_url(self.public_url or "http://127.0.0.1", self.seals.sealed(link))

    async def logins(self) -> list[str]:
        return [key.principal for key, _ in (await self.login_config.keeper.all()).logins]


@asynccontextmanager
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    server = LoginServer()
    async with server.serve() as url:
        yield Desk(server, LoginConfig(url, LoginFiles(tmp_path), "crm", scopes=("read", "write")))


async def test_a_principal_shows_who_it_is_approves_and_has_a_login_of_its_own(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        link, browser = here.link_of(), Browser(here.replica)
        assert await browser.shows_who(link, "alice") == 200
        for shown in ("crm", "read, write", html.escape(CLIENT), "alice"):
            assert shown in browser.page.text
        assert here.server.authorizations == []
        assert await browser.sends(link, approve="yes") == 200
        back = await browser.goes_to_the_issuer()
        assert back.startswith(f"{HERE}/login/back?")
        browser.app = here.replica  # which has seen nothing of this
        assert await browser.opens(back) == 200
        kept = await here.login_config.keeper.find(LoginKey(here.server.url, "alice"))
        assert kept is not None
        assert kept.access_token == "access-2"
        assert await here.logins() == ["alice"]


async def test_somebody_else_who_opens_the_link_is_refused_before_and_after_its_principal_has_approved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "bridge")
    async with desk(tmp_path) as here:
        link, alice, bob = here.link_of(), Browser(here.replica), Browser(here.replica)
        assert await bob.shows_who(link, "bob") == 403
        await alice.shows_who(link, "alice")
        await alice.sends(link, approve="yes")
        assert await bob.shows_who(link, "bob") == 403
        assert await bob.opens(await alice.goes_to_the_issuer()) == 403
        assert await here.logins() == []
        assert here.server.asked == []
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "tool_servers.crm: bob opened the login of alice, and nothing was stored",
        "tool_servers.crm: bob opened the login of alice, and nothing was stored",
        "an answer to a login was refused, and nothing was stored: this browser began no login, from 127.0.0.1",
    ]


@dataclass(frozen=True)
class _Leaves(LoginFiles):
    """Logins whose principals leave while one is written."""

    leave: Callable[[], object] = field(default=list, compare=False)

    def write(self, key: LoginKey, login: Login) -> None:
        super().write(key, login)
        self.leave()


@pytest.mark.parametrize("when", ["the issuer answers", "the login is written"])
async def test_nothing_is_kept_for_a_principal_that_leaves_meanwhile(tmp_path: Path, when: str) -> None:
    async with desk(tmp_path) as here:
        here.server.metadata |= {"revocation_endpoint": f"{here.server.issuer}/revoke"}
        link, browser = here.link_of(), Browser(here.replica)
        await browser.shows_who(link, "alice")
        await browser.sends(link, approve="yes")
        back = await browser.goes_to_the_issuer()
        if when == "the issuer answers":

            def answer() -> Response:
                here.credentials.pop(0)
                return here.server.granted(here.server.asked[-1])

            here.server.token = answer
        else:
            here.login_config = replace(
                here.login_config, keeper=_Leaves(tmp_path, leave=lambda: here.credentials.pop(0))
            )
        assert await browser.opens(back) == 404
        assert await here.logins() == []
        assert [form["token_type_hint"] for form in here.server.given_back] == [
            "refresh_token",
            "access_token",
        ]
        assert [one.event for one in here.told if isinstance(one, LoginNotice)][-1] == "failed"


async def test_an_answer_counts_only_in_the_browser_that_began_it_and_only_once(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        app = here.replica
        alice, bob = Browser(app), Browser(app)
        for browser, name in ((alice, "alice"), (bob, "bob")):
            await browser.shows_who(here.link_of(name), name)
            await browser.sends(here.link_of(name), approve="yes")
            assert browser.page.status_code == 403  # the form is of another link
            link = here.link_of(name)
            await browser.shows_who(link, name)
            await browser.sends(link, approve="yes")
        back = await alice.goes_to_the_issuer()
        assert await bob.opens(back) == 403
        kept = dict(alice.client.cookies)
        assert await alice.opens(back) == 200
        assert await alice.opens(back) == 403  # its cookies are gone
        alice.client.cookies.update(kept)
        assert await alice.opens(back) == 410
        alice.app = here.replica
        alice.client.cookies.update(kept)
        assert await alice.opens(back) == 410
        assert await here.logins() == ["alice"]
        assert len(here.server.asked) == 1, "an issuer may revoke the tokens of a code that comes twice"


@pytest.mark.parametrize(
    "changed",
    [{"url": "https://other.example/mcp"}, {"issuer": "https://login.example"}],
    ids=["url", "issuer"],
)
async def test_a_login_that_was_begun_before_the_server_moved_is_not_kept_for_the_new_one(
    changed: dict[str, str], tmp_path: Path
) -> None:
    async with desk(tmp_path) as here:
        here.login_config = replace(here.login_config, allow_private=True)
        link, browser = here.link_of(), Browser(here.replica)
        await browser.shows_who(link, "alice")
        await browser.sends(link, approve="yes")
        back = await browser.goes_to_the_issuer()
        here.login_config = replace(here.login_config, **changed)
        assert await browser.opens(back) == 410
        assert "crm has moved since this login was begun" in browser.page.text
        assert await here.logins() == []
        assert here.server.asked == [], "the code is sent nowhere"


async def test_an_answer_that_comes_to_two_replicas_at_once_sends_its_code_once(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        link, alice = here.link_of(), Browser(here.replica)
        await alice.shows_who(link, "alice")
        await alice.sends(link, approve="yes")
        back = await alice.goes_to_the_issuer()
        answers: list[int] = []

        async def bring(browser: Browser) -> None:
            browser.client.cookies.update(dict(alice.client.cookies))
            answers.append(await browser.opens(back))

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(bring, Browser(here.replica))
        assert sorted(answers) == [200, 410]
        assert len(here.server.asked) == 1


async def test_a_link_that_has_expired_is_foreign_or_is_of_somebody_who_left_opens_nothing(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as here:
        browser = Browser(here.replica)
        foreign = LoginSeals([b"x" * 32]).sealed(
            LoginLink("tool_servers.crm", "alice", "desk", time.time() + 60)
        )
        unknown = here.seals.sealed(LoginLink("other", "alice", "desk", time.time() + 60))
        assert await browser.opens(here.link_of(seconds=0)) == 410
        assert await browser.opens(start_url(HERE, foreign)) == 404
        assert await browser.opens(start_url(HERE, unknown)) == 404
        assert await browser.opens(f"{HERE}/login/start/x") == 404
        here.credentials.pop(0)
        assert await browser.opens(here.link_of("alice")) == 404
        assert await browser.opens(here.link_of("bob")) == 200


async def test_a_form_that_was_not_shown_to_this_browser_does_nothing(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        link, browser = here.link_of(), Browser(here.replica)
        await browser.shows_who(link, "alice")
        shown = browser.page
        for form in ({}, {"csrf": "x"}, {"csrf": ""}):
            answer = await browser.client.post(link, data={**form, "approve": "yes"})
            assert answer.status_code == 403
        foreign = {"Origin": "https://evil.example"}
        csrf = _CSRF.findall(shown.text)[0]
        sent = {"csrf": csrf, "approve": "yes"}
        assert (await browser.client.post(link, data=sent, headers=foreign)).status_code == 403
        browser.client.cookies.clear()
        assert (await browser.client.post(link, data=sent)).status_code == 403
        assert here.server.authorizations == []


async def test_nobody_approves_without_having_shown_who_it_is(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        link, browser = here.link_of(), Browser(here.replica)
        await browser.opens(link)
        assert await browser.sends(link, approve="yes") == 403
        await browser.opens(link)
        assert await browser.sends(link, decline="yes") == 403
        await browser.opens(link)
        assert await browser.sends(link, token="guessed") == 403
        assert await here.logins() == []


async def test_a_person_sees_the_scopes_that_the_server_has_missed_before_they_are_asked_for(
    tmp_path: Path,
) -> None:
    missed = "delete", *(f"https://crm.example/auth/{name * 80}" for name in "abc")
    async with desk(tmp_path) as here:
        so_far = Login(here.server.issuer, "", "bridge", "good", got_at=1, since=1, wanted_scopes=missed)
        async with here.login_config.keeper.held(LoginKey(here.server.url, "alice")) as held:
            await held.write(so_far)
        link, browser = here.link_of(), Browser(here.replica)
        await browser.shows_who(link, "alice")
        assert f"<dt>Scopes</dt><dd>read, write, {', '.join(missed)}</dd>" in browser.page.text
        await browser.sends(link, approve="yes")
        await browser.goes_to_the_issuer()
        assert here.server.authorizations[0]["scope"].split() == ["read", "write", *missed]


async def test_whoever_declines_ends_the_login_and_the_issuer_is_never_named(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        link, browser = here.link_of(), Browser(here.replica)
        await browser.shows_who(link, "alice")
        assert here.server.issuer not in browser.page.text.replace(here.server.url, "")
        assert await browser.sends(link, decline="yes") == 200
        kept = await here.login_config.keeper.find(LoginKey(here.server.url, "alice"))
        assert kept is not None
        assert (kept.lost, kept.access_token) == (DECLINED, "")


async def test_whoever_has_declined_logs_in_by_the_next_link(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        link, browser = here.link_of(), Browser(here.replica)
        await browser.shows_who(link, "alice")
        assert await browser.sends(link, decline="yes") == 200
        link = here.link_of()
        await browser.shows_who(link, "alice")
        assert await browser.sends(link, approve="yes") == 200
        assert await browser.opens(await browser.goes_to_the_issuer()) == 200
        kept = await here.login_config.keeper.find(LoginKey(here.server.url, "alice"))
    assert kept is not None
    assert (kept.lost, kept.access_token) == ("", "access-2")


async def test_while_no_login_can_be_kept_the_page_says_so_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with desk(tmp_path / "logins") as here:
        link, browser = here.link_of(), Browser(here.replica)
        await browser.shows_who(link, "alice")
        (tmp_path / "logins").write_text("no folder")
        assert await browser.sends(link, decline="yes") == 503
        assert "Your answer cannot be stored now" in browser.page.text
        await browser.opens(link)
        assert await browser.sends(link, approve="yes") == 502
        assert "The log of the bridge says why" in browser.page.text
        told = [
            "tool_servers.crm: alice declined, and this cannot be stored",
            "tool_servers.crm: no login of alice was begun",
        ]
        assert [any(line.startswith(one) for line in caplog.messages) for one in told] == [True, True]
        (tmp_path / "logins").unlink()
        await browser.opens(link)
        assert await browser.sends(link, decline="yes") == 200


async def test_a_login_that_was_made_meanwhile_is_not_declined_away(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        link, browser = here.link_of(), Browser(here.replica)
        await browser.shows_who(link, "alice")
        good = Login(here.server.issuer, "", "bridge", "good", got_at=1, since=1)
        async with here.login_config.keeper.held(LoginKey(here.server.url, "alice")) as held:
            await held.write(good)
        assert await browser.sends(link, decline="yes") == 200
        kept = await here.login_config.keeper.find(LoginKey(here.server.url, "alice"))
        assert kept is not None
        assert kept.declined_at is not None, "for who waits for another login than this"
        assert replace(kept, declined_at=None) == good


async def test_a_login_that_only_other_replicas_can_open_is_not_declined_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with desk(tmp_path) as here:
        link, browser = here.link_of(), Browser(here.replica)
        await browser.shows_who(link, "alice")
        async with here.login_config.keeper.held(LoginKey(here.server.url, "alice")) as held:
            await held.write(Login(here.server.issuer, "", "bridge", "good", got_at=1, since=1))
        (file,) = (tmp_path / "logins").glob("*.login")
        file.write_bytes(unreadable := b"sealed by somebody else")
        assert await browser.sends(link, decline="yes") == 503
        assert file.read_bytes() == unreadable
    assert "cannot be opened with the present `keys`" in caplog.text


async def test_every_page_is_in_no_frame_runs_nothing_and_is_kept_nowhere(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        link, browser = here.link_of(), Browser(here.replica)
        pages = []
        for act in (
            browser.opens(f"{HERE}/login/start/x"),
            browser.shows_who(link, "alice"),
            browser.sends(link, approve="yes"),
        ):
            await act
            pages.append(browser.page)
        await browser.opens(await browser.goes_to_the_issuer())
        pages.append(browser.page)
        names = ("content-security-policy", "x-frame-options", "cache-control", "referrer-policy")
        assert {tuple(page.headers[name] for name in names) for page in pages} == {
            (
                "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
                "DENY",
                "no-store",
                "same-origin",
            )
        }


@pytest.mark.parametrize(
    ("base_url", "flags"),
    [
        (HERE, r"__Host-mcp-a2a-person=[\w-]+; HttpOnly; Max-Age=600; Path=/; SameSite=lax; Secure"),
        ("http://127.0.0.1", r"mcp-a2a-person=[\w-]+; HttpOnly; Max-Age=600; Path=/; SameSite=lax"),
    ],
)
async def test_cookies_are_of_this_host_alone_and_secure_except_over_http_on_this_machine(
    base_url: str, flags: str, tmp_path: Path
) -> None:
    async with desk(tmp_path) as here:
        here.public_url = base_url
        browser = Browser(here.replica, base_url)
        assert await browser.opens(here.link_of()) == 200
        assert re.fullmatch(flags, browser.page.headers["set-cookie"])


async def test_plain_http_from_another_machine_gets_no_page(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        here.public_url = "http://bridge.example"
        browser = Browser(here.replica, here.public_url)
        assert await browser.opens(here.link_of()) == 403
        assert "Logins need https" in browser.page.text


async def test_a_field_that_stands_twice_or_a_huge_form_is_refused(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        browser = Browser(here.replica)
        assert await browser.opens(f"{HERE}/login/back?state=a&state=b") == 400
        await browser.opens(here.link_of())
        assert await browser.sends(here.link_of(), token="x" * 20_000) == 413
        assert (await browser.client.put(here.link_of())).status_code == 405
        assert await browser.opens(f"{HERE}/login") == 404


def test_what_is_sealed_for_one_use_opens_for_no_other() -> None:
    seals, now = LoginSeals(KEYS), time.time()
    link = LoginLink("tool_servers.crm", "alice", "desk", now + 60)
    begun = BegunLogin(
        "", f"{HERE}/login/back", "s", "v", True, Login("i", "t", "c", "", 0, 0, scopes=("a",))
    )
    pending = PendingLogin(link, begun, now, now + 60)
    person = new_person("link", now, "alice")
    assert seals.link(seals.sealed(link), now) == link
    assert seals.person(seals.sealed(person), now) == person
    assert seals.pending(seals.sealed(pending), now) == pending
    for text in (seals.sealed(person), seals.sealed(pending), seals.sealed(link)[:-2], "", "ä"):
        with pytest.raises(LoginLinkError):
            seals.link(text, now)
    with pytest.raises(LoginLinkError, match="it has expired"):
        seals.person(seals.sealed(replace(person, expires_at=now)), now)


async def test_what_happens_to_a_login_is_told(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        link, browser = here.link_of(), Browser(here.replica)
        assert await browser.shows_who(link, "bob") == 403
        assert await browser.shows_who(link, "alice") == 200
        await browser.sends(link, approve="yes")
        await browser.opens(await browser.goes_to_the_issuer())
        assert here.told == [
            LoginNotice("crm", "refused", "alice"),
            LoginNotice("crm", "begun", "alice"),
            LoginNotice("crm", "stored", "alice"),
        ]
        other = Browser(here.replica)
        link = here.link_of("bob")
        assert await other.shows_who(link, "bob") == 200
        await other.sends(link, decline="yes")
        assert here.told[3:] == [LoginNotice("crm", "declined", "bob")]
        assert here.refused == []
        await other.opens(f"{HERE}/login/back?state=guessed&code=x")
        assert here.refused == ["HTTP_403"]


async def guesses(browser: Browser, link: str, most: int) -> list[int]:
    """The answers to so many wrong tokens."""
    found = []
    for number in range(most):
        await browser.opens(link)
        found.append(await browser.sends(link, token=f"guess-{number}"))
    return found


async def test_after_five_wrong_tokens_in_a_minute_a_right_one_has_to_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "bridge")
    async with desk(tmp_path) as here:
        app, link = here.replica, here.link_of()
        browser, other = Browser(app), Browser(app, address="127.0.0.2")
        assert await guesses(browser, link, 5) == [403] * 5
        assert await browser.shows_who(here.link_of("bob"), "bob") == 429, "its address is known"
        assert 0 < int(browser.page.headers["retry-after"]) <= 60
        assert await other.shows_who(link, "alice") == 429, "so is the link"
        assert await other.shows_who(here.link_of("bob"), "bob") == 200
    assert [record.getMessage() for record in caplog.records] == [
        "a wrong token was shown at the page of a login, from 127.0.0.1"
    ]


async def test_tokens_of_others_count_as_wrong_ones_also_from_who_has_shown_who_it_is(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        link, browser = here.link_of(), Browser(here.replica)
        await browser.shows_who(link, "alice")
        found = []
        for number in range(6):
            await browser.opens(link)
            token = SECRETS["bob"] if number % 2 else "guess"
            found.append(await browser.sends(link, token=token))
        assert found == [403] * 5 + [429]


async def test_behind_a_trusted_proxy_each_browser_has_failures_of_its_own(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        here.proxies = TrustedProxies(networks=(ip_network("127.0.0.0/8"),))
        app = here.replica
        guessing, other, lying = (
            Browser(app, headers={"X-Forwarded-For": said})
            for said in ("192.0.2.1", "192.0.2.2", "192.0.2.3, 192.0.2.1")
        )
        assert await guesses(guessing, here.link_of(), 6) == [403] * 5 + [429]
        assert await lying.shows_who(here.link_of("bob"), "bob") == 429
        assert await other.shows_who(here.link_of("bob"), "bob") == 200


async def test_logins_that_are_begun_over_and_over_use_one_client_and_then_have_to_wait(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as here:
        link, browser = here.link_of(), Browser(here.replica)
        await browser.shows_who(link, "alice")
        shown, found = browser.page, []
        for _ in range(11):
            browser.page = shown
            found.append(await browser.sends(link, approve="yes"))
        assert found == [200] * 10 + [429]
        assert 0 < int(browser.page.headers["retry-after"]) <= 600
        assert len(here.server.registered) == 1
        bob = Browser(browser.app)
        own = here.link_of("bob")
        await bob.shows_who(own, "bob")
        assert await bob.sends(own, approve="yes") == 200


async def test_a_client_that_its_issuer_does_not_take_any_more_is_not_used_again(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        link, browser = here.link_of(), Browser(here.replica)
        for registered in (1, 2):
            await browser.shows_who(link, "alice")
            await browser.sends(link, approve="yes")
            assert len(here.server.registered) == registered
            here.server.back = {"error": "unauthorized_client", "code": ""}
            assert await browser.opens(await browser.goes_to_the_issuer()) == 502


async def test_answers_that_nobody_waits_for_are_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "bridge")
    async with desk(tmp_path) as here:
        browser = Browser(here.replica)
        for number in range(20):
            assert await browser.opens(f"{HERE}/login/back?state={number}&code=x") == 403
    assert len(caplog.records) == 1
