"""Where a server finds a secret that the user typed: in the host, or in a private file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bridge.errors import UsageError
from bridge.local.private_files import write_privately
from bridge.text.jsonvalues import JsonObject

FOLDER: Final = "tokens"
"""The folder for tokens below the state folder."""


def kept_in_file(folder: Path, name: str, token: str) -> Path:
    """Write a token into a file that only this user can read. If a file of that name has another token, the new file
    gets a number.

    Raises:
        UsageError: the file cannot be written.
    """
    number = 1
    while True:
        file = folder / (name if number == 1 else f"{name}-{number}")
        try:
            if file.exists() and file.read_text(encoding="utf-8") != token:
                number += 1
                continue
            write_privately(file, token.encode(), lasting=True)
        except (OSError, UnicodeDecodeError) as exc:
            raise UsageError(f"the token cannot be kept in {file}: {exc}") from exc
        return file


def files_in(folder: Path) -> frozenset[Path]:
    """The token files in a folder."""
    return frozenset(folder.iterdir()) if folder.is_dir() else frozenset()


def variable_for(name: str) -> str:
    """The environment variable with the token of a server of this name."""
    return f"{re.sub(r'[^A-Z0-9]', '_', name.upper())}_TOKEN"


def input_for(name: str) -> JsonObject:
    """The input with which VS Code asks its user for the token of a server of this name, and keeps it.

    Source: code.visualstudio.com/docs/agents/reference/mcp-configuration, input variables.
    """
    return {
        "type": "promptString",
        "id": f"{name}-token",
        "description": f"The token of {name}",
        "password": True,
    }


def input_value(input_id: object) -> str:
    """The placeholder that VS Code replaces with the text that its user typed."""
    return f"${{input:{input_id}}}"


def inputs_in(server: JsonObject) -> Mapping[str, str]:
    """The ids of the inputs in the `env` of an entry, by variable."""
    named = server.get("env")
    values = named if isinstance(named, dict) else {}
    matches = {name: re.fullmatch(r"\$\{input:(.+)\}", str(value)) for name, value in values.items()}
    return {name: match[1] for name, match in matches.items() if match is not None}
