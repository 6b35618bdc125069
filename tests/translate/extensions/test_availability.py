"""Unavailable skills on a card: what the card lists, what replicas agree on, and how unknown cards and reports are
read."""

from __future__ import annotations

from typing import Any, Final

import pytest

from bridge.a2a.model.objects import AgentCapabilities, AgentCard, AgentExtension
from bridge.source_state import SourceState
from bridge.translate.extensions.availability import (
    AVAILABILITY_URI,
    OutageReport,
    agreed_states,
    availability_of,
    outages_in,
    unavailable_peers,
    unavailable_skills,
)

pytestmark = pytest.mark.proves("map-availability")

UP: Final = SourceState("crm", None, 0, was_up=True)
DOWN: Final = SourceState("crm", "connection refused at 10.0.0.7", 50_000, was_up=True)
LOCKED: Final = SourceState("crm", "nobody has logged in", 70_000, needs_login=True, was_up=True)
NEW: Final = SourceState("crm", "connection refused", 90_000)


def test_a_peer_that_waits_for_a_login_is_listed_without_its_error_text() -> None:
    states = [
        SourceState(
            "crm", "login needed at https://crm.internal: nobody has logged in", 61_000, needs_login=True
        ),
        SourceState("notes", None, 0),
        SourceState("new", "connection refused", 100_000),
    ]
    peers = unavailable_peers(states, 121_000, 60)
    said = availability_of(peers, {"crm": ["deals"], "notes": ["search"]})
    assert said is not None
    assert said.params == {
        "unavailable": [{"state": "login-needed", "since": "1970-01-01T00:01:00.000Z", "skills": ["deals"]}]
    }
    assert availability_of(peers, {"notes": ["search"]}) is None


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"unavailable": 7},
        {"unavailable": [None, {}, {"skills": "x"}, {"skills": [1], "since": "soon"}]},
    ],
)
def test_availability_in_an_unknown_form_is_ignored(params: Any) -> None:
    extension = AgentExtension(uri=AVAILABILITY_URI, params=params)
    capabilities = AgentCapabilities(extensions=(extension,))
    card = AgentCard.model_construct(capabilities=capabilities)
    assert unavailable_skills(card) == {}


def report(*states: SourceState, ahead_ms: int = 0) -> bytes:
    """The report of a replica whose clock is behind the shared clock."""
    return OutageReport().text(states, ahead_ms)


def test_a_report_stays_the_same_until_a_state_changes_even_if_clocks_drift() -> None:
    reporting = OutageReport()
    first = reporting.text([DOWN, SourceState("notes", None, 0)], 1_000)
    assert first == b'{"crm":["unreachable",51000,true]}'
    assert reporting.text([DOWN], 1_700) == first
    assert reporting.text([LOCKED], 1_700) == b'{"crm":["login-needed",71700,true]}'
    assert reporting.text([UP], 0) == b"{}"


@pytest.mark.parametrize(
    ("told", "since_ms", "needs_login"),
    [
        ([DOWN], 50_000, False),
        ([LOCKED], 70_000, True),
        ([DOWN, LOCKED], 70_000, False),
        ([DOWN, NEW], 50_000, False),
        ([NEW], 90_000, False),
        ([DOWN, UP], None, False),
        ([NEW, UP, LOCKED], None, False),
        ([], None, False),
    ],
    ids=[
        "one",
        "login",
        "both, since the last lost it",
        "one never had it",
        "none had it",
        "*",
        "**",
        "nobody",
    ],
)
def test_a_peer_is_down_once_no_replica_can_call_it(
    told: list[SourceState], since_ms: int | None, *, needs_login: bool
) -> None:
    (agreed,) = agreed_states([UP], [report(one) for one in told])
    if since_ms is None:
        assert agreed.down is None
    else:
        assert (agreed.down is not None, agreed.since_ms, agreed.needs_login) == (True, since_ms, needs_login)


def test_replicas_with_different_clocks_agree_on_one_time_for_their_own_peers() -> None:
    told = [
        report(DOWN, ahead_ms=3_600_000),
        report(SourceState("crm", "gone", 7_250_000, was_up=True), ahead_ms=-3_600_000),
    ]
    agreed = agreed_states([DOWN, SourceState("notes", None, 0)], told)
    assert [(one.key, one.down is None, one.since_ms) for one in agreed] == [
        ("crm", False, 3_650_000),
        ("notes", True, 0),
    ]
    assert unavailable_peers(agreed, 3_709_999, 60) == ()
    assert [one.since_ms for one in unavailable_peers(agreed, 3_710_000, 60)] == [3_600_000]


def test_a_source_state_remembers_that_the_source_was_up() -> None:
    state = SourceState("crm", "connecting", 1).then("refused", 2)
    assert (state.was_up, state.since_ms) == (False, 1)
    lost = state.then(None, 3).then("refused", 4)
    assert (lost.was_up, lost.since_ms) == (True, 4)


@pytest.mark.parametrize(
    "text", [b"", b"7", b"[]", b'{"crm": 1}', b'{"crm": ["gone", 1, true]}', b"\xff", b'{"a": []}']
)
def test_a_report_in_another_form_has_no_outages(text: bytes) -> None:
    assert outages_in(text) == {}
