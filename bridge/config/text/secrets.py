"""Secrets by reference: from an environment variable or a file, never in plain.

A configuration file writes `{ env = "NAME" }` or `{ file = "PATH" }`, a command line `env:NAME` or `file:PATH`. What is
read has no text of its own from then on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationInfo
from pydantic_core import PydanticCustomError

from bridge.config.text.masking import VARIABLE_NAME
from bridge.errors import UsageError

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


_SECRET_HEADERS: Final = re.compile(
    r"authorization|cookie|.*(key|token|secret|password|auth).*", re.IGNORECASE
)
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

UNNAMED: Final = "client"
"""The principal of a token that names none."""


def secret_from(reference: str) -> str | None:
    """The secret behind `env:NAME` or `file:PATH`; None when the text is no reference.

    Raises:
        UsageError: the variable or the file is not there, or is empty.
    """
    source, _, place = reference.partition(":")
    if source == "env":
        value = os.environ.get(place, "").strip()
        missing = f"the environment variable {place} is not set"
    elif source == "file":
        try:
            value = Path(place).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
            raise UsageError(f"cannot read the secret in {place}: {reason}") from exc
        missing = f"the file {place} is empty"
    else:
        return None
    if not value:
        raise UsageError(missing)
    return value


def reference_in(text: str) -> dict[str, str] | None:
    """`{ env = "NAME" }` of `env:NAME`, `{ file = "PATH" }` of `file:PATH`; None when the text is no reference."""
    source, _, place = text.partition(":")
    if source == "file":
        return {source: os.path.abspath(Path(place).expanduser())}
    return {source: place} if source == "env" else None


def is_secret_header(name: str) -> bool:
    """Whether what a header carries is for nobody else, by its name."""
    return _SECRET_HEADERS.fullmatch(name) is not None


def header_in(text: str) -> tuple[str, str | dict[str, str]]:
    """The name and the value of an HTTP header from `NAME=env:VAR`, `NAME=file:PATH`, or `NAME=VALUE` for no secret.

    Raises:
        UsageError: it is none of these, or a secret stands in it in plain.
    """
    name, equals, given = text.partition("=")
    if not equals or not _HEADER_NAME.fullmatch(name):
        raise UsageError(f"--header takes NAME=env:VAR, NAME=file:PATH or NAME=VALUE, not {name!r}")
    reference = reference_in(given)
    if reference is None and is_secret_header(name):
        raise UsageError(f"{name} is a secret: give it as {name}=env:VAR or {name}=file:PATH, not in plain")
    return name, given if reference is None else reference


def header_from(text: str) -> tuple[str, str]:
    """An HTTP header, as `header_in` takes it, with the secret that it refers to.

    Raises:
        UsageError: it is none, or the secret cannot be read.
    """
    name, _ = header_in(text)
    given = text.partition("=")[2]
    value = secret_from(given) or given
    if not value.isprintable() or not value.isascii():
        raise UsageError(f"the value of {name} holds characters that no HTTP header can carry")
    return name, value


def principal_in(text: str) -> tuple[str, dict[str, str]]:
    """Who may call, and where the token is, from `[PRINCIPAL=]bearer:env:NAME` or `[PRINCIPAL=]bearer:file:PATH`.

    Raises:
        UsageError: it is neither.
    """
    named, equals, rest = text.partition("=")
    principal, token = (named, rest) if equals else (UNNAMED, text)
    scheme, _, place = token.partition(":")
    reference = reference_in(place) if scheme == "bearer" else None
    if reference is None or not principal:
        raise UsageError("--auth takes [PRINCIPAL=]bearer:env:NAME or [PRINCIPAL=]bearer:file:PATH")
    return principal, reference


def child_variable_in(text: str) -> tuple[str, str | Secret]:
    """A variable for the child's environment: `NAME=VALUE`, or `NAME` to pass ours on. A file takes one that is passed
    on, or that is a secret by its name, from the variable of this name.

    Raises:
        UsageError: it is not set here.
    """
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"--env takes NAME or NAME=VALUE, not {text!r}")
    if equals:
        return name, Secret(value, f"env:{name}") if is_secret_header(name) else value
    if name not in os.environ:
        raise UsageError(f"--env {name} passes the variable on, but it is not set here")
    return name, Secret(os.environ[name], f"env:{name}")
