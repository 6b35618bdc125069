"""`mcp-a2a show`: the configuration as the bridge reads it, a card, or a list of tools."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from tests.support.command import run_here
from tests.support.files import DEVTOOLS, RAW, TEAM, written
from tests.support.ports import free_port

SECRET = "T0k3n-of-somebody"
ENVIRONMENT = {"TOKEN": SECRET}
WHOLE = (
    "[bridge]\nport = 9000\nstore = 'tasks.db'\nkeys = [{ env = 'TOKEN' }, { file = 'handle.key' }]\n"
    "hosts = ['Bridge.example']\nlog_level = 'error'\nmapping = 'strict'\n",
    RAW,
    "env = { TOKEN = { env = 'TOKEN' }, 'A b' = \"quote \\\" and \\\\ and \\u007f\" }\nfail = 'open'\n",
    "[tool_servers.weather]\nurl = 'http://127.0.0.1:9/mcp'\nheaders = { X-Team = 'blue' }\n"
    "auth = { api_key = { header = 'X-Key', value = { file = 'token' } } }\n",
    "[tools_as_agent.devtools]\nfrom = ['raw', 'weather']\nmapping = './mine.toml'\nskills.add = { name = 'Add' }\n"
    "skills.'w*' = { arguments.a = { default = [1, 'x', { b = true }], hidden = true } }\n",
    "[agents.research]\ncard = 'http://127.0.0.1:9/'\nauth = { bearer = { env = 'TOKEN' } }\n"
    "trust = ['https://a.example']\n",
    "[agents_as_tools.team]\nfrom = ['research', 'devtools']\ntitle = 'The team'\n",
    "[principals.ada]\nbearer = { file = 'token' }\nskills = ['a*', 'team/*']\n",
)


def show(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_here("show", *words, state=tmp_path / "state", folder=tmp_path, **ENVIRONMENT)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A file with most kinds of tables."""
    (tmp_path / "token").write_text("another")
    (tmp_path / "mine.toml").write_text('extends = "default"\n[run]\nconcurrency = 3\n')
    return written(tmp_path, *WHOLE)


def test_the_shown_configuration_is_an_equivalent_file(whole: Path, tmp_path: Path) -> None:
    done = show(tmp_path)
    assert done.returncode == 0, done.stderr
    again = written(tmp_path, done.stdout, name="again.toml")
    assert plan_from_file(load(again, ENVIRONMENT)) == plan_from_file(load(whole, ENVIRONMENT))


def test_no_secret_is_shown(whole: Path, tmp_path: Path) -> None:
    for words in ((), ("--sources",)):
        done = show(tmp_path, *words)
        assert SECRET not in done.stdout
        assert "another" not in done.stdout
        assert 'bearer = { env = "TOKEN" }' in done.stdout


def test_a_key_is_shown_as_the_file_writes_it(whole: Path, tmp_path: Path) -> None:
    keys = [{"env": "TOKEN"}, {"file": str(tmp_path / "handle.key")}]
    assert tomllib.loads(show(tmp_path).stdout)["bridge"]["keys"] == keys


def test_settings_of_profiles_are_shown_as_comments(whole: Path, tmp_path: Path) -> None:
    shown = show(tmp_path).stdout
    assert "# run.concurrency = 3" in shown
    assert "run" not in tomllib.loads(shown)["tools_as_agent"]["devtools"]


def test_each_value_is_followed_by_its_source(whole: Path, tmp_path: Path) -> None:
    lines = show(tmp_path, "--sources").stdout.splitlines()
    assert all(
        re.search(r"  # (default|file \S+:\d+|profile \S+:\d+)$", line) for line in lines if " = " in line
    )
    assert any(re.fullmatch(r"port = 9000 +# file bridge\.toml:2", line) for line in lines)
    assert any(re.fullmatch(r"# run\.concurrency = 3 +# profile \S*mine\.toml:3", line) for line in lines)
    assert any(re.fullmatch(r'host = "127\.0\.0\.1" +# default', line) for line in lines)


def test_servers_of_a_hosts_file_are_shown_as_tables(tmp_path: Path) -> None:
    host = {"mcpServers": {"Raw": {"command": "x", "args": ["y"], "env": {"LEVEL": "high"}}}}
    (tmp_path / "mcp.json").write_text(json.dumps(host))
    written(tmp_path, "[import]\nmcp_json = 'mcp.json'\n[tools_as_agent.devtools]\nfrom = ['raw']\n")
    shown = show(tmp_path).stdout
    assert "high" not in shown
    assert tomllib.loads(shown)["tool_servers"]["raw"]["command"] == ["x", "y"]
    assert "mcp_json" not in tomllib.loads(shown)["import"]


