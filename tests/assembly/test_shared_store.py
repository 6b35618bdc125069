"""Two bridges on one PostgreSQL, as one agent: each request goes to either of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, LiteralString

import anyio
import psycopg
import pytest

from bridge.assembly.plan import SharedStore, changes_between
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.errors import ConfigError
from bridge.store.postgres.table_steps import Namespace
from bridge.text.short_names import slug
from bridge.tools_as_agent.bridge_notes import SESSION_IS_LOST
from tests.support.asking import asking_url
from tests.support.asking_bridge import AT_ONCE, Asked, asking, outcome, words_of
from tests.support.command import ROOT
from tests.support.drivers import PATIENCE_SECONDS, Events, shape_of, state_of
from tests.support.limits import command_of, url_at
from tests.support.postgres import database_url, new_agent
from tests.support.postgres_cluster import Gate, socket_of
from tests.support.running import EXTENSION, call_part, message, texts

pytestmark = pytest.mark.long

KEYS: Final = ("the same secret for both of them, of many letters",)
LEASE: Final = {"lease_seconds": 1.0, "close_seconds": 2.0}
ANSWER: Final = {"name": "Ann"}


@dataclass
class Pair:
    """Two bridges, and the way of the first one to the database."""

    one: Asked
    two: Asked
    gate: Gate


@asynccontextmanager
async def pair(era: str = "legacy", **tables: Any) -> AsyncIterator[Pair]:
    """Two bridges that publish the same agent."""
    agent = new_agent()
    with tempfile.TemporaryDirectory(prefix="mcp-a2a-gate-") as folder:
        gate = Gate(Path(folder), socket_of(database_url()))
        await gate.start()
        same: dict[str, Any] = {"name": agent, "keys": KEYS, "kept": LEASE, **tables}
        try:
            async with (
                asking(era, store=SharedStore(gate.url), **same) as one,
                asking(era, store=SharedStore(database_url()), **same) as two,
            ):
                yield Pair(one, two, gate)
        finally:
            await gate.stop()


@pytest.mark.proves("replicas-one-agent")
async def test_a_task_of_one_replica_is_read_listed_watched_and_cancelled_at_the_other() -> None:
    async with pair() as both:
        task = await both.one.send(call_part("wait"), configuration=AT_ONCE)
        assert (await both.two.get(task["id"]))["id"] == task["id"]
        async with both.two.watching(task) as events:
            cancelled = await both.two.cancel(task["id"])
            assert state_of(cancelled) == "CANCELED"
            assert shape_of(await events.rest())[-1] == "statusUpdate CANCELED"
        assert state_of(await both.one.get(task["id"])) == "CANCELED"
        listed = await both.one.call("ListTasks")
        assert [one["id"] for one in listed["tasks"]] == [task["id"]]


@pytest.mark.proves("replicas-one-agent")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_question_of_one_replica_is_answered_at_the_other(era: str) -> None:
    async with pair(era) as both:
        task = await both.one.ask("ask")
        answered = await both.two.answer_to(task, ANSWER)
        assert state_of(answered) == "COMPLETED"
        assert outcome(await both.one.get(task["id"])) == outcome(answered)


@pytest.mark.proves("replicas-one-agent")
async def test_the_same_message_at_both_replicas_at_once_runs_the_tool_once() -> None:
    async with pair() as both:
        said = message(call_part("echo", text="once"))
        tasks: list[Any] = []

        async def send(client: Asked) -> None:
            tasks.append((await client.call("SendMessage", **said))["task"])

        async with anyio.create_task_group() as group:
            group.start_soon(send, both.one)
            group.start_soon(send, both.two)
        assert [outcome(task) for task in tasks] == ["once", "once"]
        assert tasks[0]["id"] == tasks[1]["id"]
        assert (await both.one.call("ListTasks"))["totalSize"] == 1


@pytest.mark.proves("replicas-one-agent")
async def test_the_work_of_a_replica_that_is_gone_is_ended_in_words_by_the_other() -> None:
    async with pair() as both:
        task = await both.one.send(call_part("wait"), configuration=AT_ONCE)
        async with both.two.watching(task) as events:
            both.gate.end()
            assert shape_of(await events.rest())[-1] == "statusUpdate FAILED"
        ended = await both.two.get(task["id"])
        assert state_of(ended) == "FAILED"
        gone = "The replica of the bridge that ran this task is gone, so its outcome is not known"
        assert words_of(ended) == gone


@pytest.mark.proves("replicas-one-holder")
async def test_a_replica_adopts_no_task_of_an_agent_that_it_does_not_serve() -> None:
    agent, other = new_agent(), new_agent()
    async with AsyncExitStack() as stack:
        gate = Gate(Path(stack.enter_context(tempfile.TemporaryDirectory())), socket_of(database_url()))
        await gate.start()
        stack.push_async_callback(gate.stop)
        same: dict[str, Any] = {"keys": KEYS, "kept": LEASE}
        dead = await stack.enter_async_context(
            asking("legacy", name=agent, store=SharedStore(gate.url), **same)
        )
        task = await dead.send(call_part("wait"), configuration=AT_ONCE)
        (holder,) = cells(agent, "SELECT holder FROM {ns}.tasks")
        gate.end()
        there = {"store": SharedStore(database_url()), **same}
        stranger = await stack.enter_async_context(asking("legacy", name=other, **there))
        with anyio.fail_after(PATIENCE_SECONDS):  # three leases of its beats
            while cells(other, "SELECT beat FROM {ns}.beats") < [30]:
                await anyio.sleep(0.05)
        assert (await stranger.refused("GetTask", id=task["id"])).reason == "TASK_NOT_FOUND"
        assert cells(agent, "SELECT holder FROM {ns}.tasks") == [holder]
        heir = await stack.enter_async_context(asking("legacy", name=agent, **there))
        assert state_of(await heir.ended(task)) == "FAILED"


def cells(agent: str, text: LiteralString) -> list[int]:
    """The only column of what a statement reads of an agent's tables."""
    with psycopg.connect(database_url()) as connection:
        return [cell for (cell,) in connection.execute(Namespace.of(slug(agent)).sql(text)).fetchall()]


