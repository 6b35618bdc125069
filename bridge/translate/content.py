"""Turns the content of a tool's result into parts of an artifact. Pure.

A part holds the fields of a block for which A2A has a field. The other fields (annotations, `_meta`, unknown fields) go
into the part's metadata under `.../block`, so that the block can be restored exactly. A block that fits no row of the
table is passed on whole, as data. Nothing is dropped.

Spec: MCP 2026-07-28 server/tools (content), A2A 1.0 section 4.1.6 (Part).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import unquote, urlsplit

from pydantic import JsonValue, ValidationError
from pydantic_core import from_json

from bridge.a2a.model.objects import Part, PartKind
from bridge.text.jsonvalues import JsonObject, exceeds_floats, is_deeper, is_same
from bridge.text.safe_text import WEB_SCHEMES, resource_link
from bridge.translate.extensions.bridge import BLOCK

STRUCTURED: Final = "structuredContent"
"""The `type` under `.../block` of the data part that holds a result's structured content."""
TWIN: Final = "twin"
"""True under `.../block` of a text that repeats the structured content, for clients that cannot read data."""
WITHHELD: Final = "withheld"
"""True under `.../block` of a link that was not passed on."""
SPELLED: Final = "spelled"
"""True under `.../block` of a text that holds, as JSON, a value too deep for a data part."""
WHOLE: Final = "block"
"""The `type` under `.../block` of the data part that holds a whole block."""
ADDED: Final = "added"
"""The `type` under `.../block` of a text that the bridge added, which is not a block of the server."""
PART_META: Final = "mcp-a2a/part"
"""The `_meta` key for fields of the part that the block lacks: {"kind"?, "filename"?, "mediaType"?, "metadata"?}."""
MAX_DATA_DEPTH: Final = 40
"""The most levels of arrays and objects in a data part. A deeper value becomes JSON text: a2a-sdk, whose JSON goes
through protocol buffers, reads 46 levels in a listed task, and metadata adds some."""

WRAPPED: Final = "result"
"""The only field of an object in which servers wrap structured content that is not an object, as the Python SDK
does."""


@dataclass(frozen=True, slots=True)
class HeldFields:
    """The fields of a block that its part holds, so that the metadata need not hold them."""

    fields: Mapping[PartKind, str]
    """For each content field of the part, the field of the block that it comes from."""
    takes_type: bool = True
    """Whether the part's media type is the block's `mimeType`."""
    needs_type: bool = False
    """Whether a block of this type must have a `mimeType`."""


HELD: Final[Mapping[str, HeldFields]] = {
    "text": HeldFields({"text": "text"}, takes_type=False),
    "image": HeldFields({"raw": "data"}, needs_type=True),
    "audio": HeldFields({"raw": "data"}, needs_type=True),
    "resource": HeldFields({"text": "text", "raw": "blob"}),
    "resource_link": HeldFields({"url": "uri"}),
}
"""For each type of content block, the fields that its part holds; for `resource`, the fields of the embedded resource.
The same table turns blocks into parts and parts into blocks."""

_MARKS: Final = frozenset({TWIN, WITHHELD, SPELLED})
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class LinkRules:
    """How links that only the server can open are passed on."""

    extension_active: bool
    allow_file: bool = False
    """Whether `file:` links, which reveal paths on the server's disk, are passed on."""
    read: Mapping[str, Sequence[JsonValue]] = field(default_factory=dict)
    """The `contents` of resources/read for each link that was read, by URI."""
    address: Callable[[JsonObject], str | None] | None = None
    """Gives the address at which the bridge serves a link; None if it serves none. Used for a client that could not
    open the link itself."""


class Repeated(StrEnum):
    """Which form of structured content is passed on when a text repeats it."""

    BOTH = "both"
    TEXT = "the text alone"
    DATA = "the data alone"


def links_to_read(content: Sequence[JsonValue]) -> Counter[str]:
    """The links of a result that a client without the extension could not open (all but http and https), and how often
    each occurs."""
    blocks = (block for block in content if isinstance(block, dict) and block.get("type") == "resource_link")
    uris = (block.get("uri") for block in blocks)
    return Counter(uri for uri in uris if isinstance(uri, str) and not _is_web(uri))


