"""`mcp-a2a serve --workers`, as processes: what they serve together, and what is left of them when some die."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import anyio
import httpx2
import pytest
from cryptography import x509
from prometheus_client.parser import text_string_to_metric_families

from tests.support.certificates import Authority
from tests.support.command import children_of, environment, gone, run_here
from tests.support.forked import Forked
from tests.support.issuer import TokenIssuer, bearer
from tests.support.lines import WAIT_SECONDS, Lines
from tests.support.ports import free_port
from tests.support.postgres import database_url, new_agent
from tests.support.processes import PROC, children_with, is_running
from tests.support.running import RAW_SERVER, VERSION, listening

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not PROC.is_dir(), reason="processes are looked up in /proc"),
]

KEY: Final = "k" * 40
TOKENS: Final = {name: name[0] * 40 for name in ("ann", "bob", "eve")}
GATED_SERVER: Final = RAW_SERVER.with_name("gated_server.py")
MEMORY: Final = Path(__file__).parents[2] / ".peers/node_modules/.bin/mcp-server-memory"
BRIDGE: Final = (
    '[bridge]\nport = {port}\nstore = {{ env = "DATABASE_URL" }}\nkeys = [{{ env = "BRIDGE_KEY" }}]\n'
)
BREAKABLE: Final = """
import os, runpy, sys
if os.path.exists(sys.argv.pop(1)):
    sys.exit("this server is down")
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


