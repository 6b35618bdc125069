"""Lets people into the console: checks who sends each request before the request is handled.

If the bridge asks for no credentials, the console is open only to a browser on this machine: the bridge listens on
loopback and has no public address, the Host is a loopback name, and there is no proxy. Any other
browser is refused.

A request that changes something, or opens a stream, must come from our own page: with our Origin, as JSON, and with the
CSRF token that this browser got. A page of another origin has none of these, and the browser sends no cookie with its
requests (SameSite).
"""

from __future__ import annotations

import hmac
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Receive, Scope

from bridge.a2a.model.errors import A2AError
from bridge.a2a.wire.jsontext import parse_json
from bridge.assembly.plan import CONSOLE, ProcessPlan
from bridge.console.paths import JSON_ENDING, asked_path
from bridge.console.sign_ins import (
    COOKIE_BYTES,
    FRESH_SECONDS,
    SESSION_SECONDS,
    ConsoleSession,
    EndedSessions,
    SessionSeal,
    new_session,
)
from bridge.http.request_checks import (
    SHOWN_HEADER,
    RefusedError,
    host_name,
    is_asked_here,
    is_loopback,
    request_body,
    require_json,
    site_of,
)
from bridge.identity.callers.attempts import Attempts, CountedAttempt
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Access, Scheme
from bridge.text.jsonvalues import DEFAULT_MAX_VALUES, JsonObject

logger = logging.getLogger(__name__)

CSRF_HEADER: Final = "x-csrf-token"
"""The header in which our page sends its CSRF token."""

BODY_BYTES: Final = 1024 * 1024
"""The largest body of a form. The arguments of a tool may contain a small file."""

BODY_DEPTH: Final = 64
"""How deep the JSON of a form may be nested."""

SIGN_IN_PATH: Final = "/sign-in"
"""The only path that takes a POST before the sign-in."""

NEWS_PATH: Final = "/news"
"""The path of the news stream of an open page."""

_FIELDS_MOST: Final = 50
"""The most fields of a query."""

_COOKIE: Final = "mcp-a2a-console"
_QUERY_SAFE: Final = "%&=+/?:@!$'()*,;~"
"""The characters that need no escape in a query."""

_CLOSED: Final = (
    "Without a sign-in, this console is open only to a browser on this machine, at a loopback address and without a"
    " proxy. The bridge asks for no credentials. Add [principals.NAME] to its file, and sign in"
)


@dataclass(frozen=True)
class Visit:
    """One request of a browser that passed the checks for foreign pages."""

    verb: str
    path: str
    """The path below `/console`, without a slash at the end, as `path_of` writes it."""
    query: Mapping[str, str]
    wants_json: bool
    base_url: str
    """The URL of the bridge for this browser."""
    address: str
    """The network address of the browser."""
    session: ConsoleSession
    principal: Principal | None
    """None before a sign-in."""
    is_open: bool = False
    """Whether this console needs no sign-in."""
    keeps_cookie: bool = False
    """Whether the response must set no cookie: the browser's cookie is fresh, or the request came from another site."""
    leads_on: str = ""
    """The path that our own page requests again: the browser may have a session cookie that it did not send. Else
    ""."""
    shown: str | None = None
    """The identities that the connection itself shows, for example by a certificate; see `SHOWN_HEADER`."""

    @property
    def root(self) -> str:
        """The path of the console in links."""
        return f"{urlsplit(self.base_url).path}{CONSOLE}"

    @property
    def is_secure(self) -> bool:
        """Whether the browser speaks https."""
        return self.base_url.startswith("https://")

    @property
    def cookie_name(self) -> str:
        """The name of the session cookie."""
        return self.own_name(_COOKIE)

    def own_name(self, cookie: str) -> str:
        """The full name of a cookie. Browsers accept `__Host-` for secure cookies only (RFC 6265bis 4.1.3.2)."""
        return f"__Host-{cookie}" if self.is_secure else cookie

    def set_cookie(self, name: str, value: str, seconds: float, site: Literal["Strict", "Lax"]) -> str:
        """The value of `Set-Cookie` for a cookie that no script can read. `site` is its `SameSite` attribute."""
        attributes = "; Secure" if self.is_secure else ""
        return f"{name}={value}; Path=/; Max-Age={int(seconds)}; HttpOnly; SameSite={site}{attributes}"

    @property
    def seconds_left(self) -> float:
        """Seconds until the sign-in expires; infinite if the console needs no sign-in."""
        if self.is_open:
            return math.inf
        return min(self.session.seconds_left(time.time()), self.who.seconds_left())

    @property
    def reads_all(self) -> bool:
        """Whether the visitor may see the configuration and the callers: an operator, or the owner of this machine."""
        return self.is_open or self.who.operator is not None

    @property
    def who(self) -> Principal:
        """The principal of a visit that has one."""
        assert self.principal is not None, "the gate has let it in"
        return self.principal


