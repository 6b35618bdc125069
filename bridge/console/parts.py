"""Parts of messages and results for a page: as text, table, image, sound, link or file. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model.objects import Message, Part, Task
from bridge.errors import counted
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import spelled_as_json, web_link, with_visible_characters
from bridge.translate.content import filename_in, filename_of
from bridge.translate.extensions.bridge import ANSWER

IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})
"""Images that contain no scripts. An SVG may contain scripts, so it is offered as a file."""

SOUNDS: Final = frozenset({"audio/wav", "audio/x-wav", "audio/mpeg", "audio/ogg", "audio/webm", "audio/flac"})

_COLUMNS_MOST: Final = 12
_ROWS_MOST: Final = 200
"""The most rows of a table on a page. The file has all rows."""

TEXT_MOST: Final = 100_000
"""The most characters of one text on a page. The file has the whole text."""

_STANDARD: Final = str.maketrans("-_", "+/")
"""Translates the URL-safe alphabet of base64, which A2A also allows, into the standard alphabet."""

_FILE: Final = "application/octet-stream"

_BLOCKS_MOST: Final = 100
"""The most blocks of one result on a page."""

_INLINE_MOST: Final = 16 << 20
"""The most base64 characters of all images, sounds and files of one result on a page."""

_SHORT: Final = 200
"""The most characters of a table cell."""


def places_in(task: Task) -> Iterator[tuple[str, Part]]:
    """Yield every part of a task with a name for its place. The name stays the same while the task goes on."""
    for number, artifact in enumerate(task.artifacts or ()):
        yield from _places(f"a{number}", artifact.parts)
    for number, message in enumerate(task.history or ()):
        yield from _places(f"m{number}", message.parts)
    if task.status.message is not None:
        yield from _places("s", task.status.message.parts)


def _places(holder: str, parts: Sequence[Part]) -> Iterator[tuple[str, Part]]:
    yield from ((f"{holder}.{number}", part) for number, part in enumerate(parts))


def file_of(part: Part) -> tuple[bytes, str, str]:
    """A part as a file: its bytes, its media type and a name."""
    kind, name = part.media_type or "", part.filename or ""
    if part.raw is not None:
        standard = part.raw.rstrip("=").translate(_STANDARD)
        return base64.b64decode(standard + "=" * (-len(standard) % 4)), kind, name or "file"
    if part.text is not None:
        return part.text.encode(), kind or "text/plain", name or "text.txt"
    return (
        Part(data=part.data).to_json()[len(b'{"data":') : -1],
        kind or "application/json",
        name or "data.json",
    )


def shown_parts(holder: str, parts: Sequence[Part], link: Callable[[str], str]) -> list[JsonValue]:
    """The parts for a page. `link` gives the URL of the file at a place."""
    return [shown_part(part, link(place)) for place, part in _places(holder, parts)]


def shown_part(part: Part, href: str) -> JsonObject:
    """One part: a text, a value, a table, an image, a sound, a link or a file."""
    about: JsonObject = {"type": part.media_type or "", "name": part.filename or ""}
    if part.text is not None:
        cut = len(part.text) > TEXT_MOST
        return {**about, "is": "text", "text": part.text[:TEXT_MOST], "cut": cut, "file": href}
    if part.url is not None:
        return {**about, "is": "link", "url": part.url, "web": web_link(part.url)}
    if part.raw is None:
        return {**about, **shown_value(part.data), "file": href}
    kind = (part.media_type or "").partition(";")[0].strip().lower()
    what = "image" if kind in IMAGES else "audio" if kind in SOUNDS else "file"
    return {**about, "is": what, "file": href, "bytes": len(part.raw) * 3 // 4 - part.raw.count("=")}


def shown_value(value: JsonValue) -> JsonObject:
    """A value as a table, if it is one, else as JSON."""
    table = _table_of(value)
    return {"is": "json", "value": value} if table is None else {"is": "table", "value": value, **table}


def _table_of(value: JsonValue) -> JsonObject | None:
    """A list of flat objects as a table, also as the only field of an object; None for anything else."""
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    if not isinstance(value, list) or not value or not all(isinstance(row, dict) and row for row in value):
        return None
    rows = [row for row in value if isinstance(row, dict)]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if len(columns) > _COLUMNS_MOST or any(_is_large(cell) for row in rows for cell in row.values()):
        return None
    return {
        "columns": [*columns],
        "rows": [[row.get(name) for name in columns] for row in rows[:_ROWS_MOST]],
        "left": max(len(rows) - _ROWS_MOST, 0),
    }


def _is_large(cell: JsonValue) -> bool:
    return isinstance(cell, dict | list) or (isinstance(cell, str) and len(cell) > _SHORT)


_ANSWERS: Final[Mapping[str, str]] = {
    "accept": "answered",
    "decline": "declined",
    "cancel": "canceled the question",
}
"""The word for the answer in a message, by the action in its metadata."""


def answer_word(message: Message) -> str:
    """The word for the answer in a message; "" if it answers no question. An accepted question without values is
    "allowed"."""
    action = (message.metadata or {}).get(ANSWER)
    if action == "accept" and not any(part.data or part.raw or part.url for part in message.parts):
        is_text = any(part.text for part in message.parts)
        return "answered" if is_text else "allowed"
    return _ANSWERS.get(action, "") if isinstance(action, str) else ""


def shown_message(message: Message, holder: str, link: Callable[[str], str]) -> JsonObject:
    """A message with its sender."""
    return {
        "by": "client" if message.role.value == "ROLE_USER" else "agent",
        "id": message.message_id,
        "answers": answer_word(message),
        "parts": shown_parts(holder, message.parts, link),
    }


def media_headers(kind: str, name: str) -> Mapping[str, str]:
    """The headers of a file: the browser shows images and plays sounds, and saves any other file."""
    plain = kind.partition(";")[0].strip().lower()
    if plain in IMAGES | SOUNDS:
        return {"Content-Type": plain}
    safe = "".join(one if one.isascii() and (one.isalnum() or one in "._-") else "_" for one in name)[-100:]
    return {
        "Content-Type": _FILE,
        "Content-Disposition": f'attachment; filename="{safe.lstrip(".") or "file"}"',
    }


def shown_result(result: JsonObject) -> JsonObject:
    """The result of a tool for a page, with the whole result as JSON in `raw`."""
    return {
        "failed": result.get("isError") is True,
        "parts": _result_parts(result),
        "raw": _json_text(result),
    }


def _result_parts(result: JsonObject) -> list[JsonValue]:
    """The blocks and the value of a result, within limits. The page also has the whole result as a file."""
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    shown: list[JsonValue] = []
    left_bytes = _INLINE_MOST
    for block in blocks[:_BLOCKS_MOST]:
        part = shown_block(block)
        size = len(str(part.get("file", "")))
        left_bytes -= size
        if left_bytes < 0 and size:
            left_bytes += size
            part = {"is": "left", "name": f"{part['name']}, {size} characters"}
        shown.append(part)
    if len(blocks) > _BLOCKS_MOST:
        shown.append({"is": "left", "name": counted(len(blocks) - _BLOCKS_MOST, "more part")})
    if "structuredContent" in result:
        shown.append(_bounded(result["structuredContent"]))
    return shown


def shown_block(block: JsonValue) -> JsonObject:
    """A content block for a page. The file is inline, because the bridge keeps no files of a tool call."""
    given = filename_of(block) if isinstance(block, dict) else None
    name = with_visible_characters(given or "")
    match block:
        case {"type": "text", "text": str() as text} | {
            "type": "resource",
            "resource": {"text": str() as text},
        }:
            return _text(text)
        case {"type": "image", "data": str() as data, "mimeType": str() as kind} if kind in IMAGES:
            return {"is": "image", "name": name or kind, "file": f"data:{kind};base64,{data}"}
        case {"type": "audio", "data": str() as data, "mimeType": str() as kind} if kind in SOUNDS:
            return {"is": "audio", "name": name or kind, "file": f"data:{kind};base64,{data}"}
        case {"type": "image" | "audio" as what, "data": str() as data}:
            return {"is": "file", "name": name or what, "file": f"data:{_FILE};base64,{data}"}
        case {"type": "resource", "resource": {"blob": str() as data, "uri": str() as uri}}:
            name = name or with_visible_characters(filename_in(uri) or uri)
            return {"is": "file", "name": name, "file": f"data:{_FILE};base64,{data}"}
        case {"type": "resource_link", "uri": str() as uri}:
            return {"is": "link", "url": with_visible_characters(uri), "web": web_link(uri)}
    return _bounded(block)


def _text(text: str) -> JsonObject:
    cut = {"cut": len(text) - TEXT_MOST} if len(text) > TEXT_MOST else {}
    return {"is": "text", "text": with_visible_characters(text[:TEXT_MOST]), **cut}


def _bounded(value: JsonValue) -> JsonObject:
    """A value as a table or as JSON. A long table has its first rows; other long JSON is cut text.

    All values are text here, because JavaScript would change long numbers.
    """
    match shown_value(value):
        case {"is": "table", "columns": list() as columns, "rows": list() as rows, "left": left}:
            cells: list[JsonValue] = [[_cell(cell) for cell in row] for row in rows if isinstance(row, list)]
            names: list[JsonValue] = [_cell(name) for name in columns]
            return {"is": "table", "columns": names, "rows": cells, "left": left}
    text = _json_text(value)
    return {"is": "json", "text": text} if len(text) <= TEXT_MOST else _text(text)


def _cell(value: JsonValue) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else with_visible_characters(value)
    return _json_text(value)


def _json_text(value: JsonValue) -> str:
    return spelled_as_json(json.dumps(value, indent=2, ensure_ascii=False))
