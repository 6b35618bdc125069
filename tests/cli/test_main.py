"""The start of the command `mcp-a2a`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bridge.version import __version__
from tests.support.command import WAIT_SECONDS, environment, run_here


def test_no_module_is_taken_from_the_folder_in_which_it_is_started(tmp_path: Path) -> None:
    for name in ("click", "rich", "logging"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken from the current folder')\n")
    done = subprocess.run(
        [sys.executable, "-m", "bridge", "--version"],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        cwd=tmp_path,
        env=environment(tmp_path),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"mcp-a2a, version {__version__}\n", "")


@pytest.mark.parametrize("command", ["wrap", "expose", "call", "card", "tasks", "init --agent"])
@pytest.mark.parametrize(
    "url", ["http://ada:s3cret@/", "ftp://ada:s3cret@h/", "http://ada:s3cret@127.0.0.1:99999/?s3cret"]
)
def test_a_refused_url_is_shown_without_user_and_query(command: str, url: str, tmp_path: Path) -> None:
    done = run_here(*command.split(), url, state=tmp_path, folder=tmp_path)
    assert done.returncode != 0
    assert "s3cret" not in done.stdout + done.stderr
