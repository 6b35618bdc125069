"""Bounds on what may be tried in a while: secrets that are guessed, and logins that are begun and never ended.

Each process counts for itself. Time is an argument, in seconds since the epoch.
"""

from __future__ import annotations

from typing import Final

from bridge.http.request_checks import RefusedError

FAILURES_MOST: Final = 5
"""Wrong credentials of one key, in FAILURES_SECONDS: enough for a person who mistypes."""

FAILURES_SECONDS: Final = 60.0

_KEYS_MOST: Final = 1024
"""Keys that are remembered. The one that tried longest ago is forgotten first."""


class Attempts:
    """What was tried in the last while, by a key: an address, a link, or who tried."""

    def __init__(self, words: str, most: int = FAILURES_MOST, seconds: float = FAILURES_SECONDS) -> None:
        """`words` are for whoever has tried `most` times in `seconds`."""
        self._words = words
        self._most = most
        self._seconds = seconds
        self._times: dict[str, list[float]] = {}

    def require(self, key: str, now: float) -> None:
        """Refuse a further attempt for now.

        Raises:
            RefusedError: 429, there were as many as may be.
        """
        times = self._of_late(key, now)
        if len(times) >= self._most:
            left = times[-self._most] + self._seconds - now
            raise RefusedError(429, self._words, {"Retry-After": str(int(left) + 1)})

    def note(self, key: str, now: float) -> None:
        """Count an attempt."""
        times = self._of_late(key, now)
        self._times.pop(key, None)
        self._times[key] = [*times, now][-self._most :]
        if len(self._times) > _KEYS_MOST:
            del self._times[next(iter(self._times))]

    def _of_late(self, key: str, now: float) -> list[float]:
        return [time for time in self._times.get(key, ()) if time > now - self._seconds]
