"""`mcp-a2a wrap` as a user starts it: its output, its refusals and its stop."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.command import (
    ROOT,
    WAIT_SECONDS,
    Wrapping,
    children_of,
    environment,
    gone,
    run_command,
    run_here,
    wrapping,
)
from tests.support.files import started
from tests.support.forked import Forked
from tests.support.ports import free_port
from tests.support.running import call_part, message

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc to see child processes")


def post(url: str, method: str, params: object, seconds: float = WAIT_SECONDS) -> dict[str, object]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = httpx2.post(url, json=body, headers={"A2A-Version": "1.0"}, timeout=seconds).json()
    assert isinstance(answer, dict)
    return answer


def call(url: str, skill: str, **arguments: object) -> dict[str, object]:
    return post(url, "SendMessage", message(call_part(skill, **arguments)))["result"]["task"]  # type: ignore[index, return-value]


def test_a_start_prints_the_tools_and_the_url(tmp_path: Path) -> None:
    with wrapping(state=tmp_path) as bridge:
        said = "".join(bridge.lines)
        assert "raw 1.2.3" in said
        assert "Gives the text back" in said
        assert f"{bridge.url}/agents/raw/.well-known/agent-card.json" in said
        assert f"{tmp_path}/mcp-a2a/raw-{bridge.port}.db" in said
        assert call(bridge.url, "echo", text="hi")["status"]["state"] == "TASK_STATE_COMPLETED"  # type: ignore[index]
        assert bridge.stop() == 130


def test_the_console_shows_the_options_as_they_were_understood_and_no_secret(tmp_path: Path) -> None:
    with wrapping("--console", "--env", "TOKEN=hidden-1", state=tmp_path) as bridge:
        answer = httpx2.get(f"{bridge.url}/console/configuration.json", timeout=WAIT_SECONDS)
        rows = {
            f"{section['name']}.{row['key']}": (row["value"], row["source"])
            for section in answer.json()["sections"]
            for row in section["values"]
        }
        assert rows["bridge.port"] == (str(bridge.port), "command line --port")
        assert rows["bridge.console"] == ("true", "command line --console")
        (command,) = [one for key, one in rows.items() if key.endswith(".command")]
        assert command[1] == "command line COMMAND"
        assert "hidden-1" not in answer.text
        assert bridge.stop() == 130


def test_the_curl_line_that_it_prints_works(tmp_path: Path) -> None:
    with wrapping(state=tmp_path, start=subprocess.Popen) as bridge:
        line = next(line for line in bridge.lines if "curl -s" in line)
        answer = subprocess.run(["bash", "-c", line], capture_output=True, timeout=WAIT_SECONDS).stdout
        assert json.loads(answer)["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


REFUSED = [
    (["--", "no-such-command"], 2, "cannot start 'no-such-command'"),
    (["--", sys.executable, "-c", "print('hello')"], 1, "before it gave an MCP answer"),
    (["--", sys.executable, "-c", "raise SystemExit('I broke')"], 1, "its last words: I broke"),
    (["--", "localhost:8302"], 2, "did you mean http://localhost:8302?"),
    (["http://127.0.0.1:1/mcp"], 1, "http://127.0.0.1:1/mcp cannot be reached"),
    (["--mapping", "nope", "--", "x"], 2, "there is no mapping profile 'nope'"),
    (["--mapping", "/no/such.toml", "--", "x"], 2, "cannot read the mapping profile /no/such.toml"),
    (["--header", "Authorization=abc", "http://127.0.0.1:1/"], 2, "Authorization is a secret"),
    (["--header", "X-Key=env:NOT_SET", "http://127.0.0.1:1/"], 2, "NOT_SET is not set"),
    (["--header", "X-A=b", "--", "x"], 2, "--header is for a URL"),
    (["--env", "NOT_SET", "--", "x"], 2, "it is not set here"),
    (["--auth", "token", "--", "x"], 2, "--auth takes"),
    (["--host", "0.0.0.0", "--", "x"], 2, "--allow-unauthenticated"),
    (
        ["--store", "memory", "--", sys.executable, "tests/support/raw_server.py"],
        2,
        'or "./memory" for a file of that name',
    ),
    (
        ["--store", "postgresql://x", "--", sys.executable, "tests/support/raw_server.py"],
        2,
        "--store: replicas that share a PostgreSQL must share `keys`, too, which only a file can name",
    ),
    (["--public-url", "bridge.example", "--", "x"], 2, "--public-url takes"),
    (["--port", "99999", "--", "x"], 2, "--port"),
    ([], 2, "Missing argument"),
]


@pytest.mark.proves("cli-usage")
@pytest.mark.parametrize(("arguments", "code", "words"), REFUSED, ids=[row[2] for row in REFUSED])
def test_bad_input_is_one_clear_message(arguments: list[str], code: int, words: str, tmp_path: Path) -> None:
    port = () if "--port" in arguments else ("--port", "0")
    done = run_here("wrap", *port, *arguments, state=tmp_path)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith(("mcp-a2a:", "Error:"))]
    assert len(said) == 1, done.stderr


@pytest.mark.parametrize(
    ("words", "hint"), [(["-y", "server"], "after --"), (["http://a/", "b"], "not both")]
)
def test_a_mixed_up_command_line_gets_a_specific_hint(words: list[str], hint: str, tmp_path: Path) -> None:
    done = run_here("wrap", *words, state=tmp_path)
    assert done.returncode == 2
    assert hint in done.stderr


@pytest.mark.proves("cli-usage")
def test_a_port_in_use_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_command("wrap", "--port", str(port), "--", sys.executable, "-c", "print()", state=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"port {port}" in done.stderr
    assert "PORT" in done.stderr


@pytest.mark.proves("cli-usage", "store-owner")
def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    store = str(tmp_path / "tasks.db")
    with wrapping("--store", store, state=tmp_path):
        server = ("--", sys.executable, str(ROOT / "tests/support/raw_server.py"))
        done = run_command("wrap", "--port", "0", "--store", store, *server, state=tmp_path)
    assert done.returncode == 2
    assert "in use by another bridge" in done.stderr


@pytest.mark.proves("mcp-no-leak", "cli-stop")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_each_signal_ends_the_child_with_the_bridge(name: str, tmp_path: Path) -> None:
    number = getattr(signal, name)  # Windows has no SIGHUP
    with wrapping(state=tmp_path) as bridge:
        children = children_of(bridge.process.pid)
        assert children
        assert bridge.stop(number) == (130 if number == signal.SIGINT else 0)
        assert gone(children)


@pytest.mark.proves("mcp-no-leak")
def test_a_bridge_that_is_killed_leaves_no_child(tmp_path: Path) -> None:
    with wrapping(state=tmp_path) as bridge:
        children = children_of(bridge.process.pid)
        bridge.process.kill()
        bridge.process.wait(WAIT_SECONDS)
        assert gone(children)


@pytest.mark.proves("cli-stop")
def test_the_first_ctrl_c_drains_and_the_second_stops(tmp_path: Path) -> None:
    with wrapping(state=tmp_path) as bridge:
        request = message(call_part("wait"), configuration={"returnImmediately": True})
        task = post(bridge.url, "SendMessage", request)["result"]["task"]  # type: ignore[index]
        waiting: list[dict[str, object]] = []
        watching = threading.Event()
        reader = threading.Thread(target=lambda: waiting.append(stream_end(bridge.url, task["id"], watching)))
        reader.start()
        assert watching.wait(WAIT_SECONDS)
        bridge.process.send_signal(signal.SIGINT)
        bridge.read_until("Stopping")
        refused = post(bridge.url, "SendMessage", message(call_part("echo", text="x")))
        assert refused["error"]["data"][0]["reason"] == "UNAVAILABLE"  # type: ignore[index]
        assert (
            post(bridge.url, "GetTask", {"id": task["id"]})["result"]["status"]["state"]
            == "TASK_STATE_WORKING"
        )  # type: ignore[index]
        assert bridge.stop() == 130
        reader.join(WAIT_SECONDS)
    assert waiting[0]["status"]["state"] == "TASK_STATE_FAILED"  # type: ignore[index]
    assert "stopped" in json.dumps(waiting[0])


def stream_end(url: str, task_id: str, watching: threading.Event) -> dict[str, object]:
    """The last status update of a task's stream; `watching` is set once an event says that it works."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
    events: list[dict[str, Any]] = []
    with httpx2.stream(
        "POST", url, json=body, headers={"A2A-Version": "1.0"}, timeout=WAIT_SECONDS
    ) as response:
        for line in response.iter_lines():
            if line.startswith("data:"):
                events.append(json.loads(line[5:])["result"])
                told = events[-1].get("statusUpdate") or events[-1].get("task") or {}
                if told.get("status", {}).get("state") == "TASK_STATE_WORKING":
                    watching.set()
    return events[-1]["statusUpdate"]  # type: ignore[return-value]


