"""The files and the workflow of a release, as far as they can be judged without publishing anything."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.release import artifacts
from tests.support.command import ROOT, WAIT_SECONDS
from tests.support.pages import PAGES

WORKFLOWS: Final = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CHANGELOG: Final = """# Changelog

## 0.2.0 - 2027-01-31

### Fixed

- A fault.

## 0.1.0 - unreleased

The first release.
"""


def jobs_of(name: str) -> dict[str, Any]:
    """The jobs of a workflow."""
    whole = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))
    jobs: dict[str, Any] = whole["jobs"]
    return jobs


def actions() -> Iterator[tuple[str, str]]:
    """Each line of a workflow that uses an action of others, with the name of its file."""
    for file in WORKFLOWS:
        for line in re.findall(r"uses: (.*)", file.read_text(encoding="utf-8")):
            if not line.startswith("./"):
                yield file.name, line


def test_the_notes_of_a_release_are_its_section_of_the_changelog() -> None:
    assert artifacts.notes(CHANGELOG, "0.2.0") == "### Fixed\n\n- A fault.\n"


@pytest.mark.parametrize(
    ("version", "says"), [("0.3.0", "no section for 0.3.0"), ("0.1.0", "'unreleased' in place of the date")]
)
def test_a_version_without_a_dated_section_is_not_released(version: str, says: str) -> None:
    with pytest.raises(artifacts.ReleaseError, match=says):
        artifacts.notes(CHANGELOG, version)


def test_the_changelog_has_a_section_for_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {artifacts.version()} - " in text


def test_a_tag_of_another_version_is_refused() -> None:
    artifacts.require_tag("v1.2.3", "1.2.3")
    with pytest.raises(artifacts.ReleaseError, match=r"which is 1\.2\.3"):
        artifacts.require_tag("v1.2.4", "1.2.3")


def test_two_builds_of_a_commit_have_the_same_bytes(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    source, wheel = artifacts.build(tmp_path)[::-1]
    with zipfile.ZipFile(wheel) as archive:
        assert {info.date_time for info in archive.infolist()} == {(2020, 2, 2, 0, 0, 0)}
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"bridge/version.py", "tests/release/artifacts.py", "LICENSE"} <= names


def test_the_workflows_are_workflows_to_github() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run(
        [*command, *map(str, WORKFLOWS)], capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout


def test_each_action_is_pinned_to_a_commit_and_says_its_version() -> None:
    pinned = re.compile(r"[\w./-]+@[0-9a-f]{40} # \S+")
    assert [(file, line) for file, line in actions() if not pinned.fullmatch(line)] == []


def test_an_action_has_one_commit_everywhere() -> None:
    commits: dict[str, set[str]] = {}
    for _, line in actions():
        name, _, commit = line.partition("@")
        commits.setdefault(name, set()).add(commit)
    assert {name: found for name, found in commits.items() if len(found) > 1} == {}


def test_only_the_jobs_that_publish_may_write() -> None:
    writing = {
        name: {right for right, how in job["permissions"].items() if how == "write"}
        for name, job in jobs_of("release.yml").items()
    }
    assert {name: rights for name, rights in writing.items() if rights} == {
        "image": {"packages", "id-token", "attestations"},
        "pypi": {"id-token"},
        "release": {"contents", "id-token", "attestations"},
    }


def test_nothing_is_published_before_the_suite_and_the_installations() -> None:
    jobs = jobs_of("release.yml")
    assert {*jobs["image"]["needs"]} == {"suite", "install"}
    assert (jobs["install"]["needs"], jobs["pypi"]["needs"], jobs["release"]["needs"]) == (
        "build",
        "image",
        "pypi",
    )
    assert jobs["pypi"]["environment"]["name"] == "pypi"


def test_the_commands_of_the_release_exist() -> None:
    from tests.release.__main__ import main

    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    parts = re.findall(r"run: python -m tests\.release (\w+)", text)
    assert parts == ["build", "try"]
    with pytest.raises(SystemExit) as ended:
        main(["publish"])
    assert ended.value.code == 2


ENTRY: Final = json.loads((ROOT / "server.json").read_text(encoding="utf-8"))
"""The entry for the MCP registry. The published schema of 2025-12-11 took it; the tests know its bounds."""


def test_the_entry_for_the_registry_has_the_version_and_the_package_of_the_release() -> None:
    (package,) = ENTRY["packages"]
    assert {ENTRY["version"], package["version"]} == {artifacts.version()}
    assert (package["registryType"], package["identifier"]) == ("pypi", "mcp-a2a")
    assert package["transport"] == {"type": "stdio"}


def test_the_entry_for_the_registry_keeps_the_bounds_of_its_schema() -> None:
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", ENTRY["name"])
    assert 1 <= len(ENTRY["description"]) <= 100
    assert 1 <= len(ENTRY["title"]) <= 100
    for argument in ENTRY["packages"][0]["packageArguments"]:
        assert argument["type"] in ("positional", "named")
        assert {"name", "value", "valueHint"} & argument.keys()


def test_the_registry_finds_the_name_of_the_entry_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"mcp-name: (\S+)", readme) == [ENTRY["name"]]


def test_the_arguments_of_the_entry_are_those_of_the_command() -> None:
    from bridge.cli.expose import expose

    options = {option for parameter in expose.params for option in parameter.opts}
    arguments = ENTRY["packages"][0]["packageArguments"]
    assert arguments[0]["value"] == "expose"
    assert {argument["name"] for argument in arguments if argument["type"] == "named"} <= options


def test_a_tag_is_refused_while_the_owner_is_open() -> None:
    artifacts.require_owner('{"name": "io.github.somebody/mcp-a2a"}')
    with pytest.raises(artifacts.ReleaseError, match="OWNER"):
        artifacts.require_owner('{"name": "io.github.OWNER/mcp-a2a"}')


def test_no_page_installs_from_the_index() -> None:
    # Until the name is ours there, it may become a stranger's: docs/decisions/0058-the-name-on-the-index.md.
    installs = re.compile(
        r"\$ .*\b(?:pip|pipx|uvx?|uv tool)\b.*(?<![\w/.-])mcp-a2a(?:\[[\w,]+\])?(?=[\s\"']|$)(?! @)"
    )
    found = [
        f"{page.relative_to(ROOT)}: {line}"
        for page in PAGES
        for line in page.read_text(encoding="utf-8").splitlines()
        if installs.match(line)
    ]
    assert found == []
