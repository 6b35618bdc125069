"""Which cases of a test `make test` runs: the mark `smoke` names their ids, and the other cases become `long`.

The mark is for a test with many slow cases that run the same assertions. Its smoke cases reach each branch of the code
once; `make test-long` runs the other cases.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytest


def mark_long(items: Iterable[pytest.Item], *, are_all: bool) -> None:
    """Mark each case `long` that the mark `smoke` of its test does not name. `are_all` says that no case is left out.

    Raises:
        pytest.UsageError: a mark names a case that its test does not have.
    """
    named: defaultdict[str, set[str]] = defaultdict(set)
    known: defaultdict[str, set[str]] = defaultdict(set)
    for item in items:
        if mark := item.get_closest_marker("smoke"):
            test, _, case = item.nodeid.removesuffix("]").partition("[")
            case = case.removeprefix("like Windows").removeprefix(
                "-"
            )  # the event loop of a test with `any_loop`
            named[test].update(mark.args)
            known[test].add(case)
            if case not in mark.args:
                item.add_marker("long")
    for test, cases in named.items():
        if are_all and (missing := sorted(cases - known[test])):
            raise pytest.UsageError(f"{test} has no case {missing[0]!r} of its mark `smoke`")
