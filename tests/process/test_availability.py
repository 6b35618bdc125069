"""What replicas say together of a tool server that is down: real processes on one PostgreSQL, with one card."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest

from bridge.a2a.model.objects import milliseconds
from tests.support.command import children_of, environment, gone
from tests.support.forked import Forked
from tests.support.lines import WAIT_SECONDS, Lines
from tests.support.ports import free_port
from tests.support.postgres import new_agent, new_database_url
from tests.support.processes import PROC
from tests.support.running import RAW_SERVER, VERSION

pytestmark = [
    pytest.mark.long,
    pytest.mark.anyio,
    pytest.mark.skipif(not PROC.is_dir(), reason="processes are looked up in /proc"),
]

KEY: Final = "k" * 40
OPERATOR: Final = "o" * 40
AFTER_SECONDS: Final = 2
_SERVER: Final = """
import os, runpy, sys
folder, raw = sys.argv.pop(1), sys.argv.pop(1)
if any(os.path.exists(f"{folder}/down-{who}") for who in (os.getppid(), "everywhere")):
    sys.exit("this server is down")
runpy.run_path(raw, run_name="__main__")
"""
# A call waits for a server that is down as long as connecting may take: far less here than a client of the test waits.
_PROFILE: Final = """
extends = "default"
[card]
unavailable_after_seconds = %d
[server]
connect_seconds = 8
[store]
lease_seconds = 1.0
"""
_FILE: Final = """
[bridge]
public_url = "https://agents.example.com"
store = { env = "DATABASE_URL" }
keys = [{ env = "BRIDGE_KEY" }]
mapping = "./quick.toml"
[principals.boss]
bearer = { env = "OPERATOR" }
operator = "read"
[tool_servers.tools]
command = %s
[tools_as_agent.%s]
from = ["tools"]
mapping = "./quick.toml"
fail = "%s"
"""


@dataclass
class Replica:
    """A bridge that runs, and its own tool server."""

    process: subprocess.Popen[str]
    url: str
    folder: Path
    agent: str
    said: Lines
    variables: Mapping[str, str] = field(repr=False)

    def lose_its_server(self) -> None:
        """End its tool servers, so that they do not start again."""
        (self.folder / f"down-{self.process.pid}").touch()
        for pid in children_of(self.process.pid):
            if str(self.folder / "server.py") in command_of(pid):
                os.kill(pid, signal.SIGKILL)

    def find_it_again(self) -> None:
        """Let its tool servers start."""
        (self.folder / f"down-{self.process.pid}").unlink()

    async def card(self) -> tuple[dict[str, Any], str]:
        """The card that it shows, and its ETag."""
        async with httpx2.AsyncClient(timeout=WAIT_SECONDS) as client:
            answer = await client.get(f"{self.url}/agents/{self.agent}/.well-known/agent-card.json")
        return answer.json(), answer.headers["etag"]

    async def outages(self) -> list[dict[str, Any]]:
        """What its card says cannot be called."""
        card, _ = await self.card()
        found = [
            one["params"]["unavailable"]
            for one in card["capabilities"].get("extensions", [])
            if one["uri"] == "urn:mcp-a2a:availability:v1"
        ]
        return found[0] if found else []

    async def calls(self) -> str:
        """The state of a task that calls a tool here."""
        parts = [{"data": {"skill": "echo", "arguments": {"text": "hello"}}}]
        message = {"messageId": os.urandom(8).hex(), "role": "ROLE_USER", "parts": parts}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        headers = {**VERSION, "Authorization": f"Bearer {OPERATOR}"}
        async with httpx2.AsyncClient(timeout=WAIT_SECONDS) as client:
            answer = await client.post(f"{self.url}/agents/{self.agent}", json=body, headers=headers)
        return str(answer.json()["result"]["task"]["status"]["state"])

    async def ready(self, **headers: str) -> Any:
        """What `/readyz` says."""
        async with httpx2.AsyncClient(timeout=WAIT_SECONDS, headers=headers) as client:
            return (await client.get(f"{self.url}/readyz")).json()


def command_of(pid: int) -> str:
    """The command line of a process; empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@contextmanager
