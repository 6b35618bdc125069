"""Child servers that write invalid lines, die in the middle of a line, leave processes behind, or are killed under
load."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest

from tests.support.kills import kill_often
from tests.support.limits import child_pace, command_of
from tests.support.processes import PROC, children_with, gone
from tests.support.running import RAW_SERVER, Rpc, call_part, config_for, running, texts

pytestmark = [
    pytest.mark.skipif(not PROC.is_dir(), reason="processes are looked up in /proc"),
    pytest.mark.proves("map-lost"),
]

KILLS: Final = 4
"""`make interop` has a thousand."""
COMPLETED: Final = "TASK_STATE_COMPLETED"
FAILED: Final = "TASK_STATE_FAILED"

RUBBISH: Final = f"""
import os, sys
sys.path.insert(0, {str(RAW_SERVER.parent)!r})
import raw_server

send = raw_server.send
def send_between_rubbish(message):
    os.write(1, b"Listening...\\n\\xff\\xfe\\x00\\n\\n[1, 2]\\n{{\\"jsonrpc\\": \\"2.0\\"}}\\nnull\\n")
    send(message)
    os.write(1, b"{{\\"jsonrpc\\": \\"2.0\\", \\"id\\": 77777, \\"result\\": {{}}}}\\nINFO done\\n")
raw_server.send = send_between_rubbish

call = raw_server.call
def call_or_die(request_id, params):
    if params["name"] == "die":
        os.write(1, b'{{"jsonrpc": "2.0", "id": %d, "result": {{"content": [{{"ty' % request_id)
        os._exit(1)
    call(request_id, params)
raw_server.call = call_or_die

raw_server.main([])
"""

WITH_GRANDCHILD: Final = f"""
import subprocess, sys
sys.path.insert(0, {str(RAW_SERVER.parent)!r})
import raw_server

call = raw_server.call
child = subprocess.Popen([sys.executable, "-S", "-E", "-c", "import time; time.sleep(600)", "grandchild"])
def call_or_tell(request_id, params):
    if params["name"] == "echo":
        params["arguments"]["text"] = str(child.pid)
    call(request_id, params)
raw_server.call = call_or_tell

raw_server.main([])
"""


def said(task: Any) -> list[str]:
    """The output of a task, or why it has none."""
    if task["status"]["state"] == COMPLETED:
        return texts(task["artifacts"][0]["parts"])
    assert task["status"]["state"] == FAILED, task
    return texts(task["status"]["message"]["parts"])


@pytest.mark.proves("mcp-child")
async def test_invalid_lines_on_stdout_are_skipped_and_half_a_line_at_the_end_is_no_answer() -> None:
    command = command_of((sys.executable, "-c", RUBBISH))
    async with running(config_for(command)) as bridge, httpx2.AsyncClient(timeout=30) as http:
        rpc = Rpc(http, bridge.base_url)
        for number in range(20):
            assert said(await rpc.send(call_part("echo", text=f"number {number}"))) == [f"number {number}"]
        assert said(await rpc.send(call_part("progress", steps=50))) == ["50 steps"]
        assert said(await rpc.send(call_part("die"))) == ["The server process of raw ended"]
        assert said(await rpc.send(call_part("echo", text="up again"))) == ["up again"]


@pytest.mark.proves("map-lost", "mcp-no-leak")
async def test_a_killed_server_leaves_no_process_behind_that_holds_its_stdout() -> None:
    argv = (sys.executable, "-S", "-E", "-c", WITH_GRANDCHILD, "with-grandchild")
    command = command_of(argv, pace=child_pace(flush_seconds=0.1, quiet_seconds=0.1))
    async with running(config_for(command)) as bridge, httpx2.AsyncClient(timeout=30) as http:
        rpc = Rpc(http, bridge.base_url)
        grandchildren: list[int] = []
        for _ in range(3):
            grandchildren.append(int(said(await rpc.send(call_part("echo", text="")))[0]))
            (server,) = children_with("with-grandchild")
            waiting = await rpc.send(call_part("wait"), configuration={"returnImmediately": True})
            await rpc.send(call_part("echo", text="so that the other call has arrived"))
            os.kill(server, signal.SIGKILL)
            ended = await _ended(rpc, waiting["id"])
            assert said(ended) == ["The server process of raw ended"]
        assert len(set(grandchildren)) == 3
        await gone(*grandchildren[:2])
    await gone(*grandchildren)
    assert not children_with("with-grandchild")


async def _ended(rpc: Rpc, task_id: str) -> Any:
    """A task, once its stream has ended."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
    with anyio.fail_after(20):
        async with rpc.client.stream("POST", rpc.url, json=body, headers=rpc.headers) as response:
            await response.aread()
    return await rpc.call("GetTask", {"id": task_id})


@pytest.mark.proves("map-lost", "mcp-no-leak")
@pytest.mark.parametrize("store", ["memory:", "tasks.db"])
@pytest.mark.smoke("tasks.db")
async def test_a_server_that_is_killed_repeatedly_leaves_no_call_unanswered_and_no_process_behind(
    store: str, tmp_path: Path
) -> None:
    tally = await kill_often(KILLS, store if store == "memory:" else str(tmp_path / store))
    tally.check()
