"""The entry of a server: its command, its name, and what it must not contain."""

from __future__ import annotations

from pathlib import PurePath, PurePosixPath, PureWindowsPath

import pytest

from bridge.errors import UsageError
from bridge.hosts import entry
from bridge.hosts.entry import Exposed
from bridge.hosts.places import ANY_HOST, HOSTS
from bridge.text import short_names

URL = "https://agent.example.com"


def test_an_entry_says_all_that_expose_needs() -> None:
    exposed = Exposed(
        (URL, "http://b.example/x"),
        "file:token",
        ("X-A=b:c", "X-Key=file:key"),
        api_key="file:api",
        trusted=("https://c.example",),
        mapping="mine.toml",
        granularity="agent",
        answer_within_seconds=30.0,
        allow_private=True,
        dialect="0.1",
    )
    arguments = exposed.arguments(lambda path: f"/home/ada/{path}")
    secrets = (
        "--bearer",
        "file:/home/ada/token",
        "--header",
        "X-A=b:c",
        "--header",
        "X-Key=file:/home/ada/key",
        "--api-key",
        "file:/home/ada/api",
        "--trust",
        "https://c.example",
        "--allow-private",
        "--dialect",
        "0.1",
        "--mapping",
        "/home/ada/mine.toml",
    )
    options = ("--granularity", "agent", "--answer-within-seconds", "30")
    assert arguments == ("expose", *secrets, *options, URL, "http://b.example/x")


@pytest.mark.parametrize("name", HOSTS)
def test_each_host_gets_its_own_form(name: str) -> None:
    typed = {"type": "stdio"} if name in ("claude-code", "cursor", "vscode") else {}
    found = entry.entry_for(("/bin/python", "-m", "bridge"), ("expose", URL), HOSTS[name])
    assert found == {**typed, "command": "/bin/python", "args": ["-m", "bridge", "expose", URL]}


@pytest.mark.parametrize(
    ("executable", "there", "program"),
    [
        (PurePosixPath("/v/bin/python3"), "/v/bin/mcp-a2a", ("/v/bin/mcp-a2a",)),
        (PurePosixPath("/v/bin/python3"), "", ("/v/bin/python3", "-P", "-m", "bridge")),
        (PureWindowsPath(r"C:\v\python.exe"), r"C:\v\mcp-a2a.exe", (r"C:\v\mcp-a2a.exe",)),
        (PureWindowsPath(r"C:\py\python.exe"), r"C:\py\Scripts\mcp-a2a.exe", (r"C:\py\Scripts\mcp-a2a.exe",)),
        (
            PureWindowsPath(r"C:\with space\python.exe"),
            "",
            (r"C:\with space\python.exe", "-P", "-m", "bridge"),
        ),
    ],
)
def test_the_command_beside_python_is_taken_where_there_is_one(
    executable: PurePath, there: str, program: tuple[str, ...]
) -> None:
    assert entry.installed_program(executable, lambda path: str(path) == there) == program


def test_a_temporary_installation_is_recognized() -> None:
    assert entry.is_passing(PurePosixPath("/home/ada/.cache/uv/archive-v0/x1/bin/python"))
    assert not entry.is_passing(PurePosixPath("/home/ada/.local/share/uv/tools/mcp-a2a/bin/python"))


NAMES = [
    ("https://research.example.com", "research"),
    ("https://www.example.com/", "example"),
    ("https://agents.partner.example/.well-known/agent-card.json", "partner"),
    ("http://127.0.0.1:8080/agents/team", "team"),
    ("http://127.0.0.1:8080", "agent-8080"),
    ("http://[::1]:9000/", "agent-9000"),
    ("http://localhost", "agent"),
    ("https://intranet/", "intranet"),
    ("https://agent.com", "agent-com"),
    ("https://x.example/agents/Trip%20Planner_2", "trip-20planner-2"),
    ("https://x.example/agents/a-very-long-name-of-an-agent", "a-very-long-nam-7c23"),
]


