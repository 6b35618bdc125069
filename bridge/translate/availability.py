"""Which skills cannot be called at the moment, as an extension on the card of an agent. Pure.

A skill stays on the card while its peer is out of reach, so that a client's choice does not change with each outage.
The extension is on the card only while something cannot be called. It says a state of a closed list and the minute
since when, and no words: what is wrong with a peer is for those who run the bridge.

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
    """Why a skill cannot be called. One that is in no list is ready."""

    UNREACHABLE = "unreachable"
    LOGIN_NEEDED = "login-needed"


FindUnavailable = Callable[[Iterable[SourceState], float], tuple["UnavailablePeer", ...]]
"""Finds the peers that have been down for so many seconds, among those with these states."""


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
    """The peers that have been down for so long. A peer that comes back is ready at once."""
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
    """By the clock that all replicas share."""
    was_up: bool
    """Whether that replica could call it before."""


class OutageReport:
    """What a replica tells the others of the peers that it cannot call."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[int, int]] = {}
        """Of each peer that is down: since when by this machine's clock, and by the common one."""

    def text(self, states: Iterable[SourceState], ahead_ms: int) -> bytes:
        """The report as the others read it: the same bytes until a state changes.

        `ahead_ms` added to this machine's clock gives the common one. It is measured anew each time, so it counts for
        outages that are new.
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
    """The outages in a report, by the keys of the peers. A report that another release writes otherwise has none."""
    try:
        return {
            key: Outage(Unavailability(state), int(since_ms), bool(was_up))
            for key, (state, since_ms, was_up) in json.loads(report).items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}


def agreed_states(own: Iterable[SourceState], reports: Sequence[bytes]) -> tuple[SourceState, ...]:
    """The states of these peers as all replicas agree on them, in the common time. `reports` are those of all
    replicas, with this one's as the others read it.

    A peer that one of them can call is up: a client that comes again may get there. It is down since the last of them
    lost it; one that was started since, and never had it, does not count for that.
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
    """The extension; None when every skill can be called. `skills` are the ids of the card's skills by their peer.

    Peers are not named: what a card tells of peers is their skills alone.
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

    Any agent may have written it, so that what is not in this form is passed over.
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
