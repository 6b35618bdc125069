"""Finds tables in a file as plain values. Any value may have the wrong type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from bridge.config.text.positions import KeyPath

MADE_OF: Final = {
    "tools_as_agent": ("tool_servers",),
    "agents_as_tools": ("agents", "catalogs", "tools_as_agent", "agents_as_agent"),
    "agents_as_agent": ("agents", "catalogs", "tools_as_agent"),
}
"""The sections that the tables of each section take their peers from."""


def tables_at(data: Mapping[str, Any], pattern: KeyPath) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """Yield the tables at a path. `*` stands for any name and any element."""
    values: list[tuple[KeyPath, Any]] = [((), data)]
    for step in pattern:
        values = [((*path, name), inner) for path, value in values for name, inner in _inner(value, step)]
    yield from ((path, value) for path, value in values if isinstance(value, dict))


def _inner(value: object, step: str | int) -> Iterable[tuple[str | int, object]]:
    if isinstance(value, list):
        return enumerate(value) if step == "*" else ()
    if not isinstance(value, dict):
        return ()
    return value.items() if step == "*" else [(step, value[step])] if step in value else ()


def table_in(data: Mapping[str, Any], section: str) -> dict[str, Any]:
    """The table of a section; empty if there is none."""
    table = data.get(section)
    return table if isinstance(table, dict) else {}
