"""`make proxies` runs what the guide shows, and says so where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.proxies.guide import GUIDE, cases
from tests.support.command import ROOT, WAIT_SECONDS
from tests.support.pages import blocks_of


def test_each_block_of_the_guide_is_run_at_its_own_address() -> None:
    written = [block for block in blocks_of(GUIDE) if block.language in ("nginx", "caddyfile")]
    assert [case.block for case in cases()] == written
    assert [(case.program, case.base) for case in cases()] == [
        ("nginx", "https://bridge.example.com"),
        ("caddy", "https://bridge.example.com"),
        ("nginx", "https://www.example.com/tools"),
        ("caddy", "https://www.example.com/tools"),
    ]


def test_where_the_proxies_cannot_be_installed_it_says_so_and_fails(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.proxies"],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert "nginx and caddy are not installed" in done.stdout
