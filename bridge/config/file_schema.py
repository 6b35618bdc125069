"""JSON Schemas of the file and of mapping profiles, for editors.

A TOML editor finds the schema through the first line of a file: `#:schema ./mcp-a2a.schema.json`. The models define the
keys. The descriptions of a profile's keys come from the comments in `mappings/default.toml`.

Spec: JSON Schema 2020-12.
"""

from __future__ import annotations

import re
from copy import deepcopy
from functools import cache
from typing import Final

from bridge.config.check.rules import CHOICES
from bridge.config.check.schema_nodes import SchemaNode, node_at, tidied, unit_of
from bridge.config.tables.models import Config
from bridge.config.tables.profile import DEFAULT_PROFILE_NAME, EXTENDS, profile_place
from bridge.config.tables.profile import profile_schema as plain_profile_schema
from bridge.config.text.document import Document, read_toml
from bridge.config.text.positions import KeyPath
from bridge.text.jsonvalues import JsonObject

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_BEHIND: Final = re.compile(r"[ \t]*#[ \t]*(?P<words>[^\n]*)")

_RANGE: Final = re.compile(r"; (?:over \d+|\d+ or more|\d+ to \d+)(?=$|,| \().*")
"""The range at the end of a meaning, which the type of the key says too."""

_EXTENDS: Final[JsonObject] = {
    "type": "string",
    "description": "the profile, by name or path, that has the keys that this profile omits",
}


def file_schema() -> JsonObject:
    """The schema of the configuration file."""
    schema = deepcopy(config_schema())
    for choice in CHOICES:
        table = node_at(schema, tuple("name" if step == "*" else step for step in _elements(choice.path)))
        table["oneOf" if choice.only_one else "anyOf"] = [{"required": [key]} for key in choice.keys]
    _say_units(schema)
    return {"$schema": DIALECT, "title": "The configuration of mcp-a2a", **schema}


def profile_schema() -> JsonObject:
    """The schema of a mapping profile. No key is required, because a profile may extend another one."""
    schema, default = (
        plain_profile_schema(),
        read_toml(profile_place(DEFAULT_PROFILE_NAME), "the mapping profile"),
    )
    meanings = meanings_in(default)
    for table, keys in default.data.items():
        node = node_at(schema, (table,))
        node.pop("required", None)
        for key, value in keys.items():
            node["properties"][key] |= {"description": meanings[table, key], "default": value}
    schema.pop("required")
    schema["properties"] = {EXTENDS: _EXTENDS, **schema["properties"]}
    _say_units(schema)
    return {"$schema": DIALECT, "title": "A mapping profile of mcp-a2a", **schema}


@cache
def config_schema() -> SchemaNode:
    """The schema of the file's keys, without the rules between keys. A key that says for one peer, skill or tool what a
    key of a profile says for all has the meaning of that key.

    Making the schema takes a tenth of a second, so all callers share one schema. They must not change it."""
    schema: SchemaNode = tidied(Config.model_json_schema())
    meanings = meanings_in(read_toml(profile_place(DEFAULT_PROFILE_NAME), "the mapping profile"))
    words = {key: _RANGE.sub("", words) for (_, key), words in meanings.items()}
    for table in schema["$defs"].values():
        for key, node in table.get("properties", {}).items():
            if "description" not in node and key in words:
                node["description"] = words[key]
    return schema


def _elements(path: KeyPath) -> KeyPath:
    """The path with an index in place of `*` for the elements of a list."""
    return (*path[:-1], 0) if path[-2:] == ("keys", "*") else path


def _say_units(schema: SchemaNode) -> None:
    for table in (schema, *schema.get("$defs", {}).values()):
        for key, node in table.get("properties", {}).items():
            if (unit := unit_of(key)) and unit not in node.get("description", ""):
                node["description"] = f"{node.get('description', '')} (in {unit})".strip()


def meanings_in(document: Document) -> dict[KeyPath, str]:
    """The comment of each key in a file, by table and key; "" without a comment.

    The comment after a value counts. If there is none, the comment lines directly above count.
    """
    return {
        (table, key): _meaning(document, (table, key))
        for table, keys in document.data.items()
        if isinstance(keys, dict)
        for key in keys
    }


def _meaning(document: Document, path: KeyPath) -> str:
    text, place = document.masked, document.positions[path]
    behind = _BEHIND.match(text, place.value.end)
    if behind:
        return behind["words"].strip()
    above = text[: text.rfind("\n", 0, place.start.start) + 1].split("\n")[:-1]
    lines: list[str] = []
    while above and above[-1].startswith("#"):
        lines.insert(0, above.pop().removeprefix("#").strip())
    return " ".join(lines)
