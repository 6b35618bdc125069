"""A disk that is full: the first call is told, the log names the cause first, and calls go on once there is room."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.command import WAIT_SECONDS, Wrapping
from tests.support.files import DEVTOOLS, RAW, TEAM, started, written
from tests.support.running import VERSION, call_part, message
from tests.support.small_disk import SmallDisk, small_disk

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root may mount a small file system"
)

SAYS = "The disk of the bridge is full, so it cannot store tasks at the moment"
MB = 1024 * 1024


@contextmanager
def nearly_full(folder: Path) -> Iterator[tuple[Wrapping, SmallDisk]]:
    """A bridge whose store is on a small disk."""
    mounted = folder / "disk"
    mounted.mkdir()
    path = written(folder, f"[bridge]\nstore = '{mounted}/tasks.db'\n", RAW, DEVTOOLS, TEAM)
    with (
        small_disk(mounted, 4 * MB) as disk,
        started("serve", str(path), "--port", state=folder / "state", until="Try it") as bridge,
    ):
        yield bridge, disk


def rpc(method: str) -> tuple[str, Any]:
    return "", {"jsonrpc": "2.0", "id": 1, "method": method, "params": message(call_part("echo", text="a"))}


def rest(path: str) -> tuple[str, Any]:
    return path, message(call_part("echo", text="a"))


@pytest.mark.long
def test_the_first_call_on_a_full_disk_is_told_and_calls_go_on_once_there_is_room(tmp_path: Path) -> None:
    with nearly_full(tmp_path) as (bridge, disk), httpx2.Client(timeout=WAIT_SECONDS) as client:
        for path, body in (
            rpc("SendMessage"),
            rpc("SendStreamingMessage"),
            rest("/message:send"),
            rest("/message:stream"),
        ):

            def call() -> httpx2.Response:
                url = f"http://127.0.0.1:{bridge.port}/agents/devtools{path}"  # noqa: B023
                return client.post(url, json=body, headers=VERSION)  # noqa: B023

            disk.fill(0)
            first = call()
            assert (first.status_code, SAYS in first.text) == (503, True), body
            assert SAYS in call().text, body
            bridge.read_until("ERROR the disk is full: ")
            disk.free()
            while (answer := call()).status_code == 503:
                pass
            assert answer.status_code == 200, body