def replicas(folder: Path, count: int, *options: str, fail: str = "closed") -> Iterator[list[Replica]]:
    """So many processes that serve one file, and start without their tool servers as `fail` says."""
    agent, script = new_agent(), folder / "server.py"
    script.write_text(_SERVER)
    (folder / "quick.toml").write_text(_PROFILE % AFTER_SECONDS)
    command = json.dumps([sys.executable, "-S", "-E", str(script), str(folder), str(RAW_SERVER)])
    (folder / "bridge.toml").write_text(_FILE % (command, agent, fail))
    known = environment(folder, DATABASE_URL=new_database_url(), BRIDGE_KEY=KEY, OPERATOR=OPERATOR)
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            made.append(stack.enter_context(started(folder, agent, known, *options)))
            made[-1].said.until("curl -s")
        yield made


@contextmanager
def started(folder: Path, agent: str, variables: Mapping[str, str], *options: str) -> Iterator[Replica]:
    """One more process that serves the file."""
    port = free_port()
    file = str(folder / "bridge.toml")
    words = [sys.executable, "-P", "-m", "bridge", "serve", file, "--port", str(port), *options]
    with Forked(words, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=variables) as process:
        said = Lines(process, process.stderr)
        try:
            yield Replica(process, f"http://127.0.0.1:{port}", folder, agent, said, variables)
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    left = children_of(process.pid)
    if process.poll() is None:
        process.kill()
    assert gone(left)


async def until(all_of: Sequence[Replica], *states: str) -> None:
    """Wait until the cards of all of them say these states."""
    with anyio.fail_after(WAIT_SECONDS):
        while {tuple(said["state"] for said in await one.outages()) for one in all_of} != {states}:
            await anyio.sleep(0.1)


async def test_a_server_is_unavailable_once_no_replica_can_call_it_and_all_cards_are_the_same(
    tmp_path: Path,
) -> None:
    with replicas(tmp_path, 2) as (one, two):
        plain = await one.card()
        assert await two.card() == plain
        one.lose_its_server()
        boss = {"Authorization": f"Bearer {OPERATOR}"}
        lost = {"plan": "same", "unavailable": {"tools": "unreachable"}}
        with anyio.fail_after(WAIT_SECONDS):
            while [*(await two.ready(**boss))["replicas"]["others"].values()] != [lost]:
                await anyio.sleep(0.1)
        await anyio.sleep(2 * AFTER_SECONDS)
        assert [await two.calls(), await one.outages(), await two.outages()] == [
            "TASK_STATE_COMPLETED",
            [],
            [],
        ]
        two.lose_its_server()
        await until((one, two), "unreachable")
        (said,) = await one.outages()
        assert "echo" in said["skills"]
        assert milliseconds(said["since"]) % 60_000 == 0
        cards = [await one.card(), await two.card()]
        assert cards[0] == cards[1]
        assert cards[0][1] != plain[1]
        assert cards[0][0]["skills"] == plain[0]["skills"]
        # The reason is for operators alone.
        assert [*(await one.ready(**boss))["replicas"]["others"].values()] == [lost]
        assert (await one.ready()).keys() == {"status"}
        # The word of a replica that was killed ends with it.
        two.find_it_again()
        await until((one, two))
        os.kill(two.process.pid, signal.SIGKILL)
        await until((one,), "unreachable")


async def test_a_replica_that_is_started_while_a_server_is_down_shows_the_same_card(tmp_path: Path) -> None:
    with replicas(tmp_path, 2, fail="open") as (one, two):
        (tmp_path / "down-everywhere").touch()
        for each in (one, two):
            each.lose_its_server()
        await until((one, two), "unreachable")
        before = await one.card()
        assert "echo" in {skill["id"] for skill in before[0]["skills"]}
        _end(two.process)
        with started(tmp_path, one.agent, one.variables) as three:
            three.said.until("replicas share")
            await until((one, three), "unreachable")
            assert [await one.card(), await three.card()] == [before, before]
            assert await three.calls() == "TASK_STATE_FAILED"
