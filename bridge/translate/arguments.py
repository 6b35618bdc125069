"""Checks the arguments of a call against the tool's schema, and makes the form that asks for the faulty ones. Pure.

Spec: MCP server/tools (inputSchema); MCP client/elicitation (the flat schemas of a form).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from jsonschema import ValidationError
from pydantic import JsonValue

from bridge.a2a.model.errors import A2AError
from bridge.a2a.wire.jsontext import parse_json
from bridge.concurrency import SlowWork
from bridge.errors import echoed
from bridge.mcp.schema_keywords import UnexpectedNamesError
from bridge.mcp.schemas import UncheckableError, errors_of, resolved, validator_within
from bridge.mcp.tools import Tool
from bridge.text.jsonvalues import JsonObject

MAX_PROBLEMS: Final = 20
"""The most faults that one question names. A person corrects these first."""
_MAX_ERRORS: Final = 1000
"""The most errors that are read from the schema check: a million wrong items are one fault."""

UNKNOWN_ARGUMENT: Final = "the skill has no such argument"

_EXACT: Final = 2**53
"""Up to this number a float represents each whole number exactly."""

_MAX_WORDS_DEPTH: Final = 4
"""The most nested arrays and choices that the words for a type describe."""

_MAX_CHOICES_DEPTH: Final = 8
"""The deepest nested choices that are examined: choices may refer to themselves."""
_NARROW: Final = frozenset({"enum", "const", "pattern", "format"})
"""The keywords that restrict a string beyond its length."""

_FLAT: Final = ("string", "number", "integer", "boolean")
_WORDS_FOR_BOOLEANS: Final[Mapping[str, bool]] = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault of the arguments: a property that is missing or wrong."""

    name: str
    """The property at the top of the arguments; "" when the arguments as a whole are at fault."""
    message: str


def problems_of(tool: Tool, arguments: JsonObject) -> tuple[Problem, ...]:
    """The faults of the arguments against the tool's schema, in the order of its properties.

    Empty when the bridge cannot check the arguments (endless recursion, a pattern that only JavaScript can read, a
    number beyond floats). Then only the server checks them.

    Raises:
        SlowWork: the check has to go on in a worker. Each function here that reads an argument by its schema raises it.
    """
    by_name: dict[str, Problem] = {}
    try:
        errors = errors_of(tool.validator, arguments, _MAX_ERRORS)
    except UncheckableError:
        return ()
    for error in errors:
        for problem in _problems_from(error):
            by_name.setdefault(problem.name, problem)
    order = {name: place for place, name in enumerate(properties_of(tool.input_schema))}
    ordered = sorted(by_name.values(), key=lambda problem: order.get(problem.name, len(order)))
    return tuple(ordered[:MAX_PROBLEMS])


def quick_problems_of(tool: Tool, arguments: JsonObject) -> tuple[Problem, ...]:
    """The same as `problems_of`, but empty if the check takes too long. For checks that no call waits for."""
    try:
        return problems_of(tool, arguments)
    except SlowWork:
        return ()


