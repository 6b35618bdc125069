"""Who is given a place on a tool server next, and what happens when a question keeps a server from others.

A *line* stands before the sessions that serve the same callers. A session has so many places, one for each call
that runs on it. Whoever waits is served in turns, principal by principal, and where principals share the sessions
one of them alone may not take the last quarter of the places: a call of another finds one free.

A call whose client is asked something *holds* its place for as long as that takes. When others wait meanwhile and
no place is free, both sides are told, and the question that has been open for longest is withdrawn in time. Of those
who wait, a call is told when it comes, and once it is its principal's next: telling all of every question that
comes first would cost as many updates as calls wait, times as many as there are questions.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio

from bridge.concurrency import Signal
from bridge.errors import BusyError
from bridge.mcp.client.session import Session

logger = logging.getLogger(__name__)

SHARED_FROM: Final = 4
"""From so many places on, a quarter of them is not for one principal alone."""


class DisplacedError(BusyError):
    """A call that waited had to go, since the queue was full and its principal had most calls in it."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """Whose call it is."""

    principal: str
    task_id: str = ""
    is_secret: bool = False
    """Whether knowing the task's id is all that it takes to use the task: then nobody else is told it."""


@dataclass(frozen=True, slots=True)
class SlotHold:
    """A call whose client is asked something, so that its place is free for no other."""

    caller: Claimant
    ends_in_seconds: float
    """When its question is withdrawn if others go on waiting; infinite while nobody waits."""


OnHeld = Callable[[SlotHold], None]
"""Tells a call that waits what it waits for."""


@dataclass(eq=False)
class _Ticket:
    """A call that waits."""

    caller: Claimant
    on_held: OnHeld
    since: float
    slot: CallSlot | None = None
    is_displaced: bool = False
    told_of: CallSlot | None = None
    """The place that it was told it waits for."""
    deadline: float = math.inf
    """When it has to withdraw the question behind which it waits; infinite for one that is not its principal's next."""
    moved: Signal = field(default_factory=Signal)
    """Told when it need not wait any more, or is to wait with another deadline."""

    def wait_until(self, deadline: float) -> None:
        self.deadline = deadline
        self.moved.tell()


@dataclass(eq=False)
class _SessionSlots:
    """A session, and how many of its places are taken."""

    session: Session
    taken: int = 0


class CallSlot:
    """The place of a call on a session, for as long as the call runs."""

    def __init__(self, queue: CallQueue, slots: _SessionSlots, caller: Claimant) -> None:
        self.session = slots.session
        self.caller = caller
        self.session_slots = slots
        self.held_since = math.inf
        self.is_contended = False
        """Whether its client was told that others wait."""
        self._queue = queue
        self._tell: Callable[[float], None] | None = None
        self._give_up: Callable[[], None] | None = None

    def hold(self, tell: Callable[[float], None], give_up: Callable[[], None]) -> None:
        """The call's client is asked something. `tell` is called once others wait, with the seconds that are left
        to answer; `give_up` when these are over."""
        self._tell, self._give_up = tell, give_up
        if self.held_since == math.inf:
            self.held_since, self.is_contended = anyio.current_time(), False
            self._queue.holding[self] = None
            self._queue.look()

    def go_on(self) -> None:
        """The call's client is no longer asked anything."""
        if self.held_since < math.inf:
            self._end_hold()
            self._queue.look()

    def contend(self, seconds: float) -> None:
        """Others wait: the question is withdrawn after so many seconds."""
        if not self.is_contended and self._tell is not None:
            self.is_contended = True
            self._tell(seconds)

    def withdraw(self) -> None:
        """The question is taken back."""
        give_up = self._give_up
        self._end_hold()
        if give_up is not None:
            give_up()

    def _end_hold(self) -> None:
        self.held_since, self._tell, self._give_up = math.inf, None, None
        self._queue.holding.pop(self, None)


