"""What a caller sees of a server's answer to a request for resources, prompts or completions. Pure.

An answer passes to the letter, except for what its caller may not read: entries of lists, contents, suggested values,
and links and embedded resources of prompts. `file:` URIs show paths on the server's disk, and are withheld as in
results of tools. A list without entries that others see is not the same for everyone, so its `cacheScope` is
`private`.

Spec: MCP 2026-07-28 server/resources, server/prompts, server/utilities/completion, server/utilities/caching.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from bridge.text.jsonvalues import JsonObject

_WITHHELD: Final = "[a resource that is not passed on]"
"""Stands in the place of a link or an embedded resource. Even its name may be too much."""


@dataclass(frozen=True, slots=True)
class SharedView:
    """What one caller may use of a server's resources and prompts."""

    is_limited: bool
    """Whether the caller may not use everything."""
    may_read: Callable[[str], bool]
    """Whether the caller may use the resource with this URI."""
    may_lead_there: Callable[[str], bool]
    """Whether the caller may use some resource of this template."""
    may_become: Callable[[str, Mapping[str, str]], bool]
    """Whether the caller may use some resource of this template with these values."""
    may_prompt: Callable[[str], bool]
    """Whether the caller may use the prompt with this name."""


def visible(method: str, params: JsonObject, result: JsonObject, view: SharedView) -> JsonObject:
    """The result of a request as its caller sees it; the same object if the caller sees all of it."""
    seeing = _VIEWS.get(method)
    if seeing is None:
        return result
    seen = seeing(params, result, view)
    if view.is_limited and seen.get("cacheScope") == "public":
        seen = {**seen, "cacheScope": "private"}
    return seen


def _listed(key: str, name: str, may_use: Callable[[SharedView], Callable[[str], bool]]) -> _Seeing:
    def seeing(_: JsonObject, result: JsonObject, view: SharedView) -> JsonObject:
        return _with(result, key, lambda entry: _named(entry, name, may_use(view)))

    return seeing


def _named(entry: JsonValue, name: str, may_use: Callable[[str], bool]) -> bool:
    value = entry.get(name) if isinstance(entry, dict) else None
    return isinstance(value, str) and may_use(value)


def _with(result: JsonObject, key: str, is_seen: Callable[[JsonValue], bool]) -> JsonObject:
    entries = result.get(key)
    if not isinstance(entries, list):
        return result
    seen = [entry for entry in entries if is_seen(entry)]
    return result if len(seen) == len(entries) else {**result, key: seen}


def _contents(params: JsonObject, result: JsonObject, view: SharedView) -> JsonObject:
    requested_uri = params.get("uri")

    def is_seen(contents: JsonValue) -> bool:
        uri = contents.get("uri", requested_uri) if isinstance(contents, dict) else None
        return uri == requested_uri or (isinstance(uri, str) and view.may_read(uri))

    return _with(result, "contents", is_seen)


def _messages(_: JsonObject, result: JsonObject, view: SharedView) -> JsonObject:
    messages = result.get("messages")
    if not isinstance(messages, list):
        return result
    seen = [_message(message, view) for message in messages]
    return result if all(map(_is_it, seen, messages)) else {**result, "messages": seen}


def _message(message: JsonValue, view: SharedView) -> JsonValue:
    if not isinstance(message, dict):
        return message
    content = message.get("content")
    blocks = content if isinstance(content, list) else [content]
    seen = [_block(block, view) for block in blocks]
    if all(map(_is_it, seen, blocks)):
        return message
    return {**message, "content": seen if isinstance(content, list) else seen[0]}


def _block(block: JsonValue, view: SharedView) -> JsonValue:
    """A content block, or a text in place of one with a resource that its reader may not use."""
    if not isinstance(block, dict):
        return block
    held = block.get("resource") if block.get("type") == "resource" else block
    if block.get("type") not in ("resource", "resource_link") or not isinstance(held, dict):
        return block
    uri = held.get("uri")
    if isinstance(uri, str) and view.may_read(uri):
        return block
    return {"type": "text", "text": _WITHHELD}


def _is_it(value: JsonValue, other: JsonValue) -> bool:
    return value is other


def _values(params: JsonObject, result: JsonObject, view: SharedView) -> JsonObject:
    """Suggested values that lead to a resource that the caller may use. The number of the others is not said."""
    ref, argument, completion = params.get("ref"), params.get("argument"), result.get("completion")
    template = ref.get("uri") if isinstance(ref, dict) else None
    name = argument.get("name") if isinstance(argument, dict) else None
    if not view.is_limited or not isinstance(template, str) or not isinstance(completion, dict):
        return result
    context = params.get("context")
    known = context.get("arguments") if isinstance(context, dict) else None
    arguments = (
        {key: value for key, value in known.items() if isinstance(value, str)}
        if isinstance(known, dict)
        else {}
    )

    def is_seen(value: JsonValue) -> bool:
        return (
            isinstance(value, str)
            and isinstance(name, str)
            and view.may_become(template, {**arguments, name: value})
        )

    seen = _with(completion, "values", is_seen)
    if seen is completion:
        return result
    left = {key: value for key, value in seen.items() if key != "total"}
    return {**result, "completion": left}


_Seeing = Callable[[JsonObject, JsonObject, SharedView], JsonObject]

_VIEWS: Final[Mapping[str, _Seeing]] = {
    "resources/list": _listed("resources", "uri", lambda view: view.may_read),
    "resources/templates/list": _listed("resourceTemplates", "uriTemplate", lambda view: view.may_lead_there),
    "resources/read": _contents,
    "prompts/list": _listed("prompts", "name", lambda view: view.may_prompt),
    "prompts/get": _messages,
    "completion/complete": _values,
}
"""How the result of each method is seen. A list is seen without the entries that its reader may not use."""
