"""`mcp-a2a servers`: what the bridge remembers of tool servers, and how to make it forget."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from bridge.mcp.client.known_servers import Fact, ServerMemory, remembered_in
from tests.support.command import run_command, run_here

EVERYTHING = "npx -y @modelcontextprotocol/server-everything"
NAMELESS = "python server.py"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two remembered servers, and a server remembered by a later version of the bridge."""
    path = tmp_path / "mcp-a2a" / "servers.json"
    memory = ServerMemory(path)
    memory.remember(Fact.ERA, EVERYTHING, "legacy")
    memory.remember(Fact.NAME, EVERYTHING, "mcp-servers/everything")
    memory.remember(Fact.SERIAL, EVERYTHING, "yes")
    memory.remember(Fact.ERA, NAMELESS, "modern")
    known = json.loads(path.read_text())
    path.write_text(json.dumps({**known, "mood:0123456789abcdef": "good"}))
    return path


def servers(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_here("servers", *words, state=tmp_path)


def test_remembered_servers_are_listed_by_name_and_id(file: Path, tmp_path: Path) -> None:
    one, other, _ = [known.server_id[:8] for known in remembered_in(file)]
    done = servers(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"mcp-servers/everything  {one}",
        "  speaks MCP 2025-11-25 or older",
        "  asks questions during calls: gets one call at a time",
        f"(gave no name)  {other}",
        "  speaks MCP 2026-07-28 or newer",
        "(gave no name)  01234567",
        "  mood: good",
    ]


def test_remembered_servers_are_listed_as_json(file: Path, tmp_path: Path) -> None:
    one, other, foreign = [known.server_id for known in remembered_in(file)]
    assert json.loads(servers(tmp_path, "--json").stdout) == {
        "file": str(file),
        "servers": [
            {"id": one, "era": "legacy", "name": "mcp-servers/everything", "serial": "yes"},
            {"id": other, "era": "modern"},
            {"id": foreign, "mood": "good"},
        ],
    }


def test_a_server_is_forgotten_by_its_name_or_id_and_the_others_are_not(file: Path, tmp_path: Path) -> None:
    one, other, foreign = remembered_in(file)
    done = servers(tmp_path, "--forget", "mcp-servers/everything", "--forget", foreign.server_id[:8])
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        f"forgotten: mcp-servers/everything  {one.server_id[:8]}",
        "forgotten: (gave no name)  01234567",
        "A running bridge still remembers this: restart the bridge",
    ]
    assert remembered_in(file) == [other]


def test_forget_all_forgets_every_server(file: Path, tmp_path: Path) -> None:
    assert servers(tmp_path, "--forget-all").returncode == 0
    assert remembered_in(file) == []
    for words in ([], ["--forget-all"]):
        done = servers(tmp_path, *words)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr == "the bridge remembers no tool server\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--forget", "everything"],
            "the bridge remembers no server 'everything': did you mean `mcp-servers/everything`?",
        ),
        (["--forget", "0123456"], "the bridge remembers no server '0123456': did you mean `01234567`?"),
        (["--forget", "twice"], "2 servers are called 'twice': give one of the ids "),
        (["--forget", "twice", "--forget-all"], "give --forget or --forget-all, not both"),
        (
            ["--json", "--forget-all"],
            "--json is for the list: it goes with neither --forget nor --forget-all",
        ),
    ],
)
def test_an_ambiguous_name_forgets_nothing_and_lists_the_servers(
    words: list[str], said: str, file: Path, tmp_path: Path
) -> None:
    for server in ("a", "b"):
        ServerMemory(file).remember(Fact.NAME, server, "twice")
    before = remembered_in(file)
    done = servers(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"mcp-a2a: {said}")
    assert remembered_in(file) == before


@pytest.mark.parametrize("words", [[], ["--forget-all"]])
def test_a_file_that_cannot_be_read_is_an_error_and_stays(
    words: list[str], file: Path, tmp_path: Path
) -> None:
    file.write_text("{")
    done = servers(tmp_path, *words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"mcp-a2a: {file} is not JSON")
    assert file.read_text() == "{"


def test_the_shell_completes_names_and_ids(file: Path, tmp_path: Path) -> None:
    asked = {
        "_MCP_A2A_COMPLETE": "bash_complete",
        "COMP_WORDS": "mcp-a2a servers --forget m",
        "COMP_CWORD": "3",
    }
    assert file.exists()
    assert run_command(state=tmp_path, **asked).stdout.split() == ["plain,mcp-servers/everything"]