def properties_of(schema: JsonObject) -> dict[str, JsonObject]:
    """The properties at the top of a schema."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: prop if isinstance(prop, dict) else {} for name, prop in properties.items()}


def resolved_properties(schema: JsonObject) -> dict[str, JsonObject]:
    """The properties at the top of a schema, with their references resolved."""
    return {name: resolved(prop, schema) for name, prop in properties_of(schema).items()}


def without_nulls(tool: Tool, arguments: JsonObject) -> JsonObject:
    """The arguments without the nulls that mean "left out": of properties that may be left out, and whose schema takes
    no null. Some frameworks write a null for each argument that their model leaves out."""
    nulls = [name for name, value in arguments.items() if value is None]
    if not nulls:
        return arguments
    known, required = properties_of(tool.input_schema), required_of(tool.input_schema)
    left_out = {
        name
        for name in nulls
        if name in known and name not in required and not _takes(tool, known[name], None)
    }
    return {name: value for name, value in arguments.items() if name not in left_out}


def required_of(schema: JsonObject) -> tuple[str, ...]:
    """The names of the properties that a schema requires."""
    required = schema.get("required")
    return tuple(name for name in required if isinstance(name, str)) if isinstance(required, list) else ()


def form_for(tool: Tool, problems: Iterable[Problem]) -> JsonObject:
    """The schema of a form that asks for the properties at fault.

    A flat property keeps its schema; a nested one becomes a text field for JSON.
    """
    properties = resolved_properties(tool.input_schema)
    names = [problem.name for problem in problems if problem.name in properties]
    fields: JsonObject = {name: _field_for(properties[name], tool.input_schema) for name in names}
    required: list[JsonValue] = [name for name in required_of(tool.input_schema) if name in fields]
    return {"type": "object", "properties": fields, "required": required}


def describe(tool: Tool, problem: Problem) -> str:
    """A problem as a line for a person: the property, its type, its description, and the fault."""
    if not problem.name:
        return problem.message
    prop = resolved_properties(tool.input_schema).get(problem.name)
    if prop is None:
        return f"{echoed(problem.name)}: {problem.message}"
    title, description = prop.get("title"), prop.get("description")
    words = [type_words(prop, tool.input_schema)]
    if problem.name in required_of(tool.input_schema):
        words.append("required")
    line = f"{problem.name} ({', '.join(words)})"
    if isinstance(title, str) and title.lower() != problem.name.lower():
        line += f" {title}"
    if isinstance(description, str):
        line += f": {description}"
    return f"{line} [{problem.message}]" if problem.message else line


def type_words(schema: JsonObject, root: JsonObject | None = None, depth: int = 0) -> str:
    """A schema's type in words: `string`, `one of "a", "b"`, `array of number`. `root` resolves references."""
    root = schema if root is None else root
    schema = resolved(schema, root)
    if titled := titled_choices(schema):
        return "one of " + ", ".join(
            json.dumps(value, ensure_ascii=False) + (f" ({title})" if title not in ("", value) else "")
            for value, title in titled[:20]
        )
    if isinstance(choices := schema.get("enum"), list):
        return "one of " + ", ".join(json.dumps(choice, ensure_ascii=False) for choice in choices[:20])
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(str(name) for name in kind)
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(key), list):
            inner = (choice for choice in choices if isinstance(choice, dict) and depth < _MAX_WORDS_DEPTH)
            return (
                " or ".join(dict.fromkeys(type_words(choice, root, depth + 1) for choice in inner))
                or "any value"
            )
    if kind == "array":
        items = schema.get("items")
        if not isinstance(items, dict) or not items or depth == _MAX_WORDS_DEPTH:
            return "array"
        return f"array of {type_words(items, root, depth + 1)}"
    return kind if isinstance(kind, str) else "any value"


def coerced(text: str, name: str, tool: Tool, *, json_first: bool = False) -> JsonValue:
    """The value of a text that a person typed for a property: the first reading that the property's schema accepts.

    The readings are the text itself, the text as JSON, and the text as a word for a boolean. If the schema accepts no
    reading, the result is the reading closest to the type, so that the fault is described in the schema's words.
    """
    schema = resolved_properties(tool.input_schema).get(name, {})
    as_json = json_in(text)
    word = _WORDS_FOR_BOOLEANS.get(text.strip().lower())
    readings: list[JsonValue] = [*as_json, text] if json_first else [text, *as_json]
    readings += [] if word is None else [word]
    for reading in readings:
        if _takes(tool, schema, reading):
            return reading
    return text if "string" in _types_of(schema) or not as_json else as_json[0]


def value_among(texts: Sequence[str], name: str, tool: Tool) -> str:
    """The text for a property, chosen from texts of which some may be for something else.

    All texts joined, if the property accepts the joined text or takes free text. Otherwise the only text that the
    property accepts.
    """
    joined = "\n".join(texts)
    schema = resolved_properties(tool.input_schema).get(name, {})
    if _is_free_text(schema, tool.input_schema):
        return joined
    fitting = [text for text in (joined, *texts) if _takes(tool, schema, coerced(text, name, tool))]
    return fitting[0] if joined in fitting or len(fitting) == 1 else joined


def coerced_fields(answer: JsonObject, tool: Tool) -> JsonObject:
    """The answer to a form, with its nested properties parsed from their JSON text."""
    properties = resolved_properties(tool.input_schema)
    return {
        name: coerced(value, name, tool, json_first=not _is_flat(properties.get(name, {}), tool.input_schema))
        if isinstance(value, str)
        else value
        for name, value in answer.items()
    }


def titled_choices(schema: JsonObject) -> tuple[tuple[str, str], ...]:
    """The choices of a field, each with its title, if at least one has a title: `oneOf` or `anyOf` of `const` and
    `title`, or the `enumNames` of an `enum` (MCP client/elicitation, titled enums)."""
    values, titles = schema.get("enum"), schema.get("enumNames")
    if isinstance(values, list) and isinstance(titles, list) and len(values) == len(titles):
        pairs = list(zip(values, titles, strict=True))
    else:
        listed = next(
            (choices for key in ("oneOf", "anyOf") if isinstance(choices := schema.get(key), list)), []
        )
        if not all(isinstance(choice, dict) and "const" in choice for choice in listed):
            return ()
        pairs = [(choice["const"], choice.get("title")) for choice in listed if isinstance(choice, dict)]
    texts = [
        (value, title if isinstance(title, str) else "") for value, title in pairs if isinstance(value, str)
    ]
    return tuple(texts) if len(texts) == len(pairs) and any(title for _, title in texts) else ()


