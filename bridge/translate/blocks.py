"""Turns the parts of an agent's result into content blocks: the table of `content.py`, read backwards. Pure.

With the extension active, a part becomes exactly the block that it was made from. Any other part becomes the block that
fits best; fields that the block does not have go into its `_meta`.

Spec: A2A 1.0 section 4.1.6 (Part), MCP server/tools (content).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from urllib.parse import quote

from jsonschema.protocols import Validator
from pydantic import JsonValue

from bridge.a2a.model.objects import AppendedText, Part, PartKind
from bridge.local.file_names import named_by_type
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import WEB_SCHEMES, resource_link
from bridge.translate.content import (
    ADDED,
    HELD,
    PART_META,
    SPELLED,
    STRUCTURED,
    TWIN,
    WHOLE,
    WITHHELD,
    filename_in,
)
from bridge.translate.extensions.bridge import BLOCK
from bridge.translate.files import standard_base64

_MEDIA: Final = tuple(kind for kind, row in HELD.items() if row.needs_type)
"""The block types that a media type alone implies."""


@dataclass(frozen=True, slots=True)
class ResultRules:
    """The rules for reading a result."""

    extension_active: bool = False
    output: Validator | None = None
    """The validator of the structured result; None for a tool without an output schema."""
    inline_limit_bytes: int | None = None
    """A larger part of an artifact becomes a link; None for no limit."""
    link_for: Callable[[Part], str] | None = None
    """Gives the URI at which the bridge serves a part. For the first piece of a streamed text, the URI of the whole
    text."""
    preview: Callable[[Part, str], list[JsonValue] | None] | None = None
    """Gives the blocks in place of a part of an artifact whose text is too long, with the URI of the part; None if the
    part is passed on whole. None shortens nothing."""
    shown_uri: Callable[[str], str] | None = None
    """Gives the URI by which hosts read a resource of the tool's server; None if URIs stay as they are."""


def with_shown_uri(block: JsonValue, shown_uri: Callable[[str], str]) -> JsonValue:
    """A content block whose link or embedded resource has the URI by which hosts read it. Web addresses stay, since a
    host may fetch them itself."""
    if not isinstance(block, dict):
        return block
    if block.get("type") == "resource":
        held = block.get("resource")
        return {**block, "resource": _shown(held, shown_uri)} if isinstance(held, dict) else block
    return _shown(block, shown_uri) if block.get("type") == "resource_link" else block


def _shown(held: JsonObject, shown_uri: Callable[[str], str]) -> JsonObject:
    uri = held.get("uri")
    if not isinstance(uri, str) or uri.partition(":")[0].lower() in WEB_SCHEMES:
        return held
    return {**held, "uri": shown_uri(uri)}


def blocks_from_parts(parts: Sequence[Part], reading: ResultRules) -> list[JsonValue]:
    """The content blocks of some parts, in order, without structured content: see `structured_in`."""
    if reading.preview is not None and reading.link_for is not None and not structured_in(parts):
        pieces = [parts[first:end] for first, end in pieces_in(parts)]
        return [block for some in pieces for block in _shortened(some, reading) or _blocks_of(some, reading)]
    return _blocks_of(parts, reading)


def _blocks_of(parts: Sequence[Part], reading: ResultRules) -> list[JsonValue]:
    if reading.extension_active:
        return [block for part in parts for block in _blocks_from_part(part, reading)]
    return [_block_from_pieces(parts[first:end], reading) for first, end in pieces_in(parts)]


def _shortened(pieces: Sequence[Part], reading: ResultRules) -> list[JsonValue] | None:
    """The blocks in place of a part that would be one block of text; None if it is passed on whole."""
    assert reading.preview is not None
    assert reading.link_for is not None
    part = joined(pieces)
    if reading.extension_active:
        blocks = _blocks_from_part(part, reading)
        is_text = [isinstance(block, dict) and block.get("type") == "text" for block in blocks] == [True]
    else:
        is_text = part.kind in ("text", "data")
    return reading.preview(part, reading.link_for(pieces[0])) if is_text else None


def pieces_in(parts: Sequence[Part]) -> Iterator[tuple[int, int]]:
    """The first index and the end index of each part's pieces. A streamed text has several pieces, any other part has
    one."""
    starts = [number for number, part in enumerate(parts) if not (number and isinstance(part, AppendedText))]
    return pairwise((*starts, len(parts)))


def structured_in(parts: Sequence[Part]) -> tuple[JsonValue, ...]:
    """The structured content in a marked part, as a tuple of one; empty without one. For use with the extension
    active."""
    marked = (_restored(part) for part in parts if _block_of(part).get("type") == STRUCTURED)
    return next((value for value in marked if value), ())


def text_block(text: str) -> JsonObject:
    """A text as a content block."""
    return {"type": "text", "text": text}


def as_json(value: JsonValue) -> str:
    """A value as JSON text, for hosts that cannot read data."""
    return json.dumps(value, ensure_ascii=False)


def joined(pieces: Sequence[Part]) -> Part:
    """The part that these pieces make together."""
    first, *others = pieces
    return first.changed(text="".join(piece.text or "" for piece in pieces)) if others else first


def _blocks_from_part(part: Part, reading: ResultRules) -> tuple[JsonValue, ...]:
    """The blocks of a part with the extension active."""
    if _block_of(part).get("type") in (ADDED, STRUCTURED):
        return ()
    if restored := _restored(part):
        shown = reading.shown_uri
        return restored if shown is None else tuple(with_shown_uri(block, shown) for block in restored)
    return (_PLAIN[part.kind](part, reading),)


