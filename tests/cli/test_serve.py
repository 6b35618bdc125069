"""`mcp-a2a serve` as a user starts it: both directions, a file that changes meanwhile, and one server over stdio."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from bridge.assembly.plan import for_stdio
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.errors import ConfigError, leaf_of
from bridge.process.serve import unannounced_bridge
from tests.support.command import ROOT, WAIT_SECONDS, Wrapping, environment, run_here
from tests.support.files import DEVTOOLS, RAW, TEAM, an_agent, started, written
from tests.support.forked import through_server
from tests.support.ports import free_port
from tests.support.running import RAW_SERVER, call_part, message

TAKEN_OVER = "read again and taken over"
REFUSED = "the bridge goes on with the earlier configuration"


@contextmanager
def serving(file: Path, *words: str, under: tuple[str, ...] = (), **more: str) -> Iterator[Wrapping]:
    """Serve a file on a free port, with its own state folder."""
    state = file.parent / "state"
    with started(
        "serve", str(file), *words, "--port", state=state, until="/mcp/team", under=under, **more
    ) as one:
        yield one


def get(bridge: Wrapping, path: str) -> httpx2.Response:
    return httpx2.get(f"{bridge.url}{path}", timeout=WAIT_SECONDS)


def skills(bridge: Wrapping, name: str = "devtools") -> dict[str, str]:
    card = get(bridge, f"/agents/{name}/.well-known/agent-card.json").json()
    return {skill["id"]: skill["name"] for skill in card["skills"]}


def replaced(file: Path, *parts: str) -> None:
    """Replace the file atomically, as editors do."""
    new = written(file.parent, *parts, name="new.tmp")
    new.replace(file)


def test_the_console_shows_the_file_even_without_reload(tmp_path: Path) -> None:
    file = written(tmp_path, RAW, DEVTOOLS, TEAM)
    with serving(file, "--no-reload", "--console") as bridge:
        told = get(bridge, "/console/configuration.json").json()
        found = {
            f"{section['name']}.{row['key']}": row["source"]
            for section in told["sections"]
            for row in section["values"]
        }
        assert (told["known"], told["watched"]) == (True, False)
        assert found["bridge.console"] == "command line --console"
        assert found["tools_as_agent.devtools.from"].startswith(f"file {file}:")


def test_both_directions_are_served_from_one_file(tmp_path: Path) -> None:
    with serving(written(tmp_path, RAW, DEVTOOLS, TEAM)) as bridge:
        ready = get(bridge, "/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "ready")
        assert ready.json()["agents"]["devtools"]["servers"]["raw"]["up"] is True
        assert "echo" in skills(bridge)
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendMessage",
            "params": message(call_part("echo", text="hi")),
        }
        answer = httpx2.post(
            f"{bridge.url}/agents/devtools", json=body, headers={"A2A-Version": "1.0"}, timeout=WAIT_SECONDS
        )
        assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert bridge.stop() == 130


@pytest.mark.proves("config-secrets")
def test_values_from_the_environment_in_a_hosts_file_are_not_printed(tmp_path: Path) -> None:
    server = {"command": sys.executable, "args": [str(RAW_SERVER), "--token", "${HIDDEN}"]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"raw": server}}))
    imported = "[import]\nmcp_json = 'mcp.json'\n"
    with serving(written(tmp_path, imported, DEVTOOLS, TEAM), HIDDEN="hunter2") as bridge:
        assert bridge.stop() == 130
    said = "".join(bridge.lines)
    assert f"{RAW_SERVER} --token ${{HIDDEN}}" in said
    assert "hunter2" not in said


def test_a_broken_file_is_refused_and_a_mended_file_is_applied(
    tmp_path: Path,
) -> None:
    file = written(tmp_path, RAW, DEVTOOLS, TEAM)
    with serving(file) as bridge:
        replaced(file, RAW, "[tools_as_agent.devtools]\nfrom = ['rav']\n", TEAM)
        with pytest.raises(ConfigError) as wrong:
            load(file, {})
        bridge.lines.clear()
        bridge.read_until(REFUSED)
        said = "".join(bridge.lines)
        for line in str(wrong.value).splitlines():
            assert line in said
        assert "did you mean `raw`?" in said
        assert skills(bridge)["add"] == "add"

        replaced(file, RAW, DEVTOOLS, "skills.add = { name = 'Add two' }\n", TEAM)
        bridge.read_until(TAKEN_OVER)
        assert skills(bridge)["add"] == "Add two"


def test_without_a_terminal_sighup_reads_the_file_again(tmp_path: Path) -> None:
    file = written(tmp_path, RAW, DEVTOOLS, TEAM)
    with serving(file) as bridge:
        replaced(file, "nonsense")
        bridge.read_until(REFUSED)
        for _ in range(2):
            bridge.process.send_signal(signal.SIGHUP)
            bridge.read_until("received SIGHUP")
            bridge.read_until(REFUSED)
        assert get(bridge, "/readyz").status_code == 200
        assert bridge.stop(signal.SIGTERM) == 0


def test_under_nohup_sighup_is_ignored_and_changes_of_the_file_are_applied(tmp_path: Path) -> None:
    file = written(tmp_path, RAW, DEVTOOLS, TEAM)
    with serving(file, under=("nohup",)) as bridge:
        bridge.process.send_signal(signal.SIGHUP)
        replaced(file, RAW, DEVTOOLS, "name = 'Another'\n", TEAM)
        bridge.read_until(TAKEN_OVER)
        assert not [line for line in bridge.lines if "SIGHUP" in line]
        assert bridge.stop(signal.SIGTERM) == 0


def test_with_no_reload_changes_are_ignored_and_sighup_ends_the_bridge(tmp_path: Path) -> None:
    with serving(written(tmp_path, RAW, DEVTOOLS, TEAM), "--no-reload") as bridge:
        assert bridge.stop(signal.SIGHUP) == 0


def test_a_second_process_on_the_same_store_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, "[bridge]\nstore = 'tasks.db'\n", RAW, DEVTOOLS, TEAM)
    with serving(file) as bridge:
        assert (tmp_path / "tasks.devtools.db").is_file()
        second = run_here("serve", str(file), "--port", str(free_port()), state=tmp_path / "other")
        assert second.returncode == 2
        assert "tasks.devtools.db" in second.stderr
        assert get(bridge, "/readyz").status_code == 200


def test_a_state_folder_that_cannot_be_made_is_told_with_the_variable_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    file = written(tmp_path, RAW, DEVTOOLS)
    done = run_here("serve", str(file), "--port", str(free_port()), state=tmp_path / "taken" / "state")
    assert done.returncode == 2
    assert "set XDG_STATE_HOME to keep the state in another folder" in done.stderr


def test_a_check_does_not_disturb_a_bridge_on_the_same_file(tmp_path: Path) -> None:
    file = written(tmp_path, "[bridge]\nstore = 'tasks.db'\n", RAW, DEVTOOLS, TEAM)
    with serving(file) as bridge:
        done = run_here("check", str(file), state=tmp_path / "state")
        assert done.returncode == 0, done.stdout + done.stderr
        assert get(bridge, "/readyz").status_code == 200


def test_the_command_line_overrides_the_environment_which_overrides_the_file(tmp_path: Path) -> None:
    taken = str(free_port())
    file = written(tmp_path, f"[bridge]\nport = {taken}\nlog_format = 'text'\n", RAW, DEVTOOLS, TEAM)
    with serving(file, MCP_A2A_SERVE_PORT=taken, MCP_A2A_SERVE_LOG_FORMAT="json") as bridge:
        assert get(bridge, "/readyz").status_code == 200
        assert json.loads(bridge.lines[-1])["message"].startswith("serving MCP at")


def test_a_value_of_the_environment_is_called_by_its_variable(tmp_path: Path) -> None:
    file = written(tmp_path, RAW, DEVTOOLS)
    done = run_here("serve", str(file), state=tmp_path, MCP_A2A_SERVE_PORT="99999")
    assert done.returncode == 2
    assert "99999" in done.stderr


# Over stdio


def parameters(file: Path, *words: str) -> StdioServerParameters:
    command, *rest = through_server("-P", "-m", "bridge", "serve", str(file), "--stdio", *words)
    return StdioServerParameters(
        command=command,
        args=rest,
        env=environment(file.parent / "state", XDG_CACHE_HOME=str(file.parent / "cache")),
        cwd=ROOT,
    )


@asynccontextmanager
async def host_of(file: Path, *words: str, **options: Any) -> AsyncIterator[Client]:
    """The official client, with the command as its server; its stderr goes to a file."""
    with anyio.fail_after(WAIT_SECONDS), (file.parent / "stderr").open("w") as said:
        async with Client(
            stdio_client(parameters(file, *words), errlog=said), cache=None, **options
        ) as client:
            yield client


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.any_loop
async def test_one_server_of_the_file_is_served_over_stdio_with_its_own_agents(tmp_path: Path) -> None:
    file = written(tmp_path, "[bridge]\nstore = 'tasks.db'\n", RAW, DEVTOOLS, TEAM)
    async with host_of(file) as client:
        assert {"echo", "task_result"} <= await names(client)
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result.structured_content == {"sum": 3}
    assert list(tmp_path.glob("*.db")) == []


async def test_remote_agents_need_no_port(tmp_path: Path) -> None:
    with an_agent() as url:
        others = "[agents_as_tools.other]\nfrom = ['research']\n"
        file = written(tmp_path, RAW, DEVTOOLS, TEAM, f"[agents.research]\ncard = '{url}'\n", others)
        async with host_of(file, "other") as client:
            result: Any = await client.call_tool("echo", {"message": "hi"})
            assert "hi" in result.content[0].text
            assert "add" not in await names(client)


async def test_a_change_of_the_file_reaches_the_host(tmp_path: Path) -> None:
    file, told = written(tmp_path, RAW, DEVTOOLS, TEAM), anyio.Event()

    async def hear(heard: object) -> None:
        if isinstance(heard, types.ToolListChangedNotification):
            told.set()

    async with host_of(file, mode="legacy", message_handler=hear) as client:
        assert "plus" not in await names(client)
        replaced(file, RAW, DEVTOOLS, TEAM, "tools.add = { name = 'plus' }\n")
        await told.wait()
        assert "plus" in await names(client)


def test_a_reload_that_needs_an_agent_of_the_same_file_takes_a_restart(tmp_path: Path) -> None:
    research = "[agents.research]\ncard = 'http://127.0.0.1:9'\n[agents_as_tools.team]\n"
    file = written(tmp_path, RAW, DEVTOOLS, research, "from = ['research']\n")
    started_by_us = parameters(file)
    with subprocess.Popen(
        [started_by_us.command, *started_by_us.args],
        env=started_by_us.env,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        host = Wrapping(process, 0)
        host.read_until("cannot be reached")
        replaced(file, RAW, DEVTOOLS, research, "from = ['devtools']\n")
        host.read_until("which takes a restart")
        process.kill()


WAITS_AT_A_GATE = f"""
import runpy, socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv.pop()))) as gate:
    if not gate.recv(1):
        sys.exit("it does not come up")
