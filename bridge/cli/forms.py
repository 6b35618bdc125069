"""Questions of an agent, put to the person at the terminal, and what they type as values.

A question that carries a schema is asked field by field; any other is asked as it stands.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import JsonValue

    from bridge.a2a.models import JsonObject, Part, TaskStatus
    from bridge.mcp.tools import Tool

_JSON = "application/json"


def answer_to(status: TaskStatus) -> tuple[tuple[Part, ...], JsonObject | None] | None:
    """What the person at the terminal answers, with its metadata; None to cancel the task."""
    from bridge.a2a.models import Part
    from bridge.cli import render
    from bridge.translate.extension import ANSWER, QUESTION

    asked = (status.message.metadata if status.message else None) or {}
    key: JsonObject = {QUESTION: asked[QUESTION]} if QUESTION in asked else {}
    if status.state.name == "AUTH_REQUIRED":
        words = render.ask("Press Enter once that is done (Ctrl+D cancels the task)")
        return None if words is None else ((Part(text=words or "done"),), key or None)
    form = _form_in(status)
    answer = render.ask("Your answer:") if form is None else _filled(form)
    if answer is None:
        # Refusing is never said in words alone, which could be taken for the answer.
        return ((Part(text="declined"),), {**key, ANSWER: "decline"}) if key else None
    part = Part(text=answer) if isinstance(answer, str) else Part(data=answer, media_type=_JSON)
    return (part,), {**key, ANSWER: "accept"} if key else None


def _form_in(status: TaskStatus) -> Tool | None:
    """What is asked for as the arguments of a tool, if the question has a schema."""
    for part in status.message.parts if status.message else ():
        if isinstance(part.data, dict) and (form := tool_with(part.data.get("schema"))):
            return form
    return None


def _filled(form: Tool) -> JsonObject | None:
    """A form, filled in field by field; None when it is declined."""
    from bridge.cli import render
    from bridge.translate.arguments import properties_of, required_of

    filled: JsonObject = {}
    for name, field in properties_of(form.input_schema).items():
        required = name in required_of(form.input_schema)
        while name not in filled:
            text = render.ask(_question(name, field, required=required))
            if text is None:
                return None
            if text:
                value = typed(text, name, form)
                if fault := _fault(value, name, form):
                    render.say(fault)
                else:
                    filled[name] = value
            elif "default" in field:
                filled[name] = field["default"]
            elif not required:
                break
    return filled


def _question(name: str, field: JsonObject, *, required: bool) -> str:
    """One field in one line: `Size (one of "S", "M"; required): How large it is ["M"]:`"""
    from bridge.translate.arguments import type_words

    title, description = field.get("title"), field.get("description")
    titled = ", ".join(f"{value} ({words})" for value, words in _choices(field) if value != words)
    line = f"{title if isinstance(title, str) else name} ({titled or type_words(field)}"
    line += "; required)" if required else ")"
    if isinstance(description, str):
        line += f": {description}"
    if "default" in field:
        line += f" [{json.dumps(field['default'], ensure_ascii=False)}]"
    return f"{line}:"


def _fault(value: JsonValue, name: str, form: Tool) -> str | None:
    """What the schema of a form finds wrong with the value of one field."""
    from bridge.translate.arguments import problems_of

    return next((found.message for found in problems_of(form, {name: value}) if found.name == name), None)


def typed(text: str, name: str, tool: Tool | None) -> JsonValue:
    """What a person typed for an argument: as the tool's schema reads it, as JSON when the schema says nothing.

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
    return coerced(text, name, tool)


def _chosen(text: str, choices: list[tuple[JsonValue, str]]) -> JsonValue:
    """The choice that a text names; the text itself when it names none."""
    return next((value for value, title in choices if text in (value, title, json.dumps(value))), text)


def _choices(field: JsonObject) -> list[tuple[JsonValue, str]]:
    """The values that a schema lists, each with what it is called."""
    values, names = field.get("enum"), field.get("enumNames")
    if isinstance(values, list):
        titles = names if isinstance(names, list) and len(names) == len(values) else values
        return [(value, str(title)) for value, title in zip(values, titles, strict=True)]
    options = field.get("oneOf", field.get("anyOf"))
    consts = [one for one in options if isinstance(one, dict)] if isinstance(options, list) else []
    if not all("const" in one for one in consts):
        return []
    return [(one["const"], str(one.get("title", one["const"]))) for one in consts]


def tool_with(schema: JsonValue) -> Tool | None:
    """A tool that takes this; None when it is no schema."""
    from bridge.mcp.tools import tools_from

    tools, _ = tools_from([{"name": "tool", "inputSchema": schema}])
    return next(iter(tools), None)
