"""What newcomers are given holds: hooks and forms are valid, and the pages name what exists."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Final

import yaml

from tests.run import TASKS
from tests.support.command import ROOT, WAIT_SECONDS

FORMS: Final = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
TARGETS: Final = set(
    re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
)
GUIDE: Final = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NEVER_USED: Final = {18, 19}


def test_the_hooks_run_commands_of_make_check_from_its_environment() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    checks = [" ".join((".venv/bin/" + tool, *words)) for tool, *words in TASKS["check"].commands]
    hooks = [hook["entry"] for hook in local["hooks"]]
    assert local["repo"] == "local"
    assert [check for check in checks if "--platform" not in check] == hooks


def test_the_issue_forms_are_forms_to_github() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-issue-forms"]
    done = subprocess.run(
        [*command, *map(str, FORMS)], capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )
    assert (done.returncode, len(FORMS)) == (0, 2), done.stdout


def test_the_container_makes_the_environment_that_make_makes() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    assert container["postCreateCommand"] == "make .venv/developing"
    least = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    version = re.fullmatch(r"python:3\.(\d+)-\w+", container["image"])
    assert version
    assert int(version[1]) >= int(least.removeprefix(">=3."))


def test_the_guide_names_targets_and_files_that_exist() -> None:
    targets = set(re.findall(r"`make ([a-z-]+)", GUIDE))
    assert targets - TARGETS == set()
    paths = set(re.findall(r"`((?:\.|bridge/|docs/|tests/|mappings/)[\w./-]+)`", GUIDE)) - {".venv", ".peers"}
    missing = [path for path in sorted(paths) if not (ROOT / path).exists() and not path.startswith(".venv/")]
    assert missing == []


def test_each_decision_has_a_number_of_its_own_and_no_number_is_left_out() -> None:
    pages = (ROOT / "docs" / "decisions").glob("[0-9]*.md")
    used = Counter(int(page.name.partition("-")[0]) for page in pages)
    assert set(range(1, max(used) + 1)) - used.keys() == NEVER_USED
    assert {number for number, times in used.items() if times > 1} == set()


def test_each_version_has_at_most_sixty_lines_in_the_changelog() -> None:
    # Lines of two branches are merged by union, which can bring back what one of them has taken out.
    versions = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert versions
    for version in versions:
        heads = re.findall(r"^### (.*)$", version, re.MULTILINE)
        assert len(version.splitlines()) <= 60, version.splitlines()[0]
        assert set(heads) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
        assert len(heads) == len(set(heads))


def test_what_an_archive_of_the_source_takes_is_there() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    taken: list[str] = tool["hatch"]["build"]["targets"]["sdist"]["include"]
    assert [name for name in taken if not Path(ROOT, name).exists()] == []
    assert {path.name for path in ROOT.glob("*.md")} <= {*taken}