def parts_from_result(
    result: JsonObject, links: LinkRules, repeated: Repeated = Repeated.BOTH
) -> tuple[Part, ...]:
    """The parts of a result: its content in order, then its structured content as data.

    `repeated` applies only when a text block repeats all of the structured content. Any other text always stays.
    """
    content = result.get("content")
    structured = result.get(STRUCTURED)
    has_structured = STRUCTURED in result
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    parts: list[Part] = []
    is_in_text = False
    for block in blocks:
        twin = has_structured and repeats(block, structured)
        made = _parts_from_block(block, links, twin=twin)
        if has_structured and repeated is not Repeated.BOTH and made[0].kind == "text":
            says = twin or _says_wrapped(block, structured)
            is_in_text = is_in_text or says
            if says and repeated is Repeated.DATA:
                continue
        parts += made
    if has_structured and not (is_in_text and repeated is Repeated.TEXT):
        parts.append(_data(structured, STRUCTURED))
    return tuple(parts)


def peer_metadata(result: JsonObject) -> JsonObject:
    """The `_meta` of a result, and its unknown fields."""
    known = ("content", STRUCTURED, "isError", "resultType")
    return {key: bounded(value) for key, value in result.items() if key not in known}


def _parts_from_block(block: JsonValue, links: LinkRules, *, twin: bool) -> Sequence[Part]:
    if not isinstance(block, dict) or _MARKS & block.keys() or _is_unreadable(block):
        return [_whole(block)]
    if block.get("type") == "resource_link" and not links.extension_active:
        read = links.read.get(str(block.get("uri")))
        if read:
            readable = block if links.allow_file else _without_file(block)
            return [_part_from_read(contents, readable) for contents in read]
    convert = _CONVERTERS.get(str(block.get("type")))
    try:
        part = convert(block, links) if convert else None
    except ValidationError:
        part = None
    if part is None:
        return [_whole(block)]
    return [_marked(part, TWIN)] if twin else [part]


def _plain(block: JsonObject, _: LinkRules) -> Part | None:
    kind = str(block["type"])
    held = _held(kind, block)
    if held is None:
        return None
    fields, rest = held
    implied = str(fields.get("media_type") or kind).partition("/")[0]
    if name := filename_of(block):
        fields["filename"] = name
    # A block whose only remaining field is the implied type needs no metadata.
    return Part.model_validate(fields if rest == {"type": implied} else {**fields, "metadata": {BLOCK: rest}})


def _resource(block: JsonObject, _: LinkRules) -> Part | None:
    resource = block.get("resource")
    held = _held("resource", resource) if isinstance(resource, dict) else None
    if held is None or not isinstance(resource, dict):
        return None
    fields, rest = held
    metadata: JsonObject = {BLOCK: {**block, "resource": rest}}
    name = filename_of(block) or filename_in(resource.get("uri"))
    return Part.model_validate({**fields, "filename": name, "metadata": metadata})


def _resource_link(block: JsonObject, links: LinkRules) -> Part | None:
    held = _held("resource_link", block)
    if held is None:
        return None
    fields, rest = held
    name = block.get("name")
    given_name = name if isinstance(name, str) else None
    scheme = _scheme(str(fields["url"]))
    if scheme != "file" and resource_link(str(fields["url"])) is None:
        words = f"a link that is no web address ({scheme or 'without a scheme'}:), not passed on"
        return Part(text=f"[{given_name or 'a link'}: {words}]", metadata={BLOCK: _without_file(block)})
    if scheme == "file" and not links.allow_file:
        return Part(
            text=f"[{given_name or 'a file'}: a link to a file of the server, not passed on]",
            metadata={BLOCK: _without_file(block)},
        )
    if links.address is not None and not links.extension_active and scheme not in WEB_SCHEMES:
        fields["url"] = links.address(block) or fields["url"]
    return Part.model_validate({**fields, "filename": given_name, "metadata": {BLOCK: rest}})


_CONVERTERS: Final[Mapping[str, Callable[[JsonObject, LinkRules], Part | None]]] = {
    "text": _plain,
    "image": _plain,
    "audio": _plain,
    "resource": _resource,
    "resource_link": _resource_link,
}
"""The function that makes a part, for each type of content block. It returns None when a required field is missing."""


def _part_from_read(contents: JsonValue, link: JsonObject) -> Part:
    """The part that replaces a link by its contents."""
    part = _part_from_contents(contents) if isinstance(contents, dict) else None
    if part is None:
        return _whole(contents)
    return part.changed(metadata={BLOCK: link})


