"""Reads the configuration: the file, its profiles, and the files that it imports. Starts nothing.

One `ConfigError` reports all mistakes in all of these files.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pydantic import ValidationError

from bridge.config.check.plain_tables import tables_at
from bridge.config.check.rules import OF_ENDPOINTS, ImportedNames, is_shared_store, rule_faults
from bridge.config.check.validation_faults import validation_faults_of, without_guesses
from bridge.config.file_schema import config_schema
from bridge.config.import_file import LeftOut
from bridge.config.imports import Imports, read_imports, tables_in
from bridge.config.tables.faces import FACES, FaceTable
from bridge.config.tables.models import (
    BridgeTable,
    Config,
    PrincipalTable,
    ToolServerTable,
)
from bridge.config.tables.profile import (
    DEFAULT_PROFILE_NAME,
    NoProfileError,
    Profile,
    ResolvedProfile,
    absolute_name,
    resolve_profile,
)
from bridge.config.text.document import (
    ConfigFault,
    Document,
    OptionDocument,
    ValueSource,
    ValueSources,
    read_toml,
    sources_in,
    told_of_option,
    toml_in,
)
from bridge.config.text.positions import KeyPath
from bridge.config.text.secrets import ReadingContext, secrets_in
from bridge.errors import ConfigError, UsageError
from bridge.pinned.lock import Lock, lock_beside, read_lock
from bridge.text.diagnostics import Diagnostic

NO_SERVERS: Final[Mapping[str, object]] = MappingProxyType({})
TEXT: Final = Path("configuration")
"""The name that messages give a configuration without a file."""


@dataclass(frozen=True)
class SettingOverride:
    """A value of `[bridge]` from the command line or the environment, in the form of the file."""

    value: Any
    by: str
    """The option, `--port`, or the variable, `MCP_A2A_SERVE_PORT`."""

    @property
    def source(self) -> ValueSource:
        """The source of the value."""
        return ValueSource("command line" if self.by.startswith("-") else "environment", self.by)


@dataclass(frozen=True)
class LoadedConfig:
    """A configuration after reading: its values and profiles, with their sources."""

    path: Path
    """The absolute path of the file; the current folder if there is no file."""
    config: Config
    profiles: Mapping[str, ResolvedProfile]
    """The profiles, by the values of `mapping`."""
    sources: ValueSources
    files: frozenset[Path]
    """All files that were read, including the files of secrets. A change of any of them may change the
    configuration."""
    environment: Mapping[str, str] = field(repr=False, compare=False)
    on_command_line: bool = False
    """Whether the configuration comes from options, not from a file."""
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)
    """The agents of imported files that the bridge does not support, by name. No MCP server offers them."""
    lock: Lock | None = field(default=None, repr=False)
    """The approved definitions, from the lock beside the file; None without a lock."""
    servers: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Tool servers that are objects in this process, by the names of their tables."""

    @property
    def bridge_profile(self) -> Profile:
        """The profile of the process."""
        return self.profiles[self.config.bridge.mapping].profile

    def profile_of(self, face: FaceTable) -> Profile:
        """The profile of an agent or MCP server of the bridge."""
        return self.profiles[face.mapping].profile

    def place_of(self, path: KeyPath) -> str:
        """The file and line of a key, in the file or in a mapping profile. If the key is not written, the place of its
        table; "" if no file has the table."""
        if len(path) >= 4 and path[0] in FACES:
            faces: Mapping[str, FaceTable] = getattr(self.config, str(path[0]))
            origins = self.profiles[faces[str(path[1])].mapping].origins
            if origin := origins.get((str(path[2]), str(path[3]))):
                return origin.place
        tables = (path[:length] for length in range(len(path), 1, -1))
        return next((self.sources.of(table).place for table in tables if table in self.sources.places), "")

    def given(self, **changes: SettingOverride) -> LoadedConfig:
        """A copy with values of `[bridge]` from the command line or the environment. Paths are relative to the current
        folder.

        Raises:
            UsageError: a value has the wrong type or range, or there is no such profile.
        """
        bridge = _bridge_with(self.config.bridge, changes, ReadingContext(Path.cwd(), self.environment))
        profiles = self.profiles
        if bridge.mapping not in profiles:
            profiles = {**profiles, bridge.mapping: resolve_profile(bridge.mapping)}
        return replace(
            self,
            config=self.config.model_copy(update={"bridge": bridge}),
            profiles=profiles,
            sources=self.sources.with_changes(
                {("bridge", key): change.source for key, change in changes.items()}
            ),
        )


