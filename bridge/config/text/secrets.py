"""Secrets by reference: from an environment variable or a file, never in plain text.

The reference in a configuration file is `{ env = "NAME" }` or `{ file = "PATH" }`, on a command line `env:NAME` or
`file:PATH`. The value of a secret is never part of a `repr`.
"""

from __future__ import annotations

import hashlib
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
from bridge.local.private_files import read_secret

HOW_TO_REFER: Final = '{ env = "NAME" } or { file = "PATH" }'


@dataclass(frozen=True)
class Secret:
    """The value of a secret, and its reference. Its `repr` does not show the value."""

    value: str = field(repr=False)
    reference: str
    """`env:NAME`, `file:PATH`, or the file and line of a plain text in a host's file."""
    file: Path | None = None
    """The file that the secret was read from, if any."""

    @property
    def sha256(self) -> str:
        """The SHA-256 of the value, in hexadecimal."""
        return hashlib.sha256(self.value.encode()).hexdigest()


@dataclass(frozen=True)
class TokenHash:
    """The SHA-256 of a token of a caller. The bridge needs only the hash to recognize the token."""

    sha256: str
    """In hexadecimal, lower case."""


@dataclass(frozen=True)
class ReadingContext:
    """The folder and the environment with which relative paths and references are resolved."""

    folder: Path
    """The folder of the file. Relative paths start here."""
    environment: Mapping[str, str] = field(repr=False)
    on_command_line: bool = False
    """Whether the values come from options, not from a file."""

    def path(self, written: str) -> Path:
        """The absolute path of a path in the file."""
        return Path.absolute(self.folder / expanded(written))


def expanded(written: str) -> Path:
    """A path with `~` replaced by the home folder, if there is one."""
    return Path(os.path.expanduser(written))


def refused(message: str, hint: str = "") -> PydanticCustomError:
    """The error that refuses a value. Braces in the message are not placeholders."""
    return PydanticCustomError("refused", "{message}", {"message": message, "hint": hint})


def reading_of(info: ValidationInfo) -> ReadingContext:
    """The context of the file. For a table that a program makes, it is the current folder."""
    return info.context if isinstance(info.context, ReadingContext) else ReadingContext(Path.cwd(), {})


def secret_of(written: object, info: ValidationInfo) -> Secret:
    """The secret of a reference `{ env = "NAME" }` or `{ file = "PATH" }`."""
    match written:
        case Secret():
            return written
        case {"env": str(name), **rest} if not rest:
            return from_environment(name, reading_of(info))
        case {"file": str(place), **rest} if not rest:
            return _from_file(reading_of(info).path(place))
        case str():
            raise refused(
                "`{key}` is a secret, which must not stand in the file in plain text", f"write {HOW_TO_REFER}"
            )
        case _:
            raise refused(f"`{{key}}` is a secret and takes {HOW_TO_REFER}")


def token_of(value: object, info: ValidationInfo) -> Secret | TokenHash:
    """The token of a reference, or its hash in `{ sha256 = "HEX" }`."""
    match value:
        case TokenHash():
            return value
        case {"sha256": written, **rest} if not rest:
            if not isinstance(written, str) or not _SHA256.fullmatch(written):
                raise refused(
                    "`{key}`: `sha256` takes the 64 hexadecimal digits of a hash",
                    "let `mcp-a2a people add NAME` write it",
                )
            return TokenHash(written.lower())
        case str():
            raise refused(
                "`{key}` is a secret, which must not stand in the file in plain text",
                f'write {HOW_TO_REFER}, or its hash as {{ sha256 = "HEX" }}',
            )
        case _:
            return secret_of(value, info)


def setting_of(written: object, info: ValidationInfo) -> str | Secret:
    """A plain text, or the secret of a reference."""
    if isinstance(written, str):
        return written
    if isinstance(written, Secret | dict):
        return secret_of(written, info)
    raise refused(f"`{{key}}` takes a text, {HOW_TO_REFER}")


def plain(settings: Mapping[str, str | Secret]) -> dict[str, str]:
    """The settings with the values of secrets, only for use in a connection."""
    return {
        name: setting.value if isinstance(setting, Secret) else setting for name, setting in settings.items()
    }


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
    if not value and not VARIABLE_NAME.fullmatch(name):  # the text may be the secret itself
        raise refused(
            "`{key}` takes the name of an environment variable: letters, digits and _",
            "set a variable to the secret, and write the name of that variable",
        )
    if not value:
        raise refused(
            f"the environment variable {name} is {'empty' if name in reading.environment else 'not set'}"
        )
    return Secret(value, f"env:{name}")