def test_a_free_port_is_printed_and_names_the_store(tmp_path: Path) -> None:
    server = (sys.executable, str(ROOT / "tests/support/raw_server.py"))
    command = [sys.executable, "-P", "-m", "bridge", "wrap", "--port", "0", "--era", "legacy", "--", *server]
    with Forked(command, stderr=subprocess.PIPE, text=True, env=environment(tmp_path)) as process:
        bridge = Wrapping(process, 0)
        bridge.read_until("curl -s")
        (found,) = re.finditer(r"Agent .*127\.0\.0\.1:(\d+)/", "".join(bridge.lines))
        port = int(found[1])
        task = call(f"http://127.0.0.1:{port}", "echo", text="hi")
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"  # type: ignore[index]
        assert f"raw-{port}.db" in "".join(bridge.lines)
        bridge.stop()


def test_a_server_that_takes_too_long_to_start_is_told_with_what_to_change(tmp_path: Path) -> None:
    silent = ("--", sys.executable, "-c", "import sys; sys.stdin.read()")
    done = run_here("wrap", "--port", "0", "--connect-seconds", "0.3", *silent, state=tmp_path)
    assert done.returncode == 1
    assert "is not up within 0.3 s (`connect_seconds` is the limit)" in done.stderr
    assert "its process is waited for up to 300 s (`start_seconds`)" in done.stderr


