"""`mcp-a2a install` as a user runs it: its edits, its refusals and `--check`."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.addresses import a_web_page, an_mcp_server
from tests.support.command import ROOT, WAIT_SECONDS, environment, run_here
from tests.support.files import an_agent, written
from tests.support.running import RAW_SERVER

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the places of the other systems are in test_places"
)

URL = "http://127.0.0.1:1/agents/research"
"""Where nobody listens."""

FILES = {
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "claude-code": ".claude.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "gemini": ".gemini/settings.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "zed": ".config/zed/settings.json",
}
KEYS = dict.fromkeys(FILES, "mcpServers") | {"vscode": "servers", "zed": "context_servers"}
THERE = '{\n  "z": 1.50,\n  "KEY": {\n    "other": {\n      "command": "x"\n    }\n  },\n  "a": true\n}\n'

STAND_IN = f"""#!{sys.executable}
import json, os, runpy, sys
from pathlib import Path
seen = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}}
Path(__file__).with_name("seen.json").write_text(json.dumps(seen))
sys.argv[1:] = []
runpy.run_path({str(RAW_SERVER)!r}, run_name="__main__")
"""
"""A stand-in for the installed command `mcp-a2a`: it records how it was started, then runs a server."""


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """A foreign agent for all tests of this file."""
    with an_agent() as url:
        yield url


@dataclass
class Machine:
    """A home folder with hosts in it, and an installation whose command is a stand-in."""

    home: Path
    project: Path
    python: Path

    def file(self, host: str) -> Path:
        return self.home / FILES[host]

    @property
    def command(self) -> Path:
        return self.python.with_name("mcp-a2a")

    def install(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        return run_here(
            "install",
            *words,
            state=self.home / "state",
            folder=self.project,
            python=str(self.python),
            **self._places(),
            **more,
        )

    def install_from_outside(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end, in a process of its own."""
        libraries = os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")])
        return subprocess.run(
            [str(self.python), "-m", "bridge", "install", *words],
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            cwd=self.project,
            env=environment(self.home / "state", **self._places(), **more, PYTHONPATH=libraries),
            stdin=subprocess.DEVNULL,
        )

    def _places(self) -> dict[str, str]:
        return {"HOME": str(self.home), "XDG_CONFIG_HOME": "", "CLAUDE_CONFIG_DIR": ""}

    def seen(self) -> dict[str, Any]:
        """How the stand-in was started."""
        found = json.loads(self.python.with_name("seen.json").read_text())
        assert isinstance(found, dict)
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "home", tmp_path / "project", tmp_path / "bin" / "python3")
    for path in FILES.values():
        (made.home / path).parent.mkdir(parents=True, exist_ok=True)
    (made.home / ".claude").mkdir()
    made.project.mkdir()
    made.python.parent.mkdir()
    made.python.symlink_to(Path(sys.executable).resolve())
    made.command.write_text(STAND_IN)
    made.command.chmod(0o755)
    return made


def typed(host: str) -> dict[str, str]:
    """What an entry of some hosts says of itself."""
    return {"type": "stdio"} if host in ("claude-code", "cursor", "vscode") else {}


def backups(file: Path) -> list[Path]:
    return sorted(file.parent.glob(f"{file.name}.*.bak"))


@pytest.mark.parametrize("host", FILES)
def test_a_server_is_added_to_the_hosts_file_and_removed(host: str, machine: Machine) -> None:
    file, before = machine.file(host), THERE.replace("KEY", KEYS[host])
    file.write_text(before)
    file.chmod(0o640)

    done = machine.install(host, URL)
    assert done.returncode == 0, done.stderr
    assert str(file) in done.stderr
    entry = {**typed(host), "command": str(machine.command), "args": ["expose", URL]}
    document = json.loads(file.read_text())
    assert list(document) == ["z", KEYS[host], "a"]
    assert document[KEYS[host]] == {"other": {"command": "x"}, "research": entry}
    assert "1.50" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    (backup,) = backups(file)
    assert backup.read_text() == before
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600

    again = machine.install(host, URL)
    assert (again.returncode, backups(file)) == (0, [backup])
    assert "already in" in again.stderr

    removed = machine.install(host, URL, "--remove")
    assert removed.returncode == 0
    assert "\nRestart " in removed.stderr
    assert file.read_text() == before
    assert len(backups(file)) == 2
    assert "not in" in machine.install(host, "--name", "research", "--remove").stderr
    assert [path.name for path in file.parent.iterdir() if path.suffix == ".new"] == []


