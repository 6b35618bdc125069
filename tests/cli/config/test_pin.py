"""`mcp-a2a pin`: what is written, what is shown, and what needs a person."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.cli import render
from tests.support.command import run_here
from tests.support.files import DEVTOOLS, RAW, written
from tests.support.ports import free_port


def pin(tmp_path: Path, *words: str, command: str = "pin") -> subprocess.CompletedProcess[str]:
    return run_here(
        command, *words, state=tmp_path / "state", folder=tmp_path, XDG_CACHE_HOME=str(tmp_path / "c")
    )


def edit(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the tools of the server `raw` in the lock."""
    path = tmp_path / "bridge.lock"
    lock = json.loads(path.read_text())
    change(lock["tool_servers"]["raw"]["tools"])
    path.write_text(json.dumps(lock))


def described(words: str) -> Callable[[dict[str, Any]], None]:
    """Gives `echo` another description in the lock."""

    def change(tools: dict[str, Any]) -> None:
        tools["echo"]["description"] = words

    return change


def test_the_first_lock_is_written_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    written(tmp_path, RAW, DEVTOOLS)
    done = pin(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "wrote" in done.stderr
    assert "16 tools of 1 server or agent" in done.stderr
    lock = (tmp_path / "bridge.lock").read_text()
    assert json.loads(lock)["tool_servers"]["raw"]["version"] == "raw 1.2.3"
    again = pin(tmp_path)
    assert again.returncode == 0
    assert "all is as in" in again.stderr
    assert (tmp_path / "bridge.lock").read_text() == lock


def test_a_change_is_shown_and_never_approved_without_a_person(tmp_path: Path) -> None:
    written(tmp_path, RAW, DEVTOOLS)
    pin(tmp_path)
    edit(tmp_path, described("Repeats.\u202e"))
    edit(tmp_path, lambda tools: tools.pop("add"))
    before = (tmp_path / "bridge.lock").read_bytes()

    for words, code in (((), 2), (("--check",), 1)):
        done = pin(tmp_path, *words)
        assert done.returncode == code, done.stderr
        assert "the tool echo has changed since it was pinned: description" in done.stderr
        assert "- Repeats.\\u202e" in done.stderr
        assert "the tool add is new" in done.stderr
        assert (tmp_path / "bridge.lock").read_bytes() == before
    found = json.loads(pin(tmp_path, "--json").stdout)
    assert found["ok"] is False
    assert [item["name"] for item in found["differences"]["tool_servers.raw"]] == ["add", "echo"]

    assert pin(tmp_path, "--yes").returncode == 0
    assert pin(tmp_path, "--check").returncode == 0


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("yes ", 0), ("n", 1), ("", 1), (None, 1)])
def test_a_person_at_the_terminal_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str | None, code: int
) -> None:
    written(tmp_path, RAW, DEVTOOLS)
    pin(tmp_path)
    edit(tmp_path, described("Old"))
    monkeypatch.setattr(render, "can_ask", lambda: True)
    monkeypatch.setattr(render, "ask", lambda _: answer)
    assert pin(tmp_path).returncode == code
    assert ("Old" in (tmp_path / "bridge.lock").read_text()) is bool(code)


def test_a_server_that_is_down_keeps_its_place_in_the_lock(tmp_path: Path) -> None:
    gone = f"[tool_servers.gone]\nurl = 'http://127.0.0.1:{free_port()}/mcp'\nfail = 'open'\n"
    written(
        tmp_path,
        RAW,
        DEVTOOLS.replace("['raw']", "['raw', 'gone']").replace("devtools]", "devtools]\nfail = 'open'"),
        gone,
    )
    lock = {
        "format": 1,
        "agents": {},
        "tool_servers": {"gone": {"tools": {"a": {}}}, "left": {"tools": {"b": {}}}},
    }
    (tmp_path / "bridge.lock").write_text(json.dumps(lock))
    done = pin(tmp_path, "--yes", "--wait-seconds", "5")
    assert done.returncode == 1, "not all was read"
    assert "tool_servers.gone: not read, and left as it is in the lock" in done.stderr
    assert "tool_servers.left: the file no longer has it" in done.stderr
    kept = json.loads((tmp_path / "bridge.lock").read_text())["tool_servers"]
    assert kept["gone"] == {"tools": {"a": {}}}
    assert "left" not in kept
    assert len(kept["raw"]["tools"]) == 16


