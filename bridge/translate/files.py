"""Files of a message onto the properties of a schema that ask for one. Pure.

A property asks for a file by `contentEncoding` (base64 text), `contentMediaType`, or `format: uri`; an array
of such properties takes several.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from bridge.a2a.models import JsonObject, Part
from bridge.mcp.tools import Tool
from bridge.translate.arguments import properties_of


def takes_file(schema: JsonValue) -> bool:
    """Whether a property asks for a file."""
    if not isinstance(schema, dict):
        return False
    if schema.get("type") == "array":
        return takes_file(schema.get("items"))
    return "contentEncoding" in schema or "contentMediaType" in schema or schema.get("format") == "uri"


def place_files(
    tool: Tool, arguments: JsonObject, files: Sequence[Part]
) -> tuple[JsonObject, tuple[Part, ...]]:
    """The arguments with each file on the first free property that takes it, and the files that fit none."""
    filled, unplaced = dict(arguments), []
    for part in files:
        if not _place(tool, filled, part):
            unplaced.append(part)
    return filled, tuple(unplaced)


def _place(tool: Tool, arguments: JsonObject, part: Part) -> bool:
    for name, prop in properties_of(tool.input_schema).items():
        is_list = prop.get("type") == "array"
        schema = prop.get("items") if is_list else prop
        held = arguments.get(name)
        if not isinstance(schema, dict) or not takes_file(schema) or (name in arguments and not is_list):
            continue
        value = _value_for(schema, part)
        if value is None:
            continue
        if is_list:
            arguments[name] = [*(held if isinstance(held, list) else []), value]
        else:
            arguments[name] = value
        return True
    return False


def _value_for(schema: JsonObject, part: Part) -> str | None:
    """A file as one property wants it, or None when it does not take this one."""
    wanted = schema.get("contentMediaType")
    if isinstance(wanted, str) and part.media_type and not _same_type(wanted, part.media_type):
        return None
    if schema.get("format") == "uri":
        if part.url is not None:
            return part.url
        return f"data:{part.media_type or 'application/octet-stream'};base64,{part.raw}"
    # A link is not the content that the property asks for, and is not fetched to become it.
    return part.raw


def _same_type(one: str, other: str) -> bool:
    return one.partition(";")[0].strip().lower() == other.partition(";")[0].strip().lower()
