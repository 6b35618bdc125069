"""Writes a configuration as values with their sources, and as TOML text. Pure; never shows a secret."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from bridge.config.load import LoadedConfig
from bridge.config.tables.faces import FACES
from bridge.config.tables.models import ToolServerTable
from bridge.config.tables.profile import TABLES_OF
from bridge.config.text.document import DEFAULT_SOURCE, ValueSource
from bridge.config.text.masking import HIDDEN, is_secret_name
from bridge.config.text.positions import KeyPath
from bridge.config.text.secrets import Secret, TokenHash, is_secret_header
from bridge.config.text.wording import shown_url, spelled
from bridge.errors import UsageError

_ADDRESSES: Final = ("url", "card", "public_url", "jwks_url", "jwks", "resource")
_REFERENCES: Final = ("env", "file")
_SETTINGS: Final = ("env", "headers")
_DELETE: Final = "\x7f"
"""JSON allows this character unescaped; TOML does not."""


@dataclass(frozen=True)
class ShownValue:
    """One value."""

    path: str
    """Such as `bridge.port` or, in a profile, `tools_as_agent.devtools.mapping.run.concurrency`."""
    value: str
    """The value as TOML; a secret as its reference."""
    source: ValueSource
    is_whole: bool = True
    """Whether the whole value is shown. If not, the text must not be read as the value again."""


def shown_values(loaded: LoadedConfig) -> list[ShownValue]:
    """Every value that is set, in the order of the documentation. The values of a profile follow each table that uses
    it."""
    return [*_of_file(loaded), *_of_profiles(loaded)]


def toml_value(value: Any) -> str:
    """A value as TOML on one line."""
    match value:
        case Secret():
            source, _, place = value.reference.partition(":")
            return f"{{ {source} = {toml_value(place)} }}" if source in _REFERENCES else toml_value(HIDDEN)
        case TokenHash():
            return toml_value({"sha256": HIDDEN})
        case bool():
            return str(value).lower()
        case str() | Path():
            return json.dumps(str(value), ensure_ascii=False).replace(_DELETE, "\\u007f")
        case BaseModel():
            written = _written(value)
            return toml_value({name: _under(name, inner) for name, inner in _keys(value) if name in written})
        case dict():
            pairs = [f"{_key(name)} = {toml_value(inner)}" for name, inner in value.items()]
            return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
        case list() | tuple():
            return f"[{', '.join(map(toml_value, value))}]"
        case _:
            return str(value)


def _under(key: str, value: Any) -> Any:
    """A value in the form that it has under a key. If the key already says the kind of a secret's source, only the
    place is written."""
    if isinstance(value, Secret) and value.reference.startswith(f"{key}:"):
        return value.reference.removeprefix(f"{key}:")
    return value


def _of_file(loaded: LoadedConfig) -> Iterator[ShownValue]:
    for section, table in _keys(loaded.config):
        if table is None:
            continue
        named = (
            [((section,), table)]
            if isinstance(table, BaseModel)
            else [((section, name), inner) for name, inner in table.items()]
        )
        for path, inner in named:
            for key, value in _keys(inner):
                source = loaded.sources.of((*path, key))
                yield from (
                    _row((*path, *steps), part, source, is_whole=whole)
                    for steps, part, whole in _shown_parts(inner, key, value)
                )


def _shown_parts(table: BaseModel, key: str, value: Any) -> Iterator[tuple[KeyPath, Any, bool]]:
    """Yield the shown parts of a key's value: the path of each part, the part, and whether it is the whole value."""
    if key in _SETTINGS:
        masked = {
            name: display for name, member in value.items() if (display := _masked(name, member)) is not None
        }
        value = {name: member for name, member in value.items() if name not in masked}
        yield from (((key, _key(name)), masked[name], False) for name in sorted(masked))
    if value in (None, (), {}) and value == _default(table, key):
        return
    whole = value
    if isinstance(table, ToolServerTable):
        value = table.shown(key) or value
    value = _with_shown_addresses(key, value)
    has_hash = any(
        isinstance(member, TokenHash) for member in (value if isinstance(value, tuple) else (value,))
    )
    yield (key,), value, value == whole and not has_hash


def _of_profiles(loaded: LoadedConfig) -> Iterator[ShownValue]:
    config = loaded.config
    named: list[tuple[KeyPath, str]] = [(("bridge",), config.bridge.mapping)]
    for section in FACES:
        faces: Mapping[str, Any] = getattr(config, section)
        named += [((section, name), face.mapping) for name, face in faces.items()]
    for path, name in named:
        resolved = loaded.profiles[name]
        for table in TABLES_OF[str(path[0])]:
            for key, value in _keys(getattr(resolved.profile, table)):
                source = resolved.origins.get((table, key), DEFAULT_SOURCE)
                yield _row((*path, "mapping", table, key), value, source)


def _row(path: KeyPath, value: Any, source: ValueSource, *, is_whole: bool = True) -> ShownValue:
    return ShownValue(spelled(path), toml_value(value), source, is_whole)


def _keys(table: BaseModel) -> Iterator[tuple[str, Any]]:
    for name, field in type(table).model_fields.items():
        yield field.alias or name, getattr(table, name)


def _default(table: BaseModel, key: str) -> Any:
    fields = type(table).model_fields
    field = fields.get(key) or next(field for field in fields.values() if field.alias == key)
    return field.get_default(call_default_factory=True)


def _written(table: BaseModel) -> set[str]:
    return {type(table).model_fields[name].alias or name for name in table.model_fields_set}


