"""Resources as tools: one tool for each template, and one tool that finds and reads all other resources.

What the caller may read is judged before a URI is sent, and again for what the answer holds. Nothing is kept between
calls: a search reads the list anew, in the session of the caller.

Spec: MCP 2026-07-28 server/resources.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic import JsonValue

from bridge.errors import counted
from bridge.mcp.client.as_tools.entries import ListBounds, ReadEntries, entries_of
from bridge.mcp.client.as_tools.uri_templates import UriTemplate, Value
from bridge.mcp.client.faults import ServerRefusedError
from bridge.mcp.tools import CallOfStandIn
from bridge.text.jsonvalues import JsonObject

TEMPLATE_PREFIX: Final = "resource:"
"""What the name of a template's tool begins with."""
SEARCH: Final = "resources"
"""The name of the tool that finds and reads resources."""
_SEARCHED: Final = ListBounds(entries_most=10_000, limit_bytes=8 << 20)
"""How much of a list a search reads. A server with more is asked by URI, or has templates."""
_FOUND_MOST: Final = 50
"""The most links in the answer of a search. A longer answer fills the context of a model, and helps nobody choose."""
_KEPT: Final = ("title", "icons", "_meta")
_WORD: Final = re.compile(r"\w+")
_FORBIDDEN_CODE: Final = -32602
"""JSON-RPC's code for invalid params, which MCP also uses for a resource that does not exist."""
_READ: Final = "resources/read"
_LIST: Final = "resources/list"
_NOT_YOURS: Final = (
    "You may not read this resource: no `resources` rule allows you its URI, or it is a file of the server"
)


@dataclass(frozen=True, slots=True)
class TemplateStandIn:
    """Stands for one template. Implements `StandIn`."""

    entry: JsonObject
    """The template as its server lists it."""
    template: UriTemplate = field(repr=False)
    kind: Literal["resources"] = "resources"
    method: str = _READ

    async def result(self, call: CallOfStandIn) -> JsonObject:
        """The contents of the resource that the arguments name."""
        return await _contents_of(self.template.expanded(_values(call.arguments)), call)


@dataclass(frozen=True, slots=True)
class SearchStandIn:
    """Stands for all resources that a server lists. Implements `StandIn`."""

    entry: JsonObject = field(default_factory=dict)
    kind: Literal["resources"] = "resources"
    method: str = _LIST

    async def result(self, call: CallOfStandIn) -> JsonObject:
        """The contents of the one resource that is meant; else links to those that fit."""
        query, uri = call.arguments.get("query"), call.arguments.get("uri")
        if isinstance(uri, str):
            return await _contents_of(uri, call)
        text = query.strip() if isinstance(query, str) else ""
        read = await entries_of(call.ask, _LIST, "resources", _SEARCHED)
        seen = [entry for entry in read.entries if call.may_read(str(entry.get("uri", "")))]
        exact = [
            entry
            for entry in seen
            if text and text in (entry.get("uri"), entry.get("name"), entry.get("title"))
        ]
        if len(exact) == 1:
            return await _contents_of(str(exact[0]["uri"]), call)
        return _found(exact or _fitting(seen, text), text, len(seen), read)


def listed_template(entry: JsonObject, name: str, template: UriTemplate) -> JsonObject:
    """The tool for a template, as tools/list would show it."""
    text, words = entry["uriTemplate"], entry.get("description")
    reads = f"Reads {text}"
    needed = template.variables
    return {
        "name": name,
        "description": f"{words}\n\n{reads}" if isinstance(words, str) and words else reads,
        **{key: entry[key] for key in _KEPT if key in entry},
        "inputSchema": {
            "type": "object",
            "properties": {variable: _schema_of(variable, template) for variable in needed},
            "required": [variable for variable, is_needed in needed.items() if is_needed],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True},
    }


def listed_search() -> JsonObject:
    """The tool that finds and reads resources."""
    return {
        "name": SEARCH,
        "description": "Finds resources by the words of their names, and reads one. If one resource has exactly this"
        " name or URI, the answer is its content; else the answer has links to those that fit.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "Words of a name, or a whole name. Without it, all fit",
                },
                "uri": {"type": "string", "description": "The URI of the resource to read"},
            },
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True},
    }


def _schema_of(variable: str, template: UriTemplate) -> JsonObject:
    if variable in template.lists:
        return {"type": ["string", "array"], "items": {"type": "string"}}
    return {"type": "string"}


def _values(arguments: JsonObject) -> dict[str, Value]:
    return {
        name: value if isinstance(value, str) else [str(item) for item in value]
        for name, value in arguments.items()
        if isinstance(value, str | list)
    }


async def _contents_of(uri: str, call: CallOfStandIn) -> JsonObject:
    """The contents of a resource as the result of a tool: each an embedded resource.

    Raises:
        ServerRefusedError: the caller may not read it.
    """
    if not call.may_read(uri):
        raise ServerRefusedError(_FORBIDDEN_CODE, _NOT_YOURS, None)
    answer = await call.ask(_READ, {"uri": uri, **call.rounds})
    contents = answer.get("contents")
    if not isinstance(contents, list):
        return answer
    seen: list[JsonValue] = [
        {"type": "resource", "resource": content} for content in contents if _is_seen(content, uri, call)
    ]
    return {**{key: value for key, value in answer.items() if key != "contents"}, "content": seen}


def _is_seen(contents: JsonValue, requested_uri: str, call: CallOfStandIn) -> bool:
    uri = contents.get("uri", requested_uri) if isinstance(contents, dict) else None
    return uri == requested_uri or (isinstance(uri, str) and call.may_read(uri))


def _fitting(entries: list[JsonObject], query: str) -> list[JsonObject]:
    """The entries whose names have all words of a query, in the order of the list."""
    words = {word.casefold() for word in _WORD.findall(query)}
    return [entry for entry in entries if all(word in _names_in(entry) for word in words)]


def _names_in(entry: JsonObject) -> str:
    return " ".join(str(entry.get(key) or "") for key in ("name", "title", "uri")).casefold()


def _found(entries: list[JsonObject], query: str, seen: int, read: ReadEntries) -> JsonObject:
    links: list[JsonValue] = [{**entry, "type": "resource_link"} for entry in entries[:_FOUND_MOST]]
    words = f"{counted(len(entries), 'resource')} of {seen}" if query else counted(seen, "resource")
    about = f" with {query[:100]!r} in the name" if query else ""
    cut = f"; the first {_FOUND_MOST} follow" if len(entries) > _FOUND_MOST else ""
    left = f". The server lists more than was searched: {read.odd}" if read.odd else ""
    return {"content": [{"type": "text", "text": f"{words}{about}{cut}{left}"}, *links]}
