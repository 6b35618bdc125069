"""Lets people into the console: each request is judged before anything of it is read.

A bridge that asks for no credential has an open console only for a browser on this machine: it listens on loopback, has
no public address, the Host is loopback, and no proxy stands between. Anything else asks for a credential.

A request that changes something, and the stream of events, come from our own page: with our Origin, as JSON, and with
the token that this browser was shown. A page of another origin has none of them, and a browser sends no cookie for it
(SameSite).
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
from bridge.assembly.plan import ProcessPlan
from bridge.assembly.routes import CONSOLE
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
"""The header in which our page repeats the token that it was shown."""

BODY_BYTES: Final = 1024 * 1024
"""The largest form. Arguments of a tool may hold a small file."""

BODY_DEPTH: Final = 64
"""How deep a form may be nested."""

SIGN_IN_PATH: Final = "/sign-in"
"""What a browser posts to that has not signed in."""

NEWS_PATH: Final = "/news"
"""What an open page asks for its news."""

_FIELDS_MOST: Final = 50
"""Fields of a query."""

_COOKIE: Final = "mcp-a2a-console"
_QUERY_SAFE: Final = "%&=+/?:@!$'()*,;~"
"""What may stand in a query as it is."""

_CLOSED: Final = (
    "This console is open to a browser on this machine alone, at a loopback address and without a proxy: the bridge"
    " asks for no credentials. Add [principals.NAME] to its file, and sign in"
)


@dataclass(frozen=True)
class Visit:
    """One request of a browser that may be answered."""

    verb: str
    path: str
    """Below `/console`, without a slash at its end, as `path_of` writes it."""
    query: Mapping[str, str]
    wants_json: bool
    base_url: str
    """The address of the bridge for this browser."""
    address: str
    """Where the request comes from."""
    session: ConsoleSession
    principal: Principal | None
    """None before a sign-in."""
    is_open: bool = False
    """Whether nobody has to sign in here."""
    keeps_cookie: bool = False
    """Whether no cookie is to be written: that of the browser is new, or none may be."""
    leads_on: str = ""
    """Where a page of ours has to lead, as the browser may have a session that it has not sent; "" if nowhere."""
    shown: str | None = None
    """What the connection itself has shown, see `SHOWN_HEADER`."""

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
        """The name of the cookie with its session."""
        return self.own_name(_COOKIE)

    def own_name(self, cookie: str) -> str:
        """The name of a cookie. `__Host-` is taken by browsers for secure ones alone (RFC 6265bis section 4.1.3.2)."""
        return f"__Host-{cookie}" if self.is_secure else cookie

    def set_cookie(self, name: str, value: str, seconds: float, site: Literal["Strict", "Lax"]) -> str:
        """The value of `Set-Cookie` for a cookie that no script reads. `site` is when other sites have it sent."""
        attributes = "; Secure" if self.is_secure else ""
        return f"{name}={value}; Path=/; Max-Age={int(seconds)}; HttpOnly; SameSite={site}{attributes}"

    @property
    def seconds_left(self) -> float:
        """How long its sign-in counts, if nothing else ends it before; infinite where nobody signs in."""
        if self.is_open:
            return math.inf
        return min(self.session.seconds_left(time.time()), self.who.seconds_left())

    @property
    def reads_all(self) -> bool:
        """Whether it may see the configuration, and who may call: an operator, or whoever owns this machine."""
        return self.is_open or self.who.operator is not None

    @property
    def who(self) -> Principal:
        """The principal of a visit that was let in."""
        assert self.principal is not None, "the gate has let it in"
        return self.principal


class ConsoleAccess:
    """Decides who may see the console."""

    def __init__(self, place: ProcessPlan, access: Access, keys: Callable[[], Sequence[bytes]]) -> None:
        """`keys` are those with which cookies are sealed; they are read once, for the first browser."""
        self._place = place
        self._web = place.web
        self._access = access
        self._keys = keys
        self._attempts = Attempts("Too many sign-ins have failed")
        self._ended = EndedSessions()

    @cached_property
    def seal(self) -> SessionSeal:
        """Seals what cookies carry."""
        return SessionSeal(self._keys())

    async def visit(self, scope: Scope) -> Visit:
        """The visit that a request is, with its principal if it is known.

        Raises:
            RefusedError: 400, 403 or 421, a foreign web page may have sent it; 503, it cannot be judged now.
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
            # An open page asks for news by itself, so its stream ends when the browser has been idle for too long.
            stays = path == NEWS_PATH or now < session.seen_at + FRESH_SECONDS
            visit = replace(visit, session=session if stays else session.seen(now), keeps_cookie=stays)
        if headers.get("sec-fetch-site") == "cross-site":
            asked = f"{visit.root}{path}{JSON_ENDING if is_json else ''}{_asked_query(scope)}"
            is_led = not has_session and headers.get("sec-fetch-mode") == "navigate"
            visit = replace(visit, keeps_cookie=True, leads_on=asked if is_led else "")
        return replace(visit, principal=await self.principal_of(visit))

    async def principal_of(self, visit: Visit) -> Principal | None:
        """Who is in the browser of a visit now; None if it has not signed in, or may no longer.

        Raises:
            RefusedError: 503, that cannot be judged at the moment.
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
        """The principal of what a browser shows, as a call of a face would show it.

        Raises:
            RefusedError: 401, it is of nobody; 503, it cannot be judged at the moment.
        """
        said = {**headers, **({} if visit.shown is None else {SHOWN_HEADER: visit.shown})}
        return await self._access.principal_of(said, CONSOLE)

    async def body_of(self, visit: Visit, scope: Scope, receive: Receive) -> JsonObject:
        """The body of a request that changes something, once it is sure that it comes from our own page.

        Raises:
            RefusedError: 403, it comes from elsewhere; 401, its sign-in is over; 400, 413 or 415, its body cannot be
                taken.
        """
        headers = Headers(scope=scope)
        own = "://".join(urlsplit(visit.base_url)[:2])
        if headers.get("origin") != own:
            raise RefusedError(403, f"This takes requests of its own pages, at {own}")
        if visit.principal is None and self.needs_sign_in and visit.path != SIGN_IN_PATH:
            raise RefusedError(401, "Sign in first: the session is over")
        if not hmac.compare_digest(headers.get(CSRF_HEADER, "").encode(), visit.session.csrf.encode()):
            raise RefusedError(403, "This page was not shown to this browser, or long ago: load it again")
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
        """Refuse a browser that no sign-in would let in.

        Raises:
            RefusedError: 403, the bridge asks for no credentials and is not open here, or a token would go unprotected.
        """
        if not self._access.needs_token:
            raise RefusedError(403, _CLOSED)
        host = host_name(visit.base_url.partition("://")[2].partition("/")[0])
        if not visit.is_secure and not is_loopback(host):
            raise RefusedError(403, "Tokens are sent over https alone: serve the bridge with TLS")

    async def sign_in(self, visit: Visit, token: str) -> tuple[ConsoleSession, Principal]:
        """The session of a browser that shows a credential, and its principal. Without a token, what its connection has
        shown counts.

        Raises:
            RefusedError: 403, it is not known; 429, too many were wrong; 503, it cannot be judged at the moment.
        """
        with self.attempt(visit) as attempt:
            # As an API key first: an opaque token may be asked about at an issuer, which must see no key of the file.
            for scheme in (Scheme.API_KEY, Scheme.BEARER):
                session = self.session_with(token, scheme)
                if (principal := await self._shown_by(visit, session.headers)) is not None:
                    logger.info("%s has signed in at the console", principal.name)
                    return session, principal
            attempt.fail()
        logger.warning("a wrong token was shown at the console, from %s", visit.address)
        raise RefusedError(403, "This token is not known")

    def session_with(self, token: str, scheme: Scheme) -> ConsoleSession:
        """The session of a browser that has shown a credential.

        Raises:
            RefusedError: 413, no cookie takes it.
        """
        session = replace(new_session(time.time(), token, scheme), has_signed_in=True)
        if len(self.seal.sealed(session)) > COOKIE_BYTES:
            raise RefusedError(413, "This token is longer than a browser keeps in a cookie")
        return session

    def require_attempt(self, visit: Visit) -> None:
        """Refuse a browser that may not try to sign in now.

        Raises:
            RefusedError: 403, as `require_sign_in`; 429, too many from its address have failed or are not judged yet.
        """
        self.require_sign_in(visit)
        self._attempts.require(site_of(visit.address), time.time())

    @contextmanager
    def attempt(self, visit: Visit) -> Iterator[CountedAttempt]:
        """Judge what a browser shows while the context is open. If it is of nobody, fail the attempt.

        Raises:
            RefusedError: as `require_attempt`.
        """
        self.require_sign_in(visit)
        with self._attempts.attempt((site_of(visit.address),), time.time()) as attempt:
            yield attempt

    def end(self, mark: str) -> None:
        """Let the session with this mark count no more."""
        self._ended.end(mark, time.time())

    def no_cookie(self, visit: Visit) -> str:
        """The value of `Set-Cookie` that takes the session from the browser."""
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
