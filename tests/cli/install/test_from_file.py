"""`mcp-a2a install HOST FILE.toml`: one MCP server of a configuration file, started by a host."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.install.test_dialog import TOKEN, locked
from tests.support.command import ROOT, run_here
from tests.support.files import DEVTOOLS, RAW, TEAM, written

__all__ = ["locked"]

OTHER = "[agents_as_tools.a-server-with-quite-a-long-name]\nfrom = ['devtools']\n"


def install(tmp_path: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    places = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "CLAUDE_CONFIG_DIR": ""}
    return run_here("install", *words, state=tmp_path / "state", folder=tmp_path, **places, **more)


@pytest.fixture(autouse=True)
def _hosts(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".cursor").mkdir()


def servers(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / ".cursor" / "mcp.json").read_text())["mcpServers"]
    return found


def test_a_server_of_a_file_is_added_to_the_hosts_file_and_removed(tmp_path: Path) -> None:
    file = written(tmp_path, RAW, DEVTOOLS, TEAM)
    assert install(tmp_path, "cursor", "bridge.toml").returncode == 0
    entry = servers(tmp_path)["team"]
    assert entry["args"][-4:] == ["serve", str(file), "--stdio", "team"]
    assert "already in" in install(tmp_path, "cursor", "bridge.toml").stderr
    assert install(tmp_path, "cursor", "bridge.toml", "--remove").returncode == 0
    assert servers(tmp_path) == {}


def test_one_of_several_servers_has_to_be_named(tmp_path: Path) -> None:
    written(tmp_path, RAW, DEVTOOLS, TEAM, OTHER)
    assert "several MCP servers" in install(tmp_path, "cursor", "bridge.toml").stderr
    assert (
        install(tmp_path, "cursor", "bridge.toml", "--face", "a-server-with-quite-a-long-name").returncode
        == 0
    )
    ((name, entry),) = servers(tmp_path).items()
    assert len(name) <= 20
    assert entry["args"][-1] == "a-server-with-quite-a-long-name"
    assert install(tmp_path, "cursor", "bridge.toml", "--face", "team", "--name", "mine").returncode == 0
    assert set(servers(tmp_path)) == {name, "mine"}


def test_the_name_of_another_installed_server_is_refused(tmp_path: Path) -> None:
    written(tmp_path, RAW, DEVTOOLS, TEAM)
    assert install(tmp_path, "cursor", "--name", "team", "https://agent.example.com").returncode == 0
    done = install(tmp_path, "cursor", "bridge.toml")
    assert done.returncode == 2
    assert "exposes https://agent.example.com" in done.stderr
    assert install(tmp_path, "cursor", "bridge.toml", "--name", "team").returncode == 0
    assert "--stdio" in servers(tmp_path)["team"]["args"]


def test_a_named_server_is_removed_even_if_its_file_is_gone(tmp_path: Path) -> None:
    file = written(tmp_path, RAW, DEVTOOLS, TEAM)
    assert install(tmp_path, "cursor", "bridge.toml").returncode == 0
    file.unlink()
    assert install(tmp_path, "cursor", "--name", "team", "--remove").returncode == 0
    assert servers(tmp_path) == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bridge.toml", "--bearer", "env:TOKEN"], "leave out --bearer"),
        (["bridge.toml", "https://a.example"], "give one configuration file, or the URLs"),
        (["--face", "team", "https://a.example"], "name that file as well"),
        (["secrets.toml"], "would not see TOKEN"),
        (["wrong.toml"], "did you mean `raw`?"),
    ],
)
def test_what_a_host_could_not_start_is_refused(words: list[str], said: str, tmp_path: Path) -> None:
    written(tmp_path, RAW, DEVTOOLS, TEAM)
    written(
        tmp_path, RAW, DEVTOOLS, TEAM, "[principals.ada]\nbearer = { env = 'TOKEN' }\n", name="secrets.toml"
    )
    written(tmp_path, RAW, "[tools_as_agent.devtools]\nfrom = ['rav']\n", TEAM, name="wrong.toml")
    done = install(tmp_path, "cursor", *words, TOKEN="t")
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / ".cursor" / "mcp.json").exists()


def test_a_host_that_starts_from_a_shell_takes_variables(tmp_path: Path) -> None:
    written(tmp_path, RAW, DEVTOOLS, TEAM, "[principals.ada]\nbearer = { env = 'TOKEN' }\n")
    assert install(tmp_path, "claude-code", "bridge.toml", TOKEN="t").returncode == 0


def test_before_it_is_written_it_is_started_as_the_host_would(tmp_path: Path) -> None:
    written(tmp_path, RAW, DEVTOOLS, TEAM)
    done = install(tmp_path, "claude-code", "bridge.toml", "--check", PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    assert "19 tools, as Claude Code would see them" in done.stdout


@pytest.mark.long
def test_check_tries_the_credentials_of_the_agents_of_a_file(locked: str, tmp_path: Path) -> None:
    far = f"[agents.far]\ncard = '{locked}'\nauth.bearer = {{ env = 'T' }}\n"
    away = "[agents.away]\ncard = 'http://127.0.0.1:1'\n"
    written(tmp_path, far, away, "[agents_as_tools.team]\nfrom = ['far', 'away']\n")
    check = ("claude-code", "bridge.toml", "--check")
    done = install(tmp_path, *check, PYTHONPATH=str(ROOT), T="wrong")
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert f"{locked} does not take the credentials of [agents.far]\nNothing was written" in done.stderr
    assert not (tmp_path / ".claude.json").exists()
    done = install(tmp_path, *check, PYTHONPATH=str(ROOT), T=TOKEN)
    assert done.returncode == 0, done.stderr