def test_only_some_servers_are_approved(tmp_path: Path) -> None:
    written(
        tmp_path,
        RAW,
        RAW.replace("servers.raw", "servers.other"),
        DEVTOOLS.replace("['raw']", "['raw', 'other']"),
    )
    assert pin(tmp_path, "--only", "other").returncode == 0
    assert json.loads((tmp_path / "bridge.lock").read_text())["tool_servers"].keys() == {"other"}
    refused = pin(tmp_path, "--only", "nobody")
    assert refused.returncode == 2
    assert "--only nobody is no server and no agent of the file" in refused.stderr


def test_a_lock_that_is_no_lock_is_a_mistake_of_the_file(tmp_path: Path) -> None:
    written(tmp_path, RAW, DEVTOOLS)
    (tmp_path / "bridge.lock").write_text('{"format": 1, "too')
    for command in ("pin", "check", "show"):
        done = pin(tmp_path, command=command)
        assert done.returncode == 2
        assert "bridge.lock is no lock of this bridge" in done.stderr
        assert "only part of it was written" in done.stderr


def test_check_names_what_differs_and_what_stands_out(tmp_path: Path) -> None:
    written(tmp_path, RAW.replace("era", "pinned = 'refuse'\nera"), DEVTOOLS)
    unpinned = json.loads(pin(tmp_path, "--json", command="check").stdout)
    assert any("nothing of it is pinned" in fault for fault in unpinned["faults"])
    pin(tmp_path)
    edit(tmp_path, described("Old words"))
    edit(tmp_path, lambda tools: tools["fail"].update(outputSchema={"type": "object"}))
    found = json.loads(pin(tmp_path, "--json", command="check").stdout)
    (fault,) = found["faults"]
    assert "not offered, as the lock does not have it so: the tool echo, the tool fail" in fault
    assert found["places"][0].startswith("bridge.toml:1")
    notes = "\n".join(found["notes"])
    assert 'description was "Old words" and is "' in notes
    assert "its output schema is gone" in notes


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["npx", "-y", "@scope/server"], "`@scope/server@1.2.3` would run only this release"),
        (["npx", "-y", "@scope/server@latest"], "`@scope/server@1.2.3` would run"),
        (["npx", "-y", "@scope/server@^1.0.0"], "`@scope/server@1.2.3` would run"),
        (["uvx", "mcp-server-git"], "`mcp-server-git==1.2.3` would run"),
        (["uvx", "mcp-server-git>=1"], "`mcp-server-git==1.2.3` would run"),
        (["npx", "-y", "@scope/server@1.4.0"], ""),
        (["uvx", "mcp-server-git==2025.1"], ""),
        (["uvx", "mcp-server-git@2025.1"], ""),
        (["docker", "run", "-i", "mcp/git"], ""),
        (["node", "node_modules/@scope/server/index.js"], ""),
    ],
)
def test_check_advises_exact_versions(tmp_path: Path, command: list[str], words: str) -> None:
    text = f"[tool_servers.a]\ncommand = {json.dumps(command)}\n[tools_as_agent.b]\nfrom = ['a']\nfail = 'open'\n"
    written(tmp_path, text)
    found = json.loads(pin(tmp_path, "--json", "--offline", command="check").stdout)
    notes = [note for note in found["notes"] if "another release" in note]
    assert len(notes) == (1 if words else 0), notes
    assert words in "".join(notes)
