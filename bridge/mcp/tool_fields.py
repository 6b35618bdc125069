"""Checks the types of a listed tool's fields, except for its name and input schema. Pure.

Hosts refuse a whole list of tools if a single field has a wrong type. Such a field is left out and reported, and the
tool stays. A null field counts as absent, since many servers write every field that they know.

Spec: MCP 2026-07-28 and 2025-11-25, schema: Tool, ToolAnnotations, Icon.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from pydantic import JsonValue

from bridge.errors import echoed
from bridge.text.jsonvalues import JsonObject

_Is = Callable[[JsonValue], bool]


def _is_text(value: JsonValue) -> bool:
    return isinstance(value, str)


def _is_truth(value: JsonValue) -> bool:
    return isinstance(value, bool)


def _is_object(value: JsonValue) -> bool:
    return isinstance(value, dict)


def _is_list(value: JsonValue) -> bool:
    return isinstance(value, list)


def _are_texts(value: JsonValue) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_theme(value: JsonValue) -> bool:
    return value in ("light", "dark")


_FIELDS: Final[Mapping[str, tuple[_Is, str]]] = {
    "title": (_is_text, "a text"),
    "description": (_is_text, "a text"),
    "annotations": (_is_object, "an object"),
    "_meta": (_is_object, "an object"),
    "icons": (_is_list, "a list"),
    "outputSchema": (_is_object, "an object"),
    "execution": (_is_object, "an object"),
}
"""The check for each field of a tool, and the name of its type."""
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_ANNOTATIONS: Final[Mapping[str, tuple[_Is, str]]] = {
    "title": (_is_text, "a text"),
    **dict.fromkeys(_HINTS, (_is_truth, "true or false")),
}
_ICON: Final[Mapping[str, tuple[_Is, str]]] = {
    "mimeType": (_is_text, "a text"),
    "sizes": (_are_texts, "a list of texts"),
    "theme": (_is_theme, "light or dark"),
}


def with_typed_fields(listed: JsonObject) -> tuple[JsonObject, tuple[str, ...]]:
    """A listed tool without fields of a wrong type, and a description of each field that was left out.

    A tool without a fault is returned unchanged.
    """
    faults: list[str] = []
    typed = _typed(listed, _FIELDS, "", faults)
    if isinstance(annotations := typed.get("annotations"), dict):
        typed = _with(typed, "annotations", _typed(annotations, _ANNOTATIONS, "annotations.", faults))
    if isinstance(icons := typed.get("icons"), list):
        typed = _with(typed, "icons", _icons(icons, faults))
    return typed, tuple(faults)


def _typed(
    value: JsonObject, fields: Mapping[str, tuple[_Is, str]], where: str, faults: list[str]
) -> JsonObject:
    wrong = [key for key, (is_right, _) in fields.items() if key in value and not is_right(value[key])]
    if not wrong:
        return value
    faults += [
        f"its {where}{key} is left out: {_quoted(value[key])} is not {fields[key][1]}"
        for key in wrong
        if value[key] is not None
    ]
    return {key: inner for key, inner in value.items() if key not in wrong}


def _quoted(value: JsonValue) -> str:
    return echoed(json.dumps(value, ensure_ascii=False))


def _icons(icons: list[JsonValue], faults: list[str]) -> list[JsonValue]:
    typed_icons: list[JsonValue] = []
    for number, icon in enumerate(icons):
        if isinstance(icon, dict) and isinstance(icon.get("src"), str):
            typed_icons.append(_typed(icon, _ICON, f"icons[{number}].", faults))
        else:
            faults.append(f"its icons[{number}] is left out: it is not an object with a src")
    is_same = len(typed_icons) == len(icons) and all(
        new is old for new, old in zip(typed_icons, icons, strict=True)
    )
    return icons if is_same else typed_icons


def _with(listed: JsonObject, key: str, value: JsonValue) -> JsonObject:
    return listed if listed[key] is value else {**listed, key: value}
