"""`mcp-a2a install --bundle` and `--link`: what they write, and what they refuse."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.support.command import run_here

URL = "http://127.0.0.1:1/agents/research"
"""Where nobody listens."""


def test_a_bundle_has_the_modules_of_the_bridge_and_what_they_need(tmp_path: Path) -> None:
    file = tmp_path / "research.mcpb"
    done = run_here(
        "install", "claude-desktop", "--bundle", str(file), "--name", "research", URL, state=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "Token, which it keeps as a secret" in done.stderr
    with zipfile.ZipFile(file) as archive:
        names = {*archive.namelist()}
        manifest = json.loads(archive.read("manifest.json"))
        project = archive.read("pyproject.toml").decode()
        start = archive.read("server/main.py")
    assert manifest["name"] == "research"
    assert manifest["user_config"]["url"]["default"] == URL
    assert {"server/bridge/cli/main.py", "server/bridge/mappings/default.toml"} <= names
    assert not [name for name in names if "__pycache__" in name or "tests" in name]
    assert '"mcp<' in project
    assert "extra" not in project
    assert b"bundle_start" not in start


def test_a_bundle_without_a_url_asks_for_it(tmp_path: Path) -> None:
    file = tmp_path / "any.mcpb"
    done = run_here("install", "claude-desktop", "--bundle", str(file), state=tmp_path)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(file) as archive:
        fields = json.loads(archive.read("manifest.json"))["user_config"]
    assert fields["url"]["required"]
    assert "default" not in fields["url"]


def test_a_bundle_of_a_file_asks_for_each_variable_of_it(tmp_path: Path) -> None:
    text = '[agents.desk]\ncard = "https://desk.example.com"\nauth = { bearer = { env = "DESK_TOKEN" } }\n'
    text += '[agents_as_tools.team]\nfrom = ["desk"]\n'
    (tmp_path / "bridge.toml").write_text(text)
    words = ("install", "claude-desktop", "--bundle", "team.mcpb", "bridge.toml")
    file = tmp_path / "team.mcpb"
    words = tuple(str(tmp_path / word) if word.endswith(("mcpb", "toml")) else word for word in words)
    done = run_here(*words, state=tmp_path, DESK_TOKEN="hidden-from-everybody")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(file) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        whole = b"".join(archive.read(name) for name in archive.namelist())
    assert [*manifest["user_config"]] == ["DESK_TOKEN"]
    assert manifest["user_config"]["DESK_TOKEN"]["sensitive"]
    assert manifest["server"]["mcp_config"]["env"] == {"DESK_TOKEN": "${user_config.DESK_TOKEN}"}
    assert b"hidden-from-everybody" not in whole


def test_a_bundle_takes_no_file_that_names_a_file_with_a_secret(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    text = '[agents.desk]\ncard = "https://desk.example.com"\nauth = { bearer = { file = "token" } }\n'
    (tmp_path / "bridge.toml").write_text(text + '[agents_as_tools.team]\nfrom = ["desk"]\n')
    file = tmp_path / "team.mcpb"
    done = run_here(
        "install", "claude-desktop", "--bundle", str(file), str(tmp_path / "bridge.toml"), state=tmp_path
    )
    assert done.returncode == 2
    assert str(tmp_path / "token") in done.stderr
    assert not file.exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("cursor", "--bundle", "x.mcpb", URL), "--bundle is for claude-desktop"),
        (("claude-desktop", "--bundle", "x.mcpb", "--bearer", "env:T", URL), "a bundle has no secrets"),
        (("claude-desktop", "--bundle", "x.mcpb", "--header", "X=y", URL), "leave out --header"),
        (("claude-desktop", "--bundle", "x.mcpb", "--check", URL), "leave out --check"),
        (("claude-desktop", "--bundle", "x.mcpb", "--file", "f", URL), "leave out --file"),
        (("claude-desktop", "--bundle", "x.mcpb", "--scope", "project", URL), "leave out --scope"),
        (("claude-desktop", "--bundle", "x.mcpb", "--mapping", "mine.toml", URL), "--mapping takes a name"),
        (("claude-desktop", "--bundle", "x.mcpb", URL, URL), "the address of one agent"),
        (("claude-desktop", "--bundle", "x.mcpb", "http://me:secret@127.0.0.1:1"), "a password in a URL"),
        (("windsurf", "--link", URL), "--link is for cursor and vscode"),
        (("cursor", "--link", "--header", "X-Key=secret", URL), "would stand in the link"),
        (("cursor", "--link", "--dry-run", URL), "--link writes no file"),
        (("cursor", "--link", "--bearer", "secret", URL), "env:NAME"),
    ],
)
def test_what_would_show_a_secret_or_makes_no_sense_is_refused(
    words: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    given = [str(tmp_path / word) if word == "x.mcpb" else word for word in words]
    done = run_here("install", *given, state=tmp_path, T="secret")
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert not (tmp_path / "x.mcpb").exists()


@pytest.mark.parametrize(("host", "scheme"), [("cursor", "cursor://"), ("vscode", "vscode:mcp/install?")])
def test_a_link_is_printed_alone_and_what_it_writes_beside_it(host: str, scheme: str, tmp_path: Path) -> None:
    done = run_here("install", host, "--link", "--name", "research", URL, state=tmp_path)
    assert done.returncode == 0, done.stderr
    (link,) = done.stdout.splitlines()
    assert link.startswith(scheme)
    assert "asks before it writes this" in done.stderr
    assert f'"{URL}"' in done.stderr
