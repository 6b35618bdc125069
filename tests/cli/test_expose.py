"""`mcp-a2a expose` as a host or a user starts it: its output, its refusals and its stop."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.support.addresses import a_web_page, an_mcp_server
from tests.support.command import ROOT, WAIT_SECONDS, environment, run_command, run_here
from tests.support.forked import Forked
from tests.support.lines import Lines, first_line
from tests.support.ports import free_port

INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class Host:
    """A host that speaks to the command over its pipes, a line at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.number = 0
        self.out = Lines(process, process.stdout)
        self.errors = Lines(process, process.stderr)

    def send(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> None:
        """Write one message."""
        assert self.process.stdin is not None
        self.process.stdin.write(
            json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}, **more}) + "\n"
        )
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer to a request; every line before it has to be of the protocol too."""
        self.number += 1
        self.send(method, params, id=self.number)
        while True:
            message = self._message()
            if message.get("id") == self.number:
                return message

    def hear(self, method: str) -> None:
        """Wait until the server says so by itself."""
        while self._message().get("method") != method:
            pass

    def _message(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.out.until("\n"))
        assert message["jsonrpc"] == "2.0"
        return message

    def open(self) -> Host:
        """Shake hands."""
        assert self.ask("initialize", INITIALIZE)["result"]["capabilities"]["tools"] is not None
        self.send("notifications/initialized")
        return self

    def tools(self) -> list[dict[str, Any]]:
        """The tools that are listed."""
        found: list[dict[str, Any]] = self.ask("tools/list")["result"]["tools"]
        return found

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The result of a call."""
        result: dict[str, Any] = self.ask("tools/call", {"name": name, "arguments": arguments})["result"]
        return result


