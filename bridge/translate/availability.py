"""The extension on an agent's card that lists the skills that cannot be called at the moment. Pure.

A skill stays on the card while its peer is out of reach, so that a client's choice does not change with each outage.
The extension is on the card only while some skill cannot be called. It gives a state from a closed list and the minute
when that state began, but no error text: only operators may see what is wrong with a peer.

    {"unavailable": [{"state": "unreachable", "since": "2026-11-23T10:05:00Z", "skills": ["search", "write"]}]}

Spec: A2A 1.0 section 4.6 (extensions). A2A itself has no field for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from bridge.a2a.model.objects import AgentCard, AgentExtension, milliseconds, timestamp
from bridge.source_state import SourceState
from bridge.text.jsonvalues import JsonObject

AVAILABILITY_URI: Final = "urn:mcp-a2a:availability:v1"
_MINUTE_MS: Final = 60_000
_BY_ALL: Final = "no replica can call it"


class Unavailability(StrEnum):
    """Why a skill cannot be called. A skill without an entry can be called."""

    UNREACHABLE = "unreachable"
    LOGIN_NEEDED = "login-needed"


FindUnavailable = Callable[[Iterable[SourceState], float], tuple["UnavailablePeer", ...]]
"""Finds the peers that have been down for a number of seconds, among the peers with these states."""


@dataclass(frozen=True, slots=True)
class UnavailablePeer:
    """A peer that has been down for a while."""

    key: str
    state: Unavailability
    since_ms: int
    """The minute in which it went down, in milliseconds since the epoch."""


def unavailable_peers(
    states: Iterable[SourceState], now_ms: int, after_seconds: float
) -> tuple[UnavailablePeer, ...]:
    """The peers that have been down for `after_seconds`. A peer that comes back is ready at once."""
    return tuple(
        UnavailablePeer(
            one.key,
            _down_state(one),
            one.since_ms - one.since_ms % _MINUTE_MS,
        )
        for one in states
        if one.down is not None and now_ms - one.since_ms >= after_seconds * 1000
    )


class Outage(NamedTuple):
    """A peer that one of several replicas cannot call."""

    state: Unavailability
    since_ms: int
    """Milliseconds since the epoch, by the clock that all replicas share."""
    was_up: bool
    """Whether that replica could call the peer before the outage."""


class OutageReport:
    """A replica's report to the other replicas about the peers that it cannot call."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[int, int]] = {}
        """For each peer that is down, when it went down: by this machine's clock, and by the shared clock."""

    def text(self, states: Iterable[SourceState], ahead_ms: int) -> bytes:
        """The report in the form that other replicas read. The bytes stay the same until a state changes.

        `ahead_ms` is how far the shared clock is ahead of this machine's clock. It is measured for each report, and
        applied only to new outages.
        """
        down = {one.key: one for one in states if one.down is not None}
        known, self._since = self._since, {}
        for key, one in down.items():
            said = known.get(key)
            is_known = said is not None and said[0] == one.since_ms
            self._since[key] = said if said and is_known else (one.since_ms, one.since_ms + ahead_ms)
        told = {
            key: Outage(_down_state(one), self._since[key][1], one.was_up)
            for key, one in sorted(down.items())
        }
        return json.dumps(told, separators=(",", ":")).encode()


def outages_in(report: bytes) -> dict[str, Outage]:
    """The outages in a report, by the keys of the peers. Empty for a report in the format of another release."""
    try:
        return {
            key: Outage(Unavailability(state), int(since_ms), bool(was_up))
            for key, (state, since_ms, was_up) in json.loads(report).items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}


def agreed_states(own: Iterable[SourceState], reports: Sequence[bytes]) -> tuple[SourceState, ...]:
    """The states of these peers on which all replicas agree, in the shared clock's time. `reports` are the reports of
    all replicas, including this one's own.

    A peer is up if any replica can call it: a client that tries again may reach that replica. A peer that is down went
    down when the last replica lost it; replicas that never reached it do not count for that time.
    """
    told = [outages_in(one) for one in reports]
    return tuple(_agreed(one.key, [outages.get(one.key) for outages in told]) for one in own)


def _agreed(key: str, said: Sequence[Outage | None]) -> SourceState:
    down = [one for one in said if one is not None]
    if not down or len(down) < len(said):
        return SourceState(key, None, 0)
    lost = [one.since_ms for one in down if one.was_up]
    since_ms = max(lost) if lost else min(one.since_ms for one in down)
    needs_login = all(one.state is Unavailability.LOGIN_NEEDED for one in down)
    return SourceState(key, _BY_ALL, since_ms, needs_login=needs_login)


def unavailability(one: SourceState) -> Unavailability | None:
    """The state in which a peer cannot be called; None while it can."""
    return None if one.down is None else _down_state(one)


def _down_state(one: SourceState) -> Unavailability:
    return Unavailability.LOGIN_NEEDED if one.needs_login else Unavailability.UNREACHABLE


def availability_of(
    peers: Sequence[UnavailablePeer], skills: Mapping[str, Sequence[str]]
) -> AgentExtension | None:
    """The extension; None when every skill can be called. `skills` are the ids of the card's skills by the key of their
    peer.

    The extension does not name peers: a card shows only their skills.
    """
    listed: list[JsonObject] = [
        {"state": one.state.value, "since": timestamp(one.since_ms), "skills": [*skills[one.key]]}
        for one in peers
        if skills.get(one.key)
    ]
    if not listed:
        return None
    return AgentExtension(
        uri=AVAILABILITY_URI,
        description="Skills that cannot be called at the moment",
        required=False,
        params={"unavailable": [*listed]},
    )


def unavailable_skills(card: AgentCard) -> Mapping[str, tuple[str, int | None]]:
    """The skills that a card says cannot be called: the state, and since when in milliseconds since the epoch.

    Any agent may have written the card, so entries in another form are skipped.
    """
    extensions = card.capabilities.extensions or ()
    params = next((one.params for one in extensions if one.uri == AVAILABILITY_URI), None) or {}
    listed, found = params.get("unavailable"), dict[str, tuple[str, int | None]]()
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict) and isinstance(ids := one.get("skills"), list):
            state, since = str(one.get("state", "")), _time_in(one.get("since"))
            found |= {skill_id: (state, since) for skill_id in ids if isinstance(skill_id, str)}
    return found


def _time_in(text: object) -> int | None:
    try:
        return milliseconds(text) if isinstance(text, str) else None
    except ValueError:
        return None
