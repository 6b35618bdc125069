"""A JSON file as hosts write it, with the place of every key and value. Comments, and commas behind the last entry,
are passed over, as some hosts do. Pure.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from bridge.config.text.diagnostics import ConfigError, Diagnostic
from bridge.config.text.document import Document, at, read_text
from bridge.config.text.masking import mask
from bridge.config.text.positions import KeyPath, Span, Spot

_GAP: Final = re.compile(r"(?:[ \t\r\n]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_TEXT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"?(?P<key>[ \t]*:)?')
_IN_A_TEXT: Final = re.compile(r'[^"\s]')
_SECRET_MEMBERS: Final = frozenset(("args", "env", "headers", "auth", "inputs"))
_SHOWN_MEMBERS: Final = frozenset(
    ("command", "cwd", "disabled", "envFile", "httpUrl", "serverUrl", "type", "url")
)
"""What is shown of a server; others may be secrets of a host that is not known here."""


def read_json(path: Path, what: str) -> Document:
    """A JSON file. Diagnostics show of its values those alone that are known to be no secrets.

    Raises:
        ConfigError: it cannot be read, or is no JSON object.
    """
    text = read_text(path, what).replace("\r\n", "\n").replace("\r", "\n")
    reader = _Reader(text)
    try:
        data = reader.document()
    except json.JSONDecodeError as exc:
        line = _hidden(text)
        raise ConfigError(
            [at(path, line, Span(exc.pos, exc.pos + 1), f"no JSON: {exc.msg.lower()}")]
        ) from exc
    except ValueError as exc:
        raise ConfigError([Diagnostic(path, "no JSON: a number has too many digits")]) from exc
    except RecursionError as exc:
        raise ConfigError([Diagnostic(path, f"{what} is nested too deeply")]) from exc
    if not isinstance(data, dict):
        raise ConfigError([Diagnostic(path, "it holds no JSON object")])
    places = [place for leaf, place in reader.leaves if _may_be_secret(leaf)]
    return Document(path, data, reader.found, mask(text, places))


def _may_be_secret(path: KeyPath) -> bool:
    return path[-1] not in _SHOWN_MEMBERS or not _SECRET_MEMBERS.isdisjoint(path)


def _hidden(text: str) -> str:
    """A text of which nothing is known, without what its quotes hold, but for keys."""
    return _TEXT.sub(lambda found: found[0] if found["key"] else _IN_A_TEXT.sub("*", found[0]), text)


class _Reader:
    """Reads values, and remembers where they stand."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: dict[KeyPath, Spot] = {}
        self.leaves: list[tuple[KeyPath, Span]] = []
        """The values that hold no others, also those of a member that is there twice."""
        self._decoder = json.JSONDecoder(parse_constant=self._refuse)

    def document(self) -> JsonValue:
        self._skip()
        data, _ = self._value(())
        self._skip()
        if self.at < len(self.text):
            raise json.JSONDecodeError("something stands behind its end", self.text, self.at)
        return data

    def _value(self, path: KeyPath) -> tuple[JsonValue, Span]:
        start = self.at
        opens = self.text[start : start + 1]
        data: JsonValue
        if opens == "{":
            data = self._object(path)
        elif opens == "[":
            data = self._array(path)
        else:
            data, self.at = self._decoder.raw_decode(self.text, start)
            self.leaves.append((path, Span(start, self.at)))
        return data, Span(start, self.at)

    def _object(self, path: KeyPath) -> dict[str, JsonValue]:
        members: dict[str, JsonValue] = {}
        self.at += 1
        while not self._closes("}", first=not members):
            start = self.at
            self._expect('"', "a key in quotes is expected", take=False)
            key, self.at = self._decoder.raw_decode(self.text, start)
            place = Span(start, self.at)
            self._skip()
            self._expect(":", "a colon is expected")
            self._skip()
            members[key], value = self._value((*path, key))
            self.found[(*path, key)] = Spot(place, value)
        return members

    def _array(self, path: KeyPath) -> list[JsonValue]:
        elements: list[JsonValue] = []
        self.at += 1
        while not self._closes("]", first=not elements):
            here = (*path, len(elements))
            element, place = self._value(here)
            elements.append(element)
            self.found[here] = Spot(None, place)
        return elements

    def _closes(self, bracket: str, *, first: bool) -> bool:
        """Go on to the next element; whether there is none, and what holds them has ended."""
        self._skip()
        comma = self.text.startswith(",", self.at)
        if comma and not first:
            self.at += 1
            self._skip()
        if self.text.startswith(bracket, self.at):
            self.at += 1
            return True
        if not first and not comma:
            raise json.JSONDecodeError(f"a comma or {bracket} is expected", self.text, self.at)
        return False

    def _expect(self, char: str, message: str, *, take: bool = True) -> None:
        if not self.text.startswith(char, self.at):
            raise json.JSONDecodeError(message, self.text, self.at)
        self.at += take

    def _skip(self) -> None:
        found = _GAP.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def _refuse(self, constant: str) -> float:
        raise json.JSONDecodeError(f"{constant} is no number", self.text, self.at)
