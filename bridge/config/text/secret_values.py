"""Secrets of the file: written by reference, read once, and without a text of their own from then on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationInfo
from pydantic_core import PydanticCustomError

from bridge.config.text.masking import VARIABLE_NAME

HOW_TO_REFER: Final = '{ env = "NAME" } or { file = "PATH" }'


@dataclass(frozen=True)
class Secret:
    """A secret that was read, and where from. It has no text of its own."""

    value: str = field(repr=False)
    reference: str
    """`env:NAME`, `file:PATH`, or for what a host wrote in plain its file and line."""
    file: Path | None = None
    """The file that it was read from."""


@dataclass(frozen=True)
class ReadingContext:
    """What the values of a file are read with."""

    folder: Path
    """Of the file; relative paths begin here."""
    environment: Mapping[str, str] = field(repr=False)
    on_command_line: bool = False
    """Whether they are what options say, and nothing is written down."""

    def path(self, written: str) -> Path:
        """The absolute path that was meant."""
        return Path.absolute(self.folder / expanded(written))


def expanded(written: str) -> Path:
    """A path with `~` as the home folder that it is, where there is one."""
    return Path(os.path.expanduser(written))


def refused(message: str, hint: str = "") -> PydanticCustomError:
    """What a value is refused with. Braces in it are not placeholders."""
    return PydanticCustomError("refused", "{message}", {"message": message, "hint": hint})


def reading_of(info: ValidationInfo) -> ReadingContext:
    """What the file is read with; a table that is made by a program is of the current folder."""
    return info.context if isinstance(info.context, ReadingContext) else ReadingContext(Path.cwd(), {})


def secret_of(given: object, info: ValidationInfo) -> Secret:
    """The secret behind `{ env = "NAME" }` or `{ file = "PATH" }`."""
    match given:
        case Secret():
            return given
        case {"env": str(name), **rest} if not rest:
            return from_environment(name, reading_of(info))
        case {"file": str(place), **rest} if not rest:
            return _from_file(reading_of(info).path(place))
        case str():
            raise refused(
                "`{key}` is a secret: it does not stand in the file in plain", f"write {HOW_TO_REFER}"
            )
        case _:
            raise refused(f"`{{key}}` is a secret and takes {HOW_TO_REFER}")


def setting_of(given: object, info: ValidationInfo) -> str | Secret:
    """A text as it stands, or the secret that is referred to."""
    if isinstance(given, str):
        return given
    if isinstance(given, Secret | dict):
        return secret_of(given, info)
    raise refused(f"`{{key}}` takes a text, {HOW_TO_REFER}")


def plain(settings: Mapping[str, str | Secret]) -> dict[str, str]:
    """The settings with their secrets in plain, for the connection alone."""
    return {name: one.value if isinstance(one, Secret) else one for name, one in settings.items()}


def secrets_in(value: object) -> Iterator[Secret]:
    """Every secret in a table."""
    match value:
        case Secret():
            yield value
        case BaseModel():
            for _, inner in value:
                yield from secrets_in(inner)
        case dict():
            for inner in value.values():
                yield from secrets_in(inner)
        case tuple():
            for inner in value:
                yield from secrets_in(inner)


def from_environment(name: str, reading: ReadingContext) -> Secret:
    """The secret in a variable."""
    value = reading.environment.get(name, "").strip()
    if not value and not VARIABLE_NAME.fullmatch(name):  # it may be the secret itself
        raise refused(
            "`{key}` is to name an environment variable: letters, digits and _",
            "set a variable to the secret, and write the name of that variable",
        )
    if not value:
        raise refused(
            f"the environment variable {name} is {'empty' if name in reading.environment else 'not set'}"
        )
    return Secret(value, f"env:{name}")


def _from_file(path: Path) -> Secret:
    try:
        value = path.read_text(encoding="utf-8").strip()
    except OSError as exc:
        raise refused(f"cannot read the secret in {path}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise refused(f"cannot read the secret in {path}: it is not UTF-8") from exc
    except ValueError as exc:  # of a NUL in the path
        raise refused("`{key}`: the file of a secret is named by a path") from exc
    if not value:
        raise refused(f"cannot read the secret in {path}: it is empty")
    return Secret(value, f"file:{path}", path)
