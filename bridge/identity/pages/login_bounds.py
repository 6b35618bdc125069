"""What may be tried at the pages of logins: tokens that are guessed, ways to issuers, and lines in the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from bridge.http.connections import RateLimitedLog
from bridge.http.request_checks import site_of
from bridge.identity.callers.attempts import Attempts, CountedAttempt
from bridge.identity.pages.login_links import STATE_SECONDS, LoginLink

BEGUN_MOST: Final = 10
"""Logins of one principal at one peer that may be begun in STATE_SECONDS, and times that one link may lead to the
issuer of its principal: enough for a person who tries again."""


class LoginBounds:
    """Counts what browsers try at one process. Each method that refuses raises RefusedError, 429."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._failures = Attempts("Too many have failed to show who they are. Wait a minute")
        self._begins = Attempts("Many logins were begun here. Wait some minutes", BEGUN_MOST, STATE_SECONDS)
        self._log = RateLimitedLog(now)

    def require(self, address: str, link: LoginLink) -> None:
        """Refuse a browser from whose address, or with whose link, too many have failed to show who they are."""
        for key in _keys_of(address, link):
            self._failures.require(key, self._now())

    @contextmanager
    def attempt(self, address: str, link: LoginLink) -> Iterator[CountedAttempt]:
        """Let a browser show who is in it while the context is open, unless too many have failed from its address or
        with its link. If it shows nothing that counts, fail the attempt."""
        with self._failures.attempt(_keys_of(address, link), self._now()) as attempt:
            yield attempt

    def note_way_to_person(self, link_digest: str) -> None:
        """Count a way to the issuer that tells who is in a browser, and refuse one too many."""
        self._note_begin(link_digest)

    def note_login(self, link: LoginLink) -> None:
        """Count a login that is begun, and refuse one too many."""
        self._note_begin(f"{link.place} {link.principal}")

    def _note_begin(self, key: str) -> None:
        self._begins.require(key, self._now())
        self._begins.note(key, self._now())

    def warn(self, what: str, address: str) -> None:
        """Log what anybody can cause, once in a while with the number of the others. `what` is one of few texts."""
        self._log.warn(what, address)


def _keys_of(address: str, link: LoginLink) -> tuple[str, str]:
    return site_of(address), f"{link.place} {link.principal} {link.expires_at}"
