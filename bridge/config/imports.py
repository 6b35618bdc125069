"""Reads the files that `[import]` names, each with its own reader, and checks them against the configuration."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bridge.config.check.rules import SECTION_NOUNS, ImportedNames, sources_of
from bridge.config.import_file import ImportedFile, LeftOut, PeerTable
from bridge.config.mcp_json import read_host_file
from bridge.config.tables.peers import AgentTable, ToolServerTable
from bridge.config.text.document import ConfigFault, Document, OptionDocument, ValueSource
from bridge.config.text.positions import KeyPath
from bridge.config.text.secrets import ReadingContext, expanded
from bridge.errors import ConfigError
from bridge.local.installation import adding_extra
from bridge.text.diagnostics import Diagnostic

_YAML: Final = "yaml"
_MISSING_EXTRA: Final = "reading a YAML file needs PyYAML, which is not installed"
_USED_BY: Final = {
    "tool_servers": ("tools_as_agent",),
    "agents": ("agents_as_tools", "agents_as_agent"),
}
"""The sections that imported files add to, each with the sections that use its peers."""


@dataclass
class Imports:
    """The imported files of a configuration, and their faults."""

    tool_servers: list[ImportedFile[ToolServerTable]] = field(default_factory=list)
    agents: list[ImportedFile[AgentTable]] = field(default_factory=list)
    faults: list[ConfigFault] = field(default_factory=list)
    """Faults in the configuration."""
    elsewhere: list[Diagnostic] = field(default_factory=list)
    """Faults in the imported files."""
    unread: set[str] = field(default_factory=set)
    """The sections of files that could not be read. Not all names in these sections are known."""

    def files(self) -> Iterator[tuple[str, ImportedFile[ToolServerTable] | ImportedFile[AgentTable]]]:
        """Yield all files, each with the section that it adds to."""
        yield from (("tool_servers", file) for file in self.tool_servers)
        yield from (("agents", file) for file in self.agents)

    def paths(self) -> Iterator[Path]:
        """Yield the absolute path of each file."""
        for _, file in self.files():
            yield file.document.path.absolute()

    def names(self) -> ImportedNames:
        """The names of all entries by section, usable or not."""
        names: dict[str, frozenset[str] | None] = {}
        for section, file in self.files():
            names[section] = file.names | (names.get(section) or frozenset())
        return {**names, **dict.fromkeys(self.unread)}

    def left_out(self) -> dict[str, LeftOut]:
        """The valid entries that the bridge does not support, by name."""
        return {name: agent for _, file in self.files() for name, agent in file.left_out.items()}

    def sources(self) -> Iterator[tuple[KeyPath, ValueSource]]:
        """Yield each value of each usable entry with its file and line."""
        for section, file in self.files():
            for name, entry in file.entries.items():
                for key in entry.table.model_fields_set:
                    yield (section, name, key), ValueSource("file", entry.place)
            for name, left_out in file.left_out.items():
                yield (section, name), ValueSource("file", left_out.place)

    def wanted_and_refused(self, data: Mapping[str, Any]) -> Iterator[Diagnostic]:
        """Yield the faults of entries that an agent or MCP server of the bridge uses."""
        for section, file in self.files():
            faces = [named for face in _USED_BY[section] for named in sources_of(data, face).values()]
            wanted = {name for named in faces for name in named.values()}
            for name, diagnostics in file.refused.items():
                if name in wanted:
                    yield from diagnostics

    def emptied(self, data: Mapping[str, Any]) -> Iterator[Diagnostic]:
        """Yield a fault for each MCP server of which the bridge supports no agent."""
        left_out = {name: file for file in self.agents for name in file.left_out}
        made = [
            (f"{section}.{face}", named)
            for section in _USED_BY["agents"]
            for face, named in sources_of(data, section).items()
        ]
        for face, named in made:
            if named and left_out.keys() >= set(named.values()):
                (name, *_) = named.values()
                fault, message = (
                    left_out[name].left_out[name],
                    f"[{face}] has only agents that the bridge does not support",
                )
                yield left_out[name].document.diagnostic(ConfigFault(fault.path, f"{message}: {fault.words}"))


def read_imports(document: Document | OptionDocument, reading: ReadingContext) -> Imports:
    """Read the files that the `[import]` of a configuration names."""
    imports = Imports()
    reader = _ImportReader(document, reading, imports)
    imports.tool_servers += reader.files("mcp_json", "tool_servers", read_host_file)
    imports.agents += reader.agents("known_agents")
    for section in _USED_BY:
        imports.elsewhere += _clashes(section, document, imports)
    own = document.data.get("agents")
    for name in {*(own if isinstance(own, dict) else ()), *tables_in(imports.agents)}:
        for file in imports.agents:
            file.left_out.pop(name, None)  # another agent with this name replaces it
    return imports


def tables_in(files: list[ImportedFile[PeerTable]]) -> dict[str, PeerTable]:
    """The tables of all usable entries, by name."""
    return {name: entry.table for file in files for name, entry in file.entries.items()}


@dataclass(frozen=True)
class _ImportReader:
    document: Document | OptionDocument
    reading: ReadingContext
    imports: Imports
    """Collects the faults."""

    def files(
        self, key: str, section: str, read: Callable[[Path, Mapping[str, str]], ImportedFile[PeerTable]]
    ) -> Iterator[ImportedFile[PeerTable]]:
        """Read the files that a key names, and yield those that could be read."""
        for where, path in self._paths(key):
            try:
                if os.path.isfile(
                    path
                ):  # unlike Path.is_file, it accepts any text, even a text that is too long for a path
                    yield read(path, self.reading.environment)
                    continue
                self.imports.faults.append(ConfigFault(where, f"there is no file {path}"))
            except ConfigError as exc:
                self.imports.elsewhere += exc.diagnostics
            self.imports.unread.add(section)

    def agents(self, key: str) -> Iterator[ImportedFile[AgentTable]]:
        """Read the agents in the files that a key names."""
        named = [where for where, _ in self._paths(key)]
        if not named:
            return
        try:
            from bridge.config.known_agents import read_known_agents  # takes an optional extra
        except ModuleNotFoundError as exc:
            if exc.name != _YAML:
                raise
            self.imports.unread.add("agents")
            self.imports.faults += [
                ConfigFault(where, _MISSING_EXTRA, adding_extra("yaml")) for where in named
            ]
            return
        yield from self.files(key, "agents", read_known_agents)

    def _paths(self, key: str) -> Iterator[tuple[KeyPath, Path]]:
        table = self.document.data.get("import")
        written = table.get(key, []) if isinstance(table, dict) else []
        for index, name in enumerate(written if isinstance(written, list) else [written]):
            if isinstance(name, str) and name:
                where: KeyPath = ("import", key)
                yield (
                    (*where, index) if isinstance(written, list) else where,
                    self.document.folder / expanded(name),
                )


def _clashes(section: str, document: Document | OptionDocument, imports: Imports) -> Iterator[Diagnostic]:
    """Yield a fault for each entry with the name of another peer of its kind, in any file."""
    noun, _ = SECTION_NOUNS[section]
    own = document.data.get(section)
    places = {name: document.place((section, name)) for name in own} if isinstance(own, dict) else {}
    for file in (file for kind, file in imports.files() if kind == section):
        for name, entry in file.entries.items():
            if name in places:
                message = f"there is another {noun.partition(' ')[2]} `{name}`"
                yield file.refusal(name, message, f"rename this entry, or the entry at {places[name]}")
            places.setdefault(name, entry.place)