def _from_file(path: Path) -> Secret:
    try:
        value = read_secret(path)[0].decode().strip()
    except UsageError as exc:
        raise refused(f"cannot read the secret in {path}: {exc}") from exc
    except OSError as exc:
        raise refused(f"cannot read the secret in {path}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise refused(f"cannot read the secret in {path}: it is not UTF-8") from exc
    except ValueError as exc:  # the path holds a NUL
        raise refused("`{key}`: `file` takes a valid path") from exc
    if not value:
        raise refused(f"cannot read the secret in {path}: it is empty")
    return Secret(value, f"file:{path}", path)


_SECRET_HEADERS: Final = re.compile(
    r"authorization|cookie|.*(key|token|secret|password|auth).*", re.IGNORECASE
)
_SHA256: Final = re.compile(r"[0-9A-Fa-f]{64}")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

UNNAMED: Final = "client"
"""The principal of a token for which the user names none."""


def secret_from(reference: str) -> str | None:
    """The secret of a reference `env:NAME` or `file:PATH`; None if the text is no reference.

    Raises:
        UsageError: the variable or the file is missing or empty.
    """
    source, _, place = reference.partition(":")
    if source == "env":
        value = os.environ.get(place, "").strip()
        missing = f"the environment variable {place} is not set"
    elif source == "file":
        try:
            value = read_secret(Path(place).expanduser())[0].decode().strip()
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
    """`{ env = "NAME" }` for `env:NAME`, `{ file = "PATH" }` for `file:PATH`; None if the text is no reference."""
    source, _, place = text.partition(":")
    if source == "file":
        return {source: os.path.abspath(Path(place).expanduser())}
    return {source: place} if source == "env" else None


def is_secret_header(name: str) -> bool:
    """Whether the value of a header is a secret, by the header's name."""
    return _SECRET_HEADERS.fullmatch(name) is not None


def header_in(text: str) -> tuple[str, str | dict[str, str]]:
    """The name and value of an HTTP header from `NAME=env:VAR`, `NAME=file:PATH` or, if not secret, `NAME=VALUE`.

    Raises:
        UsageError: the text has none of these forms, or holds a secret in plain text.
    """
    name, equals, value = text.partition("=")
    if not equals or not _HEADER_NAME.fullmatch(name):
        raise UsageError(f"--header takes NAME=env:VAR, NAME=file:PATH or NAME=VALUE, not {name!r}")
    reference = reference_in(value)
    if reference is None and is_secret_header(name):
        raise UsageError(f"{name} is a secret: give it as {name}=env:VAR or {name}=file:PATH, not in plain")
    return name, value if reference is None else reference


def header_from(text: str) -> tuple[str, str]:
    """The name and value of an HTTP header from the forms of `header_in`. Reads its secret.

    Raises:
        UsageError: the text has none of these forms, or the secret cannot be read.
    """
    name, _ = header_in(text)
    written = text.partition("=")[2]
    value = secret_from(written) or written
    if not value.isprintable() or not value.isascii():
        raise UsageError(f"the value of {name} holds characters that no HTTP header can carry")
    return name, value


def principal_in(text: str) -> tuple[str, dict[str, str]]:
    """A principal and the reference of its token, from `[PRINCIPAL=]bearer:env:NAME` or `[PRINCIPAL=]bearer:file:PATH`.

    Raises:
        UsageError: the text has neither form.
    """
    named, equals, rest = text.partition("=")
    principal, token = (named, rest) if equals else (UNNAMED, text)
    scheme, _, place = token.partition(":")
    reference = reference_in(place) if scheme == "bearer" else None
    if reference is None or not principal:
        raise UsageError("--auth takes [PRINCIPAL=]bearer:env:NAME or [PRINCIPAL=]bearer:file:PATH")
    return principal, reference


def child_variable_in(text: str) -> tuple[str, str | Secret]:
    """A variable for the child's environment: `NAME=VALUE`, or `NAME` to pass on the bridge's own variable.

    A variable that is passed on, or that has a secret name, becomes a reference to the variable with this name.

    Raises:
        UsageError: the variable to pass on is not set.
    """
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"--env takes NAME or NAME=VALUE, not {text!r}")
    if equals:
        return name, Secret(value, f"env:{name}") if is_secret_header(name) else value
    if name not in os.environ:
        raise UsageError(f"--env {name} passes the variable on, but it is not set here")
    return name, Secret(os.environ[name], f"env:{name}")
