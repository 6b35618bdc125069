"""One peer as a client: the real command wraps the MCP server, and the peer's script calls the agent.

What the script says is believed but for what the bridge itself can tell: whether a task was canceled, and whether two
turns stood in one context.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2

from tests.matrix.cells import Cell
from tests.matrix.environments import FOLDER
from tests.matrix.scenarios import Outcome, Scenario
from tests.support.command import process_of, wrapping
from tests.support.ports import free_port

TOOL_SERVER: Final = Path(__file__).with_name("tool_server.py")
PEER_SECONDS: Final = 300
"""How long all scenarios of one peer may take."""
Task = Mapping[str, Any]
"""A task as the bridge lists it, in the JSON of 1.0."""
_SILENT: Final = Cell(Outcome.FAIL, "the script ended without a word about it")


@asynccontextmanager
async def wrapped_server(folder: Path, *, with_grpc: bool) -> AsyncIterator[str]:
    """The URL of the agent that the real command makes of the tool server.

    The card names gRPC only for peers that use it: google-adk 2.13.0 refuses a card with an address without a scheme.
    """
    server = (sys.executable, str(TOOL_SERVER))
    options = ["--era", "modern", "--store", "memory:"]
    options += ["--grpc", f"127.0.0.1:{free_port()}"] if with_grpc else []
    bridge = wrapping(*options, state=folder, server=server, start=subprocess.Popen)
    async with process_of(bridge) as running:
        yield f"{running.url}/agents/matrix"


async def cells_of_client(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, *, with_grpc: bool
) -> dict[Scenario, Cell]:
    """Run the script of a client to its end; what came of each scenario."""
    async with wrapped_server(folder, with_grpc=with_grpc) as url:
        said = await _said_by([*command, url], environment, folder)
        cells = {scenario: said.get(scenario, _SILENT) for scenario in Scenario}
        tasks = await _tasks(url)
        (folder / "tasks.json").write_text(json.dumps(tasks, indent=1), "utf-8")
        return borne_out(cells, tasks)


async def _said_by(
    command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> dict[Scenario, Cell]:
    with (folder / "client.txt").open("wb") as log, anyio.move_on_after(PEER_SECONDS):
        done = await anyio.run_process(
            command, stdin=subprocess.DEVNULL, stderr=log, check=False, env=environment, cwd=folder
        )
        return cells_in(done.stdout.decode(errors="replace"))
    return {}


def cells_in(text: str) -> dict[Scenario, Cell]:
    """The lines of the contract among all that a script has printed."""
    cells = {}
    for line in text.splitlines():
        if line.startswith('{"scenario"'):
            said = json.loads(line)
            cells[Scenario(said["scenario"])] = Cell(Outcome(said["outcome"]), said["words"])
    return cells


async def _tasks(url: str) -> list[Task]:
    async with httpx2.AsyncClient(trust_env=False, headers={"A2A-Version": "1.0"}) as client:
        answer = await client.get(f"{url}/tasks", params={"pageSize": 100, "historyLength": 100})
    return list(answer.raise_for_status().json()["tasks"])


def borne_out(cells: Mapping[Scenario, Cell], tasks: Sequence[Task]) -> dict[Scenario, Cell]:
    """The cells; a pass that the bridge's own tasks speak against is a failure."""
    against = {}
    if not any(task["status"]["state"] == "TASK_STATE_CANCELED" for task in tasks):
        against[Scenario.CANCEL] = "the bridge has no canceled task"
    first, second = (_contexts(tasks, words) for words in ("first", "second"))
    if not first & second:
        against[Scenario.TURNS] = "the two turns came to the bridge in two contexts"
    failed = {scenario: Cell(Outcome.FAIL, words) for scenario, words in against.items()}
    return {
        scenario: failed.get(scenario, cell) if cell.outcome is Outcome.PASS else cell
        for scenario, cell in cells.items()
    }


def _contexts(tasks: Sequence[Task], words: str) -> set[str]:
    """The contexts of the tasks that were asked to echo some words."""
    return {
        task["contextId"] for task in tasks if f"echo text={words}" in json.dumps(task.get("history", []))
    }


def environment_of(peer_environment: Path, model: str) -> dict[str, str]:
    """The environment variables of a script: nothing of ours, no telemetry, nobody's proxy, and the model."""
    return {
        "PATH": f"{peer_environment / 'bin'}:/usr/bin:/bin",
        "HOME": str(peer_environment),
        "PYTHONPATH": str(FOLDER),
        "PYTHONUNBUFFERED": "1",
        "MATRIX_MODEL": model,
        "NO_COLOR": "1",
        "OTEL_SDK_DISABLED": "true",
        "DO_NOT_TRACK": "1",
    }
