"""The documentation holds: its links lead somewhere, and its commands do what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import parser as benchmarks
from tests.support.command import ROOT, WAIT_SECONDS, Wrapping, run_here, wrapping

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
QUICKSTART = (ROOT / "docs" / "quickstart.md").read_text()


def commands_of(page: str) -> list[str]:
    """The lines of a page that are typed at a prompt."""
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert broken == []


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wrapping]:
    state = tmp_path_factory.mktemp("state")
    server = (sys.executable, str(ROOT / "examples" / "demo_server.py"))
    with wrapping("--era", "auto", state=state, server=server) as bridge:
        yield bridge


CALLS = [line for line in commands_of(QUICKSTART) if re.match(r"(mcp-a2a (card|call)|curl)\b", line)]


def test_the_quickstart_has_commands_to_test() -> None:
    assert len(CALLS) == 9


@pytest.mark.parametrize("line", CALLS)
def test_each_call_of_the_quickstart_works(line: str, demo: Wrapping, tmp_path: Path) -> None:
    words = shlex.split(line.replace("127.0.0.1:8080", f"127.0.0.1:{demo.port}"))
    if words[0] == "mcp-a2a":
        ours = [sys.executable if word == "python" else word for word in words[1:]]
        done = run_here(*ours, state=tmp_path)
    else:
        done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    asks = words[-2:] == ["book", "destination=Lisbon"]  # of which nobody is asked here
    assert done.returncode == (3 if asks else 0), done.stderr
    assert "--task" in done.stderr if asks else done.stdout.strip()


def test_the_copied_profile_of_the_quickstart_is_taken(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text((ROOT / "mappings" / "default.toml").read_text())
    with wrapping("--mapping", str(tmp_path / "mine.toml"), state=tmp_path) as bridge:
        assert "raw 1.2.3" in "".join(bridge.lines)


def test_every_option_in_the_documentation_exists() -> None:
    from bridge.cli.main import cli

    known = {
        option
        for command in cli.commands.values()
        for parameter in command.params
        for option in parameter.opts
    }
    known |= {"--help", "--version"}
    known |= set(re.findall(r"--[a-z][a-z-]+", benchmarks().format_help()))
    pages = {page: set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text())) for page in PAGES}
    unknown = {
        str(page.relative_to(ROOT)): sorted(found - known) for page, found in pages.items() if found - known
    }
    assert unknown == {}
