"""Every attack stays within its bounds, and honest callers are served: what `make attacks` runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.benchmarks.workplace import Workplace, workplace
from tests.hostile.attacks.attack import Attack
from tests.hostile.attacks.every import ATTACKS
from tests.hostile.attacks.running import run_attack
from tests.support.small_disk import NoSmallDiskError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory and CPU time of the bridge are read in /proc"),
]


@pytest.fixture(scope="module")
def place() -> Iterator[Workplace]:
    """Where the bridges run."""
    with workplace() as place:
        yield place


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_an_attack_stays_within_its_bounds_and_honest_callers_are_served(
    attack: Attack, place: Workplace
) -> None:
    try:
        report = await run_attack(attack, place)
    except NoSmallDiskError as exc:
        pytest.skip(str(exc))
    assert not report.faults, report
