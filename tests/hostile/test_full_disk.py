"""What becomes of a task, and of the service, when the disk under the store is full: on a small one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import anyio
import pytest

from bridge.a2a.model.objects import Task, TaskState, text_of_parts
from bridge.a2a.tasks.agent import Job
from bridge.a2a.tasks.engine import Engine
from bridge.a2a.tasks.task_registry import StorePace
from bridge.store.sqlite import SQLiteStore
from tests.support.agents import ALICE, asked, engine_of, give, say
from tests.support.drivers import PATIENCE_SECONDS
from tests.support.small_disk import NoSmallDiskError, SmallDisk, small_disk

DISK_BYTES = 1024 * 1024
PACE = StorePace(look_seconds=0.01, retry_seconds=0.001)
PROBES = 20
"""Turns that the engine has to try and end the task while the disk is still full."""
W, C, F = TaskState.WORKING, TaskState.COMPLETED, TaskState.FAILED


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    """A file system of a megabyte."""
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(small_disk(tmp_path_factory.mktemp("disk"), DISK_BYTES))
        except NoSmallDiskError as exc:
            pytest.skip(str(exc))
        yield disk


async def in_service(engine: Engine) -> None:
    """Wait until the engine takes new work and has nothing left to look after."""
    while not engine.ready or list(engine.registry):
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("size_bytes", [1, 4_000, 40_000, 200_000])
@pytest.mark.parametrize("room_bytes", [0, 4_096, 8_192, 16_384, 32_768, 65_536])
@pytest.mark.proves("store-visible")
@pytest.mark.smoke("0-*", "4096-1")
async def test_once_a_full_disk_has_room_again_the_task_has_ended_and_new_ones_are_taken(
    disk: SmallDisk, room_bytes: int, size_bytes: int
) -> None:
    began, go, ended = anyio.Event(), anyio.Event(), anyio.Event()
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

    store = SQLiteStore(disk.folder / f"{room_bytes}-{size_bytes}.db")
    at_once: dict[str, Any] = {"configuration": {"returnImmediately": True}}
    with anyio.fail_after(PATIENCE_SECONDS):
        async with store, engine_of(work, store, store_pace=PACE) as engine:
            task = await engine.send(asked(**at_once), ALICE)
            assert isinstance(task, Task)
            await began.wait()
            disk.fill(room_bytes)
            go.set()
            await ended.wait()
            for _ in range(PROBES):
                await store.probe()
            disk.free()
            await in_service(engine)
            assert_ended(await engine.get(task.id, None, ALICE))
            another = await engine.send(asked(), ALICE)
            assert isinstance(another, Task)
            assert another.status.state is C
    for file in disk.folder.iterdir():
        file.unlink()


@pytest.mark.proves("store-visible")
async def test_a_full_disk_that_no_task_found_out_about_does_not_end_service(disk: SmallDisk) -> None:
    store = SQLiteStore(disk.folder / "idle.db")

    async def work(job: Job) -> None:
        await say(job, C)

    with anyio.fail_after(PATIENCE_SECONDS):
        async with store, engine_of(work, store, store_pace=PACE) as engine:
            disk.fill(0)
            while engine.ready:  # until the log has no page left that it may use again
                await store.probe()
                await anyio.lowlevel.checkpoint()
            disk.free()
            await in_service(engine)
            task = await engine.send(asked(), ALICE)
            assert isinstance(task, Task)
            assert task.status.state is C
    for file in disk.folder.iterdir():
        file.unlink()


def assert_ended(task: Task) -> None:
    """It came to an end that is known, and says why when it failed."""
    assert task.status.state in {C, F}
    if task.status.state is F:
        assert task.status.message is not None
        assert (
            text_of_parts(task.status.message.parts)
            == "The bridge could not store what happened to this task"
        )
