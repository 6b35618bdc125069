"""What the compose file starts, as processes of this machine with its own files: PostgreSQL, two replicas and nginx."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from bridge.config.tables.profile import load_profile
from tests.deploy.files import SECRETS, compose_file, ran
from tests.deploy.test_container import BRIDGES, as_mounted
from tests.support.command import WAIT_SECONDS, environment, run_here
from tests.support.drivers import state_of
from tests.support.lines import Lines
from tests.support.ports import free_port
from tests.support.postgres import Database, database
from tests.support.running import Rpc, call_part, message

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform == "win32", reason="the examples of deployments are for Linux"),
    pytest.mark.skipif(
        shutil.which("nginx") is None, reason="nginx is not installed (make proxies installs it)"
    ),
]

SERVER: Final = re.compile(r"server (bridge-\d):8080 resolve ")


@dataclass
class Running:
    """The deployment, as its callers see it."""

    server: Database
    file: Path
    ports: dict[str, int]
    replicas: list[subprocess.Popen[str]]
    url: str
    token: str

    def again(self, number: int) -> AbstractContextManager[subprocess.Popen[str]]:
        """Start a replica again that has ended."""
        name = BRIDGES[number]
        return replica(self.file, self.ports[name], name)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx2.AsyncClient]:
        """A client of the only principal, over connections of its own."""
        headers = {"Authorization": f"Bearer {self.token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=WAIT_SECONDS, trust_env=False) as client:
            yield client


def with_tables(server: Database, folder: Path, file: Path) -> None:
    """Make the database, its roles and the tables, as two containers do, and let the replicas go there."""
    secrets, service = folder / "compose" / "secrets", compose_file()["services"]["tables"]
    variables = {
        "PATH": f"{server.programs}:{os.environ['PATH']}",
        "PGHOST": str(server.folder),
        "SECRETS": str(secrets),
    }
    made = ran(str(folder / "compose" / "roles.sh"), env=variables)
    assert made.returncode == 0, made.stderr
    for name in ("owner_url", "database_url"):
        url = (secrets / name).read_text()
        (secrets / name).write_text(f"{url.replace('@database/', '@/')}&host={server.folder}")
    words = [word.replace(SECRETS, f"{secrets}/") for word in service["command"]]
    migrated = run_here(*words, state=folder, folder=file.parent)
    assert migrated.returncode == 0, migrated.stderr
    assert migrated.stdout.count("the tables were made") == 2


@contextmanager
def replica(file: Path, port: int, name: str) -> Iterator[subprocess.Popen[str]]:
    """A replica, with the command and the variables that it has in the compose file."""
    service = compose_file()["services"][name]
    ours = {
        key: value.replace(f"{name}:8080", f"127.0.0.1:{port}")
        for key, value in service["environment"].items()
    }
    ours["MCP_A2A_SERVE_METRICS"] = f"127.0.0.1:{free_port()}"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = [
        sys.executable,
        "-P",
        "-m",
        "bridge",
        *service["command"],
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with subprocess.Popen(
        command,
        cwd=file.parent,
        env=environment(file.parent / name, PATH=path, **ours),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        lines = Lines(process, process.stderr)
        try:
            lines.until("serving MCP at")
            yield process
        finally:
            process.kill()
            lines.rest()


@contextmanager
def nginx(folder: Path, port: int, ports: dict[str, int]) -> Iterator[None]:
    """The proxy, with the replicas at other places: nginx of before 1.27.3 resolves no names while it runs."""
    text = (folder / "compose" / "nginx.conf").read_text()
    assert SERVER.findall(text) == [*ports]
    text = SERVER.sub(lambda found: f"server 127.0.0.1:{ports[found[1]]} ", text)
    text = re.sub(r"resolver .*;", "", text).replace("listen 8080", f"listen 127.0.0.1:{port}")
    text = text.replace("/tmp/", f"{folder}/").replace("/dev/stderr", "stderr")
    file = folder / "nginx.conf"
    file.write_text(("user root;\n" if os.geteuid() == 0 else "") + text)
    command = ["nginx", "-p", str(folder), "-c", str(file), "-e", "stderr"]
    assert ran(*command, "-t").returncode == 0
    with (folder / "nginx.log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            yield
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("deployed")
    file, port, ports = as_mounted(folder), free_port(), {name: free_port() for name in BRIDGES}
    file.write_text(file.read_text().replace("localhost:8080", f"localhost:{port}"))
    with ExitStack() as stack:
        server = stack.enter_context(database())
        with_tables(server, folder, file)
        replicas = [stack.enter_context(replica(file, ports[name], name)) for name in BRIDGES]
        stack.enter_context(nginx(folder, port, ports))
        token = (folder / "compose" / "secrets" / "ops_token").read_text()
        yield Running(server, file, ports, replicas, f"http://127.0.0.1:{port}", token)


async def card_of(running: Running, client: httpx2.AsyncClient) -> dict[str, Any]:
    """The card, once nginx listens."""
    with anyio.fail_after(WAIT_SECONDS):
        while True:
            try:
                answer = await client.get(f"{running.url}/agents/demo/.well-known/agent-card.json")
            except httpx2.ConnectError:
                await anyio.sleep(0.05)
                continue
            card: dict[str, Any] = answer.raise_for_status().json()
            return card


async def test_replicas_behind_nginx_are_one_agent_and_one_server_also_when_one_is_killed_or_stopped(
    running: Running,
) -> None:
    async with running.client() as client:
        card = await card_of(running, client)
        assert {one["url"] for one in card["supportedInterfaces"]} == {
            f"{running.url.replace('127.0.0.1', 'localhost')}/agents/demo"
        }
        agent = Rpc(client, f"{running.url}/agents/demo")
        greeted = [await agent.send(call_part("greet", name="Ada")) for _ in range(4)]
        assert {state_of(await agent.call("GetTask", {"id": task["id"]})) for task in greeted} == {
            "COMPLETED"
        }
        assert (await client.get(f"{running.url}/readyz")).status_code == 404
        listed = await client.get(f"{running.url}/agents")
        assert (listed.status_code, [one["name"] for one in listed.json()["agents"]]) == (200, ["demo"])
        await a_stream_comes_event_by_event(agent)
        await a_session_goes_on_at_either_replica(running, client)
        the_role_that_only_reads_and_changes_rows_has_all_connections(running.server)
        await a_kill_is_told_and_costs_no_other_request(running, agent)
        with running.again(0):
            await a_stop_costs_no_request(running.replicas[1], agent)


async def a_stream_comes_event_by_event(agent: Rpc) -> None:
    """The first events of a task that goes on for minutes are there while it does."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage"}
    body |= {"params": message(call_part("countdown", steps=60, pause_seconds=10))}
    async with agent.client.stream("POST", agent.url, json=body, headers=agent.headers) as response:
        lines = response.aiter_lines()
        with anyio.fail_after(WAIT_SECONDS):
            async for line in lines:
                if "to go" in line:
                    break
            listed = await agent.call("ListTasks", {"status": "TASK_STATE_WORKING"})
            (task,) = listed["tasks"]
            await agent.call("CancelTask", {"id": task["id"]})
            assert "TASK_STATE_CANCELED" in "".join([line async for line in lines])