def test_a_new_file_is_for_its_owner_alone(machine: Machine) -> None:
    assert machine.install("cursor", URL).returncode == 0
    assert stat.S_IMODE(machine.file("cursor").stat().st_mode) == 0o600
    assert backups(machine.file("cursor")) == []


@pytest.mark.parametrize(
    ("host", "path"),
    [
        ("claude-code", ".mcp.json"),
        ("cursor", ".cursor/mcp.json"),
        ("vscode", ".vscode/mcp.json"),
        ("gemini", ".gemini/settings.json"),
    ],
)
def test_a_project_has_a_file_of_its_own(host: str, path: str, machine: Machine) -> None:
    done = machine.install(host, "--scope", "project", URL)
    assert done.returncode == 0, done.stderr
    entry = {**typed(host), "command": str(machine.command), "args": ["expose", URL]}
    assert json.loads((machine.project / path).read_text()) == {KEYS[host]: {"research": entry}}
    assert stat.S_IMODE((machine.project / path).stat().st_mode) == 0o644
    assert "The entry has a path of this machine" in done.stderr


def test_what_uvx_made_for_a_single_run_is_not_put_into_a_file(machine: Machine) -> None:
    passing = machine.home / "archive-v0" / "x1" / "bin" / "python3"
    passing.parent.mkdir(parents=True)
    passing.symlink_to(Path(sys.executable).resolve())
    machine.python = passing
    done = machine.install("cursor", URL)
    assert done.returncode == 2
    assert "uv tool install" in done.stderr
    assert not machine.file("cursor").exists()
    assert "No such option" in machine.install("cursor", "--uvx", URL).stderr


def test_secrets_are_written_as_the_place_they_are_in(machine: Machine) -> None:
    (machine.project / "token").write_text("s3cret")
    (machine.home / "key").write_text("s3cret")
    options = ("--bearer", "file:token", "--header", "X-Key=file:~/key", "--header", "X-Team=blue")
    slow = ("--granularity", "agent", "--answer-within-seconds", "30", "--dialect", "0.3", "--name", "Mine_1")
    done = machine.install("claude-desktop", *options, *slow, URL, "http://b.example/")
    assert done.returncode == 0, done.stderr
    written = machine.file("claude-desktop").read_text()
    assert "s3cret" not in written + done.stderr + done.stdout
    assert json.loads(written)["mcpServers"]["Mine_1"]["args"] == [
        "expose",
        "--bearer",
        f"file:{machine.project}/token",
        "--header",
        f"X-Key=file:{machine.home}/key",
        "--header",
        "X-Team=blue",
        "--dialect",
        "0.3",
        "--granularity",
        "agent",
        "--answer-within-seconds",
        "30",
        URL,
        "http://b.example/",
    ]


def test_a_host_that_starts_from_a_shell_takes_variables(machine: Machine) -> None:
    done = machine.install("claude-code", "--bearer", "env:TOKEN", URL, TOKEN="s3cret")
    assert done.returncode == 0, done.stderr
    server = json.loads(machine.file("claude-code").read_text())["mcpServers"]["research"]
    assert server["args"] == ["expose", "--bearer", "env:TOKEN", URL]


