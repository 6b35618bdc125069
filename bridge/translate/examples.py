"""Makes example arguments for a tool, which show how to call the tool. Pure.

A value comes from the schema itself (a default, an example, a choice); else it is the simplest value of its type. The
example is checked against the schema: an example that the tool would refuse is worse than no example.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from pydantic import JsonValue

from bridge.concurrency import SlowWork
from bridge.mcp.patterns import PatternTooSlowError
from bridge.mcp.schema_keywords import matches
from bridge.mcp.schemas import UncheckableError, errors_of, resolved, validator_within
from bridge.mcp.tools import Tool
from bridge.text.jsonvalues import JsonObject
from bridge.translate.arguments import properties_of, required_of

MAX_DEPTH: Final = 8
"""The most levels of an example. Deeper arguments are for programs, which read the schema."""
_MAX_VALUES: Final = 300
"""The most values in one example. Schemas that refer to themselves would make more than anyone reads."""
_MAX_CHOICES: Final = 8
"""The most candidates that are tried for one value."""
_CHECK: Final = 2
"""The cost of a check, counted in values."""
_MAX_STEPS: Final = 1000
"""The most keywords that one check of an example evaluates. There are several checks for each tool, and many tools."""
_MAX_CHARACTERS: Final = 1000

PLAIN: Final = "text"
"""The example of a text whose schema says nothing more."""
_FORMATS: Final[Mapping[str, str]] = {
    "uri": "https://example.com",
    "uri-reference": "https://example.com",
    "iri": "https://example.com",
    "email": "name@example.com",
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "example.com",
    "json-pointer": "/name",
    "regex": "^a+$",
}
_QUOTED: Final = re.compile(r"""(['"`])([^'"`\n]{1,100})\1""")
"""An example in a description, as in (e.g., 'PROJ-123')."""
_IMPLIED: Final[Mapping[str, str]] = {
    "properties": "object",
    "required": "object",
    "items": "array",
    "prefixItems": "array",
    "minItems": "array",
    "minimum": "number",
    "maximum": "number",
}
"""The type that a keyword implies when a schema has no `type`. Without such a keyword, the type is string."""


def example_of(tool: Tool) -> JsonObject | None:
    """Arguments that fit a tool's schema; None when none could be made.

    The first attempt takes the first candidate of each value. Only if that example does not fit, a second attempt
    checks each value alone.
    """
    # The validator has the server's own schema, which may have arguments that are hidden from callers.
    object_schema: JsonObject = {**tool.input_schema, "type": "object"}
    for careful in (False, True):
        for made in _Maker(tool, careful=careful).value(object_schema):
            if isinstance(made, dict) and _fits(tool, object_schema, made):
                return made
    return None


def _fits(tool: Tool, schema: JsonObject, value: JsonValue) -> bool:
    try:
        return not errors_of(validator_within(tool.validator, schema), value, 1, _MAX_STEPS)
    except (UncheckableError, SlowWork):
        return False


class _Maker:
    """Makes one example."""

    def __init__(self, tool: Tool, *, careful: bool) -> None:
        """With `careful`, each value is checked against its own schema, and replaced by the next candidate if it does
        not fit."""
        self._tool = tool
        self._careful = careful
        self._left = _MAX_VALUES

    def value(self, schema: JsonValue, depth: int = 0) -> tuple[JsonValue, ...]:
        """The value for a schema, as a tuple of one. Empty when there is no candidate, or none fits."""
        self._left -= 1
        if depth > MAX_DEPTH or self._left < 0:
            return ()
        schema = self._whole(schema) if isinstance(schema, dict) else {}
        for candidate in islice(self._candidates(schema, depth), _MAX_CHOICES):
            if not self._careful or self._fits(schema, candidate):
                return (candidate,)
        return ()

    def _fits(self, schema: JsonObject, candidate: JsonValue) -> bool:
        self._left -= _CHECK
        return self._left >= 0 and _fits(self._tool, schema, candidate)

    def _whole(self, schema: JsonObject, depth: int = 0) -> JsonObject:
        """A schema merged with the targets of its references and with its `allOf`."""
        schema = resolved(schema, self._tool.input_schema)
        parts = schema.get("allOf")
        for part in parts if isinstance(parts, list) and depth < MAX_DEPTH else ():
            self._left -= 1
            if isinstance(part, dict) and self._left >= 0:
                schema = _both(schema, self._whole(part, depth + 1))
        return schema

    def _candidates(self, schema: JsonObject, depth: int) -> Iterator[JsonValue]:
        yield from (schema[key] for key in ("default", "const") if key in schema)
        for key in ("examples", "enum"):
            values = schema.get(key)
            yield from values if isinstance(values, list) else ()
        for key in ("anyOf", "oneOf"):
            choices = schema.get(key)
            for choice in choices if isinstance(choices, list) else ():
                if isinstance(choice, dict):
                    rest = {name: value for name, value in schema.items() if name != key}
                    yield from self.value(_both(self._whole(choice), rest), depth + 1)
        for kind in _kinds_of(schema):
            yield from self._of_kind(kind, schema, depth)

    def _of_kind(self, kind: str, schema: JsonObject, depth: int) -> Iterator[JsonValue]:
        if kind == "object":
            yield from self._objects(schema, depth)
        elif kind == "array":
            yield from self._arrays(schema, depth)
        else:
            yield from _SCALARS.get(kind, _texts)(schema)

    def _objects(self, schema: JsonObject, depth: int) -> Iterator[JsonValue]:
        properties, required = properties_of(schema), required_of(schema)
        needed: JsonObject = {}
        for name in required:
            for value in self.value(properties.get(name, {}), depth + 1):
                needed[name] = value
        if len(needed) < len(frozenset(required)):
            return
        yield needed
        for name in [name for name in properties if name not in needed]:
            for value in self.value(properties[name], depth + 1):
                yield {**needed, name: value}

    def _arrays(self, schema: JsonObject, depth: int) -> Iterator[JsonValue]:
        first = schema.get("prefixItems")
        begun = first if isinstance(first, list) else []
        items = [value for schema in begun for value in self.value(schema, depth + 1)]
        least = max(_whole_number(schema.get("minItems"), 0), 0 if items else 1)
        if least > len(items) and least <= _MAX_CHOICES:
            items += self.value(schema.get("items", {}), depth + 1) * (least - len(items))
        yield from (items, []) if items else ([],)


def _both(weaker: JsonObject, stronger: JsonObject) -> JsonObject:
    """Two schemas for the same value, merged."""
    both = {**weaker, **stronger}
    if properties := {**properties_of(weaker), **properties_of(stronger)}:
        both["properties"] = {**properties}
    if required := dict.fromkeys((*required_of(weaker), *required_of(stronger))):
        both["required"] = [*required]
    return both


def _kinds_of(schema: JsonObject) -> Sequence[str]:
    named = schema.get("type")
    kinds = named if isinstance(named, list) else [named]
    known = [kind for kind in kinds if isinstance(kind, str)]
    return known or [next((kind for keyword, kind in _IMPLIED.items() if keyword in schema), "string")]


def _numbers(schema: JsonObject) -> Iterator[JsonValue]:
    """Candidates: the least allowed number, the greatest, and 1, each as a multiple if the schema asks for a
    multiple."""
    step = schema.get("multipleOf")
    bounds = (
        (schema.get("minimum"), 0),
        (schema.get("exclusiveMinimum"), 1),
        (schema.get("maximum"), 0),
        (schema.get("exclusiveMaximum"), -1),
    )
    for bound, beside in (*bounds[:2], (1, 0), *bounds[2:], (_between(schema), 0), (0, 0)):
        if isinstance(bound, int | float) and not isinstance(bound, bool):
            number = bound + beside
            if isinstance(step, int | float) and step > 0 and math.isfinite(number / step):
                number = math.ceil(number / step) * step
            yield number


def _between(schema: JsonObject) -> float | None:
    low, high = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    low, high = schema.get("minimum", low), schema.get("maximum", high)
    return low / 2 + high / 2 if isinstance(low, int | float) and isinstance(high, int | float) else None


def _integers(schema: JsonObject) -> Iterator[JsonValue]:
    for number in _numbers(schema):
        yield math.ceil(number) if isinstance(number, float) and math.isfinite(number) else number


def _texts(schema: JsonObject) -> Iterator[JsonValue]:
    """Candidates: a text in the schema's format. With a pattern, only the texts in quotes in the description."""
    least = min(_whole_number(schema.get("minLength"), 0), _MAX_CHARACTERS)
    most = _whole_number(schema.get("maxLength"), _MAX_CHARACTERS)
    pattern, description = schema.get("pattern"), schema.get("description")
    if isinstance(pattern, str):
        quoted = [text for _, text in _QUOTED.findall(description)] if isinstance(description, str) else []
        # A pattern that cannot be matched in linear time passes every check, so it does not show that a text fits. No
        # call waits for the example, so only cheap patterns are compiled.
        with suppress(PatternTooSlowError):
            yield from (text for text in quoted if matches(pattern, text, unknown=False))
        return
    plain = _FORMATS.get(str(schema.get("format")), "dGV4dA==" if "contentEncoding" in schema else PLAIN)
    yield (plain * (-(-least // len(plain)) if least > len(plain) else 1))[
        : max(least, min(most, len(plain)))
    ]


def _whole_number(value: JsonValue, otherwise: int) -> int:
    return int(value) if isinstance(value, int | float) and abs(value) < 2**31 else otherwise


_SCALARS: Final[Mapping[str, Callable[[JsonObject], Iterator[JsonValue]]]] = {
    "integer": _integers,
    "number": _numbers,
    "boolean": lambda _: iter((True, False)),
    "null": lambda _: iter((None,)),
    "string": _texts,
}
"""The function that gives candidates, the simplest first, for each type."""
