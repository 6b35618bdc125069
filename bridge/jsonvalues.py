"""Plain JSON values, as both protocols hold them. Pure; knows neither."""

from __future__ import annotations

import json
import sys
from typing import Final

from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, to_json

JsonObject = dict[str, JsonValue]

_LARGEST: Final = sys.float_info.max


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


def exceeds_floats(value: JsonValue) -> bool:
    """Whether a number is none (NaN), or so large that readers which have only floats could not take it in."""
    if isinstance(value, dict | list):
        return any(exceeds_floats(inner) for inner in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, int | float) and not -_LARGEST <= value <= _LARGEST


def is_same(one: JsonValue, other: JsonValue) -> bool:
    """Whether two values are the same JSON: 1 and 1.0 are, and true, which Python takes for 1, is neither."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return one == other


def values_in(value: JsonValue) -> int:
    """How many values a value is made of, with itself."""
    if isinstance(value, dict | list):
        return 1 + sum(values_in(inner) for inner in (value.values() if isinstance(value, dict) else value))
    return 1


def written(value: JsonValue) -> bytes:
    """A value as JSON. Half a character, which JavaScript leaves where it cuts a text and no UTF-8 can carry, becomes
    the replacement character."""
    try:
        return to_json(value)
    except PydanticSerializationError:
        halved = json.dumps(value, ensure_ascii=False)
        return halved.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
