"""A real Prometheus reads real bridges by the files of examples/operate: what the dashboard and the alerts then say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest
from starlette.responses import JSONResponse, Response

from tests.operate.asked import everything
from tests.operate.bridges import Serving, served
from tests.operate.prometheus import Prometheus, programs_or_skip, reading
from tests.peers.install import PEERS, node
from tests.peers.node import require_peers
from tests.support.authorization_server import AuthorizationServer
from tests.support.command import ROOT
from tests.support.login_server import LoginServer
from tests.support.ports import free_port
from tests.support.postgres import database
from tests.support.processes import PROC, children_with
from tests.support.receiver import Receiver, receiving
from tests.support.running import RAW_SERVER, call_part, message

pytestmark = [
    pytest.mark.long,
    pytest.mark.outside,
    pytest.mark.skipif(not PROC.is_dir(), reason="processes are looked up in /proc"),
]

_EVERYTHING: Final = PEERS / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
_MEMORY: Final = PEERS / "node_modules/.bin/mcp-server-memory"

ALL_IS_WELL: Final = """
[bridge]
port = {port}
metrics = "127.0.0.1:{metrics}"
store = "memory:"
public_url = "http://127.0.0.1:{port}"
[audit]
file = "audit/audit.jsonl"
[push]
enabled = true
allow = [{receiver}]
[principals.ann]
bearer = {{ env = "ANN_TOKEN" }}
[tool_servers.everything]
command = {everything}
concurrency = 1
[tool_servers.words]
command = {memory}
fail = "open"
[agents.words]
card = "http://127.0.0.1:{words}"
[tools_as_agent.desk]
from = ["everything", "words"]
[agents_as_tools.desk]
from = ["words"]
tools.shout = {{ concurrency = 1 }}
"""
"""The agent and the MCP server have one name, as have a tool server and a remote agent."""

MORE_PEERS: Final = """
[tool_servers.crm]
url = "{crm}"
fail = "open"
[tool_servers.crm.auth.oauth2]
grant = "authorization_code"
[tool_servers.bills]
url = "{bills}"
fail = "open"
[tool_servers.bills.auth.oauth2]
grant = "client_credentials"
issuer = "{issuer}"
client_id = "bridge"
client_secret = {{ env = "ANN_TOKEN" }}
[tools_as_agent.shop]
from = ["crm", "bills"]
"""
WITH_DATABASE: Final = """
[bridge]
port = {port}
metrics = "127.0.0.1:{metrics}"
store = {{ env = "DATABASE_URL" }}
keys = [{{ env = "ANN_TOKEN" }}]
[tool_servers.tools]
command = {raw}
[tools_as_agent.desk]
from = ["tools"]
[agents_as_tools.face]
from = ["desk"]
"""
OF_DATABASES: Final = {"StoreRefusesTasks"}
"""What only a bridge with a PostgreSQL shows."""
NEVER: Final = {"PushIsStuck", "NoBridgeIsRead"}
"""What takes a quarter of an hour, or a Prometheus that reads something else: `promtool test rules` has them."""


@dataclass
class Looks:
    """Which expressions have given data so far."""

    prometheus: Prometheus
    seen: set[str] = field(default_factory=set)

    async def look(self) -> None:
        """Ask for all of them, as the dashboard with every name chosen and the rules do."""
        for asked in everything():
            if await self.prometheus.query(asked.filled()):
                self.seen.add(asked.where)

    @property
    def missing(self) -> set[str]:
        """What has given nothing yet."""
        return {asked.where for asked in everything()} - self.seen


@dataclass
class There:
    """A bridge, its peers, and a Prometheus that reads it."""

    bridge: Serving
    prometheus: Prometheus
    looks: Looks
    receiver: Receiver
    down: Path
    """While this is there, the memory server does not start."""
    words: subprocess.Popen[bytes]
    metrics: int
    text: str
    """The file."""

    async def add(self) -> dict[str, Any]:
        """A call of the npm server."""
        task: dict[str, Any] = await self.bridge.agent("desk").send(call_part("get-sum", a=1, b=2))
        return task

    async def moved(self, series: str, least: float) -> None:
        """Wait until Prometheus knows that this sum has come so far."""
        await self.prometheus.until(f"sum({series}) >= {least}")


@asynccontextmanager
async def words_agent(port: int) -> AsyncIterator[subprocess.Popen[bytes]]:
    """An agent that is no bridge."""
    command = [sys.executable, str(ROOT / "examples" / "demo_agent.py"), str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            async with httpx2.AsyncClient() as client:
                while True:
                    try:
                        await client.get(f"http://127.0.0.1:{port}/.well-known/agent-card.json")
                        break
                    except httpx2.TransportError:
                        await anyio.sleep(0.05)
            yield process
        finally:
            process.kill()


@asynccontextmanager
async def there(folder: Path) -> AsyncIterator[There]:
    """All of them, while all is well."""
    found = programs_or_skip()
    require_peers()
    port, metrics, words, down = free_port(), free_port(), free_port(), folder / "down"
    memory = f"test ! -e {down} && exec {_MEMORY}"
    async with receiving() as receiver, words_agent(words) as agent:
        text = ALL_IS_WELL.format(
            port=port,
            metrics=metrics,
            words=words,
            receiver=json.dumps(receiver.place),
            everything=json.dumps([str(node()), str(_EVERYTHING), "stdio"]),
            memory=json.dumps(["sh", "-c", memory]),
        )
        file = folder / "bridge.toml"
        file.write_text(text)
        async with served(file, port) as bridge, reading(folder, [metrics], found) as prometheus:
            yield There(bridge, prometheus, Looks(prometheus), receiver, down, agent, metrics, text)


async def test_all_panels_have_data_and_all_alerts_fire_in_their_turn_and_none_while_all_is_well(
    tmp_path: Path,
) -> None:
    refuses = AuthorizationServer(token=lambda _: JSONResponse({"error": "invalid_client"}, 401))
    async with there(tmp_path) as here, refuses.serve() as issuer, LoginServer().serve() as crm:
        await all_is_well(here)
        await calls_wait(here)
        await webhooks_are_given_up(here)
        await more_peers(here, issuer, crm)
        await the_audit_is_away(here, tmp_path)
        await what_fails(here)
        await the_bridge_ends(here)
        assert here.looks.missing == OF_DATABASES | NEVER
        assert here.prometheus.complaints() == []


async def test_with_a_database_metrics_are_read_while_it_is_away_and_the_alert_fires(tmp_path: Path) -> None:
    found, port, metrics = programs_or_skip(), free_port(), free_port()
    file = tmp_path / "bridge.toml"
    raw = json.dumps([sys.executable, "-S", "-E", str(RAW_SERVER)])
    file.write_text(WITH_DATABASE.format(port=port, metrics=metrics, raw=raw))
    with database() as server:
        async with (
            served(file, port, until="agents/desk", DATABASE_URL=server.url) as bridge,
            reading(tmp_path, [metrics], found) as prometheus,
        ):
            looks = Looks(prometheus)
            calls = 'sum(a2a_server_operation_duration_seconds_count{skill="echo"})'
            for number in (1, 2):
                task = await bridge.agent("desk").send(call_part("echo", text="x"))
                assert task["status"]["state"] == "TASK_STATE_COMPLETED"
                await prometheus.until(f"{calls} >= {number}")
            await bridge.agent("desk").send(call_part("echo"))
            waiting = 'max(a2a_tasks_waiting{state="input_required"}) == 1'
            await prometheus.until(waiting)
            await prometheus.until(f"{calls} >= 3")
            await looks.look()
            assert await prometheus.firing() == {}

            server.stop()
            fired = await prometheus.until_fires("StoreRefusesTasks")
            instance = f"127.0.0.1:{metrics}"
            assert said(fired, "StoreRefusesTasks") == [f"The tasks of desk cannot be stored by {instance}"]
            await looks.look()
            # Metrics are read as before while the database is away.
            assert await prometheus.query("up == 1") != []
            server.start()
            await prometheus.until("mcp_a2a_store_ready == 0", is_there=False)
            assert await prometheus.faults_of_rules() == []
            assert prometheus.complaints() == []
        assert looks.seen >= OF_DATABASES


async def all_is_well(here: There) -> None:
    """Calls of both protocols, a question that waits, and no alert."""
    calls = 'a2a_server_operation_duration_seconds_count{skill="get-sum"}'
    for number in (1, 2):
        assert (await here.add())["status"]["state"] == "TASK_STATE_COMPLETED"
        answer = await here.bridge.tools("desk").tool(number, "shout", message="hello")
        assert not answer["result"].get("isError"), answer
        await here.moved(calls, number)
        await here.moved('a2a_client_operation_duration_seconds_count{peer="words"}', number)
    task = await here.bridge.agent("desk").send(call_part("trigger-elicitation-request"))
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", task
    await here.moved('a2a_tasks_waiting{state="input_required"}', 1)
    assert await here.prometheus.query("mcp_a2a_peer_up == 1") != []
    assert {labels["protocol"] for labels, _ in await here.prometheus.query("mcp_a2a_streams")} == {
        "a2a",
        "mcp",
    }
    await here.looks.look()
    assert await here.prometheus.firing() == {}
    assert await here.prometheus.faults_of_rules() == []
    await here.bridge.agent("desk").call("CancelTask", {"id": task["id"]})


async def the_audit_is_away(here: There, folder: Path) -> None:
    """Calls while the folder of the audit is not there."""
    file, aside = folder / "audit", folder / "aside"
    file.rename(aside)
    assert (await here.add())["status"]["state"] == "TASK_STATE_COMPLETED"
    fired = await here.prometheus.until_fires("AuditFails")
    assert said(fired, "AuditFails") == [f"127.0.0.1:{here.metrics} cannot write its audit"]
    fired = await here.prometheus.until_fires("AuditLosesLines")
    assert said(fired, "AuditLosesLines") == [f"127.0.0.1:{here.metrics} has lost lines of its audit"]
    await here.looks.look()
    aside.rename(file)


async def calls_wait(here: There) -> None:
    """Three calls that take 6 s each, at a server that takes one at a time."""
    part = call_part("trigger-long-running-operation", duration=6, steps=2)

    async def stream() -> None:
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": message(part)}
        agent = here.bridge.agent("desk")
        async with here.bridge.client.stream("POST", agent.url, json=body, headers=agent.headers) as answer:
            assert "TASK_STATE_COMPLETED" in [line async for line in answer.aiter_lines()][-2]

    async with anyio.create_task_group() as calling:
        for _ in range(3):
            calling.start_soon(stream)
        await here.moved("mcp_client_queue_depth", 2)
        await here.moved("mcp_a2a_streams", 3)
        await here.moved("a2a_tasks_running", 3)
        await here.looks.look()
    fired = await here.prometheus.until_fires("CallsWaitForTheirTurn")
    assert said(fired, "CallsWaitForTheirTurn") == ["Calls of everything wait for more than 5 s"]
    assert fired.keys() == {"CallsWaitForTheirTurn"}


async def webhooks_are_given_up(here: There) -> None:
    """The first webhook that a receiver refuses for good, and one that is tried again."""
    here.receiver.answers += [lambda _: Response(status_code=410), lambda _: Response(status_code=500)]
    for path in ("/gone", "/away"):
        wish = {"taskPushNotificationConfig": {"url": here.receiver.url(path)}}
        await here.bridge.agent("desk").send(call_part("get-sum", a=1, b=2), configuration=wish)
        await here.moved('a2a_push_attempts_total{outcome=~"failed|given_up"}', 1 + (path == "/away"))
    async with httpx2.AsyncClient() as anybody:
        answer = await anybody.post(f"{here.bridge.root}/push", json={})
    assert answer.status_code == 404
    await here.moved("a2a_push_received_total", 1)
    await here.moved("a2a_push_backed_off", 1)
    await here.looks.look()
    fired = await here.prometheus.until_fires("PushGivenUp")
    assert said(fired, "PushGivenUp") == ["desk has given up a receiver of its push notifications"]


async def more_peers(here: There, issuer: str, crm: str) -> None:
    """Peers whose issuers give no token: one wants a login of a person, one refuses the bridge."""
    text = here.text + MORE_PEERS.format(crm=crm, bills=f"{issuer}/mcp", issuer=issuer)
    await here.bridge.rewrite(text, "read again and taken over")
    fired = await here.prometheus.until_fires("LoginNeeded", "PeerDown", "TokensRefused")
    await here.looks.look()
    assert said(fired, "LoginNeeded") == ["A person has to log in at crm"]
    assert said(fired, "PeerDown") == [f"bills (mcp) cannot be called by 127.0.0.1:{here.metrics}"]
    assert said(fired, "TokensRefused") == [
        "Most requests for access tokens for bills fail (client_credentials)"
    ]


async def what_fails(here: There) -> None:
    """Peers that are stopped, calls of them, tokens that nobody knows, and a file that is refused."""
    here.down.touch()
    here.words.kill()
    for memory in children_with("mcp-server-memory", here.bridge.process.pid):
        os.kill(memory, signal.SIGKILL)
    await here.prometheus.until('mcp_a2a_peer_up{peer="words", protocol="mcp"} == 0')
    await here.bridge.rewrite(here.text + "[tool_servers.x]\n", "The file is not applied")
    async with httpx2.AsyncClient() as anybody:
        for number in range(400):
            assert (await anybody.post(here.bridge.agent("desk").url, json={})).status_code == 401
            if not number:
                await here.moved('a2a_server_operation_duration_seconds_count{outcome="UNAUTHENTICATED"}', 1)
    failed = 'a2a_server_operation_duration_seconds_count{outcome="failed"}'
    lost = 'a2a_client_operation_duration_seconds_count{outcome="NotReachedError"}'
    for number in (1, 2):
        async with anyio.create_task_group() as calling:
            for _ in range(4):
                calling.start_soon(fail, here)
        answer = await here.bridge.tools("desk").tool(number, "shout", message="hello")
        assert answer["result"]["isError"], answer
        await here.moved(failed, number * 4)
        await here.moved(lost, number)
    fired = await here.prometheus.until_fires(
        "PeerDown", "CallsFail", "CallersRefused", "ConfigurationRefused", "AgentNotReached"
    )
    await here.looks.look()
    assert f"words (mcp) cannot be called by 127.0.0.1:{here.metrics}" in said(fired, "PeerDown")
    assert said(fired, "AgentNotReached") == [
        f"Most requests to words get no answer at 127.0.0.1:{here.metrics}"
    ]
    assert said(fired, "CallsFail") == ["More than a tenth of the calls of desk fail"]


async def fail(here: There) -> None:
    """A call that the npm server refuses."""
    part = call_part("get-resource-reference", resourceType="Text", resourceId=-1)
    task = await here.bridge.agent("desk").send(part)
    assert task["status"]["state"] == "TASK_STATE_FAILED", task


async def the_bridge_ends(here: There) -> None:
    """The process is killed."""
    here.bridge.process.kill()
    await here.prometheus.until_fires("BridgeGone")
    await here.looks.look()


def said(fired: dict[str, list[dict[str, Any]]], name: str) -> list[str]:
    """The summaries of an alert that fires, as a person reads them."""
    return sorted(alert["annotations"]["summary"] for alert in fired[name])
