"""The pages on which a caller logs in at a tool server or agent that wants a login of each caller.

A link is for one principal. The person who opens it first proves to be this principal: by the token with which the
principal calls, or by a login at the issuer of its tokens. Then the page names the server, the scopes and the client,
and the person approves. Only then the page leads to the server's issuer. The data that the issuer's answer needs is in
a sealed cookie of this browser. So nobody can log in for somebody else, neither with a link nor with an answer that was
passed on.

No page can be framed, loads anything, or runs a script. A form goes to this bridge only, with a token that proves that
the bridge has shown the form.

Spec: RFC 9700 section 4.7 (one-time state bound to the browser), MCP 2026-07-28 elicitation (URL mode, phishing).
"""

from __future__ import annotations

import html
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bridge.concurrency import Signal
from bridge.errors import BridgeError, UsageError
from bridge.http.request_checks import (
    API_KEY_HEADER,
    NO_PROXIES,
    FaceAddress,
    RefusedError,
    TrustedProxies,
    is_loopback,
    request_body,
)
from bridge.identity.callers.issuer_login import IssuerLogin
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential, Scheme, verifiers_of
from bridge.identity.logins.kept_logins import DECLINED, HeldLogin, Login, LoginLead
from bridge.identity.logins.login_clients import RegisteredClients
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.identity.logins.login_flow import begin_login, finish_login
from bridge.identity.logins.login_revocation import revoke
from bridge.identity.pages.login_bounds import LoginBounds
from bridge.identity.pages.login_forms import FILE_PERSON, approval_form, issuer_button, shown, who_form
from bridge.identity.pages.login_links import (
    BACK_PATH,
    START_PATH,
    STATE_SECONDS,
    WHO_PATH,
    BrowserPerson,
    LoginLink,
    LoginLinkError,
    LoginSeals,
    PendingLogin,
    PendingProof,
    is_same,
    link_digest,
    new_person,
)
from bridge.notices import LoginEvent, LoginNotice, Notify, ignore_notice

logger = logging.getLogger(__name__)

_FORM_BYTES: Final = 16 * 1024
"""The largest form. A token of the file may have a few KB."""

_COOKIE_BYTES: Final = 4000
"""The longest value of a cookie: browsers drop cookies above 4096 bytes, with their names."""

_PERSON: Final = "mcp-a2a-person"
_PROOF: Final = "mcp-a2a-proof"
_PENDING: Final = "mcp-a2a-login"

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # With `no-referrer`, a browser says `Origin: null` of our own forms.
    "Referrer-Policy": "same-origin",
}


FindLead = Callable[[LoginConfig, float], Awaitable[LoginLead | None]]
"""Asks an agent or a catalog how its login begins. The number bounds each answer, in seconds."""


@dataclass(frozen=True)
class LoginPlaces:
    """The values and functions of the bridge that the pages use. All of them may change while the pages are served."""

    login_configs: Callable[[str], LoginConfig | None]
    """The login that a peer wants of each caller, by its table in the file; None if it wants none."""
    credentials: Callable[[], Sequence[Credential]]
    """The secrets that are accepted."""
    issuer_login: Callable[[str], IssuerLogin | None]
    """The login at the issuer of a principal, by its name; None if no issuer can identify the principal."""
    find_lead: FindLead
    """Asks an agent how its login begins."""
    answer_seconds: float
    """How long a server may take for each answer."""
    moved: Signal = field(default_factory=Signal)
    """Notified when a login was made or declined."""
    notify: Notify = ignore_notice
    """Gets a notice of each event of a login."""
    refused: Callable[[str], None] = lambda _: None
    """Gets the error of each request from an unknown sender."""


@dataclass(frozen=True)
class _LoginVisit:
    """One request of a browser."""

    verb: str
    path: str
    query: Mapping[str, str]
    form: Mapping[str, str]
    cookies: Mapping[str, str]
    base_url: str
    """The address of this bridge for the browser."""
    address: str
    """The network address of the browser."""

    @property
    def is_secure(self) -> bool:
        """Whether the browser accepts secure cookies: over https, but not over http on this machine."""
        return self.base_url.startswith("https://")

    def cookie_name(self, name: str) -> str:
        """The name of a cookie. Browsers accept the prefix `__Host-` only for secure cookies (RFC 6265bis
        section 4.1.3.2)."""
        return f"__Host-{name}" if self.is_secure else name

    def cookie(self, name: str) -> str:
        """The value of a cookie; empty if the browser sends none."""
        return self.cookies.get(self.cookie_name(name), "")


