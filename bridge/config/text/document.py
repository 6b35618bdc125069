"""Documents, and the sources of their values. A document is a file, with its text and the positions of its values, or
the options of a command, with the data of an equivalent file.

Options are checked like a file. Messages name the option, because there are no lines to show.

Precedence: command line over environment (`MCP_A2A_*`) over file over profile over default. This module does not know
what the keys mean."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from bridge.config.text.masking import leaves, mask, masked_line, secret_places, value_at
from bridge.config.text.positions import KeyPath, Positions, Span, locate, place_of
from bridge.config.text.wording import key_name
from bridge.errors import ConfigError, UsageError
from bridge.local.private_files import CONFIG_BYTES, read_regular
from bridge.text.diagnostics import Diagnostic, in_order

_AT: Final = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")
_SAID: Final[Mapping[str, str]] = {
    "Illegal character '\\n'": "a text is not closed on its line",
    "Unterminated string": "a text is not closed",
    "Unclosed array": "a list is not closed: `]` is missing",
    "Unclosed inline table": "a table in one line is not closed: `}` is missing",
    "Invalid value": "a value is missing here, or TOML has no such value: a text needs quotes",
    "Invalid statement": "a line begins with a key or with `[table]`",
    "Invalid initial character for a key part": "a key is missing here, or it needs quotes",
    "Expected '=' after a key in a key/value pair": "`=` is missing after the key",
    "Expected ']' at the end of a table declaration": "`]` is missing at the end of the table's name",
    "Expected ']]' at the end of an array declaration": "`]]` is missing at the end of the table's name",
    "Expected newline or end of document after a statement": "something follows the value: each key has a line",
    "Invalid hex value": "an escape such as \\u00e9 needs hexadecimal digits",
    "Unescaped '\\' in a string": 'a backslash in "double quotes" is written twice',
    "Invalid date or datetime": "there is no such date or time",
}
"""The messages of `tomllib` in plain words. Other messages are passed on."""
_NOT_TOML: Final = "this is not valid TOML: "
_UNENDED: Final = "Unterminated string"
_OF_A_HOST: Final = frozenset(("mcpServers", "servers", "context_servers"))
"""Keys that identify the JSON file of an MCP host."""
_LONE_CARRIAGE_RETURN: Final = (
    "this is not valid TOML: lines end with a carriage return alone",
    "save it with the line ends of Unix or Windows: a newline belongs to each",
)
_TWICE: Final = re.compile(r"Cannot (overwrite|declare|mutate)|Duplicate inline table key")

_DEEPEST: Final = 100
"""The most levels of nested tables and lists. Some values become JSON, and most JSON readers accept no more levels."""
_WIDEST_NUMBER: Final = 64
"""The bits of a whole number in TOML 1.0."""
_LONG_NUMBER: Final = re.compile(r"[0-9][0-9_]{4000,}")
"""A number that is too long for Python to read."""


@dataclass(frozen=True)
class ConfigFault:
    """A mistake at a path of a document. The message must not repeat a possible secret."""

    path: KeyPath
    message: str
    hint: str = ""
    on_key: bool = False
    """Whether the key is at fault, not its value."""
    unknown: bool = False
    """Whether the mistake is an unknown key or name."""
    missing: str = ""
    """The key that the table at the path lacks, if that is the mistake. An unknown key may be the missing key,
    misspelt."""


@dataclass(frozen=True)
class Document:
    """A file and its contents."""

    path: Path
    """The path as the user wrote it; messages show it in this form."""
    data: dict[str, Any] = field(repr=False)
    positions: Positions = field(repr=False)
    masked: str = field(repr=False)
    """The text with possible secrets masked. Each line keeps its length."""

    def diagnostic(self, fault: ConfigFault) -> Diagnostic:
        """The diagnostic of a fault, with its place and line."""
        place = place_of(self.positions, fault.path, key=fault.on_key)
        if place is None:
            return Diagnostic(self.path, fault.message, fault.hint)
        return at(self.path, self.masked, place, fault.message, fault.hint)

    def diagnostics(self, faults: Iterable[ConfigFault]) -> list[Diagnostic]:
        """The diagnostics of faults, with their places. The value of an unknown key is masked, since it may be a
        secret."""
        listed = list(faults)
        unknown = [fault.path for fault in listed if fault.unknown and fault.on_key]
        hidden = (
            self.positions[(*path, *leaf)].value
            for path in unknown
            for leaf in leaves(value_at(self.data, path))
            if (*path, *leaf) in self.positions
        )
        return [*map(replace(self, masked=mask(self.masked, hidden)).diagnostic, listed)]

    @property
    def folder(self) -> Path:
        """The folder of the file. Relative paths in the file start here."""
        return self.path.parent

    def place(self, path: KeyPath) -> str:
        """The file and the line on which a path begins."""
        return f"{self.path}:{self.line(path)}"

    def refuse(self, faults: Iterable[ConfigFault], elsewhere: Iterable[Diagnostic]) -> None:
        """Report the faults of the file, and those of other files.

        Raises:
            ConfigError: there is a fault.
        """
        if all_of_it := [*in_order(self.diagnostics(faults)), *elsewhere]:
            raise ConfigError(all_of_it)

    def line(self, path: KeyPath) -> int:
        """The line on which a path, or its nearest parent, begins; 0 if there is none."""
        place = place_of(self.positions, path, key=True)
        return self.masked.count("\n", 0, place.start) + 1 if place else 0


def at(file: Path, text: str, place: Span, message: str, hint: str = "") -> Diagnostic:
    """A diagnostic that shows the line at a place of a text."""
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
    """Read the text of a file.

    Raises:
        ConfigError: the file is missing, cannot be read, or is not UTF-8.
    """
    try:
        return read_regular(path, CONFIG_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as exc:
        reason = "it is not UTF-8" if isinstance(exc, UnicodeDecodeError) else _reason_of(exc)
        raise ConfigError([Diagnostic(path, f"cannot read {what}: {reason}")]) from exc


def read_toml(path: Path, what: str) -> Document:
    """Read a TOML file.

    Raises:
        ConfigError: the file cannot be read, or is no TOML.
    """
    return toml_in(read_text(path, what), path, what)


def toml_in(text: str, path: Path, what: str) -> Document:
    """Read TOML text. Diagnostics name the file at `path`.

    Raises:
        ConfigError: the text is no TOML.
    """
    text = text.replace("\r\n", "\n")
    if "\r" in text:
        raise ConfigError([Diagnostic(path, *_LONE_CARRIAGE_RETURN)])
    try:
        data = tomllib.loads(text)
        depth = max(map(len, leaves(data)), default=0)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError([_json(path, text, what) or _syntax(path, text, str(exc))]) from exc
    except ValueError as exc:
        raise ConfigError([_long_number(path, text)]) from exc
    except RecursionError as exc:
        raise ConfigError([Diagnostic(path, f"{what} is nested too deeply")]) from exc
    if depth > _DEEPEST:
        raise ConfigError([Diagnostic(path, f"{what} is nested too deeply")])
    positions = locate(text)
    document = Document(path, data, positions, mask(text, secret_places(data, positions)))
    if wide := [*_wide_numbers(data)]:
        raise ConfigError(document.diagnostics(wide))
    return document


def _reason_of(exc: Exception) -> str:
    return (exc.strerror if isinstance(exc, OSError) else None) or "it is not a valid path"


def _wide_numbers(data: dict[str, Any]) -> Iterator[ConfigFault]:
    for path in leaves(data):
        value = value_at(data, path)
        if isinstance(value, int) and value.bit_length() >= _WIDEST_NUMBER:
            yield ConfigFault(path, f"the number is too large: it takes more than {_WIDEST_NUMBER} bits")


def _long_number(path: Path, text: str) -> Diagnostic:
    """A diagnostic about a number with too many digits. Its line is masked."""
    number = _LONG_NUMBER.search(text)
    line = text.count("\n", 0, number.start()) + 1 if number else 0
    source = "*" * len(text.split("\n")[line - 1])
    return Diagnostic(path, f"{_NOT_TOML}a number has too many digits", "", line, 1, 1, source)


def _json(path: Path, text: str, what: str) -> Diagnostic | None:
    """A diagnostic for a JSON file, such as a host's, with a hint; None for other files. It shows no part of the
    file."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        keys = json.loads(text)
    except ValueError:
        return None
    is_of_a_host = not _OF_A_HOST.isdisjoint(keys)
    hint = (
        f"the servers of an MCP host are taken by `mcp-a2a wrap --from-json {path}`, and in a configuration by"
        f' `[import]` with `mcp_json = "{path}"`'
        if is_of_a_host
        else "`mcp-a2a init` writes a file to start from"
    )
    return Diagnostic(path, f"this is JSON: {what} is TOML", hint)


