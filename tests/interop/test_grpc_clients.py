"""Clients of gRPC that others wrote, each in a process of its own, before `mcp-a2a wrap --grpc` of server-everything.

Their scripts and environments are those of the matrix (`tests/matrix/peers`). A script calls each operation once and
prints what came of it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import httpx2
import pytest

from tests.matrix.environments import FOLDER, NotInstalledError, Peer
from tests.matrix.peer_as_client import environment_of
from tests.peers.node import everything_command, require_peers
from tests.support.command import process_of, wrapping
from tests.support.lines import WAIT_SECONDS
from tests.support.ports import free_port

pytestmark = pytest.mark.long

HOOK: Final = "http://127.0.0.1:9/hook"
"""A webhook that nobody serves: only its configuration counts."""
CAME: Final[dict[str, Any]] = {
    "send": ["completed", "Echo: grüße"],
    "get": True,
    "list": True,
    "push": [True, 1, 0],
    "cancel": "canceled",
    "subscribe": ["task", "canceled"],
    "stream": ["submitted", "canceled"],
}
ROWS: Final = {
    "a2a_sdk_1_grpc": {**CAME, "errors": ["TaskNotFoundError", "TaskNotCancelableError"]},
    "a2a_js_1_grpc": {**CAME, "errors": ["TaskNotFoundError", "TaskNotCancelableError"]},
    "a2a_sdk_0_3_grpc": {
        **{name: came for name, came in CAME.items() if name != "list"},
        "push": [True],
        "errors": ["NOT_FOUND", "FAILED_PRECONDITION"],
    },
}


@pytest.fixture(scope="module")
async def agent_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    require_peers()
    grpc = ("--grpc", f"127.0.0.1:{free_port()}", "--push-allow", "127.0.0.1:9")
    folder = tmp_path_factory.mktemp("state")
    bridge = wrapping(
        "--store", "memory:", *grpc, state=folder, server=(*everything_command(),), start=subprocess.Popen
    )
    async with process_of(bridge) as running, httpx2.AsyncClient(trust_env=False) as client:
        catalog = (
            await client.get(f"{running.url}/.well-known/agent-card.json", follow_redirects=True)
        ).json()
        http = next(one for one in catalog["supportedInterfaces"] if one["protocolBinding"] == "JSONRPC")
        yield http["url"]


def installed(name: str) -> Peer:
    """A peer with its environment; the test is skipped where no registry answers, and fails where CI=true."""
    peer = Peer(name)
    try:
        peer.install()
    except NotInstalledError as exc:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(exc))
    return peer


@pytest.mark.proves("a2a-10.1-grpc", "a2a-10.7-streaming")
@pytest.mark.parametrize("name", ROWS)
async def test_a_client_in_its_own_process_calls_every_operation(
    name: str, agent_url: str, tmp_path: Path
) -> None:
    peer = await anyio.to_thread.run_sync(installed, name)
    command = peer.command("operations")  # type: ignore[arg-type] # a third script beside those of the matrix
    assert command is not None, FOLDER
    with anyio.fail_after(4 * WAIT_SECONDS):
        done = await anyio.run_process(
            [*command, agent_url.rstrip("/"), HOOK],
            stdin=subprocess.DEVNULL,
            env=environment_of(peer.environment, ""),
            cwd=tmp_path,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == ROWS[name]