def test_one_token_for_two_principals_is_refused(tmp_path: Path) -> None:
    options = ("--auth", "ada=bearer:env:TOKEN", "--auth", "bob=bearer:env:TOKEN")
    done = run_here("wrap", *options, "--", "x", state=tmp_path, TOKEN="t")
    assert done.returncode == 2
    assert "--auth: `bob` and `ada` have the same token" in done.stderr


@pytest.mark.proves("web-auth")
def test_tokens_are_read_by_reference_and_asked_for(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cret\n")
    options = ("--auth", f"ada=bearer:file:{secret}", "--auth", "bearer:env:OTHER")
    with wrapping(*options, state=tmp_path, OTHER="t0ken") as bridge:
        body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
        for token, status in (("s3cret", 200), ("t0ken", 200), ("wrong", 401)):
            headers = {"A2A-Version": "1.0", "Authorization": f"Bearer {token}"}
            assert httpx2.post(bridge.url, json=body, headers=headers).status_code == status
        assert "s3cret" not in "".join(bridge.lines)
        card = httpx2.get(f"{bridge.url}/.well-known/agent-card.json").json()
        [(name, scheme)] = card["securitySchemes"].items()
        assert (name, scheme["httpAuthSecurityScheme"]) == ("bearer", {"scheme": "Bearer"})


def test_an_option_can_be_an_environment_variable_and_logs_can_be_json(tmp_path: Path) -> None:
    variables = {"MCP_A2A_WRAP_LOG_FORMAT": "json", "MCP_A2A_WRAP_NAME": "Ada"}
    with wrapping(state=tmp_path, until="serving ada", **variables) as bridge:
        logged = [json.loads(line) for line in bridge.lines]
        assert [entry["message"].partition(" ")[0] for entry in logged] == [
            "connecting",
            "ada:",
            "ada",
            "serving",
        ]
        assert {"level": "info", "logger": "bridge.mcp.client.stderr", "call": "-"}.items() <= logged[
            1
        ].items()
        assert httpx2.get(f"{bridge.url}/.well-known/agent-card.json").json()["name"] == "Ada"


def test_a_server_that_is_down_at_the_start_is_waited_for_where_that_is_wanted(tmp_path: Path) -> None:
    down = f"http://127.0.0.1:{free_port()}/mcp"
    words = ("wrap", "--fail", "open", "--name", "Later", down, "--port")
    with started(*words, state=tmp_path, until="Tasks ") as bridge:
        assert f"{down} cannot be reached" in "".join(bridge.lines)
        card = httpx2.get(f"{bridge.url}/agents/later/.well-known/agent-card.json").json()
        assert "Try it" not in "".join(bridge.lines)
        assert bridge.stop() == 130
    assert card["name"] == "Later"


def test_help_teaches_and_does_not_load_the_sdk(tmp_path: Path) -> None:
    code = (
        "import sys, click\nfrom bridge.cli.main import cli\nctx = click.Context(cli)\n"
        "assert all(cli.get_command(ctx, name) for name in cli.list_commands(ctx))\n"
        "assert not {'mcp', 'httpx2'} & sys.modules.keys(), 'what a command needs is loaded'"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=WAIT_SECONDS).returncode == 0
    said = run_here("wrap", "--help", state=tmp_path).stdout
    assert "npx -y @modelcontextprotocol/server-everything" in said
    assert "--call-timeout-seconds" in said
