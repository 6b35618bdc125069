"""Signs people in at the console with the code flow of their issuer.

The ID token says who is in the browser. The access token says what the person may do: the console asks for a token
with its own audience and the configured scopes, and gives it to the verifiers that check every call. An ID token alone
signs nobody in, because everyone with an account at the issuer gets an ID token.

A browser that comes back from the issuer's site sends no `SameSite=Strict` cookie. So the state of the sign-in is in a
`Lax` cookie, and the response is a page that leads on: only the request from our own page has the session cookie.

Spec: OpenID Connect Core 1.0 section 3.1; RFC 8707 (`resource`); RFC 9700 section 4.7 (state bound to the browser).
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from bridge.assembly.plan import CONSOLE
from bridge.console.console_access import ConsoleAccess, Visit
from bridge.console.sign_ins import BEGUN_SECONDS, COOKIE_BYTES, BegunSignIn, ConsoleSession
from bridge.errors import BridgeError
from bridge.http.request_checks import RefusedError
from bridge.identity.callers.issuers import Issuer
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Access, Scheme

if TYPE_CHECKING:
    # Loads the libraries that check tokens, see `bridge.assembly.issuers`.
    from bridge.identity.callers.issuer_login import IssuerLogin, ShownPerson

logger = logging.getLogger(__name__)

BACK_PATH: Final = "/signed-in"
"""The redirect URI, below the console."""

_ANSWER_SECONDS: Final = 15.0
"""How long an issuer may take for each answer."""

_AT_ONCE: Final = 16
"""The most requests to issuers at the same time: anyone can begin a sign-in."""

_COOKIE: Final = "mcp-a2a-console-begun"
_NO_RIGHTS: Final = "has identified you, but gives you no rights here. The log of the bridge says why"


class IssuerSignIn:
    """The sign-ins at the issuers of a bridge's callers."""

    def __init__(
        self, gate: ConsoleAccess, access: Access, login_at: Callable[[Issuer], IssuerLogin]
    ) -> None:
        """`login_at` gives the login flow of an issuer that has a client for people."""
        self._gate = gate
        self._access = access
        self._login_at = login_at
        self._asking = 0
        self._answered: dict[str, float] = {}

    @property
    def issuers(self) -> Sequence[Issuer]:
        """The issuers with a client for people and an audience for the console."""
        return [
            issuer
            for issuer in self._access.issuers
            if issuer.login is not None and issuer.audiences.get(CONSOLE)
        ]

    async def begin(self, visit: Visit, name: str) -> tuple[str, str]:
        """The URL of the issuer's login page, and the `Set-Cookie` value with the state of the sign-in.

        Raises:
            RefusedError: 403 or 404, this issuer has no sign-in; 429, too many attempts have failed; 502, the issuer
                cannot be used now, or the state is too long for a cookie; 503, too many people sign in at the moment.
        """
        self._gate.require_attempt(visit)
        issuer = self._named(name)
        assert issuer.login is not None, "it has a client for people"
        scopes = issuer.known_scopes if issuer.login.scopes is None else issuer.login.scopes
        back = f"{visit.base_url}{CONSOLE}{BACK_PATH}"
        with self._asked(issuer):
            login = self._login_at(issuer)
            page, proof = await login.begin(back, _ANSWER_SECONDS, scopes, _resource_at(issuer))
        begun = self._gate.seal.sealed_begun(BegunSignIn(name, proof, time.time() + BEGUN_SECONDS))
        if len(begun) > COOKIE_BYTES:
            raise RefusedError(502, "The state of the sign-in is too long for a cookie")
        return page, visit.set_cookie(visit.own_name(_COOKIE), begun, BEGUN_SECONDS, "Lax")

    async def finish(self, visit: Visit, headers: Headers) -> tuple[ConsoleSession, Principal, str]:
        """The session of a browser that comes back, its principal, and the `Set-Cookie` value that deletes the state of
        the sign-in.

        Raises:
            RefusedError: 403, this browser began no sign-in, or the access token gives no rights here; 410, the sign-in
                was finished before; 413, the token is too long for a cookie; 429, too many attempts have failed; 502,
                the person or the issuer refused; 503, the token cannot be checked now, or too many people sign in.
        """
        self._gate.require_attempt(visit)
        issuer, person = await self._shown(visit, headers)
        session, principal = await self._judged(visit, issuer, person)
        logger.info("%s has signed in at the console", principal.name)
        return session, principal, visit.set_cookie(visit.own_name(_COOKIE), "", 0, "Lax")

    async def _shown(self, visit: Visit, headers: Headers) -> tuple[Issuer, ShownPerson]:
        """The person in the issuer's answer. Each answer is accepted once."""
        now = time.time()
        cookie = cookie_parser(headers.get("cookie", "")).get(visit.own_name(_COOKIE), "")
        begun = self._gate.seal.opened_begun(cookie, now) if cookie else None
        state = visit.query.get("state", "")
        # This is not counted as a failed attempt: a page of another site can send any browser here.
        if begun is None or not hmac.compare_digest(state.encode(), begun.proof.state.encode()):
            raise RefusedError(403, "This sign-in began in another browser, or too long ago. Begin again")
        self._answered = {one: until for one, until in self._answered.items() if until > now}
        if state in self._answered:
            raise RefusedError(410, "This sign-in is already finished. Begin again")
        self._answered[state] = begun.until
        issuer = self._named(begun.issuer)
        with self._asked(issuer):
            return issuer, await self._login_at(issuer).finish(begun.proof, visit.query, _ANSWER_SECONDS)

    async def _judged(
        self, visit: Visit, issuer: Issuer, person: ShownPerson
    ) -> tuple[ConsoleSession, Principal]:
        """The session and the principal of a person, from the access token."""
        session, why = self._gate.session_with(person.access_token, Scheme.BEARER), "there is none"
        with self._gate.attempt(visit) as attempt:
            if person.access_token:
                try:
                    principal = await self._gate.judged(visit, session.headers)
                except RefusedError as exc:
                    if exc.status != 401:
                        raise
                    why = str(exc)
                else:
                    if principal.name == person.principal:
                        return session, principal
                    why = f"it is that of {principal.name}"
            attempt.fail()
        self._log(issuer, f"{person.principal}, whose access token is not accepted: {why}")
        raise RefusedError(403, f"{issuer.name} {_NO_RIGHTS}")

    def _named(self, name: str) -> Issuer:
        named = next((issuer for issuer in self.issuers if issuer.name == name), None)
        if named is None:
            raise RefusedError(404, "There is no sign-in at this issuer")
        return named

    @contextmanager
    def _asked(self, issuer: Issuer) -> Iterator[None]:
        """Limit concurrent requests to issuers, and log and convert their errors."""
        if self._asking >= _AT_ONCE:
            raise RefusedError(503, "Too many people sign in at the moment", {"Retry-After": "5"})
        self._asking += 1
        try:
            yield
        except BridgeError as exc:
            self._log(issuer, f"somebody: {exc}")
            words = f"The sign-in at {issuer.name} has failed. Try again; the log of the bridge says why"
            raise RefusedError(502, words) from exc
        finally:
            self._asking -= 1

    def _log(self, issuer: Issuer, why: str) -> None:
        logger.warning("issuers.%s: the console does not let in %s", issuer.name, why)


def _resource_at(issuer: Issuer) -> str:
    """The `resource` of a token for the console: the configured value, or the only audience if that is a URI."""
    assert issuer.login is not None, "it has a client for people"
    if issuer.login.resource is not None:
        return issuer.login.resource
    audiences = [*issuer.audiences[CONSOLE]]
    return audiences[0] if len(audiences) == 1 and urlsplit(audiences[0]).scheme else ""
