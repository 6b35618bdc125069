"""The parts of messages and results as a page shows them: each as what it is. Pure."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model.objects import Message, Part, Task
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import web_link
from bridge.translate.extension import ANSWER

IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})
"""What a browser draws and never runs. An SVG is offered as a file."""

SOUNDS: Final = frozenset({"audio/wav", "audio/x-wav", "audio/mpeg", "audio/ogg", "audio/webm", "audio/flac"})

_COLUMNS_MOST: Final = 12
_ROWS_MOST: Final = 200
"""Of a larger table the page shows its first rows, and the file has all."""

TEXT_MOST: Final = 100_000
"""Characters of one text that a page shows. The file has all of it."""

_STANDARD: Final = str.maketrans("-_", "+/")
"""From the other alphabet of base64, which A2A allows."""

_SHORT: Final = 200
"""Characters of a value that stands in a table's cell."""


def places_in(task: Task) -> Iterator[tuple[str, Part]]:
    """Yield every part of a task with a name for its place, which stays as the task goes on."""
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
    """The parts as a page shows them. `link` gives the address of the file of a place."""
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
"""What a message answers a question with, by the action in its metadata."""


def answer_word(message: Message) -> str:
    """What a message does with a question, in a word; "" if it does not say that. A yes without values allows."""
    action = (message.metadata or {}).get(ANSWER)
    if action == "accept" and not any(part.data or part.raw or part.url for part in message.parts):
        is_text = any(part.text for part in message.parts)
        return "answered" if is_text else "allowed"
    return _ANSWERS.get(action, "") if isinstance(action, str) else ""


def shown_message(message: Message, holder: str, link: Callable[[str], str]) -> JsonObject:
    """A message with who said it."""
    return {
        "by": "client" if message.role.value == "ROLE_USER" else "agent",
        "id": message.message_id,
        "answers": answer_word(message),
        "parts": shown_parts(holder, message.parts, link),
    }


def media_headers(kind: str, name: str) -> Mapping[str, str]:
    """The headers with which a file is sent: shown if a browser only draws or plays it, else saved."""
    plain = kind.partition(";")[0].strip().lower()
    if plain in IMAGES | SOUNDS:
        return {"Content-Type": plain}
    safe = "".join(one if one.isascii() and (one.isalnum() or one in "._-") else "_" for one in name)[-100:]
    return {
        "Content-Type": "application/octet-stream",
        "Content-Disposition": f'attachment; filename="{safe.lstrip(".") or "file"}"',
    }
