"""Forms from JSON schemas: a flat property is a field, any other property is a field for JSON. Pure.

A form has data only, no layout. The schema checks the values of a person, and the messages of the check appear beside
the fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from bridge.mcp.tools import SchemaBudget, Tool, tools_from
from bridge.text.jsonvalues import JsonObject
from bridge.translate.arguments import problems_of, required_of, resolved_properties, type_words
from bridge.translate.elicitation import FORM_COST

_LONG: Final = 200
"""The most characters of a text field with one line. A field for longer texts has several lines."""

_INPUTS: Final = {"email": "email", "uri": "url", "date": "date"}
"""The HTML input types that mean the same as a format of JSON Schema."""

_NOT_OF_TYPE: Final = re.compile(
    r"(?P<where>at [^:]*: )?.+ is not of type (?P<types>'\w+'(?:, '\w+')*)", re.DOTALL
)
_TYPES: Final = {
    "integer": "a whole number, such as 5",
    "number": "a number, such as 2.5",
    "string": "a text",
    "boolean": "yes or no",
    "array": "a list",
    "object": "an object",
    "null": "nothing",
}
"""The types of JSON Schema in words."""

_HINTS: Final = {"date-time": "2026-01-31T12:00:00Z", "time": "12:00:00Z"}
"""Examples for formats without an HTML input type."""


class WrongValuesError(Exception):
    """The values of a person do not fit the form."""

    def __init__(self, problems: Sequence[JsonObject]) -> None:
        """Each problem has the `name` of its field, a `message`, and the `question` if the form has several."""
        super().__init__("the values do not fit the form")
        self.problems = problems


def fields_of(schema: JsonObject, values: JsonObject | None = None) -> list[JsonValue]:
    """The fields of a form for an object, filled in with `values`, or with the defaults of the schema."""
    required = required_of(schema)
    given = values or {}
    return [
        _field(name, prop, schema, given.get(name, prop.get("default")), is_required=name in required)
        for name, prop in resolved_properties(schema).items()
    ]


def _field(
    name: str, prop: JsonObject, schema: JsonObject, value: JsonValue, *, is_required: bool
) -> JsonObject:
    title, description = prop.get("title"), prop.get("description")
    kind, more = _kind(prop)
    return {
        "name": name,
        "label": title if isinstance(title, str) and title else name,
        "hint": description if isinstance(description, str) else "",
        "type": type_words(prop, schema),
        "required": is_required,
        "is": kind,
        "value": _as_typed(kind, value),
        **more,
    }


def _kind(prop: JsonObject) -> tuple[str, JsonObject]:
    """The kind of field for a property, and the data of that kind."""
    if (options := _options(prop)) is not None:
        return "choice", {"options": [*options]}
    match prop.get("type"):
        case "string":
            longest, form = prop.get("maxLength"), prop.get("format")
            known = form if isinstance(form, str) else ""
            is_short = bool(known) or "pattern" in prop or (isinstance(longest, int) and longest <= _LONG)
            hint: JsonObject = {"input": _INPUTS.get(known, "text"), "example": _HINTS.get(known, "")}
            return ("text", hint) if is_short else ("words", {})
        case "integer" | "number" as kind:
            return kind, {}
        case "boolean":
            return "boolean", {}
        case "array" if isinstance(items := prop.get("items"), dict) and (options := _options(items)):
            return "choices", {"options": [*options]}
    return "json", {}


def _options(prop: JsonObject) -> Sequence[JsonObject] | None:
    """The values that a property allows, each with its name; None if they are not listed."""
    for key in ("oneOf", "anyOf"):
        named = prop.get(key)
        if (
            isinstance(named, list)
            and named
            and all(isinstance(one, dict) and "const" in one for one in named)
        ):
            return [_option(one["const"], one.get("title")) for one in named if isinstance(one, dict)]
    listed, names = prop.get("enum"), prop.get("enumNames")
    if not isinstance(listed, list) or not listed:
        return None
    titles = names if isinstance(names, list) and len(names) == len(listed) else [None] * len(listed)
    return [_option(value, title) for value, title in zip(listed, titles, strict=True)]


def _option(value: JsonValue, title: JsonValue) -> JsonObject:
    words = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return {"value": json.dumps(value), "label": title if isinstance(title, str) else words}


def _as_typed(kind: str, value: JsonValue) -> JsonValue:
    """A value as the text in a field of this kind."""
    if kind == "choices":
        return [json.dumps(one) for one in value] if isinstance(value, list) else []
    if value is None:
        return ""
    if kind in ("text", "words"):
        return value if isinstance(value, str) else json.dumps(value)
    if kind == "json":
        return json.dumps(value, indent=2, ensure_ascii=False)
    return json.dumps(value)


def form_problems(schema: JsonObject, values: JsonObject) -> list[JsonObject]:
    """The problems with the values of a form, each with the name of its field; "" for the whole form."""
    tools, _ = tools_from([{"name": "form", "inputSchema": schema}], SchemaBudget(FORM_COST))
    return tool_problems(tools[0], values) if tools else []


def tool_problems(tool: Tool, arguments: JsonObject) -> list[JsonObject]:
    """The problems with the arguments of a tool, as for `form_problems`."""
    return [{"name": one.name, "message": _in_words(one.message)} for one in problems_of(tool, arguments)]


def _in_words(message: str) -> str:
    """The message of a check. A message about a type is rewritten without terms of JSON Schema."""
    match = _NOT_OF_TYPE.fullmatch(message)
    if match is None:
        return message
    kinds = [_TYPES.get(kind, kind) for kind in re.findall(r"'(\w+)'", match["types"])]
    return f"{match['where'] or ''}This takes {' or '.join(kinds)}"
