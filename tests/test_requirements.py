"""The two-way check: a test proves only what is required (see conftest.py), and all of that is proved."""

from __future__ import annotations

from tests.requirements import REQUIREMENTS


def test_every_requirement_is_proved_by_a_test(proved: set[str]) -> None:
    unproved = sorted(set(REQUIREMENTS) - proved)
    assert not unproved, f"requirements that no test proves: {', '.join(unproved)}"
