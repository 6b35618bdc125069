"""Stores a group of changes in one transaction: decides which changes follow, and writes their rows.

This module knows the statements of the writer. It must not know queues, tasks or connections that break.

The transaction locks the fence of its epoch first, and then the rows that decide, ordered by key. It takes two round
trips, one to begin, lock and read, and one to write and commit; a message to an existing task takes a third.
If another replica stores the same row in between, the write violates the row's key.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, LiteralString, TypeAlias

from bridge.errors import RepeatedMessageError, StoreConflictError
from bridge.store.postgres.outbox import HOOK_TASKS, KEEP_WEBHOOKS, PUSH, webhook_row
from bridge.store.records import TaskPosition, position_after

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from psycopg import AsyncConnection, AsyncCursor

    from bridge.store.outbox import Webhook, WebhookKey
    from bridge.store.postgres.table_steps import Namespace
    from bridge.store.records import Change, WrittenAnswer


class FencedError(Exception):
    """This epoch is gone: another replica took this replica for dead, and holds its tasks now."""


NOBODY: Final = 0
"""The holder of a task that is handed over. It is no epoch, so that a replica adopts the task like a dead replica's."""


@dataclass(frozen=True, slots=True)
class Release:
    """An entry that lets a task rest, or hands it over to `NOBODY`, unless a change followed `seq`."""

    task_id: str
    seq: int
    to: int | None = None


@dataclass(frozen=True, slots=True)
class AnswerEntry:
    """An entry that notes that the answer to a message was written, if the message still belongs to this task."""

    owner: str
    message_id: str
    task_id: str
    answer: WrittenAnswer


Entry: TypeAlias = "Change | Release | AnswerEntry"
Outcome: TypeAlias = "Exception | None"
MessageOf: TypeAlias = tuple[str, str]
"""An owner and a message id."""

# The database itself ends a transaction whose replica stalls: until then no other replica could fence it.
_FENCE: Final = """
    SELECT set_config('idle_in_transaction_session_timeout', %s, true)
    FROM {ns}.epochs WHERE epoch = %s AND NOT gone FOR SHARE"""
_TASKS: Final = """
    SELECT task_id, owner, seq, snapshot_seq, ended, state, holder, weight, hooked FROM {ns}.tasks
    WHERE task_id = ANY(%s) ORDER BY task_id FOR UPDATE"""
_CONTEXTS: Final = """
    SELECT context_id, owner FROM {ns}.contexts WHERE context_id = ANY(%s) ORDER BY context_id FOR SHARE"""
_MESSAGES: Final = """
    SELECT owner, message_id, task_id FROM {ns}.messages
    WHERE (owner, message_id) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
    ORDER BY owner, message_id FOR UPDATE"""
_KEPT: Final = """
    SELECT task_id, seq, event FROM {ns}.events
    WHERE (task_id, seq) IN (SELECT * FROM unnest(%s::text[], %s::bigint[])) AND epoch = %s"""

_ADD_CONTEXTS: Final = """
    INSERT INTO {ns}.contexts SELECT * FROM unnest(%s::text[], %s::text[])"""
_ADD_TASKS: Final = """
    INSERT INTO {ns}.tasks
    SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::boolean[], %s::bigint[],
        %s::bigint[], %s::bigint[], %s::bigint[], %s::integer[])"""
_MOVE_TASKS: Final = """
    UPDATE {ns}.tasks AS t
    SET seq = v.seq, snapshot_seq = v.snapshot_seq, weight = v.weight, holder = v.holder,
        state = v.state, ended = v.ended, status_ms = coalesce(v.status_ms, t.status_ms)
    FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::integer[], %s::text[], %s::boolean[],
        %s::bigint[]) AS v(task_id, seq, snapshot_seq, weight, holder, state, ended, status_ms)
    WHERE t.task_id = v.task_id"""
_ADD_EVENTS: Final = """
    INSERT INTO {ns}.events (task_id, seq, event, epoch)
    SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bytea[], %s::integer[])"""
_SET_SNAPSHOTS: Final = """
    INSERT INTO {ns}.snapshots SELECT * FROM unnest(%s::text[], %s::bytea[])
    ON CONFLICT (task_id) DO UPDATE SET snapshot = excluded.snapshot"""
_SET_PRIVATES: Final = """
    INSERT INTO {ns}.privates SELECT * FROM unnest(%s::text[], %s::bytea[])
    ON CONFLICT (task_id) DO UPDATE SET private = excluded.private"""
_ADD_MESSAGES: Final = """
    INSERT INTO {ns}.messages (owner, message_id, task_id, digest, accepted_ms)
    SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::bytea[], %s::bigint[])"""
