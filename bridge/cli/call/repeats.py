"""Finds parts of a result that only repeat other parts. Pure.

Tools often give a result twice: as content for people and as data for programs. A person sees it once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import JsonValue

    from bridge.a2a.model.objects import Part

_KINDS: Final = frozenset({"text", "image", "audio", "blob", "resource", "file"})
"""Types of content blocks in data, which need not be shown beside their files."""


@dataclass
class ShownParts:
    """The parts of an artifact that were shown so far."""

    texts: list[list[str]] = field(default_factory=list)
    """Each text in its chunks."""
    files: list[Part] = field(default_factory=list)
    saved: tuple[str, Path] | None = None
    """The text that was saved last as a file: its name and its path."""
    heard_texts: list[str] = field(default_factory=list)
    """All text that came, piece by piece."""
    heard_others: int = 0
    """The number of received parts that are no text."""

    def hear(self, parts: Sequence[Part]) -> None:
        """Note all received parts, shown or not."""
        self.heard_texts += (part.text for part in parts if part.text is not None)
        self.heard_others += sum(part.text is None for part in parts)

    def beyond(self, parts: Sequence[Part]) -> tuple[Part, ...] | None:
        """The parts of the whole artifact that were not received yet; None when it differs from the received parts."""
        heard, whole = "".join(self.heard_texts), "".join(part.text or "" for part in parts)
        if not whole.startswith(heard):
            # An agent may tell pieces again after a break; they are shown already.
            return () if heard.startswith(whole) else None
        text, others = len(heard), self.heard_others
        rest: list[Part] = []
        for part in parts:
            if part.text is None:
                rest += [part] if others <= 0 else []
                others -= 1
                continue
            if left := part.text[text:]:
                rest.append(part.changed(text=left))
            text = max(text - len(part.text), 0)
        return tuple(rest)

    def repeated_in(self, parts: Sequence[Part], *, goes_on: bool = False) -> tuple[Part, ...]:
        """Return the next parts that need not be shown; note the others."""
        datas = [part.data for part in parts if part.kind == "data"]
        repeated = []
        earlier = list(self.texts)
        for part in parts:
            if part.text is not None:
                if any(value in datas for value in _object_in(part.text)):
                    repeated.append(part)
                elif goes_on and self.texts:
                    self.texts[-1].append(part.text)
                else:
                    self.texts.append([part.text])
            elif part.raw is not None:
                self.files.append(part)
            goes_on = False
        whole = [value for chunks in earlier for value in _object_in("".join(chunks))] if datas else []
        for part in parts:
            if part.kind == "data" and (part.data in whole or self._shows(part.data)):
                repeated.append(part)
        return tuple(repeated)

    def _shows(self, value: JsonValue) -> bool:
        """Whether the one value of an object is shown as text, or its files are shown as files."""
        if not isinstance(value, dict):
            return False
        if self._shows_files(value):
            return True
        if len(value) != 1 or not self.texts:
            return False
        [only] = value.values()
        texts = ["".join(chunks) for chunks in self.texts]
        if isinstance(only, list) and len(only) == len(texts) and all(map(_says, texts, only)):
            return True
        return any(_says(text, only) for text in texts)

    def _shows_files(self, value: JsonValue) -> bool:
        contents = {_plain_base64(file.raw) for file in self.files if file.raw}
        about = {word for file in self.files for word in (file.filename, file.media_type) if word} | _KINDS
        found = list(_leaves(value))
        unknown = [leaf for leaf in found if not isinstance(leaf, str) or leaf not in about]
        return bool(unknown) and all(
            isinstance(leaf, str) and _plain_base64(leaf) in contents for leaf in unknown
        )


def _says(text: str, value: JsonValue) -> bool:
    return text == value or value in _values_in(text)


def _object_in(text: str) -> Iterable[JsonValue]:
    """The object or array that a text is the JSON of."""
    return _values_in(text) if text.lstrip().startswith(("{", "[")) else ()


def _values_in(text: str) -> tuple[JsonValue, ...]:
    try:
        return (json.loads(text),)
    except (ValueError, RecursionError):
        return ()


def _plain_base64(text: str) -> str:
    """One spelling for both alphabets, padded or not."""
    return text.replace("-", "+").replace("_", "/").rstrip("=")


def _leaves(value: JsonValue) -> Iterator[JsonValue]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    else:
        yield value
