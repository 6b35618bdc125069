"""What is shipped: a wheel that works by itself, and a checkout that does."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from bridge.config.tables.profile import load_profile, mappings_folder
from tests.support.command import ROOT, WAIT_SECONDS


def test_a_checkout_finds_its_profiles_beside_the_package() -> None:
    assert mappings_folder() == ROOT / "mappings"
    assert load_profile("default")


def test_a_wheel_finds_its_profiles_inside_the_package(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
    ]
    subprocess.run([*command, str(tmp_path), str(ROOT)], check=True, timeout=120, capture_output=True)
    (wheel,) = tmp_path.glob("mcp_a2a-*.whl")
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
        names = archive.namelist()
    assert "bridge/mappings/default.toml" in names
    ready = {f"bridge/mappings/servers/{place.name}" for place in (ROOT / "mappings" / "servers").iterdir()}
    assert ready
    assert ready <= {*names}
    console = {"templates/base.html", "static/console.css", "static/console.js"}
    assert {f"bridge/console/{name}" for name in console} <= {*names}
    assert "bridge/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "docs", "examples"))]
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    code = "from bridge.config.tables.profile import *; load_profile(); print(mappings_folder())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=unpacked,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    assert Path(found.stdout.strip()) == unpacked / "bridge" / "mappings"


def test_every_direct_dependency_has_an_upper_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    assert [line for line in named if "<" not in line and "==" not in line] == []
