"""TOML as text, table by table, with a remark behind each value. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bridge.config.shown import ShownValue, toml_value

_OF_A_PROFILE: Final = "mapping."
_OF_HOSTS: Final = "import."
_ONLY_ONE: Final = ("bridge", "import")
"""Tables that have no name of their own."""
_WIDEST: Final = 60
"""Characters before a remark, where the lines of a table are no longer."""


@dataclass(frozen=True)
class TomlLine:
    """A key with its value."""

    key: str
    value: str
    """As TOML."""
    remark: str = ""
    is_remark: bool = False
    """Whether all of it is one: it says what holds, and is no key of the file."""

    @property
    def text(self) -> str:
        """Without the remark."""
        return f"{'# ' if self.is_remark else ''}{self.key} = {self.value}"


def document_of(data: Mapping[str, Mapping[str, Any]]) -> str:
    """A file that holds this, as reading it would give."""
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


def text_of_shown(rows: Iterable[ShownValue], *, sources: bool) -> str:
    """A configuration as a file that says the same, and as remarks what its profiles say, and what is not shown
    whole: read again, it is missing, and not another value.

    `sources` is whether each value has behind it where it comes from. Servers that a host's file holds stand there as
    tables, so that the file is named in a remark alone.
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
        if any(line.key == "url" for line in lines):  # whose table takes no folder, and has one by default
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
