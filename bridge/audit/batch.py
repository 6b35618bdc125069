"""Audit lines that are written together. The first line also reports the lines lost before it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.audit.chain import ChainHead, sealed
from bridge.errors import OwnError
from bridge.text.jsonvalues import JsonObject


class AuditWriteError(OwnError):
    """Lines could not be written; `str()` says why."""

    def __init__(self, words: str, numbers: Sequence[int] = ()) -> None:
        """`numbers` are the numbers of the lines that were written before the fault and cannot be taken back."""
        super().__init__(words)
        self.numbers = tuple(numbers)


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """Lines of the chain, ready to be written."""

    lines: tuple[bytes, ...]
    """The lines, each with its newline."""
    heads: tuple[ChainHead, ...]
    """The head of the chain after each line."""

    @property
    def numbers(self) -> list[int]:
        """The numbers of the lines."""
        return [head.seq for head in self.heads]

    @property
    def head(self) -> ChainHead:
        """The head of the chain after the last line."""
        return self.heads[-1]

    def text(self, *, after_fragment: bool) -> bytes:
        """The bytes to write. `after_fragment` ends a fragment without a newline before them."""
        return (b"\n" if after_fragment else b"") + b"".join(self.lines)


def sealed_batch(
    entries: Sequence[JsonObject], before: ChainHead, *, lost: int = 0, torn_bytes: int = 0
) -> SealedBatch:
    """The lines for entries, chained to `before`. The first line also reports `lost` lines and `torn_bytes` of a
    fragment before it."""
    lines, heads, head = [], [], before
    counts = {"lost": lost, "torn_bytes": torn_bytes}
    marks: JsonObject = {name: count for name, count in counts.items() if count}
    for entry in entries:
        line, head = sealed({**entry, **marks}, head)
        lines.append(line + b"\n")
        heads.append(head)
        marks = {}
    return SealedBatch(tuple(lines), tuple(heads))
