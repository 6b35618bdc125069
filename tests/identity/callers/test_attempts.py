"""How much may be tried in a while, and for whom it counts."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from bridge.http.request_checks import RefusedError, site_of
from bridge.identity.callers.attempts import Attempts


def test_the_limit_of_attempts_passes_and_the_next_waits_until_the_first_is_forgotten() -> None:
    attempts = Attempts("Wait", most=2, seconds=60)
    for now in (0.0, 10.0):
        attempts.require("ann", now)
        attempts.note("ann", now)
    with pytest.raises(RefusedError, match="Wait") as refused:
        attempts.require("ann", 20.0)
    assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "41"})
    attempts.require("bob", 20.0)
    attempts.require("ann", 60.0)
    attempts.note("ann", 60.0)
    with pytest.raises(RefusedError):
        attempts.require("ann", 69.0)


def seconds_to_wait(attempts: Attempts, key: str, now: float) -> int:
    """What a refused attempt is told; 0 for one that may be made."""
    try:
        attempts.require(key, now)
    except RefusedError as exc:
        return int(exc.headers["Retry-After"])
    return 0


def test_attempts_count_while_they_are_judged_and_for_a_while_once_they_have_failed() -> None:
    attempts = Attempts("Wait", most=5, seconds=60)
    with ExitStack() as judged:
        made = [judged.enter_context(attempts.attempt(("a", "b"), 100.0 + number)) for number in range(5)]
        assert [seconds_to_wait(attempts, key, 105.0) for key in ("a", "b", "c")] == [1, 1, 0]
        with pytest.raises(RefusedError), attempts.attempt(("c", "b"), 105.0):
            pytest.fail("it may not be made")
        assert seconds_to_wait(attempts, "c", 105.0) == 0
        for one in made:
            one.fail()
        assert seconds_to_wait(attempts, "a", 105.0) == 56
    assert [seconds_to_wait(attempts, "b", now) for now in (159.0, 160.0)] == [2, 0]


def test_attempts_that_have_not_failed_are_forgotten() -> None:
    attempts = Attempts("Wait", most=2)
    for _ in range(9):
        with attempts.attempt(("a",), 100.0):
            pass
    assert seconds_to_wait(attempts, "a", 100.0) == 0


def test_the_key_with_the_oldest_attempt_is_forgotten_first() -> None:
    attempts = Attempts("Wait", most=1)
    for number in range(1024):
        attempts.note(str(number), 0.0)
    attempts.note("0", 1.0)
    attempts.note("one more", 1.0)
    attempts.require("1", 1.0)
    with pytest.raises(RefusedError):
        attempts.require("0", 1.0)


@pytest.mark.parametrize(
    ("address", "site"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_ipv6_addresses_of_one_site_count_together(address: str, site: str) -> None:
    assert site_of(address) == site
