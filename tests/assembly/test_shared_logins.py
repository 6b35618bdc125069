"""Several bridges on one PostgreSQL, whose server wants a login of each caller: tasks that wait, and what is swept."""

from __future__ import annotations

import logging
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from bridge.assembly.plan import ProcessPlan, SharedStore
from bridge.identity.logins.kept_logins import DAY_SECONDS, OPERATOR
from bridge.store.postgres.login_rows import PostgresLogins
from tests.assembly.test_awaited_logins import ECHO
from tests.assembly.test_bridge import agent
from tests.assembly.test_caller_logins import KEEP_SECONDS, Office, Town, kept, link_in, town
from tests.assembly.test_logins import put
from tests.support.postgres import new_database_url
from tests.support.postgres_cluster import Gate, socket_of
from tests.support.running import profile_with

pytestmark = [pytest.mark.outside, pytest.mark.long]

KEYS: Final = ("the same secret for all of them, of many letters",)
PROFILE: Final = profile_with(
    server={"fail": "open"}, store={"lease_seconds": 1.0, "close_seconds": 2.0}, run={"drain_seconds": 0.0}
)
DONE: Final = "TASK_STATE_COMPLETED"
AUTH: Final = "TASK_STATE_AUTH_REQUIRED"


@dataclass
class Replicas:
    """Bridges that publish one agent. What each says to the database goes through a gate of its own."""

    town: Town
    database: str
    stack: AsyncExitStack

    async def starts(self) -> tuple[Office, Gate]:
        """One more bridge, and its gate."""
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="mcp-a2a-gate-")))
        gate = Gate(folder, socket_of(self.database))
        await gate.start()
        self.stack.push_async_callback(gate.stop)
        url = f"{self.database.partition('?')[0]}?host={folder}"
        return await self.stack.enter_async_context(self.replica(url)), gate

    @asynccontextmanager
    async def replica(self, url: str | None = None) -> AsyncIterator[Office]:
        """One more bridge, for as long as this is entered."""
        place = ProcessPlan(keys=KEYS, state=self.town.folder / "state", cache=self.town.folder / "cache")
        desk = agent("crm", store=SharedStore(url or self.database))
        async with self.town.opens(profile=PROFILE, place=place, published={"desk": desk}) as bridge:
            yield bridge

    async def logs_in(self, who: str, **changes: Any) -> None:
        """Somebody writes a login."""
        await put(replace(self.town.login_config, principal=who), self.town.issuer, **changes)


@asynccontextmanager
async def replicas(folder: Path, link_seconds: float = 600) -> AsyncIterator[Replicas]:
    """No bridge yet."""
    database = new_database_url()
    async with (
        town(folder, link_seconds, PostgresLogins(database, KEYS, "a database")) as here,
        AsyncExitStack() as stack,
    ):
        yield Replicas(here, database, stack)


async def ended_work(bridge: Office) -> None:
    """Wait until nothing works on a task there."""
    while bridge.there.bridge.running:
        await anyio.sleep(0.01)


async def test_a_task_goes_on_at_another_replica_when_the_one_that_asked_has_died(tmp_path: Path) -> None:
    async with replicas(tmp_path) as here:
        one, gate = await here.starts()
        two, _ = await here.starts()
        task, _ = await one.asked("alice")
        gate.end()
        await here.logs_in("alice")
        done = await two.becomes("alice", task, DONE)
        assert here.town.calls == ["access-2"]
        assert len(done["history"]) == len(task["history"]) + 1, "the question is told once"


async def test_it_goes_on_at_once_when_that_one_stops_and_a_message_there_renews_the_link(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path) as here:
        two, _ = await here.starts()
        async with here.replica() as one:
            task, link = await one.asked("alice")
        while not two.there.bridge.running:
            await anyio.sleep(0.01)
        await two.send("alice", {"taskId": task["id"], "parts": [{"text": "done"}]})
        while link_in(await two.becomes("alice", task, AUTH)) == link:
            await anyio.sleep(0.01)
        await here.logs_in("alice")
        await two.becomes("alice", task, DONE)
        assert here.town.calls == ["access-2"]


async def test_a_replica_that_stood_still_and_finds_the_login_as_well_calls_nothing(tmp_path: Path) -> None:
    """It reads logins on a way of its own, so that it sees the login while its tasks are somebody else's."""
    async with replicas(tmp_path) as here:
        one, gate = await here.starts()
        two, _ = await here.starts()
        task, _ = await one.asked("alice")
        gate.shut()
        await here.logs_in("alice")
        await two.becomes("alice", task, DONE)
        gate.open()
        await ended_work(one)
        assert (await one.becomes("alice", task, DONE))["id"] == task["id"]
        assert here.town.calls == ["access-2"]


async def test_many_tasks_of_two_people_each_go_on_once_whoever_dies(tmp_path: Path) -> None:
    async with replicas(tmp_path) as here:
        one, gate = await here.starts()
        two, _ = await here.starts()
        three, _ = await here.starts()
        tasks = [(who, (await one.asked(who))[0]) for who in ("alice", "bob") for _ in range(10)]
        gate.end()
        await here.logs_in("alice")
        for who, task in tasks:
            if who == "alice":
                await three.becomes(who, task, DONE)
        assert Counter(here.town.calls) == {"access-2": 10}
        await here.logs_in("bob")
        for who, task in tasks:
            await two.becomes(who, task, DONE)
        assert Counter(here.town.calls) == {"access-2": 10, "access-3": 10}


