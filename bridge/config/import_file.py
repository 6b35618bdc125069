"""A file that `[import]` names, after reading: its peers, by the names that the bridge gives them.

A faulty entry is reported only if an agent or MCP server of the bridge uses it: the file belongs to another program,
and may list peers that the bridge never calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from bridge.config.tables.peers import AgentTable, ToolServerTable
from bridge.config.text.document import ConfigFault, Document
from bridge.config.text.positions import KeyPath
from bridge.config.text.wording import table_name
from bridge.text.diagnostics import Diagnostic

PeerTable = TypeVar("PeerTable", bound=ToolServerTable | AgentTable)


@dataclass(frozen=True)
class ImportedEntry(Generic[PeerTable]):
    """A usable entry of an imported file."""

    table: PeerTable
    place: str
    """The file and line."""
    path: KeyPath


@dataclass(frozen=True)
class LeftOut:
    """A valid entry that the bridge does not support."""

    words: str
    """The reason, and what to do."""
    place: str
    """The file and line."""
    path: KeyPath


@dataclass(frozen=True)
class ImportedFile(Generic[PeerTable]):
    """An imported file. Entries are added while it is read."""

    document: Document
    entries: dict[str, ImportedEntry[PeerTable]] = field(default_factory=dict)
    """The usable entries, by the names that the bridge gives them."""
    refused: dict[str, tuple[Diagnostic, ...]] = field(default_factory=dict)
    """The faults of unusable entries, by name."""
    left_out: dict[str, LeftOut] = field(default_factory=dict)
    """The entries that the bridge does not support, by name."""
    _written_as: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """The names of all entries, usable or not."""
        return frozenset((*self.entries, *self.refused, *self.left_out))

    def refusal(self, name: str, message: str, hint: str = "") -> Diagnostic:
        """A diagnostic about a usable entry as a whole."""
        return self.document.diagnostic(ConfigFault(self.entries[name].path, message, hint, on_key=True))

    def add(
        self,
        written: str,
        path: KeyPath,
        table: PeerTable | None,
        faults: list[ConfigFault],
        unable: str = "",
    ) -> None:
        """Add the entry at a path, by its written name.

        The faults have paths in the entry. `unable` is the reason if the entry is valid but not supported.
        """
        name = table_name(written)
        if name in self._written_as:
            message = f"`{self._written_as[name]}` and `{written}` would both be called `{name}`"
            faults = [*faults, ConfigFault((), message, "rename one of them", on_key=True)]
        self._written_as.setdefault(name, written)
        if faults:
            placed = (replace(fault, path=(*path, *fault.path)) for fault in faults)
            self.refused[name] = (*self.refused.get(name, ()), *self.document.diagnostics(placed))
        elif unable:
            self.left_out[name] = LeftOut(unable, self.document.place(path), path)
        elif table is not None:
            self.entries[name] = ImportedEntry(table, self.document.place(path), path)
