"""Limits the number of attempts in a period: guesses of secrets, and logins that nobody completes.

Each process counts for itself. Time is an argument, in seconds since any fixed moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from bridge.bounded_map import BoundedMap
from bridge.http.request_checks import RefusedError

FAILURES_MOST: Final = 5
"""The most wrong credentials of one key in FAILURES_SECONDS: enough for a person who mistypes."""

FAILURES_SECONDS: Final = 60.0

_JUDGED_SECONDS: Final = 1
"""The Retry-After of a refusal because earlier attempts are still being judged."""

_KEYS_MOST: Final = 1024
"""The most keys to remember. The key with the oldest last attempt is forgotten first."""


@dataclass(slots=True, eq=False)
class CountedAttempt:
    """An attempt. It counts while it is being judged, and afterwards if it failed."""

    at: float
    has_failed: bool = False

    def fail(self) -> None:
        """Count the attempt as failed."""
        self.has_failed = True


class Attempts:
    """The recent attempts by key: an address, a link, or a caller. An attempt counts before it is judged: a verifier
    may wait for an issuer, and a client could guess any number of secrets meanwhile."""

    def __init__(self, words: str, most: int = FAILURES_MOST, seconds: float = FAILURES_SECONDS) -> None:
        """`words` is the message to a client that has tried `most` times in `seconds`."""
        self._words = words
        self._most = most
        self._seconds = seconds
        self._made = BoundedMap[str, list[CountedAttempt]](_KEYS_MOST)

    def require(self, key: str, now: float) -> None:
        """Refuse a further attempt if there were too many.

        Raises:
            RefusedError: 429, `most` attempts failed or are still being judged.
        """
        counted = self._counted(key, now)[-self._most :]
        if len(counted) < self._most:
            return
        are_judged = all(attempt.has_failed for attempt in counted)
        seconds = int(counted[0].at + self._seconds - now) + 1 if are_judged else _JUDGED_SECONDS
        raise RefusedError(429, self._words, {"Retry-After": str(seconds)})

    def note(self, key: str, now: float) -> None:
        """Count an attempt that failed."""
        self._add(key, CountedAttempt(now, has_failed=True))

    @contextmanager
    def attempt(self, keys: tuple[str, ...], now: float) -> Iterator[CountedAttempt]:
        """Count an attempt for all these keys while the context is open. At its end forget the attempt unless it
        failed.

        Raises:
            RefusedError: see `require`; one of the keys has too many attempts.
        """
        for key in keys:
            self.require(key, now)
        attempt = CountedAttempt(now)
        for key in keys:
            self._add(key, attempt)
        try:
            yield attempt
        finally:
            if not attempt.has_failed:
                for key in keys:
                    self._forget(key, attempt)

    def _add(self, key: str, attempt: CountedAttempt) -> None:
        counted = self._counted(key, attempt.at)
        self._made[key] = [*counted, attempt][-self._most :]

    def _counted(self, key: str, now: float) -> list[CountedAttempt]:
        return [attempt for attempt in self._made.get(key, ()) if attempt.at > now - self._seconds]

    def _forget(self, key: str, attempt: CountedAttempt) -> None:
        left = [
            counted_attempt for counted_attempt in self._made.pop(key, ()) if counted_attempt is not attempt
        ]
        if left:
            self._made[key] = left
