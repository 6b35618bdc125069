"""The parser for JSON from the network, with bounds.

Pure. Python's own parsers accept NaN and any depth; this one refuses both.
"""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue
from pydantic_core import from_json

from bridge.a2a.model.errors import INVALID_REQUEST, PARSE_ERROR, TOO_LARGE, A2AError
from bridge.text.jsonvalues import DEFAULT_MAX_VALUES, exceeds_floats, holds_more_values, is_deeper

DEFAULT_MAX_DEPTH: Final = 64
"""The most levels of arrays and objects: enough for any schema that people write, and too few to exhaust the stack of a
recursive function. (protobuf's JSON parser stops at 100.)"""


def parse_json(
    text: bytes, max_depth: int = DEFAULT_MAX_DEPTH, max_values: int = DEFAULT_MAX_VALUES
) -> JsonValue:
    """A JSON text as plain values.

    Raises:
        A2AError: PARSE_ERROR, the text is not JSON or a number is out of range; INVALID_REQUEST, the text is nested too
            deeply; TOO_LARGE, it has too many values.
    """
    if holds_more_values(text, max_values):
        raise A2AError(TOO_LARGE, f"The JSON holds more than {max_values} values and keys")
    try:
        value: JsonValue = from_json(text, allow_inf_nan=False)
    except ValueError as exc:
        raise A2AError(PARSE_ERROR, f"Invalid JSON payload: {exc}") from exc
    # Few texts have that many brackets, so the depth is rarely counted.
    if text.count(b"[") + text.count(b"{") > max_depth and is_deeper(value, max_depth):
        raise A2AError(INVALID_REQUEST, f"The JSON is nested deeper than {max_depth} levels")
    if exceeds_floats(value):
        raise A2AError(PARSE_ERROR, "Invalid JSON payload: a number is out of range")
    return value
