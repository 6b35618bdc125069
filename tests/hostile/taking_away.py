"""Ways in which the file of a store is taken away underneath it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final


def moved_away(path: Path) -> None:
    path.rename(path.with_name("away.db"))


def cut_to_nothing(path: Path) -> None:
    os.truncate(path, 0)


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def replaced(path: Path) -> None:
    other = path.with_name("other.db")
    other.write_bytes(path.read_bytes())
    other.replace(path)


def overwritten(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"not a database")


def without_its_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


WAYS: Final = (
    Path.unlink,
    moved_away,
    cut_to_nothing,
    cut_in_half,
    replaced,
    overwritten,
    without_its_log,
)
