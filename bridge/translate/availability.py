"""Which skills cannot be called at the moment, as an extension on the card of an agent. Pure.

A skill stays on the card while its peer is out of reach, so that a client's choice does not change with each outage.
The extension is on the card only while something cannot be called. It says a state of a closed list and the minute
since when, and no words: what is wrong with a peer is for those who run the bridge.

    {"unavailable": [{"state": "unreachable", "since": "2026-11-23T10:05:00Z", "skills": ["search", "write"]}]}

Spec: A2A 1.0 section 4.6 (extensions). A2A itself has no field for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bridge.a2a.model.objects import AgentCard, AgentExtension, milliseconds, timestamp
from bridge.jsonvalues import JsonObject
from bridge.source_state import SourceState

AVAILABILITY_URI: Final = "urn:mcp-a2a:availability:v1"
_MINUTE_MS: Final = 60_000


class Unavailability(StrEnum):
    """Why a skill cannot be called. One that is in no list is ready."""

    UNREACHABLE = "unreachable"
    LOGIN_NEEDED = "login-needed"


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
            Unavailability.LOGIN_NEEDED if one.needs_login else Unavailability.UNREACHABLE,
            one.since_ms - one.since_ms % _MINUTE_MS,
        )
        for one in states
        if one.down is not None and now_ms - one.since_ms >= after_seconds * 1000
    )


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
