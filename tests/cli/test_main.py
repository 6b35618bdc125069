"""How the command is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bridge.version import __version__
from tests.support.command import WAIT_SECONDS, environment


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
