"""Counts the named functions of `bridge/` that one call enters, on every thread of this process.

A comprehension, a generator expression and a lambda are parts of the function that they stand in. A coroutine and a
generator are entered once, when they begin, and not each time that they go on.

A package is a folder of `bridge/` as `packages.toml` has it, which is frozen: it lists the modules of each folder at
one time. A module that has moved since, and whose name is the only one of its kind then and now, stays in its package.
Any other new module is in the package of the nearest folder above it that the file lists.
"""

from __future__ import annotations

import dis
import os
import sys
import threading
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import bridge

ROOT: Final = Path(bridge.__file__).parent
_INSIDE: Final = f"{ROOT}{os.sep}"
_PLANS: Final = "ToolsAgent.plan"
_PACKAGES: Final = Path(__file__).with_name("packages.toml")


@dataclass
class Walk:
    """The functions that one call entered."""

    entries: dict[int, list[CodeType]] = field(default_factory=lambda: defaultdict(list))
    """In order, by thread."""
    crossings: int = 0
    planned: int = 0
    """How many functions were nested when the work was planned; 0 if no work was planned."""
    piped: int = 0
    """The most functions that were nested between the plan, once it is made, and the first write to a pipe."""
    deepest: int = 0
    _is_piped: bool = False

    def enter(self, frame: FrameType, thread: int) -> None:
        """Count a function that begins."""
        below = _nest_of(frame.f_back)
        self.entries[thread].append(frame.f_code)
        self.crossings += bool(below) and _package_of(below[0]) != _package_of(frame.f_code)
        self.deepest = max(self.deepest, len(below) + 1)
        if frame.f_code.co_qualname == _PLANS:
            self.planned = len(below) + 1
        elif self.planned and not self._is_piped and all(code.co_qualname != _PLANS for code in below):
            self.piped = max(self.piped, len(below) + 1)

    def write_to_pipe(self) -> None:
        """Note that bytes go to a descriptor."""
        self._is_piped = self._is_piped or bool(self.planned)

    def figures(self) -> dict[str, int]:
        """What was counted, by the names of `MEANINGS`. A figure that the call does not have is left out."""
        codes = [code for entered in self.entries.values() for code in entered]
        found = {
            "modules": len({code.co_filename for code in codes}),
            "functions": len(set(codes)),
            "entries": len(codes),
            "changes": sum(map(_changes_in, self.entries.values())),
            "crossings": self.crossings,
            "deepest": self.deepest,
            "planned": self.planned,
            "piped": self.piped,
        }
        return {name: count for name, count in found.items() if count}

    def functions(self) -> list[tuple[str, str, int]]:
        """The module, the function and its entries; the most entries first."""
        counted = Counter(code for entered in self.entries.values() for code in entered)
        rows = [(_module_of(code), code.co_qualname, count) for code, count in counted.items()]
        return sorted(rows, key=lambda row: (-row[2], row[0], row[1]))


MEANINGS: Final = {
    "modules": "modules passed",
    "functions": "distinct functions",
    "entries": "function entries",
    "changes": "changes of package, from an entry to the next",
    "crossings": "entries from a function of another package",
    "deepest": "nested functions, at most",
    "planned": "nested functions when the work is planned",
    "piped": "nested functions from there to the pipe, at most",
}


class Counting:
    """The profiling function of all threads that start once this is made."""

    def __init__(self) -> None:
        self.walk: Walk | None = None
        """Where entries are counted; None while nothing is counted."""
        self.entered = 0
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def _see(self, frame: FrameType, event: str, argument: Any) -> None:
        walk = self.walk
        if walk is None:
            return
        if event == "call" and _is_counted(frame.f_code) and frame.f_lasti <= _begins_at(frame.f_code):
            self.entered += 1
            walk.enter(frame, threading.get_ident())
        elif event == "c_call" and argument is os.write:
            walk.write_to_pipe()


@cache
def _is_counted(code: CodeType) -> bool:
    return code.co_filename.startswith(_INSIDE) and not code.co_name.startswith("<")


@cache
def _begins_at(code: CodeType) -> int:
    """The offset of the first RESUME; a coroutine or generator that goes on is beyond it."""
    return next(one.offset for one in dis.get_instructions(code) if one.opname == "RESUME")


def _nest_of(frame: FrameType | None) -> list[CodeType]:
    """The counted functions from a frame on, the innermost first."""
    found = []
    while frame is not None:
        if _is_counted(frame.f_code):
            found.append(frame.f_code)
        frame = frame.f_back
    return found


def _changes_in(entered: list[CodeType]) -> int:
    packages = [_package_of(code) for code in entered]
    return sum(before != after for before, after in pairwise(packages))


def _module_of(code: CodeType) -> str:
    return Path(code.co_filename[len(_INSIDE) :]).with_suffix("").as_posix()


@cache
def _package_of(code: CodeType) -> str:
    return package_of(_module_of(code))


@cache
def _frozen() -> dict[str, list[str]]:
    return tomllib.loads(_PACKAGES.read_text())


@cache
def _names_now() -> Counter[str]:
    return Counter(file.stem for file in ROOT.rglob("*.py"))


def package_of(module: str) -> str:
    """The package of a module, such as `a2a/tasks` of `a2a/tasks/live`; "." is `bridge/` itself."""
    folders = _frozen()
    folder, _, name = module.rpartition("/")
    if name not in folders.get(folder or ".", ()):
        were = [package for package, names in folders.items() if name in names]
        if len(were) == 1 and _names_now()[name] == 1:
            return were[0]
    while folder not in folders:
        if not folder:
            return "."
        folder = folder.rpartition("/")[0]
    return folder