async def a_session_goes_on_at_either_replica(running: Running, client: httpx2.AsyncClient) -> None:
    """A host of 2025-11-25, whose requests go to both in turn."""
    transport = streamable_http_client(f"{running.url}/mcp", http_client=client)
    async with Client(transport, mode="legacy", cache=None) as host:
        for _ in range(4):
            said = await host.call_tool("greet", {"name": "Ada"})
            assert said.content[0].text == "Hello, Ada!"


def the_role_that_only_reads_and_changes_rows_has_all_connections(server: Database) -> None:
    """No more of them than docs/operations.md says."""
    count = "SELECT usename, count(*) FROM pg_stat_activity WHERE application_name = 'mcp-a2a' GROUP BY 1"
    psql = str(server.programs / "psql")
    role, _, connections = ran(psql, "-At", "-c", count, server.url).stdout.strip().partition("|")
    assert role == "bridge"
    assert int(connections) <= len(BRIDGES) * (load_profile().store.connections + 3 + 3)


async def a_kill_is_told_and_costs_no_other_request(running: Running, agent: Rpc) -> None:
    """A task of a replica that is killed ends at the other, which answers from then on."""
    long = call_part("countdown", steps=60, pause_seconds=10)
    tasks = [await agent.send(long, configuration={"returnImmediately": True}) for _ in range(4)]
    running.replicas[0].kill()
    for _ in range(6):
        assert state_of(await agent.send(call_part("greet", name="Ada"))) == "COMPLETED"
    with anyio.fail_after(WAIT_SECONDS):
        while "FAILED" not in {state_of(await agent.call("GetTask", {"id": task["id"]})) for task in tasks}:
            await anyio.sleep(0.1)
    ended = [await agent.call("GetTask", {"id": task["id"]}) for task in tasks]
    assert {state_of(task) for task in ended} == {"FAILED", "WORKING"}
    for task in ended:
        if state_of(task) == "WORKING":
            await agent.call("CancelTask", {"id": task["id"]})


async def a_stop_costs_no_request(replica: subprocess.Popen[str], agent: Rpc) -> None:
    """Whatever a replica refuses while it stops, the other one takes."""
    replica.send_signal(signal.SIGTERM)
    while replica.poll() is None:
        assert state_of(await agent.send(call_part("greet", name="Ada"))) == "COMPLETED"
    assert replica.returncode == 0
    assert state_of(await agent.send(call_part("greet", name="Ada"))) == "COMPLETED"
