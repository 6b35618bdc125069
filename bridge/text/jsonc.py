"""Reads JSON with comments and trailing commas, as people write it for hosts, and keeps each value's position. Pure.

The parser gives a tree of values with their positions in the text. So a message can point at a value, and an editor
can cut a value out and leave every other character as it was.

Spec: RFC 8259. NaN and Infinity, which Python accepts as numbers, are refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NoReturn

from pydantic import JsonValue

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_GAP: Final = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)


class JsonNode:
    """A value at `start` up to `end` (exclusive). Its members and elements are parsed on first use."""

    def __init__(self, parser: _Parser, value: JsonValue, start: int, end: int) -> None:
        self._parser = parser
        self.value = value
        self.start = start
        self.end = end

    @cached_property
    def members(self) -> tuple[JsonMember, ...]:
        """The members of an object, in order; a repeated key has several members. Empty for any other value."""
        return self._parser.members_at(self.start) if isinstance(self.value, dict) else ()

    @cached_property
    def elements(self) -> tuple[JsonNode, ...]:
        """The elements of an array; empty for any other value."""
        return self._parser.elements_at(self.start) if isinstance(self.value, list) else ()

    def member(self, key: str) -> JsonMember | None:
        """The member with this key. Of several such members, the last counts, as in most JSON readers."""
        return next((member for member in reversed(self.members) if member.key == key), None)


@dataclass(frozen=True, eq=False, slots=True)
class JsonMember:
    """A key of an object, at `start` up to `key_end` (exclusive), and its value."""

    key: str
    start: int
    key_end: int
    node: JsonNode
    comma: int | None
    """The position of the comma after the member; None without a comma."""


def parse_jsonc(text: str, *, comments: bool = True) -> JsonNode:
    """Parse a JSON text. `comments` allows comments and trailing commas.

    Raises:
        json.JSONDecodeError: the text is not JSON; the error has the position.
        ValueError: a number has too many digits.
        RecursionError: the text is nested too deeply.
    """
    return _Parser(text, comments=comments).document()


class _Parser:
    def __init__(self, text: str, *, comments: bool) -> None:
        self._text = text
        self._comments = comments
        self._gap = _GAP if comments else _SPACE
        self._at = 0
        self._decoder = json.JSONDecoder(parse_constant=self._refuse)

    def document(self) -> JsonNode:
        self._skip()
        node = self._value()
        self._skip()
        if self._at < len(self._text):
            self._fail("unexpected text after its end")
        return node

    def _value(self) -> JsonNode:
        """Parse the value at the current position. Python's fast decoder parses every value that is plain JSON."""
        start = self._at
        try:
            value, self._at = self._decoder.raw_decode(self._text, start)
        except json.JSONDecodeError:
            # The value holds a comment or a mistake; parsing entry by entry finds it.
            if self._text.startswith("{", start):
                value = {member.key: member.node.value for member in self.members_at(start)}
            elif self._text.startswith("[", start):
                value = [node.value for node in self.elements_at(start)]
            else:
                raise
        return JsonNode(self, value, start, self._at)

    def members_at(self, start: int) -> tuple[JsonMember, ...]:
        """Parse the members of the object at `start`, and move past the object."""
        members: list[JsonMember] = []
        self._begin(start)
        while not self._ends("}"):
            key_start = self._at
            self._require('"', "a key in quotes is expected")
            key, key_end = self._decoder.raw_decode(self._text, key_start)
            self._at = key_end
            self._skip()
            self._require(":", "a colon is expected")
            self._begin(self._at)
            members.append(JsonMember(key, key_start, key_end, self._value(), self._comma("}")))
        return tuple(members)

    def elements_at(self, start: int) -> tuple[JsonNode, ...]:
        """Parse the elements of the array at `start`, and move past the array."""
        elements: list[JsonNode] = []
        self._begin(start)
        while not self._ends("]"):
            elements.append(self._value())
            self._comma("]")
        return tuple(elements)

    def _begin(self, at: int) -> None:
        """Move past the character at `at`, and past the white space and comments that follow it."""
        self._at = at + 1
        self._skip()

    def _ends(self, bracket: str) -> bool:
        """Whether the closing bracket is at the current position; if so, move past it."""
        if not self._text.startswith(bracket, self._at):
            return False
        self._at += 1
        return True

    def _comma(self, bracket: str) -> int | None:
        """Move to the next entry or the closing bracket; return the position of the comma passed, or None."""
        self._skip()
        comma = self._at if self._text.startswith(",", self._at) else None
        if comma is not None:
            self._at += 1
            self._skip()
        is_end = self._text.startswith(bracket, self._at)
        if comma is None and not is_end:
            self._fail(f"a comma or {bracket} is expected")
        if comma is not None and is_end and not self._comments:
            self._fail("another entry is expected after the comma")
        return comma

    def _require(self, char: str, message: str) -> None:
        if not self._text.startswith(char, self._at):
            self._fail(message)

    def _skip(self) -> None:
        gap = self._gap.match(self._text, self._at)
        self._at = gap.end() if gap else self._at

    def _fail(self, message: str) -> NoReturn:
        raise json.JSONDecodeError(message, self._text, self._at)

    def _refuse(self, constant: str) -> NoReturn:
        self._fail(f"{constant} is not a number in JSON")
