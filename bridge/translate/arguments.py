"""Arguments of a call against the tool's schema: what is wrong, what is missing, and how to ask for it. Pure.

Spec: MCP server/tools (inputSchema); MCP client/elicitation (the flat schemas of a form).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from jsonschema import ValidationError
from pydantic import JsonValue

from bridge.a2a.models import JsonObject
from bridge.mcp.tools import Tool

MAX_PROBLEMS: Final = 20
"""How many faults one question names: a person mends these first."""

_FLAT: Final = ("string", "number", "integer", "boolean")
_WORDS_FOR_BOOLEANS: Final[Mapping[str, bool]] = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True, slots=True)
class Problem:
    """One property that is missing or wrong."""

    name: str
    """The property at the top of the arguments; "" when the arguments as a whole are at fault."""
    message: str


def problems_of(tool: Tool, arguments: JsonObject) -> tuple[Problem, ...]:
    """What the tool's schema finds wrong, in the order of its properties."""
    found: dict[str, Problem] = {}
    for error in tool.validator.iter_errors(arguments):
        for problem in _problems_from(error):
            found.setdefault(problem.name, problem)
    order = {name: place for place, name in enumerate(properties_of(tool.input_schema))}
    ordered = sorted(found.values(), key=lambda problem: order.get(problem.name, len(order)))
    return tuple(ordered[:MAX_PROBLEMS])


def properties_of(schema: JsonObject) -> dict[str, JsonObject]:
    """The properties at the top of a schema."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: prop if isinstance(prop, dict) else {} for name, prop in properties.items()}


def required_of(schema: JsonObject) -> tuple[str, ...]:
    """The names of the properties that a schema requires."""
    required = schema.get("required")
    return tuple(name for name in required if isinstance(name, str)) if isinstance(required, list) else ()


def form_for(tool: Tool, problems: Iterable[Problem]) -> JsonObject:
    """The schema of a form that asks for the properties at fault.

    Flat properties are asked for as they are; a nested one becomes a text field that takes JSON.
    """
    properties = properties_of(tool.input_schema)
    asked = [problem.name for problem in problems if problem.name in properties]
    fields: JsonObject = {name: _field_for(properties[name]) for name in asked}
    required: list[JsonValue] = [name for name in required_of(tool.input_schema) if name in fields]
    return {"type": "object", "properties": fields, "required": required}


def describe(tool: Tool, problem: Problem) -> str:
    """One line for a person: the property, its type, what it is for, and what is wrong."""
    if not problem.name:
        return problem.message
    prop = properties_of(tool.input_schema).get(problem.name, {})
    title, description = prop.get("title"), prop.get("description")
    words = [type_words(prop)]
    if problem.name in required_of(tool.input_schema):
        words.append("required")
    line = f"{problem.name} ({', '.join(words)})"
    if isinstance(title, str) and title.lower() != problem.name.lower():
        line += f" {title}"
    if isinstance(description, str):
        line += f": {description}"
    return f"{line} [{problem.message}]"


def type_words(schema: JsonObject) -> str:
    """A schema's type in words: `string`, `one of "a", "b"`, `array of number`."""
    if isinstance(choices := schema.get("enum"), list):
        return "one of " + ", ".join(json.dumps(choice, ensure_ascii=False) for choice in choices[:20])
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(str(one) for one in kind)
    if kind == "array":
        items = schema.get("items")
        return f"array of {type_words(items)}" if isinstance(items, dict) and items else "array"
    return kind if isinstance(kind, str) else "any value"


def coerced(text: str, schema: JsonObject) -> JsonValue:
    """A value that a person typed, as the schema's type wants it; the text itself when it does not fit."""
    kinds = schema.get("type")
    wanted = [str(kind) for kind in kinds] if isinstance(kinds, list) else [str(kinds)] if kinds else []
    if "string" in wanted or (not wanted and "enum" not in schema):
        return text
    if "boolean" in wanted and text.strip().lower() in _WORDS_FOR_BOOLEANS:
        return _WORDS_FOR_BOOLEANS[text.strip().lower()]
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return text
    return value


def coerced_fields(answer: JsonObject, tool: Tool) -> JsonObject:
    """The answer to a form: nested properties, for which it asked as JSON text, are parsed."""
    properties = properties_of(tool.input_schema)
    return {
        name: coerced(value, properties.get(name, {})) if isinstance(value, str) else value
        for name, value in answer.items()
    }


def example_of(schema: JsonValue, depth: int = 0) -> JsonValue:
    """A value that a schema would take: its default or example, else the plainest of its type."""
    if not isinstance(schema, dict) or depth > 4:
        return "value"
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if isinstance(values := schema.get(key), list) and values:
            return values[0]
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(key), list) and choices:
            return example_of(choices[0], depth + 1)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        properties = properties_of(schema)
        return {name: example_of(properties.get(name, {}), depth + 1) for name in required_of(schema)}
    if kind == "array":
        return [example_of(schema.get("items", {}), depth + 1)]
    return _plainest(str(kind), schema)


def _plainest(kind: str, schema: JsonObject) -> JsonValue:
    match kind:
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return {"uri": "https://example.com", "email": "name@example.com", "date": "2026-01-31"}.get(
                str(schema.get("format")), "text"
            )


def _field_for(prop: JsonObject) -> JsonObject:
    items = prop.get("items")
    is_choice = (
        prop.get("type") == "array" and isinstance(items, dict) and ("enum" in items or "anyOf" in items)
    )
    if prop.get("type") in _FLAT or is_choice or ("enum" in prop and "type" not in prop):
        return prop
    field: JsonObject = {key: prop[key] for key in ("title",) if key in prop}
    said = prop.get("description")
    field["type"] = "string"
    field["description"] = f"{said} (as JSON)" if isinstance(said, str) else f"{type_words(prop)}, as JSON"
    if "default" in prop:
        field["default"] = json.dumps(prop["default"], ensure_ascii=False)
    return field


def _problems_from(error: ValidationError) -> Iterable[Problem]:
    if error.absolute_path:
        where = "/".join(str(step) for step in list(error.absolute_path)[1:])
        message = f"at {where}: {error.message}" if where else error.message
        yield Problem(str(error.absolute_path[0]), _short(message))
    elif error.validator == "required" and isinstance(error.instance, dict):
        required = error.validator_value
        for name in required if isinstance(required, list) else ():
            if name not in error.instance:
                yield Problem(str(name), "missing")
    else:
        yield Problem("", _short(error.message))


def _short(message: str) -> str:
    """A message without a value that could fill a page."""
    return message if len(message) <= 300 else f"{message[:150]} ... {message[-120:]}"
