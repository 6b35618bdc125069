"""Where each value of the configuration comes from: a default, a profile, the file, the environment, the command line.

Precedence: command line over environment (`MCP_A2A_*`) over file over profile over default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from bridge.config.text.document import Document
from bridge.config.text.positions import KeyPath

SourceKind = Literal["default", "profile", "file", "environment", "command line"]


@dataclass(frozen=True)
class ValueSource:
    """Where a value comes from."""

    kind: SourceKind
    place: str = ""
    """The file and line, the option, or the variable; "" for a default."""

    def __str__(self) -> str:
        return f"{self.kind} {self.place}".strip()


DEFAULT_SOURCE: Final = ValueSource("default")


@dataclass(frozen=True)
class ValueSources:
    """Where the values of the file come from, by path. What is not written anywhere is a default."""

    places: Mapping[KeyPath, ValueSource]

    def of(self, path: KeyPath) -> ValueSource:
        """Where the value at a path comes from."""
        return self.places.get(path, DEFAULT_SOURCE)

    def with_changes(self, changes: Mapping[KeyPath, ValueSource]) -> ValueSources:
        """These, with others in their place."""
        return ValueSources({**self.places, **changes})


def sources_in(document: Document) -> Iterator[tuple[KeyPath, ValueSource]]:
    """Every value of a file, with its line."""
    for path in document.positions:
        yield path, source_at(document, path, "file")


def source_at(document: Document, path: KeyPath, kind: SourceKind) -> ValueSource:
    """The line of a file on which a value stands."""
    return ValueSource(kind, document.place(path))
