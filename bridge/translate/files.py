"""Places the files of a message in the properties of a schema that ask for files. Pure.

A property asks for a file by `contentEncoding` (base64 text), `contentMediaType`, or `format: uri`. An array of such
items takes several files.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model.objects import Part
from bridge.mcp.tools import Tool
from bridge.text.jsonvalues import JsonObject
from bridge.translate.arguments import resolved_properties

_TO_STANDARD: Final = str.maketrans("-_", "+/")


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
    """The arguments with each file in the first free property that takes it, and the files that fit no property."""
    filled, unplaced = dict(arguments), []
    for part in files:
        if not _fill_in(tool, filled, part):
            unplaced.append(part)
    return filled, tuple(unplaced)


def _fill_in(tool: Tool, arguments: JsonObject, part: Part) -> bool:
    for name, prop in resolved_properties(tool.input_schema).items():
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
    """A file in the form that a property asks for; None when the property does not take this file."""
    wanted = schema.get("contentMediaType")
    if isinstance(wanted, str) and part.media_type and not is_of_type(part.media_type, wanted):
        return None
    if schema.get("format") == "uri":
        if part.url is not None:
            return part.url
        return (
            f"data:{part.media_type or 'application/octet-stream'};base64,{standard_base64(part.raw or '')}"
        )
    # A link is not the content that the property asks for, and the bridge does not fetch it.
    if part.raw is None:
        return None
    if schema.get("contentEncoding") == "base64":
        return standard_base64(part.raw)
    return _text_of(part.raw) if "contentEncoding" not in schema else None


def standard_base64(text: str) -> str:
    """Base64 in the standard alphabet with padding, which every reader accepts. A2A allows other forms."""
    text = text.rstrip("=").translate(_TO_STANDARD)
    return text + "=" * (-len(text) % 4)


def is_of_type(media_type: str, wanted: str) -> bool:
    """Whether a media type matches the wanted one, which may be a range such as `image/*`."""
    own, other = (text.partition(";")[0].strip().lower() for text in (media_type, wanted))
    return own == other or (other.endswith("/*") and own.startswith(other[:-1]))


def _text_of(raw: str) -> str | None:
    """The content as text, for a property without an encoding; None when it is not UTF-8 text."""
    try:
        return base64.b64decode(standard_base64(raw)).decode()
    except ValueError:
        return None
