"""Whatever comes from the network, what has to hold holds: a bounded, repeatable share of what `make fuzz` runs."""

from __future__ import annotations

from random import Random

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir

from tests.conftest import FULL_EXAMPLES
from tests.hostile.target import Target, watched
from tests.hostile.targets import TARGETS

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True, scope="module")
def _home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What Hypothesis writes down stays out of the tree."""
    set_hypothesis_home_dir(tmp_path_factory.mktemp("hypothesis"))


@pytest.mark.outside
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_no_input_brings_it_down(target: Target) -> None:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(watched(target)) as check:

        @settings(
            max_examples=max(1, target.examples * settings().max_examples // FULL_EXAMPLES),
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(chance=st.randoms(use_true_random=False))
        def holds(chance: Random) -> None:
            portal.call(check, target.case(chance))

        holds()