def _masked(name: str, value: Any) -> str | None:
    """The text to show in place of the value of a variable or header; None to show the value itself.

    A plain value with a secret name, or from a host's file, is hidden. A URL is shown without user and query.
    """
    if isinstance(value, Secret):
        return None if value.reference.partition(":")[0] in _REFERENCES else HIDDEN
    if is_secret_header(name) or is_secret_name(name):
        return HIDDEN
    display = shown_url(value)
    return None if display == value else display


def _with_shown_addresses(key: str, value: Any) -> Any:
    """A value whose URLs, including the URLs in nested tables, have no user and no query."""
    if isinstance(value, BaseModel):
        inner = {name: getattr(value, name) for name in type(value).model_fields}
        displayed = {name: _with_shown_addresses(name, member) for name, member in inner.items()}
        changed = {name: member for name, member in displayed.items() if member != inner[name]}
        return value.model_copy(update=changed) if changed else value
    return shown_url(value) if key in _ADDRESSES and isinstance(value, str) else value


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else toml_value(name)


_OF_A_PROFILE: Final = "mapping."
_OF_HOSTS: Final = "import."
_ONLY_ONE: Final = ("bridge", "import", "push", "model", "audit")
"""Tables that exist only once, without a name."""
_WIDEST: Final = 60
"""The last column of a value; longer lines do not move the remarks of their table."""


@dataclass(frozen=True)
class TomlLine:
    """A key with its value."""

    key: str
    value: str
    """As TOML."""
    remark: str = ""
    is_remark: bool = False
    """Whether the whole line is a comment, because it is no key of the file."""

    @property
    def text(self) -> str:
        """The line without its remark."""
        return f"{'# ' if self.is_remark else ''}{self.key} = {self.value}"


def document_of(data: Mapping[str, Mapping[str, Any]]) -> str:
    """The text of a file with this data."""
    tables = {
        name: table
        for section, value in data.items()
        for name, table in (
            {section: value}
            if section in _ONLY_ONE
            else {f"{section}.{name}": inner for name, inner in value.items()}
        ).items()
    }
    return toml_text_of(
        {
            name: [TomlLine(key, toml_value(value)) for key, value in table.items()]
            for name, table in tables.items()
        }
    )


def toml_of(data: Mapping[str, Any]) -> str:
    """A dict, whose shape is not checked, as TOML: the tables of the file as tables, everything else inline.

    Raises:
        UsageError: TOML has no form for a value.
    """
    above: list[str] = []
    tables: list[str] = []
    for section, value in data.items():
        key, named = _key(str(section)), value if isinstance(value, Mapping) else {}
        if section in _ONLY_ONE and isinstance(value, Mapping):
            tables += [f"[{key}]", *_lines((section,), named)]
        elif named and all(isinstance(table, Mapping) for table in named.values()):
            for name, inner in named.items():
                tables += [f"[{key}.{_key(str(name))}]", *_lines((section, str(name)), inner)]
        else:
            above += _lines((), {section: value})
    return "".join(f"{line}\n" for line in (*above, *tables))


def _lines(path: KeyPath, table: Mapping[str, Any]) -> list[str]:
    return [
        f"{_key(str(key))} = {toml_value(_plain((*path, str(key)), value))}" for key, value in table.items()
    ]


def _plain(path: KeyPath, value: Any) -> Any:
    """A value of a dict as a TOML value."""
    match value:
        case None:
            raise UsageError(f"{spelled(path)} is None, which TOML does not have: leave the key out")
        case Mapping():
            return {str(key): _plain((*path, str(key)), inner) for key, inner in value.items()}
        case list() | tuple():
            return [_plain((*path, index), inner) for index, inner in enumerate(value)]
        case bool() | int() | float() | str() | Path():
            return value
    raise UsageError(
        f"{spelled(path)} is a {type(value).__qualname__}, which TOML does not have:"
        " give a text, a number, true or false, a list, or a dict"
    )


def text_of_shown(rows: Iterable[ShownValue], *, sources: bool) -> str:
    """A configuration as the text of a file.

    Values of profiles, and values that are not shown whole, are comments: reading the text again ignores them and never
    gives a different value. `sources` adds the source after each value. Servers of a host's file are tables here, so
    the host's file is named in a comment only.
    """
    tables: dict[str, list[TomlLine]] = {}
    for row in rows:
        depth = 1 if row.path.startswith(tuple(f"{name}." for name in _ONLY_ONE)) else 2
        steps = row.path.split(".", depth)
        table, key = ".".join(steps[:depth]), steps[depth]
        is_elsewhere = key.startswith(_OF_A_PROFILE) or row.path.startswith(_OF_HOSTS)
        line = TomlLine(
            key.removeprefix(_OF_A_PROFILE),
            row.value,
            str(row.source) if sources else "",
            is_remark=is_elsewhere or not row.is_whole,
        )
        tables.setdefault(table, []).append(line)
    for lines in tables.values():
        if any(
            line.key == "url" for line in lines
        ):  # a table with `url` takes no `cwd`, but has a default for it
            lines[:] = [line for line in lines if line.key != "cwd"]
    return toml_text_of(tables)


def toml_text_of(tables: Mapping[str, Iterable[TomlLine]]) -> str:
    """A file with these tables."""
    parts = (_table(name, list(lines)) for name, lines in tables.items())
    return "\n".join(part for part in parts if part)


def _table(name: str, lines: list[TomlLine]) -> str:
    if not lines:
        return ""
    return "".join(f"{line}\n" for line in (f"[{name}]", *_with_remarks(lines)))


def _with_remarks(lines: list[TomlLine]) -> Iterator[str]:
    column = max((len(line.text) for line in lines if len(line.text) <= _WIDEST), default=0)
    for line in lines:
        yield f"{line.text:<{column}}  # {line.remark}" if line.remark else line.text
