"""One call passes no more of the bridge than `ceilings.toml` allows."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.support.command import ROOT, environment
from tests.walk.counting import MEANINGS, package_of

SLACK: Final = 1.05
WAIT_SECONDS: Final = 120.0
CEILINGS: Final = Path(__file__).with_name("ceilings.toml")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes are written in another way there")
def test_a_call_passes_no_more_functions_than_the_ceilings_allow(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.walk", "--json"]
    done = subprocess.run(
        command,
        capture_output=True,
        timeout=WAIT_SECONDS,
        text=True,
        cwd=ROOT,
        env=environment(tmp_path),
        check=False,
    )  # and no fork: the fork server validates what is made, and so enters more functions
    assert done.returncode == 0, done.stderr
    found, most = json.loads(done.stdout), tomllib.loads(CEILINGS.read_text())
    assert {name: set(figures) for name, figures in found.items()} == {n: set(most[n]) for n in most}
    over = [
        f"{method}: {MEANINGS[name]}: {count}, and {most[method][name]} plus 5 % are allowed"
        for method, figures in found.items()
        for name, count in figures.items()
        if count > most[method][name] * SLACK
    ]
    assert not over, "\n".join(
        [*over, "`python -m tests.walk --functions` shows the functions; `--toml` prints new ceilings."]
    )


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("a2a/tasks/live", "a2a/tasks"),
        ("errors", "."),
        ("elsewhere/live", "a2a/tasks"),
        ("a2a/tasks/something/quite_new", "a2a/tasks"),
        ("quite_new/at_the_top", "."),
    ],
)
def test_a_module_that_moves_stays_in_its_package_and_a_new_one_is_in_the_nearest_folder(
    module: str, package: str
) -> None:
    assert package_of(module) == package
