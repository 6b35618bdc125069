"""Diagnostics about files, rendered as plain text with the place, the line and a hint. Pure.

A diagnostic holds no secret: its maker masks the line.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LINE_LIMIT: Final = 110
"""Characters of a line that are shown. A longer line is cut around the place."""

_BEFORE: Final = 40
"""Characters of a longer line that are shown before the place."""

_WIDE: Final = ("W", "F")


@dataclass(frozen=True)
class Diagnostic:
    """One mistake and its place. Lines and columns count from 1, in characters."""

    file: Path
    message: str
    hint: str = ""
    line: int = 0
    """The line; 0 for the whole file."""
    column: int = 0
    span: int = 1
    """The number of characters that are marked."""
    source: str = ""
    """The line as it is in the file, with secrets masked."""

    def __str__(self) -> str:
        return "\n".join(_rendered(self))


def in_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sort by file in the given order, then by place, and drop duplicates."""
    once = list(dict.fromkeys(diagnostics))
    files = list(dict.fromkeys(one.file for one in once))
    return tuple(sorted(once, key=lambda one: (files.index(one.file), one.line, one.column)))


def render(diagnostics: Sequence[Diagnostic]) -> str:
    """All diagnostics as text, with their number."""
    files = " and ".join(str(file) for file in dict.fromkeys(one.file for one in diagnostics))
    errors = "1 error" if len(diagnostics) == 1 else f"{len(diagnostics)} errors"
    return "\n\n".join([*map(str, diagnostics), f"{errors} in {files}"])


def _rendered(one: Diagnostic) -> list[str]:
    margin = " " * len(str(one.line))
    place = f"{one.file}:{one.line}:{one.column}" if one.line else str(one.file)
    lines = [f"error: {one.message}", f"{margin}--> {place}"]
    if one.line:
        source, carets = _shown(one)
        empty = f"{margin} |"
        lines += [empty, f"{one.line} | {source}".rstrip(), f"{margin} | {carets}", empty]
    return [*lines, f"help: {one.hint}"] if one.hint else lines


def _shown(one: Diagnostic) -> tuple[str, str]:
    """The line, cut if it is long, and the carets below it."""
    source, start = one.source, one.column - 1
    end = max(start + 1, min(start + one.span, len(source)))
    if len(source) > _LINE_LIMIT:
        first = max(0, start - _BEFORE)
        source, start, end = source[first : first + _LINE_LIMIT], start - first, min(end - first, _LINE_LIMIT)
    printed = "".join(
        char if char.isprintable() or char == "\t" else "\N{REPLACEMENT CHARACTER}" for char in source
    )
    margin = "".join("\t" if char == "\t" else " " * _width(char) for char in printed[:start])
    return printed, margin + "^" * (sum(map(_width, printed[start:end])) or 1)


def _width(char: str) -> int:
    """The columns of a character on a terminal."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in _WIDE else 1
