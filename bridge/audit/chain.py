"""The lines of an audit, and the chain between them. Pure.

A line is a JSON object in the form of RFC 8785, so that it has one spelling. `seq` counts the lines, `prev` is the hash
of the line before, and `hash` is the SHA-256 of the line without `hash`. Whoever edits, removes, adds or swaps a line
breaks the chain behind it. A cut tail breaks nothing: only a head that was kept elsewhere shows it.

Spec: RFC 8785; FIPS 180-4.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final, Self

import rfc8785
from pydantic import JsonValue

from bridge.text.jsonvalues import JsonObject

NO_HASH: Final = "0" * 64
"""`prev` of the first line of a chain."""

TEXT_CHARACTERS: Final = 512
"""Characters of one text in a line: names and ids are shorter, and what a client chose may be of any length."""

LINE_BYTES: Final = 64 * 1024
"""More than any line has: some twenty texts, each character escaped."""

_CUT: Final = "..."


class NotALineError(ValueError):
    """A line is none of an audit, or was changed; `str()` says how."""


class ChangedLineError(NotALineError):
    """A line is whole, and not as it was written."""


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The last line of a chain: its number and its hash."""

    seq: int = 0
    hash: str = NO_HASH

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str()` gives.

        Raises:
            ValueError: it is not a head.
        """
        number, _, digest = text.partition(":")
        if not number.isascii() or not number.isdigit() or len(digest) != len(NO_HASH):
            raise ValueError(f"{text} is not a head, which is NUMBER:HASH")
        return cls(int(number), digest.lower())


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One line, whose own hash is right."""

    entry: JsonObject
    prev: str
    head: ChainHead


def sealed(entry: JsonObject, before: ChainHead) -> tuple[bytes, ChainHead]:
    """The line that tells of an entry behind another line, without its end, and the head that it makes."""
    told: JsonObject = {key: _bounded(value) for key, value in entry.items()}
    told |= {"seq": before.seq + 1, "prev": before.hash}
    head = ChainHead(before.seq + 1, _hash(told))
    return _text({**told, "hash": head.hash}), head


def line_from(text: bytes) -> AuditLine:
    """Read a line without its end.

    Raises:
        NotALineError: it is not JSON, as a fragment of a line is not.
        ChangedLineError: it is not a line of an audit, or its own hash is not that of what it says.
    """
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise NotALineError("is a fragment, of which no later line tells") from exc
    match told:
        case {"seq": int() as seq, "prev": str() as prev, "hash": str() as digest}:
            entry = {key: value for key, value in told.items() if key != "hash"}
        case _:
            raise ChangedLineError("is not a line of an audit")
    try:
        is_right = _hash(entry) == digest and _text(told) == text
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as exc:  # the latter for half a pair in a key
        raise ChangedLineError("holds what an audit does not write") from exc
    if not is_right:
        raise ChangedLineError("was changed: its hash is not that of what it says")
    return AuditLine(entry, prev, ChainHead(seq, digest))


def _hash(entry: JsonObject) -> str:
    return hashlib.sha256(_text(entry)).hexdigest()


def _text(entry: JsonObject) -> bytes:
    values: Any = entry  # the package has a name of its own for JSON
    return rfc8785.dumps(values)


def _bounded(value: JsonValue) -> JsonValue:
    """A value that RFC 8785 can write: no half of a surrogate pair, and no text without an end."""
    if not isinstance(value, str):
        return value
    text = value.encode(errors="replace").decode()
    return text if len(text) <= TEXT_CHARACTERS else f"{text[: TEXT_CHARACTERS - len(_CUT)]}{_CUT}"
