"""`mcp-a2a schema` and `mcp-a2a completion`: what editors and shells need."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from bridge.config.file_schema import file_schema
from bridge.config.tables.profile import mappings_folder
from tests.support.command import run_command, run_here
from tests.support.files import DEVTOOLS, RAW, TEAM


def test_the_schema_accepts_only_valid_files(tmp_path: Path) -> None:
    done = run_here("schema", state=tmp_path)
    assert done.returncode == 0, done.stderr
    schema = json.loads(done.stdout)
    assert schema == file_schema()
    validator = Draft202012Validator(schema)
    assert validator.is_valid(tomllib.loads(RAW + DEVTOOLS + TEAM))
    assert not validator.is_valid({"bridge": {"prot": 1}})


def test_the_schema_of_profiles_takes_the_default(tmp_path: Path) -> None:
    output = tmp_path / "profile.schema.json"
    done = run_here("schema", "--profile", "--output", str(output), state=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert str(output) in done.stderr
    default = tomllib.loads((mappings_folder() / "default.toml").read_text())
    assert Draft202012Validator(json.loads(output.read_text())).is_valid(default)


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    done = run_here("schema", "--output", str(tmp_path / "no" / "file.json"), state=tmp_path)
    assert done.returncode == 2
    assert "cannot write" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_asks_the_command(shell: str, tmp_path: Path) -> None:
    done = run_here("completion", shell, state=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"_MCP_A2A_COMPLETE={shell}_complete" in done.stdout


def test_bash_reads_the_script(tmp_path: Path) -> None:
    script = run_here("completion", "bash", state=tmp_path).stdout
    subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=30)


def test_the_command_completes_what_was_begun(tmp_path: Path) -> None:
    asked = {"_MCP_A2A_COMPLETE": "bash_complete", "COMP_WORDS": "mcp-a2a che", "COMP_CWORD": "1"}
    done = run_command(state=tmp_path, **asked)
    assert done.stdout.split() == ["plain,check"]


def test_commands_that_are_used_first_are_listed_first(tmp_path: Path) -> None:
    listed = run_here("--help", state=tmp_path).stdout.partition("Commands:\n")[2]
    names = re.findall(r"^  (\w\S*)", listed, re.MULTILINE)
    assert names[:7] == ["wrap", "expose", "proxy", "serve", "init", "check", "doctor"]
    others = (
        "pin",
        "show",
        "people",
        "install",
        "card",
        "call",
        "tasks",
        "login",
        "logins",
        "logout",
        "servers",
        "store",
        "audit",
        "keys",
        "schema",
    )
    assert set(names[7:]) == {*others, "completion"}


def test_commands_are_listed_with_whole_sentences_and_every_exit_code(tmp_path: Path) -> None:
    about, listed = run_here("--help", state=tmp_path).stdout.split("Commands:\n")
    assert "..." not in listed
    assert all(f" {code} " in about.partition("Exit codes:")[2] for code in (0, 1, 2, 3, 130))


@pytest.mark.parametrize("words", [["--version"], ["serve", "--version"]])
def test_the_version_is_printed(words: list[str], tmp_path: Path) -> None:
    assert run_here(*words, state=tmp_path).stdout.startswith("mcp-a2a, version ")
