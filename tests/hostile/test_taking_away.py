"""A store whose file is taken away underneath it keeps nothing more, and says so."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from bridge.a2a.model.errors import UNAVAILABLE, A2AError
from bridge.a2a.model.objects import TaskState
from bridge.a2a.tasks.agent import Job
from bridge.a2a.tasks.task_registry import StorePace
from bridge.errors import StoreError
from bridge.store.sqlite import SQLiteStore
from tests.hostile.taking_away import WAYS
from tests.store.changes import first, keep, keep_all
from tests.support.agents import ALICE, asked, engine_of, say
from tests.support.drivers import PATIENCE_SECONDS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be taken away there")

C = TaskState.COMPLETED
PACE = StorePace(look_seconds=0.01, retry_seconds=0.001)


@pytest.mark.parametrize("do", WAYS)
async def test_a_store_that_is_taken_away_acknowledges_nothing_more(
    do: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "tasks.db"
    async with SQLiteStore(path):
        pass  # so that the file holds its tables, and not the log alone
    async with SQLiteStore(path) as store:
        await keep(store, first("t1"))
        do(path)
        answers = await keep_all(store, *(first(f"t{number}") for number in range(2, 22)))
        assert {type(answer) for answer in answers} == {StoreError}
        assert "nothing more is stored until the bridge is restarted" in str(answers[0])
        assert not await store.probe()
        assert store.failure is not None


async def test_a_store_that_is_taken_away_while_nothing_happens_is_found_out(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with SQLiteStore(path) as store:
        await store.check()
        assert store.failure is None
        path.unlink()
        await store.check()
        assert store.failure is not None
        assert f"{path} was deleted or moved" in store.failure


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
