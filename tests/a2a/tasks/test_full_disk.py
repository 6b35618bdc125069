"""What becomes of a task, and of the service, when the disk is full, on a small one, or the store is taken away."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge.a2a.model.errors import UNAVAILABLE, A2AError
from bridge.a2a.model.objects import Task, TaskState, text_of
from bridge.a2a.tasks.agent import Job
from bridge.a2a.tasks.engine import Engine
from bridge.a2a.tasks.registry import StorePace
from bridge.store.sqlite import SQLiteStore
from tests.support.agents import ALICE, asked, engine_of, give, say
from tests.support.drivers import PATIENCE_SECONDS

DISK_BYTES = 1024 * 1024
PACE = StorePace(look_seconds=0.01, retry_seconds=0.001)
PROBES = 20
"""Turns that the engine has to try and end the task while the disk is still full."""
W, C, F = TaskState.WORKING, TaskState.COMPLETED, TaskState.FAILED


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system of a megabyte."""
    if sys.platform != "linux":
        pytest.skip("a small file system is mounted on Linux only")
    folder = tmp_path_factory.mktemp("disk")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False)
    except OSError as exc:
        pytest.skip(f"mount cannot be run: {exc}")
    if mounted.returncode:
        pytest.skip("only root may mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


class Filler:
    """A file that leaves so much room on a disk."""

    def __init__(self, disk: Path) -> None:
        self._disk = disk
        self._file = disk / "filler"

    def fill(self, room_bytes: int) -> None:
        """Take all room but this."""
        free = os.statvfs(self._disk)
        self._file.write_bytes(bytes(max(free.f_bavail * free.f_frsize - room_bytes, 0)))

    def free(self) -> None:
        """Give the room back."""
        self._file.unlink(missing_ok=True)


async def in_service(engine: Engine) -> None:
    """Wait until the engine takes new work and has nothing left to look after."""
    while not engine.ready or list(engine._tasks):
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("size_bytes", [1, 4_000, 40_000, 200_000])
@pytest.mark.parametrize("room_bytes", [0, 4_096, 8_192, 16_384, 32_768, 65_536])
@pytest.mark.proves("store-visible")
async def test_once_a_full_disk_has_room_again_the_task_has_ended_and_new_ones_are_taken(
    disk: Path, room_bytes: int, size_bytes: int
) -> None:
    filler, began, go, ended = Filler(disk), anyio.Event(), anyio.Event(), anyio.Event()
    sizes = [1, size_bytes]

    async def work(job: Job) -> None:
        await say(job, W)
        began.set()
        await go.wait()
        try:
            give(job, "x" * sizes.pop())
            await say(job, C)
        finally:
            ended.set()

    store = SQLiteStore(disk / f"{room_bytes}-{size_bytes}.db")
    at_once: dict[str, Any] = {"configuration": {"returnImmediately": True}}
    with anyio.fail_after(PATIENCE_SECONDS):
        async with store, engine_of(work, store, store_pace=PACE) as engine:
            task = await engine.send(asked(**at_once), ALICE)
            assert isinstance(task, Task)
            await began.wait()
            filler.fill(room_bytes)
            go.set()
            await ended.wait()
            for _ in range(PROBES):
                await store.probe()
            filler.free()
            await in_service(engine)
            assert_ended(await engine.get(task.id, None, ALICE))
            another = await engine.send(asked(), ALICE)
            assert isinstance(another, Task)
            assert another.status.state is C
    for file in disk.iterdir():
        file.unlink()


@pytest.mark.proves("store-visible")
async def test_a_full_disk_that_no_task_found_out_about_does_not_end_service(disk: Path) -> None:
    filler, store = Filler(disk), SQLiteStore(disk / "idle.db")

    async def work(job: Job) -> None:
        await say(job, C)

    with anyio.fail_after(PATIENCE_SECONDS):
        async with store, engine_of(work, store, store_pace=PACE) as engine:
            filler.fill(0)
            while await store.probe():  # until the log has no page left that it may use again
                await anyio.lowlevel.checkpoint()
            assert not engine.ready
            filler.free()
            await in_service(engine)
            task = await engine.send(asked(), ALICE)
            assert isinstance(task, Task)
            assert task.status.state is C
    for file in disk.iterdir():
        file.unlink()


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be deleted there")
@pytest.mark.proves("store-visible")
async def test_an_engine_whose_store_is_deleted_takes_nothing_more_in(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "tasks.db")

    async def work(job: Job) -> None:
        await say(job, C)

    with anyio.fail_after(PATIENCE_SECONDS):
        async with store, engine_of(work, store, store_pace=PACE) as engine:
            assert (await engine.send(asked(), ALICE)).status.state is C  # type: ignore[union-attr]
            (tmp_path / "tasks.db").unlink()
            while engine.ready:
                await anyio.lowlevel.checkpoint()
            with pytest.raises(A2AError) as caught:
                await engine.send(asked(), ALICE)
            assert caught.value.kind is UNAVAILABLE


def assert_ended(task: Task) -> None:
    """It came to an end that is known, and says why when it failed."""
    assert task.status.state in {C, F}
    if task.status.state is F:
        assert task.status.message is not None
        assert text_of(task.status.message.parts) == "The bridge could not store what happened to this task"
