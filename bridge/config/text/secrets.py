"""Secrets of the command line by reference: from an environment variable or a file, never from the line itself.

A function whose name ends with `_in` gives what a file would write; one that ends with `_from` reads the secret.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from bridge.config.text.secret_values import Secret
from bridge.errors import UsageError

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