def _block_from_pieces(pieces: Sequence[Part], reading: ResultRules) -> JsonObject:
    limit, size_bytes = reading.inline_limit_bytes, sum(map(size_of, pieces))
    if reading.link_for is not None and limit is not None and size_bytes > limit:
        return linked(pieces[0], size_bytes, reading.link_for(pieces[0]))
    part = joined(pieces)
    return _with_meta(_PLAIN[part.kind](part, reading), part)


def _block_of(part: Part) -> JsonObject:
    block = (part.metadata or {}).get(BLOCK)
    return block if isinstance(block, dict) else {}


def _restored(part: Part) -> tuple[JsonValue, ...]:
    """The original block of a part, restored from its metadata. Empty when the metadata has no block, or contradicts
    the part."""
    block = _block_of(part)
    kind = block.get("type")
    rest = {key: value for key, value in block.items() if key != TWIN}
    typed: JsonObject = {} if part.media_type is None else {"mimeType": part.media_type}
    if kind in (WHOLE, STRUCTURED):
        return _spelled_out(part, block)
    if not block and part.kind == "raw":
        implied = (part.media_type or "").partition("/")[0]
        return ({"type": implied, "data": part.raw, **typed},) if implied in _MEDIA else ()
    if kind == "resource_link" and part.kind == "text" and block.get(WITHHELD) is True:
        return (text_block(part.text or ""),)
    row = HELD.get(kind) if isinstance(kind, str) else None
    name = row.fields.get(part.kind) if row is not None else None
    if row is None or name is None or (row.needs_type and not typed):
        return ()
    if kind == "resource_link" and not _may_be_link(part.url):
        return ()
    held: JsonObject = {name: getattr(part, part.kind), **(typed if row.takes_type else {})}
    if kind != "resource":
        return ({**rest, **held},)
    inner = rest.get("resource")
    return ({**rest, "resource": {**inner, **held}},) if isinstance(inner, dict) else ()


def _may_be_link(uri: str | None) -> bool:
    """Whether a part may become a link again. Another bridge's own configuration decides whether it passes on `file:`
    links."""
    return resource_link(uri) is not None or (uri or "").lower().startswith("file:")


def _spelled_out(part: Part, block: JsonObject) -> tuple[JsonValue, ...]:
    if part.kind == "data":
        return (part.data,)
    if part.text is None or block.get(SPELLED) is not True:
        return ()
    try:
        value: JsonValue = json.loads(part.text)
    except (ValueError, RecursionError):
        return ()
    return (value,)


def _text(part: Part, _: ResultRules) -> JsonObject:
    return text_block(part.text or "")


def _data(part: Part, _: ResultRules) -> JsonObject:
    return text_block(as_json(part.data))


def _raw(part: Part, reading: ResultRules) -> JsonObject:
    data, kind = standard_base64(part.raw or ""), (part.media_type or "").partition("/")[0].lower()
    if kind in _MEDIA:
        return {"type": kind, "data": data, "mimeType": part.media_type}
    uri = reading.link_for(part) if reading.link_for else f"attachment:{quote(_name_of(part), safe='')}"
    typed: JsonObject = {} if part.media_type is None else {"mimeType": part.media_type}
    return {"type": "resource", "resource": {"uri": uri, **_titled(part), **typed, "blob": data}}


def _name_of(part: Part) -> str:
    if part.filename or not part.media_type:
        return part.filename or "file"
    return named_by_type("file", part.media_type)


def _titled(part: Part) -> JsonObject:
    """The file name as `title`, which hosts show. Embedded resources and links have this field."""
    return {} if part.filename is None else {"title": part.filename}


def _url(part: Part, _: ResultRules) -> JsonObject:
    uri = part.url or ""
    name = part.filename or filename_in(uri) or uri
    if resource_link(uri) is None:
        return text_block(f"[{name}: a link that is no web address, not passed on as a link: {uri}]")
    typed: JsonObject = {} if part.media_type is None else {"mimeType": part.media_type}
    return {"type": "resource_link", "uri": uri, "name": name, **typed}


_PLAIN: Final[Mapping[PartKind, Callable[[Part, ResultRules], JsonObject]]] = {
    "text": _text,
    "raw": _raw,
    "url": _url,
    "data": _data,
}
"""The function that makes a block, for each kind of part."""

_UNSAID_TYPES: Final[Mapping[PartKind, str]] = {"text": "text/plain", "data": "application/json"}
"""The default media type for each kind of part, which `_meta` does not repeat."""


def _with_meta(block: JsonObject, part: Part) -> JsonObject:
    """A block with the other fields of its part in `_meta`. A block made from data is marked, since the bridge wrote
    its text."""
    fields: JsonObject = {"kind": "data"} if part.kind == "data" else {}
    if part.filename is not None and block["type"] != "resource_link":
        fields["filename"] = part.filename
    if part.media_type is not None and part.media_type != _UNSAID_TYPES.get(part.kind, part.media_type):
        fields["mediaType"] = part.media_type
    if part.metadata:
        fields["metadata"] = part.metadata
    return {**block, "_meta": {PART_META: fields}} if fields else block


def size_of(part: Part) -> int:
    """The size of a part in bytes. The content behind a URL does not count."""
    match part.kind:
        case "text":
            return len((part.text or "").encode(errors="surrogatepass"))
        case "raw":
            return len((part.raw or "").rstrip("=")) * 3 // 4
        case "data":
            return len(as_json(part.data).encode(errors="surrogatepass"))
        case "url":
            return 0


def linked(part: Part, size_bytes: int, uri: str) -> JsonObject:
    """The link in place of a part."""
    link: JsonObject = {
        "type": "resource_link",
        "uri": uri,
        "name": part.filename or f"{part.kind} of the result",
        **_titled(part),
        "size": size_bytes,
    }
    media_type = part.media_type or _UNSAID_TYPES.get(part.kind)
    return _with_meta(link if media_type is None else {**link, "mimeType": media_type}, part)