@pytest.mark.parametrize(("url", "name"), NAMES, ids=[row[0] for row in NAMES])
def test_a_server_name_comes_from_the_most_specific_part_of_the_url(url: str, name: str) -> None:
    assert short_names.name_for(url) == name
    assert len(name) <= short_names.NAME_LIMIT


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["npx", "-y", "@modelcontextprotocol/server-everything"], "server-everything"),
        (["/opt/venv/bin/python3.12", "-P", "tools/server.py"], "server"),
        (["/srv/weather-server", "--port", "1"], "weather-server"),
        ([r"C:\Program Files\nodejs\npx.cmd", "-y", "@acme/weather"], "weather"),
        (["cmd", "/c", "npx", "-y", "@acme/weather"], "weather"),
        ([r"C:\venv\Scripts\Python.exe", r"D:\tools\server.py"], "server"),
        ([r"C:\tools\weather.exe"], "weather"),
        (["python"], "python"),
    ],
)
def test_a_server_is_named_after_the_package_that_its_command_runs(command: list[str], name: str) -> None:
    assert short_names.name_of(command) == name


@pytest.mark.parametrize("host", [HOSTS["claude-desktop"], HOSTS["cursor"], HOSTS["vscode"], ANY_HOST])
@pytest.mark.parametrize(
    "exposed",
    [
        Exposed((URL,), "env:TOKEN"),
        Exposed((URL,), None, ("X-Key=env:TOKEN",)),
        Exposed((URL,), api_key="env:TOKEN"),
    ],
)
def test_a_host_without_a_shell_gets_no_variable(host: object, exposed: Exposed) -> None:
    with pytest.raises(UsageError, match=r"would not see TOKEN: .*file:PATH in place of env:TOKEN"):
        entry.require_readable(exposed, host)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("exposed", "words"),
    [
        (Exposed(("https://ada:pass@x.example/",)), "a password in a URL"),
        (Exposed((URL,), None, ("X-A=${HOME}",)), "beginning of a variable"),
    ],
)
def test_what_a_host_would_show_or_change_is_refused(exposed: Exposed, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        entry.require_readable(exposed, HOSTS["claude-code"])


def test_a_host_that_passes_no_variables_on_is_told_which_to_pass() -> None:
    found = entry.entry_for(("/bin/mcp-a2a",), ("expose", URL), HOSTS["gemini"], ("TOKEN",))
    assert found["env"] == {"TOKEN": "$TOKEN"}
    assert "env" not in entry.entry_for(("/bin/mcp-a2a",), ("expose", URL), HOSTS["claude-code"], ("TOKEN",))
    with pytest.raises(UsageError, match=r"Gemini CLI reads \$ as the beginning of a variable"):
        entry.require_readable(Exposed((f"{URL}/$HOME",)), HOSTS["gemini"])


def test_what_goes_into_a_yaml_file_is_shown_as_yaml() -> None:
    server = entry.entry_for(("/bin/mcp-a2a",), ("expose", URL), HOSTS["goose"])
    assert entry.yaml_for("research", server, HOSTS["goose"]).splitlines() == [
        "extensions:",
        "  research:",
        '    type: "stdio"',
        '    name: "research"',
        "    enabled: true",
        '    cmd: "/bin/mcp-a2a"',
        f'    args: ["expose", "{URL}"]',
        "    envs: {}",
        "    timeout: 300",
    ]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("Trip Planner", "trip-planner"),
        ("An agent with a very long name", "an-agent-with-a-63ee"),
        ("旅行", ""),
    ],
)
def test_a_name_is_made_of_what_an_agent_is_called(words: str, name: str) -> None:
    assert short_names.name_from(words) == name


def test_a_host_that_starts_from_a_shell_reads_variables() -> None:
    entry.require_readable(Exposed((URL,), "env:TOKEN", ("X-Key=file:/k",)), HOSTS["claude-code"])


@pytest.mark.parametrize(
    ("command", "arguments", "urls"),
    [
        ("/v/bin/mcp-a2a", ["expose", "--bearer", "file:/t", URL], (URL,)),
        (r"C:\v\mcp-a2a.exe", ["expose", URL, "http://b.example"], (URL, "http://b.example")),
        ("uvx", ["mcp-a2a", "expose", URL], (URL,)),
        ("/v/bin/python3", ["-P", "-m", "bridge", "expose", URL], (URL,)),
        ("/v/bin/mcp-a2a", ["wrap", URL], None),
        ("other", ["expose", URL], None),
        ("other", "expose", None),
        (None, [], None),
    ],
)
def test_our_own_entries_are_known(command: object, arguments: object, urls: object) -> None:
    assert entry.urls_of({"command": command, "args": arguments}) == urls  # type: ignore[dict-item]
