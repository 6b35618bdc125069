"""Two replicas on one PostgreSQL: one sends for a webhook, and the other takes over when the first is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import anyio
import pytest
from starlette.responses import Response

from bridge.a2a.model.objects import TaskPushNotificationConfig
from bridge.a2a.push.sender import WallClock
from bridge.a2a.tasks.webhooks import AskedWebhook, Webhooks
from bridge.store.postgres.store import PostgresStore
from bridge.store.records import Change, TaskHead
from tests.store.changes import first, keep
from tests.support.agents import Clock
from tests.support.postgres_cluster import PostgresCluster
from tests.support.receiver import Notification, Receiver, receiving, sending, webhooks_of
from tests.support.replicas import Recorder

pytestmark = [pytest.mark.outside, pytest.mark.proves("replicas-one-holder")]

ENDED: Final = TaskHead("TASK_STATE_COMPLETED", ended=True, status_ms=30)


@dataclass
class Replica:
    """A store, and what is known of the webhooks of its tasks."""

    store: PostgresStore
    webhooks: Webhooks

    def made(self, task_id: str, url: str) -> Change:
        """The change that makes a task with a webhook."""
        asked = AskedWebhook(TaskPushNotificationConfig(id="w", url=url))
        return replace(first(task_id, context_id=task_id), webhook=self.webhooks.made(asked, task_id, "ann"))


@asynccontextmanager
async def replicas(receiver: Receiver) -> AsyncIterator[tuple[PostgresCluster, Replica, Replica]]:
    cluster, ids = PostgresCluster(), Clock().ids
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(2):
            store = await stack.enter_async_context(cluster.replica())
            store.replicas.start(Recorder())
            webhooks = webhooks_of(store, ids, receiver.place)
            clock = WallClock(ids.now_ms)
            await stack.enter_async_context(sending(store, webhooks, clock, receiver.place, close_seconds=0))
            made.append(Replica(store, webhooks))
        yield cluster, made[0], made[1]


def events(task_id: str, number: int) -> list[Change]:
    """So many events of a task, and its end."""
    some = [Change(task_id, seq, b'{"event":%d}' % seq) for seq in range(2, number + 1)]
    return [*some, Change(task_id, number + 1, b'{"end":1}', head=ENDED, snapshot=b"the end")]


def got(receiver: Receiver, task_id: str) -> list[bytes]:
    """What came for a task, in order; one that came twice in a row counts once."""
    bodies = [one.body for one in receiver.got if one.path == f"/{task_id}"]
    return [body for body, before in zip(bodies, [None, *bodies], strict=False) if body != before]


async def test_one_of_two_replicas_sends_each_event_once() -> None:
    async with receiving() as receiver, replicas(receiver) as (_, one, other):
        await keep(one.store, one.made("t1", receiver.url("/t1")), *events("t1", 5))
        await keep(other.store, other.made("t2", receiver.url("/t2")), *events("t2", 5))
        await receiver.has(12)
        with anyio.fail_after(30):
            while await one.store.outbox.waiting() or await other.store.outbox.waiting():
                await anyio.sleep(0.01)
        whole = [b"made", *(b'{"event":%d}' % seq for seq in range(2, 6)), b'{"end":1}']
        for task_id in ("t1", "t2"):
            assert [said.body for said in receiver.got if said.path == f"/{task_id}"] == whole


async def test_the_other_replica_goes_on_sending_when_a_replica_dies() -> None:
    gate = anyio.Event()

    async def hang(_: Notification) -> Response:
        await gate.wait()
        return Response()

    async with receiving(hang) as receiver, replicas(receiver) as (cluster, one, other):
        await keep(one.store, one.made("t1", receiver.url("/t1")), *events("t1", 20))
        await receiver.has(1)
        cluster.kill(one.store)
        await receiver.until(lambda taken: b'{"end":1}' in [said.body for said in taken.got])
        gate.set()
        ids = [said.headers["webhook-id"] for said in receiver.got]
        assert got(receiver, "t1") == [
            b"made",
            *(b'{"event":%d}' % seq for seq in range(2, 21)),
            b'{"end":1}',
        ]
        assert ids[0] == ids[1]
        assert len({*ids}) == len(ids) - 1
        with anyio.fail_after(30):
            while await other.store.outbox.waiting():
                await anyio.sleep(0.01)
