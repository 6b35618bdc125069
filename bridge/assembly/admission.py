"""Who is let in, from one plan to the next: a plan may take secrets away at once, and never opens what asked for one.

Once credentials were asked for, a plan without any lets nobody in, unless it says that everyone is to be. The bridge
itself is among the known then: the offered servers that run call the published agents with a secret of their own,
which nobody is told.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from bridge.access.principals import ANONYMOUS, LOCAL, Principal
from bridge.access.verifiers import Access, Credential, Scheme, Verifier, verifiers_of
from bridge.assembly.plan import Plan
from bridge.http.request_checks import API_KEY_HEADER, is_loopback

logger = logging.getLogger(__name__)

ITSELF: Final = Principal("(itself)")
"""Who calls when an offered server calls an agent that is published here; nobody in a file can be called so."""

NOBODY_LEFT: Final = (
    "no principal is left in the configuration, so nobody is let in until one is added, or"
    " allow_unauthenticated = true is written in [bridge]"
)


class Admission:
    """Whom a bridge lets in."""

    def __init__(self, plan: Plan) -> None:
        """At first, whom the plan says."""
        self._everyone = LOCAL if is_loopback(plan.place.host) else ANONYMOUS
        self._token = secrets.token_urlsafe(32)
        self._credentials = tuple(plan.credentials)
        self._own_scheme = _scheme_of(self._credentials)
        self.access = Access(self._known_by(self._credentials), self._everyone)

    @property
    def credentials(self) -> Sequence[Credential]:
        """Those that are known, without the bridge's own."""
        return self._credentials

    @property
    def closed(self) -> str | None:
        """Why nobody is let in; None when somebody is."""
        return NOBODY_LEFT if self.access.needs_token and not self._credentials else None

    @property
    def own_headers(self) -> Mapping[str, str]:
        """What lets the bridge in by an API key, if that is its way."""
        return {API_KEY_HEADER: self._token} if self._own_scheme is Scheme.API_KEY else {}

    @property
    def own_bearer(self) -> str | None:
        """What lets the bridge in by a token, if that is its way."""
        return self._token if self._own_scheme is Scheme.BEARER else None

    def require_clear(self, plan: Plan) -> None:
        """Refuse a plan that is not clear about who calls.

        Raises:
            UsageError: a secret stands for two principals.
        """
        self._known_by(plan.credentials)

    def turn_away(self, plan: Plan) -> frozenset[str]:
        """Take away the secrets that a plan leaves out, and give nobody more; whose streams have to end.

        A principal that may use other skills than before keeps what it had until the plan is taken over: to let it
        in to new skills could show it what the plan is about to hide.
        """
        before = self._credentials
        if not self.access.needs_token:
            # Everyone may do everything: any secret that is asked for takes something away.
            self._set(tuple(plan.credentials), is_open=True)
            return frozenset({self._everyone.name} if plan.credentials else ())
        self._set(_left(before, plan.credentials), is_open=False)
        return _without_a_secret(before, self._credentials)

    def admit(self, plan: Plan) -> frozenset[str]:
        """Let in whom a plan lets in; who is let in to other things than before, or no more."""
        before, is_open = self._credentials, not self.access.needs_token
        self._set(tuple(plan.credentials), is_open=plan.allow_unauthenticated or is_open)
        now = _by_principal(self._credentials)
        return frozenset(name for name, known in _by_principal(before).items() if now.get(name) != known)

    def _set(self, credentials: tuple[Credential, ...], *, is_open: bool) -> None:
        """Let these in. Without any, everyone or nobody."""
        was_closed = self.closed
        self._credentials = credentials
        if credentials or is_open:
            self._own_scheme = _scheme_of(credentials)
        # Else our own secret is the only one that is left, so that cards go on to ask for one.
        closed = "" if credentials or is_open else f"{NOBODY_LEFT[0].upper()}{NOBODY_LEFT[1:]}"
        self.access.update(self._known_by(credentials), why_nobody=closed)
        if self.closed and not was_closed:
            logger.warning("every request is refused with 401: %s", NOBODY_LEFT)

    def _known_by(self, credentials: Sequence[Credential]) -> Sequence[Verifier]:
        """What knows these, and our own."""
        # In the way of the first, so that no card declares another one for our sake.
        scheme = _scheme_of(credentials) or self._own_scheme
        return verifiers_of([*credentials, *([Credential(ITSELF, self._token, scheme)] if scheme else [])])


def _scheme_of(credentials: Sequence[Credential]) -> Scheme | None:
    return credentials[0].scheme if credentials else None


def _left(before: Sequence[Credential], now: Sequence[Credential]) -> tuple[Credential, ...]:
    """Those of now that give nobody more than before."""
    principals = {one.principal for one in before}
    had = {_secret(one): one for one in before}
    kept = (one if one.principal in principals else had.get(_secret(one)) for one in now)
    return tuple(one for one in kept if one is not None)


def _without_a_secret(before: Sequence[Credential], now: Sequence[Credential]) -> frozenset[str]:
    """The names of those who had a secret that is not known any more."""
    left = {_secret(one) for one in now}
    return frozenset(one.principal.name for one in before if _secret(one) not in left)


def _secret(one: Credential) -> tuple[str, Scheme, str]:
    return one.principal.name, one.scheme, one.token


def _by_principal(credentials: Sequence[Credential]) -> dict[str, frozenset[Credential]]:
    """What each is known by, and may use."""
    names = {one.principal.name for one in credentials}
    return {name: frozenset(one for one in credentials if one.principal.name == name) for name in names}
