"""A text that matches a regular expression, for examples. Pure.

Only the common syntax is understood: characters and classes of them, groups, alternatives, repetitions, anchors. The
text is built without a search, so the caller has to check that it matches.

Spec: JSON Schema 2020-12 validation, section 6.3.3 (patterns are ECMA-262's).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_MAX_PATTERN_CHARACTERS: Final = 500
_MAX_CHARACTERS: Final = 1000
"""The most characters of a text: `{1000000}` is a single repetition."""
_MAX_GROUPS: Final = 20
"""The most groups that may be open at once."""

_REPEATED: Final = re.compile(r"(?:(\*)|(\+)|(\?)|\{(\d{1,6})(?:(,)(\d{0,6}))?\})\??")
_GROUP: Final = re.compile(r"\?:|\?P?<\w+>|(?!\?)")
"""The beginning of a group. Groups with lookaround or flags are not understood."""
_HEX: Final = re.compile(r"u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})")

Range = tuple[str, str]

_CLASSES: Final[Mapping[str, tuple[Range, ...]]] = {
    "d": (("1", "9"), ("0", "0")),
    "w": (("a", "z"), ("A", "Z"), ("0", "9"), ("_", "_")),
    "s": ((" ", " "), ("\t", "\r")),
}
_NEGATED: Final[Mapping[str, str]] = {"D": "d", "W": "w", "S": "s"}
_CHARACTERS: Final[Mapping[str, str]] = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
_ANYTHING: Final = "a1A -_./:é"
"""Candidates for any character, and for one outside a class. The first that fits is taken."""


class _NotUnderstoodError(Exception):
    pass


def text_for(pattern: str, at_least: int = 0) -> str | None:
    """A text for a pattern; None when the pattern is not understood.

    Each repetition is as short as it may be, plus `at_least`, up to its maximum.
    """
    if len(pattern) > _MAX_PATTERN_CHARACTERS:
        return None
    reader = _PatternReader(pattern, at_least)
    try:
        text = reader.alternatives()
    except (_NotUnderstoodError, IndexError):
        return None
    return text if reader.is_at_end else None


class _PatternReader:
    """Reads a pattern from left to right and writes the text. An IndexError means that the pattern ends early."""

    def __init__(self, pattern: str, more: int) -> None:
        self._pattern = pattern
        self._at = 0
        self._more = more
        self._open = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._pattern)

    def alternatives(self) -> str:
        """The text of the first alternative. The others are skipped."""
        first = self._sequence()
        while not self.is_at_end and self._pattern[self._at] == "|":
            self._at += 1
            self._sequence()
        return first

    def _sequence(self) -> str:
        text = ""
        while not self.is_at_end and self._pattern[self._at] not in "|)":
            text += self._repeated(self._one())
            if len(text) > _MAX_CHARACTERS:
                raise _NotUnderstoodError
        return text

    def _repeated(self, one: str) -> str:
        found = _REPEATED.match(self._pattern, self._at)
        if found is None:
            return one
        self._at = found.end()
        star, plus, maybe, low, comma, high = found.groups()
        least = 0 if star or maybe else 1 if plus else int(low)
        most = 1 if maybe else int(high) if high else None if star or plus or comma else least
        times = least + self._more if most is None else min(least + self._more, most)
        if times * len(one) > _MAX_CHARACTERS:
            raise _NotUnderstoodError
        return one * times

    def _one(self) -> str:
        match self._take():
            case "(":
                return self._group()
            case "[":
                return self._class()
            case ".":
                return _ANYTHING[0]
            case "^" | "$":
                return ""
            case "\\":
                return self._escaped()
            case char:
                return char

    def _take(self) -> str:
        char = self._pattern[self._at]
        self._at += 1
        return char

    def _group(self) -> str:
        begins = _GROUP.match(self._pattern, self._at)
        self._open += 1
        if begins is None or self._open > _MAX_GROUPS:
            raise _NotUnderstoodError
        self._at = begins.end()
        text = self.alternatives()
        if self._take() != ")":
            raise _NotUnderstoodError
        self._open -= 1
        return text

    def _escaped(self) -> str:
        if self._pattern[self._at] in "bB":
            self._at += 1
            return ""
        ranges, is_negated = self._escaped_ranges()
        return _one_of(ranges, is_negated=is_negated)

    def _escaped_ranges(self) -> tuple[tuple[Range, ...], bool]:
        """The ranges of an escaped class, and whether it is negated."""
        if found := _HEX.match(self._pattern, self._at):
            self._at = found.end()
            char = chr(int(found[1] or found[2], 16))
            return ((char, char),), False
        char = self._take()
        if char in _CLASSES:
            return _CLASSES[char], False
        if char in _NEGATED:
            return _CLASSES[_NEGATED[char]], True
        if char.isalnum() and char not in _CHARACTERS:
            raise _NotUnderstoodError
        char = _CHARACTERS.get(char, char)
        return ((char, char),), False

    def _class(self) -> str:
        is_negated = self._pattern[self._at] == "^"
        self._at += is_negated
        ranges: list[Range] = []
        while self._pattern[self._at] != "]":
            ranges += self._member()
        self._at += 1
        return _one_of(tuple(ranges), is_negated=is_negated)

    def _member(self) -> tuple[Range, ...]:
        first = self._in_class()
        is_range = self._pattern[self._at] == "-" and self._pattern[self._at + 1] != "]"
        if not is_range or len(first) > 1:
            return first
        self._at += 1
        return ((first[0][0], self._in_class()[0][1]),)

    def _in_class(self) -> tuple[Range, ...]:
        char = self._take()
        if char != "\\":
            return ((char, char),)
        ranges, is_negated = self._escaped_ranges()
        if is_negated:
            raise _NotUnderstoodError
        return ranges


def _one_of(ranges: tuple[Range, ...], *, is_negated: bool) -> str:
    if not is_negated:
        if not ranges:
            raise _NotUnderstoodError
        return ranges[0][0]
    for char in _ANYTHING:
        if not any(low <= char <= high for low, high in ranges):
            return char
    raise _NotUnderstoodError
