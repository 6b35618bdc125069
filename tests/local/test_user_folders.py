"""The folders of a user's bridges."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bridge.local.user_folders import cache_folder, state_folder


def test_the_xdg_variables_set_the_folders_on_every_system() -> None:
    environment = {"XDG_STATE_HOME": "/srv/state", "XDG_CACHE_HOME": "/srv/cache"}
    assert (state_folder(environment), cache_folder(environment)) == (
        Path("/srv/state/mcp-a2a"),
        Path("/srv/cache/mcp-a2a"),
    )


@pytest.mark.skipif(sys.platform != "linux", reason="platformdirs knows the folders of the others")
@pytest.mark.parametrize("environment", [{}, {"XDG_STATE_HOME": " ", "XDG_CACHE_HOME": ""}])
def test_the_default_folders_of_the_system_are_used_otherwise(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("XDG_CACHE_HOME")
    found = state_folder(environment), cache_folder(environment)
    assert found == (tmp_path / ".local/state/mcp-a2a", tmp_path / ".cache/mcp-a2a")
