"""Ready mappings: each is right, and the package in the operator's command chooses it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from bridge.assembly.plan import ServerPlan
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config import ready_mappings
from bridge.config.load import load_text
from bridge.config.ready_mappings import ready_mapping_files, ready_mapping_for
from bridge.errors import ConfigError
from bridge.translate.language.plain_words import phrase_faults
from tests.language.agents import agent, ready_mapping, tools_of

SERVERS = ["everything", "fetch", "filesystem", "git", "memory", "time"]


def test_there_are_ready_mappings_for_six_servers() -> None:
    assert list(ready_mapping_files()) == SERVERS


@pytest.mark.parametrize("server", SERVERS)
def test_each_tool_of_a_ready_mapping_is_a_tool_of_the_server(server: str) -> None:
    listed = {tool.name: tool for tool in tools_of(server)}

    for name, rule in ready_mapping(server).tools.items():
        assert list(phrase_faults(rule.phrases or (), listed[name])) == []
        assert (rule.read_only is True) == (listed[name].annotations["readOnlyHint"] is True), name


@pytest.mark.parametrize("server", SERVERS)
def test_each_example_of_a_ready_mapping_is_on_the_card(server: str) -> None:
    shown = {skill.id: skill.examples or () for skill in agent(server).on_card}

    for name, rule in ready_mapping(server).tools.items():
        examples = rule.examples or ()
        assert len(examples) <= 2
        assert shown[name][: len(examples)] == examples


def servers_of(text: str) -> dict[str, ServerPlan]:
    """The plans of the tool servers of a file."""
    agent_of_all = '[tools_as_agent.all]\nfrom = ["one"]\n'
    return {**plan_from_file(load_text(f"[tool_servers.one]\n{text}\n{agent_of_all}")).servers}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('command = ["npx", "-y", "@modelcontextprotocol/server-memory"]', "memory"),
        ('command = ["npx", "-y", "@modelcontextprotocol/server-memory"]\nknown = true', "memory"),
        ('command = ["npx", "-y", "@modelcontextprotocol/server-memory"]\nknown = false', None),
        ('command = ["npx", "-y", "@evil/server-memory"]', None),
        ('command = ["npx", "-p", "@modelcontextprotocol/server-memory", "mcp-server-memory"]', "memory"),
        ('command = ["npx", "-p", "@modelcontextprotocol/server-memory", "evil"]', None),
        ('command = ["docker", "run", "-i", "--rm", "mcp/time"]', "time"),
        ('command = ["python", "-m", "mcp_server_fetch"]', "fetch"),
        ('command = ["mcp-server-git", "--repository", "/r"]', "git"),
        ('url = "https://example.com/@modelcontextprotocol/server-memory"', None),
    ],
)
def test_the_command_chooses_the_ready_mapping(text: str, name: str | None) -> None:
    ready = servers_of(text)["one"].ready

    assert (None if ready is None else ready.name) == name


@pytest.mark.parametrize(
    "command",
    [
        "npx -y @evil/server-filesystem",
        "npx -y server-filesystem",
        "npx -y @modelcontextprotocol/server-filesystem-x",
        "npx -y @modelcontextprotocol/server-filesystem@npm:evil",
        "npx -y @modelcontextprotocol/server-filesystem@git+https://example.com/evil.git",
        "npx -y @modelcontextprotocol/server-filesystem@../evil",
        "npx -y -p evil -p @modelcontextprotocol/server-filesystem mcp-server-filesystem",
        "npx -c 'evil @modelcontextprotocol/server-filesystem'",
        "npx --node-options=--require=evil @modelcontextprotocol/server-filesystem",
        "npx -y mcp-server-filesystem /tmp",
        "npx",
        "npx -y",
        "npx -p @modelcontextprotocol/server-filesystem",
        "npx -p @modelcontextprotocol/server-filesystem evil",
        "node evil.js @modelcontextprotocol/server-filesystem",
        "node --require ./evil.js node_modules/@modelcontextprotocol/server-filesystem/dist/index.js",
        "node node_modules/@modelcontextprotocol/server-filesystem/node_modules/evil/index.js",
        "node node_modules/@modelcontextprotocol/server-filesystem/../../evil/index.js",
        "node node_modules/@modelcontextprotocol/server-filesystem/node_modules/.bin/evil",
        "node node_modules/@modelcontextprotocol/server-filesystem-x/dist/index.js",
        "node @modelcontextprotocol/server-filesystem/dist/index.js",
        "node node_modules/",
        "sh -c 'npx -y @modelcontextprotocol/server-filesystem'",
        "uvx --from git+https://example.com/evil mcp-server-git",
        "uvx --from evil mcp-server-git",
        "uvx 'mcp-server-git @ https://example.com/evil.whl'",
        "uvx mcp-server-gitx",
        "python -c 'import evil' -m mcp_server_git",
        "python -m mcp_server_git.evil",
        "python evil.py -m mcp_server_git",
        "docker run -i --entrypoint evil mcp/git",
        "docker run -i ghcr.io/mcp/git",
        "docker run -i evil.example.com/mcp/git",
        "docker run -i mcp/git-x",
        "docker run -i evil mcp/git",
        "docker exec -i mcp/git",
        "docker run -i localhost:5000/mcp/git",
        "mcp-server-git-x",
        "cmd npx -y @modelcontextprotocol/server-filesystem",
        "",
    ],
)
def test_a_command_that_only_looks_like_a_known_server_gets_no_ready_mapping(command: str) -> None:
    assert ready_mapping_for(shlex.split(command)) is None


def test_a_server_of_a_hosts_file_gets_its_ready_mapping(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"t": {"command": "uvx", "args": ["mcp-server-time"]}}}))
    loaded = load_text(f'[import]\nmcp_json = {json.dumps(str(file))}\n[tools_as_agent.t]\nfrom = ["t"]\n')

    ready = plan_from_file(loaded).servers["t"].ready

    assert ready is not None
    assert ready.name == "time"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('command = "x"\n[tools.a]\nhidden = true', "unknown key"),
        ('command = "x"\n[tools.a]\nconfirm = false', "unknown key"),
        ('command = "x"\n[tools.a]\nid = "b"', "unknown key"),
        ('command = "x"\n[tools.a]\nphrases = ["{b}"]', "would match every sentence"),
        ("[tools.a]", "`command`"),
    ],
)
def test_a_ready_mapping_can_only_add_words(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "servers"
    folder.mkdir()
    (folder / "x.toml").write_text(text)
    monkeypatch.setattr(ready_mappings, "mappings_folder", lambda: tmp_path)
    ready_mapping_files.cache_clear()
    try:
        with pytest.raises(ConfigError) as refused:
            ready_mapping_for(["x"])
    finally:
        ready_mapping_files.cache_clear()

    assert words in str(refused.value)
