"""Plain JSON values, as both protocols hold them. Pure; knows neither."""

from __future__ import annotations

from pydantic import JsonValue

JsonObject = dict[str, JsonValue]


def is_deeper(value: JsonValue, levels: int) -> bool:
    """Whether arrays and objects are nested more than so many levels deep."""
    layer = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        if not layer:
            return False
        layer = [
            inner
            for outer in layer
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return bool(layer)
