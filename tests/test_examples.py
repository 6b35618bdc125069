"""Each example does what its page says, typed by a reader at a machine of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config.load import load
from tests.support.command import ROOT
from tests.support.pages import blocks_of
from tests.support.reader import reading

EXAMPLES = ROOT / "examples"
FOLDERS = sorted(folder for folder in EXAMPLES.iterdir() if folder.is_dir() and folder.name[0].isdigit())
DEPLOY = EXAMPLES / "deploy"
"""What tests/deploy looks at."""
FILES = sorted(file for file in EXAMPLES.rglob("*.toml") if DEPLOY not in file.parents)
TOKENS = {"ALICE_TOKEN": "a", "BOB_TOKEN": "b", "PARTNER_TOKEN": "p"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_example_does_what_its_page_says(folder: Path, tmp_path: Path) -> None:
    with reading(tmp_path) as reader:
        for block in blocks_of(folder / "README.md"):
            reader.read(block)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(EXAMPLES)))
def test_the_files_of_the_examples_are_right_and_short(file: Path) -> None:
    loaded = load(file, TOKENS)
    config = loaded.config
    assert config.tools_as_agent or config.agents_as_tools or config.agents_as_agent
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    assert len(lines) < 25


def test_each_example_has_a_page_and_the_list_of_examples_names_it() -> None:
    overview = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert len(FOLDERS) == 7
    for folder in FOLDERS:
        assert f"({folder.name}/README.md)" in overview
        assert (folder / "bridge.toml").is_file()
