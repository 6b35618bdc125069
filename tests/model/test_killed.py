"""A bridge that is killed while a model is asked, or during a call that a model chose: nothing runs twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest

from tests.support.command import environment
from tests.support.forked import Forked
from tests.support.lines import WAIT_SECONDS, Lines
from tests.support.model_desk import ASKED, FILE, SECRETS, tools
from tests.support.model_server import ModelServer, chooses, waits
from tests.support.ports import free_port
from tests.support.processes import PROC
from tests.support.running import Rpc, texts
from tests.support.several import state, words
from tests.support.tool_server import ToolServer

pytestmark = [
    pytest.mark.long,
    pytest.mark.outside,
    pytest.mark.skipif(not PROC.is_dir(), reason="a process is killed as POSIX does it"),
]
GREETS, HOLDS = chooses("greet", {"who": "Ada"}), chooses("hold")


def written(folder: Path, model: ModelServer, server: ToolServer, rounds: int) -> Path:
    file = folder / "bridge.toml"
    text = FILE.replace("port = 0", f"port = {free_port()}").replace('"memory:"', '"sqlite:///tasks.db"')
    text = text.replace("{model}", f"{model.url}/v1").replace("{tools}", server.url)
    file.write_text(text.replace("{more}", f"rounds = {rounds}"), "utf-8")
    return file


@asynccontextmanager
async def process(file: Path) -> AsyncIterator[tuple[Rpc, subprocess.Popen[str]]]:
    """The bridge of a file as a process of its own, until it has ended."""
    port = file.read_text("utf-8").split("port = ")[1].split()[0]
    command = [sys.executable, "-P", "-m", "bridge", "serve", str(file)]
    env = environment(file.parent / "state", **SECRETS)
    with Forked(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=env) as child:
        try:
            await anyio.to_thread.run_sync(Lines(child, child.stderr).until, "Try it")
            async with httpx2.AsyncClient(timeout=WAIT_SECONDS) as http:
                yield Rpc(http, f"http://127.0.0.1:{port}/agents/desk"), child
        finally:
            if child.poll() is None:
                child.kill()
            await anyio.to_thread.run_sync(child.wait, WAIT_SECONDS)


async def kill_at(
    folder: Path, model: ModelServer, server: ToolServer, rounds: int, is_time: Any
) -> tuple[Any, int]:
    """The task of a text after the bridge was killed and started again, and the requests to the model by then."""
    file = written(folder, model, server, rounds)
    with anyio.fail_after(2 * WAIT_SECONDS):
        async with process(file) as (rpc, child):
            task = await rpc.send(ASKED, configuration={"returnImmediately": True})
            while not is_time():
                await anyio.sleep(0.01)
            child.send_signal(signal.SIGKILL)
        asked = len(model.requests)
        async with process(file) as (rpc, _):
            while state(task := await rpc.call("GetTask", {"id": task["id"]})) == "WORKING":
                await anyio.sleep(0.05)
    return task, asked


@pytest.mark.parametrize(("rounds", "at"), [(1, 1), (3, 1), (3, 2)])
async def test_a_bridge_killed_while_a_model_is_asked_asks_the_client_and_no_model(
    tmp_path: Path, rounds: int, at: int
) -> None:
    server, model = ToolServer("desk", tools()), ModelServer("openai", [*[GREETS] * (at - 1), waits(GREETS)])
    async with server.run(), model.run():
        task, asked = await kill_at(tmp_path, model, server, rounds, lambda: len(model.requests) == at)
        assert state(task) == "INPUT_REQUIRED"
        said = "no tool was run" if at == 1 else "These calls were made before: greet (answered)"
        assert said in words(task)
        assert len(task.get("artifacts", [])) == at - 1
        assert (asked, len(model.requests), len(server.calls)) == (at, at, at - 1)


@pytest.mark.parametrize("rounds", [1, 3])
async def test_a_bridge_killed_during_a_call_of_a_model_fails_the_task_and_does_not_call_again(
    tmp_path: Path, rounds: int
) -> None:
    script = [HOLDS] if rounds == 1 else [GREETS, HOLDS]
    server, model = ToolServer("desk", tools()), ModelServer("openai", script)
    async with server.run(), model.run():
        task, asked = await kill_at(tmp_path, model, server, rounds, lambda: server.running == 1)
        assert state(task) == "FAILED"
        assert "its outcome is not known" in words(task)
        assert [json.loads(texts(one["parts"])[0])[1] for one in task.get("artifacts", [])] == (
            [] if rounds == 1 else ["greet"]
        )
        assert (asked, len(model.requests)) == (len(script), len(script))
        assert [name for name, _ in server.calls][len(script) - 1 :] == ["hold"]
        server.released.set()
