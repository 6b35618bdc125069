"""The schemas of a listed tool in a form that every host can read. Pure.

A host of the TypeScript SDK 1.x reads each root field and compiles each output schema when it lists tools. A single
pattern that JavaScript cannot read makes it lose the whole list. So a keyword that breaks a host is left out of the
shown schema. The rest accepts at least as much; if this is not certain, the tool is shown without an output schema.

MCP up to 2025-11-25 has only output schemas of objects, and only objects as structured content: see `for_legacy`.

Spec: MCP 2026-07-28 and 2025-11-25, server/tools (Tool, output schema); ECMA-262, patterns with the flag `u`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Final

from jsonschema.protocols import Validator
from pydantic import JsonValue

from bridge.errors import echoed
from bridge.mcp.schemas import (
    checkable,
    is_narrowed_by_less,
    resolved,
    subschemas,
    unknown_dialect,
    validator_of,
)
from bridge.text.jsonvalues import JsonObject

WRAPPED: Final = "result"
"""The field that wraps a value that is not an object for a legacy host, as in the SDKs of MCP."""

_NO_OUTPUT: Final = "its output schema is left out"
_ONLY_OBJECTS: Final = (
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
)
"""Keywords that show that a schema is for objects, even if it does not name the type."""
_OLD_DIALECTS: Final = ("http://json-schema.org/draft-03/", "http://json-schema.org/draft-04/")
"""Dialects whose keywords have other types. No host knows these dialects."""

_SINGLE: Final = (
    r"(?:[^\\\]\[-]|\\[fnrtv^$\\.*+?()\[\]{}|/-]|\\x[0-9a-fA-F]{2}|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4})"
)
_SET: Final = r"(?:\\[dDsSwW]|\\[pP]\{[LMNPSZC][a-z]?\})"
_TOKEN: Final = re.compile(
    rf"(?P<class>\[\^?-?(?:{_SET}(?!-[^\]])|{_SINGLE}-{_SINGLE}|{_SINGLE})*-?\])"
    rf"|(?P<atom>[^\\^$.*+?()\[\]{{}}|]|\.|{_SET}|\\[fnrtv^$\\.*+?()\[\]{{}}|/]|\\x[0-9a-fA-F]{{2}}"
    r"|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4})"
    r"|(?P<open>\((?:\?:)?(?!\?))|(?P<look>\(\?<?[=!])|(?P<close>\))"
    r"|(?P<repeat>(?:[*+?]|\{\d{1,9}(?:,\d{0,9})?\})\??)|(?P<place>[\^$|]|\\[bB])",
    re.DOTALL,
)
"""The tokens of patterns that all engines read alike. A pattern with other tokens may be fine, too."""
_RANGE: Final = re.compile(rf"({_SINGLE})-({_SINGLE})", re.DOTALL)
_CONTROLS: Final = {"\\f": "\f", "\\n": "\n", "\\r": "\r", "\\t": "\t", "\\v": "\v"}
_BOUNDS: Final = re.compile(r"\{(\d+),(\d+)\}")


@dataclass(frozen=True, slots=True)
class ShownOutput:
    """The output schema that hosts see."""

    schema: JsonObject | None = None
    """The schema; None if there is none that all hosts can read."""
    validator: Validator | None = None
    why: str | None = None
    """Why the schema is not the whole listed schema; None if it is."""


def shown_output(schema: JsonObject) -> ShownOutput:
    """The part of an output schema that every host can compile."""
    if str(schema.get("$schema", "")).startswith(_OLD_DIALECTS):
        return ShownOutput(why=f"{_NO_OUTPUT}: hosts do not know its dialect, {schema['$schema']}")
    try:
        _, rest, why = checkable(schema)
        rest, odd = _readable(rest)
        validator = validator_of(rest)
    except ValueError as exc:
        return ShownOutput(why=f"{_NO_OUTPUT}: {exc}")
    why = why or odd
    if why is not None and not _says_something(rest):
        return ShownOutput(why=f"{_NO_OUTPUT}: {why}")
    return ShownOutput(
        rest, validator, None if why is None else f"a part of its output schema is left out: {why}"
    )


def shown_input(schema: JsonObject) -> JsonObject:
    """An input schema with a root that every host can read. Hosts do not compile input schemas. A schema without a
    fault is returned unchanged."""
    root = _readable_root(schema)
    return root if "type" in root else {"type": "object", **root}


def for_legacy(tool: JsonObject) -> JsonObject:
    """A listed tool for a client before MCP 2026-07-28. An output schema that is not for objects is left out."""
    schema = tool.get("outputSchema")
    if not isinstance(schema, dict) or schema.get("type") == "object":
        return tool
    target = resolved(schema, schema)
    if target.get("type") == "object" or (
        "type" not in target and any(keyword in target for keyword in _ONLY_OBJECTS)
    ):
        return {**tool, "outputSchema": {**schema, "type": "object"}}
    return {key: value for key, value in tool.items() if key != "outputSchema"}


def result_for_legacy(result: JsonObject) -> JsonObject:
    """A tool's result for such a client. Structured content that is not an object is wrapped into an object."""
    if "structuredContent" not in result or isinstance(value := result["structuredContent"], dict):
        return result
    return {**result, "structuredContent": {WRAPPED: value}}


