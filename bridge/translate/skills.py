"""Turns a tool into a skill of an agent. Pure.

Spec: A2A 1.0 section 4.4.5 (AgentSkill), MCP server/tools (annotations are hints).
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model.objects import AgentSkill
from bridge.mcp.tools import Tool
from bridge.text.jsonvalues import JsonObject
from bridge.translate.arguments import required_of, resolved_properties
from bridge.translate.examples import example_of
from bridge.translate.files import takes_file
from bridge.translate.overrides import SkillOverride

TEXT: Final = "text/plain"
JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"
ANYTHING: Final = "*/*"

_HINTS: Final[Mapping[str, tuple[str, str | None]]] = {
    "readOnlyHint": ("read-only", None),
    "destructiveHint": ("destructive", "non-destructive"),
    "idempotentHint": ("idempotent", None),
    "openWorldHint": ("open-world", "closed-world"),
}
"""For each annotation, the tag if it is true and the tag if it is false. An absent annotation gives no tag."""


_DIGEST_CHARACTERS: Final = (0, 0, 8, 64)
"""The length of the hash at the end of an id, at each step: no hash, no hash but the source as prefix, then longer
hashes."""

_ID: Final = re.compile(r"\S+")
_KEY: Final = re.compile(r"[^\s='\"\\]+")
"""`_ID` can begin a text, and `_KEY` can be the name in `name=value`."""

ToolKey = tuple[str, str]
"""Identifies a tool: the key of its source, and its name there."""

NO_RULE: Final = SkillOverride()


def skill_ids(keys: Iterable[ToolKey]) -> dict[ToolKey, str]:
    """An id for each tool: its name, unchanged. Tools with the same name are all prefixed by their source."""
    steps = dict.fromkeys(keys, 0)
    while True:
        ids = {key: _id(key, step) for key, step in steps.items()}
        lowest: dict[str, int] = {}
        for key, skill_id in ids.items():
            lowest[skill_id] = min(steps[key], lowest.get(skill_id, steps[key]))
        wanted = Counter(ids.values())
        # An id that has a prefix already stays. The tool whose plain name collides with it gets a prefix.
        going_on = [
            key for key, skill_id in ids.items() if wanted[skill_id] > 1 and steps[key] == lowest[skill_id]
        ]
        if not going_on:
            return ids
        for key in going_on:
            steps[key] += 1


def ids_of(key: ToolKey) -> tuple[str, ...]:
    """All ids that a tool may get, depending on other tools, the longest first. The list depends on this tool alone."""
    return tuple(_id(key, step) for step in reversed(range(len(_DIGEST_CHARACTERS))))


def qualified_id(key: ToolKey) -> str:
    """The id of a tool, prefixed by its source: SERVER_TOOL."""
    return _id(key, 1)


def _id(key: ToolKey, step: int) -> str:
    source_key, name = key
    if step == 0:
        return name
    digest = hashlib.sha256(f"{source_key}\0{name}".encode()).hexdigest()[: _DIGEST_CHARACTERS[step]]
    return "_".join(filter(None, [source_key, name, digest]))


def skill_from(tool: Tool, skill_id: str, server_key: str, override: SkillOverride = NO_RULE) -> AgentSkill:
    """The skill for a tool. `tool` is the tool as callers see it."""
    name = tool.text("title") or _annotated_title(tool) or tool.name
    return AgentSkill(
        id=skill_id,
        name=name,
        description=tool.text("description") or name,
        tags=tuple(dict.fromkeys((server_key, *_tags_from(tool.annotations), *(override.tags or ())))),
        examples=_examples(tool, skill_id) if override.examples is None else override.examples,
        input_modes=_input_modes(tool.input_schema),
        output_modes=output_modes_of(tool),
    )


def output_modes_of(tool: Tool) -> tuple[str, ...]:
    """The media types that a tool's result may have. Without an output schema, they are unknown."""
    return (JSON, TEXT) if tool.output_schema is not None else (TEXT, ANYTHING)


def accepts_any(accepted: tuple[str, ...], offered: tuple[str, ...]) -> bool:
    """Whether a client that accepts the modes `accepted` accepts at least one of `offered`. A client that names no
    modes accepts all.

    `*/*`, `type/*` and the bare `type` are wildcards.
    """
    return not accepted or any(_matches(mine, theirs) for mine in offered for theirs in accepted)


def _matches(first: str, other: str) -> bool:
    one_type, _, one_subtype = first.partition(";")[0].strip().lower().partition("/")
    other_type, _, other_subtype = other.partition(";")[0].strip().lower().partition("/")
    wide = ("*", "")
    return (one_type == other_type or "*" in (one_type, other_type)) and (
        one_subtype == other_subtype or one_subtype in wide or other_subtype in wide
    )


def _annotated_title(tool: Tool) -> str | None:
    title = tool.annotations.get("title")
    return title if isinstance(title, str) and title else None


def _tags_from(annotations: JsonObject) -> tuple[str, ...]:
    tags = []
    for hint, (when_true, when_false) in _HINTS.items():
        value = annotations.get(hint)
        tag = when_true if value is True else when_false if value is False else None
        if tag is not None:
            tags.append(tag)
    return tuple(tags)


def _input_modes(schema: JsonObject) -> tuple[str, ...]:
    modes = [JSON, TEXT]
    for prop in resolved_properties(schema).values():
        media_type = prop.get("contentMediaType")
        if isinstance(media_type, str):
            modes.append(media_type)
        elif takes_file(prop):
            modes.append(ANYTHING)
    return tuple(dict.fromkeys(modes))


def _examples(tool: Tool, skill_id: str) -> tuple[str, ...] | None:
    arguments = example_of(tool)
    if arguments is None:
        return None
    call = json.dumps({"skill": skill_id, "arguments": arguments}, ensure_ascii=False)
    flat = all(_is_flat(arguments.get(name)) for name in required_of(tool.input_schema))
    is_sayable = _ID.fullmatch(skill_id) and all(_KEY.fullmatch(name) for name in arguments)
    return (call, _as_text(skill_id, arguments)) if flat and is_sayable else (call,)


def _as_text(skill_id: str, arguments: JsonObject) -> str:
    pairs = (f"{name}={shlex.quote(_plain(value))}" for name, value in arguments.items())
    return " ".join([skill_id, *pairs])


def _plain(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _is_flat(value: JsonValue) -> bool:
    return not isinstance(value, dict | list)
