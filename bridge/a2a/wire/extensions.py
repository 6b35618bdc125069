"""Metadata that only clients which activated an extension get to see. Pure.

An extension is inactive until a client asks for it, so what it adds in bulk stays away from the others.

Spec: A2A 1.0 section 4.6.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue
from pydantic_core import from_json, to_json


class ExtensionFilter:
    """Which metadata keys belong to which extension."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        """`keys`: metadata key to the URI of the extension that shows it."""
        self._keys = dict(keys)

    def shown(self, text: bytes, extensions: frozenset[str]) -> bytes:
        """A JSON text as a client with these extensions sees it; the same object when nothing is hidden."""
        hidden = {key for key, uri in self._keys.items() if uri not in extensions and key.encode() in text}
        return to_json(_without(from_json(text), hidden)) if hidden else text


def _without(value: JsonValue, hidden: set[str]) -> JsonValue:
    if isinstance(value, list):
        return [_without(item, hidden) for item in value]
    if not isinstance(value, dict):
        return value
    kept: dict[str, JsonValue] = {}
    for name, item in value.items():
        if name == "metadata" and isinstance(item, dict):
            metadata = {key: inner for key, inner in item.items() if key not in hidden}
            if metadata:
                kept[name] = metadata
        elif name == "data":
            kept[name] = item  # a value of the user's: nothing in it is ours to hide
        else:
            kept[name] = _without(item, hidden)
    return kept