def _part_from_contents(contents: JsonObject) -> Part | None:
    """The text or blob contents of a resource as a part; None when they are neither."""
    held = _held("resource", contents)
    if held is None:
        return None
    return Part.model_validate({**held[0], "filename": filename_in(contents.get("uri"))})


def _held(kind: str, fields: JsonObject) -> tuple[JsonObject, JsonObject] | None:
    """Splits a block, or the resource in a block, into the fields of its part and the remaining fields."""
    row = HELD[kind]
    media_type = fields.get("mimeType") if row.takes_type else None
    if row.needs_type and not isinstance(media_type, str):
        return None
    for part_kind, name in row.fields.items():
        if isinstance(value := fields.get(name), str):
            typed: JsonObject = {"media_type": media_type} if isinstance(media_type, str) else {}
            taken = {name, "mimeType"} if typed else {name}
            return {part_kind: value, **typed}, {key: fields[key] for key in fields if key not in taken}
    return None


def _whole(block: JsonValue) -> Part:
    """A block of an unknown type, whole, as a data part."""
    return _data(block, WHOLE)


def _data(value: JsonValue, kind: str) -> Part:
    if _is_unreadable(value):
        return Part(text=_spelled(value), media_type=_JSON, metadata={BLOCK: {"type": kind, SPELLED: True}})
    return Part(data=value, media_type=_JSON, metadata={BLOCK: {"type": kind}})


def bounded(value: JsonValue) -> JsonValue:
    """A value that every JSON reader accepts. A value that is too deep or holds too large a number becomes JSON
    text."""
    return _spelled(value) if _is_unreadable(value) else value


def _is_unreadable(value: JsonValue) -> bool:
    return is_deeper(value, MAX_DATA_DEPTH) or exceeds_floats(value)


def _spelled(value: JsonValue) -> str:
    return json.dumps(_finite(value), ensure_ascii=False)


def _finite(value: JsonValue) -> JsonValue:
    """A value with null in place of each number that is not finite, since JSON has no NaN."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _without_file(link: JsonObject) -> JsonObject:
    """A link, without its URI when that is a `file:` URI."""
    if _scheme(str(link.get("uri"))) != "file":
        return link
    return {**{key: value for key, value in link.items() if key != "uri"}, WITHHELD: True}


def _marked(part: Part, mark: str) -> Part:
    block = (part.metadata or {}).get(BLOCK)
    rest = block if isinstance(block, dict) else {"type": "text"}
    return part.changed(metadata={BLOCK: {**rest, mark: True}})


def repeats(block: JsonValue, structured: JsonValue) -> bool:
    """Whether a text block is the JSON of the structured content."""
    text = _text_in(block)
    return text is not None and _is_json_of(text, structured)


def _says_wrapped(block: JsonValue, structured: JsonValue) -> bool:
    """Whether a text block repeats the value inside the wrapper, as plain text or as JSON."""
    if not isinstance(structured, dict) or structured.keys() != {WRAPPED}:
        return False
    text, wrapped = _text_in(block), structured[WRAPPED]
    return text is not None and (text == wrapped or _is_json_of(text, wrapped))


def _text_in(block: JsonValue) -> str | None:
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    return text if isinstance(text, str) else None


def _is_json_of(text: str, value: JsonValue) -> bool:
    try:
        return is_same(from_json(text), value)
    except ValueError:
        return False


def filename_of(block: JsonObject) -> str | None:
    """An agent's file name, which a bridge wrote into the `_meta` of a block; None without one."""
    meta = block.get("_meta")
    about = meta.get(PART_META) if isinstance(meta, dict) else None
    name = about.get("filename") if isinstance(about, dict) else None
    return name if isinstance(name, str) and name else None


def filename_in(uri: JsonValue) -> str | None:
    """The last segment of a URI's path; None without one."""
    try:
        path = urlsplit(uri).path if isinstance(uri, str) else ""
    except ValueError:
        return None
    return unquote(path.rstrip("/").rpartition("/")[2]) or None


def _is_web(uri: str) -> bool:
    return _scheme(uri) in WEB_SCHEMES


def _scheme(uri: str) -> str:
    try:
        return urlsplit(uri).scheme
    except ValueError:  # an invalid URL can still have a scheme: http://[
        return uri.partition(":")[0].strip().lower()
