"""Reads the files of a chain, and finds where the chain is broken."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bridge.audit.chain import (
    LINE_BYTES,
    NO_HASH,
    AuditLine,
    ChainHead,
    ChangedLineError,
    NotALineError,
    line_from,
)
from bridge.local.private_files import open_regular

END_BYTES: Final = 4 * LINE_BYTES
"""The bytes at the end of a file that a quick verification reads: some hundred lines."""


@dataclass
class Verification:
    """The result of verifying the files of a chain."""

    first: ChainHead | None = None
    """The head before the first line of the files. Its number is 0 if the files begin with the first line of the
    chain."""
    last: ChainHead = field(default_factory=ChainHead)
    lines: int = 0
    torn: int = 0
    """Fragments that a killed process or a full disk left, each reported by the line after it."""
    lost: int = 0
    """Lines that could not be written, as reported by later lines."""
    processes: int = 0
    """Processes that started in these files."""
    faults: list[str] = field(default_factory=list)
    """Messages about the places where the chain is broken; empty if it is intact."""


def verified(paths: Sequence[Path], heads: Sequence[ChainHead] = ()) -> Verification:
    """Verify the files of a chain, given in any order.

    Each of `heads`, which were kept elsewhere, must be in the files.

    Raises:
        OSError: a file cannot be read.
    """
    result, wanted = Verification(), defaultdict[int, set[str]](set)
    for head in heads:
        wanted[head.seq].add(head.hash)
    reading = _ChainReader(result, wanted)
    for path in sorted(paths, key=_first_number):
        reading.read(path)
    reading.end()
    if not result.lines and not result.faults:
        result.faults.append(f"{', '.join(map(str, paths))}: holds no line")
    result.faults.extend(
        f"line {seq} is not in the files: the chain ends with line {result.last.seq}"
        if seq > result.last.seq
        else f"line {seq} is not in the files, so its head cannot be compared"
        for seq in sorted(wanted)
    )
    return result


def verified_end(path: Path, most_bytes: int = END_BYTES) -> Verification:
    """Verify the last lines of a file, in its last `most_bytes`. Another process may be writing the file.

    Raises:
        OSError: the file cannot be read.
    """
    result = Verification()
    reading = _ChainReader(result, {}, begins_within=True)
    reading.read(path, most_bytes)
    reading.end()
    if not result.lines and not result.faults:
        result.faults.append(f"{path}: holds no line")
    return result


class _ChainReader:
    """Reads the files of a chain in order."""

    def __init__(
        self, result: Verification, wanted: dict[int, set[str]], *, begins_within: bool = False
    ) -> None:
        """With `begins_within` the reading begins in the middle of a file, maybe in a fragment that the first line
        reports."""
        self._result = result
        self._wanted = wanted
        self._begins_within = begins_within
        self._last_file: Path | None = None
        """The last file that is not empty."""
        self._fragments: list[tuple[str, bytes, str]] = []
        """Texts that are no lines: the place, the bytes and the reason. The next line may report them as fragments,
        also if it is the first line of the next file."""

    def read(self, path: Path, most_bytes: int | None = None) -> None:
        for number, text in _lines_of(path, most_bytes):
            self._last_file = path
            place = f"{path}:{number}" if most_bytes is None else f"{path}, line {number} of what was read"
            try:
                line = line_from(text)
            except ChangedLineError as exc:
                self._fault(place, str(exc))
                self._fragments.append((place, text, ""))
            except NotALineError as exc:
                self._fragments.append((place, text, str(exc)))
            else:
                self._follow(place, line)

    def end(self) -> None:
        """Accept half a line at the end of the chain as the fragment of a killed process."""
        if self._fragments and self._last_file is not None and not _ends_whole(self._last_file):
            self._result.torn += 1  # no process has continued the chain since
            self._fragments.pop()
        self._refuse_fragments()

    def _follow(self, place: str, line: AuditLine) -> None:
        result, entry = self._result, line.entry
        self._take_fragments(place, entry)
        before = ChainHead(line.head.seq - 1, line.prev)
        if result.first is None:
            result.first = before
            if before.seq == 0 and before.hash != NO_HASH:
                self._fault(place, "is the first line, but names a line before it")
        elif before.seq != result.last.seq:
            self._fault(place, f"has the number {line.head.seq} and follows line {result.last.seq}")
        elif before.hash != result.last.hash:
            self._fault(place, f"does not follow the line {result.last.seq} that is before it")
        kept_hashes = self._wanted.pop(line.head.seq, set())
        if kept_hashes - {line.head.hash}:  # if two kept heads differ, one of them belongs to another chain
            self._fault(place, f"is not the line {line.head.seq} whose head was kept: the chain was replaced")
        result.last, result.lines = line.head, result.lines + 1
        result.lost += _count(entry, "lost")
        result.processes += entry.get("event") == "start"

    def _take_fragments(self, place: str, entry: Mapping[str, object]) -> None:
        torn = _count(entry, "torn_bytes")
        if self._begins_within and self._result.first is None and torn:
            self._fragments = []  # the beginning of the fragment was not read
            return
        if not self._fragments and torn:
            self._fault(place, f"reports a fragment of {torn} bytes before it, which is missing")
        elif self._fragments and torn == len(b"\n".join(text for _, text, _ in self._fragments)):
            self._result.torn += len(self._fragments)
            self._fragments = []
        self._refuse_fragments()

    def _refuse_fragments(self) -> None:
        for place, _, words in self._fragments:
            if words:
                self._fault(place, words)
        self._fragments = []

    def _fault(self, place: str, words: str) -> None:
        self._result.faults.append(f"{place}: {words}")


def _ends_whole(path: Path) -> bool:
    with os.fdopen(open_regular(path), "rb") as file:
        file.seek(-1, 2)
        return file.read() == b"\n"


def _count(entry: Mapping[str, object], name: str) -> int:
    value = entry.get(name, 0)
    return value if isinstance(value, int) else 0


def _first_number(path: Path) -> float:
    """The number of the first line, by which files are ordered; a file without a line is last."""
    for _, text in _lines_of(path):
        try:
            return line_from(text).head.seq
        except NotALineError:
            continue
    return float("inf")


def _lines_of(path: Path, most_bytes: int | None = None) -> Iterator[tuple[int, bytes]]:
    """The numbered lines of a file, or with `most_bytes` the complete lines in its last bytes. A longer text than an
    audit line can be comes in pieces."""
    with os.fdopen(open_regular(path), "rb") as file:
        number, left_out = 1, os.fstat(file.fileno()).st_size - (most_bytes or 0)
        if most_bytes is not None and left_out > 0:
            file.seek(left_out - 1)
            file.readline()  # the rest of a line, or the newline before the first complete line
        while text := file.readline(16 * LINE_BYTES):
            yield number, text.removesuffix(b"\n")
            number += 1
