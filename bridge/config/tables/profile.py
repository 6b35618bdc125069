"""Mapping profiles: TOML files with every choice that the protocols leave open.

The model has no defaults; all defaults stand in `mappings/default.toml`. A profile holds every key, or extends another
profile and holds only the keys that differ. A value replaces the value below it as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, ValidationError

from bridge.config.check.schema_nodes import SchemaNode, tidied
from bridge.config.check.validation_faults import validation_faults_of, without_guesses
from bridge.config.text.document import (
    DEFAULT_SOURCE,
    ConfigFault,
    Document,
    ValueSource,
    read_toml,
    source_at,
)
from bridge.config.text.secrets import expanded, refused
from bridge.config.text.wording import listed, meant, spelled
from bridge.errors import ConfigError, UsageError
from bridge.settings import (
    AgentSettings,
    ArgumentSettings,
    CardSettings,
    ConnectionSettings,
    ContentSettings,
    IssuerSettings,
    PushSettings,
    RequestSettings,
    RouteSettings,
    RunSettings,
    ServerSettings,
    Settings,
    StoreSettings,
    StreamSettings,
)
from bridge.translate.language.templates import TemplateError, template_of

DEFAULT_PROFILE_NAME: Final = "default"


class NoProfileError(UsageError):
    """There is no profile of this name, or no such file."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message, self.hint = message, hint


def absolute_name(name: str, folder: Path) -> str:
    """The name of a profile in a form that is valid in any folder: its name, or its absolute path."""
    return str(Path.absolute(folder / expanded(name))) if _is_path(name) else name


def profile_place(name: str = DEFAULT_PROFILE_NAME, folder: Path | None = None) -> Path:
    """The file of a profile.

    Raises:
        NoProfileError: there is no such profile.
    """
    if _is_path(name):
        path = (folder or Path()) / expanded(name)
        if not os.path.isfile(path):
            raise NoProfileError(f"cannot read the mapping profile {path}: there is no such file")
        return path
    path = mappings_folder() / f"{name}.toml"
    if not os.path.isfile(path):
        known = sorted(file.stem for file in mappings_folder().glob("*.toml"))
        raise NoProfileError(
            f"there is no mapping profile {name!r}",
            f"{meant(name, known)} (or give the path of a .toml file)",
        )
    return path


def mappings_folder() -> Path:
    """The folder of the profiles: inside the installed package, or beside the package in a checkout."""
    inside = Path(str(files("bridge"))) / "mappings"
    return inside if inside.is_dir() else inside.parent.parent / "mappings"


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name or name.endswith(".toml")


EXTENDS: Final = "extends"

_MISSING_SHOWN: Final = 3
"""The most missing keys that a message names."""


def _with_right_phrases(route: RouteSettings) -> RouteSettings:
    for pattern, texts in route.phrases.items():
        for text in texts:
            try:
                template_of(text)
            except TemplateError as exc:
                raise refused(f"phrases of `{pattern}`: {exc}") from exc
    return route


class Profile(Settings):
    """A complete mapping profile."""

    card: CardSettings
    route: Annotated[RouteSettings, AfterValidator(_with_right_phrases)]
    arguments: ArgumentSettings
    run: RunSettings
    server: ServerSettings
    content: ContentSettings
    requests: RequestSettings
    connections: ConnectionSettings
    streams: StreamSettings
    store: StoreSettings
    push: PushSettings
    issuers: IssuerSettings
    agents: AgentSettings


TABLES_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "bridge": ("server", "requests", "connections", "streams", "store", "push", "issuers"),
    "tools_as_agent": ("card", "route", "arguments", "run", "content"),
    "agents_as_tools": ("agents", "run"),
    "agents_as_agent": ("card", "route", "run", "agents"),
}
"""The tables of a profile that apply to each section of the file."""


@dataclass(frozen=True)
class ResolvedProfile:
    """A profile with the source of each value."""

    profile: Profile
    origins: Mapping[tuple[str, str], ValueSource]
    """The sources, by table and key."""
    files: frozenset[Path]
    """All files that the profile was read from."""