def load(
    path: Path, environment: Mapping[str, str] = os.environ, servers: Mapping[str, object] = NO_SERVERS
) -> LoadedConfig:
    """Read a configuration file, and the lock beside it. `servers` are objects in place of its tool servers; see
    `load_text`.

    Raises:
        ConfigError: the file, or a file that it names, has errors. The message lists all of them.
    """
    document = read_toml(path, "the configuration")
    loaded = _of_text(document, path.absolute().parent, environment, servers)
    path = path.absolute()
    lock_file = lock_beside(path)
    try:
        lock = read_lock(lock_file)
    except UsageError as exc:
        raise ConfigError([Diagnostic(lock_file, str(exc))]) from exc
    return replace(loaded, path=path, lock=lock, files=loaded.files | {path, lock_file})


def load_text(
    text: str, environment: Mapping[str, str] = os.environ, servers: Mapping[str, object] = NO_SERVERS
) -> LoadedConfig:
    """Read the text of a configuration file. Its relative paths start in the current folder.

    `servers` are tool servers, by name, that are objects in this process. The table of such a server keeps its limits;
    its keys for a command or a URL are ignored. A server without a table is added.

    Raises:
        ConfigError: the text, or a file that it names, has errors.
    """
    document = toml_in(text, TEXT, "the configuration")
    return replace(_of_text(document, Path.cwd(), environment, servers), path=Path.cwd())


def load_edited(path: Path, text: str, environment: Mapping[str, str] = os.environ) -> LoadedConfig:
    """Read a text as if it were the configuration file at this path.

    Raises:
        ConfigError: the text, or a file that it names, has errors.
    """
    document = toml_in(text, path, "the configuration")
    return _of_text(document, path.absolute().parent, environment, NO_SERVERS)


def _of_text(
    document: Document, folder: Path, environment: Mapping[str, str], servers: Mapping[str, object]
) -> LoadedConfig:
    standing_in = replace(document, data=_with_servers(document.data, servers))
    loaded = _loaded(standing_in, ReadingContext(folder, environment), dict(sources_in(document)), servers)
    return replace(loaded, servers=servers)


def _with_servers(data: dict[str, Any], servers: Mapping[str, object]) -> dict[str, Any]:
    """The data without the keys for a command or a URL in the tables of `servers`."""
    if not servers:
        return data
    tables = data.get("tool_servers", {})
    if not isinstance(tables, dict):
        return data  # the models report it
    changed = {
        name: {key: value for key, value in table.items() if key not in OF_ENDPOINTS}
        for name in servers
        if isinstance(table := tables.get(name), dict)
    }
    return {**data, "tool_servers": {**tables, **changed}}


def load_options(document: OptionDocument, environment: Mapping[str, str] = os.environ) -> LoadedConfig:
    """Read options as a configuration.

    Raises:
        UsageError: the options have errors. The message lists all of them by option.
    """
    return _loaded(
        document, ReadingContext(Path.cwd(), environment, on_command_line=True), dict(document.sources())
    )


def _loaded(
    document: Document | OptionDocument,
    reading: ReadingContext,
    sources: Mapping[KeyPath, ValueSource],
    servers: Collection[str] = (),
) -> LoadedConfig:
    imports = read_imports(document, reading)
    findings = _LoadFindings(document, imports.faults, imports.elsewhere)
    profiles = _profiles(findings)
    config = _config(reading, findings)
    findings.faults += rule_faults(document.data, _names(imports, servers), frozenset(servers))
    findings.elsewhere += [*imports.wanted_and_refused(document.data), *imports.emptied(document.data)]
    findings.faults += _shared_tokens(document.data, reading)
    document.refuse(without_guesses(findings.faults), findings.elsewhere)
    assert config is not None, "what is wrong with it has been raised"
    config = _with_imports(config, imports, servers)
    return LoadedConfig(
        reading.folder,
        config,
        profiles,
        ValueSources({**sources, **dict(imports.sources())}),
        frozenset(_files(config, profiles, imports)),
        reading.environment,
        reading.on_command_line,
        imports.left_out(),
    )


def _names(imports: Imports, servers: Collection[str]) -> ImportedNames:
    """The further names that the file may use: the names in imported files, and the names of objects."""
    names = imports.names()
    of_servers = names.get("tool_servers", frozenset())
    return {**names, "tool_servers": None if of_servers is None else of_servers | frozenset(servers)}


