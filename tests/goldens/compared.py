"""The files of the recordings, and how one differs from a conversation that is held now."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Final

from tests.goldens.conversations import CONVERSATIONS, RECORDINGS

_MOST_CHARACTERS: Final = 6000
_AROUND_CHARACTERS: Final = 120
"""How much of a long line is shown before and after where it differs."""


def path_of(name: str) -> Path:
    """The file of a conversation."""
    return RECORDINGS / f"{name}.txt"


def read(name: str) -> str | None:
    """What was recorded, every byte as it is; None when nothing was."""
    path = path_of(name)
    return path.read_bytes().decode() if path.exists() else None


def write(name: str, text: str) -> None:
    """Keep a recording."""
    RECORDINGS.mkdir(exist_ok=True)
    path_of(name).write_bytes(text.encode())


def stray_files() -> list[Path]:
    """Files that are of no conversation."""
    return sorted(set(RECORDINGS.iterdir()) - {path_of(name) for name in CONVERSATIONS})


def difference(name: str, kept: str | None, held: str) -> str:
    """What differs, as a person reads it; "" when nothing does."""
    if kept is None:
        return f"{name}: there is no recording; write it with: python -m tests.goldens --write {name}"
    if kept == held:
        return ""
    lines = difflib.unified_diff(
        kept.split("\n"), held.split("\n"), f"recordings/{name}.txt", "held now", lineterm="", n=1
    )
    shown = "\n".join(_shortened(list(lines)))[:_MOST_CHARACTERS]
    return f"{shown}\nIf this is wanted: python -m tests.goldens --write {name}"


def _shortened(lines: list[str]) -> list[str]:
    """Lines of a diff; of a long line that changed, the place where it did."""
    shown = []
    for index, line in enumerate(lines):
        other = _counterpart(lines, index)
        start = max(0, _same_length(line[1:], other[1:]) - _AROUND_CHARACTERS) if other else 0
        end = start + 3 * _AROUND_CHARACTERS
        cut = line[1:][start:end]
        shown.append(f"{line[:1]}{'…' if start else ''}{cut}{'…' if len(line) - 1 > end else ''}")
    return shown


def _counterpart(lines: list[str], index: int) -> str | None:
    """The line that took the place of one, or was there before."""
    sign = lines[index][:1]
    if sign == "-" and index + 1 < len(lines) and lines[index + 1].startswith("+"):
        return lines[index + 1]
    if sign == "+" and index and lines[index - 1].startswith("-"):
        return lines[index - 1]
    return None


def _same_length(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
