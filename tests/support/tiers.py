"""Which cases of a test `make test` runs: the mark `smoke` names their ids, and the other cases become `long`.

The mark is for a test with many slow cases that run the same assertions. Its smoke cases reach each branch of the code
once; `make test-long` runs the other cases. In a name, `*` stands for any text: `JSONRPC*` names all cases of a
binding.
The mark of a module is for the tests that have such a case and no mark of their own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest


@dataclass
class _Marked:
    """A test or a module with the mark."""

    names: tuple[str, ...]
    of_tests: defaultdict[str, list[tuple[str, pytest.Item]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """The cases of each test."""


def mark_long(items: Iterable[pytest.Item], *, are_all: bool) -> None:
    """Mark each case `long` that the mark `smoke` of its test does not name. `are_all` says that no case is left out.

    Raises:
        pytest.UsageError: a mark names a case that is not there.
    """
    marked: dict[str, _Marked] = {}
    for item in items:
        for node, mark in item.iter_markers_with_node("smoke"):
            test, _, case = item.nodeid.removesuffix("]").partition("[")
            # The event loop of a test with `any_loop` stands first.
            case = case.removeprefix("like Windows").removeprefix("-")
            where = test if node is item else node.nodeid
            marked.setdefault(where, _Marked(mark.args)).of_tests[test].append((case, item))
            break
    for where, group in marked.items():
        known = [case for cases in group.of_tests.values() for case, _ in cases]
        missing = sorted(name for name in group.names if not any(_is(name, case) for case in known))
        if are_all and missing:
            raise pytest.UsageError(f"{where} has no case {missing[0]!r} of its mark `smoke`")
        for test, cases in group.of_tests.items():
            others = [item for case, item in cases if not any(_is(name, case) for name in group.names)]
            if test == where or len(others) < len(cases):
                for item in others:
                    item.add_marker("long")


def _is(name: str, case: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, name.split("*"))), case, re.DOTALL) is not None
