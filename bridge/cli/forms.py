"""Asks a person at the terminal for the fields of a form, and reads typed text as values.

The questions of a task, and the messages that answer them, are in `bridge.cli.call.questions`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bridge.concurrency import done_at_once
from bridge.errors import UsageError

if TYPE_CHECKING:
    from pydantic import JsonValue

    from bridge.mcp.tools import Tool
    from bridge.text.jsonvalues import JsonObject

_YES_OR_NO: Final = "yes or no"
_LETTERS: Final = {"y": True, "n": False}
"""Short forms of yes and no."""
_NAMING: Final = frozenset({"required", "additionalProperties", "dependentRequired"})
"""Keywords of a schema whose error messages name properties."""
_MOST_ERRORS: Final = 1000
"""How many errors are searched for the error of one field."""
_FAULT_CHARACTERS: Final = 300
"""The longest message of a fault. The value in it could fill a page."""
_ELSEWHERE: Final = frozenset(
    {"patternProperties", "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"}
)
"""Keywords that may define further properties, so that the names of arguments cannot be checked."""


@dataclass(frozen=True)
class Form:
    """A form: its fields, as the arguments of a tool."""

    tool: Tool
    behind: Tool | None
    """The tool whose arguments the form asks for, if known. Its nested arguments are texts in the form."""

    @property
    def names(self) -> tuple[str, ...]:
        """The required fields, or the first field when none is required."""
        from bridge.translate.arguments import properties_of, required_of

        fields = tuple(properties_of(self.tool.input_schema))
        required = required_of(self.tool.input_schema)
        return tuple(name for name in fields if name in required) or fields[:1]

    def nested(self, name: str) -> JsonObject | None:
        """The schema of an argument that the form asks for as the text of its JSON."""
        from bridge.translate.arguments import properties_of

        if self.behind is None or properties_of(self.tool.input_schema)[name].get("type") != "string":
            return None
        field = properties_of(self.behind.input_schema).get(name)
        if field is None or "string" in str(field.get("type")) or "enum" in field or "const" in field:
            return None
        return field


def form_from(data: JsonObject, tool_of: Callable[[str], Tool | None]) -> Form | None:
    """The form in the data of a question. `tool_of` gives the tool behind a skill, if the card tells it."""
    tool = tool_with(data["schema"]) if "schema" in data else None
    skill = data.get("skill")
    return Form(tool, tool_of(skill) if isinstance(skill, str) else None) if tool else None


def filled_in(form: Form, hint: str) -> JsonObject | None:
    """Ask for each field of a form; None when the person declines."""
    from bridge.cli import render
    from bridge.translate.arguments import properties_of, required_of

    filled: JsonObject = {}
    for name, field in properties_of(form.tool.input_schema).items():
        required = name in required_of(form.tool.input_schema)
        while name not in filled:
            text = render.ask(f"{_question(name, field, form, required=required)}{hint}")
            hint = ""
            if text is None:
                return None
            if text:
                value = typed(text, name, form.tool)
                if fault := _fault(value, name, form):
                    render.say(fault)
                else:
                    filled[name] = value
            elif "default" in field:
                filled[name] = field["default"]
            elif not required:
                break
            else:
                render.say(f"{name} is required: type an answer")
    return filled


def _question(name: str, field: JsonObject, form: Form, *, required: bool) -> str:
    """One field in one line: `Size (one of "S", "M"; required): How large it is ["M"]:`"""
    from bridge.translate.arguments import type_words

    title, description = field.get("title"), field.get("description")
    items = field.get("items")
    several = _choices(items) if isinstance(items, dict) else []
    choices = _choices(field) or several
    named = [words if words == _shown(value) else f"{_shown(value)} ({words})" for value, words in choices]
    titled = ", ".join(named) if any(words != _shown(value) for value, words in choices) else ""
    if titled and several:
        titled = f"any of {titled}"
    kind = _YES_OR_NO if field.get("type") == "boolean" else titled or type_words(field)
    line = f"{title if isinstance(title, str) else name} ({kind}"
    line += "; required)" if required else ")"
    if isinstance(description, str):
        line += f": {description}"
    if (nested := form.nested(name)) is not None and form.behind is not None:
        line += _names_in(nested, form.behind.input_schema)
    if "default" in field:
        default = field["default"]
        word = (
            ("no", "yes")[default] if isinstance(default, bool) else json.dumps(default, ensure_ascii=False)
        )
        line += f" [{word}]"
    return f"{line}:"


def _names_in(schema: JsonObject, root: JsonObject, lead: str = " with") -> str:
    """The fields of a nested argument in words; "" when its schema does not list them."""
    from bridge.translate.arguments import properties_of, required_of

    step: JsonValue = schema
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#/"):
        step = root
        for key in reference[2:].split("/"):
            step = step.get(key) if isinstance(step, dict) else None
    if not isinstance(step, dict):
        return ""
    items = step.get("items")
    if isinstance(items, dict) and lead == " with":
        return _names_in(items, root, ", each with")
    required = required_of(step)
    names = [f"{name} (required)" if name in required else name for name in properties_of(step)]
    return f"{lead} {', '.join(names)}" if names else ""


def _fault(value: JsonValue, name: str, form: Form) -> str | None:
    """The fault of a field's value, by the schemas of the form and of the tool behind it; None if there is none."""
    from bridge.translate.arguments import coerced, json_in

    nested = form.nested(name)
    if nested is None or form.behind is None or not isinstance(value, str):
        return _fault_in(form.tool, name, value)
    behind = form.behind
    meant = done_at_once(lambda: coerced(value, name, behind, json_first=True))
    fault = _fault_in(form.behind, name, meant)
    return f"{name} takes JSON, and this is not JSON" if fault and not json_in(value) else fault


