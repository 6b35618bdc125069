"""Sessions of browsers, each in a sealed cookie: the bridge stores no sessions.

A session contains the credential of the sign-in, so that the verifiers check each request as they check a call: the
session ends at once when its principal is removed, or its token expires. A browser that has not signed in also has a
session, for the CSRF token of its forms.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from bridge.bounded_map import BoundedMap
from bridge.http.request_checks import API_KEY_HEADER
from bridge.identity.callers.verifiers import Scheme
from bridge.identity.logins.kept_logins import BegunProof
from bridge.seal import RecordSeal, SealedRecordError

SESSION_SECONDS: Final = 8 * 3600.0
"""How long a sign-in is valid: a working day."""

IDLE_SECONDS: Final = 30 * 60.0
"""How long a browser may be idle before its sign-in ends."""

BEGUN_SECONDS: Final = 600.0
"""How long a person may take at the page of an issuer."""

FRESH_SECONDS: Final = 60.0
"""A cookie that is newer than this is not written again."""

COOKIE_BYTES: Final = 4000
"""The longest value of a cookie: browsers drop cookies above 4096 bytes, with their names."""

_ENDED_MOST: Final = 20_000
"""The most ended sessions to remember. The oldest is forgotten first."""

_MARK_DIGITS: Final = 32

_SESSION: Final = b"session"
_BEGUN: Final = b"begun sign-in"


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """The session of one browser. Times are in seconds since the epoch."""

    csrf: str = field(repr=False)
    began_at: float
    seen_at: float
    secret: str = field(default="", repr=False)
    """The credential of the sign-in; "" before a sign-in, and for a certificate."""
    scheme: Scheme = Scheme.BEARER
    has_signed_in: bool = False
    """Whether the session has signed in. `secret` alone does not say it: a sign-in with a certificate has no secret."""

    @property
    def mark(self) -> str:
        """The id of the session between replicas. A replica sends it to the others when the session ends."""
        return hashlib.sha256(self.csrf.encode()).hexdigest()[:_MARK_DIGITS]

    @property
    def headers(self) -> dict[str, str]:
        """The headers with which a call would send the same credential."""
        if not self.secret:
            return {}
        if self.scheme is Scheme.API_KEY:
            return {API_KEY_HEADER.lower(): self.secret}
        return {"authorization": f"Bearer {self.secret}"}

    def seconds_left(self, now: float) -> float:
        """How long the session stays valid if its browser sends no more requests."""
        return min(self.began_at + SESSION_SECONDS, self.seen_at + IDLE_SECONDS) - now

    def is_over(self, now: float) -> bool:
        """Whether the session has expired."""
        return self.seconds_left(now) <= 0

    def seen(self, now: float) -> ConsoleSession:
        """The session after another request of its browser."""
        return replace(self, seen_at=now)


@dataclass(frozen=True, slots=True)
class BegunSignIn:
    """A sign-in at an issuer that is not finished. It is valid only in the browser that began it."""

    issuer: str
    """The name of the issuer in the configuration."""
    proof: BegunProof
    until: float
    """When the sign-in expires, in seconds since the epoch."""


def new_session(now: float, secret: str = "", scheme: Scheme = Scheme.BEARER) -> ConsoleSession:
    """The session of a browser that comes for the first time."""
    return ConsoleSession(secrets.token_urlsafe(24), now, now, secret, scheme)


class SessionSeal:
    """Seals sessions and unfinished sign-ins as cookies, and opens them."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """The first key seals; all keys open."""
        self._seal = RecordSeal(keys, "console")

    def sealed(self, session: ConsoleSession) -> str:
        """A session as the value of a cookie."""
        return self._seal.seal_json(asdict(session), _SESSION)

    def opened(self, cookie: str, now: float) -> ConsoleSession | None:
        """The session in a cookie; None if the cookie is invalid or expired."""
        try:
            values: dict[str, Any] = self._seal.open_json(cookie, _SESSION)
        except SealedRecordError:
            return None
        session = ConsoleSession(**{**values, "scheme": Scheme(values["scheme"])})
        return None if session.is_over(now) else session

    def sealed_begun(self, begun: BegunSignIn) -> str:
        """An unfinished sign-in as the value of a cookie."""
        return self._seal.seal_json(asdict(begun), _BEGUN)

    def opened_begun(self, cookie: str, now: float) -> BegunSignIn | None:
        """The unfinished sign-in in a cookie; None if the cookie is invalid or expired."""
        try:
            values: dict[str, Any] = self._seal.open_json(cookie, _BEGUN)
        except SealedRecordError:
            return None
        begun = BegunSignIn(values["issuer"], BegunProof(**values["proof"]), values["until"])
        return begun if now < begun.until else None


class EndedSessions:
    """Sessions that a sign-out has ended early, so that a copy of the cookie is useless."""

    def __init__(self) -> None:
        self._until = BoundedMap[str, float](_ENDED_MOST)

    def end(self, mark: str, now: float) -> None:
        """End the session with this mark."""
        for ended in [ended for ended, until in self._until.items() if until <= now]:
            del self._until[ended]
        self._until[mark] = now + SESSION_SECONDS

    def __contains__(self, session: ConsoleSession) -> bool:
        return session.mark in self._until
