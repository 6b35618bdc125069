"""How many tokens each principal may still use in this hour. Kept in memory, by each process for itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bridge.identity.callers.principals import Principal

_HOUR_SECONDS: Final = 3600.0
_PRINCIPALS_MOST: Final = 10_000
"""The most principals whose hours are counted. Further principals share the budget of callers without credentials."""
_SHARED: Final = ""
"""The name of the shared budget. No principal has it."""


@dataclass(slots=True)
class _Hour:
    since: float
    used: int = 0


class TokenBudget:
    """Counts tokens by principal and hour. An hour begins with the first request of a principal."""

    def __init__(self, each: int, shared: int, now: Callable[[], float]) -> None:
        """`each` is for each principal, `shared` for all callers without credentials together. `now` is in seconds."""
        self._each = each
        self._shared = shared
        self._now = now
        self._hours: dict[str, _Hour] = {}

    def reserve(self, principal: Principal, tokens: int) -> Callable[[int], None] | None:
        """Take tokens before they are used. Returns a function that takes the number that was used instead; None if
        the principal has not enough left."""
        now = self._now()
        self._hours = {name: hour for name, hour in self._hours.items() if now - hour.since < _HOUR_SECONDS}
        name = principal.name if principal.may_list_all else _SHARED
        if name not in self._hours and len(self._hours) >= _PRINCIPALS_MOST:
            name = _SHARED
        hour = self._hours.get(name) or _Hour(now)
        if hour.used + tokens > (self._shared if name == _SHARED else self._each):
            return None
        self._hours[name] = hour
        hour.used += tokens

        def settle(used: int) -> None:
            hour.used += used - tokens

        return settle