class LoginPages:
    """The ASGI application of the pages below /login."""

    def __init__(
        self,
        place: FaceAddress,
        seals: LoginSeals,
        places: LoginPlaces,
        proxies: TrustedProxies = NO_PROXIES,
    ) -> None:
        """`proxies` give the address of a browser behind a proxy."""
        self._place = place
        self._proxies = proxies
        self._seals = seals
        self._places = places
        self._used: dict[str, float] = {}
        self._bounds = LoginBounds()
        self._clients = RegisteredClients()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of a browser."""
        try:
            visit = await self._visit(scope, receive)
            response = await self._answered(visit)
        except RefusedError as exc:
            response = _page(HTTPStatus(exc.status), _words(str(exc)))
            response.headers.update(exc.headers)
        except LoginLinkError as exc:
            status = HTTPStatus.GONE if exc.is_over else HTTPStatus.NOT_FOUND
            response = _page(
                status, _words(f"This link cannot be used: {exc}. Send a message to get another.")
            )
        await response(scope, receive, send)

    async def _visit(self, scope: Scope, receive: Receive) -> _LoginVisit:
        headers = Headers(scope=scope)
        self._place.require_own(headers)
        base_url = self._place.base_url(scope, headers)
        host = base_url.partition("://")[2].partition("/")[0].rpartition(":")
        if not base_url.startswith("https://") and not is_loopback((host[0] or host[2]).strip("[]")):
            raise RefusedError(403, "Logins need https")
        verb = scope["method"]
        if verb not in ("GET", "POST"):
            raise RefusedError(405, "This path takes GET and POST")
        body = await request_body(receive, headers, _FORM_BYTES) if verb == "POST" else b""
        return _LoginVisit(
            verb,
            scope["path"].removeprefix(scope.get("root_path", "")),
            _once(scope["query_string"]),
            _once(body),
            cookie_parser(headers.get("cookie", "")),
            base_url,
            self._proxies.address_of(scope),
        )

    async def _answered(self, visit: _LoginVisit) -> Response:
        if visit.path == BACK_PATH and visit.verb == "GET":
            return await self._back(visit)
        if visit.path == WHO_PATH and visit.verb == "GET":
            return await self._shown_who(visit)
        before, _, text = visit.path.rpartition("/")
        if before != START_PATH:
            raise RefusedError(404, "There is nothing here")
        now = time.time()
        link = self._seals.link(text, now)
        login_config = self._login_config_for(link)
        person = self._person_in(visit, text, now)
        if visit.verb == "POST":
            if person is None or not is_same(visit.form, "csrf", person.csrf):
                raise RefusedError(403, "This form is too old, or from another browser: open the link again")
            return await self._posted(visit, link, login_config, text, person)
        if person is not None and person.principal == link.principal:
            return _page(
                HTTPStatus.OK, approval_form(link, login_config, person, await _missed_in(login_config))
            )
        answering_person = new_person(text, now)
        login = self._places.issuer_login(link.principal)
        asks = FILE_PERSON if login is None else issuer_button(login)
        return self._with_person(
            visit, _page(HTTPStatus.OK, who_form(link, answering_person, asks)), answering_person
        )

    async def _posted(
        self, visit: _LoginVisit, link: LoginLink, login_config: LoginConfig, text: str, person: BrowserPerson
    ) -> Response:
        login = self._places.issuer_login(link.principal)
        if login is not None and "who" in visit.form:
            self._bounds.require(visit.address, link)
            return await self._sent_to(login, visit, link, text)
        if "token" in visit.form:
            return await self._with_token(visit, link, text)
        self._require_person(visit, link, person.principal or "")
        if "approve" not in visit.form:
            try:
                await self._decline(login_config)
            except (BridgeError, OSError) as exc:
                logger.warning(
                    "%s: %s declined, and this cannot be stored: %s", link.place, link.principal, exc
                )
                raise RefusedError(503, "Your answer cannot be stored now. Try again in a while") from exc
            self._notify(link, "declined")
            page = _page(HTTPStatus.OK, _words("You did not log in. Close this page."))
            return _without_cookies(visit, page)
        return await self._begun(visit, link, login_config)

    async def _with_token(self, visit: _LoginVisit, link: LoginLink, text: str) -> Response:
        """Check a token from the form. Returns the next page."""
        with self._bounds.attempt(visit.address, link) as attempt:
            principal = await self._principal_of(visit.form["token"].strip())
            if principal is None:
                attempt.fail()
                self._places.refused("HTTP_403")
                self._bounds.warn("a wrong token was shown at the page of a login", visit.address)
                raise RefusedError(403, "This token is not known")
        self._require_person(visit, link, principal.name)
        return self._person_back(visit, text, principal.name)

    async def _sent_to(self, login: IssuerLogin, visit: _LoginVisit, link: LoginLink, text: str) -> Response:
        """Send the browser to the issuer of the principal, which identifies the person."""
        name = login.issuer.name
        self._bounds.note_way_to_person(link_digest(text))
        try:
            target, begun = await login.begin(f"{visit.base_url}{WHO_PATH}", self._places.answer_seconds)
        except BridgeError as exc:
            logger.warning("issuers.%s: %s cannot show who it is: %s", name, link.principal, exc)
            words = f"{name} cannot identify you now. The log of the bridge says why"
            raise RefusedError(502, words) from exc
        page = _leading_to(target, name)
        pending = PendingProof(text, begun, time.time() + STATE_SECONDS)
        self._set_cookie(visit, page, _PROOF, self._seals.sealed(pending))
        return page

    async def _shown_who(self, visit: _LoginVisit) -> Response:
        """Take the answer of the principal's issuer from the browser that began the proof."""
        now = time.time()
        try:
            pending = self._seals.proof(visit.cookie(_PROOF), now)
        except LoginLinkError as exc:
            if exc.is_over:
                raise
            raise self._foreign(visit, "this browser did not begin this sign-in") from exc
        link = self._seals.link(pending.link_text, now)
        if not is_same(visit.query, "state", pending.begun.state):
            raise self._foreign(visit, "the answer belongs to another sign-in")
        self._login_config_for(link)
        login = self._places.issuer_login(link.principal)
        if login is None:
            raise LoginLinkError
        self._take(pending.begun.state, pending.expires_at, now)
        try:
            person = await login.finish(pending.begun, visit.query, self._places.answer_seconds)
        except BridgeError as exc:
            name = login.issuer.name
            logger.warning("issuers.%s: %s has not shown who it is: %s", name, link.principal, exc)
            page = _page(HTTPStatus.BAD_GATEWAY, _words(f"{name} did not identify you. Try the link again."))
            return _without_cookies(visit, page, _PROOF)
        self._require_person(visit, link, person.principal)
        response = self._person_back(visit, pending.link_text, person.principal)
        return _without_cookies(visit, response, _PROOF)

    def _person_back(self, visit: _LoginVisit, text: str, principal: str) -> Response:
        """Redirect the browser of a person who has proved to be the principal to the page of the link."""
        response = Response(None, 303, {**_HEADERS, "Location": f"{visit.base_url}{START_PATH}/{text}"})
        return self._with_person(visit, response, new_person(text, time.time(), principal))

    async def _begun(self, visit: _LoginVisit, link: LoginLink, login_config: LoginConfig) -> Response:
        self._bounds.note_login(link)
        try:
            seconds = self._places.answer_seconds
            lead = (
                await self._places.find_lead(login_config, seconds) if login_config.kind == "agents" else None
            )
            begun = await begin_login(
                login_config, f"{visit.base_url}{BACK_PATH}", seconds, lead, self._clients
            )
        except (BridgeError, OSError) as exc:
            self._notify(link, "failed")
            logger.warning("%s: no login of %s was begun: %s", link.place, link.principal, exc)
            raise RefusedError(
                502, f"You cannot log in at {link.server} now. The log of the bridge says why"
            ) from exc
        now = time.time()
        # The page has done its work, and a cookie is short.
        pending = PendingLogin(link, replace(begun, page=""), now, now + STATE_SECONDS, login_config.key.peer)
        page = _leading_to(begun.page, link.server)
        self._set_cookie(visit, page, _PENDING, self._seals.sealed(pending))
        self._notify(link, "begun")
        return page

    async def _back(self, visit: _LoginVisit) -> Response:
        """Take the answer of the server's issuer from the browser that began the login."""
        now = time.time()
        try:
            pending = self._seals.pending(visit.cookie(_PENDING), now)
        except LoginLinkError as exc:
            if exc.is_over:
                raise
            raise self._foreign(visit, "this browser began no login") from exc
        if not is_same(visit.query, "state", pending.begun.state):
            raise self._foreign(visit, "the answer belongs to another login")
        self._take(pending.begun.state, pending.expires_at, now)
        link, login_config = pending.link, self._login_config_for(pending.link)
        if not _is_still_meant(pending, login_config):
            words = f"{link.server} has moved since this login was begun. Send a message to get another link"
            raise RefusedError(410, words)
        try:
            # The lock is held before the code is sent: a proxy may have brought this answer to another replica, too,
            # and an issuer may revoke the tokens of a code that comes twice (RFC 6749 section 4.1.2).
            async with login_config.keeper.held(login_config.key) as held:
                if held.login is not None and held.login.since >= pending.began_at and not held.login.lost:
                    raise RefusedError(410, "This login was answered before")
                login = await finish_login(
                    login_config, pending.begun, visit.query, self._places.answer_seconds
                )
                await self._store(held, login_config, link, replace(login, vouched_by=self._voucher_of(link)))
        except (BridgeError, OSError) as exc:
            self._notify(link, "failed")
            logger.warning("%s: no login of %s: %s", link.place, link.principal, exc)
            self._clients.forget(login_config.key)
            page = _page(
                HTTPStatus.BAD_GATEWAY, _words(f"You are not logged in at {link.server}. Try the link again.")
            )
            return _without_cookies(visit, page, _PENDING)
        self._places.moved.notify()
        self._notify(link, "stored")
        logger.info("%s: %s has logged in", link.place, link.principal)
        page = _page(HTTPStatus.OK, _words(f"You are logged in at {link.server}. Close this page."))
        return _without_cookies(visit, page)

    async def _store(self, held: HeldLogin, login_config: LoginConfig, link: LoginLink, login: Login) -> None:
        """Store a login, unless its principal was removed while the issuer answered. After the write this is checked
        again, for a principal that was removed meanwhile. If a principal is removed later, its login is deleted like
        any other.

        Raises:
            LoginLinkError: the principal was removed.
        """
        try:
            self._login_config_for(link)
            await held.write(login)
            try:
                self._login_config_for(link)
            except LoginLinkError:
                await held.remove()
                raise
        except LoginLinkError:
            self._notify(link, "failed")
            left = await revoke(login_config, login)
            words = f"; not all its tokens are revoked: {left}" if left else ""
            logger.warning(
                "%s: no login of %s: this principal may no longer call%s", link.place, link.principal, words
            )
            raise

    def _notify(self, link: LoginLink, event: LoginEvent) -> None:
        self._places.notify(LoginNotice(link.server, event, link.principal))

    def _require_person(self, visit: _LoginVisit, link: LoginLink, principal: str) -> None:
        """Refuse a person who is not the principal of the link.

        Raises:
            RefusedError: 403, the person is somebody else; 429, too many attempts have failed.
        """
        if principal != link.principal:
            with self._bounds.attempt(visit.address, link) as attempt:
                attempt.fail()
            self._notify(link, "refused")
            logger.warning(
                "%s: %s opened the login of %s, and nothing was stored",
                link.place,
                principal or "somebody who has not shown who it is",
                link.principal,
            )
            raise RefusedError(403, "This login is for somebody else")

    def _foreign(self, visit: _LoginVisit, why: str) -> RefusedError:
        self._places.refused("HTTP_403")
        self._bounds.warn(f"an answer to a login was refused, and nothing was stored: {why}", visit.address)
        return RefusedError(403, "This login was not begun in this browser. Nothing was done")

    def _take(self, state: str, expires_at: float, now: float) -> None:
        """Use up a state. A state is valid only once.

        Raises:
            RefusedError: 410, it was used.
        """
        self._used = {used: until for used, until in self._used.items() if until > now}
        if state in self._used:
            raise RefusedError(410, "This login was answered before")
        self._used[state] = expires_at

    async def _decline(self, login_config: LoginConfig) -> None:
        """Note that the person declined. A login that exists by now stays.

        Raises:
            UsageError: the existing login does not open.
        """
        now = time.time()
        async with login_config.keeper.held(login_config.key) as held:
            if held.login is None and held.is_there:  # another replica may have its key
                raise UsageError(
                    f"the login in {login_config.keeper.where} cannot be opened with the present `keys`"
                )
            if held.login is None or held.login.lost:
                await held.write(Login("", "", "", "", got_at=now, since=now, lost=DECLINED))
            else:
                await held.write(replace(held.login, declined_at=now))
        self._places.moved.notify()

    def _login_config_for(self, link: LoginLink) -> LoginConfig:
        login_config = self._places.login_configs(link.place)
        known = {credential.principal.name for credential in self._places.credentials()}
        can_show = link.principal in known or self._places.issuer_login(link.principal) is not None
        if login_config is None or not can_show or link.vouched_by not in ("", self._voucher_of(link)):
            raise LoginLinkError
        return replace(login_config, principal=link.principal)

    def _voucher_of(self, link: LoginLink) -> str:
        login = self._places.issuer_login(link.principal)
        return "" if login is None else login.issuer.identity

    async def _principal_of(self, token: str) -> Principal | None:
        """The principal of the file with this secret, whether the secret is a bearer token or an API key."""
        headers = {"authorization": f"Bearer {token}", API_KEY_HEADER.lower(): token}
        secrets = [
            credential
            for credential in self._places.credentials()
            if credential.scheme is not Scheme.CONNECTION
        ]
        for verifier in verifiers_of(secrets):
            if isinstance(verdict := await verifier.verify(headers, ""), Principal):
                return verdict
        return None

    def _person_in(self, visit: _LoginVisit, text: str, now: float) -> BrowserPerson | None:
        """The person in this browser, as far as proved for this link."""
        try:
            person = self._seals.person(visit.cookie(_PERSON), now)
        except LoginLinkError:
            return None
        return person if person.link == link_digest(text) else None

    def _with_person(self, visit: _LoginVisit, response: Response, person: BrowserPerson) -> Response:
        self._set_cookie(visit, response, _PERSON, self._seals.sealed(person))
        return response

    def _set_cookie(self, visit: _LoginVisit, response: Response, name: str, value: str) -> None:
        if len(value) > _COOKIE_BYTES:
            raise RefusedError(502, "The data of the login is too long for a cookie")
        response.set_cookie(
            visit.cookie_name(name),
            value,
            max_age=int(STATE_SECONDS),
            path="/",
            secure=visit.is_secure,
            httponly=True,
            samesite="lax",
        )


