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
            state.key,
            _down_state(state),
            state.since_ms - state.since_ms % _MINUTE_MS,
        )
        for state in states
        if state.down is not None and now_ms - state.since_ms >= after_seconds * 1000
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
        down = {state.key: state for state in states if state.down is not None}
        known, self._since = self._since, {}
        for key, state in down.items():
            outage = known.get(key)
            is_known = outage is not None and outage[0] == state.since_ms
            self._since[key] = outage if outage and is_known else (state.since_ms, state.since_ms + ahead_ms)
        outages = {
            key: Outage(_down_state(state), self._since[key][1], state.was_up)
            for key, state in sorted(down.items())
        }
        return json.dumps(outages, separators=(",", ":")).encode()


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
    reported = [outages_in(report) for report in reports]
    return tuple(_agreed(state.key, [outages.get(state.key) for outages in reported]) for state in own)


def _agreed(key: str, reported: Sequence[Outage | None]) -> SourceState:
    down = [outage for outage in reported if outage is not None]
    if not down or len(down) < len(reported):
        return SourceState(key, None, 0)
    lost = [outage.since_ms for outage in down if outage.was_up]
    since_ms = max(lost) if lost else min(outage.since_ms for outage in down)
    needs_login = all(outage.state is Unavailability.LOGIN_NEEDED for outage in down)
    return SourceState(key, _BY_ALL, since_ms, needs_login=needs_login)


def unavailability(state: SourceState) -> Unavailability | None:
    """The state in which a peer cannot be called; None while it can."""
    return None if state.down is None else _down_state(state)


def _down_state(state: SourceState) -> Unavailability:
    return Unavailability.LOGIN_NEEDED if state.needs_login else Unavailability.UNREACHABLE


def availability_of(
    peers: Sequence[UnavailablePeer], skills: Mapping[str, Sequence[str]]
) -> AgentExtension | None:
    """The extension; None when every skill can be called. `skills` are the ids of the card's skills by the key of their
    peer.

    The extension does not name peers: a card shows only their skills.
    """
    listed: list[JsonObject] = [
        {"state": peer.state.value, "since": timestamp(peer.since_ms), "skills": [*skills[peer.key]]}
        for peer in peers
        if skills.get(peer.key)
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
    params = (
        next((extension.params for extension in extensions if extension.uri == AVAILABILITY_URI), None) or {}
    )
    listed, by_skill = params.get("unavailable"), dict[str, tuple[str, int | None]]()
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and isinstance(ids := entry.get("skills"), list):
            state, since = str(entry.get("state", "")), _time_in(entry.get("since"))
            by_skill |= {skill_id: (state, since) for skill_id in ids if isinstance(skill_id, str)}
    return by_skill


def _time_in(text: object) -> int | None:
    try:
        return milliseconds(text) if isinstance(text, str) else None
    except ValueError:
        return None
