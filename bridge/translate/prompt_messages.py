"""Turns the messages of a prompt into parts of an artifact. Pure.

The content of a message is mapped as the content of a tool's result is. The other fields of the message, such as its
role, stand in the metadata of its parts, for every client.

Spec: MCP 2026-07-28 server/prompts; A2A 1.0 section 4.1.6 (Part).
"""

from __future__ import annotations

from pydantic import JsonValue

from bridge.a2a.model.objects import Part
from bridge.mcp.tools import MESSAGE_META
from bridge.text.jsonvalues import JsonObject
from bridge.translate.content import LinkRules, parts_from_result
from bridge.translate.extensions.bridge import MESSAGE


def parts_of_messages(result: JsonObject, links: LinkRules) -> tuple[Part, ...]:
    """The parts of a prompt's result, whose blocks name their messages in `_meta`."""
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    return tuple(_with_message(part, block) for block in blocks for part in _parts_of(block, links))


def _parts_of(block: JsonValue, links: LinkRules) -> tuple[Part, ...]:
    return parts_from_result({"content": [block]}, links)


def _with_message(part: Part, block: JsonValue) -> Part:
    meta = block.get("_meta") if isinstance(block, dict) else None
    if not isinstance(meta, dict) or MESSAGE_META not in meta:
        return part
    return part.changed(metadata={**(part.metadata or {}), MESSAGE: meta[MESSAGE_META]})