def _syntax(path: Path, text: str, problem: str) -> Diagnostic:
    """A diagnostic from the message of `tomllib`. The line is masked, because the text has no known structure."""
    position = _AT.search(problem)
    message = problem[: position.start()] if position else problem
    line = int(position["line"]) if position and position["line"] else len(text.rstrip().split("\n"))
    source = text.split("\n")[line - 1]
    column, span = (int(position["column"]) if position and position["column"] else len(source) + 1), 1
    if _TWICE.match(message):
        message = "a key or table appears twice"
        column, span = len(source) - len(source.lstrip()) + 1, len(source.strip())
    before = "\n".join(text.split("\n")[: line - 1])
    masked = masked_line(before, source, masked=message == _UNENDED)
    message = _SAID.get(message, f"{message[:1].lower()}{message[1:]}")
    return Diagnostic(path, f"{_NOT_TOML}{message}", "", line, column, span, masked)


SourceKind = Literal["default", "profile", "file", "environment", "command line"]


@dataclass(frozen=True)
class ValueSource:
    """The source of a value."""

    kind: SourceKind
    place: str = ""
    """The file and line, the option, or the variable; "" for a default."""

    def __str__(self) -> str:
        return f"{self.kind} {self.place}".strip()


DEFAULT_SOURCE: Final = ValueSource("default")


