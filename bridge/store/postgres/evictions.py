"""The deletions of the leading replica: ended tasks, events that every replica has read, and rows of dead replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bridge.store.postgres.session_rows import sweep_sessions
from bridge.store.retention import surplus_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import AsyncConnection

    from bridge.store.postgres.connections import DatabaseConnections, Job
    from bridge.store.postgres.table_steps import Namespace
    from bridge.store.records import Quota

EVICTED_AT_ONCE: Final = 256
"""The most tasks that one transaction deletes."""

REPLY_SECONDS: Final = 600
"""How long a command is kept if its sender never reads the reply."""

_EVENTS_AT_ONCE: Final = 5_000

_NOTHING_TO_SEND: Final = "NOT EXISTS (SELECT FROM {ns}.outbox o WHERE o.task_id = t.task_id)"
_AGED: Final = f"""
    SELECT task_id FROM {{ns}}.tasks t WHERE ended AND status_ms < %s AND {_NOTHING_TO_SEND}
    ORDER BY status_ms, task_id LIMIT %s"""  # noqa: S608 - no value is in it
_OLDEST: Final = f"""
    SELECT task_id, weight FROM {{ns}}.tasks t WHERE ended AND owner = %s AND {_NOTHING_TO_SEND}
    ORDER BY status_ms, task_id LIMIT %s"""  # noqa: S608
_ENDED: Final = """
    SELECT owner, sum(tasks)::bigint, sum(weight)::bigint FROM {ns}.counts WHERE ended GROUP BY owner"""
_DELETE_TASKS: Final = """
    WITH gone AS (
        DELETE FROM {ns}.tasks t WHERE task_id = ANY(%(tasks)s) AND ended
        AND NOT EXISTS (SELECT FROM {ns}.outbox o WHERE o.task_id = t.task_id)
        RETURNING task_id, context_id, owner, state, weight
    ), counted AS (
        INSERT INTO {ns}.counts AS c
        SELECT owner, state, true, %(epoch)s, -count(*), -sum(weight) FROM gone GROUP BY owner, state
        ON CONFLICT (owner, state, ended, epoch)
        DO UPDATE SET tasks = c.tasks + excluded.tasks, weight = c.weight + excluded.weight
    )
    SELECT task_id, context_id FROM gone"""
_LOCK_CONTEXTS: Final = """
    SELECT FROM {ns}.contexts WHERE context_id = ANY(%s) ORDER BY context_id FOR UPDATE"""
_DELETE_CONTEXTS: Final = """
    DELETE FROM {ns}.contexts c WHERE context_id = ANY(%s)
    AND NOT EXISTS (SELECT FROM {ns}.tasks t WHERE t.context_id = c.context_id)"""
_DELETE_EVENTS: Final = """
    DELETE FROM {ns}.events WHERE (task_id, seq) IN (
        SELECT e.task_id, e.seq FROM {ns}.events e JOIN {ns}.tasks t USING (task_id)
        WHERE e.stored_at < now() - make_interval(secs => %s) AND e.seq <= t.snapshot_seq
        LIMIT %s
    )"""
_MERGE_COUNTS: Final = """
    WITH old AS (DELETE FROM {ns}.counts WHERE epoch = ANY(%(gone)s) RETURNING *)
    INSERT INTO {ns}.counts AS c
    SELECT owner, state, ended, %(epoch)s, sum(tasks), sum(weight) FROM old GROUP BY owner, state, ended
    ON CONFLICT (owner, state, ended, epoch)
    DO UPDATE SET tasks = c.tasks + excluded.tasks, weight = c.weight + excluded.weight"""


async def evict(
    connections: DatabaseConnections, place: Namespace, epoch: int, ended_before_ms: int, quota: Quota
) -> int:
    """See `Store.evict`. Every transaction deletes a bounded number of tasks.

    Raises:
        StoreError: the store cannot write. Tasks deleted before the error stay deleted.
    """
    evicted = 0

    async def delete(task_ids: Sequence[str]) -> None:
        nonlocal evicted
        evicted += await connections.run(lambda connection: _delete(connection, place, epoch, task_ids))

    while aged := await connections.run(
        lambda connection: _ids(connection, place, (ended_before_ms, EVICTED_AT_ONCE))
    ):
        await delete(aged)
    counts = {owner: number for owner, number, _ in await connections.run(lambda c: _ended(c, place))}
    for owner, surplus in surplus_of(counts, quota).items():
        left = surplus
        while left > 0 and (oldest := await connections.run(_oldest_of(place, owner))):
            chosen = [task_id for task_id, _ in oldest[:left]]
            left -= len(chosen)
            await delete(chosen)
    weights = {owner: weight for owner, _, weight in await connections.run(lambda c: _ended(c, place))}
    for owner, surplus in surplus_of(weights, quota.of_bytes).items():
        left = surplus
        while left > 0 and (oldest := await connections.run(_oldest_of(place, owner))):
            chosen = []
            for task_id, weight in oldest:
                if left <= 0:
                    break
                chosen.append(task_id)
                left -= weight
            await delete(chosen)
    return evicted


async def sweep(connection: AsyncConnection, place: Namespace, epoch: int, events_seconds: float) -> None:
    """Delete what no replica needs: events that snapshots replaced long ago, abandoned commands, and rows of dead
    replicas."""
    await connection.execute(place.sql(_DELETE_EVENTS), (events_seconds, _EVENTS_AT_ONCE))
    await connection.execute(
        place.sql("DELETE FROM {ns}.commands WHERE asked_at < now() - make_interval(secs => %s)"),
        (REPLY_SECONDS,),
    )
    async with connection.transaction():
        cursor = await connection.execute(
            place.sql(
                "SELECT epoch FROM {ns}.epochs e WHERE gone"
                " AND NOT EXISTS (SELECT FROM {ns}.tasks t WHERE t.holder = e.epoch) FOR UPDATE"
            )
        )
        gone = [number for (number,) in await cursor.fetchall()]
        if gone:
            await connection.execute(place.sql(_MERGE_COUNTS), {"gone": gone, "epoch": epoch})
            await connection.execute(place.sql("DELETE FROM {ns}.beats WHERE epoch = ANY(%s)"), (gone,))
            await connection.execute(place.sql("DELETE FROM {ns}.epochs WHERE epoch = ANY(%s)"), (gone,))
    await sweep_sessions(connection, place)


async def _delete(connection: AsyncConnection, place: Namespace, epoch: int, task_ids: Sequence[str]) -> int:
    async with connection.transaction():
        cursor = await connection.execute(place.sql(_DELETE_TASKS), {"tasks": list(task_ids), "epoch": epoch})
        rows = await cursor.fetchall()
        deleted = [task_id for task_id, _ in rows]
        for text in (
            "DELETE FROM {ns}.snapshots WHERE task_id = ANY(%s)",
            "DELETE FROM {ns}.privates WHERE task_id = ANY(%s)",
            "DELETE FROM {ns}.events WHERE task_id = ANY(%s)",
            "DELETE FROM {ns}.messages WHERE task_id = ANY(%s)",
            "DELETE FROM {ns}.webhooks WHERE task_id = ANY(%s)",
        ):
            await connection.execute(place.sql(text), (deleted,))
        contexts = sorted({context for _, context in rows})
        # Locked first, by a separate statement, so that the next one sees the tasks of the lock's earlier holder.
        await connection.execute(place.sql(_LOCK_CONTEXTS), (contexts,))
        await connection.execute(place.sql(_DELETE_CONTEXTS), (contexts,))
    return len(deleted)


async def _ids(connection: AsyncConnection, place: Namespace, cells: tuple[int, int]) -> list[str]:
    return [task_id for (task_id,) in await (await connection.execute(place.sql(_AGED), cells)).fetchall()]


async def _ended(connection: AsyncConnection, place: Namespace) -> list[tuple[str, int, int]]:
    return await (await connection.execute(place.sql(_ENDED))).fetchall()


def _oldest_of(place: Namespace, owner: str) -> Job[list[tuple[str, int]]]:
    async def read(connection: AsyncConnection) -> list[tuple[str, int]]:
        return await (await connection.execute(place.sql(_OLDEST), (owner, EVICTED_AT_ONCE))).fetchall()

    return read