@pytest.mark.proves("cli-usage")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cursor"], "which agents? mcp-a2a install cursor URL..."),
        (["nothing", URL], "'nothing' is not one of"),
        (["cursor", "research.example.com"], "did you mean https://research.example.com?"),
        (["cursor", "--bearer", "s3cret", URL], "--bearer takes env:NAME or file:PATH"),
        (["cursor", "--bearer", "env:TOKEN", URL], "Cursor does not start from a shell"),
        (["vscode", "--header", "X-Key=env:TOKEN", URL], "file:PATH in place of env:TOKEN"),
        (["mcp-json", "--bearer", "env:TOKEN", URL], "would not see TOKEN"),
        (["claude-code", "--bearer", "env:NOT_SET", URL], "NOT_SET is not set"),
        (["cursor", "--bearer", "file:gone", URL], "--bearer: cannot read the secret in"),
        (["cursor", "--header", "Authorization=abc", URL], "Authorization is a secret"),
        (["cursor", "https://ada:pass@x.example"], "a password in a URL"),
        (["cursor", "--name", "a b", URL], "--name takes"),
        (["cursor", "--answer-within-seconds", "nan", URL], "--answer-within-seconds"),
        (["claude-desktop", "--scope", "project", URL], "no servers for a project"),
        (["mcp-json", "--remove", URL], "writes no file: --remove needs another host, or --file"),
        (["cursor", "--remove", "--check", URL], "does not go with --remove"),
        (["cursor", "--file", "x", "--scope", "project", URL], "does not go with --scope"),
        (["cursor", "--file", "gone/mcp.json", URL], "--create makes it"),
    ],
)
def test_bad_input_is_one_clear_message_and_nothing_is_written(
    words: list[str], said: str, machine: Machine
) -> None:
    done = machine.install(*words, TOKEN="t")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "s3cret" not in done.stderr
    assert not machine.file("cursor").exists()


def test_without_arguments_the_help_is_printed(machine: Machine) -> None:
    done = machine.install_from_outside()
    assert "mcp-a2a install claude-desktop https://agent.example.com" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_the_file_of_a_missing_host_is_made_only_with_create(machine: Machine) -> None:
    file = machine.file("claude-desktop")
    file.parent.rmdir()
    done = machine.install("claude-desktop", URL)
    assert done.returncode == 2
    assert f"looked for {file.parent}" in done.stderr
    assert not file.parent.exists()
    assert machine.install("claude-desktop", "--create", URL).returncode == 0
    assert "research" in json.loads(file.read_text())["mcpServers"]


@pytest.mark.parametrize(
    ("host", "text", "said"),
    [
        ("cursor", '{\n  "mcpServers": {\n', "line 3, column 1"),
        ("claude-desktop", '{\n  // mine\n  "a": 1\n}', "line 2, column 3"),
        ("vscode", '{"servers": []}', "its servers is a list"),
    ],
)
def test_a_broken_file_is_left_as_it_is_and_what_to_paste_is_shown(
    host: str, text: str, said: str, machine: Machine
) -> None:
    file = machine.file(host)
    file.write_text(text)
    done = machine.install(host, URL)
    assert done.returncode == 2
    assert said in done.stderr
    assert f'"{KEYS[host]}": {{\n    "research": {{' in done.stderr
    assert file.read_text() == text
    assert backups(file) == []


@pytest.mark.parametrize("host", ["cursor", "vscode", "gemini", "zed"])
def test_comments_stay_where_the_host_reads_them(host: str, machine: Machine) -> None:
    file = machine.file(host)
    text = f'// mine\n{{\n  "{KEYS[host]}": {{\n    "a": {{}}, // one\n  }},\n}}\n'
    file.write_text(text)
    assert machine.install(host, URL).returncode == 0
    assert "// mine\n" in file.read_text()
    assert '"a": {}, // one\n' in file.read_text()
    assert machine.install(host, "--remove", URL).returncode == 0
    assert file.read_text() == text


def test_a_byte_order_mark_and_a_link_stay(machine: Machine) -> None:
    file, real = machine.file("cursor"), machine.home / "dotfiles.json"
    real.write_bytes(b"\xef\xbb\xbf{}\r\n")
    file.symlink_to(real)
    assert machine.install("cursor", URL).returncode == 0
    assert file.is_symlink()
    assert real.read_bytes().startswith(b"\xef\xbb\xbf{\r\n")


def test_additions_of_a_person_to_our_entry_stay(machine: Machine) -> None:
    machine.install("cursor", URL)
    file = machine.file("cursor")
    document = json.loads(file.read_text())
    document["mcpServers"]["research"] |= {"env": {"HTTPS_PROXY": "http://p"}, "disabled": True}
    file.write_text(json.dumps(document))
    assert machine.install("cursor", "--granularity", "agent", URL).returncode == 0
    server = json.loads(file.read_text())["mcpServers"]["research"]
    assert server["env"] == {"HTTPS_PROXY": "http://p"}
    assert server["disabled"] is True
    assert "--granularity" in server["args"]