@dataclass(frozen=True)
class ValueSources:
    """The sources of the file's values, by path. A value without a source is a default."""

    places: Mapping[KeyPath, ValueSource]

    def of(self, path: KeyPath) -> ValueSource:
        """The source of the value at a path."""
        return self.places.get(path, DEFAULT_SOURCE)

    def with_changes(self, changes: Mapping[KeyPath, ValueSource]) -> ValueSources:
        """A copy with changed sources."""
        return ValueSources({**self.places, **changes})


def sources_in(document: Document) -> Iterator[tuple[KeyPath, ValueSource]]:
    """Yield every value of a file with its line."""
    for path in document.positions:
        yield path, source_at(document, path, "file")


def source_at(document: Document, path: KeyPath, kind: SourceKind) -> ValueSource:
    """The source of a value in a file, with its line."""
    return ValueSource(kind, document.place(path))


@dataclass(frozen=True)
class OptionDocument:
    """The options of a command as the data of an equivalent file, with the option behind each value."""

    data: dict[str, Any] = field(repr=False)
    option_at: Callable[[KeyPath], str]
    """Gives the option behind the value at a path; "" if there is none."""
    folder: Path = Path()
    """The folder in which relative paths start: the current folder."""

    def place(self, path: KeyPath) -> str:
        """The option behind the value at a path."""
        return self.option_at(path)

    def sources(self) -> Iterator[tuple[KeyPath, ValueSource]]:
        """Yield every value with its option, and every list and table that comes from one option."""
        for path in leaves(self.data):
            yield path, ValueSource("command line", self.option_at(path))
            for depth in range(1, len(path)):
                if option := self.option_at(path[:depth]):
                    yield path[:depth], ValueSource("command line", option)

    def refuse(self, faults: Iterable[ConfigFault], elsewhere: Iterable[Diagnostic]) -> None:
        """Report the faults of the options or, if there are none, those of other files.

        Raises:
            UsageError: there is a fault.
        """
        if messages := list(dict.fromkeys(map(self._told, faults))):
            raise UsageError("\n".join(messages))
        if others := list(elsewhere):
            raise ConfigError(others)

    def _told(self, fault: ConfigFault) -> str:
        option = self.option_at(fault.path)
        is_entry = option == self.option_at(fault.path[:-1])
        return told_of_option(fault, option, is_entry=is_entry)


def told_of_option(fault: ConfigFault, option: str, *, is_entry: bool = False) -> str:
    """The message of a fault, with the option in place of the key. `is_entry` means a single entry of the option."""
    key = f"`{key_name(fault.path)}` "
    words = f"{option}: {fault.message}" if option else fault.message
    if option and not is_entry and fault.message.startswith(key):
        words = f"{option} {fault.message.removeprefix(key)}"
    return f"{words}; {fault.hint}" if fault.hint else words
