"""Lines that are written at once: each behind the one before, and the first with what was lost before it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.audit.chain import ChainHead, sealed
from bridge.errors import OwnError
from bridge.text.jsonvalues import JsonObject


class AuditWriteError(OwnError):
    """Lines could not be written; `str()` says why."""

    def __init__(self, words: str, numbers: Sequence[int] = ()) -> None:
        """`numbers` are those of the lines that were written before it, and cannot be taken back."""
        super().__init__(words)
        self.numbers = tuple(numbers)


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """Lines that are about to be written."""

    lines: tuple[bytes, ...]
    """Each with its end."""
    heads: tuple[ChainHead, ...]
    """The head that each line makes."""

    @property
    def numbers(self) -> list[int]:
        """The numbers of the lines."""
        return [head.seq for head in self.heads]

    @property
    def head(self) -> ChainHead:
        """The head behind the last line."""
        return self.heads[-1]

    def text(self, *, after_fragment: bool) -> bytes:
        """The lines as they are written, behind a fragment that has no end of its own or not."""
        return (b"\n" if after_fragment else b"") + b"".join(self.lines)


def sealed_batch(
    entries: Sequence[JsonObject], before: ChainHead, *, lost: int = 0, torn_bytes: int = 0
) -> SealedBatch:
    """The lines of entries behind another line. The first tells what was lost before it, and of a fragment."""
    lines, heads, head = [], [], before
    told = {"lost": lost, "torn_bytes": torn_bytes}
    marks: JsonObject = {name: count for name, count in told.items() if count}
    for entry in entries:
        line, head = sealed({**entry, **marks}, head)
        lines.append(line + b"\n")
        heads.append(head)
        marks = {}
    return SealedBatch(tuple(lines), tuple(heads))
