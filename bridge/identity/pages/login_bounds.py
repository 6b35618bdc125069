"""Bounds on the pages of logins: guessed tokens, redirects to issuers, and lines in the log."""

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
"""The most logins that one principal may begin at one peer in STATE_SECONDS, and the most redirects from one link to
the issuer of its principal. It is enough for a person who tries again."""


class LoginBounds:
    """Counts the tries of browsers at one process. A method that refuses a try raises RefusedError, 429."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._failures = Attempts("Too many attempts have failed. Wait a minute")
        self._begins = Attempts(
            "Too many logins have begun here. Wait some minutes", BEGUN_MOST, STATE_SECONDS
        )
        self._log = RateLimitedLog(now)

    def require(self, address: str, link: LoginLink) -> None:
        """Refuse a browser if too many tries from its address, or with its link, have failed."""
        for key in _keys_of(address, link):
            self._failures.require(key, self._now())

    @contextmanager
    def attempt(self, address: str, link: LoginLink) -> Iterator[CountedAttempt]:
        """Count an attempt of a person to prove an identity while the context is open. Refuse it if too many attempts
        from the address or with the link have failed."""
        with self._failures.attempt(_keys_of(address, link), self._now()) as attempt:
            yield attempt

    def note_way_to_person(self, link_digest: str) -> None:
        """Count a redirect to the issuer of a principal. Refuse it if there were too many."""
        self._note_begin(link_digest)

    def note_login(self, link: LoginLink) -> None:
        """Count the beginning of a login. Refuse it if there were too many."""
        self._note_begin(f"{link.place} {link.principal}")

    def _note_begin(self, key: str) -> None:
        self._begins.require(key, self._now())
        self._begins.note(key, self._now())

    def warn(self, what: str, address: str) -> None:
        """Log an event that anybody can cause: once in a while, with the number of events since. `what` is a fixed
        text."""
        self._log.warn(what, address)


def _keys_of(address: str, link: LoginLink) -> tuple[str, str]:
    return site_of(address), f"{link.place} {link.principal} {link.expires_at}"
