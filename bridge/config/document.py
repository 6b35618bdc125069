"""A file that was read: its text, what stands in it and where, and diagnostics of what is wrong there.

It knows files and places, and which values are nobody's business; what the keys mean is known elsewhere.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bridge.config.diagnose import ConfigError, Diagnostic
from bridge.config.positions import KeyPath, Positions, Span, locate, place_of

_SECRET_TABLES: Final = frozenset(("auth", "headers", "env", "keys", "principals"))
_SECRET_KEY: Final = re.compile(
    r"(.*[_-])?(token|secret|password|bearer|api[_-]?key|authorization|cookie)", re.IGNORECASE
)
_NOT_SECRET: Final = frozenset(("env", "file", "header", "skills"))
"""Keys whose values say where a secret is, or what it is for."""
_SECRET_LINE: Final = re.compile(r"auth|bearer|cookie|key|password|secret|token", re.IGNORECASE)
_IN_A_VALUE: Final = re.compile(r"[^\s{}\[\],=\"']")
_USER_IN_URL: Final = re.compile(r"(?<=://)[^/@\s\"']+(?=@)")
_AT: Final = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")
_SAID: Final = {"Illegal character '\\n'": "the text does not end on its line"}
_TWICE: Final = re.compile(r"Cannot (overwrite|declare|mutate)|Duplicate inline table key")


@dataclass(frozen=True)
class Fault:
    """Something wrong at a path of a document. A message may not repeat what may be secret."""

    path: KeyPath
    message: str
    hint: str = ""
    on_key: bool = False
    """Whether the key is meant, and not its value."""
    unknown: bool = False
    """Whether it is that nobody knows this key or name."""
    missing: str = ""
    """What is missing in the table at the path, if that is it; where a key is unknown, that may be the one."""


@dataclass(frozen=True)
class Document:
    """A file and what stands in it."""

    path: Path
    """As it was given, which is how it is shown."""
    data: dict[str, Any] = field(repr=False)
    positions: Positions = field(repr=False)
    masked: str = field(repr=False)
    """The text without what may be secret, of the same length line for line."""

    def diagnostic(self, fault: Fault) -> Diagnostic:
        """A fault with its place and line."""
        place = place_of(self.positions, fault.path, key=fault.on_key)
        if place is None:
            return Diagnostic(self.path, fault.message, fault.hint)
        return at(self.path, self.masked, place, fault.message, fault.hint)

    def line(self, path: KeyPath) -> int:
        """The line on which a path, or the nearest of its parents, begins; 0 for none."""
        place = place_of(self.positions, path, key=True)
        return self.masked.count("\n", 0, place.start) + 1 if place else 0


def at(file: Path, text: str, place: Span, message: str, hint: str = "") -> Diagnostic:
    """A diagnostic at a place of a text, which is shown."""
    first = text.rfind("\n", 0, place.start) + 1
    last = text.find("\n", place.start)
    source = text[first : last if last >= 0 else len(text)]
    span = min(place.end, first + len(source)) - place.start
    return Diagnostic(
        file,
        message,
        hint,
        text.count("\n", 0, place.start) + 1,
        place.start - first + 1,
        max(span, 1),
        source,
    )


def read_text(path: Path, what: str) -> str:
    """The text of a file, with line ends as TOML counts them.

    Raises:
        ConfigError: it is not there, cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as exc:
        raise ConfigError([Diagnostic(path, f"cannot read {what}: {exc.strerror}")]) from exc
    except UnicodeDecodeError as exc:
        raise ConfigError([Diagnostic(path, f"cannot read {what}: it is not UTF-8")]) from exc


def read_toml(path: Path, what: str) -> Document:
    """A TOML file.

    Raises:
        ConfigError: it cannot be read, or is no TOML.
    """
    text = read_text(path, what)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError([_syntax(path, text, str(exc))]) from exc
    except RecursionError as exc:
        raise ConfigError([Diagnostic(path, f"{what} is nested too deeply")]) from exc
    positions = locate(text)
    return Document(path, data, positions, mask(text, _secret_places(data, positions)))


def mask(text: str, places: Iterable[Span]) -> str:
    """The text with what stands at the places made unreadable; quotes and line ends stay."""
    for place in places:
        value = _IN_A_VALUE.sub("*", text[place.start : place.end])
        text = text[: place.start] + value + text[place.end :]
    return _USER_IN_URL.sub(lambda found: "*" * len(found[0]), text)


def leaves(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    """The paths of all values that hold no others."""
    match value:
        case dict():
            for key, inner in value.items():
                yield from leaves(inner, (*path, key))
        case list():
            for index, inner in enumerate(value):
                yield from leaves(inner, (*path, index))
        case _:
            yield path


def _secret_places(data: dict[str, Any], positions: Positions) -> Iterator[Span]:
    return (positions[path].value for path in leaves(data) if _may_be_secret(path))


def _may_be_secret(path: KeyPath) -> bool:
    names = [step for step in path if isinstance(step, str)]
    if len(names) > 1 and names[-1] in _NOT_SECRET and names[-2] not in ("headers", "env"):
        return False
    return not _SECRET_TABLES.isdisjoint(names) or bool(_SECRET_KEY.fullmatch(names[-1]))


def _syntax(path: Path, text: str, said: str) -> Diagnostic:
    """What `tomllib` says, at its place. Which values of this text are secret cannot be known."""
    found = _AT.search(said)
    message = said[: found.start()] if found else said
    line = int(found["line"]) if found and found["line"] else len(text.rstrip().split("\n"))
    source = text.split("\n")[line - 1]
    column, span = (int(found["column"]) if found and found["column"] else len(source) + 1), 1
    if _TWICE.match(message):
        message = "a key or table is there twice"
        column, span = len(source) - len(source.lstrip()) + 1, len(source.strip())
    shown, message = _masked_line(source), _SAID.get(message, message)
    return Diagnostic(path, f"no TOML: {message[:1].lower()}{message[1:]}", "", line, column, span, shown)


def _masked_line(source: str) -> str:
    """A line of which only the words are known; one that goes on with a value may go on with a secret."""
    source = mask(source, ())
    key, equals, value = source.partition("=")
    if not equals and not source.lstrip().startswith("["):
        return _IN_A_VALUE.sub("*", source)
    return key + equals + _IN_A_VALUE.sub("*", value) if _SECRET_LINE.search(source) else source
