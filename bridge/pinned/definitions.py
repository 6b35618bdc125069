"""What counts of the definition of a tool, a prompt, a resource template or a skill. Pure.

A definition is what a model or a program acts on: names, descriptions, schemas and annotations. Titles, icons, `_meta`,
the order of entries and the amount of white space never count, so a server may change them without a question.

Spec: MCP 2026-07-28 server/tools, server/prompts, server/resources; A2A 1.0 section 4.4.5 (AgentSkill).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias, get_args

from pydantic import JsonValue

from bridge.text.jsonvalues import JsonObject, json_bytes

ItemKind = Literal["tools", "prompts", "templates", "skills"]
KINDS: Final[tuple[ItemKind, ...]] = get_args(ItemKind)
NOUNS: Final[Mapping[ItemKind, str]] = {
    "tools": "tool",
    "prompts": "prompt",
    "templates": "resource template",
    "skills": "skill",
}

Definitions: TypeAlias = Mapping[ItemKind, Mapping[str, JsonObject]]
"""All definitions of one server or agent, by kind and name."""

_BY_NAME: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose keys are names that the author of a schema chose."""
_VALUES: Final = frozenset({"default", "const", "enum", "examples"})
"""Keywords whose values are data, so nothing inside them is a keyword."""
_UNORDERED: Final = frozenset({"required", "enum", "type", "examples", "allOf", "anyOf", "oneOf"})
"""Keywords with a list whose order means nothing."""
_WORDS: Final = frozenset({"description", "$comment"})
_SILENT: Final = frozenset({"title", "_meta", "icons"})
_DEEPEST: Final = 64
"""Levels of a schema that are read. A listed tool is never nested deeper, and a lock need not be either."""


def tool_definition(listed: JsonObject) -> JsonObject:
    """What counts of a tool, as tools/list shows it."""
    return _without_empty(
        {
            "description": _words(listed.get("description")),
            "inputSchema": _schema(listed.get("inputSchema")),
            "outputSchema": _schema(listed.get("outputSchema")),
            "annotations": _annotations(listed.get("annotations")),
        }
    )


def prompt_definition(listed: JsonObject) -> JsonObject:
    """What counts of a prompt, as prompts/list shows it."""
    arguments = listed.get("arguments")
    by_name: JsonObject = {
        str(argument["name"]): _without_empty(
            {
                "description": _words(argument.get("description")),
                "required": argument.get("required") is True or None,
            }
        )
        for argument in (arguments if isinstance(arguments, list) else ())
        if isinstance(argument, dict) and isinstance(argument.get("name"), str)
    }
    return _without_empty({"description": _words(listed.get("description")), "arguments": by_name})


def template_definition(listed: JsonObject) -> JsonObject:
    """What counts of a resource template, as resources/templates/list shows it. Its URI template is its name."""
    return _without_empty(
        {
            "name": listed.get("name"),
            "description": _words(listed.get("description")),
            "mimeType": listed.get("mimeType"),
            "annotations": _annotations(listed.get("annotations")),
        }
    )


def skill_definition(skill: JsonObject, tool: JsonObject | None) -> JsonObject:
    """What counts of a skill, as the card shows it in JSON. `tool` is the tool that the card declares for the skill."""
    return _without_empty(
        {
            "name": skill.get("name"),
            "description": _words(skill.get("description")),
            **{key: _sorted(skill.get(key)) for key in ("tags", "examples", "inputModes", "outputModes")},
            "tool": None if tool is None else tool_definition(tool),
        }
    )


def entries_of(kind: ItemKind, listed: Iterable[JsonValue]) -> dict[str, JsonObject]:
    """The definitions of the listed tools, prompts or templates, by their names. An entry without a name is left
    out. Of two entries with one name, the first counts, as for callers."""
    name_key, defined = _READERS[kind]
    entries: dict[str, JsonObject] = {}
    for entry in listed:
        name = entry.get(name_key) if isinstance(entry, dict) else None
        if isinstance(entry, dict) and isinstance(name, str) and name:
            entries.setdefault(name, defined(entry))
    return entries


_READERS: Final = {
    "tools": ("name", tool_definition),
    "prompts": ("name", prompt_definition),
    "templates": ("uriTemplate", template_definition),
}


def _schema(schema: JsonValue, levels: int = _DEEPEST) -> JsonValue:
    """A schema without what never counts."""
    if not isinstance(schema, dict) or not levels:
        return (
            [_schema(item, levels - 1) for item in schema] if isinstance(schema, list) and levels else schema
        )
    kept: JsonObject = {}
    for key, value in schema.items():
        if key in _SILENT:
            continue
        if key in _VALUES:
            kept[key] = value
        elif key in _BY_NAME and isinstance(value, dict):
            kept[key] = {name: _schema(inner, levels - 1) for name, inner in value.items()}
        elif key in _WORDS:
            kept[key] = _words(value)
        else:
            kept[key] = _schema(value, levels - 1)
        if key in _UNORDERED:
            kept[key] = _sorted(kept[key])
    return kept


def _annotations(annotations: JsonValue) -> JsonValue:
    """Hints of a tool, or the audience and priority of a resource. When a resource changed last is no definition."""
    if not isinstance(annotations, dict):
        return annotations
    return {
        key: _sorted(value) if key == "audience" else value
        for key, value in annotations.items()
        if key not in ("title", "lastModified")
    }


def _words(value: JsonValue) -> JsonValue:
    return " ".join(value.split()) if isinstance(value, str) else value


def _sorted(value: JsonValue) -> JsonValue:
    return sorted(value, key=json_bytes) if isinstance(value, list) else value


def _without_empty(definition: JsonObject) -> JsonObject:
    """A definition without fields that are absent, null or empty: all three say the same."""
    return {key: value for key, value in definition.items() if value not in (None, "", [], {})}
