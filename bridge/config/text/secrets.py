"""Secrets by reference: from an environment variable or a file, never from the command line itself."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from bridge.access.principals import Principal
from bridge.access.verifiers import Credential
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


def is_secret_header(name: str) -> bool:
    """Whether what a header carries is for nobody else, by its name."""
    return _SECRET_HEADERS.fullmatch(name) is not None


def header_from(text: str) -> tuple[str, str]:
    """An HTTP header from `NAME=env:VAR`, `NAME=file:PATH`, or for what is no secret `NAME=VALUE`.

    Raises:
        UsageError: it is none of these, or a secret stands in it in plain.
    """
    name, equals, given = text.partition("=")
    if not equals or not _HEADER_NAME.fullmatch(name):
        raise UsageError(f"--header takes NAME=env:VAR, NAME=file:PATH or NAME=VALUE, not {name!r}")
    value = secret_from(given)
    if value is None and is_secret_header(name):
        raise UsageError(f"{name} is a secret: give it as {name}=env:VAR or {name}=file:PATH, not in plain")
    value = given if value is None else value
    if not value.isprintable() or not value.isascii():
        raise UsageError(f"the value of {name} holds characters that no HTTP header can carry")
    return name, value


def credential_from(text: str) -> Credential:
    """Who may call, from `[PRINCIPAL=]bearer:env:NAME` or `[PRINCIPAL=]bearer:file:PATH`.

    Raises:
        UsageError: it is neither, or the token cannot be read.
    """
    named, equals, rest = text.partition("=")
    principal, reference = (named, rest) if equals else (UNNAMED, text)
    scheme, _, place = reference.partition(":")
    token = secret_from(place) if scheme == "bearer" else None
    if token is not None and not token.isascii():
        raise UsageError(f"the token of {principal} holds characters that no HTTP header can carry")
    if token is None or not principal:
        raise UsageError("--auth takes [PRINCIPAL=]bearer:env:NAME or [PRINCIPAL=]bearer:file:PATH")
    return Credential(Principal(principal), token, reference=place)


def child_variable_from(text: str) -> tuple[str, str]:
    """A variable for the child's environment: `NAME=VALUE`, or `NAME` to pass ours on.

    Raises:
        UsageError: it is not set here.
    """
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"--env takes NAME or NAME=VALUE, not {text!r}")
    if equals:
        return name, value
    if name not in os.environ:
        raise UsageError(f"--env {name} passes the variable on, but it is not set here")
    return name, os.environ[name]
