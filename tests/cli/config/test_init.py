"""`mcp-a2a init`: the starter file is valid without changes."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from bridge.config.load import load
from bridge.config.starter import Starter
from tests.support.command import WAIT_SECONDS, environment, run_here
from tests.support.forked import Forked
from tests.support.terminals import open_terminal

URL = "https://research.example.com"


def init(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_here("init", *words, state=tmp_path / "state", folder=tmp_path)


def is_right(tmp_path: Path, *words: str) -> bool:
    done = run_here("check", "--offline", *words, state=tmp_path / "state", folder=tmp_path)
    return done.returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--server", "npx -y 'a b'"],
        ["--server", "https://tools.example.com/mcp", "--agent", URL],
        ["--agent", URL],
        ["--server", "one=python a.py", "--server", "two=python b=c.py", "--agent", f"tools={URL}"],
        ["--server", f"research={URL}", "--agent", f"research={URL}"],
    ],
    ids=" ".join,
)
def test_the_written_file_is_valid_and_names_its_schema(words: list[str], tmp_path: Path) -> None:
    done = init(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "bridge.toml").read_text().startswith("#:schema ./mcp-a2a.schema.json\n")
    assert (tmp_path / "mcp-a2a.schema.json").is_file()
    assert is_right(tmp_path)
    assert "mcp-a2a check" in done.stderr


def test_the_written_file_shows_the_ready_mapping_of_a_well_known_server(tmp_path: Path) -> None:
    assert init(tmp_path, "--server", "uvx mcp-server-time", "--server", "uvx other").returncode == 0
    text = (tmp_path / "bridge.toml").read_text()
    assert text.count("# known = false") == 1
    assert 'command = ["uvx", "mcp-server-time"]\n# known = false ' in text
    assert "its ready mapping, time" in text
    (tmp_path / "bridge.toml").write_text(text.replace("# known = false", "known = false"))
    assert is_right(tmp_path)


def test_the_written_file_has_the_named_peers(tmp_path: Path) -> None:
    assert init(tmp_path, "team.toml", "--server", "git=npx -y 'a b'", "--agent", URL).returncode == 0
    found = tomllib.loads((tmp_path / "team.toml").read_text())
    assert found["tool_servers"] == {"git": {"command": ["npx", "-y", "a b"]}}
    assert found["agents"] == {"research": {"card": URL}}
    assert found["tools_as_agent"] == {"git": {"from": ["git"]}}
    assert found["agents_as_tools"] == {"team": {"from": ["research"]}}


@pytest.mark.parametrize(
    ("starter", "servers", "agents"),
    [
        (Starter({"search": ("search",)}), {"search"}, {"research"}),
        (Starter({}, {"other": URL}), {"weather"}, {"other"}),
    ],
)
def test_each_example_in_it_is_right_once_it_is_uncommented(
    starter: Starter, servers: set[str], agents: set[str], tmp_path: Path
) -> None:
    text = starter.text()
    lines = [
        line.removeprefix("# ") if " = " in line or line[:3] == "# [" else line for line in text.splitlines()
    ]
    whole = tmp_path / "whole.toml"
    whole.write_text("\n".join(line for line in lines if not line.startswith("This file")))
    tokens = {name: name for name in ("WEATHER_TOKEN", "RESEARCH_TOKEN", "ALICE_TOKEN")}
    config = load(whole, tokens).config
    assert (set(config.tool_servers), set(config.agents), set(config.principals)) == (
        servers,
        agents,
        {"alice"},
    )
    assert set(config.agents_as_tools) == {"team"}


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "bridge.toml").write_text("mine")
    done = init(tmp_path)
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert (tmp_path / "bridge.toml").read_text() == "mine"
    assert init(tmp_path, "--force").returncode == 0
    assert is_right(tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--server", "http://"], "is not the URL of a server"),
        (["--server", "'"], "is not a command"),
        (["--server", ""], "a server is named by"),
        (["--agent", "research.example.com"], "is not the URL of a server"),
        (["--agent", f"Research={URL}"], "a name takes"),
        (["--agent", URL, "--agent", URL], "the same name"),
        (["no/such/folder.toml"], "cannot write"),
    ],
)
def test_what_cannot_be_written_is_refused(words: list[str], said: str, tmp_path: Path) -> None:
    done = init(tmp_path, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "bridge.toml").exists()


def answered(tmp_path: Path, *answers: str, words: Sequence[str] = ()) -> int:
    """Run it with these words at a terminal, and give these answers, each to one question; the exit code."""
    ours, theirs = open_terminal()
    command = [sys.executable, "-P", "-m", "bridge", "init", *words]
    with Forked(
        command, stdin=theirs, stderr=theirs, cwd=tmp_path, env=environment(tmp_path / "state")
    ) as process:
        os.close(theirs)
        try:
            for answer in answers:
                said = b""
                while not said.rstrip().endswith(b":"):
                    ready, _, _ = select.select([ours], [], [], WAIT_SECONDS)
                    assert ready, said
                    said += os.read(ours, 4096)
                os.write(ours, answer.encode())
            return process.wait(WAIT_SECONDS)
        finally:
            process.kill()
            os.close(ours)


def test_at_a_terminal_it_asks_and_enter_takes_what_is_offered(tmp_path: Path) -> None:
    assert answered(tmp_path, "\n", "\n", f"{URL}\n", "other\n") == 0
    found = tomllib.loads((tmp_path / "bridge.toml").read_text())
    assert set(found["tool_servers"]) == {"server-everything"}
    assert found["agents"] == {"other": {"card": URL}}
    assert is_right(tmp_path)


def test_ending_the_input_writes_no_file(tmp_path: Path) -> None:
    assert answered(tmp_path, "\x04") == 130
    assert not (tmp_path / "bridge.toml").exists()