def with_chosen_values(answer: JsonObject, tool: Tool) -> JsonObject:
    """The answer to a form, with the titles of choices replaced by their values. A text that is a value stays as it is,
    and a title that two choices share is not replaced."""
    properties = resolved_properties(tool.input_schema)
    return {name: _chosen(value, properties.get(name, {})) for name, value in answer.items()}


def _chosen(value: JsonValue, schema: JsonObject) -> JsonValue:
    if isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        return [_chosen(item, items) for item in value]
    if not isinstance(value, str):
        return value
    choices = titled_choices(schema)
    if any(value == choice for choice, _ in choices):
        return value
    word = value.strip().casefold()
    named = [choice for choice, title in choices if word and title.strip().casefold() == word]
    return named[0] if len(named) == 1 else value


def whole_numbers(value: JsonValue) -> JsonValue:
    """A value with whole floats turned into integers.

    JSON has one kind of number. A2A clients on protocol buffers write 3 as 3.0, and servers that expect an integer
    may refuse that.
    """
    match value:
        case float() if value.is_integer() and abs(value) <= _EXACT:
            return int(value)
        case dict():
            return {name: whole_numbers(inner) for name, inner in value.items()}
        case list():
            return [whole_numbers(inner) for inner in value]
        case _:
            return value


def json_in(text: str) -> tuple[JsonValue, ...]:
    """The JSON value of a text, within the limits for requests, as a tuple of one. Empty when the text is not JSON."""
    try:
        return (parse_json(text.encode()),)
    except A2AError:
        return ()


def _takes(tool: Tool, schema: JsonObject, value: JsonValue) -> bool:
    try:
        return not errors_of(validator_within(tool.validator, schema), value, 1)
    except UncheckableError:
        return False


def _types_of(schema: JsonObject) -> tuple[JsonValue, ...]:
    kinds = schema.get("type")
    return tuple(kinds) if isinstance(kinds, list) else (kinds,)


def _is_free_text(schema: JsonObject, root: JsonObject, depth: int = 0) -> bool:
    """Whether a schema accepts any string, apart from limits on the length."""
    schema = resolved(schema, root)
    if _NARROW & schema.keys():
        return False
    listed = [schema[key] for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list)]
    choices = [
        choice for many in listed if isinstance(many, list) for choice in many if isinstance(choice, dict)
    ]
    if choices:
        return depth == _MAX_CHOICES_DEPTH or any(
            _is_free_text(choice, root, depth + 1) for choice in choices
        )
    return "type" not in schema or "string" in _types_of(schema)


def _is_flat(prop: JsonObject, root: JsonObject) -> bool:
    """Whether a form can ask for a property without changing its schema."""
    items = prop.get("items")
    items = resolved(items, root) if isinstance(items, dict) else {}
    is_choice = prop.get("type") == "array" and ("enum" in items or "anyOf" in items)
    return prop.get("type") in _FLAT or is_choice or ("enum" in prop and "type" not in prop)


def _field_for(prop: JsonObject, root: JsonObject) -> JsonObject:
    if _is_flat(prop, root):
        items = prop.get("items")
        return {**prop, "items": resolved(items, root)} if isinstance(items, dict) else prop
    field: JsonObject = {key: prop[key] for key in ("title",) if key in prop}
    description = prop.get("description")
    field["type"] = "string"
    field["description"] = (
        f"{description} (as JSON)" if isinstance(description, str) else f"{type_words(prop, root)}, as JSON"
    )
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
    elif error.validator == "additionalProperties" and (extra := _unexpected(error)):
        for name in extra:
            yield Problem(name, UNKNOWN_ARGUMENT)
    else:
        yield Problem("", _short(error.message))


def _unexpected(error: ValidationError) -> Sequence[str]:
    """The unknown properties in an error of `additionalProperties`."""
    return error.cause.names if isinstance(error.cause, UnexpectedNamesError) else ()


def _short(message: str) -> str:
    """A message of the jsonschema library, shortened when it repeats a long value."""
    return message if len(message) <= 300 else f"{message[:150]} ... {message[-120:]}"
