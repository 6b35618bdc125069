"""The configuration as it was understood, value by value, with where each comes from. Pure; no secret is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from bridge.config.load import Loaded
from bridge.config.models import FACES
from bridge.config.positions import KeyPath
from bridge.config.profile import TABLES_OF
from bridge.config.secret_values import Secret
from bridge.config.secrets import is_secret_header
from bridge.config.sources import DEFAULT_SOURCE, Source
from bridge.config.wording import spelled

_HIDDEN: Final = '"***"'
_DELETE: Final = "\x7f"
"""JSON leaves it as it is, TOML does not."""


@dataclass(frozen=True)
class Shown:
    """One value."""

    path: str
    """`bridge.port`; of a profile, `tools_as_agent.devtools.mapping.run.concurrency`."""
    value: str
    """As TOML; a secret by its reference."""
    source: Source


def shown(loaded: Loaded) -> list[Shown]:
    """Every value that is set, in the order of the file's documentation: those of profiles for whom they count."""
    return [*_of_file(loaded), *_of_profiles(loaded)]


def toml_of(value: Any) -> str:
    """A value as TOML on one line."""
    match value:
        case Secret():
            source, _, place = value.reference.partition(":")
            return f"{{ {source} = {toml_of(place)} }}" if source in ("env", "file") else _HIDDEN
        case bool():
            return str(value).lower()
        case str() | Path():
            return json.dumps(str(value), ensure_ascii=False).replace(_DELETE, "\\u007f")
        case BaseModel():
            return toml_of({name: inner for name, inner in _keys(value) if name in _written(value)})
        case dict():
            pairs = [f"{_key(name)} = {toml_of(_guarded(name, inner))}" for name, inner in value.items()]
            return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
        case list() | tuple():
            return f"[{', '.join(map(toml_of, value))}]"
        case _:
            return str(value)


def _of_file(loaded: Loaded) -> Iterator[Shown]:
    for section, table in _keys(loaded.config):
        named = (
            [((section,), table)]
            if isinstance(table, BaseModel)
            else [((section, name), inner) for name, inner in table.items()]
        )
        for path, inner in named:
            for key, value in _keys(inner):
                if value not in (None, (), {}):
                    yield _row((*path, key), value, loaded.sources.of((*path, key)))


def _of_profiles(loaded: Loaded) -> Iterator[Shown]:
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


def _row(path: KeyPath, value: Any, source: Source) -> Shown:
    return Shown(spelled(path), toml_of(value), source)


def _keys(table: BaseModel) -> Iterator[tuple[str, Any]]:
    for name, field in type(table).model_fields.items():
        yield field.alias or name, getattr(table, name)


def _written(table: BaseModel) -> set[str]:
    return {type(table).model_fields[name].alias or name for name in table.model_fields_set}


def _guarded(name: str, value: Any) -> Any:
    """A variable or header in plain whose name says that it is a secret is not shown."""
    return Secret("", "") if isinstance(value, str) and is_secret_header(name) else value


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else toml_of(name)
