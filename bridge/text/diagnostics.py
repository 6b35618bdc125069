"""Diagnostics about files, rendered as plain text with the place, the line and a hint. Pure.

A diagnostic holds no secret: the code that makes it masks the secrets in the line.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LINE_LIMIT: Final = 110
"""The most characters of a line that are shown. A longer line is cut around the mistake."""

_BEFORE: Final = 40
"""The most characters of a cut line that are shown before the mistake."""

_WIDE: Final = ("W", "F")


@dataclass(frozen=True)
class Diagnostic:
    """One mistake in a file, and where it is. Lines and columns count from 1, in characters."""

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
    """Sort by file, in the order in which the files first appear, then by line and column; drop duplicates."""
    unique = list(dict.fromkeys(diagnostics))
    files = list(dict.fromkeys(diagnostic.file for diagnostic in unique))

    def sort_key(diagnostic: Diagnostic) -> tuple[int, int, int]:
        return files.index(diagnostic.file), diagnostic.line, diagnostic.column

    return tuple(sorted(unique, key=sort_key))


def render(diagnostics: Sequence[Diagnostic]) -> str:
    """All diagnostics as text, and a last line with their number."""
    files = " and ".join(str(file) for file in dict.fromkeys(diagnostic.file for diagnostic in diagnostics))
    errors = "1 error" if len(diagnostics) == 1 else f"{len(diagnostics)} errors"
    return "\n\n".join([*map(str, diagnostics), f"{errors} in {files}"])


def _rendered(diagnostic: Diagnostic) -> list[str]:
    margin = " " * len(str(diagnostic.line))
    place = (
        f"{diagnostic.file}:{diagnostic.line}:{diagnostic.column}"
        if diagnostic.line
        else str(diagnostic.file)
    )
    lines = [f"error: {diagnostic.message}", f"{margin}--> {place}"]
    if diagnostic.line:
        source, carets = _source_and_carets(diagnostic)
        empty = f"{margin} |"
        lines += [empty, f"{diagnostic.line} | {source}".rstrip(), f"{margin} | {carets}", empty]
    return [*lines, f"help: {diagnostic.hint}"] if diagnostic.hint else lines


def _source_and_carets(diagnostic: Diagnostic) -> tuple[str, str]:
    """The line, cut if it is long, and the carets below it."""
    source, start = diagnostic.source, diagnostic.column - 1
    end = max(start + 1, min(start + diagnostic.span, len(source)))
    if len(source) > _LINE_LIMIT:
        first = max(0, start - _BEFORE)
        source, start, end = source[first : first + _LINE_LIMIT], start - first, min(end - first, _LINE_LIMIT)
    printed = "".join(
        char if char.isprintable() or char == "\t" else "\N{REPLACEMENT CHARACTER}" for char in source
    )
    margin = "".join("\t" if char == "\t" else " " * _width(char) for char in printed[:start])
    return printed, margin + "^" * (sum(map(_width, printed[start:end])) or 1)


def _width(char: str) -> int:
    """The number of terminal columns that a character takes."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in _WIDE else 1
