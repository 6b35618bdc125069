"""What is wrong with a file, and how that is shown: where, the line, and what to do. Pure, and plain text.

A diagnostic holds no secret: whoever makes one masks the line that it shows.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.errors import UsageError

_LINE_LIMIT: Final = 110
"""Characters of a line that are shown; of a longer one, those about the place."""

_BEFORE: Final = 40
"""Characters of a longer line that are shown before the place."""

_WIDE: Final = ("W", "F")


@dataclass(frozen=True)
class Diagnostic:
    """One thing that is wrong, and where. Lines and columns are counted from 1, in characters."""

    file: Path
    message: str
    hint: str = ""
    line: int = 0
    """0 when the whole file is meant."""
    column: int = 0
    span: int = 1
    """Characters that are at fault."""
    source: str = ""
    """The line as it is in the file, with secrets masked."""

    def __str__(self) -> str:
        return "\n".join(_rendered(self))


class ConfigError(UsageError):
    """Files that cannot be taken as they are, with everything that is wrong with them."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = in_order(diagnostics)
        super().__init__(render(self.diagnostics))


def in_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """By file, as they come, then by place; the same one once."""
    once = list(dict.fromkeys(diagnostics))
    files = list(dict.fromkeys(one.file for one in once))
    return tuple(sorted(once, key=lambda one: (files.index(one.file), one.line, one.column)))


def render(diagnostics: Sequence[Diagnostic]) -> str:
    """All of them as text, and how many there are."""
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
    """The line, cut to what can be read, and the carets below it."""
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
    """Columns of a terminal."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in _WIDE else 1
