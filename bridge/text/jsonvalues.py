"""JSON values, which both protocols carry. Pure; knows neither protocol."""

from __future__ import annotations

import json
import sys
from typing import Final

from pydantic import JsonValue, ValidationError
from pydantic_core import PydanticSerializationError, to_json

JsonObject = dict[str, JsonValue]

DEFAULT_MAX_VALUES: Final = 250_000
"""The most values and keys in one JSON text. It takes a quarter of a second to read and walk so many values. A text of
16 MB can hold 8 million values."""

_LARGEST: Final = sys.float_info.max
_MARKS: Final = (b",", b":", b"[", b"{")


def is_deeper(value: JsonValue, levels: int) -> bool:
    """Whether arrays and objects are nested deeper than `levels`."""
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
    """Whether a value holds NaN, or a number too large for readers that have only floats."""
    values = [value]
    for inner in values:
        if type(inner) is str:  # the most frequent type, and the fastest check
            continue
        if isinstance(inner, dict):
            values.extend(inner.values())
        elif isinstance(inner, list):
            values.extend(inner)
        elif isinstance(inner, int | float) and not -_LARGEST <= inner <= _LARGEST:
            return True
    return False


def is_same(first: JsonValue, other: JsonValue) -> bool:
    """Whether two values are equal as JSON: 1 equals 1.0, and `true` equals neither, unlike in Python."""
    if isinstance(first, bool) or isinstance(other, bool):
        return first is other
    if isinstance(first, dict) and isinstance(other, dict):
        return first.keys() == other.keys() and all(is_same(first[key], other[key]) for key in first)
    if isinstance(first, list) and isinstance(other, list):
        return len(first) == len(other) and all(map(is_same, first, other))
    return first == other


def values_in(value: JsonValue) -> int:
    """Count a value and all values inside it."""
    if isinstance(value, dict | list):
        return 1 + sum(values_in(inner) for inner in (value.values() if isinstance(value, dict) else value))
    return 1


def holds_more_values(text: bytes, limit: int) -> bool:
    """Whether a JSON text holds more than `limit` values and keys, counted in its bytes without parsing it.

    An empty array or object counts twice. A text with fewer bytes than the limit is not searched, and a text of a few
    long strings is searched for four characters only. (16 MB take 80 ms at most.)
    """
    if len(text) <= limit or _marks(text) < limit:
        return False
    if b"\0" in text:  # UTF-16 or 32, in which a byte alone does not tell where a string ends
        return True
    bare = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A string is a value or a key. The text is split at quotation marks only when they are few.
    return bare.count(b'"') > 2 * limit or _marks(b"".join(bare.split(b'"')[::2])) >= limit


def _marks(text: bytes) -> int:
    """Count the characters that precede a value or follow a key."""
    return sum(map(text.count, _MARKS))


def json_bytes(value: JsonValue) -> bytes:
    """A value as JSON in UTF-8. A lone surrogate becomes the replacement character: UTF-8 cannot carry it, and
    JavaScript leaves one where it cuts a text."""
    try:
        return to_json(value)
    except PydanticSerializationError:
        with_surrogates = json.dumps(value, ensure_ascii=False)
        return with_surrogates.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def shortened_json(value: object) -> str:
    """A value as JSON for a message, cut when it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:70]} ..."


def validation_faults(exc: ValidationError, *, with_values: bool = True) -> tuple[str, ...]:
    """The invalid fields of a validation error, ten at most, with their values."""
    faults = []
    for error in exc.errors(include_url=False, include_context=False):
        field = ".".join(str(step) for step in error["loc"])
        if error["type"] == "missing":
            faults.append(f"{field} is missing")
        else:
            words = error["msg"].removeprefix("Value error, ")
            value = f"; found {shortened_json(error['input'])}" if with_values else ""
            faults.append(f"{field or 'the whole'}: {words}{value}")
    return tuple(faults[:10])


def words_of(exc: Exception) -> str:
    """An error in one line for a person. A validation error becomes a list of its invalid fields instead of pydantic's
    long text. Values are left out, since they may be secrets."""
    if isinstance(exc, ValidationError):
        return "; ".join(validation_faults(exc, with_values=False))
    return str(exc)