def test_a_name_in_use_is_refused(machine: Machine) -> None:
    file = machine.file("cursor")
    file.write_text('{"mcpServers": {"research": {"command": "npx"}, "team": {"url": "https://x.example"}}}')
    before = file.read_text()
    named = ("https://y.example/agents/team", "--name", "team")
    for words in ((URL,), named, (*named, "--remove")):
        done = machine.install("cursor", *words)
        assert done.returncode == 2
        assert "is a server of another kind" in done.stderr
    assert "nothing to change" in machine.install("cursor", URL, "--remove").stderr
    assert file.read_text() == before

    assert machine.install("cursor", "https://x.example/agents/one").returncode == 0
    other = "https://y.example/agents/one"
    done = machine.install("cursor", other)
    assert done.returncode == 2
    assert "exposes https://x.example/agents/one: --name one replaces" in done.stderr
    assert machine.install("cursor", other, "--name", "one").returncode == 0
    assert json.loads(file.read_text())["mcpServers"]["one"]["args"][-1] == other


def test_a_dry_run_shows_the_difference_and_writes_nothing(machine: Machine) -> None:
    file = machine.file("vscode")
    before = THERE.replace("KEY", "servers")
    file.write_text(before)
    done = machine.install("vscode", "--dry-run", URL)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[:2] == [f"--- {file}", f"+++ {file} (new)"]
    assert '+    "research": {' in lines
    assert [line for line in lines[2:] if line.startswith("-")] == []
    assert file.read_text() == before
    assert backups(file) == []


def test_mcp_json_prints_what_any_host_takes(machine: Machine) -> None:
    done = machine.install_from_outside("mcp-json", URL)
    assert done.returncode == 0
    server = {"command": str(machine.command), "args": ["expose", URL]}
    assert json.loads(done.stdout) == {"mcpServers": {"research": server}}
    assert "named after its URL, because its agent's card could not be read" in done.stderr

    assert machine.install("mcp-json", "--file", "mine.json", URL).returncode == 0
    assert json.loads((machine.project / "mine.json").read_text()) == {"mcpServers": {"research": server}}


def test_check_starts_the_server_as_a_desktop_host_would(agent: str, machine: Machine) -> None:
    done = machine.install_from_outside("claude-desktop", "--check", agent, TOKEN="s3cret")
    assert done.returncode == 0, done.stderr
    assert "tools, as Claude Desktop would see them:" in done.stdout
    assert "  echo  Gives the text back" in done.stdout.splitlines()
    seen = machine.seen()
    assert seen["arguments"] == ["expose", agent]
    assert seen["folder"] not in (str(machine.project), str(ROOT))
    assert seen["environment"]["HOME"] == str(machine.home)
    assert str(machine.python.parent) not in seen["environment"]["PATH"]
    assert not {"TOKEN", "PYTHONPATH", "XDG_STATE_HOME", "VIRTUAL_ENV"} & set(seen["environment"])
    assert machine.file("claude-desktop").exists()


@pytest.mark.parametrize("host", ["claude-code", "gemini"])
@pytest.mark.smoke("claude-code")
def test_check_gives_the_shells_variables_where_the_host_does(
    host: str, agent: str, machine: Machine
) -> None:
    done = machine.install_from_outside(host, "--check", "--bearer", "env:TOKEN", agent, TOKEN="s3cret")
    assert done.returncode == 0, done.stderr
    assert machine.seen()["environment"]["TOKEN"] == "s3cret"


@pytest.mark.long
def test_mcp_json_stays_json_when_it_is_checked(agent: str, machine: Machine) -> None:
    done = machine.install_from_outside("mcp-json", "--check", agent)
    assert "mcpServers" in json.loads(done.stdout)
    assert "  echo  Gives the text back" in done.stderr


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("#!/bin/sh\necho 'no card at all' >&2\nexit 3\n", "no card at all"),
        ("#!/no/such/python\n", "does not work as the host would start it"),
        ("#!/bin/sh\necho hello\n", "does not work as the host would start it"),
    ],
)
def test_a_server_that_does_not_work_is_not_written(
    script: str, said: str, agent: str, machine: Machine
) -> None:
    machine.command.write_text(script)
    done = machine.install("cursor", "--check", agent)
    assert done.returncode == 1, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not machine.file("cursor").exists()