@dataclass
class Serving:
    """A supervisor with its workers."""

    process: subprocess.Popen[str]
    port: int
    file: Path
    agent: str
    said: Lines = field(init=False)

    def __post_init__(self) -> None:
        self.said = Lines(self.process, self.process.stderr)

    @property
    def workers(self) -> list[int]:
        """The workers, oldest first."""
        return children_with("bridge.cli.worker", self.process.pid)

    @property
    def holder(self) -> int:
        """The worker that runs the tool server."""
        (found,) = (worker for worker in self.workers if children_of(worker))
        return found

    async def until(self, words: str) -> None:
        """Read the log until a line holds these words."""
        await anyio.to_thread.run_sync(self.said.until, words)

    @asynccontextmanager
    async def client_of_another(
        self, worker: int, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[httpx2.AsyncClient]:
        """A client whose one connection another worker has accepted, over TLS if it says how."""
        scheme = "http" if tls is None else "https"
        async with httpx2.AsyncClient(timeout=WAIT_SECONDS, verify=tls or True) as client:
            os.kill(worker, signal.SIGSTOP)
            await client.get(f"{scheme}://127.0.0.1:{self.port}/healthz")
            os.kill(worker, signal.SIGCONT)
            yield client

    async def admits(self, *names: str | None) -> list[set[int]]:
        """What all workers answer to each of these principals, and to nobody: status codes."""
        found: list[set[int]] = [set() for _ in names]
        for worker in self.workers:
            async with self.client_of_another(worker) as client:
                for name, statuses in zip(names, found, strict=True):
                    headers = {"Authorization": f"Bearer {TOKENS[name]}"} if name else {}
                    url = f"http://127.0.0.1:{self.port}/agents/{self.agent}/tasks"
                    statuses.add((await client.get(url, headers={**headers, **VERSION})).status_code)
        return found

    async def start_anew(self, worker: int) -> int:
        """Kill a worker; the one that is started for it, as soon as it is."""
        others = {*self.workers}
        os.kill(worker, signal.SIGKILL)
        with anyio.fail_after(WAIT_SECONDS):
            while not (begun := {*self.workers} - others):
                await anyio.sleep(0.01)
        return begun.pop()

    async def send(
        self, skill: str, client: httpx2.AsyncClient | None = None, **arguments: Any
    ) -> dict[str, Any]:
        """Send a message, on a connection of its own unless a client is given; the task that it made."""
        parts = [{"data": {"skill": skill, "arguments": arguments}}]
        message = {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": parts}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        url = f"http://127.0.0.1:{self.port}/agents/{self.agent}"
        async with AsyncExitStack() as stack:
            client = client or await stack.enter_async_context(httpx2.AsyncClient(timeout=WAIT_SECONDS))
            answer = (await client.post(url, json=body, headers=VERSION)).json()
        result: dict[str, Any] = answer["result"]
        task: dict[str, Any] = result.get("task", result)
        return task

    async def end(self, number: int) -> int:
        """Send a signal and wait for the end; the exit code."""
        self.process.send_signal(number)
        return await anyio.to_thread.run_sync(self.process.wait, WAIT_SECONDS)


@contextmanager
def serving(
    folder: Path,
    server: str = "",
    *,
    and_tools: bool = False,
    workers: int = 2,
    names: Sequence[str] = (),
    of_bridge: str = "",
    awaited: bool = True,
) -> Iterator[Serving]:
    """Two workers that serve one agent, of the raw server unless another is named; its skills are tools, too, if
    `and_tools` is said. `names` are principals; without any, everyone is let in. `of_bridge` is more of [bridge],
    and of other tables; `{agent}` in it is the agent. They serve already if they are `awaited`."""
    agent, port, file = new_agent(), free_port(), folder / "bridge.toml"
    server = server or f"command = {json.dumps([sys.executable, '-S', '-E', str(RAW_SERVER)])}"
    file.write_text(
        BRIDGE.format(port=port)
        + of_bridge.replace("{agent}", agent)
        + f'[tool_servers.tools]\n{server}\n[tools_as_agent.{agent}]\nfrom = ["tools"]\n'
    )
    if and_tools:
        with file.open("a") as more:
            more.write(f'[agents_as_tools.desk]\nfrom = ["{agent}"]\n')
    with file.open("a") as more:
        for name in names:
            more.write(f'[principals.{name}]\nbearer = {{ env = "{name.upper()}" }}\n')
    words = [
        sys.executable,
        "-P",
        "-m",
        "bridge",
        "serve",
        str(file),
        "--workers",
        str(workers),
        "--log-format",
        "json",
    ]
    known = environment(
        folder, DATABASE_URL=database_url(), BRIDGE_KEY=KEY, **{name.upper(): TOKENS[name] for name in names}
    )
    with Forked(words, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=known) as process:
        one = Serving(process, port, file, agent)
        try:
            if awaited:
                one.said.until(f"{workers} workers serve")
            yield one
        finally:
            left = children_of(process.pid)
            if process.poll() is None:
                process.kill()
            assert gone(left)


def gated(folder: Path) -> str:
    """The lines of the gated server."""
    return f"command = {json.dumps([sys.executable, '-S', '-E', str(GATED_SERVER), str(folder)])}"


def breakable(folder: Path) -> str:
    """The lines of a server that ends at once while there is a file `down`."""
    script = folder / "breakable.py"
    script.write_text(BREAKABLE)
    words = [sys.executable, "-S", "-E", str(script), str(folder / "down"), str(RAW_SERVER)]
    return f"command = {json.dumps(words)}"


async def calls_of(folder: Path, number: int) -> None:
    """Wait until the gated server has so many calls."""
    with anyio.fail_after(WAIT_SECONDS):
        while not (folder / "calls").exists() or len((folder / "calls").read_text().splitlines()) < number:
            await anyio.sleep(0.01)


def state_of(task: dict[str, Any]) -> tuple[str, str]:
    """The state of a task, and its words."""
    parts = task["status"].get("message", {}).get("parts", [])
    return task["status"]["state"], " ".join(part.get("text", "") for part in parts)


@pytest.mark.anyio
async def test_a_killed_worker_fails_its_calls_in_words_and_another_one_runs_its_tool_server(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, gated(tmp_path)) as bridge:
        first = bridge.holder
        (server,) = children_of(first)
        failed = []
        async with bridge.client_of_another(first) as client, anyio.create_task_group() as calling:

            async def call() -> None:
                failed.append(state_of(await bridge.send("hold", client)))

            calling.start_soon(call)
            await calls_of(tmp_path, 1)
            os.kill(first, signal.SIGKILL)
        (tmp_path / "open").touch()
        assert state_of(await bridge.send("hold"))[0] == "TASK_STATE_COMPLETED"
        assert not is_running(server)
        assert bridge.holder != first
    why = "the process that ran tools for all workers has ended while it had the call."
    assert failed == [("TASK_STATE_FAILED", f"{why} Whether the server acted on it is not known")]


@pytest.mark.anyio
async def test_a_session_of_2025_11_25_is_answered_through_every_worker(tmp_path: Path) -> None:
    with serving(tmp_path, and_tools=True) as bridge:
        url = f"http://127.0.0.1:{bridge.port}/mcp"
        about = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        headers = {"Accept": "application/json, text/event-stream"}
        bodies = [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            *({"jsonrpc": "2.0", "id": number, "method": "tools/list"} for number in range(2, 4)),
        ]
        statuses = []
        async with (
            bridge.client_of_another(bridge.workers[0]) as one,
            bridge.client_of_another(bridge.workers[1]) as two,
        ):
            for client, body in zip((one, one, one, two), bodies, strict=True):
                answer = await client.post(url, json=body, headers=headers)
                statuses.append(answer.status_code)
                if session := answer.headers.get("Mcp-Session-Id"):
                    headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
        assert statuses == [200, 202, 200, 200]
        assert "echo" in answer.text


@pytest.mark.anyio
async def test_the_console_of_each_worker_shows_the_file_and_how_its_last_reload_went(tmp_path: Path) -> None:
    async def told() -> list[Any]:
        found = []
        for worker in bridge.workers:
            async with bridge.client_of_another(worker) as client:
                url = f"http://127.0.0.1:{bridge.port}/console/configuration.json"
                found.append((await client.get(url)).json())
        return found

    with serving(tmp_path, of_bridge="console = true\n") as bridge:
        for one in await told():
            (bridges,) = [section for section in one["sections"] if section["name"] == "bridge"]
            (console,) = [row for row in bridges["values"] if row["key"] == "console"]
            assert (one["watched"], one["fault"], one["read_at"]) == (True, [], None)
            assert console["source"].startswith(f"file {bridge.file}:")
        good = bridge.file.read_text()
        bridge.file.write_text(f"{good}[nothing]\n")
        await bridge.until("The file is not taken over")
        with anyio.fail_after(WAIT_SECONDS):
            while not all(one["fault"] and one["read_at"] for one in await told()):
                await anyio.sleep(0.05)
        bridge.file.write_text(f'{good}[tools_as_agent.{bridge.agent}_too]\nfrom = ["tools"]\n')
        await bridge.until("read again and taken over")
        with anyio.fail_after(WAIT_SECONDS):
            while any(one["fault"] or f"{bridge.agent}_too" not in str(one) for one in await told()):
                await anyio.sleep(0.05)
        await bridge.start_anew(bridge.workers[0])
        await bridge.until("serves again")
        for one in await told():
            assert f"{bridge.agent}_too" in str(one["sections"])
        assert await bridge.end(signal.SIGTERM) == 0


@pytest.mark.anyio
async def test_a_changed_file_is_taken_by_all_workers_or_by_none(tmp_path: Path) -> None:
    with serving(tmp_path) as bridge:
        good = bridge.file.read_text()
        bad = f'[tool_servers.bad]\ncommand = ["{sys.executable}", "-c", ""]\n'
        bridge.file.write_text(f'{good}{bad}[tools_as_agent.bad]\nfrom = ["bad"]\n')
        await bridge.until("The file is not taken over")
        more = f'{good}[tools_as_agent.{bridge.agent}_too]\nfrom = ["tools"]\n'
        bridge.file.write_text(more)
        await bridge.until("read again and taken over")
        async with httpx2.AsyncClient() as client:
            for _ in range(6):
                answer = await client.get(
                    f"http://127.0.0.1:{bridge.port}/agents", headers={"Connection": "close"}
                )
                assert [one["name"] for one in answer.json()["agents"]] == [
                    bridge.agent,
                    f"{bridge.agent}_too",
                ]
        assert await bridge.end(signal.SIGTERM) == 0


@pytest.mark.anyio
async def test_a_sign_out_at_the_console_holds_at_every_worker(tmp_path: Path) -> None:
    with serving(tmp_path, names=("ann",), of_bridge="console = true\n") as bridge:
        here = f"http://127.0.0.1:{bridge.port}"
        first, second = bridge.workers
        async with bridge.client_of_another(first) as one, bridge.client_of_another(second) as thief:
            page = await one.get(f"{here}/console")
            for path, body in (("sign-in", {"token": TOKENS["ann"]}), ("sign-out", {})):
                headers = {"Origin": here, "X-CSRF-Token": re.findall('data-csrf="([^"]+)"', page.text)[0]}
                if path == "sign-out":
                    thief.cookies.update(one.cookies)
                    assert (await thief.get(f"{here}/console")).status_code == 200
                answer = await one.post(f"{here}/console/{path}", json=body, headers=headers)
                assert answer.status_code == 200
                page = await one.get(f"{here}/console")
            assert page.status_code == 401
            with anyio.fail_after(WAIT_SECONDS):
                while (await thief.get(f"{here}/console")).status_code == 200:
                    await anyio.sleep(0.01)
            assert (await thief.get(f"{here}/console")).status_code == 401


@pytest.mark.anyio
async def test_no_worker_lets_in_whom_a_file_leaves_out_while_another_file_never_rests(
    tmp_path: Path,
) -> None:
    restless = tmp_path / "cy.token"
    restless.write_text("c" * 40)
    restless.chmod(0o600)
    cy = f'[principals.cy]\nbearer = {{ file = "{restless}" }}\n'
    with serving(tmp_path, names=("ann", "bob"), of_bridge=cy) as bridge:
        assert await bridge.admits("ann", "bob") == [{200}, {200}]
        bridge.file.write_text(bridge.file.read_text().partition("[principals.bob")[0])
        until = anyio.current_time() + WAIT_SECONDS
        while await bridge.admits("bob") != [{401}] and anyio.current_time() < until:
            restless.with_suffix(".next").write_text("c" * 40)
            restless.with_suffix(".next").chmod(0o600)
            restless.with_suffix(".next").replace(restless)
        assert await bridge.admits("ann", "bob") == [{200}, {401}]
        await bridge.until("removed principals.bob")


@pytest.mark.anyio
async def test_a_worker_that_starts_later_lets_nobody_in_whom_the_others_have_turned_away(
    tmp_path: Path,
) -> None:
    everyone = ("ann", "bob", "eve", None)
    with serving(tmp_path, names=("ann", "bob", "eve")) as bridge:
        served, ann, bob, _ = bridge.file.read_text().split("[principals.")
        assert await bridge.admits(*everyone) == [{200}, {200}, {200}, {401}]

        # Workers cannot serve this file at all: it has a `replica_url`.
        elsewhere = served.replace("keys = ", 'replica_url = "http://127.0.0.1:9"\nkeys = ')
        bridge.file.write_text(f"{elsewhere}[principals.{ann}[principals.{bob}")
        await bridge.until("The file is not taken over")
        assert await bridge.admits(*everyone) == [{200}, {200}, {401}, {401}]

        bad = f'[tool_servers.bad]\ncommand = ["{sys.executable}", "-c", ""]\n'
        bridge.file.write_text(f'{served}[principals.{ann}{bad}[tools_as_agent.bad]\nfrom = ["bad"]\n')
        await bridge.until("The file is not taken over")
        await bridge.start_anew(bridge.workers[0])
        await bridge.until("serves again")
        assert await bridge.admits(*everyone) == [{200}, {401}, {401}, {401}]

        starting = await bridge.start_anew(bridge.workers[0])
        os.kill(starting, signal.SIGSTOP)
        bridge.file.write_text(served)
        os.kill(starting, signal.SIGCONT)
        await bridge.until("read again and taken over")
        assert await bridge.admits(*everyone) == [{401}] * 4

        await bridge.start_anew(bridge.workers[0])
        await bridge.until("serves again")
        assert await bridge.admits(*everyone) == [{401}] * 4


@pytest.mark.anyio
async def test_two_workers_share_one_memory_server_and_its_file_stays_whole(tmp_path: Path) -> None:
    if not MEMORY.exists():
        pytest.skip("the npm peers are not installed")
    kept = tmp_path / "memory.jsonl"
    server = f'command = ["{MEMORY}"]\nenv = {{ MEMORY_FILE_PATH = "{kept}" }}\nconcurrency = 1'
    states = []
    with serving(tmp_path, server) as bridge:

        async def create(name: str) -> None:
            entity = {"name": name, "entityType": "thing", "observations": ["seen"]}
            states.append(state_of(await bridge.send("create_entities", entities=[entity]))[0])

        async with anyio.create_task_group() as calling:
            for number in range(30):
                calling.start_soon(create, f"e{number}")
        assert sum(len(children_of(worker)) for worker in bridge.workers) == 1
    assert states == ["TASK_STATE_COMPLETED"] * 30
    assert {json.loads(line)["name"] for line in kept.read_text().splitlines()} == {
        f"e{n}" for n in range(30)
    }


@pytest.mark.anyio
@pytest.mark.slow
async def test_one_address_tells_what_all_workers_counted_and_nothing_falls_when_one_dies(
    tmp_path: Path,
) -> None:
    port = free_port()
    with serving(tmp_path, of_bridge=f'metrics = "127.0.0.1:{port}"\n') as bridge:
        for worker in bridge.workers:
            async with bridge.client_of_another(worker) as client:
                await bridge.send("echo", client, text="x")
        assert await counted_at(port) == {"1": 1, "2": 1}
        await bridge.start_anew(bridge.workers[0])
        await bridge.until("serves again")
        assert await counted_at(port) == {"1": 1, "2": 1}
        for worker in bridge.workers:
            async with bridge.client_of_another(worker) as client:
                await bridge.send("echo", client, text="x")
        assert await counted_at(port) == {"1": 2, "2": 2}


async def counted_at(port: int) -> dict[str, float]:
    """The messages that each worker has answered, by its number."""
    async with httpx2.AsyncClient(timeout=WAIT_SECONDS) as client:
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    return {
        sample.labels["worker"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "a2a_server_operation_duration_seconds_count"
    }


async def test_five_deaths_in_a_minute_end_the_whole_with_1_and_say_why(tmp_path: Path) -> None:
    with serving(tmp_path) as bridge:
        for number in range(5):
            if number:
                await bridge.until("serves again")
            os.kill(bridge.workers[-1], signal.SIGKILL)
        await bridge.until("5 workers died within 60 s, the last one since signal 9 killed it")
        assert await anyio.to_thread.run_sync(bridge.process.wait, WAIT_SECONDS) == 1


@pytest.mark.anyio
async def test_a_server_that_is_down_keeps_a_worker_from_starting_again_and_ends_no_other(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, breakable(tmp_path)) as bridge:
        (tmp_path / "down").touch()
        os.kill(bridge.holder, signal.SIGKILL)
        await bridge.until("cannot start: tools ended before it said anything of MCP, by either handshake")
        async with httpx2.AsyncClient(timeout=WAIT_SECONDS) as client:
            agents = await client.get(f"http://127.0.0.1:{bridge.port}/agents")
        assert [one["name"] for one in agents.json()["agents"]] == [bridge.agent]
        (tmp_path / "down").unlink()
        await bridge.until("serves again")
        assert len(bridge.workers) == 2
        assert state_of(await bridge.send("echo", text="hello"))[0] == "TASK_STATE_COMPLETED"
        died = [line for line in bridge.said.said if "died, since" in line]
        assert len(died) == 1, "what could not start counts as no death: five of them would end the bridge"


@pytest.mark.anyio
async def test_a_server_that_is_lost_before_all_workers_serve_ends_none_that_does(tmp_path: Path) -> None:
    with serving(tmp_path, breakable(tmp_path), awaited=False) as bridge:
        with anyio.fail_after(WAIT_SECONDS):
            while len(bridge.workers) < 2:
                await anyio.sleep(0.01)
        first, second = bridge.workers
        os.kill(second, signal.SIGSTOP)
        await bridge.until("serving ")
        (tmp_path / "down").touch()
        (server,) = children_of(first)
        os.kill(server, signal.SIGKILL)
        await bridge.until("tools is down")
        os.kill(second, signal.SIGCONT)
        await bridge.until("worker 2 cannot start: tools ")
        with bridge.file.open("a") as more:
            more.write('description = "Another"\n')
        await bridge.until("read again and taken over")
        (tmp_path / "down").unlink()
        await bridge.until("worker 2 serves now")
        await bridge.until("2 workers serve")
        assert state_of(await bridge.send("echo", text="hello"))[0] == "TASK_STATE_COMPLETED"


@pytest.mark.anyio
async def test_the_first_signal_lets_the_calls_of_all_workers_end_and_nothing_is_left(tmp_path: Path) -> None:
    with serving(tmp_path, gated(tmp_path)) as bridge:
        everyone = children_of(bridge.process.pid)
        states = []
        async with bridge.client_of_another(bridge.holder) as client, anyio.create_task_group() as calling:

            async def call(*given: httpx2.AsyncClient) -> None:
                states.append(state_of(await bridge.send("hold", *given))[0])

            calling.start_soon(call, client)
            calling.start_soon(call)
            await calls_of(tmp_path, 2)
            bridge.process.send_signal(signal.SIGINT)
            await bridge.until("stopping, 2 running tasks")
            (tmp_path / "open").touch()
        assert await anyio.to_thread.run_sync(bridge.process.wait, WAIT_SECONDS) == 130
        assert states == ["TASK_STATE_COMPLETED"] * 2
        assert gone(everyone)


@pytest.mark.anyio
async def test_a_signal_that_workers_get_beside_their_supervisor_is_their_first(tmp_path: Path) -> None:
    """systemd sends it to each process of a unit, unless KillMode says otherwise."""
    with serving(tmp_path, gated(tmp_path)) as bridge:
        states = []
        (other,) = (worker for worker in bridge.workers if worker != bridge.holder)
        async with bridge.client_of_another(other) as client, anyio.create_task_group() as calling:

            async def call() -> None:
                states.append(state_of(await bridge.send("hold", client))[0])

            calling.start_soon(call)
            await calls_of(tmp_path, 1)
            for process in (bridge.holder, other, bridge.process.pid):
                os.kill(process, signal.SIGTERM)
            await bridge.until("stopping, 1 running task")
            (tmp_path / "open").touch()
        assert await anyio.to_thread.run_sync(bridge.process.wait, WAIT_SECONDS) == 0
        assert states == ["TASK_STATE_COMPLETED"]


@pytest.mark.anyio
async def test_a_killed_supervisor_leaves_no_process(tmp_path: Path) -> None:
    with serving(tmp_path) as bridge:
        everyone = children_of(bridge.process.pid)
        assert len(everyone) == 3
        bridge.process.kill()
        assert gone(everyone)


@pytest.mark.parametrize(
    ("lacking", "words"),
    [
        ('store = { env = "DATABASE_URL" }', "--workers needs a store that the workers share: a PostgreSQL"),
        (
            'keys = [{ env = "BRIDGE_KEY" }]',
            "replicas that share a store share the `keys` that seal handles, too",
        ),
    ],
)
def test_without_a_shared_store_or_keys_workers_are_refused_with_2(
    tmp_path: Path, lacking: str, words: str
) -> None:
    file = tmp_path / "bridge.toml"
    text = BRIDGE.format(port=0) + '[tool_servers.t]\ncommand = ["x"]\n[tools_as_agent.t]\nfrom = ["t"]\n'
    file.write_text(text.replace(lacking, ""))
    given = {"DATABASE_URL": "postgresql:///none", "BRIDGE_KEY": KEY}
    done = run_here("serve", str(file), "--workers", "2", state=tmp_path, **given)
    assert done.returncode == 2
    assert words in done.stderr


GUARDED: Final = """
public_url = "https://127.0.0.1"
trusted_proxies = ["127.0.0.0/8"]
principal_header = "X-User"

[bridge.tls]
certificate = "bridge.pem"
key = "bridge.key"
client_ca = "company.pem"
client_certificate = "optional"

[issuers.corp]
issuer = "ISSUER"
audience.{agent} = ["api://desk"]
scopes.echo = ["echo"]

[principals.bob]
certificate = "subject:CN=bob"
skills = ["add"]

[principals.cy]
forwarded = "cy@example.com"
skills = ["fail"]

"""
EXTENDED: Final = {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "params": {}}


@pytest.mark.anyio
async def test_each_worker_knows_callers_by_certificate_by_token_and_by_what_a_proxy_says(
    tmp_path: Path,
) -> None:
    authority, issuer = Authority(tmp_path, "company"), TokenIssuer("")
    authority.issues("bridge", x509.IPAddress(ip_address("127.0.0.1")))
    nobody, bob = authority.trusted(), authority.trusted(authority.issues("bob"))
    async with listening(issuer) as issuer.url:
        token, foreign = (
            bearer(issuer.token(audience, scope="echo")) for audience in ("api://desk", "api://x")
        )
        proxied = {"X-User": "cy@example.com"}
        with serving(tmp_path, of_bridge=GUARDED.replace("ISSUER", issuer.url)) as bridge:
            asked: dict[str, tuple[ssl.SSLContext, Mapping[str, str]]] = {
                "a token": (nobody, token),
                "a certificate": (bob, {}),
                "a proxy": (nobody, proxied),
                "a token of another face": (nobody, foreign),
                "nothing": (nobody, {}),
                "a certificate and the token of another": (bob, token),
                "a certificate and a header for another": (bob, proxied),
            }
            for worker in bridge.workers:
                found: dict[str, list[str] | int] = {}
                for name, (tls, headers) in asked.items():
                    async with bridge.client_of_another(worker, tls) as client:
                        url = f"https://127.0.0.1:{bridge.port}/agents/{bridge.agent}"
                        answer = await client.post(url, json=EXTENDED, headers={**VERSION, **headers})
                    is_let_in = answer.status_code == 200
                    skills = answer.json()["result"]["skills"] if is_let_in else []
                    found[name] = [one["id"] for one in skills] if is_let_in else answer.status_code
                assert found == {
                    "a token": ["echo"],
                    "a certificate": ["add"],
                    "a proxy": ["fail"],
                    "a token of another face": 401,
                    "nothing": 401,
                    "a certificate and the token of another": 401,
                    "a certificate and a header for another": 401,
                }
