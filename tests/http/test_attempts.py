"""How much may be tried in a while, and for whom it counts."""

from __future__ import annotations

import pytest

from bridge.http.attempts import Attempts
from bridge.http.request_checks import RefusedError, site_of


def test_as_many_as_may_be_pass_and_the_next_one_waits_until_the_first_is_forgotten() -> None:
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


def test_who_tried_longest_ago_is_forgotten_first() -> None:
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
def test_an_address_of_ipv6_counts_for_its_site(address: str, site: str) -> None:
    assert site_of(address) == site