def test_check_reports_an_address_without_an_agent_and_writes_nothing(agent: str, machine: Machine) -> None:
    with an_mcp_server() as server, a_web_page() as page:
        for url, words in {
            server: f"It is an MCP server: mcp-a2a wrap {server} makes an agent of it",
            page: "It is a web page. Give the address of an agent, which has its card at",
            URL: "cannot be reached: Connection refused",
        }.items():
            done = machine.install("cursor", "--check", agent, url)
            assert (done.returncode, done.stdout) == (1, "")
            assert words in done.stderr
            assert "Nothing was written" in done.stderr
    assert not machine.file("cursor").exists()


@pytest.mark.long
def test_a_file_whose_agents_are_all_down_is_not_installed_when_it_is_checked(machine: Machine) -> None:
    machine.command.write_text(f"#!{sys.executable} -P\nfrom bridge.cli.main import main\nmain()\n")
    written(machine.project, f"[agents.away]\ncard = '{URL}'\n", "[agents_as_tools.team]\nfrom = ['away']\n")
    done = machine.install_from_outside("claude-code", "--check", "bridge.toml")
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "the server lists no tool of an agent" in done.stderr
    assert f"{URL}/.well-known/agent-card.json cannot be reached" in done.stderr
    assert not machine.file("claude-code").exists()


def test_a_server_is_called_as_its_agents_card_says(agent: str, machine: Machine) -> None:
    assert machine.install("cursor", agent).returncode == 0
    assert list(json.loads(machine.file("cursor").read_text())["mcpServers"]) == ["echo"]
    again = machine.install("cursor", agent, "--granularity", "agent")
    assert "echo is now in" in again.stderr
    assert machine.install("cursor", agent, "--remove").returncode == 0
    assert json.loads(machine.file("cursor").read_text()) == {"mcpServers": {}}


def test_api_key_trust_and_mapping_are_passed_on_by_reference(machine: Machine) -> None:
    (machine.project / "mine.toml").write_text('extends = "default"\n')
    options = ("--api-key", "env:KEY", "--trust", "https://b.example", "--mapping", "mine.toml")
    done = machine.install("gemini", *options, URL, KEY="s3cret")
    assert done.returncode == 0, done.stderr
    text = machine.file("gemini").read_text()
    assert "s3cret" not in text
    assert json.loads(text)["mcpServers"]["research"] == {
        "command": str(machine.command),
        "args": [
            "expose",
            *options[:-1],
            str(machine.project / "mine.toml"),
            URL,
        ],
        "env": {"KEY": "$KEY"},
    }
    assert "there is no mapping profile" in machine.install("gemini", "--mapping", "nope", URL).stderr


def test_list_shows_our_servers_in_each_file(machine: Machine) -> None:
    assert "No host has a server of mcp-a2a" in machine.install("--list").stderr
    for host in ("cursor", "zed"):
        machine.file(host).write_text(f'{{"{KEYS[host]}": {{"other": {{"command": "x"}}}}}}')
        assert machine.install(host, URL, "--name", f"my-{host}").returncode == 0
    machine.install("vscode", URL, "--scope", "project")
    done = machine.install("--list")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        f"Cursor, {machine.file('cursor')}",
        f"  my-cursor  {URL}",
        f"VS Code, {machine.project}/.vscode/mcp.json",
        f"  research  {URL}",
        f"Zed, {machine.file('zed')}",
        f"  my-zed  {URL}",
    ]
    assert machine.install("zed", "--list").stdout.splitlines() == done.stdout.splitlines()[-2:]
    machine.file("zed").write_text("{")
    broken = machine.install("--list")
    assert broken.returncode == 2
    assert f"{machine.file('zed')}: it is not valid JSON" in broken.stderr
    assert "my-cursor" in broken.stdout


def test_goose_is_told_what_to_put_into_its_file(machine: Machine) -> None:
    done = machine.install("goose", URL)
    assert done.returncode == 0
    assert done.stdout.startswith("extensions:\n  research:\n")
    assert f"put this into {machine.home}/.config/goose/config.yaml," in done.stderr
    assert not (machine.home / ".config" / "goose").exists()
    assert "YAML, which mcp-a2a does not edit" in machine.install("goose", URL, "--remove").stderr
