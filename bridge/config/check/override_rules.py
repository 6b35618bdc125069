"""What a face's overrides of its skills or tools cannot say. Pure, on plain values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from bridge.config.text.document import Fault
from bridge.config.text.positions import KeyPath

_GLOB: Final = re.compile(r"[*?\[]")

_UNIQUE: Final = {"skills": "id", "tools": "name"}
"""Where the overrides of a face stand, and the key in them that no two may share."""


def override_faults(path: KeyPath, face: Mapping[str, Any]) -> Iterator[Fault]:
    """What is wrong between the keys of the overrides of a face."""
    for table, unique in _UNIQUE.items():
        overrides = face.get(table)
        if isinstance(overrides, dict):
            yield from _name_faults((*path, table), overrides, unique)
            defaults = set(_with_defaults(overrides))
            for name, override in overrides.items():
                if isinstance(override, dict):
                    yield from _argument_faults((*path, table, name), override, defaults)


def _name_faults(path: KeyPath, overrides: Mapping[str, Any], unique: str) -> Iterator[Fault]:
    taken: dict[str, str] = {}
    for pattern, override in overrides.items():
        given = override.get(unique) if isinstance(override, dict) else None
        if not isinstance(given, str):
            continue
        where = (*path, pattern, unique)
        if _GLOB.search(pattern):
            message = f"`{unique}` is unique, and `{pattern}` may be several {path[-1]}"
            yield Fault(where, message, f"give each its `{unique}` under its exact name", on_key=True)
        elif given in taken:
            yield Fault(where, f"`{pattern}` and `{taken[given]}` have the same `{unique}`")
        taken.setdefault(given, pattern)


def _argument_faults(path: KeyPath, override: Mapping[str, Any], defaults: set[str]) -> Iterator[Fault]:
    """`defaults` are the arguments that have one in any override: several may speak of the same tool."""
    for name, rule in _arguments(override):
        if rule.get("hidden") is not True:
            continue
        where = (*path, "arguments", name, "hidden")
        if name not in defaults:
            message = f"`{name}` is hidden and has no `default`: nobody could give it a value"
            yield Fault(where, message, "add `default = ...`", on_key=True)
        if override.get("text_into") == name:
            yield Fault((*path, "text_into"), f"text cannot go into `{name}`: it is hidden")


def _with_defaults(overrides: Mapping[str, Any]) -> Iterator[str]:
    for override in overrides.values():
        yield from (name for name, rule in _arguments(override) if "default" in rule)


def _arguments(override: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    arguments = override.get("arguments") if isinstance(override, dict) else None
    for name, rule in arguments.items() if isinstance(arguments, dict) else ():
        if isinstance(rule, dict):
            yield name, rule