def load_profile(name: str = DEFAULT_PROFILE_NAME, folder: Path | None = None) -> Profile:
    """Read a profile by its name in `mappings/`, or by the path of a file, relative to the folder.

    Raises:
        ConfigError: the file is no TOML, or keys are missing, unknown or wrong. The message names all of them.
        NoProfileError: there is no such profile.
    """
    return resolve_profile(name, folder).profile


def resolve_profile(name: str = DEFAULT_PROFILE_NAME, folder: Path | None = None) -> ResolvedProfile:
    """Read a profile with the profiles that it extends, and the source of each value.

    Raises:
        ConfigError: one of the files has errors.
        NoProfileError: there is no such profile.
    """
    values: dict[str, Any] = {}
    origins: dict[tuple[str, str], ValueSource] = {}
    layers = _layers(profile_place(name, folder))
    default = mappings_folder() / f"{DEFAULT_PROFILE_NAME}.toml"
    profile: Profile | None = None
    for layer in layers:
        own = {table: keys for table, keys in layer.data.items() if table != EXTENDS}
        values = {**values, **{table: _merged(values.get(table), keys) for table, keys in own.items()}}
        profile = _validated(values, layer)
        is_default = layer.path == default
        origins |= {
            (table, key): DEFAULT_SOURCE if is_default else source_at(layer, (table, key), "profile")
            for table, keys in own.items()
            for key in keys
        }
    assert profile is not None, "a profile has its own layer at least"
    return ResolvedProfile(profile, origins, frozenset(layer.path for layer in layers))


def profile_schema() -> SchemaNode:
    """The schema of a profile."""
    schema: SchemaNode = tidied(Profile.model_json_schema())
    return schema


def _layers(path: Path, above: tuple[Path, ...] = ()) -> list[Document]:
    """The files of a profile, starting with the file that the others extend."""
    document = read_toml(path, "the mapping profile")
    extended = document.data.get(EXTENDS)
    if extended is None:
        return [document]
    if not isinstance(extended, str):
        raise ConfigError(
            [document.diagnostic(ConfigFault((EXTENDS,), f"`{EXTENDS}` takes the name or path of a profile"))]
        )
    try:
        base = profile_place(extended, path.parent)
    except NoProfileError as exc:
        raise ConfigError([document.diagnostic(ConfigFault((EXTENDS,), exc.message, exc.hint))]) from exc
    below = (*above, path.resolve())
    if base.resolve() in below:
        raise ConfigError(
            [document.diagnostic(ConfigFault((EXTENDS,), f"the profile extends itself by way of {base}"))]
        )
    return [*_layers(base, below), document]


def _merged(below: object, keys: object) -> object:
    return {**below, **keys} if isinstance(below, dict) and isinstance(keys, dict) else keys


def _validated(values: dict[str, Any], layer: Document) -> Profile:
    try:
        return Profile.model_validate(values)
    except ValidationError as exc:
        faults = without_guesses(validation_faults_of(exc, profile_schema(), values))
        raise ConfigError(layer.diagnostics(_with_one_for_all_missing(faults))) from exc


def _with_one_for_all_missing(faults: list[ConfigFault]) -> Iterator[ConfigFault]:
    """Join the faults of missing keys. Only a profile that extends none can lack keys, and then it may lack many."""
    missing = [fault for fault in faults if fault.missing]
    yield from (fault for fault in faults if not fault.missing)
    if missing:
        some = [f"`{spelled((*fault.path, fault.missing))}`" for fault in missing[:_MISSING_SHOWN]]
        more = [f"{len(missing) - len(some)} more"] if len(missing) > len(some) else []
        message = (
            f"a profile that extends none holds every key; this one lacks {listed([*some, *more], 'and')}"
        )
        yield ConfigFault(
            (),
            message,
            f'write {EXTENDS} = "{DEFAULT_PROFILE_NAME}" as its first line, and only what differs',
        )
