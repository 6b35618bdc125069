"""`mcp-a2a doctor`: the faults of a file or a running bridge, each with the command that mends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bridge.cli.operate.doctor import readiness_in
from tests.support.command import ROOT, WAIT_SECONDS, Wrapping, environment, run_here
from tests.support.files import DEVTOOLS, RAW, started, written
from tests.support.ports import free_port
from tests.support.postgres import database_url, new_agent

HEAD = "[bridge]\nstore = 'tasks.db'\n"
GONE = "[tool_servers.gone]\nurl = 'http://127.0.0.1:9/mcp'\nfail = 'open'\n"
BOTH = "[tools_as_agent.devtools]\nfrom = ['raw', 'gone']\n"
PEOPLE = (
    "[principals.ops]\nbearer = { env = 'OPS' }\noperator = 'answer'\n"
    "[principals.ann]\nbearer = { env = 'ANN' }\n"
)
TOKENS = {"OPS": "ops-token", "ANN": "ann-token"}


def doctor(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    variables = {"XDG_CACHE_HOME": str(folder / "c"), **TOKENS, **more}
    return run_here("doctor", *words, state=folder / "state", folder=folder, **variables)


def told_by(folder: Path, *words: str, **more: str) -> dict[str, Any]:
    done = doctor(folder, "--json", *words, **more)
    told: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if told["ok"] else 1)
    return told


def broken_in(told: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {one["name"]: (one["area"], one["mend"]) for one in told["findings"] if one["grade"] == "bad"}


@contextmanager
def running(folder: Path, *parts: str) -> Iterator[Wrapping]:
    path = written(folder, *parts)
    with started("serve", str(path), "--port", state=folder / "state", until="Try it", **TOKENS) as bridge:
        yield bridge


@contextmanager
def refusing() -> Iterator[str]:
    """The URL of a server that answers everything with 401."""

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *words: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def fails_a_task(folder: Path, bridge: Wrapping, *words: str) -> None:
    done = run_here(
        "call",
        f"http://127.0.0.1:{bridge.port}/agents/devtools",
        "fail",
        *words,
        state=folder / "c",
        **TOKENS,
    )
    assert done.returncode == 1, done.stderr


def test_a_file_without_a_fault_is_well_and_nothing_is_made(tmp_path: Path) -> None:
    written(tmp_path, HEAD, RAW, DEVTOOLS)
    told = told_by(tmp_path)
    assert told["ok"]
    assert {one["area"] for one in told["findings"]} == {"store", "peers", "disk", "clock"}
    assert not list(tmp_path.rglob("*.db"))
    assert doctor(tmp_path).stdout.splitlines()[-1] == "nothing is broken"


def test_each_fault_has_the_command_that_mends_it(tmp_path: Path) -> None:
    (tmp_path / "tasks.devtools.db").write_text(
        "this was never a database, and is long enough to be looked at"
    )
    written(tmp_path, HEAD, RAW, GONE, BOTH)
    told = told_by(tmp_path, "--wait-seconds", "5")
    assert broken_in(told) == {
        "bridge.store": ("store", ""),
        "tool_servers.gone": ("peers", "curl -si http://127.0.0.1:9/mcp"),
    }
    shown = doctor(tmp_path, "--wait-seconds", "5").stdout
    assert "  ✗ tool_servers.gone: " in shown
    assert "      curl -si http://127.0.0.1:9/mcp\n" in shown
    assert shown.splitlines()[-1] == "2 things are broken"


def test_for_a_server_that_answers_401_doctor_names_the_credentials(tmp_path: Path) -> None:
    with refusing() as url:
        locked = f"[tool_servers.locked]\nurl = '{url}/mcp'\nfail = 'open'\n"
        written(tmp_path, HEAD, RAW, locked, BOTH.replace("gone", "locked"))
        (broken,) = broken_in(told_by(tmp_path)).items()
    name, (area, mend) = broken
    assert (name, area) == ("tool_servers.locked", "peers")
    assert mend.startswith("put valid credentials into [tool_servers.locked]")


@pytest.mark.long
def test_a_missing_package_is_the_first_finding(tmp_path: Path) -> None:
    (tmp_path / "missing").mkdir()
    (tmp_path / "missing" / "sitecustomize.py").write_text("import sys; sys.modules['psycopg'] = None")
    written(tmp_path, "[bridge]\nstore = { env = 'DB' }\nkeys = [{ env = 'DB' }]\n", RAW, DEVTOOLS)
    # A process that is forked from another one may have the package already.
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bridge", "doctor", "--json", str(tmp_path / "bridge.toml")],
        env=environment(
            tmp_path,
            PYTHONPATH=os.pathsep.join((str(tmp_path / "missing"), str(ROOT))),
            DB="postgresql:///a-database-that-nobody-looks-for",
        ),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    first, *_ = json.loads(done.stdout)["findings"]
    assert (first["area"], first["name"], first["grade"]) == ("packages", "bridge.store", "bad")
    assert first["words"].startswith("a store in PostgreSQL takes psycopg")


def test_doctor_shows_the_last_failures_beside_a_running_bridge(tmp_path: Path) -> None:
    with running(tmp_path, HEAD, RAW, DEVTOOLS) as bridge:
        fails_a_task(tmp_path, bridge)
        for told in (told_by(tmp_path), told_by(tmp_path, f"http://127.0.0.1:{bridge.port}")):
            assert told["ok"]
        (failure,) = told_by(tmp_path)["failures"]
    assert (failure["agent"], failure["state"]) == ("devtools", "failed")
    assert failure["reason"]
    assert failure["mend"].startswith("mcp-a2a tasks http://127.0.0.1:8080/agents/devtools ")


def test_with_a_url_doctor_shows_an_operator_the_findings_of_the_bridge(tmp_path: Path) -> None:
    with running(tmp_path, HEAD, "operators_see_contents = true\n", RAW, GONE, BOTH, PEOPLE) as bridge:
        url = f"http://127.0.0.1:{bridge.port}"
        fails_a_task(tmp_path, bridge, "--bearer", "env:ANN")
        told = told_by(tmp_path, url, "--bearer", "env:OPS")
        assert broken_in(told) == {"tool_servers.gone": ("peers", "curl -si http://127.0.0.1:9/mcp")}
        (failure,) = told["failures"]
        assert (failure["agent"], failure["state"], bool(failure["reason"])) == ("devtools", "failed", True)
        assert failure["mend"].startswith(f"mcp-a2a tasks {url}/agents/devtools ")
        for name, said in (
            ("ANN", "this token is not an operator's"),
            ("BOB", "does not accept this token (401)"),
        ):
            done = doctor(tmp_path, url, "--bearer", f"env:{name}", BOB="bob-token")
            assert done.returncode == 2
            assert said in done.stderr


def test_with_a_url_and_no_token_doctor_tells_whether_the_bridge_is_ready(tmp_path: Path) -> None:
    with running(tmp_path, HEAD, RAW, DEVTOOLS, PEOPLE) as bridge:
        told = told_by(tmp_path, f"http://127.0.0.1:{bridge.port}")
    assert [one["words"] for one in told["findings"]] == [
        "ready; the token of an operator (--bearer) shows more"
    ]
    assert (told["ok"], told["failures"]) == (True, [])


def test_where_operators_see_no_contents_only_owners_see_reasons_of_failures(tmp_path: Path) -> None:
    with running(tmp_path, HEAD, RAW, DEVTOOLS, PEOPLE) as bridge:
        fails_a_task(tmp_path, bridge, "--bearer", "env:ANN")
        url = f"http://127.0.0.1:{bridge.port}"
        (failure,) = told_by(tmp_path, url, "--bearer", "env:OPS")["failures"]
        assert (failure["reason"], failure["is_withheld"]) == ("", True)


def test_a_url_without_an_answer_is_reported(tmp_path: Path) -> None:
    done = doctor(tmp_path, f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 1
    assert "does not answer as a bridge" in done.stderr


def test_the_address_of_an_agent_is_not_that_of_the_bridge(tmp_path: Path) -> None:
    with running(tmp_path, HEAD, RAW, DEVTOOLS) as bridge:
        done = doctor(tmp_path, f"http://127.0.0.1:{bridge.port}/agents/devtools")
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no bridge at http" in done.stderr
    assert "Give the address without /agents/NAME" in done.stderr


def test_an_answer_that_is_not_json_is_from_no_bridge() -> None:
    assert readiness_in(httpx2.Response(200, text="<html>")) is None
    assert readiness_in(httpx2.Response(404, json={"error": {}})) is None
    assert readiness_in(httpx2.Response(503, json={"status": "not ready"})) == {"status": "not ready"}


def test_options_for_a_url_do_not_go_with_a_file(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--bearer", "env:OPS")
    assert done.returncode == 2
    assert "go with the URL of a bridge" in done.stderr


@pytest.mark.parametrize("line", ["", "public_url = 'https://other.example.com'\n"])
def test_the_replicas_in_a_database_are_shown_with_differences_of_their_plans(
    line: str, tmp_path: Path
) -> None:
    agent = new_agent()
    head = "[bridge]\nstore = { env = 'DATABASE_URL' }\nkeys = [{ env = 'KEY' }]\nreplica_url = 'http://one.example'\n"
    variables = {"DATABASE_URL": database_url(), "KEY": f"{agent}{'k' * 40}"}
    tables = (RAW, f"[tools_as_agent.{agent}]\nfrom = ['raw']\n")
    path = written(tmp_path, head, *tables)
    with started(
        "serve", str(path), "--no-reload", "--port", state=tmp_path / "s", until="Try it", **variables
    ):
        written(tmp_path, head, line, *tables)
        told = told_by(tmp_path, **variables)
    there = {one["name"]: one for one in told["findings"]}
    words = "serves another configuration" if line else "serves the same configuration"
    assert there["http://one.example"]["words"].startswith(words)
    assert there["of the database"]["grade"] == "good"