@contextmanager
def expose(*arguments: str, state: Path, start: type[subprocess.Popen[str]] = Forked) -> Iterator[Host]:
    """Start `mcp-a2a expose` over stdio."""
    with start(
        [sys.executable, "-P", "-m", "bridge", "expose", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        env=environment(state, XDG_CACHE_HOME=str(state / "cache")),
    ) as process:
        try:
            yield Host(process)
        finally:
            if process.poll() is None:
                process.kill()


@contextmanager
def an_agent(port: int = 0) -> Iterator[str]:
    """A foreign agent in a process of its own; its URL."""
    command = [sys.executable, "-m", "tests.peers.echo_agent", "--port", str(port)]
    with Forked(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as agent:
        try:
            yield first_line(agent)
        finally:
            agent.kill()


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """A foreign agent for all tests of this file."""
    with an_agent() as url:
        yield url


def words_of(result: dict[str, Any]) -> str:
    """The text of a result."""
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


def serving_at(host: Host) -> str:
    """Wait for the URL that a command with --http prints."""
    url = next(word for word in host.errors.until("\n").split() if word.startswith("http://"))
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", urlsplit(url).port or 0)) == 0:
                return url
        assert time.monotonic() < deadline
        time.sleep(0.01)


def dead_url() -> str:
    """Where nobody listens."""
    return f"http://127.0.0.1:{free_port()}"


def test_stdout_carries_nothing_but_the_protocol(agent: str, tmp_path: Path) -> None:
    with expose("--log-level", "debug", agent, dead_url(), state=tmp_path, start=subprocess.Popen) as host:
        host.open()
        assert "echo" in {tool["name"] for tool in host.tools()}
        assert words_of(host.call("echo", message="hi")).startswith("hi")
        assert host.ask("nonsense")["error"]["code"] == -32601
        assert host.process.stdin is not None
        host.process.stdin.close()
        host.out.rest()
        host.errors.rest()
        assert host.process.wait(WAIT_SECONDS) == 0
    for line in host.out.said:
        assert json.loads(line)["jsonrpc"] == "2.0"
    err = "".join(host.errors.said)
    assert "cannot be reached" in err
    assert "Traceback" not in err


@pytest.mark.long
def test_over_stdio_it_loads_nothing_that_it_does_not_serve_with(agent: str, tmp_path: Path) -> None:
    others = (
        "bridge.tools_as_agent",
        "bridge.store",
        "bridge.a2a.tasks.engine",
        "bridge.hosts",
        "bridge.cli.call",
    )
    code = (
        "import sys\nfrom bridge.cli.main import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print(sorted({{'rich', 'sqlite3', 'bridge.process.serve', *{others!r}}} & sys.modules.keys()),"
        " file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "expose", agent],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        env=environment(tmp_path, XDG_CACHE_HOME=str(tmp_path)),
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_an_agent_that_is_down_neither_holds_up_the_start_nor_the_others(agent: str, tmp_path: Path) -> None:
    with expose(agent, dead_url(), state=tmp_path) as host:
        host.open()
        names = {tool["name"] for tool in host.tools()}
        assert names == {"echo", "task_result", "task_reply", "task_cancel"}
        assert not host.call("echo", message="hi").get("isError")


@pytest.mark.parametrize("options", [(), ("--http", "--port", "0")], ids=["stdio", "http"])
def test_an_address_without_an_agent_is_reported_with_what_answers_there(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    with an_mcp_server() as server, a_web_page() as page:
        done = run_here("expose", *options, server, page, state=tmp_path, XDG_CACHE_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"mcp-a2a: {server} is not an A2A agent. It is an MCP server: " in done.stderr
    assert f"{page} is not an A2A agent. It is a web page. " in done.stderr
    assert "Traceback" not in done.stderr


def test_an_agent_is_served_beside_an_address_without_an_agent(agent: str, tmp_path: Path) -> None:
    with a_web_page() as page, expose(page, agent, state=tmp_path) as host:
        assert "echo" in {tool["name"] for tool in host.open().tools()}


def test_the_tools_of_an_agent_that_comes_up_later_are_listed_then(tmp_path: Path) -> None:
    port = free_port()
    with expose(f"http://127.0.0.1:{port}", state=tmp_path) as host:
        host.open()
        assert {tool["name"] for tool in host.tools()} == {"task_result", "task_reply", "task_cancel"}
        with an_agent(port):
            host.hear("notifications/tools/list_changed")
            assert "echo" in {tool["name"] for tool in host.tools()}
            assert not host.call("echo", message="hi").get("isError")


def test_an_agent_that_is_down_at_the_next_start_has_the_tools_it_had(tmp_path: Path) -> None:
    with an_agent() as url, expose(url, state=tmp_path) as host:
        before = host.open().tools()
    assert "echo" in {tool["name"] for tool in before}
    with expose(url, state=tmp_path) as host:
        assert host.open().tools() == before
        result = host.call("echo", message="hi")
        assert result["isError"]
        assert "cannot be reached" in words_of(result)


@pytest.mark.any_loop
@pytest.mark.parametrize("options", [(), ("--http", "--port", "0")], ids=["stdio", "http"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
@pytest.mark.smoke("2-130-stdio", "15-0-http")
def test_a_signal_ends_it(
    number: int, code: int, options: tuple[str, ...], agent: str, tmp_path: Path
) -> None:
    with expose(*options, agent, state=tmp_path) as host:
        if options:
            host.errors.until("Ctrl+C stops")
        else:
            host.open()
        host.process.send_signal(number)
        assert host.process.wait(WAIT_SECONDS) == code
        host.errors.rest()
        assert not [line for line in host.errors.said if "Traceback" in line]


def test_over_http_it_says_where_it_serves(agent: str, tmp_path: Path) -> None:
    with expose("--http", "--port", "0", agent, state=tmp_path) as host:
        url = serving_at(host)
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
        headers = {"accept": "application/json, text/event-stream"}
        assert httpx2.post(url, json=body, headers=headers).status_code == 200
        foreign = {**headers, "origin": "https://evil.example"}
        assert httpx2.post(url, json=body, headers=foreign).status_code == 403
        host.process.send_signal(signal.SIGINT)
        assert host.process.wait(WAIT_SECONDS) == 130
        host.out.rest()
        assert host.out.said == []


REFUSED = [
    ([], "Missing argument"),
    (["nonsense"], "http(s) URL, not 'nonsense'"),
    (["localhost:8302"], "did you mean http://localhost:8302?"),
    (["ftp://agent.example"], "http(s) URL, not 'ftp://agent.example'"),
    (["--bearer", "secret", "http://127.0.0.1:1"], "--bearer takes env:NAME or file:PATH"),
    (["--api-key", "secret", "http://127.0.0.1:1"], "--api-key takes env:NAME or file:PATH"),
    (["--bearer", "env:NOT_SET", "http://127.0.0.1:1"], "NOT_SET is not set"),
    (["--header", "Authorization=abc", "http://127.0.0.1:1"], "Authorization is a secret"),
    (["--mapping", "nope", "http://127.0.0.1:1"], "there is no mapping profile 'nope'"),
    (["--answer-within-seconds", "0", "http://127.0.0.1:1"], "--answer-within-seconds"),
    (["--granularity", "tool", "http://127.0.0.1:1"], "--granularity"),
    (["--http", "--host", "0.0.0.0", "http://127.0.0.1:1"], "--allow-unauthenticated"),
    (["--http", "--auth", "token", "http://127.0.0.1:1"], "--auth takes"),
    (["http://"], "'http://' has no host"),
    (["http://a.example:99999"], "Port out of range"),
    (["--trust", "nonsense", "http://127.0.0.1:1"], "'nonsense' has no host"),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED, ids=[row[1] for row in REFUSED])
def test_bad_input_is_one_clear_message(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = run_here("expose", *arguments, state=tmp_path, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith(("mcp-a2a:", "Error:"))]
    assert len(said) == 1, done.stderr


def test_its_help_names_every_option(tmp_path: Path) -> None:
    done = run_command("expose", "--help", state=tmp_path)
    assert done.returncode == 0
    for option in ("--http", "--granularity", "--bearer", "--answer-within-seconds", "AGENT_URL"):
        assert option in done.stdout


def test_a_token_is_asked_for_with_auth(agent: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret-token\n")
    with expose("--http", "--port", "0", "--auth", f"bearer:file:{token}", agent, state=tmp_path) as host:
        url = serving_at(host)
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
        headers = {"accept": "application/json, text/event-stream"}
        assert httpx2.post(url, json=body, headers=headers).status_code == 401
        known = {**headers, "authorization": "Bearer s3cret-token"}
        assert httpx2.post(url, json=body, headers=known).status_code == 200
