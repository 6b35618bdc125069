"""Who is in a browser, as a sealed cookie of that browser: the bridge keeps no sessions.

A session holds the credential that was shown, so that each request is judged by the same verifiers as a call of a
face: it ends at once when its principal goes, or when its token expires. A browser that has shown nothing has a
session, too, because every form proves by it that it was shown to this browser.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from bridge.http.request_checks import API_KEY_HEADER
from bridge.identity.callers.verifiers import Scheme
from bridge.identity.logins.kept_logins import BegunProof
from bridge.seal import RecordSeal, SealedRecordError

SESSION_SECONDS: Final = 8 * 3600.0
"""How long a sign-in counts: a working day."""

IDLE_SECONDS: Final = 30 * 60.0
"""How long a browser may ask for nothing before its sign-in ends."""

BEGUN_SECONDS: Final = 600.0
"""How long a person may take at the page of an issuer."""

FRESH_SECONDS: Final = 60.0
"""How long a cookie is not written again."""

COOKIE_BYTES: Final = 4000
"""The longest value of a cookie: browsers drop cookies above 4096 bytes, with their names."""

_ENDED_MOST: Final = 20_000
"""Sessions that are remembered as ended. The oldest is forgotten first, and browsers have given up the cookie."""

_MARK_DIGITS: Final = 32

_SESSION: Final = b"session"
_BEGUN: Final = b"begun sign-in"


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """What one browser has shown, and when. Times are in seconds since the epoch."""

    csrf: str = field(repr=False)
    began_at: float
    seen_at: float
    secret: str = field(default="", repr=False)
    """The credential that was shown; "" before a sign-in."""
    scheme: Scheme = Scheme.BEARER
    has_signed_in: bool = False
    """False for a browser that has only looked; a certificate is a sign-in without a secret."""

    @property
    def mark(self) -> str:
        """What it is called where one process of the bridge tells another that it has ended."""
        return hashlib.sha256(self.csrf.encode()).hexdigest()[:_MARK_DIGITS]

    @property
    def headers(self) -> dict[str, str]:
        """The headers in which a call would show the same credential."""
        if not self.secret:
            return {}
        if self.scheme is Scheme.API_KEY:
            return {API_KEY_HEADER.lower(): self.secret}
        return {"authorization": f"Bearer {self.secret}"}

    def seconds_left(self, now: float) -> float:
        """How long it still counts if its browser asks for nothing more."""
        return min(self.began_at + SESSION_SECONDS, self.seen_at + IDLE_SECONDS) - now

    def is_over(self, now: float) -> bool:
        """Whether its time is over."""
        return self.seconds_left(now) <= 0

    def seen(self, now: float) -> ConsoleSession:
        """The session of a browser that asks again."""
        return replace(self, seen_at=now)


@dataclass(frozen=True, slots=True)
class BegunSignIn:
    """A sign-in at an issuer that the issuer has not answered. It counts in the browser that began it."""

    issuer: str
    """Its name in the configuration."""
    proof: BegunProof
    until: float
    """Until when it may be answered, in seconds since the epoch."""


def new_session(now: float, secret: str = "", scheme: Scheme = Scheme.BEARER) -> ConsoleSession:
    """The session of a browser that comes for the first time."""
    return ConsoleSession(secrets.token_urlsafe(24), now, now, secret, scheme)


class SessionSeal:
    """Sessions, and sign-ins that were begun, to cookies and back."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """The first key seals, and all of them open."""
        self._seal = RecordSeal(keys, "console")

    def sealed(self, session: ConsoleSession) -> str:
        """A session as the value of a cookie."""
        return self._seal.seal_json(asdict(session), _SESSION)

    def opened(self, cookie: str, now: float) -> ConsoleSession | None:
        """The session in a cookie; None if there is none that counts."""
        try:
            said: dict[str, Any] = self._seal.open_json(cookie, _SESSION)
        except SealedRecordError:
            return None
        session = ConsoleSession(**{**said, "scheme": Scheme(said["scheme"])})
        return None if session.is_over(now) else session

    def sealed_begun(self, begun: BegunSignIn) -> str:
        """A sign-in that an issuer has not answered, as the value of a cookie."""
        return self._seal.seal_json(asdict(begun), _BEGUN)

    def opened_begun(self, cookie: str, now: float) -> BegunSignIn | None:
        """The sign-in in a cookie; None if there is none that counts."""
        try:
            said: dict[str, Any] = self._seal.open_json(cookie, _BEGUN)
        except SealedRecordError:
            return None
        begun = BegunSignIn(said["issuer"], BegunProof(**said["proof"]), said["until"])
        return begun if now < begun.until else None


class EndedSessions:
    """Sessions that were ended by a sign-out before their time, so that a copy of the cookie is of no use."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def end(self, mark: str, now: float) -> None:
        """Let the session with this mark count no more, here or at another process."""
        self._until = {one: until for one, until in self._until.items() if until > now and one != mark}
        self._until[mark] = now + SESSION_SECONDS
        if len(self._until) > _ENDED_MOST:
            del self._until[next(iter(self._until))]

    def __contains__(self, session: ConsoleSession) -> bool:
        return session.mark in self._until
