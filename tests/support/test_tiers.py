"""The mark `smoke` leaves the other cases of a test to `make test-long`."""

from __future__ import annotations

import pytest

from tests.support.tiers import mark_long

pytestmark = pytest.mark.smoke("of the module*")


@pytest.mark.smoke("first")
@pytest.mark.parametrize("case", ["first", "second"])
def test_a_case_that_the_mark_does_not_name_is_long(case: str, request: pytest.FixtureRequest) -> None:
    is_long = request.node.get_closest_marker("long") is not None
    assert is_long is (case != "first")


@pytest.mark.smoke("first*", "*last")
@pytest.mark.parametrize("case", ["first-a", "first.b", "the last", "last but one"])
def test_a_mark_names_cases_by_a_part_of_their_ids(case: str, request: pytest.FixtureRequest) -> None:
    is_long = request.node.get_closest_marker("long") is not None
    assert is_long is (case == "last but one")


@pytest.mark.parametrize("case", ["of the module", "another"])
def test_the_mark_of_a_module_is_for_tests_that_have_such_a_case(
    case: str, request: pytest.FixtureRequest
) -> None:
    is_long = request.node.get_closest_marker("long") is not None
    assert is_long is (case == "another")


@pytest.mark.parametrize("case", ["first"])
def test_a_mark_that_names_no_case_is_refused_where_all_cases_are_known(
    case: str, request: pytest.FixtureRequest
) -> None:
    request.node.add_marker(pytest.mark.smoke(case, "another"))
    with pytest.raises(pytest.UsageError, match="has no case 'another' of its mark `smoke`"):
        mark_long([request.node], are_all=True)
    mark_long([request.node], are_all=False)