_MOVE_MESSAGES: Final = """
    UPDATE {ns}.messages AS m
    SET task_id = v.task_id, digest = v.digest, accepted_ms = v.accepted_ms, stored_at = now(), answered_at = NULL,
        answer_ms = NULL, is_repeatable = NULL
    FROM unnest(%s::text[], %s::text[], %s::text[], %s::bytea[], %s::bigint[])
        AS v(owner, message_id, task_id, digest, accepted_ms)
    WHERE m.owner = v.owner AND m.message_id = v.message_id"""
_ANSWER_MESSAGES: Final = """
    UPDATE {ns}.messages AS m
    SET answered_at = now() - v.age_ms * interval '1 millisecond', answer_ms = v.at_ms, is_repeatable = v.is_repeatable
    FROM unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::boolean[])
        AS v(owner, message_id, task_id, age_ms, at_ms, is_repeatable)
    WHERE m.owner = v.owner AND m.message_id = v.message_id AND m.task_id = v.task_id"""
_COUNT: Final = """
    INSERT INTO {ns}.counts AS c
    SELECT * FROM unnest(%s::text[], %s::text[], %s::boolean[], %s::integer[], %s::bigint[], %s::bigint[])
    ON CONFLICT (owner, state, ended, epoch)
    DO UPDATE SET tasks = c.tasks + excluded.tasks, weight = c.weight + excluded.weight"""


@dataclass(slots=True)
class _Row:
    """The state of a task within the transaction."""

    position: TaskPosition
    state: str
    holder: int | None
    weight: int
    """The bytes of its snapshot."""
    hooked: bool = False
    """Whether it may have webhooks."""


@dataclass(slots=True)
class _Group:
    """The rows of a group of changes, collected change by change."""

    epoch: int
    rows: dict[str, _Row]
    contexts: dict[str, str]
    messages: dict[MessageOf, str]
    kept: dict[tuple[str, int], bytes]
    """The events of this group that this epoch has stored. Empty unless an earlier commit of the group is in doubt."""
    refused: set[str] = field(default_factory=set)
    """The tasks with a refused change. Their later changes are refused too."""
    new_tasks: dict[str, Change] = field(default_factory=dict)
    new_contexts: dict[str, str] = field(default_factory=dict)
    new_messages: dict[MessageOf, Change] = field(default_factory=dict)
    moved_messages: dict[MessageOf, Change] = field(default_factory=dict)
    moved: set[str] = field(default_factory=set)
    heads: dict[str, Change] = field(default_factory=dict)
    events: list[Change] = field(default_factory=list)
    snapshots: dict[str, bytes] = field(default_factory=dict)
    privates: dict[str, bytes] = field(default_factory=dict)
    webhooks: dict[WebhookKey, Webhook] = field(default_factory=dict)
    pushed: list[Change] = field(default_factory=list)
    answers: dict[MessageOf, AnswerEntry] = field(default_factory=dict)
    counts: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    weights: Counter[tuple[str, str, bool]] = field(default_factory=Counter)

    def add(self, entry: Entry) -> Outcome:
        """Add an entry. Returns the reason if it is refused, else None."""
        if isinstance(entry, Release):
            self._release(entry)
            return None
        if isinstance(entry, AnswerEntry):
            self.answers[entry.owner, entry.message_id] = entry
            return None
        if entry.task_id in self.refused:
            return StoreConflictError(f"an earlier change of task {entry.task_id} was refused")
        if self.kept.get((entry.task_id, entry.seq)) == entry.event:
            return None
        try:
            self._add(entry)
        except StoreConflictError as conflict:
            self.refused.add(entry.task_id)
            return conflict
        return None

    def _release(self, release: Release) -> None:
        row = self.rows.get(release.task_id)
        if row is not None and row.holder == self.epoch and row.position.seq == release.seq:
            row.holder = release.to
            self.moved.add(release.task_id)

    def _add(self, change: Change) -> None:
        task_id, row = change.task_id, self.rows.get(change.task_id)
        if row is not None and row.holder not in (None, self.epoch):
            raise StoreConflictError(f"task {task_id} is held by replica {row.holder}")
        origin = change.origin
        context_owner = None if origin is None else self.contexts.get(origin.context_id)
        after = position_after(change, None if row is None else row.position, context_owner)
        self._note_message(change, after.owner, is_held=row is not None and row.holder is not None)
        before = None if row is None else (row.state, row.position.ended, row.weight)
        if row is None:
            assert origin is not None
            assert change.head is not None
            row = self.rows[task_id] = _Row(after, change.head.state, None, 0)
            self.new_tasks[task_id] = change
            if context_owner is None:
                self.contexts[origin.context_id] = self.new_contexts[origin.context_id] = origin.owner
        row.position = after
        row.holder = None if after.ended else self.epoch
        self.moved.add(task_id)
        self.events.append(change)
        if change.head is not None:
            row.state = change.head.state
            self.heads[task_id] = change
        if change.snapshot is not None:
            self.snapshots[task_id] = change.snapshot
            row.weight = len(change.snapshot)
        if change.private is not None:
            self.privates[task_id] = change.private
        if change.webhook is not None:
            self.webhooks[change.webhook.key] = change.webhook
            row.hooked = True
        if row.hooked:
            self.pushed.append(change)
        self._count(row, before)

    def _note_message(self, change: Change, owner: str, *, is_held: bool) -> None:
        """Note which task gets a message. The change of a task's holder is never refused because of its message."""
        if change.message is None:
            return
        key = owner, change.message.message_id
        stored = self.messages.get(key)
        if stored is not None and not is_held and stored not in (change.replaces, change.task_id):
            raise RepeatedMessageError(
                f"message {change.message.message_id} went to task {stored} at another replica"
            )
        if stored is None or key in self.new_messages:
            self.new_messages[key] = change
        else:
            self.moved_messages[key] = change
        self.messages[key] = change.task_id

    def _count(self, row: _Row, before: tuple[str, bool, int] | None) -> None:
        owner = row.position.owner
        if before is not None:
            state, ended, weight = before
            self.counts[owner, state, ended] -= 1
            self.weights[owner, state, ended] -= weight
        self.counts[owner, row.state, row.position.ended] += 1
        self.weights[owner, row.state, row.position.ended] += row.weight


