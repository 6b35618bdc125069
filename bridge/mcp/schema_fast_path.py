"""Quick checks for plainly valid schemas, and for values that are plainly valid against a schema. Pure.

The library checks a schema by the meta-schema of its dialect. It follows eight references at each subschema, which
takes a hundred times as long as checking the keywords. For most tools, checking the keywords is enough. Most arguments
are flat objects of texts and numbers: a quick check takes a tenth of the time of the library.

Spec: JSON Schema draft-07, 2019-09 and 2020-12.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from jsonschema import Draft7Validator, Draft201909Validator, Draft202012Validator
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from pydantic import JsonValue

from bridge.text.jsonvalues import JsonObject


def is_plainly_valid(schema: JsonObject) -> bool:
    """Whether a schema is plainly valid. False means that only a check by its dialect can tell. The caller bounds the
    depth."""
    return is_plain(schema) and validator_for(schema, default=Draft202012Validator) in _DIALECTS


def is_plain(schema: JsonValue) -> bool:
    """Whether a subschema is plainly valid in all these dialects."""
    if not isinstance(schema, dict):
        return isinstance(schema, bool)
    return all(_PLAIN.get(keyword, _anything)(value) for keyword, value in schema.items())


def plainly_accepts(schema: JsonValue, value: JsonValue) -> bool:
    """Whether an object is plainly valid against a schema that has only types and required properties.

    False means that only the library can tell.
    """
    if not isinstance(value, dict) or not isinstance(schema, dict) or not schema.keys() <= _OF_FLAT_OBJECTS:
        return False
    properties, required, more = (
        schema.get(name) for name in ("properties", "required", "additionalProperties")
    )
    if schema.get("type") != "object" or not isinstance(properties, dict) or more not in (None, True, False):
        return False
    if required is not None and not (isinstance(required, list) and all(name in value for name in required)):
        return False
    return all(
        _is_of_plain_type(properties[name], item) if name in properties else more is not False
        for name, item in value.items()
    )


def _is_of_plain_type(schema: JsonValue, value: JsonValue) -> bool:
    if not isinstance(schema, dict) or not schema.keys() <= _OF_FLAT_PROPERTIES:
        return False
    kind = schema.get("type")
    return isinstance(kind, str) and type(value) in _PYTHON_TYPES.get(kind, ())


def _anything(_: JsonValue) -> bool:
    return True


def _never(_: JsonValue) -> bool:
    return False


def _is_text(value: JsonValue) -> bool:
    return isinstance(value, str)


def _is_bool(value: JsonValue) -> bool:
    return isinstance(value, bool)


def _is_number(value: JsonValue) -> bool:
    return type(value) in (int, float)


def _is_above_zero(value: JsonValue) -> bool:
    return isinstance(value, int | float) and value is not True and value > 0


def _is_count(value: JsonValue) -> bool:
    return type(value) is int and value >= 0


def _is_list(value: JsonValue) -> bool:
    return isinstance(value, list)


def _are_names(value: JsonValue) -> bool:
    return isinstance(value, list) and all(map(_is_text, value)) and len({*map(str, value)}) == len(value)


def _is_type(value: JsonValue) -> bool:
    if isinstance(value, list):
        return bool(value) and _are_names(value) and _TYPES.issuperset(map(str, value))
    return isinstance(value, str) and value in _TYPES


def _are_plain(value: JsonValue) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_plain, value))


def _are_plain_by_name(value: JsonValue) -> bool:
    return isinstance(value, dict) and all(map(is_plain, value.values()))


_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_ANNOTATIONS: Final = frozenset({"title", "description", "default", "examples", "$comment", "deprecated"})
_OF_FLAT_PROPERTIES: Final = _ANNOTATIONS | {"type"}
_OF_FLAT_OBJECTS: Final = _OF_FLAT_PROPERTIES | {"$schema", "properties", "required", "additionalProperties"}
_PYTHON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
"""The Python types of each JSON type. (1.0 is an integer, too; the library handles it.)"""
_DIALECTS: Final[frozenset[type[Validator]]] = frozenset(
    {Draft7Validator, Draft201909Validator, Draft202012Validator}
)
_PLAIN: Final[Mapping[str, Callable[[JsonValue], bool]]] = {
    **dict.fromkeys(("$schema", "$ref", "$comment", "title", "description", "format", "pattern"), _is_text),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), _is_text),
    **dict.fromkeys(("deprecated", "readOnly", "writeOnly", "uniqueItems"), _is_bool),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _is_count),
    **dict.fromkeys(("minProperties", "maxProperties", "minContains", "maxContains"), _is_count),
    **dict.fromkeys(("enum", "examples"), _is_list),
    **dict.fromkeys(("properties", "patternProperties", "$defs", "definitions"), _are_plain_by_name),
    "dependentSchemas": _are_plain_by_name,
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _are_plain),
    **dict.fromkeys(("additionalProperties", "items", "contains", "propertyNames", "not"), is_plain),
    **dict.fromkeys(("if", "then", "else", "unevaluatedProperties", "unevaluatedItems"), is_plain),
    **dict.fromkeys(("additionalItems", "contentSchema"), is_plain),
    **dict.fromkeys(("dependentRequired", "dependencies", "$id", "$anchor"), _never),
    **dict.fromkeys(("$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor"), _never),
    "$vocabulary": _never,
    "multipleOf": _is_above_zero,
    "required": _are_names,
    "type": _is_type,
}
"""Checks that the value of a keyword is valid in all these dialects. Other keywords may have any value."""
