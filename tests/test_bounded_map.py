"""A map that drops its oldest entry."""

from __future__ import annotations

from bridge.bounded_map import BoundedMap


def test_an_entry_too_many_drops_the_oldest_and_an_entry_set_again_is_the_newest() -> None:
    entries = BoundedMap[str, int](2)
    entries["a"] = 1
    entries["b"] = 2
    entries["a"] = 3
    entries["c"] = 4
    assert [*entries.items()] == [("a", 3), ("c", 4)]


def test_no_way_to_set_an_entry_passes_the_bound() -> None:
    entries = BoundedMap[str, int](1)
    entries.update(a=1, b=2)
    entries.setdefault("c", 3)
    assert [*entries.items()] == [("c", 3)]
