"""A store in memory. It makes the promises of a store in a file, and ends with the process.

Only retention bounds the store. `submit` applies and answers a change before it returns.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import TYPE_CHECKING, Self

from bridge.errors import StoreConflictError
from bridge.store.contract import OnStored
from bridge.store.memory_outbox import HeldWebhook, MemoryOutbox
from bridge.store.outbox import KeptWebhook, OutboxRow
from bridge.store.records import (
    Change,
    Query,
    Quota,
    StoredMessage,
    StoredTask,
    TaskHead,
    TaskOrigin,
    TaskPage,
    TaskPosition,
    WholeTask,
    position_after,
)
from bridge.store.retention import EndedTask, surplus_of, tasks_over_byte_quota

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
    from types import TracebackType


@dataclass(slots=True)
class _HeldTask:
    task_id: str
    origin: TaskOrigin
    head: TaskHead
    position: TaskPosition
    snapshot: bytes
    events: list[bytes] = field(default_factory=list)
    private: bytes = b""
    message_ids: set[str] = field(default_factory=set)
    webhooks: dict[str, HeldWebhook] = field(default_factory=dict)

    @property
    def sort_key(self) -> tuple[int, str]:
        """The key that sorts listings and evictions."""
        return self.head.status_ms, self.task_id

    @property
    def ended(self) -> EndedTask:
        """The task as an `EndedTask`."""
        return EndedTask(*self.sort_key, self.origin.owner, len(self.snapshot))

    @property
    def may_go(self) -> bool:
        """Whether eviction may delete the task: it has ended, and no event of it is still to be sent."""
        return self.head.ended and not any(held.rows for held in self.webhooks.values())

    def stored(self) -> StoredTask:
        return StoredTask(
            task_id=self.task_id,
            origin=self.origin,
            head=self.head,
            seq=self.position.seq,
            snapshot=self.snapshot,
            events=tuple(self.events),
            private=self.private,
        )


class MemoryStore:
    """Keeps tasks in memory until the process ends. See `Store` for the promises."""

    def __init__(self) -> None:
        self._tasks: dict[str, _HeldTask] = {}
        self._contexts: defaultdict[str, dict[str, _HeldTask]] = defaultdict(dict)
        self._owners: defaultdict[str, dict[str, _HeldTask]] = defaultdict(dict)
        self._messages: dict[tuple[str, str], StoredMessage] = {}
        self._outbox = MemoryOutbox(self._tasks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    def submit(self, change: Change, done: OnStored) -> None:
        """Apply a change at once, and call `done` before returning."""
        try:
            self._apply(change)
        except StoreConflictError as conflict:
            done(conflict)
        else:
            done(None)

    def _apply(self, change: Change) -> None:
        task = self._tasks.get(change.task_id)
        owner = None if change.origin is None else self._context_owner(change.origin.context_id)
        position = position_after(change, None if task is None else task.position, owner)
        if task is None:
            task = self._make(change, position)
        task.position = position
        task.head = change.head or task.head
        if change.snapshot is None:
            task.events.append(change.event)
        else:
            task.snapshot = change.snapshot
            task.events.clear()
        if change.private is not None:
            task.private = change.private
        if change.message is not None:
            self._accept(change, task)
        if change.webhook is not None:
            self._outbox.keep(change.webhook)
        if task.webhooks:
            self._outbox.push(task.task_id, OutboxRow(change.seq, change.event))

    def _make(self, change: Change, position: TaskPosition) -> _HeldTask:
        origin, head, snapshot = change.origin, change.head, change.snapshot
        if origin is None or head is None or snapshot is None:
            raise ValueError("the first change of a task must have `origin`, `head` and `snapshot`")
        task = _HeldTask(change.task_id, origin, head, position, snapshot)
        self._tasks[task.task_id] = task
        self._contexts[origin.context_id][task.task_id] = task
        self._owners[origin.owner][task.task_id] = task
        return task

    def _accept(self, change: Change, task: _HeldTask) -> None:
        if change.message is None:
            return
        message_id = change.message.message_id
        earlier = self._messages.get((task.origin.owner, message_id))
        if earlier is not None:
            self._tasks[earlier.task_id].message_ids.discard(message_id)
        self._messages[task.origin.owner, message_id] = StoredMessage(task.task_id, change.message)
        task.message_ids.add(message_id)

    async def load(self, task_id: str) -> StoredTask | None:
        """The task with this id, of any owner; None if there is none."""
        task = self._tasks.get(task_id)
        return None if task is None else task.stored()

    async def list(self, query: Query) -> TaskPage:
        """A page of the owner's tasks, or of the tasks of all owners."""
        held = self._tasks if query.owner is None else self._owners.get(query.owner, {})
        tasks = sorted(
            (task for task in held.values() if _matches(query, task)),
            key=lambda task: task.sort_key,
            reverse=True,
        )
        after = query.after
        rest = [task for task in tasks if after is None or task.sort_key < (after.status_ms, after.task_id)]
        page = tuple(task.stored() for task in rest[: query.limit])
        return TaskPage(tasks=page, total=len(tasks), more=len(rest) > len(page))

    async def context_owner(self, context_id: str) -> str | None:
        """The owner of a context; None if it has no task."""
        return self._context_owner(context_id)

    def _context_owner(self, context_id: str) -> str | None:
        task = next(iter(self._contexts.get(context_id, {}).values()), None)
        return None if task is None else task.origin.owner

    async def find_message(self, owner: str, message_id: str) -> StoredMessage | None:
        """The stored message of this owner with this id; None if there is none."""
        return self._messages.get((owner, message_id))

    @property
    def replicas(self) -> None:
        """None: this replica holds every task."""

    @property
    def outbox(self) -> MemoryOutbox:
        """The webhooks of the tasks, and the events still to be sent to them."""
        return self._outbox

    async def unfinished(self) -> AsyncIterator[StoredTask]:
        """Yield every unfinished task, oldest first."""
        running = [task for task in self._tasks.values() if not task.head.ended]
        for task in sorted(running, key=lambda task: (task.origin.created_ms, task.task_id)):
            if not task.head.ended:
                yield task.stored()

    async def waiting(self, states: Collection[str]) -> Mapping[str, int]:
        """The ids of the unfinished tasks in one of these states, each with its `status_ms`."""
        return {
            task.task_id: task.head.status_ms
            for task in self._tasks.values()
            if not task.head.ended and task.head.state in states
        }

    async def evict(self, ended_before_ms: int, quota: Quota) -> int:
        """Delete ended tasks that are too old or beyond a quota, and return their number."""
        ended = [task for task in self._tasks.values() if task.may_go]
        victims = [task for task in ended if task.head.status_ms < ended_before_ms]
        left = sorted(
            (task for task in ended if task.head.status_ms >= ended_before_ms), key=lambda task: task.sort_key
        )
        surplus = surplus_of(Counter(task.origin.owner for task in left), quota)
        for task in left:
            if surplus.get(task.origin.owner, 0) > 0:
                surplus[task.origin.owner] -= 1
                victims.append(task)
        for task in victims:
            self._delete(task)
        heavy = tasks_over_byte_quota([task.ended for task in self._tasks.values() if task.may_go], quota)
        for task_id in heavy:
            self._delete(self._tasks[task_id])
        return len(victims) + len(heavy)

    def _delete(self, task: _HeldTask) -> None:
        del self._tasks[task.task_id]
        for index, key in ((self._contexts, task.origin.context_id), (self._owners, task.origin.owner)):
            del index[key][task.task_id]
            if not index[key]:
                del index[key]
        for message_id in task.message_ids:
            del self._messages[task.origin.owner, message_id]

    @asynccontextmanager
    async def contents(self, *, create: bool) -> AsyncIterator[MemoryContents]:  # noqa: ARG002 - it always exists
        """The whole content of the store; see `Store.contents`."""
        before = set(self._tasks)
        try:
            yield MemoryContents(self)
        except BaseException:
            for task_id in self._tasks.keys() - before:
                self._delete(self._tasks[task_id])
            raise

    def whole_tasks(self) -> Iterator[WholeTask]:
        """Yield every task with its messages and webhooks, ordered by id."""
        for task in sorted(self._tasks.values(), key=lambda task: task.task_id):
            owner = task.origin.owner
            messages = (self._messages[owner, message_id] for message_id in sorted(task.message_ids))
            webhooks = (
                KeptWebhook(held.webhook, tuple(starmap(OutboxRow, held.rows.items())))
                for _, held in sorted(task.webhooks.items())
            )
            yield WholeTask(task.stored(), tuple(messages), tuple(webhooks))

    def add_whole(self, whole: WholeTask) -> None:
        """Add a task of another store.

        Raises:
            StoreConflictError: the task exists already, or its context belongs to another owner.
        """
        task = whole.task
        snapshot_seq = task.seq - len(task.events)
        made = Change(task.task_id, 1, b"", head=task.head, snapshot=task.snapshot, origin=task.origin)
        self._apply(made)
        held = self._tasks[task.task_id]
        held.position = TaskPosition(task.origin.owner, task.seq, snapshot_seq, task.head.ended)
        held.events, held.private = list(task.events), task.private
        for message in whole.messages:
            self._accept(replace(made, message=message.key), held)
        held.webhooks = {
            webhook.webhook.key.webhook_id: HeldWebhook(webhook.webhook, dict(webhook.rows))
            for webhook in whole.webhooks
        }

    @property
    def lasts(self) -> bool:
        """False: the store ends with the process."""
        return False

    @property
    def failure(self) -> str | None:
        """None: memory can always be written."""
        return None

    async def probe(self) -> bool:
        """True: memory can always be written."""
        return True

    async def check(self) -> None:
        """Do nothing: no other process can change the memory."""


@dataclass(frozen=True, slots=True)
class MemoryContents:
    """See `StoreContents`."""

    store: MemoryStore

    async def count(self) -> int:
        """The number of tasks."""
        return len([*self.store.whole_tasks()])

    async def tasks(self) -> AsyncIterator[WholeTask]:
        """Yield every task, ordered by id."""
        for whole in self.store.whole_tasks():
            yield whole

    async def add(self, tasks: Sequence[WholeTask]) -> None:
        """Add tasks with new ids."""
        for whole in tasks:
            self.store.add_whole(whole)


def _matches(query: Query, task: _HeldTask) -> bool:
    return (
        query.context_id in (None, task.origin.context_id)
        and query.state in (None, task.head.state)
        and (query.status_from_ms is None or task.head.status_ms >= query.status_from_ms)
    )