@pytest.mark.proves("replicas-nothing-lost")
async def test_a_replica_without_its_database_is_not_ready_and_comes_back_by_itself() -> None:
    async with pair() as both:
        both.gate.refuse()
        await ready(both.one, 503)
        refused = await both.one.refused("SendMessage", **message(call_part("echo", text="x")))
        assert refused.message == "The bridge cannot reach its stored tasks at the moment"
        assert outcome(await both.two.send(call_part("echo", text="here"))) == "here"
        both.gate.accept()
        await ready(both.one, 200)
        assert outcome(await both.one.send(call_part("echo", text="again"))) == "again"


COUNTING: Final = command_of((sys.executable, "-S", "-E", str(ROOT / "tests/support/counting_server.py")))
LOST: Final = f"{EXTENSION}/lost-session"


async def counted(client: Asked, context_id: str) -> tuple[str, str | None]:
    """What the server of a context counts at one replica, and what is said of a lost session."""
    task = await client.send(call_part("count"), contextId=context_id)
    (artifact,) = task["artifacts"]
    said: str | None = (task["status"].get("message", {}).get("metadata") or {}).get(LOST)
    return "\n".join(texts(artifact["parts"])), said


@pytest.mark.proves("replicas-sessions")
async def test_the_session_of_a_context_goes_on_over_two_replicas_until_its_owner_is_gone() -> None:
    async with pair(target=COUNTING, server={"session": "context"}) as both:
        assert await counted(both.one, "a") == ("1", None)
        assert await counted(both.two, "a") == ("2", None)
        assert await counted(both.two, "b") == ("1", None)
        assert await counted(both.one, "a") == ("3", None)
        assert await counted(both.one, "b") == ("2", None)
        both.gate.end()
        assert await counted(both.two, "a") == ("1", SESSION_IS_LOST)
        assert await counted(both.two, "a") == ("2", None)
        assert await counted(both.two, "b") == ("3", None)


ANN: Final = '"name": "Ann"'


async def asked_in(events: Events) -> None:
    """Read a stream until its task asks."""
    while (event := await events.next()) is not None:
        if "statusUpdate" in event and state_of(event["statusUpdate"]) == "INPUT_REQUIRED":
            return
    raise AssertionError("the stream ended")


@pytest.mark.proves("replicas-sessions")
async def test_a_round_of_a_process_is_answered_where_it_runs_and_fails_in_words_once_that_is_gone() -> None:
    async with pair("modern") as both:
        task = await both.one.ask("ask")
        assert ANN in outcome(await both.two.answer_to(task, ANSWER))
        assert await both.one.server_saw()
        assert not await both.two.server_saw()
        left = await both.one.ask("ask-unsafe")
        async with both.two.watching(left) as events:
            both.gate.end()
            assert shape_of(await events.rest())[-1] == "statusUpdate FAILED"
        assert "the server's process with it" in words_of(await both.two.get(left["id"]))