async def append(
    connection: AsyncConnection,
    place: Namespace,
    epoch: int,
    entries: Sequence[Entry],
    *,
    seconds: float,
    in_doubt: bool,
) -> list[Outcome]:
    """Store the changes that follow, in one transaction. Returns an outcome for each entry: the refusal, or None.

    `seconds` is how long the database waits for this replica within the transaction. With `in_doubt` an earlier commit
    of these changes may have worked, and changes that are stored already are not refused.

    Raises:
        FencedError: this epoch is gone. Nothing was stored.
        psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected: another replica was faster. Nothing was stored.
        psycopg.Error: the database refused, or the connection was lost, in which case the commit may have worked.
    """
    async with connection.pipeline(), connection.transaction():
        idle_ms = str(round(seconds * 1000))
        group = await _locked(connection, place, epoch, idle_ms, entries, in_doubt=in_doubt)
        outcomes = [group.add(entry) for entry in entries]
        await _write(connection, place, group)
    return outcomes


async def _locked(
    connection: AsyncConnection,
    place: Namespace,
    epoch: int,
    idle_ms: str,
    entries: Sequence[Entry],
    *,
    in_doubt: bool,
) -> _Group:
    changes = [entry for entry in entries if not isinstance(entry, (Release, AnswerEntry))]
    task_ids = sorted({entry.task_id for entry in entries if not isinstance(entry, AnswerEntry)})
    contexts = sorted({change.origin.context_id for change in changes if change.origin is not None})
    addressed = [change for change in changes if change.message is not None]
    owners = {change.task_id: change.origin.owner for change in changes if change.origin is not None}
    fence = await connection.execute(place.sql(_FENCE), (idle_ms, epoch))
    tasks = await connection.execute(place.sql(_TASKS), (task_ids,))
    known = await connection.execute(place.sql(_CONTEXTS), (contexts,)) if contexts else None
    cursor = (
        await connection.execute(
            place.sql(_KEPT), [*_columns([(c.task_id, c.seq) for c in changes], 2), epoch]
        )
        if in_doubt
        else None
    )
    are_new = all(change.task_id in owners for change in addressed)
    messages = await _messages(connection, place, addressed, owners) if are_new and addressed else None
    if await fence.fetchone() is None:
        raise FencedError(f"replica {epoch} was taken for dead")
    rows = {
        task_id: _Row(TaskPosition(owner, seq, snapshot_seq, ended), state, holder, weight, hooked)
        for task_id, owner, seq, snapshot_seq, ended, state, holder, weight, hooked in await tasks.fetchall()
    }
    if not are_new:
        owners = {task_id: row.position.owner for task_id, row in rows.items()} | owners
        messages = await _messages(connection, place, addressed, owners)
    return _Group(
        epoch,
        rows,
        dict(await known.fetchall()) if known is not None else {},
        {(owner, message_id): task_id for owner, message_id, task_id in await messages.fetchall()}
        if messages is not None
        else {},
        {(task_id, seq): event for task_id, seq, event in await cursor.fetchall()}
        if cursor is not None
        else {},
    )


