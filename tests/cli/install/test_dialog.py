"""`mcp-a2a install` without arguments, at a terminal: what it finds, what it asks, and where a token goes."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cli.call.test_command import Terminal, at_terminal
from tests.support.files import DEVTOOLS, RAW, an_agent, started, written

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the places of the other systems are in test_places"
)
TOKEN = "s3cret-token"
ADDRESS = "Address of the agent (https://...):"
SECRET = "Token for it (not shown; Enter for none):"
FILES = {".cursor": ".cursor/mcp.json", ".config/zed": ".config/zed/settings.json"}
VSCODE = ".config/Code/User"


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """An agent that lets everybody in."""
    with an_agent() as url:
        yield url


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An agent that lets in every client with the token."""
    folder = tmp_path_factory.mktemp("locked")
    file = written(folder, RAW, DEVTOOLS, "[principals.ann]\nbearer = { env = 'ANN' }\n")
    with started("serve", str(file), "--port", state=folder, until="/agents/devtools", ANN=TOKEN) as bridge:
        yield f"{bridge.url}/agents/devtools"


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An agent that lets in every client with the API key."""
    folder = tmp_path_factory.mktemp("keyed")
    file = written(folder, RAW, DEVTOOLS, "[principals.ann]\napi_key = { env = 'ANN' }\n")
    with started("serve", str(file), "--port", state=folder, until="/agents/devtools", ANN=TOKEN) as bridge:
        yield f"{bridge.url}/agents/devtools"


@asynccontextmanager
async def dialog(home: Path, *folders: str) -> AsyncIterator[Terminal]:
    """The command on a machine that has the hosts of these folders."""
    for folder in folders:
        (home / folder).mkdir(parents=True)
    places = {"HOME": str(home), "XDG_CONFIG_HOME": "", "CLAUDE_CONFIG_DIR": ""}
    async with at_terminal(state=home / "state", results=True, name="install", **places) as terminal:
        yield terminal


async def answered(terminal: Terminal, *asked: tuple[str, str]) -> None:
    """Wait for the words of each question, and type its answer."""
    for words, answer in asked:
        await terminal.until(words)
        terminal.type(f"{answer}\n")


@pytest.mark.long
async def test_hosts_an_agent_and_a_name_are_asked_for(agent: str, tmp_path: Path) -> None:
    async with dialog(tmp_path, *FILES) as terminal:
        await answered(
            terminal,
            ("[1]", "7"),
            ("Type a number from 1 to 2.", "1,2"),
            (ADDRESS, "http://127.0.0.1:1"),
            ("cannot be reached", f"{agent}/.well-known/agent-card.json"),
            ("Name of the server in the host [echo]:", "a b"),
            ("at most 64 letters", ""),
            (SECRET, ""),
            ("[Y/n]", ""),
        )
        done = await terminal.end()
    assert done.code == 0, done.err
    for file, key in zip(FILES.values(), ("mcpServers", "context_servers"), strict=True):
        assert json.loads((tmp_path / file).read_text())[key]["echo"]["args"] == ["expose", agent]
        assert f"echo is now in {tmp_path / file}" in done.err
    assert not (tmp_path / "state" / "mcp-a2a" / "tokens").exists()


async def test_a_token_is_tried_and_hidden_and_kept_in_a_private_file(locked: str, tmp_path: Path) -> None:
    async with dialog(tmp_path, ".cursor") as terminal:
        await answered(
            terminal,
            ("[1]", ""),
            (ADDRESS, locked),
            ("Name of the server", "mine"),
            (SECRET, ""),
        )
        for fault, token in (
            ("asks for credentials", "wr0ng"),
            ("The agent does not take the token: HTTP 401. (Ctrl+D", TOKEN),
        ):
            await terminal.until(fault)
            await answered(terminal, (SECRET, token))
        await answered(terminal, ("[Y/n]", "y"))
        done = await terminal.end()
    file = tmp_path / "state" / "mcp-a2a" / "tokens" / "mine"
    assert done.code == 0, done.err
    assert (TOKEN in done.err, "wr0ng" in done.err) == (False, False)
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == (TOKEN, 0o600)
    written = (tmp_path / ".cursor" / "mcp.json").read_text()
    assert json.loads(written)["mcpServers"]["mine"]["args"] == ["expose", "--bearer", f"file:{file}", locked]


@pytest.mark.long
async def test_an_api_key_is_asked_for_and_one_broken_file_takes_no_other_host(
    keyed: str, tmp_path: Path
) -> None:
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text("{")
    async with dialog(tmp_path, ".config/zed") as terminal:
        await answered(
            terminal,
            ("[1]", "1, 2"),
            (ADDRESS, keyed),
            ("Name of", "mine"),
            ("API key for it (not shown; Enter for none):", TOKEN),
            ("[Y/n]", ""),
        )
        done = await terminal.end()
    assert done.code == 2, done.err
    said = " ".join(done.err.split())  # lines are wrapped at a terminal
    assert f"Cursor: {tmp_path}/.cursor/mcp.json: it is not valid JSON" in said
    assert (tmp_path / ".cursor" / "mcp.json").read_text() == "{"
    file = tmp_path / "state" / "mcp-a2a" / "tokens" / "mine"
    servers = json.loads((tmp_path / ".config" / "zed" / "settings.json").read_text())["context_servers"]
    assert servers["mine"]["args"] == ["expose", "--api-key", f"file:{file}", keyed]
    assert (file.read_text(), TOKEN in done.err) == (TOKEN, False)


@pytest.mark.long
async def test_a_host_that_keeps_secrets_asks_for_the_token_itself(locked: str, tmp_path: Path) -> None:
    async with dialog(tmp_path, VSCODE) as terminal:
        await answered(
            terminal, ("[1]", ""), (ADDRESS, locked), ("Name of", "mine"), (SECRET, TOKEN), ("[Y/n]", "")
        )
        done = await terminal.end()
    assert done.code == 0, done.err
    assert "VS Code asks for the token when it first starts mine, and keeps it." in done.err
    text = (tmp_path / VSCODE / "mcp.json").read_text()
    assert TOKEN not in text + done.err
    document = json.loads(text)
    assert document["inputs"] == [
        {"type": "promptString", "id": "mine-token", "description": "The token of mine", "password": True}
    ]
    assert document["servers"]["mine"]["env"] == {"MINE_TOKEN": "${input:mine-token}"}
    assert document["servers"]["mine"]["args"] == ["expose", "--bearer", "env:MINE_TOKEN", locked]
    assert not (tmp_path / "state" / "mcp-a2a" / "tokens").exists()


@pytest.mark.parametrize("answers", [("\x04",), ("1\n", "\x04"), ("1\n", "URL\n", "x\n", "\n", "n\n")])
async def test_ending_the_dialog_changes_nothing(
    answers: tuple[str, ...], agent: str, tmp_path: Path
) -> None:
    async with dialog(tmp_path, ".cursor") as terminal:
        for words, answer in zip(("[1]", ADDRESS, "Name of", SECRET, "[Y/n]"), answers, strict=False):
            await terminal.until(words)
            terminal.type(answer.replace("URL", agent))
        done = await terminal.end()
    assert done.code == 130
    assert "Nothing was written." in done.err
    assert not (tmp_path / ".cursor" / "mcp.json").exists()


async def test_a_machine_without_hosts_is_told_of_mcp_json(tmp_path: Path) -> None:
    async with dialog(tmp_path) as terminal:
        done = await terminal.end()
    assert done.code == 2
    assert "`mcp-a2a install mcp-json URL` prints the server for any other host" in done.err
