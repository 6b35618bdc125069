"""`--print-toml` and `--from-json`: command lines as files, and hosts' files as command lines."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.assembly.plan import Plan, RemotePlan, ServerPlan
from bridge.assembly.plan_from_file import plan_from_file
from bridge.cli import expose, option_document, wrap
from bridge.config.load import load
from bridge.identity.logins.later_login import LaterLogin
from bridge.mcp.client.transports.streamable_http import HttpTarget
from tests.support.command import run_here
from tests.support.files import started
from tests.support.running import RAW_SERVER

ENVIRONMENT = {"TOKEN": "T0k3n", "OTHER": "another"}
URL = "https://tools.example.com/mcp"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "secret").write_text("in-a-file")
    (tmp_path / "mine.toml").write_text('extends = "default"\n[run]\nconcurrency = 3\n')


def printed(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = run_here(*words, state=tmp_path / "state", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for secret in (*ENVIRONMENT.values(), "in-a-file"):
        assert secret not in done.stdout
    return done


def plan_of_file(tmp_path: Path, text: str) -> Plan:
    path = tmp_path / "elsewhere" / "bridge.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return plan_from_file(load(path, ENVIRONMENT))


def plan_of_options(command: Any, *words: str) -> Plan:
    with command.make_context(command.name, list(words)) as context:
        if command.name == "wrap":
            plan = wrap.plan_from(option_document.wrapped(context.params), context.params)
        else:
            plan = expose.plan_from(option_document.exposed(context.params), context.params)
    assert isinstance(plan, Plan)
    return as_a_file_can_say(plan)


def as_a_file_can_say(plan: Plan) -> Plan:
    """The plan of options without the logins of its URLs, because logins of a file are by name."""

    def server(one: ServerPlan) -> ServerPlan:
        target = one.target
        is_later = isinstance(target, HttpTarget) and isinstance(target.oauth, LaterLogin)
        return replace(one, target=replace(target, oauth=None)) if is_later else one  # type: ignore[arg-type]

    def agent(one: RemotePlan) -> RemotePlan:
        return replace(one, tokens=None) if isinstance(one.tokens, LaterLogin) else one

    return replace(
        plan,
        servers={name: server(one) for name, one in plan.servers.items()},
        agents={name: agent(one) for name, one in plan.agents.items()},
    )


WRAPPED = [
    ["--name", "raw", "--", "python", "server.py", "--x"],
    ["--name", "My tools!", "--description", "Does", "--port", "9000", "--host", "::1", URL],
    ["--name", "a", "--header", "Authorization=env:TOKEN", "--header", "X-Team=blue", "--era", "modern", URL],
    ["--name", "a", "--header", "X-Key=file:secret", "--store", "memory:", "--log-format", "json", URL],
    ["--name", "a", "--env", "TOKEN", "--env", "LEVEL=3", "--mapping", "mine.toml", "--", "x", 'a "b"'],
    [
        "--name",
        "a",
        "--auth",
        "bearer:env:TOKEN",
        "--auth",
        "ada=bearer:file:secret",
        "--mapping",
        "strict",
        URL,
    ],
    ["--name", "a", "--allow-private", URL],
    ["--name", "a", "--connect-seconds", "90", URL],
    ["--name", "a", "--connect-seconds", "90", "--fail", "open", "--", "x"],
    ["--name", "a", "--public-url", "https://b.example/x/", "--allow-host", "A.example", URL],
    ["--name", "a", "--host", "0.0.0.0", "--allow-unauthenticated", "--fail", "open", URL],
]


@pytest.mark.parametrize("words", WRAPPED, ids=" ".join)
def test_wrap_prints_a_file_with_an_equal_plan(words: list[str], tmp_path: Path) -> None:
    done = printed(tmp_path, "wrap", "--print-toml", *words)
    assert plan_of_file(tmp_path, done.stdout) == plan_of_options(wrap.wrap, *words)


def test_the_servers_of_a_hosts_file_are_allowed_private_addresses_by_the_option_alone(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"a": {"url": URL}, "b": {"command": "x"}}}))
    words = ["--from-json", str(file), "--allow-private"]
    targets = [one.target for one in plan_of_options(wrap.wrap, *words).servers.values()]
    assert [isinstance(one, HttpTarget) and (one.allow_private, one.on_command_line) for one in targets] == [
        (True, True),
        False,
    ]
    done = run_here("wrap", "--print-toml", *words, state=tmp_path, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "with `allow_private = true`" in done.stderr


def test_allow_private_is_refused_for_a_command(tmp_path: Path) -> None:
    for words in ["wrap", "--allow-private"], ["call", "--allow-private", "tool"]:
        done = run_here(*words, "--", "python", state=tmp_path, folder=tmp_path)
        assert done.returncode == 2
        assert "--allow-private is for a URL" in done.stderr


def test_an_agent_without_a_name_is_named_after_its_server(tmp_path: Path) -> None:
    found = tomllib.loads(
        printed(tmp_path, "wrap", "--print-toml", "--", "npx", "-y", "@a/some-server").stdout
    )
    assert found["tools_as_agent"] == {"some-server": {"from": ["some-server"]}}


def test_the_call_timeout_applies_to_every_skill(tmp_path: Path) -> None:
    done = printed(tmp_path, "wrap", "--print-toml", "--call-timeout-seconds", "5", "--name", "a", URL)
    (override,) = plan_of_file(tmp_path, done.stdout).published["a"].overrides.items()
    assert (override[0], override[1].call_timeout_seconds) == ("*", 5)


def test_a_likely_secret_is_read_from_a_variable_with_a_remark(tmp_path: Path) -> None:
    done = printed(tmp_path, "wrap", "--print-toml", "--env", "API_TOKEN=hunter2", "--", "x")
    assert "hunter2" not in done.stdout + done.stderr
    assert 'API_TOKEN = { env = "API_TOKEN" }' in done.stdout
    assert "so set it" in done.stderr


def test_the_store_of_a_printed_file_is_reported(tmp_path: Path) -> None:
    done = printed(tmp_path, "wrap", "--print-toml", "--store", "t.db", "--name", "a", URL)
    store = plan_of_file(tmp_path, done.stdout).published["a"].store
    assert store == str(tmp_path / "t.a.db")
    assert store in done.stderr


EXPOSED = [
    [URL],
    ["--http", "--port", "9001", "--auth", "bearer:env:OTHER", "--bearer", "env:TOKEN", URL],
    [
        "--name",
        "Team",
        "--api-key",
        "file:secret",
        "--header",
        "X-A=b",
        "--trust",
        "https://C.example:443",
        URL,
    ],
    ["--allow-private", "--dialect", "0.1", "https://a.example/x"],
    ["--http", "--public-url", "https://tools.example.com", URL],
    ["--mapping", "mine.toml", "https://a.example/x", "http://a.example/x", "http://127.0.0.1:81"],
]


@pytest.mark.parametrize("words", EXPOSED, ids=" ".join)
def test_expose_prints_a_file_with_an_equivalent_plan(words: list[str], tmp_path: Path) -> None:
    """A file calls agents by names of its own, and a server by its own name."""
    asked = plan_of_options(expose.expose, *words)
    ((name, one),) = asked.offered.items()
    same = replace(one, named=True, server_name=None, requires_an_agent=False)
    of_file = plan_of_file(tmp_path, printed(tmp_path, "expose", "--print-toml", *words).stdout)
    assert of_file == replace(asked, offered={name: same})


def test_an_option_for_profiles_only_is_refused_with_the_way_to_set_it(tmp_path: Path) -> None:
    done = run_here("expose", "--print-toml", "--granularity", "agent", URL, state=tmp_path, folder=tmp_path)
    assert done.returncode == 2
    assert 'granularity = "agent"' in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--auth", "Ada=bearer:env:TOKEN"], "small letters"),
        (["--auth", "a=bearer:env:TOKEN", "--auth", "a=bearer:env:OTHER"], "one token in a file"),
    ],
)
def test_principals_that_a_file_cannot_have_are_refused(words: list[str], said: str, tmp_path: Path) -> None:
    done = run_here("wrap", "--print-toml", *words, URL, state=tmp_path, folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize("command", ["wrap", "expose"])
def test_a_password_in_a_url_is_never_printed(command: str, tmp_path: Path) -> None:
    done = run_here(command, "--print-toml", "https://ada:hunter2@a.example", state=tmp_path, folder=tmp_path)
    assert done.returncode == 2
    assert "hunter2" not in done.stdout + done.stderr


# Hosts' files


def host_file(tmp_path: Path) -> Path:
    servers = {
        "Raw One": {"command": sys.executable, "args": [str(RAW_SERVER)], "env": {"A_TOKEN": "hunter2"}},
        "two": {"command": sys.executable, "args": [str(RAW_SERVER), "--pages", "2"]},
        "odd": {"command": "${input:what}"},
        "off": {"command": "x", "disabled": True},
    }
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def test_the_servers_of_a_host_are_one_agent(tmp_path: Path) -> None:
    host_file(tmp_path)
    chosen = ("--from-json", "mcp.json", "--only", "two", "--only", "Raw One")
    text = printed(tmp_path, "wrap", "--print-toml", *chosen).stdout
    assert "hunter2" not in text
    of_file, asked = plan_of_file(tmp_path, text), plan_of_options(wrap.wrap, *chosen)
    assert set(asked.servers) == {"raw-one", "two"}
    assert asked.published["tools"].servers == ("raw-one", "two")
    assert of_file == asked
    one = plan_of_options(wrap.wrap, "--from-json", "mcp.json", "--only", "two")
    assert list(one.published) == ["two"]


def test_a_well_known_server_gets_its_ready_mapping_unless_an_option_says_no(tmp_path: Path) -> None:
    command = ("--", "uvx", "mcp-server-time")
    (taken,) = plan_of_options(wrap.wrap, *command).servers.values()
    (left_out,) = plan_of_options(wrap.wrap, "--no-known", *command).servers.values()
    assert taken.ready is not None
    assert taken.ready.name == "time"
    assert left_out.ready is None
    text = printed(tmp_path, "wrap", "--print-toml", "--no-known", *command).stdout
    assert "known = false" in text
    (of_file,) = plan_of_file(tmp_path, text).servers.values()
    assert of_file.ready is None


def test_a_hosts_file_cannot_leave_a_ready_mapping_out_but_the_option_does(tmp_path: Path) -> None:
    servers = {"time": {"command": "uvx", "args": ["mcp-server-time"]}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    words = ("--from-json", "mcp.json", "--no-known")
    assert [one.ready for one in plan_of_options(wrap.wrap, *words).servers.values()] == [None]
    done = run_here("wrap", "--print-toml", *words, state=tmp_path, folder=tmp_path)
    assert done.returncode == 2
    assert "a host's file cannot say --no-known" in done.stderr


def test_the_servers_of_a_hosts_file_may_take_as_long_as_the_option_says(tmp_path: Path) -> None:
    host_file(tmp_path)
    chosen = ("--from-json", "mcp.json", "--only", "two", "--connect-seconds", "90")
    servers = plan_of_options(wrap.wrap, *chosen).servers.values()
    assert {one.settings.connect_seconds for one in servers} == {90}
    done = run_here("wrap", "--print-toml", *chosen, state=tmp_path, folder=tmp_path)
    assert done.returncode == 2
    assert "a host's file cannot say --connect-seconds" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from-json", "mcp.json"], "${input:what} can be filled in only by the host"),
        (["--from-json", "mcp.json", "--only", "tow"], "no server 'tow': did you mean `two`?"),
        (["--from-json", "mcp.json", "--only", "two", URL], "does not go with a URL or command"),
        (["--from-json", "mcp.json", "--only", "two", "--env", "A=b"], "does not go with --env"),
        (["--from-json", "mcp.json", "--only", "two", "--era", "legacy"], "--era is for one server"),
        (["--from-json", "none.json"], "cannot read the servers of a host"),
        (["--only", "two", URL], "--only is for --from-json"),
    ],
)
def test_what_cannot_be_taken_from_a_hosts_file_is_refused(
    words: list[str], said: str, tmp_path: Path
) -> None:
    host_file(tmp_path)
    done = run_here("wrap", *words, state=tmp_path, folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr


def test_the_servers_of_a_host_are_served(tmp_path: Path) -> None:
    servers = {"raw": {"command": sys.executable, "args": [str(RAW_SERVER)]}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    words = ("wrap", "--from-json", str(tmp_path / "mcp.json"), "--port")
    with started(*words, state=tmp_path, until="curl -s") as bridge:
        assert f"{bridge.url}/agents/raw" in "".join(bridge.lines)