@pytest.mark.proves("replicas-sessions")
async def test_a_round_of_a_process_that_is_gone_is_asked_again_where_the_tool_can_be_repeated() -> None:
    async with pair("modern") as both:
        task = await both.one.ask("ask")
        async with both.two.watching(task) as events:
            both.gate.end()
            await asked_in(events)
        assert ANN in outcome(await both.two.answer_to(task, ANSWER))


@pytest.mark.proves("replicas-sessions")
async def test_a_round_of_a_server_at_a_url_is_answered_by_any_replica_and_outlives_the_one_that_asked() -> (
    None
):
    with asking_url("modern") as url:
        async with pair("modern", target=url_at(url)) as both:
            task, left = await both.one.ask("ask"), await both.one.ask("ask")
            assert ANN in outcome(await both.two.answer_to(task, ANSWER))
            both.gate.end()
            assert ANN in outcome(await both.two.answer_to(left, ANSWER))


@pytest.mark.proves("replicas-one-agent", "map-server-tasks")
async def test_a_task_of_a_server_at_a_url_is_followed_further_by_another_replica() -> None:
    with asking_url("modern") as url:
        async with pair("modern", target=url_at(url)) as both:
            task = await both.one.ask("task-job", ask=True)
            async with both.two.watching(task) as events:
                both.gate.end()
                await asked_in(events)
            assert 'accept {"name": "Ada"}' in outcome(await both.two.answer_to(task, "Ada"))
            assert "tasks/cancel" not in json.loads(await both.two.text("requests"))


async def ready(client: Asked, status: int) -> None:
    """Wait until a bridge says that it is ready, or that it is not."""
    assert client.bridge is not None
    with anyio.fail_after(PATIENCE_SECONDS):
        while (await client.client.get(f"{client.bridge.root_url}/readyz")).status_code != status:
            await anyio.sleep(0.01)


def test_without_the_driver_a_bridge_starts_and_a_shared_store_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "psycopg.py").write_text("raise ImportError('no psycopg here')")
    script = """if True:
        import sys, anyio
        import bridge.cli.main, bridge.cli.wrap, bridge.assembly.bridge
        assert not {"psycopg", "bridge.store.postgres.store"} & sys.modules.keys()
        from tests.support.running import config_for, raw_command, wrapped
        from bridge.assembly.plan import SharedStore
        from bridge.errors import UsageError

        async def start():
            async with wrapped(config_for(raw_command(), store=SharedStore("postgresql:///a"), keys=("k" * 40,))):
                pass

        try:
            anyio.run(start)
        except* UsageError as refused:
            (said,) = refused.exceptions
            print(said)
    """
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("a store in PostgreSQL takes psycopg"), done.stderr
    assert "pip install 'mcp-a2a[postgres]'" in done.stdout


FILE: Final = """
[bridge]
store = { env = "DATABASE_URL" }
store_direct = "postgresql://bridge@db.example/tasks"
keys = [{ env = "KEY" }]
[tool_servers.files]
command = ["server"]
[tools_as_agent.first]
from = ["files"]
[tools_as_agent.second]
from = ["files"]
"""


def test_all_agents_of_a_file_share_its_database_whose_password_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(FILE)
    url, direct = (
        "postgresql://bridge:hunter2@pool.example/tasks?sslmode=require",
        "postgresql://bridge@db.example/tasks",
    )
    plan = plan_from_file(load(file, {"DATABASE_URL": url, "KEY": "k" * 40}))
    assert {one.store for one in plan.published.values()} == {SharedStore(url, direct)}
    assert "hunter2" not in f"{plan!r} {plan.published['first'].store}"
    assert str(plan.published["first"].store) == "postgresql://pool.example/tasks"


@pytest.mark.parametrize("key", ["store", "store_direct"])
@pytest.mark.parametrize("secret", ["//a:hunter2@b/c", "//b/c?password=hunter2", "//b/c?sslpassword=hunter2"])
def test_a_password_of_a_database_in_a_file_is_refused_and_not_repeated(
    key: str, secret: str, tmp_path: Path
) -> None:
    file = tmp_path / "bridge.toml"
    other = "store_direct" if key == "store" else "store"
    file.write_text(f'[bridge]\n{key} = "postgresql:{secret}"\n{other} = "postgresql:///a"\n')
    with pytest.raises(ConfigError) as refused:
        load(file, {})
    said = str(refused.value)
    assert f"`{key}` holds a password, which must not stand in the file in plain text" in said
    assert "hunter2" not in said


def test_another_database_takes_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(FILE)
    before, after = (
        plan_from_file(load(file, {"DATABASE_URL": f"postgresql:///{name}", "KEY": "k" * 40}))
        for name in "ab"
    )
    assert changes_between(before, after, before).later == ("bridge.store",)