async def test_a_link_that_nobody_used_leaves_the_task_to_a_message_at_any_replica(tmp_path: Path) -> None:
    async with replicas(tmp_path, link_seconds=0.01) as here:
        one, gate = await here.starts()
        two, _ = await here.starts()
        task, _ = await one.asked("alice")
        gate.end()
        await here.logs_in("alice")
        await two.send("alice", {"taskId": task["id"], "parts": [{"text": "done"}]})
        await two.becomes("alice", task, DONE)
        assert here.town.calls == ["access-2"]


async def test_a_database_of_logins_that_is_away_for_a_while_fails_no_task_that_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bridge.identity.pages.login_desk")
    database = new_database_url()
    with tempfile.TemporaryDirectory(prefix="mcp-a2a-gate-") as folder:
        gate = Gate(Path(folder), socket_of(database))
        await gate.start()
        url = f"{database.partition('?')[0]}?host={folder}"
        try:
            keeper = PostgresLogins(url, KEYS, "a database")
            async with town(tmp_path, keeper=keeper) as here, here.opens() as bridge:
                task, _ = await bridge.asked("alice")
                gate.refuse()
                while "the login of alice is read again" not in caplog.text:
                    await anyio.sleep(0.01)
                gate.accept()
                await put(replace(here.login_config, principal="alice"), here.issuer)
                await bridge.becomes("alice", task, DONE)
        finally:
            await gate.stop()


# What nobody uses


def deletions(caplog: pytest.LogCaptureFixture) -> Counter[str]:
    """Whose logins were deleted, by the log of all replicas."""
    said = [record for record in caplog.records if record.getMessage().startswith("deleted the login of ")]
    return Counter(record.getMessage().split()[4] for record in said)


async def test_of_several_replicas_each_unused_login_is_deleted_once_and_used_ones_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bridge.identity.pages.login_desk")
    async with replicas(tmp_path) as here:
        bridges = [(await here.starts())[0] for _ in range(3)]
        then = time.time() - KEEP_SECONDS - 2 * DAY_SECONDS
        old: dict[str, Any] = {"got_at": then, "since": then}
        unused = {f"person-{number}" for number in range(20)}
        for who in unused:
            await here.logs_in(who, **old)
        await here.logs_in("noted", **old, used_at=time.time() - KEEP_SECONDS)
        await here.logs_in("alice", **old)
        # A call is a use: it is noted in the row, which the sweep of all others reads.
        task = await bridges[0].send("alice", ECHO)
        await bridges[0].becomes("alice", task, DONE)
        async with anyio.create_task_group() as group:
            for bridge in bridges:
                group.start_soon(bridge.there.apply)
        own = here.town.login_config.key.peer
        left = {(own, OPERATOR), (own, "noted"), (own, "alice")}
        while await kept(bridges[0]) != left:
            await anyio.sleep(0.05)
        for bridge in bridges:  # each sweeps once more, and finds nothing
            await bridge.there.apply()
        await anyio.sleep(0.5)
        assert await kept(bridges[0]) == left
        assert deletions(caplog) == dict.fromkeys(unused, 1)


async def test_a_login_that_is_used_while_the_sweep_waits_for_it_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bridge.identity.pages.login_desk")
    async with replicas(tmp_path) as here:
        bridge, _ = await here.starts()
        then = time.time() - KEEP_SECONDS - 2 * DAY_SECONDS
        for who in ("alice", "bob"):
            await here.logs_in(who, got_at=then, since=then)
        login_config = replace(here.town.login_config, principal="alice")
        async with login_config.keeper.held(login_config.key) as held:
            await bridge.there.apply()
            await anyio.sleep(0.3)  # it holds what it looks at one after the other, and waits here
            assert held.login is not None
            await held.write(replace(held.login, used_at=time.time()))
        own = here.town.login_config.key.peer
        while await kept(bridge) != {(own, OPERATOR), (own, "alice")}:
            await anyio.sleep(0.05)
        assert deletions(caplog) == {"bob": 1}


async def test_the_logins_of_a_principal_that_leaves_are_deleted_once_by_all_replicas(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bridge.identity.pages.login_desk")
    async with replicas(tmp_path) as here:
        bridges = [(await here.starts())[0] for _ in range(2)]
        for who in ("alice", "bob"):
            await here.logs_in(who)
        async with anyio.create_task_group() as group:
            for bridge in bridges:
                left = [one for one in bridge.there.plan.credentials if one.principal.name != "alice"]
                group.start_soon(partial(bridge.there.apply, credentials=left))
        own = here.town.login_config.key.peer
        while await kept(bridges[0]) != {(own, OPERATOR), (own, "bob")}:
            await anyio.sleep(0.05)
        await anyio.sleep(0.5)
        assert deletions(caplog) == {"alice": 1}
