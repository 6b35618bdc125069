"""The folders of a user's bridges: for state, and for caches.

`XDG_STATE_HOME` and `XDG_CACHE_HOME` set these folders on every system. Otherwise the system's default folders are
used: on Windows and macOS they are in the user's profile, which other users cannot read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from platformdirs import user_cache_path, user_state_path

FOLDER: Final = "mcp-a2a"

LOGINS: Final = "logins"
"""The folder of logins inside the state folder."""


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder for what bridges keep: tasks, keys, and facts about servers."""
    return _named("XDG_STATE_HOME", environment) or user_state_path(FOLDER, appauthor=False)


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder for data that bridges can fetch again: the cards of agents."""
    return _named("XDG_CACHE_HOME", environment) or user_cache_path(FOLDER, appauthor=False)


def _named(variable: str, environment: Mapping[str, str]) -> Path | None:
    folder = environment.get(variable, "").strip()
    return Path(folder) / FOLDER if folder else None
