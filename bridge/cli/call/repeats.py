"""Finds parts of a result that only repeat other parts. Pure.

Tools often give a result twice: as content for people and as data for programs. The terminal shows it once.
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
"""Types of content blocks. In data they add nothing to a file that is shown."""


@dataclass
class ShownParts:
    """The parts of an artifact that were received and shown so far."""

    texts: list[list[str]] = field(default_factory=list)
    """The shown texts, each as its chunks."""
    files: list[Part] = field(default_factory=list)
    saved: tuple[str, Path] | None = None
    """The name and path of the text that was last saved as a file."""
    received_texts: list[str] = field(default_factory=list)
    """All received text, piece by piece."""
    received_others: int = 0
    """The number of received parts that are not text."""

    def receive(self, parts: Sequence[Part]) -> None:
        """Record parts as received, whether they are shown or not."""
        self.received_texts += (part.text for part in parts if part.text is not None)
        self.received_others += sum(part.text is None for part in parts)

    def beyond(self, parts: Sequence[Part]) -> tuple[Part, ...] | None:
        """The parts of the whole artifact that were not received yet; None when it differs from the received parts."""
        heard, whole = "".join(self.received_texts), "".join(part.text or "" for part in parts)
        if not whole.startswith(heard):
            # After a broken stream, an agent may repeat pieces that are already shown.
            return () if heard.startswith(whole) else None
        text, others = len(heard), self.received_others
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
        """Return those of the next parts that need not be shown, and record the others as shown."""
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
        """Whether an object's only value is shown as text, or all its contents are shown as files."""
        if not isinstance(value, dict):
            return False
        if self._shows_files(value):
            return True
        if len(value) != 1 or not self.texts:
            return False
        [only] = value.values()
        texts = ["".join(chunks) for chunks in self.texts]
        if isinstance(only, list) and len(only) == len(texts) and all(map(_is_json_of, texts, only)):
            return True
        return any(_is_json_of(text, only) for text in texts)

    def _shows_files(self, value: JsonValue) -> bool:
        contents = {_plain_base64(file.raw) for file in self.files if file.raw}
        about = {word for file in self.files for word in (file.filename, file.media_type) if word} | _KINDS
        found = list(_leaves(value))
        unknown = [leaf for leaf in found if not isinstance(leaf, str) or leaf not in about]
        return bool(unknown) and all(
            isinstance(leaf, str) and _plain_base64(leaf) in contents for leaf in unknown
        )


def _is_json_of(text: str, value: JsonValue) -> bool:
    return text == value or value in _values_in(text)


def _object_in(text: str) -> Iterable[JsonValue]:
    """The object or array, if the text is the JSON of one."""
    return _values_in(text) if text.lstrip().startswith(("{", "[")) else ()


def _values_in(text: str) -> tuple[JsonValue, ...]:
    try:
        return (json.loads(text),)
    except (ValueError, RecursionError):
        return ()


def _plain_base64(text: str) -> str:
    """The same spelling for both alphabets of base64, with or without padding."""
    return text.replace("-", "+").replace("_", "/").rstrip("=")


def _leaves(value: JsonValue) -> Iterator[JsonValue]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    else:
        yield value
