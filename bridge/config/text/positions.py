"""Finds the position of each key and value in a TOML document, which `tomllib` does not provide. Pure.

`tomllib` has read the document, so it is valid TOML. So this module checks nothing, and recognizes each value by its
first character. A path is the keys that lead to a value, with the index in arrays: `("import", "mcp_json", 0)`.

Spec: TOML 1.0 (keys, tables, inline tables, arrays of tables).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

KeyPath = tuple[str | int, ...]

_BLANK: Final = re.compile(r"[ \t]*")
_GAP: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY: Final = re.compile(r'[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|\'[^\']*\'')
_DOT: Final = re.compile(r"[ \t]*\.[ \t]*")
_TEXT: Final = re.compile(
    r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}|\'\'\'(?:[^\']|\'{1,2}(?!\'))*\'{3,5}|"(?:[^"\\]|\\.)*"|\'[^\']*\'',
    re.DOTALL,
)
_PLAIN: Final = re.compile(r"[^,\]}#\n]*")
_STARTS: Final = re.compile(r"\A\ufeff?")


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of the text: `start` up to `end` (exclusive), in characters."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Spot:
    """The positions of a key and its value. A table's value is its header; an array's element has no key."""

    key: Span | None
    value: Span

    @property
    def start(self) -> Span:
        """The position to show for the whole entry."""
        return self.key or self.value


Positions = Mapping[KeyPath, Spot]


def locate(text: str) -> Positions:
    """The position of every path of a document. A table with several headers is at its first header.

    Carriage returns in the text count as characters here; `tomllib` counts a carriage return and a newline as one.
    """
    return _Locator(text).spots()


def place_of(positions: Positions, path: KeyPath, *, key: bool = False) -> Span | None:
    """The position of a path, or of its nearest parent that has a position; None for the whole document."""
    spot = positions.get(path)
    if spot is not None:
        return spot.start if key else spot.value
    for length in range(len(path) - 1, 0, -1):
        if (spot := positions.get(path[:length])) is not None:
            return spot.start
    return None


@dataclass
class _Locator:
    text: str
    at: int = 0
    by_path: dict[KeyPath, Spot] = field(default_factory=dict)
    elements: dict[KeyPath, int] = field(default_factory=dict)
    """The number of elements of each array of tables so far."""

    def spots(self) -> Positions:
        self._skip(_STARTS)
        table: KeyPath = ()
        self._skip(_GAP)
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_GAP)
        return self.by_path

    def _header(self) -> KeyPath:
        """Read `[a.b]` or `[[a.b]]`, and return the path of the table."""
        start = self.at
        brackets = 2 if self.text.startswith("[[", start) else 1
        self.at += brackets
        self._skip(_BLANK)
        keys = self._keys()
        self._skip(_BLANK)
        self.at += brackets
        header = Span(start, self.at)
        path: KeyPath = ()
        for name, place in keys:
            path = self._last_element((*path, name))
            self.by_path.setdefault(path, Spot(place, header))
        if brackets == 1:
            return path
        return self._new_element(_without_index(path), Spot(keys[-1][1], header))

    def _last_element(self, path: KeyPath) -> KeyPath:
        count = self.elements.get(path)
        return path if count is None else (*path, count - 1)

    def _new_element(self, path: KeyPath, spot: Spot) -> KeyPath:
        index = self.elements.get(path, 0)
        self.elements[path] = index + 1
        self.by_path[(*path, index)] = Spot(None, spot.value)
        self.by_path.setdefault(path, spot)
        return (*path, index)

    def _pair(self, table: KeyPath) -> None:
        """Read `a.b = value`."""
        keys = self._keys()
        self._skip(_BLANK)
        self.at += 1  # the equals sign
        self._skip(_BLANK)
        path = (*table, *(name for name, _ in keys))
        value = self._value(path)
        for depth, (_, place) in enumerate(keys, len(table) + 1):
            self.by_path.setdefault(path[:depth], Spot(place, value))

    def _keys(self) -> list[tuple[str, Span]]:
        keys = [self._key()]
        while dot := _DOT.match(self.text, self.at):
            self.at = dot.end()
            keys.append(self._key())
        return keys

    def _key(self) -> tuple[str, Span]:
        span = self._take(_KEY)
        written = self.text[span.start : span.end]
        if written[0] == '"':
            written = tomllib.loads(f"key = {written}")["key"]
        elif written[0] == "'":
            written = written[1:-1]
        return written, span

    def _value(self, path: KeyPath) -> Span:
        match self.text[self.at]:
            case "[":
                return self._array(path)
            case "{":
                return self._inline_table(path)
            case '"' | "'":
                return self._take(_TEXT)
            case _:
                plain = self._take(_PLAIN)
                return Span(plain.start, plain.start + len(self.text[plain.start : plain.end].rstrip()))

    def _array(self, path: KeyPath) -> Span:
        start, index = self.at, 0
        self.at += 1
        while not self._closes("]"):
            element = (*path, index)
            self.by_path[element] = Spot(None, self._value(element))
            index += 1
        return Span(start, self.at)

    def _inline_table(self, path: KeyPath) -> Span:
        start = self.at
        self.at += 1
        while not self._closes("}"):
            self._pair(path)
        return Span(start, self.at)

    def _closes(self, bracket: str) -> bool:
        """Move to the next element, or past the closing bracket. Returns whether the bracket came."""
        self._skip(_GAP)
        if self.text[self.at] == ",":
            self.at += 1
            self._skip(_GAP)
        if self.text[self.at] != bracket:
            return False
        self.at += 1
        return True

    def _take(self, pattern: re.Pattern[str]) -> Span:
        match = pattern.match(self.text, self.at)
        assert match is not None, "the document is TOML"
        self.at = match.end()
        return Span(match.start(), match.end())

    def _skip(self, pattern: re.Pattern[str]) -> None:
        self._take(pattern)


def _without_index(path: KeyPath) -> KeyPath:
    return path[:-1] if isinstance(path[-1], int) else path