def _with_imports(config: Config, imports: Imports, servers: Collection[str] = ()) -> Config:
    """The configuration with the peers of imported files, with a table for each object, and without the agents that are
    not supported."""
    left_out = imports.left_out()
    changes = {
        "tool_servers": {
            **{name: ToolServerTable() for name in servers},
            **config.tool_servers,
            **tables_in(imports.tool_servers),
        },
        "agents": {**config.agents, **tables_in(imports.agents)},
        **{
            section: {
                name: face.model_copy(
                    update={"sources": tuple(source for source in face.sources if source not in left_out)}
                )
                for name, face in getattr(config, section).items()
            }
            for section in ("agents_as_tools", "agents_as_agent")
        },
    }
    return config.model_copy(update=changes)


def _bridge_with(
    bridge: BridgeTable, changes: Mapping[str, SettingOverride], here: ReadingContext
) -> BridgeTable:
    values = {name: getattr(bridge, name) for name in BridgeTable.model_fields}
    changed = {key: change.value for key, change in changes.items()}
    if "mapping" in changed:
        changed["mapping"] = absolute_name(str(changed["mapping"]), here.folder)
    try:
        table = BridgeTable.model_validate({**values, **changed}, context=here)
    except ValidationError as exc:
        (first, *_) = validation_faults_of(exc, config_schema(), {"bridge": changed}, under=("bridge",))
        raise UsageError(told_of_option(first, changes[str(first.path[1])].by)) from exc
    if "replica_url" in changes and not is_shared_store(table.store):
        raise UsageError(f"{changes['replica_url'].by} is for a `store` in PostgreSQL")
    return table


@dataclass
class _LoadFindings:
    """The faults found so far."""

    document: Document | OptionDocument
    faults: list[ConfigFault]
    elsewhere: list[Diagnostic]
    """Faults in other files."""


def _config(reading: ReadingContext, findings: _LoadFindings) -> Config | None:
    data = findings.document.data
    try:
        return Config.model_validate(data, context=reading)
    except ValidationError as exc:
        findings.faults += validation_faults_of(exc, config_schema(), data)
        return None


def _profiles(findings: _LoadFindings) -> dict[str, ResolvedProfile]:
    """The profiles that the file names, by name."""
    profiles: dict[str, ResolvedProfile] = {}
    broken: set[str] = set()
    for where, name in [((), DEFAULT_PROFILE_NAME), *_mappings(findings.document.data)]:
        if name in profiles or name in broken:
            continue
        try:
            profiles[name] = resolve_profile(name, findings.document.folder)
        except NoProfileError as exc:
            findings.faults.append(ConfigFault(where, exc.message, exc.hint))
        except ConfigError as exc:
            broken.add(name)
            findings.elsewhere += exc.diagnostics
    return profiles


def _mappings(data: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    for pattern in (("bridge",), *((face, "*") for face in FACES)):
        for path, table in tables_at(data, pattern):
            if isinstance(name := table.get("mapping"), str) and name:
                yield (*path, "mapping"), name


def _shared_tokens(data: Mapping[str, Any], reading: ReadingContext) -> Iterator[ConfigFault]:
    """Yield a fault for each token that several principals share, and for each token that one principal has twice."""
    owners: dict[str, str] = {}
    for path, table in tables_at(data, ("principals", "*")):
        own: set[str] = set()
        for key in ("bearer", "tokens", "api_key"):
            try:
                secret_alone = {key: table[key]} if key in table else {}
                read = PrincipalTable.model_validate(secret_alone, context=reading)
            except ValidationError:  # the models report it
                continue
            for token in (read.bearer, read.api_key, *read.tokens):
                if token is None:
                    continue
                owner = owners.setdefault(token.sha256, str(path[-1]))
                if owner != path[-1]:
                    words = f"`{path[-1]}` and `{owner}` have the same token: nobody could tell them apart"
                    yield ConfigFault((*path, key), words)
                elif key == "tokens" and token.sha256 in own:
                    words = "both entries are the same token, so this rotates nothing"
                    yield ConfigFault((*path, key), words, "make a new token: `mcp-a2a people rotate NAME`")
                own.add(token.sha256)


def _files(config: Config, profiles: Mapping[str, ResolvedProfile], imports: Imports) -> Iterator[Path]:
    for profile in profiles.values():
        yield from (file.absolute() for file in profile.files)
    yield from imports.paths()
    yield from (secret.file for secret in secrets_in(config) if secret.file is not None)