def _is_still_meant(pending: PendingLogin, login_config: LoginConfig) -> bool:
    """Whether a login still fits the URL and the issuer in the file: a token is for one server."""
    return pending.peer in ("", login_config.key.peer) and login_config.issuer in (
        "",
        pending.begun.bare.issuer,
    )


async def _missed_in(login_config: LoginConfig) -> Sequence[str]:
    """The scopes that the current login at a server lacks."""
    try:
        login = await login_config.keeper.find(login_config.key)
    except (BridgeError, OSError):  # the fault is reported when the person approves
        return ()
    return () if login is None else login.wanted_scopes


def _once(encoded: bytes) -> Mapping[str, str]:
    """The fields of a form or a query.

    Raises:
        RefusedError: 400, a field occurs twice, or the fields cannot be parsed.
    """
    try:
        pairs = parse_qsl(encoded.decode("ascii"), keep_blank_values=True, max_num_fields=50)
    except ValueError as exc:
        raise RefusedError(400, "This form cannot be read") from exc
    if len(dict(pairs)) < len(pairs):
        raise RefusedError(400, "A field comes twice")
    return dict(pairs)


def _without_cookies(visit: _LoginVisit, response: Response, *names: str) -> Response:
    for name in names or (_PERSON, _PROOF, _PENDING):
        response.delete_cookie(
            visit.cookie_name(name), path="/", secure=visit.is_secure, httponly=True, samesite="lax"
        )
    return response


def _leading_to(url: str, name: str) -> Response:
    """A page that leads to the login of an issuer. A redirect after a form would need its origin in `form-action`."""
    page = _page(
        HTTPStatus.OK, f'<p><a href="{html.escape(url)}">Go on to the login of {shown(name)}</a></p>'
    )
    page.headers["Refresh"] = f"0;url={url}"
    return page


def _words(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def _page(status: HTTPStatus, body: str) -> Response:
    text = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>mcp-a2a: log in</title>{body}</html>'
    return Response(text, status.value, dict(_HEADERS), "text/html")
