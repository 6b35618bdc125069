"""Which tool a message means, and with which arguments: rules, tried in order, never a guess. Pure.

1. a data part that names a skill: `{"skill": id, "arguments": {...}}` (or `tool`)
2. metadata that names a skill
3. text that is JSON of form 1, or `name {json}`, or `name key=value ...`
4. the default skill, or the only one
5. plain text onto the property that takes it
otherwise the client is asked.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from bridge.a2a.models import JsonObject, Message, Part, text_of
from bridge.mcp.tools import Tool
from bridge.translate.arguments import coerced, properties_of, required_of
from bridge.translate.extension import ARGUMENTS, SKILL
from bridge.translate.files import place_files

_FORM_KEYS: Final = frozenset({"skill", "tool", "arguments"})
_PAIR: Final = re.compile(r"([^\s=]+)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RouteRules:
    """What the rules leave to taste."""

    metadata_keys: tuple[str, ...]
    """Metadata keys that may name the skill, beside the extension's own, in this order."""
    default_skill: str | None = None
    text_into: Mapping[str, str] = field(default_factory=dict)
    """Skill id to the property that plain text goes into."""


@dataclass(frozen=True, slots=True)
class Call:
    """A message understood: this skill, these arguments, and the files that fit none of its properties."""

    skill_id: str
    arguments: JsonObject
    unplaced: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Unclear:
    """No rule matched, or the skill that was named does not exist."""

    named: str | None = None


@dataclass(frozen=True, slots=True)
class _Content:
    """A message's parts by what they are good for."""

    data: tuple[JsonValue, ...]
    text: str
    files: tuple[Part, ...]


def call_from_message(
    message: Message, metadata: JsonObject, skills: Mapping[str, Tool], rules: RouteRules
) -> Call | Unclear:
    """What a message asks for. `metadata` is the request's, which counts after the message's own."""
    content = _content_of(message.parts)
    named = _named_in_data(content.data) or _named_in_metadata(
        {**metadata, **(message.metadata or {})}, content, skills, rules
    )
    if named is None:
        named = _named_in_text(content.text, skills)
    if named is None:
        skill_id = rules.default_skill or (next(iter(skills)) if len(skills) == 1 else None)
        if skill_id is None:
            return Unclear()
        named = skill_id, _arguments_for(skill_id, content, skills, rules)
    skill_id, arguments = named
    tool = skills.get(skill_id)
    if tool is None:
        return Unclear(skill_id)
    arguments, unplaced = place_files(tool, arguments, content.files)
    return Call(skill_id, arguments, unplaced)


def arguments_in(parts: Sequence[Part], tool: Tool, text_into: str | None) -> JsonObject:
    """The arguments in the parts of a message whose skill is known (rules 2 and 5)."""
    content = _content_of(parts)
    objects = [value for value in content.data if isinstance(value, dict)]
    arguments: JsonObject = {}
    for found in objects:
        inner = found.get("arguments") if set(found) <= _FORM_KEYS else None
        arguments |= inner if isinstance(inner, dict) else found
    if not objects:
        arguments = _arguments_in_text(content.text, tool) or {}
    takes_text = text_into or _text_property(tool.input_schema)
    if content.text and not arguments and takes_text is not None:
        arguments = {takes_text: content.text}
    return arguments


def _content_of(parts: Sequence[Part]) -> _Content:
    return _Content(
        data=tuple(part.data for part in parts if part.kind == "data"),
        text=text_of(parts).strip(),
        files=tuple(part for part in parts if part.kind in ("raw", "url")),
    )


def _named_in_data(data: Sequence[JsonValue]) -> tuple[str, JsonObject] | None:
    """Rule 1."""
    for value in data:
        if (form := _form(value)) is not None:
            return form
    return None


def _form(value: JsonValue) -> tuple[str, JsonObject] | None:
    """`{"skill" | "tool": id, "arguments"?: {...}}` and nothing else."""
    if not isinstance(value, dict) or not set(value) <= _FORM_KEYS or {"skill", "tool"} <= set(value):
        return None
    skill_id, arguments = value.get("skill", value.get("tool")), value.get("arguments", {})
    if isinstance(skill_id, str) and isinstance(arguments, dict):
        return skill_id, arguments
    return None


def _named_in_metadata(
    metadata: JsonObject, content: _Content, skills: Mapping[str, Tool], rules: RouteRules
) -> tuple[str, JsonObject] | None:
    """Rule 2."""
    for key in (SKILL, *rules.metadata_keys):
        skill_id = metadata.get(key)
        if isinstance(skill_id, str) and skill_id:
            given = metadata.get(ARGUMENTS)
            if isinstance(given, dict):
                return skill_id, given
            return skill_id, _arguments_for(skill_id, content, skills, rules)
    return None


def _arguments_for(
    skill_id: str, content: _Content, skills: Mapping[str, Tool], rules: RouteRules
) -> JsonObject:
    tool = skills.get(skill_id)
    if tool is None:
        return {}
    parts = [Part(data=value) for value in content.data]
    if content.text:
        parts.append(Part(text=content.text))
    return arguments_in(parts, tool, rules.text_into.get(skill_id))


def _named_in_text(text: str, skills: Mapping[str, Tool]) -> tuple[str, JsonObject] | None:
    """Rule 3."""
    if (form := _form(_json(text))) is not None:
        return form
    name, _, rest = text.partition(" ")
    tool = skills.get(name)
    if tool is None:
        return None
    arguments = _arguments_in_text(rest.strip(), tool)
    return None if arguments is None else (name, arguments)


def _arguments_in_text(text: str, tool: Tool) -> JsonObject | None:
    """`{json}`, or `key=value ...` with keys that the tool knows; None when it is neither."""
    if not text:
        return {}
    value = _json(text)
    if isinstance(value, dict):
        inner = value.get("arguments") if set(value) <= _FORM_KEYS else None
        return inner if isinstance(inner, dict) else value
    return _pairs(text, tool)


def _pairs(text: str, tool: Tool) -> JsonObject | None:
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    properties = properties_of(tool.input_schema)
    arguments: JsonObject = {}
    for word in words:
        pair = _PAIR.fullmatch(word)
        if pair is None or pair[1] not in properties:
            return None
        arguments[pair[1]] = coerced(pair[2], properties[pair[1]])
    return arguments


def _text_property(schema: JsonObject) -> str | None:
    """Rule 5: the one required property, when it is the only one of type string."""
    properties = properties_of(schema)
    strings = [name for name in required_of(schema) if properties.get(name, {}).get("type") == "string"]
    return strings[0] if len(strings) == 1 else None


def _json(text: str) -> JsonValue:
    if not text.startswith("{"):
        return None
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return None
    return value
