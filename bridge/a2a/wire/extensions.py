"""Metadata that is shown only to clients that activated its extension. Pure.

An extension is inactive until a client asks for it. Clients that do not ask do not get its bulky metadata.

Spec: A2A 1.0 section 4.6.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue
from pydantic_core import from_json, to_json


class ExtensionFilter:
    """Removes the metadata of inactive extensions."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        """`keys` maps a metadata key to the URI of its extension."""
        self._keys = dict(keys)

    def hidden_keys(self, extensions: frozenset[str]) -> frozenset[str]:
        """The keys of inactive extensions, for a client with these active extensions."""
        return frozenset(key for key, uri in self._keys.items() if uri not in extensions)

    def filtered(self, text: bytes, extensions: frozenset[str]) -> bytes:
        """A JSON text for a client with these active extensions; the same object if nothing is removed."""
        hidden = {key for key in self.hidden_keys(extensions) if key.encode() in text}
        return to_json(_without(from_json(text), hidden)) if hidden else text


def _without(value: JsonValue, hidden: set[str]) -> JsonValue:
    if isinstance(value, list):
        return [_without(item, hidden) for item in value]
    if not isinstance(value, dict):
        return value
    public: dict[str, JsonValue] = {}
    for name, item in value.items():
        if name == "metadata" and isinstance(item, dict):
            metadata = {key: inner for key, inner in item.items() if key not in hidden}
            if metadata:
                public[name] = metadata
        elif name == "data":
            public[name] = item  # values of the user are not searched for metadata
        else:
            public[name] = _without(item, hidden)
    return public