class CallQueue:
    """The calls for some sessions that are alike: those that run, and those that wait."""

    def __init__(
        self,
        first: Session,
        *,
        slots_each: int,
        contended_seconds: float,
        most_sessions: int = 1,
        open_another: Callable[[], Session] | None = None,
    ) -> None:
        """`contended_seconds` is how long a question may be open once others wait. `open_another` makes one more
        session when all places are taken; with it, the line is shared by principals."""
        self._sessions = [_SessionSlots(first)]
        self._slots_each = slots_each
        self._contended_seconds = contended_seconds
        self._most_sessions = most_sessions
        self._open_another = open_another
        self._waiting: dict[str, dict[_Ticket, None]] = {}
        """By principal; who is served next stands first, and so do its calls."""
        self._running: Counter[str] = Counter()
        self.holding: dict[CallSlot, None] = {}
        """Those whose calls' clients are asked something, the oldest question first."""
        self._blocker: CallSlot | None = None
        """The place whose question has been open for longest, while others wait for it."""
        self._deadline = math.inf
        """When that question is withdrawn."""

    @property
    def session(self) -> Session:
        """One of its sessions, for what needs no place: one that is up, with the fewest calls."""
        return self._least_taken(self._sessions).session

    @property
    def sessions(self) -> tuple[Session, ...]:
        """Those that were opened."""
        return tuple(slots.session for slots in self._sessions)

    @property
    def waiting(self) -> int:
        """How many calls wait for a place."""
        return sum(len(tickets) for tickets in self._waiting.values())

    @property
    def running(self) -> int:
        """How many calls have a place."""
        return self._running.total()

    @property
    def holds(self) -> tuple[SlotHold, ...]:
        """The calls whose clients are asked something, the oldest question first."""
        left = max(self._deadline - anyio.current_time(), 0)
        return tuple(
            SlotHold(slot.caller, left if slot is self._blocker else math.inf) for slot in self.holding
        )

    def limit(self, slots_each: int) -> None:
        """Give each session so many places from here on; calls that have one keep it."""
        self._slots_each = slots_each
        self.look()

    @asynccontextmanager
    async def slot(
        self, caller: Claimant, within_seconds: float, on_held: OnHeld = lambda _: None
    ) -> AsyncIterator[CallSlot]:
        """Wait for a place, and have it for as long as this is entered.

        Raises:
            BusyError: there was none within that time; nothing was sent.
            DisplacedError: the call had to make room for those of others.
        """
        ticket = _Ticket(caller, on_held, anyio.current_time())
        self._waiting.setdefault(caller.principal, {})[ticket] = None
        try:
            self.look(ticket)
            if ticket.slot is None:
                with anyio.move_on_after(within_seconds):
                    await self._assigned(ticket)
            if ticket.slot is None:
                raise self._no_slot(ticket, within_seconds)
            yield ticket.slot
        finally:
            self._leave(ticket)

    def displace(self, principal: str) -> bool:
        """Send the newest call of a principal away that waits; False when none does."""
        tickets = self._waiting.get(principal)
        if not tickets:
            return False
        ticket = next(reversed(tickets))
        self._forget(ticket)
        ticket.is_displaced = True
        ticket.moved.tell()
        self.look()
        return True

    def look(self, newcomer: _Ticket | None = None) -> None:
        """Give away the places that are free, and see who waits for whom."""
        while (found := self._next()) is not None and (slots := self._free()) is not None:
            self._assign(found, slots)
        self._blocker, self._deadline = self._contended()
        if not self._waiting:
            return
        left = math.inf
        if self._blocker is not None:
            left = self._deadline - anyio.current_time()
            self._blocker.contend(left)
        nexts = [_first(tickets) for tickets in self._waiting.values()]
        for ticket in nexts:
            if ticket.deadline != self._deadline:
                ticket.wait_until(self._deadline)
        for ticket in nexts if newcomer is None or newcomer.slot else (*nexts, newcomer):
            if self._blocker not in (None, ticket.told_of):
                ticket.told_of = self._blocker
                ticket.on_held(SlotHold(self._blocker.caller, left))

    def _contended(self) -> tuple[CallSlot | None, float]:
        """The question behind which others wait, and when it is withdrawn."""
        if not self.holding or not self._waiting or self._free(may_open=False) is not None:
            return None, math.inf
        first = next(iter(self.holding))
        since = min(_first(tickets).since for tickets in self._waiting.values())
        return first, max(since, first.held_since) + self._contended_seconds

    async def _assigned(self, ticket: _Ticket) -> None:
        """Wait for a place; in time, withdraw the question behind which this waits."""
        while ticket.slot is None and not ticket.is_displaced:
            if ticket.deadline == math.inf:
                await ticket.moved.wait()
                continue
            with anyio.CancelScope(deadline=ticket.deadline) as patience:
                await ticket.moved.wait()
            if patience.cancelled_caught:
                self._withdraw_if_due()

    def _withdraw_if_due(self) -> None:
        if self._blocker is not None and anyio.current_time() >= self._deadline:
            logger.info(
                "the question of task %s was withdrawn, since %d calls wait for %s",
                self._blocker.caller.task_id,
                self.waiting,
                self._sessions[0].session.name,
            )
            self._blocker.withdraw()
            self.look()

    def _no_slot(self, ticket: _Ticket, within_seconds: float) -> BusyError:
        name = self._sessions[0].session.name
        if ticket.is_displaced:
            return DisplacedError(
                f"{name} is busy and its queue is full. Most of the calls that wait are this caller's, so the newest"
                " of them made room; nothing was sent. Send it again later"
            )
        return BusyError(f"{name} was busy for {within_seconds:g} s, so the call was given up")

    def _next(self) -> _Ticket | None:
        """Who is served next, if anybody may be."""
        for principal, tickets in self._waiting.items():
            if self._running[principal] < self._allowance:
                return _first(tickets)
        return None

    @property
    def _allowance(self) -> int:
        """How many places one principal may have."""
        slots = self._slots_each * self._most_sessions
        is_shared = self._open_another is not None
        return slots - slots // 4 if is_shared and slots >= SHARED_FROM else slots

    def _free(self, *, may_open: bool = True) -> _SessionSlots | None:
        """A session with a free place; a new one is opened when there is none and there may be more."""
        if free := [slots for slots in self._sessions if slots.taken < self._slots_each]:
            return self._least_taken(free)
        if not may_open or self._open_another is None or len(self._sessions) >= self._most_sessions:
            return None
        self._sessions.append(_SessionSlots(self._open_another()))
        return self._sessions[-1]

    def _least_taken(self, slots: list[_SessionSlots]) -> _SessionSlots:
        return min(slots, key=lambda one: (one.session.down is not None, one.taken))

    def _assign(self, ticket: _Ticket, slots: _SessionSlots) -> None:
        self._forget(ticket)
        principal = ticket.caller.principal
        if principal in self._waiting:
            self._waiting[principal] = self._waiting.pop(principal)  # the others come first now
        slots.taken += 1
        self._running[principal] += 1
        ticket.slot = CallSlot(self, slots, ticket.caller)
        ticket.moved.tell()

    def _leave(self, ticket: _Ticket) -> None:
        self._forget(ticket)
        if (slot := ticket.slot) is not None:
            slot.session_slots.taken -= 1
            self._running[slot.caller.principal] -= 1
            if not self._running[slot.caller.principal]:
                del self._running[slot.caller.principal]
            self.holding.pop(slot, None)
        self.look()

    def _forget(self, ticket: _Ticket) -> None:
        """The ticket no longer waits."""
        principal = ticket.caller.principal
        tickets = self._waiting.get(principal, {})
        if ticket in tickets:
            del tickets[ticket]
            if not tickets:
                del self._waiting[principal]


def _first(tickets: dict[_Ticket, None]) -> _Ticket:
    return next(iter(tickets))
