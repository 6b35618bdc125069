"""The pages of a release: the site is built from them, and each command of the README is typed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.run import ROOT

_SITE_SECONDS: Final = 600
_README_SECONDS: Final = 900
_README: Final = "tests/test_docs.py::test_what_a_page_says_happens[README.md]"


class PagesError(Exception):
    """The site has a fault, or a command of the README does not work. The message has what was said."""


def site(folder: Path) -> str:
    """Build the site into a folder with every link and anchor checked; gives a line about it.

    Raises:
        PagesError: there was a warning.
    """
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    seconds = _seconds_of(command, _SITE_SECONDS)
    files = [path for path in folder.rglob("*") if path.is_file()]
    pages = sum(path.name == "index.html" for path in files)
    size = sum(path.stat().st_size for path in files)
    return f"site: {pages} pages, {size:,} B, every link checked, without a warning, in {seconds:.0f} s"


def readme() -> str:
    """Type each command of the README in a copy of the checkout; gives a line about it.

    Raises:
        PagesError: a command failed, or did not say what the page says.
    """
    seconds = _seconds_of([sys.executable, "-m", "pytest", "-q", "-n", "0", _README], _README_SECONDS)
    return f"README.md: every command works, in {seconds:.0f} s"


def _seconds_of(command: list[str], most_seconds: int) -> float:
    """Run a command in the checkout; how long it took."""
    begun = time.monotonic()
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=most_seconds,
        check=False,
    )
    if done.returncode:
        raise PagesError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.monotonic() - begun
