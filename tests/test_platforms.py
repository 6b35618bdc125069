"""The bridge on other systems, as far as it can be told here: its imports, and where it asks which system it is on."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import bridge

ROOT: Final = Path(__file__).parents[1]

IMPORTS_ALL: Final = """
import importlib.abc, pkgutil, sys
from importlib import import_module

ONLY_ON_POSIX = {"fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}

class Refusing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in ONLY_ON_POSIX and importer() == "bridge":
            raise ModuleNotFoundError(f"there is no {name} on Windows", name=name)

def importer():
    frame = sys._getframe()
    while frame.f_globals["__name__"] == __name__ or frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame.f_globals["__name__"].partition(".")[0]

sys.meta_path.insert(0, Refusing())
import bridge
for module in pkgutil.walk_packages(bridge.__path__, "bridge."):
    if module.name != "bridge.__main__":
        for name in ONLY_ON_POSIX - {"posix"}:
            sys.modules.pop(name, None)
        import_module(module.name)
        print(module.name)
"""


def test_every_module_is_imported_without_what_only_posix_has() -> None:
    command = [sys.executable, "-c", IMPORTS_ALL]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert {"bridge.cli.main", "bridge.process.serve", "bridge.local.file_lock"} <= set(done.stdout.split())


def test_the_page_lists_every_test_that_only_windows_can_pass() -> None:
    marked = {
        f"`{file.relative_to(ROOT).as_posix()}`: `{node.name}`"
        for file in (ROOT / "tests").rglob("test_*.py")
        for text in [file.read_text(encoding="utf-8")]
        if "pytest.mark.windows" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and "pytest.mark.windows" in map(ast.unparse, node.decorator_list)
    }
    page = (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^- (`tests/\S+`: `test_\w+`)$", page, re.MULTILINE)) == marked


MOST_BRANCHES: Final = 12


def test_the_system_is_asked_for_in_few_places() -> None:
    package = Path(bridge.__file__).parent
    asking = Counter(
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        for text in [file.read_text(encoding="utf-8")]
        if "sys.platform" in text or "os.name" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.platform", "os.name")
    )
    assert asking.total() <= MOST_BRANCHES, asking