class ConsoleAccess:
    """Decides who may see the console."""

    def __init__(self, place: ProcessPlan, access: Access, keys: Callable[[], Sequence[bytes]]) -> None:
        """`keys` gives the keys that seal cookies. It is called once, for the first browser."""
        self._place = place
        self._web = place.web
        self._access = access
        self._keys = keys
        self._attempts = Attempts("Too many sign-ins have failed")
        self._ended = EndedSessions()

    @cached_property
    def seal(self) -> SessionSeal:
        """Seals and opens cookies."""
        return SessionSeal(self._keys())

    async def visit(self, scope: Scope) -> Visit:
        """The visit of a request, with its principal if the browser has signed in.

        Raises:
            RefusedError: 400, 403 or 421, a foreign web page may have sent it; 503, the sign-in cannot be checked now.
        """
        headers, now = Headers(scope=scope), time.time()
        self._web.require_own(headers)
        base_url = self._web.base_url(scope, headers)
        path, is_json = asked_path(scope)
        visit = Visit(
            scope["method"],
            path,
            _query(scope["query_string"]),
            is_json or _prefers_json(headers),
            base_url,
            self._place.proxies.address_of(scope),
            new_session(now),
            None,
            is_open=self._is_open(scope, headers),
            shown=headers.get(SHOWN_HEADER),
        )
        cookie = cookie_parser(headers.get("cookie", "")).get(visit.cookie_name, "")
        session = self.seal.opened(cookie, now) if cookie else None
        has_session = session is not None and session not in self._ended
        if session is not None and has_session:
            # The script of an open page asks for news: that must not extend the session of an idle browser.
            stays = path == NEWS_PATH or now < session.seen_at + FRESH_SECONDS
            visit = replace(visit, session=session if stays else session.seen(now), keeps_cookie=stays)
        if headers.get("sec-fetch-site") == "cross-site":
            asked = f"{visit.root}{path}{JSON_ENDING if is_json else ''}{_asked_query(scope)}"
            is_led = not has_session and headers.get("sec-fetch-mode") == "navigate"
            visit = replace(visit, keeps_cookie=True, leads_on=asked if is_led else "")
        return replace(visit, principal=await self.principal_of(visit))

    async def principal_of(self, visit: Visit) -> Principal | None:
        """The current principal of a visit; None before a sign-in, or if the credential is no longer valid.

        Raises:
            RefusedError: 503, the credential cannot be checked at the moment.
        """
        if not self._access.needs_token:
            return await self._access.principal_of({}) if visit.is_open else None
        if not visit.session.has_signed_in or visit.session.is_over(time.time()):
            return None
        return None if visit.session in self._ended else await self._shown_by(visit, visit.session.headers)

    async def _shown_by(self, visit: Visit, headers: Mapping[str, str]) -> Principal | None:
        try:
            return await self.judged(visit, headers)
        except RefusedError as exc:
            if exc.status != 401:
                raise
            return None

    async def judged(self, visit: Visit, headers: Mapping[str, str]) -> Principal:
        """The principal of the credentials in these headers, verified as for a call of an agent.

        Raises:
            RefusedError: 401, nobody has these credentials; 503, they cannot be checked at the moment.
        """
        shown = {**headers, **({} if visit.shown is None else {SHOWN_HEADER: visit.shown})}
        return await self._access.principal_of(shown, CONSOLE)

    async def body_of(self, visit: Visit, scope: Scope, receive: Receive) -> JsonObject:
        """The body of a request that changes something. Checks first that our own page sent it.

        Raises:
            RefusedError: 403, another page sent it; 401, the sign-in is over; 400, 413 or 415, the body is not valid.
        """
        headers = Headers(scope=scope)
        own = "://".join(urlsplit(visit.base_url)[:2])
        if headers.get("origin") != own:
            raise RefusedError(403, f"The console takes requests only from its own pages, at {own}")
        if visit.principal is None and self.needs_sign_in and visit.path != SIGN_IN_PATH:
            raise RefusedError(401, "Sign in first: the session is over")
        if not hmac.compare_digest(headers.get(CSRF_HEADER, "").encode(), visit.session.csrf.encode()):
            raise RefusedError(403, "This page is too old, or from another browser: load it again")
        require_json(headers, frozenset({"application/json"}))
        body = await request_body(receive, headers, BODY_BYTES)
        try:
            value = parse_json(body, BODY_DEPTH, DEFAULT_MAX_VALUES)
        except A2AError as exc:
            raise RefusedError(400, str(exc)) from exc
        if not isinstance(value, dict):
            raise RefusedError(400, "The body is not a JSON object")
        return value

    # Signing in and out

    @property
    def needs_sign_in(self) -> bool:
        """Whether the bridge asks for credentials."""
        return self._access.needs_token

    def require_sign_in(self, visit: Visit) -> None:
        """Refuse a browser that cannot sign in.

        Raises:
            RefusedError: 403, the bridge has no credentials and its console is not open here, or the browser would send
                a token without TLS.
        """
        if not self._access.needs_token:
            raise RefusedError(403, _CLOSED)
        host = host_name(visit.base_url.partition("://")[2].partition("/")[0])
        if not visit.is_secure and not is_loopback(host):
            raise RefusedError(403, "Tokens are sent over https only: serve the bridge with TLS")

    async def sign_in(self, visit: Visit, token: str) -> tuple[ConsoleSession, Principal]:
        """Sign a browser in; return its session and principal. Without a token, use the credential of the connection.

        Raises:
            RefusedError: 403, the credential is not known; 429, too many were wrong; 503, it cannot be checked now.
        """
        with self.attempt(visit) as attempt:
            # First as an API key: an unknown bearer token may be sent to an issuer, which must not see an API key.
            for scheme in (Scheme.API_KEY, Scheme.BEARER):
                session = self.session_with(token, scheme)
                if (principal := await self._shown_by(visit, session.headers)) is not None:
                    logger.info("%s has signed in at the console", principal.name)
                    return session, principal
            attempt.fail()
        logger.warning("a wrong token was shown at the console, from %s", visit.address)
        raise RefusedError(403, "This token is not known")

    def session_with(self, token: str, scheme: Scheme) -> ConsoleSession:
        """A session with a credential.

        Raises:
            RefusedError: 413, the credential is too long for a cookie.
        """
        session = replace(new_session(time.time(), token, scheme), has_signed_in=True)
        if len(self.seal.sealed(session)) > COOKIE_BYTES:
            raise RefusedError(413, "This token is too long for a cookie")
        return session

    def require_attempt(self, visit: Visit) -> None:
        """Refuse a browser that may not try to sign in now.

        Raises:
            RefusedError: 403, as for `require_sign_in`; 429, too many attempts from its address failed or are open.
        """
        self.require_sign_in(visit)
        self._attempts.require(site_of(visit.address), time.time())

    @contextmanager
    def attempt(self, visit: Visit) -> Iterator[CountedAttempt]:
        """Count an attempt while its credential is checked. Call `fail` if nobody has the credential.

        Raises:
            RefusedError: as for `require_attempt`.
        """
        self.require_sign_in(visit)
        with self._attempts.attempt((site_of(visit.address),), time.time()) as attempt:
            yield attempt

    def end(self, mark: str) -> None:
        """End the session with this mark."""
        self._ended.end(mark, time.time())

    def no_cookie(self, visit: Visit) -> str:
        """The value of `Set-Cookie` that deletes the session from the browser."""
        return visit.set_cookie(visit.cookie_name, "", 0, "Strict")

    def cookie(self, visit: Visit, session: ConsoleSession) -> str:
        """The value of `Set-Cookie` for a session."""
        return visit.set_cookie(visit.cookie_name, self.seal.sealed(session), SESSION_SECONDS, "Strict")

    def _is_open(self, scope: Scope, headers: Headers) -> bool:
        return not self._access.needs_token and self._place.is_local and is_asked_here(scope, headers)


def _query(encoded: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(encoded.decode("latin-1"), max_num_fields=_FIELDS_MOST))
    except ValueError as exc:
        raise RefusedError(400, "The query has too many fields") from exc


def _prefers_json(headers: Headers) -> bool:
    return headers.get("accept", "").partition(",")[0].partition(";")[0].strip() == "application/json"


def _asked_query(scope: Scope) -> str:
    query = quote(scope["query_string"], safe=_QUERY_SAFE)
    return f"?{query}" if query else ""