def _readable_root(schema: JsonObject) -> JsonObject:
    """A schema whose `$schema`, `properties` and `required` have the types that hosts require."""
    changed: JsonObject = {}
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if isinstance(properties, dict) and not all(isinstance(schema, dict) for schema in properties.values()):
        changed["properties"] = {name: _as_object(schema) for name, schema in properties.items()}
    if isinstance(required, list) and not all(isinstance(name, str) for name in required):
        changed["required"] = [name for name in required if isinstance(name, str)]
    wrong = {"properties"} if not isinstance(properties, dict) else set()
    wrong |= {"required"} if not isinstance(required, list) else set()
    wrong |= {"$schema"} if not isinstance(schema.get("$schema", ""), str) else set()
    if not changed and not wrong:
        return schema
    return {key: value for key, value in {**schema, **changed}.items() if key not in wrong}


def _as_object(schema: JsonValue) -> JsonValue:
    """A schema as an object; it may be `true` or `false`. A value that is not a schema counts as `true`."""
    if isinstance(schema, dict):
        return schema
    return {"not": {}} if schema is False else {}


def _readable(schema: JsonObject) -> tuple[JsonObject, str | None]:
    """A valid schema without the keywords that break the compilers of hosts, and why the first keyword was dropped."""
    left = _without_ids(schema)
    dropped: list[str] = []
    for subschema in subschemas(left):
        dropped += _drop_unreadable(subschema)
    if dialect := unknown_dialect(left):
        del left["$schema"]  # the bridge reads it as 2020-12, too
        dropped.append(f"hosts do not know the dialect {echoed(dialect)}")
    if dropped and is_narrowed_by_less(schema):
        return {}, dropped[0]
    return _readable_root(left), dropped[0] if dropped else None


def _without_ids(schema: JsonObject) -> JsonObject:
    """A copy of a schema without ids to which nothing refers. Hosts mix up tools whose schemas share an id."""
    left = deepcopy(schema)
    for subschema in subschemas(left):
        subschema.pop("$id", None)
    try:
        validator_of(left)
    except ValueError:
        return deepcopy(schema)
    return left


def _drop_unreadable(schema: JsonObject) -> Iterator[str]:
    schema.pop("id", None)  # hosts' compilers refuse it, and it has no meaning from 2019-09 on
    if "nullable" in schema and ("type" not in schema or not isinstance(schema["nullable"], bool)):
        del schema["nullable"]  # a keyword of OpenAPI without meaning in JSON Schema
    if schema.get("enum") == []:
        del schema["enum"]
        yield "hosts cannot read an enum without values"
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not is_read_by_all(pattern):
        del schema["pattern"]
        yield f"hosts cannot read the pattern {echoed(pattern)}"


def _says_something(schema: JsonObject) -> bool:
    return bool(schema.keys() - {"$schema", "title", "description", "$defs", "definitions"})


def is_read_by_all(pattern: str) -> bool:
    """Whether every regular expression engine can read this pattern. Also False for some patterns that every engine
    reads."""
    depth: list[bool] = []  # for each open group: whether a repetition may follow
    place, may_repeat = 0, False
    while place < len(pattern):
        token = _TOKEN.match(pattern, place)
        if token is None or not _is_in_order(token):
            return False
        place = token.end()
        match token.lastgroup:
            case "open" | "look":
                depth.append(token.lastgroup == "open")
                may_repeat = False
            case "close" if not depth:
                return False
            case "close":
                may_repeat = depth.pop()
            case "repeat" if not may_repeat:
                return False
            case kind:
                may_repeat = kind in ("class", "atom")
    return not depth


def _is_in_order(token: re.Match[str]) -> bool:
    """Whether the ends of a range in a class, or of a repetition, are in ascending order, as far as they are known."""
    if token.lastgroup == "repeat" and (bounds := _BOUNDS.match(token.group())):
        return int(bounds[1]) <= int(bounds[2])
    if token.lastgroup != "class":
        return True
    return all(_code(first) <= _code(last) for first, last in _RANGE.findall(token.group()))


def _code(single: str) -> int:
    """The code point of a character in a class. The character may be escaped."""
    if single[:2] in ("\\x", "\\u"):
        return int(single[2:], 16)
    return ord(_CONTROLS.get(single, single[-1]))
