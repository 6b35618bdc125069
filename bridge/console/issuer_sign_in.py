"""Signs people in at the console with the code flow of their issuer.

The ID token says who is in the browser. The access token says what that person may do, so the console asks for one of
its own audience, with the scopes that the configuration names, and shows it to the verifiers that judge every call. An
ID token alone signs nobody in: whoever has an account at the issuer gets one.

A browser brings the answer from another site, so it sends no cookie that is `SameSite=Strict`. What the answer needs is
in a cookie that is `Lax`, and the answer to the answer is a page that leads on: only the request of our own page has
the session.

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

from bridge.assembly.routes import CONSOLE
from bridge.console.console_access import ConsoleAccess, Visit
from bridge.console.sign_ins import BEGUN_SECONDS, COOKIE_BYTES, BegunSignIn, ConsoleSession
from bridge.errors import BridgeError
from bridge.http.request_checks import RefusedError
from bridge.identity.callers.issuers import Issuer
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Access, Scheme

if TYPE_CHECKING:
    # It loads what checks tokens, see `bridge.assembly.issuers`.
    from bridge.identity.callers.issuer_login import IssuerLogin, ShownPerson

logger = logging.getLogger(__name__)

BACK_PATH: Final = "/signed-in"
"""Where a browser comes back from its issuer, below the console."""

_ANSWER_SECONDS: Final = 15.0
"""How long an issuer may take for each answer."""

_AT_ONCE: Final = 16
"""Sign-ins for which issuers are asked at once: anybody can begin one."""

_COOKIE: Final = "mcp-a2a-console-begun"
_NO_RIGHTS: Final = "has told who you are, but not what you may do here. The log of the bridge says why"


class IssuerSignIn:
    """The sign-ins at the issuers of a bridge's callers."""

    def __init__(
        self, gate: ConsoleAccess, access: Access, login_at: Callable[[Issuer], IssuerLogin]
    ) -> None:
        """`login_at` is how people show who they are at an issuer that has a client for it."""
        self._gate = gate
        self._access = access
        self._login_at = login_at
        self._asking = 0
        self._answered: dict[str, float] = {}

    @property
    def issuers(self) -> Sequence[Issuer]:
        """Those with a client for people, whose tokens can count at the console."""
        return [one for one in self._access.issuers if one.login is not None and one.audiences.get(CONSOLE)]

    async def begin(self, visit: Visit, name: str) -> tuple[str, str]:
        """The page of an issuer, and the value of `Set-Cookie` that its answer needs.

        Raises:
            RefusedError: 403 or 404, nobody signs in there; 429, too many have failed; 502, the issuer cannot be used
                now, or more has to be kept than a cookie takes; 503, many sign in at the moment.
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
            raise RefusedError(502, "The sign-in needs more than a browser keeps in a cookie")
        return page, visit.set_cookie(visit.own_name(_COOKIE), begun, BEGUN_SECONDS, "Lax")

    async def finish(self, visit: Visit, headers: Headers) -> tuple[ConsoleSession, Principal, str]:
        """The session of a browser that comes back, its principal, and the value of `Set-Cookie` that takes away what
        was begun.

        Raises:
            RefusedError: 403, this browser has begun nothing, or the issuer gave nothing that counts here; 410, this
                was answered before; 413, no cookie takes the token; 429, too many have failed; 502, the person or the
                issuer has refused; 503, the token cannot be judged at the moment, or many sign in.
        """
        self._gate.require_attempt(visit)
        issuer, person = await self._shown(visit, headers)
        session, principal = await self._judged(visit, issuer, person)
        logger.info("%s has signed in at the console", principal.name)
        return session, principal, visit.set_cookie(visit.own_name(_COOKIE), "", 0, "Lax")

    async def _shown(self, visit: Visit, headers: Headers) -> tuple[Issuer, ShownPerson]:
        """The person whom an issuer tells of. It is told once."""
        now = time.time()
        cookie = cookie_parser(headers.get("cookie", "")).get(visit.own_name(_COOKIE), "")
        begun = self._gate.seal.opened_begun(cookie, now) if cookie else None
        state = visit.query.get("state", "")
        # Not counted as a failure: a page of another site can send any browser here.
        if begun is None or not hmac.compare_digest(state.encode(), begun.proof.state.encode()):
            raise RefusedError(403, "This sign-in was not begun in this browser, or long ago. Begin again")
        self._answered = {one: until for one, until in self._answered.items() if until > now}
        if state in self._answered:
            raise RefusedError(410, "This sign-in was answered before. Begin again")
        self._answered[state] = begun.until
        issuer = self._named(begun.issuer)
        with self._asked(issuer):
            return issuer, await self._login_at(issuer).finish(begun.proof, visit.query, _ANSWER_SECONDS)

    async def _judged(
        self, visit: Visit, issuer: Issuer, person: ShownPerson
    ) -> tuple[ConsoleSession, Principal]:
        """The session and the rights of a person by its access token."""
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
        self._log(issuer, f"{person.principal}, whose access token does not count: {why}")
        raise RefusedError(403, f"{issuer.name} {_NO_RIGHTS}")

    def _named(self, name: str) -> Issuer:
        found = next((one for one in self.issuers if one.name == name), None)
        if found is None:
            raise RefusedError(404, "Nobody signs in there")
        return found

    @contextmanager
    def _asked(self, issuer: Issuer) -> Iterator[None]:
        """Ask an issuer, and tell in words what is wrong with its answer."""
        if self._asking >= _AT_ONCE:
            raise RefusedError(503, "Many people sign in at the moment", {"Retry-After": "5"})
        self._asking += 1
        try:
            yield
        except BridgeError as exc:
            self._log(issuer, f"somebody: {exc}")
            words = f"{issuer.name} has signed nobody in. Try again; the log of the bridge says why"
            raise RefusedError(502, words) from exc
        finally:
            self._asking -= 1

    def _log(self, issuer: Issuer, why: str) -> None:
        logger.warning("issuers.%s: the console does not let in %s", issuer.name, why)


def _resource_at(issuer: Issuer) -> str:
    """The resource indicator of a token for the console: what the file says, or its only audience if that is a URI."""
    assert issuer.login is not None, "it has a client for people"
    if issuer.login.resource is not None:
        return issuer.login.resource
    audiences = [*issuer.audiences[CONSOLE]]
    return audiences[0] if len(audiences) == 1 and urlsplit(audiences[0]).scheme else ""
