"""Bounds on what may be tried in a while: secrets that are guessed, and logins that are begun and never ended.

Each process counts for itself. Time is an argument, in seconds since one moment of the caller's choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from bridge.http.request_checks import RefusedError

FAILURES_MOST: Final = 5
"""Wrong credentials of one key, in FAILURES_SECONDS: enough for a person who mistypes."""

FAILURES_SECONDS: Final = 60.0

_JUDGED_SECONDS: Final = 1
"""When to come again while attempts are not judged yet."""

_KEYS_MOST: Final = 1024
"""Keys that are remembered. The one that tried longest ago is forgotten first."""


@dataclass(slots=True, eq=False)
class CountedAttempt:
    """Something that is tried. It counts while it is judged, and then if it has failed."""

    at: float
    has_failed: bool = False

    def fail(self) -> None:
        """Let it count: it was wrong."""
        self.has_failed = True


class Attempts:
    """What was tried in the last while, by a key: an address, a link, or who tried.

    An attempt takes its place before it is judged. A verifier may wait for an issuer, and any number of guesses could
    be made meanwhile.
    """

    def __init__(self, words: str, most: int = FAILURES_MOST, seconds: float = FAILURES_SECONDS) -> None:
        """`words` are for whoever has tried `most` times in `seconds`."""
        self._words = words
        self._most = most
        self._seconds = seconds
        self._made: dict[str, list[CountedAttempt]] = {}

    def require(self, key: str, now: float) -> None:
        """Refuse a further attempt for now.

        Raises:
            RefusedError: 429, there were as many as may be, or so many are not judged yet.
        """
        counted = self._counted(key, now)[-self._most :]
        if len(counted) < self._most:
            return
        are_judged = all(one.has_failed for one in counted)
        seconds = int(counted[0].at + self._seconds - now) + 1 if are_judged else _JUDGED_SECONDS
        raise RefusedError(429, self._words, {"Retry-After": str(seconds)})

    def note(self, key: str, now: float) -> None:
        """Count an attempt that was judged."""
        self._add(key, CountedAttempt(now, has_failed=True))

    @contextmanager
    def attempt(self, keys: tuple[str, ...], now: float) -> Iterator[CountedAttempt]:
        """Judge an attempt of all these keys while the context is open. It is forgotten at the end unless it failed.

        Raises:
            RefusedError: as `require`, for one of the keys.
        """
        for key in keys:
            self.require(key, now)
        one = CountedAttempt(now)
        for key in keys:
            self._add(key, one)
        try:
            yield one
        finally:
            if not one.has_failed:
                for key in keys:
                    self._forget(key, one)

    def _add(self, key: str, one: CountedAttempt) -> None:
        counted = self._counted(key, one.at)
        self._made.pop(key, None)
        self._made[key] = [*counted, one][-self._most :]
        if len(self._made) > _KEYS_MOST:
            del self._made[next(iter(self._made))]

    def _counted(self, key: str, now: float) -> list[CountedAttempt]:
        return [one for one in self._made.get(key, ()) if one.at > now - self._seconds]

    def _forget(self, key: str, attempt: CountedAttempt) -> None:
        left = [one for one in self._made.pop(key, ()) if one is not attempt]
        if left:
            self._made[key] = left
