"""Which task each message went to, who owns each context, and when a message is a repeat of an earlier one.

The store knows the messages that it has kept. This module remembers those that are still on their way to the store.

Ages are measured with a monotonic clock: a wall clock that is set could turn one message into two tasks. A message
that an earlier process took in has only a wall-clock time; a time in the future counts as now.

Clients send a message again when its answer did not arrive. Some clients give all their messages the same id and
mean a new message each time. So the rules are:

- The same id with other content is a new message.
- The same id and content is a repeat while the task is working.
- It is a repeat while the answer may not have arrived: the client did not read it to the end, or the bridge was
  restarted and does not know.
- Once the answer was written in full, it is a new message. The exception is work that is harmful to do twice: there
  it remains a repeat for a short time, in which a proxy may have sent the message again.

Several replicas on one store judge alike. The store has the age of a message and whether its answer was written, and
the state of the task says whether it is at work.

Spec: A2A 1.0 sections 3.3.1 (idempotency), 3.4.1 (contexts).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from bridge.a2a.model.life import SETTLED, IdsAndClock
from bridge.a2a.tasks.agent import Commit, WorkStatus
from bridge.frozen import frozen
from bridge.store.contract import Store
from bridge.store.records import MessageKey, StoredMessage, TaskOrigin, WrittenAnswer

REPEATED: Final = "urn:mcp-a2a:tool:v1/repeated"
"""Metadata of a task that answers a repeat of an answered message: {"answeredAt"}."""

MOST_REMEMBERED: Final = 10_000
"""The most messages of which the times of arrival and of the written answer are remembered. A forgotten message is
judged by its wall-clock time."""


@frozen
class Repeat:
    """The earlier message that a message repeats."""

    task_id: str
    answered_ms: int | None
    """When its answer was written in full, in milliseconds since the epoch; None if it was not."""


@frozen
class Earlier:
    """What is known of the earlier messages of an id."""

    repeat: Repeat | None = None
    """The message that is repeated; None for a new message."""
    task_id: str | None = None
    """The task that the last message of this id went to."""


@dataclass(slots=True)
class _AnswerRecord:
    """What is known about the answer to a message. Times are those of `IdsAndClock.elapsed_ms`."""

    task_id: str
    accepted_ms: int
    work_status: WorkStatus | None = None
    """The status of the work that the message started or answered; None if an earlier process took it in."""
    written_ms: int | None = None
    answered: Repeat | None = None
    """Set with `written_ms`."""
    may_repeat: bool = False
    """Whether another replica says that the work is idempotent."""

    @property
    def is_at_work(self) -> bool:
        return self.work_status is not None and self.work_status.is_at_work

    @property
    def is_repeatable(self) -> bool:
        return self.may_repeat or (self.work_status is not None and self.work_status.is_repeatable)


class MessageBook:
    """The messages and contexts of one store."""

    def __init__(
        self, store: Store, ids: IdsAndClock, repeat_seconds: float, repeat_answered_seconds: float
    ) -> None:
        """Set the two periods in which a message is taken as a repeat.

        `repeat_seconds` is for a message whose answer may not have arrived. `repeat_answered_seconds` is for one
        whose answer was written, if its work must not be done twice.
        """
        self._store = store
        self._ids = ids
        self._repeat_ms = repeat_seconds * 1000
        self._repeat_answered_ms = repeat_answered_seconds * 1000
        self._messages: dict[tuple[str, str], StoredMessage] = {}
        self._records: OrderedDict[tuple[str, str], _AnswerRecord] = OrderedDict()
        self._contexts: dict[str, str] = {}

    async def earlier(self, owner: str, key: MessageKey) -> Earlier:
        """What is known of the messages before this one that have its id."""
        owned_id = owner, key.message_id
        known = await self._known(owned_id)
        if known is None or known.key.digest != key.digest:
            return Earlier(None, None if known is None else known.task_id)
        now_ms, record = self._ids.elapsed_ms(), self._records.get(owned_id)
        if record is None or record.task_id != known.task_id:
            age_ms = known.age_ms
            if age_ms is None:
                age_ms = max(key.accepted_ms - known.key.accepted_ms, 0)
            record = self._remember(owned_id, _AnswerRecord(known.task_id, now_ms - age_ms))
        is_at_work = record.is_at_work
        if self._store.replicas is not None and not is_at_work:
            is_at_work = await self._learn_from_others(record, known)
        return Earlier(self._repeat(record, now_ms, is_at_work=is_at_work), known.task_id)

    def _repeat(self, record: _AnswerRecord, now_ms: int, *, is_at_work: bool) -> Repeat | None:
        if record.written_ms is None or is_at_work:
            is_late = now_ms - record.accepted_ms > self._repeat_ms
            return None if is_late and not is_at_work else Repeat(record.task_id, None)
        if record.is_repeatable or now_ms - record.written_ms > self._repeat_answered_ms:
            return None
        return record.answered

    async def _learn_from_others(self, record: _AnswerRecord, known: StoredMessage) -> bool:
        """Learn whether a message was answered by another replica; returns whether one is at work on it."""
        answer = known.answer
        if answer is not None and record.written_ms is None:
            record.written_ms = self._ids.elapsed_ms() - answer.age_ms
            record.answered = Repeat(record.task_id, answer.at_ms)
            record.may_repeat = answer.is_repeatable
        if record.work_status is not None:
            return False
        task = await self._store.load(known.task_id)
        return task is not None and task.head.state not in SETTLED

    async def task_of(self, owner: str, message_id: str) -> str | None:
        """The task that the last message of this id went to."""
        known = await self._known((owner, message_id))
        return None if known is None else known.task_id

    async def _known(self, owned_id: tuple[str, str]) -> StoredMessage | None:
        return self._messages.get(owned_id) or await self._store.find_message(*owned_id)

    def written(self, owner: str, message_id: str) -> None:
        """Note that the answer to a message was written in full."""
        record = self._records.get((owner, message_id))
        if record is None:
            return
        at_ms, replicas = self._ids.now_ms(), self._store.replicas
        record.written_ms = self._ids.elapsed_ms()
        record.answered = Repeat(record.task_id, at_ms)
        if replicas is not None:
            answer = WrittenAnswer(at_ms, record.is_repeatable)
            replicas.note_answer(owner, message_id, record.task_id, answer)

    def note_elsewhere(self, owner: str, message_id: str, task_id: str) -> None:
        """Remember a message that another replica took in for a client of this replica, until the answer is written."""
        owned_id = owner, message_id
        record = self._records.get(owned_id)
        if record is None or record.task_id != task_id:
            self._remember(owned_id, _AnswerRecord(task_id, self._ids.elapsed_ms()))

    def _remember(self, owned_id: tuple[str, str], record: _AnswerRecord) -> _AnswerRecord:
        self._records[owned_id] = record
        self._records.move_to_end(owned_id)
        while len(self._records) > MOST_REMEMBERED or (
            len(self._records) > 1 and self._is_over(next(iter(self._records.values())))
        ):
            self._records.popitem(last=False)
        return record

    def _is_over(self, record: _AnswerRecord) -> bool:
        """Whether a repeat is no longer possible, so that the record can be dropped."""
        since_ms = max(record.accepted_ms, record.written_ms or 0)
        longest_ms = max(self._repeat_ms, self._repeat_answered_ms)
        return not record.is_at_work and self._ids.elapsed_ms() - since_ms > longest_ms

    async def owner_of_context(self, context_id: str) -> str | None:
        """The owner of a context; None if it has no task."""
        return self._contexts.get(context_id) or await self._store.context_owner(context_id)

    def note(
        self, task_id: str, origin: TaskOrigin, key: MessageKey, work_status: WorkStatus, stored: Commit
    ) -> None:
        """Remember an accepted message until the store has kept it, and the record of its answer for longer."""
        owned_id = origin.owner, key.message_id
        self._messages[owned_id] = accepted = StoredMessage(task_id, key)
        self._contexts[origin.context_id] = origin.owner
        self._remember(owned_id, _AnswerRecord(task_id, self._ids.elapsed_ms(), work_status))

        def forget() -> None:
            if self._messages.get(owned_id) is accepted:
                del self._messages[owned_id]
            self._contexts.pop(origin.context_id, None)

        stored.when_settled(forget)