async def _messages(
    connection: AsyncConnection, place: Namespace, changes: Sequence[Change], owners: Mapping[str, str]
) -> AsyncCursor:
    """Lock and read the tasks that got the messages of these changes before. `owners` maps tasks to their owners."""
    keys = sorted(
        {
            (owners[change.task_id], change.message.message_id)
            for change in changes
            if change.message is not None and change.task_id in owners
        }
    )
    return await connection.execute(place.sql(_MESSAGES), _columns(keys, 2))


async def _write(connection: AsyncConnection, place: Namespace, group: _Group) -> None:
    """Write the collected rows with one statement, which costs less than a statement for each table."""
    moved = sorted(group.moved - group.new_tasks.keys())
    tables: tuple[tuple[LiteralString, Sequence[tuple[object, ...]]], ...] = (
        (_ADD_CONTEXTS, sorted(group.new_contexts.items())),
        (_ADD_TASKS, [_task_row(group, task_id) for task_id in group.new_tasks]),
        (_MOVE_TASKS, [_moved_row(group, task_id) for task_id in moved]),
        (_ADD_EVENTS, _event_rows(group)),
        (_SET_SNAPSHOTS, sorted(group.snapshots.items())),
        (_SET_PRIVATES, sorted(group.privates.items())),
        (_ADD_MESSAGES, _message_rows(group.new_messages)),
        (_MOVE_MESSAGES, _message_rows(group.moved_messages)),
        (_COUNT, _count_rows(group)),
    )
    written = [(text, rows) for text, rows in tables if rows]
    if written:
        values = [column for _, rows in written for column in _columns(rows, len(rows[0]))]
        await connection.execute(place.sql(_together(*(text for text, _ in written))), values)
    if group.webhooks:
        hooks = [webhook_row(webhook, group.epoch) for _, webhook in sorted(group.webhooks.items())]
        await connection.execute(place.sql(KEEP_WEBHOOKS), _columns(hooks, len(hooks[0])))
        await connection.execute(place.sql(HOOK_TASKS), (sorted({key.task_id for key in group.webhooks}),))
    if group.pushed:
        pushed = [(change.task_id, change.seq, change.event) for change in group.pushed]
        await connection.execute(place.sql(PUSH), _columns(pushed, 3))
    if group.answers:
        # A statement of its own: the parts of the statement above do not see a message that the same group adds.
        rows = [_answer_row(group.answers[key]) for key in sorted(group.answers)]
        await connection.execute(place.sql(_ANSWER_MESSAGES), _columns(rows, len(rows[0])))


@lru_cache(maxsize=256)
def _together(*texts: LiteralString) -> LiteralString:
    """One statement that runs all these statements. None of them sees what another one writes."""
    parts = ", ".join(f"part_{number} AS ({text})" for number, text in enumerate(texts))
    return f"WITH {parts} SELECT 1"


def _columns(rows: Sequence[tuple[object, ...]], width: int) -> list[list[object]]:
    """The columns of these rows, as arrays."""
    return [[row[column] for row in rows] for column in range(width)]


def _task_row(group: _Group, task_id: str) -> tuple[object, ...]:
    origin, head, row = group.new_tasks[task_id].origin, group.heads[task_id].head, group.rows[task_id]
    assert origin is not None
    assert head is not None
    return (
        task_id,
        origin.context_id,
        origin.owner,
        origin.created_ms,
        head.state,
        head.ended,
        head.status_ms,
        row.position.seq,
        row.position.snapshot_seq,
        row.weight,
        row.holder,
    )


def _moved_row(group: _Group, task_id: str) -> tuple[object, ...]:
    row, moved = group.rows[task_id], group.heads.get(task_id)
    position = row.position
    status_ms = moved.head.status_ms if moved is not None and moved.head is not None else None
    head = row.state, position.ended, status_ms
    return task_id, position.seq, position.snapshot_seq, row.weight, row.holder, *head


def _event_rows(group: _Group) -> list[tuple[object, ...]]:
    return [(change.task_id, change.seq, change.event, group.epoch) for change in group.events]


def _message_rows(messages: Mapping[MessageOf, Change]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for (owner, message_id), change in sorted(messages.items(), key=lambda item: item[0]):
        assert change.message is not None
        key = change.message
        rows.append((owner, message_id, change.task_id, key.digest, key.accepted_ms))
    return rows


def _answer_row(entry: AnswerEntry) -> tuple[object, ...]:
    answer = entry.answer
    return entry.owner, entry.message_id, entry.task_id, answer.age_ms, answer.at_ms, answer.is_repeatable


def _count_rows(group: _Group) -> list[tuple[object, ...]]:
    keys = sorted(key for key in group.counts if group.counts[key] or group.weights[key])
    return [
        (
            owner,
            state,
            ended,
            group.epoch,
            group.counts[owner, state, ended],
            group.weights[owner, state, ended],
        )
        for owner, state, ended in keys
    ]