runpy.run_path({str(RAW_SERVER)!r}, run_name="__main__")
"""
"""A tool server that comes up once it is told to."""


@contextmanager
def a_late_server(folder: Path) -> Iterator[tuple[Path, socket.socket]]:
    """A file whose host is answered at once, and the gate at which its tool server waits."""
    (folder / "late.py").write_text(WAITS_AT_A_GATE, encoding="utf-8")
    with socket.create_server(("127.0.0.1", free_port())) as gate:
        command = [sys.executable, str(folder / "late.py"), str(gate.getsockname()[1])]
        written(folder, 'extends = "default"\n[agents]\nfirst_servers_seconds = 0\n', name="hasty.toml")
        late = f"[tool_servers.raw]\ncommand = {json.dumps(command)}\nera = 'legacy'\n"
        yield written(folder, late, DEVTOOLS, TEAM, "mapping = 'hasty.toml'\n"), gate


async def test_a_host_is_answered_before_tool_servers_are_up_and_notified_of_their_tools(
    tmp_path: Path,
) -> None:
    told = anyio.Event()

    async def hear(heard: object) -> None:
        if isinstance(heard, types.ToolListChangedNotification):
            told.set()

    with a_late_server(tmp_path) as (file, gate):
        async with host_of(file, mode="legacy", message_handler=hear) as client:
            assert await names(client) == {"task_result", "task_reply", "task_cancel"}
            waiting, _ = await anyio.to_thread.run_sync(gate.accept)
            with waiting:
                waiting.send(b"!")
            await told.wait()
            assert {"echo", "task_result"} <= await names(client)


@pytest.mark.outside
async def test_a_serving_bridge_ends_if_a_required_server_does_not_start(
    tmp_path: Path,
) -> None:
    with a_late_server(tmp_path) as (file, gate), anyio.fail_after(WAIT_SECONDS):
        plan = for_stdio(plan_from_file(load(file, {})), "team", "not told")

        async def serve_and_close_the_gate() -> None:
            async with unannounced_bridge(plan) as (bridge, here):
                await bridge.apply(here, patience_seconds=0)
                waiting, _ = await anyio.to_thread.run_sync(gate.accept)
                waiting.close()
                await anyio.sleep_forever()

        with pytest.raises(ExceptionGroup) as ended:
            await serve_and_close_the_gate()
    assert str(leaf_of(ended.value)) == "raw ended before it gave an MCP answer"


@pytest.mark.outside
async def test_a_reload_may_remove_a_server_that_was_never_up(tmp_path: Path) -> None:
    retired = anyio.Event()
    with a_late_server(tmp_path) as (file, _), anyio.fail_after(WAIT_SECONDS):
        plan = for_stdio(plan_from_file(load(file, {})), "team", "not told")
        async with unannounced_bridge(plan) as (bridge, here):
            await bridge.apply(here, patience_seconds=0)
            assert list(bridge.upstreams) == ["raw"]
            bridge.on_retired = retired.set
            await bridge.apply(replace(here, servers={}, published={}, offered={}))
            await retired.wait()
            assert list(bridge.upstreams) == []


@pytest.mark.outside
async def test_only_the_host_can_call_agents_behind_stdio(tmp_path: Path) -> None:
    principal = "[principals.ada]\nbearer = { env = 'TOKEN' }\n"
    file = written(tmp_path, RAW, DEVTOOLS, TEAM, principal)
    plan = for_stdio(plan_from_file(load(file, {"TOKEN": "known"})), "team", "not told")
    async with unannounced_bridge(plan) as (bridge, here), httpx2.AsyncClient() as http:
        await bridge.apply(here)
        url = f"http://127.0.0.1:{here.place.port}/agents/devtools"
        for headers in ({}, {"Authorization": "Bearer known"}):
            body = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "SendMessage",
                "params": message(call_part("echo", text="x")),
            }
            answer = await http.post(url, json=body, headers={"A2A-Version": "1.0", **headers})
            assert answer.status_code == 401
        assert (await http.get(f"http://127.0.0.1:{here.place.port}/mcp/team")).status_code == 404


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["two.toml", "--stdio"], "has several MCP servers: name one, team or other"),
        (["two.toml", "--stdio", "taem"], "no MCP server 'taem': did you mean `team`?"),
        (["--stdio", "two.toml"], "the file comes before --stdio"),
        (["none.toml", "--stdio"], "has no MCP server: write a table [agents_as_tools.NAME]"),
        (["two.toml", "--stdio", "team", "--port", "1"], "does not go with --port"),
        (["two.toml", "--stdio", "team", "--require-auth"], "does not go with --require-auth"),
    ],
)
def test_an_ambiguous_server_is_refused(words: list[str], said: str, tmp_path: Path) -> None:
    other = "[agents_as_tools.other]\nfrom = ['devtools']\n"
    written(tmp_path, RAW, DEVTOOLS, TEAM, other, name="two.toml")
    written(tmp_path, RAW, DEVTOOLS, name="none.toml")
    written(tmp_path, RAW, DEVTOOLS, TEAM, other)
    done = run_here("serve", *words, state=tmp_path, folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.any_loop
async def test_it_ends_with_its_host(tmp_path: Path) -> None:
    server = parameters(written(tmp_path, RAW, DEVTOOLS, TEAM))
    with anyio.fail_after(WAIT_SECONDS):
        async with await anyio.open_process(
            [server.command, *server.args],
            env=server.env,
            cwd=ROOT,
            stderr=os.open(tmp_path / "stderr", os.O_WRONLY | os.O_CREAT),
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            initialize = {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            }
            line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize})
            await process.stdin.send(f"{line}\n".encode())
            await process.stdout.receive()
            await process.stdin.aclose()
            assert await process.wait() == 0


ADA = "[principals.ada]\nbearer = { env = 'TOKEN' }\n"
OPEN = "[bridge]\nallow_unauthenticated = true\n"


def test_with_require_auth_a_file_that_lets_everyone_in_is_not_served(tmp_path: Path) -> None:
    written(tmp_path, OPEN, RAW, DEVTOOLS, TEAM)
    done = run_here("serve", "--require-auth", state=tmp_path, folder=tmp_path)
    assert done.returncode == 2
    assert "has neither [principals.NAME] nor [issuers.NAME]" in done.stderr


def test_with_require_auth_a_file_that_loses_its_last_principal_lets_nobody_in(tmp_path: Path) -> None:
    file = written(tmp_path, OPEN, RAW, DEVTOOLS, TEAM, ADA)
    with serving(file, "--require-auth", TOKEN="known") as bridge:
        assert httpx2.get(f"{bridge.url}/agents", timeout=WAIT_SECONDS).status_code == 401
        replaced(file, OPEN, RAW, DEVTOOLS, TEAM)
        bridge.read_until(TAKEN_OVER)
        for headers in ({}, {"Authorization": "Bearer known"}):
            answer = httpx2.get(f"{bridge.url}/agents", headers=headers, timeout=WAIT_SECONDS)
            assert answer.status_code == 401
