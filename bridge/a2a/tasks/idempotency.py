"""Which message went to which task, whose a context is, and when the same message sent again is the same message.

The store answers for what it has kept; what was accepted and is still on its way there is remembered here.

How long ago something was is told by a clock that never goes back: a wall clock that is set would make two tasks of one
message. What an earlier process took in has only the time on the wall; one that lies ahead counts as now.

Clients send a message again when they did not get its answer; some give all their messages the same id, and mean
a new one each time. So the same id with other content is another message. With the same content it is the same
message while its task is at work, and while its answer may not have arrived: nobody read it to its end, or that is
not known since the bridge was restarted. Once the answer was written in full it is a new message, except where
doing its work twice could do harm: then it stays the same for a short while, in which a proxy may repeat it.

Spec: A2A 1.0 sections 3.3.1 (idempotency), 3.4.1 (contexts).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from bridge.a2a.model.life import IdsAndClock
from bridge.a2a.tasks.agent import Commit, WorkStatus
from bridge.store.records import MessageKey, Store, TaskOrigin

REPEATED: Final = "urn:mcp-a2a:tool:v1/repeated"
"""Metadata of a task that is given in answer to a message which was answered before: {"answeredAt"}."""

MOST_REMEMBERED: Final = 10_000
"""Messages of which it is remembered when they came, and that their answers were written. One that is forgotten is
judged by the time on the wall."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A message that was sent before."""

    task_id: str
    answered_ms: int | None
    """When its answer was written in full; None when it was not."""


@dataclass(slots=True)
class _AnswerRecord:
    """What is known of the answer to a message. Times are of `Ids.elapsed_ms`."""

    task_id: str
    accepted_ms: int
    standing: WorkStatus | None = None
    """How the work is that the message began, or answered; None when an earlier process took it in."""
    written_ms: int | None = None
    answered: Repeat | None = None
    """Set with `written_ms`."""

    @property
    def is_at_work(self) -> bool:
        return self.standing is not None and self.standing.is_at_work

    @property
    def is_repeatable(self) -> bool:
        return self.standing is not None and self.standing.is_repeatable


class MessageBook:
    """The messages and contexts of one store."""

    def __init__(
        self, store: Store, ids: IdsAndClock, repeat_seconds: float, repeat_answered_seconds: float
    ) -> None:
        """`repeat_seconds` is how long the same message finds its task while its answer may not have arrived;
        `repeat_answered_seconds` how long it does so afterwards, where its work must not be done twice."""
        self._store = store
        self._ids = ids
        self._repeat_ms = repeat_seconds * 1000
        self._repeat_answered_ms = repeat_answered_seconds * 1000
        self._messages: dict[tuple[str, str], tuple[str, MessageKey]] = {}
        self._told: OrderedDict[tuple[str, str], _AnswerRecord] = OrderedDict()
        self._contexts: dict[str, str] = {}

    async def repeat_of(self, owner: str, key: MessageKey) -> Repeat | None:
        """What this very message went to, when it was sent before; None for a new one."""
        place = owner, key.message_id
        known = self._messages.get(place)
        if known is None:
            stored = await self._store.find_message(owner, key.message_id)
            known = None if stored is None else (stored.task_id, stored.key)
        if known is None or known[1].digest != key.digest:
            return None
        now_ms, told = self._ids.elapsed_ms(), self._told.get(place)
        if told is None or told.task_id != known[0]:
            age_ms = max(key.accepted_ms - known[1].accepted_ms, 0)
            told = self._remember(place, _AnswerRecord(known[0], now_ms - age_ms))
        if told.written_ms is None or told.is_at_work:
            is_late = now_ms - told.accepted_ms > self._repeat_ms
            return None if is_late and not told.is_at_work else Repeat(told.task_id, None)
        if told.is_repeatable or now_ms - told.written_ms > self._repeat_answered_ms:
            return None
        return told.answered

    def written(self, owner: str, message_id: str) -> None:
        """The answer to a message was written in full."""
        told = self._told.get((owner, message_id))
        if told is not None:
            told.written_ms = self._ids.elapsed_ms()
            told.answered = Repeat(told.task_id, self._ids.now_ms())

    def _remember(self, place: tuple[str, str], told: _AnswerRecord) -> _AnswerRecord:
        self._told[place] = told
        self._told.move_to_end(place)
        while len(self._told) > MOST_REMEMBERED or (
            len(self._told) > 1 and self._is_over(next(iter(self._told.values())))
        ):
            self._told.popitem(last=False)
        return told

    def _is_over(self, told: _AnswerRecord) -> bool:
        """Whether the same message is a new one from here on, so that nothing need be known of the first."""
        since_ms = max(told.accepted_ms, told.written_ms or 0)
        longest_ms = max(self._repeat_ms, self._repeat_answered_ms)
        return not told.is_at_work and self._ids.elapsed_ms() - since_ms > longest_ms

    async def owner_of_context(self, context_id: str) -> str | None:
        """Whose a context is, or None when no task is in it."""
        return self._contexts.get(context_id) or await self._store.context_owner(context_id)

    def note(
        self, task_id: str, origin: TaskOrigin, key: MessageKey, standing: WorkStatus, stored: Commit
    ) -> None:
        """Remember a message that was accepted, until the store answers for it, and whether it was answered."""
        place = origin.owner, key.message_id
        self._messages[place] = task_id, key
        self._contexts[origin.context_id] = origin.owner
        self._remember(place, _AnswerRecord(task_id, self._ids.elapsed_ms(), standing))

        def forget() -> None:
            if self._messages.get(place) == (task_id, key):
                del self._messages[place]
            self._contexts.pop(origin.context_id, None)

        stored.when_settled(forget)