def _fault_in(tool: Tool, name: str, value: JsonValue) -> str | None:
    """The first fault that a tool's schema finds in one argument, with its values in JSON."""
    from bridge.mcp.schemas import UncheckableError, errors_of

    try:
        errors = done_at_once(lambda: errors_of(tool.validator, {name: value}, _MOST_ERRORS))
    except UncheckableError:  # only the server can judge the value
        return None
    fault = next((error for error in errors if error.absolute_path and error.absolute_path[0] == name), None)
    if fault is None:
        return None
    words = fault.message
    for value_in_words in (fault.instance, fault.validator_value):
        words = words.replace(
            repr(value_in_words), json.dumps(value_in_words, ensure_ascii=False, default=str)
        )
    if fault.validator in _NAMING:
        words = re.sub(r"'([^']*)'", r'"\1"', words)
    where = "/".join(str(step) for step in list(fault.absolute_path)[1:])
    words = f"at {where}: {words}" if where else words
    return words if len(words) <= _FAULT_CHARACTERS else f"{words[:_FAULT_CHARACTERS]} ..."


def _shown(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def typed(text: str, name: str, tool: Tool | None) -> JsonValue:
    """Read typed text as the value of an argument: by the tool's schema, or as JSON if the schema lacks it.

    A choice may be named by its title, and several choices with commas between them.
    """
    from bridge.translate.arguments import coerced, json_in, properties_of

    field = properties_of(tool.input_schema).get(name) if tool else None
    if tool is None or field is None:
        read = next(iter(json_in(text)), text)
        return text if isinstance(read, str) else read
    items = field.get("items")
    several = _choices(items) if isinstance(items, dict) else []
    if several and not text.startswith("["):
        return [_chosen(word.strip(), several) for word in text.split(",")]
    if choices := _choices(field):
        return _chosen(text, choices)
    if field.get("type") == "boolean" and (letter := text.strip().lower()) in _LETTERS:
        return _LETTERS[letter]
    return done_at_once(lambda: coerced(text, name, tool))


def typed_all(texts: tuple[str, ...], name: str, tool: Tool | None) -> JsonValue:
    """Read the texts of one argument, which is given once or, for an array, once for each item.

    Raises:
        UsageError: the argument was given several times, and the schema does not make it an array.
    """
    from bridge.translate.arguments import properties_of

    if len(texts) == 1:
        return typed(texts[0], name, tool)
    field = properties_of(tool.input_schema).get(name, {}) if tool else {}
    kinds = field.get("type")
    if tool is None or "array" not in (kinds if isinstance(kinds, list) else [kinds]):
        raise UsageError(
            f"{name} is given {len(texts)} times, but the skill's schema does not make it an array"
        )
    item = field.get("items")
    item_tool = tool_with({**tool.input_schema, "properties": {name: item if isinstance(item, dict) else {}}})
    return [typed(text, name, item_tool) for text in texts]


def check_names(arguments: JsonObject, tool: Tool, skill: str) -> None:
    """Warn of arguments that the skill does not have.

    Raises:
        UsageError: the schema forbids further arguments.
    """
    from bridge.cli import render
    from bridge.translate.arguments import properties_of

    schema = tool.input_schema
    more = schema.get("additionalProperties")
    if "properties" not in schema or _ELSEWHERE & schema.keys() or more not in (None, False):
        return
    known = properties_of(schema)
    unknown = [name for name in arguments if name not in known]
    if not unknown:
        return
    has = f"it has: {', '.join(known)}" if known else "it has none"
    words = f"{skill} has no argument {', '.join(unknown)}; {has}"
    if more is False:
        raise UsageError(words)
    render.say(words)


def _chosen(text: str, choices: list[tuple[JsonValue, str]]) -> JsonValue:
    """The choice that a text names; the text itself if it names none."""
    return next((value for value, title in choices if text in (value, title, json.dumps(value))), text)


def _choices(field: JsonObject) -> list[tuple[JsonValue, str]]:
    """The values that a schema lists, each with its title."""
    values, names = field.get("enum"), field.get("enumNames")
    if isinstance(values, list):
        titles = names if isinstance(names, list) and len(names) == len(values) else values
        return [(value, _shown(title)) for value, title in zip(values, titles, strict=True)]
    options = field.get("oneOf", field.get("anyOf"))
    consts = [one for one in options if isinstance(one, dict)] if isinstance(options, list) else []
    if not all("const" in one for one in consts):
        return []
    return [(one["const"], _shown(one.get("title", one["const"]))) for one in consts]


def arguments_of(tool: Tool | None) -> list[str]:
    """The arguments of a tool, one line each: `steps (integer, 1 to 60, default 5): How many steps`"""
    from bridge.translate.arguments import required_of, resolved_properties, type_words

    if tool is None:
        return []
    lines, required = [], required_of(tool.input_schema)
    for name, field in resolved_properties(tool.input_schema).items():
        words = [type_words(field, tool.input_schema), *_bounds(field)]
        if name in required:
            words.append("required")
        if "default" in field:
            words.append(f"default {json.dumps(field['default'], ensure_ascii=False)}")
        description = field.get("description") or field.get("title")
        about = (
            f": {' '.join(description.split())}"
            if isinstance(description, str) and description.lower() != name.lower()
            else ""
        )
        lines.append(f"{name} ({', '.join(words)}){about}")
    return lines


def _bounds(field: JsonObject) -> list[str]:
    """The bounds of a number in words."""
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None and high is not None:
        words = [f"{low} to {high}"]
    else:
        words = [
            f"{word} {bound}" for word, bound in (("at least", low), ("at most", high)) if bound is not None
        ]
    for word, key in (("above", "exclusiveMinimum"), ("below", "exclusiveMaximum")):
        if key in field:
            words.append(f"{word} {field[key]}")
    return words


def tool_with(schema: JsonValue) -> Tool | None:
    """A tool with this input schema; None when the value is no schema."""
    from bridge.mcp.tools import tools_from

    tools, _ = tools_from([{"name": "tool", "inputSchema": schema}])
    return next(iter(tools), None)
