"""What a receiver gets of a process that is killed again and again while it sends.

`PUSH_KILLS=200 .venv/bin/python -m pytest tests/interop/test_push_kills.py` kills as often as the release was tried.
"""

from __future__ import annotations

import os
import random
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import pytest
from anyio.streams.text import TextReceiveStream

from tests.support.receiver import Notification, Receiver, receiving

pytestmark = [pytest.mark.outside, pytest.mark.slow, pytest.mark.proves("a2a-4.3.3-push")]

KILLS: Final = int(os.environ.get("PUSH_KILLS", "5"))
SEED: Final = 20261123
_PATIENCE_SECONDS: Final = 300


async def lived(receiver: Receiver, store: Path, tasks: int, kill_after: float | None) -> list[str]:
    """One life of the process; the tasks that it was told are accepted. It is killed so long after its begin."""
    arguments = (str(store), receiver.root_url, receiver.place, str(tasks))
    command = [sys.executable, "-m", "tests.support.push_killed", *arguments]
    said = ""
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdout is not None
        with anyio.fail_after(_PATIENCE_SECONDS):
            async with anyio.create_task_group() as group:
                async for text in TextReceiveStream(process.stdout):
                    if not said and kill_after is not None:
                        group.start_soon(_kill, process, kill_after)
                    said += text
                group.cancel_scope.cancel()
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return said.splitlines()[1:]


async def _kill(process: anyio.abc.Process, after: float) -> None:
    await anyio.sleep(after)  # the moment is by chance: whichever it is, what follows must hold
    with suppress(ProcessLookupError):
        process.kill()


def repeated(got: list[Notification]) -> list[Notification]:
    """Those that came again; the rest must be in order."""
    last, again = 0, []
    for one in got:
        number = int(one.headers["webhook-id"].rpartition("_")[2])
        if number <= last:
            again.append(one)
            assert number == last, [each.headers["webhook-id"] for each in got]
        last = max(last, number)
    return again


async def test_every_end_arrives_in_order_however_often_the_process_is_killed(tmp_path: Path) -> None:
    chance, accepted = random.Random(SEED), []
    async with receiving() as receiver:
        for _ in range(KILLS):
            accepted += await lived(receiver, tmp_path / "tasks.db", 8, chance.uniform(0, 0.4))
        accepted += await lived(receiver, tmp_path / "tasks.db", 0, None)
        paths: dict[str, list[Notification]] = {}
        for one in receiver.got:
            paths.setdefault(one.path, []).append(one)
        ends = {path: got[-1].said for path, got in paths.items()}
        assert {f"/{name}" for name in accepted} <= paths.keys()
        assert {said.rpartition(" ")[2] for said in ends.values()} <= {"COMPLETED", "FAILED"}
        again = [one for got in paths.values() for one in repeated(got)]
        for one in again:
            [first, *_] = [
                each for each in paths[one.path] if each.headers["webhook-id"] == one.headers["webhook-id"]
            ]
            assert first.body == one.body
        print(f"{len(accepted)} tasks, {len(receiver.got)} notifications, {len(again)} came twice")
        assert len(again) <= KILLS * 4