@pytest.mark.parametrize(
    "table",
    [
        "[principals.ada]\nbearer = { env = 'TOKEN' }\nskills = []\n",
        "[catalogs.c]\nurl = 'http://127.0.0.1:9/agents'\ninclude = []\n",
    ],
)
def test_an_empty_list_that_differs_from_the_default_is_shown(table: str, tmp_path: Path) -> None:
    file = written(tmp_path, table)
    done = show(tmp_path)
    assert "= []\n" in done.stdout
    again = written(tmp_path, done.stdout, name="again.toml")
    assert load(again, ENVIRONMENT).config == load(file, ENVIRONMENT).config


def test_masked_values_are_shown_as_comments(tmp_path: Path) -> None:
    variables = "env = { MY_TOKEN = 'hunter2', MODE = 'quiet' }\n"
    url = "[agents.b]\ncard = 'http://127.0.0.1:9/?key=hunter2'\n"
    written(tmp_path, RAW, variables, url)
    shown = show(tmp_path).stdout
    assert "hunter2" not in shown
    assert '# env.MY_TOKEN = "***"\n' in shown
    assert '# card = "http://127.0.0.1:9/"\n' in shown
    assert tomllib.loads(shown)["tool_servers"]["raw"]["env"] == {"MODE": "quiet"}
    assert "card" not in tomllib.loads(shown)["agents"]["b"]


def test_a_default_is_shown_whatever_its_names_are(tmp_path: Path) -> None:
    face = "[tools_as_agent.devtools]\nfrom = ['raw']\nskills.x.arguments.opts.default = { token = 'abc', n = 1 }\n"
    file = written(tmp_path, RAW, face)
    again = written(tmp_path, show(tmp_path).stdout, name="again.toml")
    assert load(again, {}).config == load(file, {}).config


def test_values_from_the_environment_in_a_hosts_file_are_shown_by_their_names(tmp_path: Path) -> None:
    host = {
        "gh": {"command": "true", "args": ["--token", "${TOKEN}", "--api-key", "hunter2"]},
        "web": {"url": "http://127.0.0.1:9/mcp?api_key=${TOKEN}"},
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": host}))
    written(tmp_path, "[import]\nmcp_json = 'mcp.json'\n[tools_as_agent.devtools]\nfrom = ['gh', 'web']\n")
    shown = show(tmp_path).stdout
    assert SECRET not in shown
    assert '# command = ["true", "--token", "${TOKEN}", "--api-key", "***"]\n' in shown
    assert '# url = "http://127.0.0.1:9/mcp"\n' in shown
    assert tomllib.loads(shown)["tool_servers"]["gh"].keys().isdisjoint(("command", "env"))


def test_a_card_is_shown_as_it_would_be_served(tmp_path: Path) -> None:
    public = "[bridge]\npublic_url = 'https://bridge.example'\n"
    principal = "[principals.ada]\napi_key = { env = 'TOKEN' }\n"
    written(tmp_path, public, RAW, DEVTOOLS, "skills.add = { name = 'Add two' }\n", TEAM, principal)
    done = show(tmp_path, "--card", "devtools")
    assert done.returncode == 0, done.stderr
    card = json.loads(done.stdout)
    assert {one["url"] for one in card["supportedInterfaces"]} == {"https://bridge.example/agents/devtools"}
    assert {skill["id"]: skill["name"] for skill in card["skills"]}["add"] == "Add two"
    assert "apiKey" in card["securitySchemes"]


def test_tools_are_shown_as_hosts_would_see_them(tmp_path: Path) -> None:
    written(tmp_path, RAW, DEVTOOLS, TEAM, "tools.add = { name = 'plus' }\n")
    done = show(tmp_path, "--tools", "team")
    assert done.returncode == 0, done.stderr
    tools = {tool["name"]: tool for tool in json.loads(done.stdout)["tools"]}
    assert {"echo", "plus", "task_result"} <= tools.keys()
    assert tools["plus"]["inputSchema"]["required"] == ["a", "b"]


def test_output_that_lacks_a_server_that_is_down_is_reported_as_incomplete(tmp_path: Path) -> None:
    gone = f"[tool_servers.gone]\nurl = 'http://127.0.0.1:{free_port()}/mcp'\n"
    written(tmp_path, RAW, gone, "[tools_as_agent.devtools]\nfrom = ['raw', 'gone']\n", TEAM)
    for words in (("--card", "devtools"), ("--tools", "team")):
        done = show(tmp_path, *words)
        assert done.returncode == 1
        assert "echo" in done.stdout
        assert "incomplete, because this cannot be called: gone: " in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--card", "devtool"], "there is no [tools_as_agent.devtool]: did you mean `devtools`?"),
        (["--tools", "devtools"], "there is no [agents_as_tools.devtools]"),
        (["--tools", "team", "--card", "devtools"], "not both"),
        (["--sources", "--card", "devtools"], "--sources is about the file"),
    ],
)
def test_what_cannot_be_shown_is_refused(words: list[str], said: str, tmp_path: Path) -> None:
    written(tmp_path, RAW, DEVTOOLS, TEAM)
    done = show(tmp_path, *words)
    assert done.returncode == 2
    assert said in done.stderr
