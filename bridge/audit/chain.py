"""The lines of an audit, and the chain between them. Pure.

A line is a JSON object in the canonical form of RFC 8785. `seq` counts the lines, `prev` is the hash of the line
before, and `hash` is the SHA-256 of the line without `hash`. Editing, removing, adding or swapping a line breaks the
chain after it. Cutting off the tail breaks nothing: only a head that was kept elsewhere reveals it.

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
"""The longest text in a line, in characters. Names and ids are shorter, but texts from clients may have any length."""

LINE_BYTES: Final = 64 * 1024
"""An upper bound for a line: some twenty texts with every character escaped."""

_CUT: Final = "..."


class NotALineError(ValueError):
    """A text is no line of an audit, or a changed line; `str()` says how."""


class ChangedLineError(NotALineError):
    """A line is complete, but differs from what was written."""


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The last line of a chain: its number and its hash."""

    seq: int = 0
    hash: str = NO_HASH

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the result of `str()`.

        Raises:
            ValueError: the text is not a head.
        """
        number, _, digest = text.partition(":")
        if not number.isascii() or not number.isdigit() or len(digest) != len(NO_HASH):
            raise ValueError(f"{text} is not a head of the form NUMBER:HASH")
        return cls(int(number), digest.lower())


@dataclass(frozen=True, slots=True)
class AuditLine:
    """A line whose own hash is right."""

    entry: JsonObject
    prev: str
    head: ChainHead


def sealed(entry: JsonObject, before: ChainHead) -> tuple[bytes, ChainHead]:
    """The line for an entry, chained to `before` and without a newline; and the head of the chain after it."""
    fields: JsonObject = {key: _bounded(value) for key, value in entry.items()}
    fields |= {"seq": before.seq + 1, "prev": before.hash}
    head = ChainHead(before.seq + 1, _hash(fields))
    return _text({**fields, "hash": head.hash}), head


def line_from(text: bytes) -> AuditLine:
    """Parse a line without its newline.

    Raises:
        NotALineError: the text is not JSON, for example a fragment of a line.
        ChangedLineError: the text is not a line of an audit, or its hash does not match its content.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise NotALineError("is a fragment that no later line reports") from exc
    match fields:
        case {"seq": int() as seq, "prev": str() as prev, "hash": str() as digest}:
            entry = {key: value for key, value in fields.items() if key != "hash"}
        case _:
            raise ChangedLineError("is not a line of an audit")
    try:
        is_right = _hash(entry) == digest and _text(fields) == text
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as exc:  # a key has half a surrogate pair
        raise ChangedLineError("has content that an audit never writes") from exc
    if not is_right:
        raise ChangedLineError("was changed: its hash does not match its content")
    return AuditLine(entry, prev, ChainHead(seq, digest))


def _hash(entry: JsonObject) -> str:
    return hashlib.sha256(_text(entry)).hexdigest()


def _text(entry: JsonObject) -> bytes:
    values: Any = entry  # rfc8785 has its own type for JSON
    return rfc8785.dumps(values)


def _bounded(value: JsonValue) -> JsonValue:
    """A value that RFC 8785 can write, with texts cut to the longest length and without halves of surrogate pairs."""
    if not isinstance(value, str):
        return value
    text = value.encode(errors="replace").decode()
    return text if len(text) <= TEXT_CHARACTERS else f"{text[: TEXT_CHARACTERS - len(_CUT)]}{_CUT}"
