"""Finds possible secrets in a file by the names of their keys and tables, and masks them in texts. Pure.

In doubt a value is masked: a diagnostic needs its place, and seldom the value itself.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from bridge.config.text.positions import KeyPath, Positions, Span
from bridge.config.text.wording import shown_url

VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""The name of an environment variable. Any other text in its place may be the secret itself."""

HIDDEN: Final = "***"
"""The text shown in place of a secret."""

_SECRET_TABLES: Final = frozenset(("auth", "headers", "env", "keys", "principals"))
_NAMED_SECRET: Final = re.compile(
    r"token|secret|passw|passphrase|(?<![a-z])pass(?![a-z])|bearer|(api|access|private|secret|auth)[_-]?key|authori[sz]"
    r"|cookie|credential",
    re.IGNORECASE,
)
_NOT_SECRET: Final = frozenset(("env", "file", "header", "skills"))
"""Keys whose values are not secret: they say where a secret is, or what it is for."""
_SECRET_LINE: Final = re.compile(
    r"auth|bearer|command|cookie|credential|env|header|key|passw|principals|secret|token", re.IGNORECASE
)
_SECRET_OPTION: Final = re.compile(rf"-.*({_NAMED_SECRET.pattern}|auth|header|key)[^=:]*", re.IGNORECASE)
"""An option whose value is the next word."""
_SECRET_WORD: Final = re.compile(rf"[^=:]*({_NAMED_SECRET.pattern}|auth|key)[^=:]*[=:].+", re.IGNORECASE)
"""`--token=VALUE`, `TOKEN=VALUE`, `Authorization: VALUE`"""

_OPTION_WITH_VALUE: Final = re.compile(r"-{1,2}[A-Za-z][\w-]*=")

_IN_A_VALUE: Final = re.compile(r"[^\s{}\[\],=\"']")
_ANY: Final = re.compile(r"[^\s\"']")
_USER_IN_URL: Final = re.compile(r"(?<=://)[^/@\s\"']+(?=@)")
_QUERY: Final = re.compile(r"(?P<before>://[^\s\"'?#]*[?#]|\?(?=[^\s\"'?]*=))(?P<query>[^\"'\n]+)")
_HEADER: Final = re.compile(r"^[ \t]*\[.*", re.MULTILINE)
_KEY: Final = r"(?:[A-Za-z0-9_-]+|\"[^\"\\]*\"|'[^']*')"
_KEYS: Final = re.compile(rf"[ \t]*{_KEY}(?:[ \t]*\.[ \t]*{_KEY})*[ \t]*")
_QUOTES_OF_MANY_LINES: Final = ('"""', "'''")


def is_secret_name(name: str) -> bool:
    """Whether a value with this name may be a secret."""
    return _NAMED_SECRET.search(name) is not None


def mask(text: str, places: Iterable[Span]) -> str:
    """Mask the text at these places. Quotes, line ends and lengths stay."""
    for place in places:
        value = _IN_A_VALUE.sub("*", text[place.start : place.end])
        text = text[: place.start] + value + text[place.end :]
    text = _USER_IN_URL.sub(lambda match: "*" * len(match[0]), text)
    return _QUERY.sub(lambda match: match["before"] + _ANY.sub("*", match["query"]), text)


def leaves(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the paths of all values except tables and lists."""
    match value:
        case dict():
            for key, inner in value.items():
                yield from leaves(inner, (*path, key))
        case list():
            for index, inner in enumerate(value):
                yield from leaves(inner, (*path, index))
        case _:
            yield path


def value_at(data: Any, path: KeyPath) -> Any:
    """The value at an existing path."""
    for step in path:
        data = data[step]
    return data


def secret_places(data: dict[str, Any], positions: Positions) -> Iterator[Span]:
    """Yield the places of values that may be secret because of their names, or because of the word before them in a
    command."""
    for path in leaves(data):
        if _may_be_secret(path, value_at(data, path)) or _is_secret_word(data, path):
            yield positions[path].value


def words_of(command: str) -> list[str]:
    """Split a command into words."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def has_secrets(words: Sequence[object]) -> bool:
    """Whether one of the words of a command may be a secret."""
    return any(_is_secret_among(words, index) for index in range(len(words)))


def shown_words(words: Sequence[str]) -> list[str]:
    """The words of a command with possible secrets masked, such as `--token=***` and `--password ***`. URLs lose their
    query."""
    return [_shown_word(words, index) for index in range(len(words))]


def masked_line(before: str, source: str, *, masked: bool) -> str:
    """A line of invalid TOML, with possible secrets masked. `before` is the text above the line.

    A line that continues a value may continue a secret. `masked` says that the line certainly does.
    """
    masked_text = mask(source, ())
    key, equals, value = masked_text.partition("=")
    is_header = masked_text.lstrip().startswith("[")
    if masked or any(before.count(quotes) % 2 for quotes in _QUOTES_OF_MANY_LINES):
        return _IN_A_VALUE.sub("*", masked_text)
    if not is_header and not (equals and _KEYS.fullmatch(key)):
        return _IN_A_VALUE.sub("*", masked_text)
    headers = _HEADER.findall(before)
    if _SECRET_LINE.search(f"{headers[-1] if headers else ''} {source}"):
        return masked_text if is_header and not equals else key + equals + _IN_A_VALUE.sub("*", value)
    return masked_text


def _may_be_secret(path: KeyPath, value: object) -> bool:
    names = [step for step in path if isinstance(step, str)]
    if len(names) > 1 and names[-1] in _NOT_SECRET and names[-2] not in ("headers", "env"):
        return names[-1] == "env" and not VARIABLE_NAME.fullmatch(str(value))
    return not _SECRET_TABLES.isdisjoint(names) or any(map(_NAMED_SECRET.search, names[-1:]))


def _is_secret_word(data: dict[str, Any], path: KeyPath) -> bool:
    value = value_at(data, path)
    if path[-1:] == ("command",) and isinstance(value, str):
        return has_secrets(words_of(value))
    is_word = isinstance(path[-1], int) and path[-2:-1] == ("command",)
    return is_word and _is_secret_among(value_at(data, path[:-1]), int(path[-1]))


def _shown_word(words: Sequence[str], index: int) -> str:
    if not _is_secret_among(words, index):
        return shown_url(words[index])
    option = _OPTION_WITH_VALUE.match(words[index])
    return f"{option[0]}{HIDDEN}" if option else HIDDEN


def _is_secret_among(words: Sequence[object], index: int) -> bool:
    before = words[index - 1] if index else ""
    return bool(_SECRET_WORD.fullmatch(str(words[index])) or _SECRET_OPTION.fullmatch(str(before)))
