"""Where mapping profiles are: those that come with the bridge by their names, others by their paths."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Final

from bridge.config.text.secret_values import expanded
from bridge.config.text.wording import meant
from bridge.errors import UsageError

DEFAULT_PROFILE_NAME: Final = "default"


class NoProfileError(UsageError):
    """There is no profile of this name, or no such file."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message, self.hint = message, hint


def absolute_name(name: str, folder: Path) -> str:
    """How to name the same profile from anywhere: by its name, or by an absolute path."""
    return str(Path.absolute(folder / expanded(name))) if _is_path(name) else name


def profile_place(name: str = DEFAULT_PROFILE_NAME, folder: Path | None = None) -> Path:
    """The file of a profile.

    Raises:
        NoProfileError: there is none.
    """
    if _is_path(name):
        path = (folder or Path()) / expanded(name)
        if not os.path.isfile(path):
            raise NoProfileError(f"cannot read the mapping profile {path}: there is no such file")
        return path
    path = mappings_folder() / f"{name}.toml"
    if not os.path.isfile(path):
        known = sorted(found.stem for found in mappings_folder().glob("*.toml"))
        raise NoProfileError(
            f"there is no mapping profile {name!r}",
            f"{meant(name, known)} (or give the path of a .toml file)",
        )
    return path


def mappings_folder() -> Path:
    """Where the profiles are: inside the package once it is installed, beside it in a checkout."""
    inside = Path(str(files("bridge"))) / "mappings"
    return inside if inside.is_dir() else inside.parent.parent / "mappings"


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name or name.endswith(".toml")
