"""Which call runs next on a tool server, and what happens when an open question blocks other calls.

A *queue* stands before the sessions that serve the same callers. A session has a number of *slots*, one for each call
that runs on it. Free slots go to the principals in turns. If principals share the sessions, a single principal cannot
take the last quarter of the slots. So other principals find a free slot.

A call *holds* its slot while its client is asked something. The slot is *contended* when other calls wait and no slot
is free. Then both sides are told. The question that has been open for longest is withdrawn after a while.

A waiting call is told what it waits for at most twice: when it joins the queue, and once it is the next call of its
principal. Telling every call of every question would cost calls times questions updates.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

import anyio

from bridge.concurrency import Signal
from bridge.errors import BusyError, counted
from bridge.mcp.client.session import Session

logger = logging.getLogger(__name__)

SHARED_FROM: Final = 4
"""With this many slots or more, a single principal cannot take the last quarter."""


class DisplacedError(BusyError):
    """A waiting call lost its turn: the queue was full, and its principal had the most calls in it."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """The principal and the task of a call that wants a slot."""

    principal: str
    task_id: str = ""
    is_secret: bool = False
    """Whether everyone who knows the task's id may use the task. Then no other caller is told the id."""


@dataclass(frozen=True, slots=True)
class SlotHold:
    """A call that keeps its slot while its client is asked something."""

    caller: Claimant
    ends_in_seconds: float
    """The seconds until the question is withdrawn, if other calls go on waiting; infinite while no call waits."""


OnHeld = Callable[[SlotHold], None]
"""Tells a waiting call for which hold it waits."""


@dataclass(eq=False)
class _Ticket:
    """A call that waits."""

    caller: Claimant
    on_held: OnHeld
    since: float
    slot: CallSlot | None = None
    is_displaced: bool = False
    told_of: CallSlot | None = None
    """The slot that the call was last told to wait for."""
    deadline: float = math.inf
    """When this call withdraws the question that blocks it; infinite unless it is the next call of its principal."""
    moved: Signal = field(default_factory=Signal)
    """Signalled when the call has a slot, is displaced, or has another deadline."""

    def wait_until(self, deadline: float) -> None:
        self.deadline = deadline
        self.moved.notify()


@dataclass(eq=False)
class _SessionSlots:
    """A session, and the number of its taken slots."""

    session: Session
    taken: int = 0


class CallSlot:
    """The slot of a call on a session, for as long as the call runs."""

    def __init__(self, queue: CallQueue, slots: _SessionSlots, caller: Claimant) -> None:
        self.session = slots.session
        self.caller = caller
        self.session_slots = slots
        self.held_since = math.inf
        self.is_contended = False
        """Whether the call's client was told that others wait."""
        self._queue = queue
        self._tell: Callable[[float], None] | None = None
        self._give_up: Callable[[], None] | None = None

    def hold(self, tell: Callable[[float], None], give_up: Callable[[], None]) -> None:
        """Keep the slot while the call's client is asked something. `tell` is called once other calls wait, with the
        seconds left to answer; `give_up` is called when these seconds are over."""
        self._tell, self._give_up = tell, give_up
        if self.held_since == math.inf:
            self.held_since, self.is_contended = anyio.current_time(), False
            self._queue.holding[self] = None
            self._queue.assign_slots()

    def go_on(self) -> None:
        """End the hold: no question is open any more."""
        if self.held_since < math.inf:
            self._end_hold()
            self._queue.assign_slots()

    def contend(self, seconds: float) -> None:
        """Tell the call, once, that other calls wait and that its question is withdrawn after `seconds`."""
        if not self.is_contended and self._tell is not None:
            self.is_contended = True
            self._tell(seconds)

    def withdraw(self) -> None:
        """End the hold and withdraw the question."""
        give_up = self._give_up
        self._end_hold()
        if give_up is not None:
            give_up()

    def _end_hold(self) -> None:
        self.held_since, self._tell, self._give_up = math.inf, None, None
        self._queue.holding.pop(self, None)


class _SlotClaim:
    """A call's use of a slot, as a context."""

    def __init__(self, queue: CallQueue, caller: Claimant, within_seconds: float, on_held: OnHeld) -> None:
        self._queue = queue
        self._caller = caller
        self._within_seconds = within_seconds
        self._on_held = on_held
        self._slot: CallSlot | None = None

    async def __aenter__(self) -> CallSlot:
        queue = self._queue
        self._slot = queue.slot_at_once(self._caller) or await queue.awaited_slot(
            self._caller, self._within_seconds, self._on_held
        )
        return self._slot

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._slot is not None:
            self._queue.give_back(self._slot)


class CallQueue:
    """The running and waiting calls for a group of equal sessions."""

    def __init__(
        self,
        first: Session,
        *,
        slots_each: int,
        contended_seconds: float,
        most_sessions: int = 1,
        open_another: Callable[[], Session] | None = None,
    ) -> None:
        """`contended_seconds` is how long a question may be open once other calls wait. `open_another` opens a further
        session when all slots are taken. A queue with `open_another` is shared by principals."""
        self._sessions = [_SessionSlots(first)]
        self._slots_each = slots_each
        self._contended_seconds = contended_seconds
        self._most_sessions = most_sessions
        self._open_another = open_another
        self._waiting: dict[str, dict[_Ticket, None]] = {}
        """The waiting calls of each principal. The principal that is served next comes first; so does its next call."""
        self._running: Counter[str] = Counter()
        self.holding: dict[CallSlot, None] = {}
        """The slots that are held, the oldest question first. The values have no meaning."""
        self._blocker: CallSlot | None = None
        """The slot whose question has been open for longest; None unless it is contended."""
        self._deadline = math.inf
        """When the question of `_blocker` is withdrawn."""

    @property
    def session(self) -> Session:
        """A session for requests that need no slot: preferably a connected session, with the fewest calls."""
        return self._least_taken(self._sessions).session

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The sessions that were opened so far."""
        return tuple(slots.session for slots in self._sessions)

    @property
    def waiting(self) -> int:
        """How many calls wait for a slot."""
        return sum(len(tickets) for tickets in self._waiting.values())

    @property
    def running(self) -> int:
        """How many calls have a slot."""
        return self._running.total()

    @property
    def holds(self) -> tuple[SlotHold, ...]:
        """The calls that hold their slots, the oldest question first."""
        left = max(self._deadline - anyio.current_time(), 0)
        return tuple(
            SlotHold(slot.caller, left if slot is self._blocker else math.inf) for slot in self.holding
        )

    def limit(self, slots_each: int) -> None:
        """Change the number of slots of each session. Calls that have a slot keep it."""
        self._slots_each = slots_each
        self.assign_slots()

    def slot(
        self, caller: Claimant, within_seconds: float, on_held: OnHeld = lambda _: None
    ) -> AbstractAsyncContextManager[CallSlot]:
        """Wait for a slot, and keep it as long as this is entered.

        Raises:
            BusyError: no slot became free in `within_seconds`; nothing was sent.
            DisplacedError: the call had to make room for a call of another principal.
        """
        return _SlotClaim(self, caller, within_seconds, on_held)

    def slot_at_once(self, caller: Claimant) -> CallSlot | None:
        """A free slot, if no other call waits and the principal may have the slot."""
        if self._waiting or self._running[caller.principal] >= self._allowance:
            return None
        slots = self._free()
        return None if slots is None else self._taken(slots, caller)

    async def awaited_slot(self, caller: Claimant, within_seconds: float, on_held: OnHeld) -> CallSlot:
        """Wait for a slot; see `slot`. The caller gives it back."""
        ticket = _Ticket(caller, on_held, anyio.current_time())
        self._waiting.setdefault(caller.principal, {})[ticket] = None
        is_given = False
        try:
            self.assign_slots(ticket)
            if ticket.slot is None:
                with anyio.move_on_after(within_seconds):
                    await self._assigned(ticket)
            if ticket.slot is None:
                raise self._no_slot(ticket, within_seconds)
            is_given = True
            return ticket.slot
        finally:
            if not is_given:
                self._forget(ticket)
                if ticket.slot is not None:
                    self.give_back(ticket.slot)
                self.assign_slots()

    def give_back(self, slot: CallSlot) -> None:
        """End the use of a slot."""
        principal = slot.caller.principal
        slot.session_slots.taken -= 1
        self._running[principal] -= 1
        if not self._running[principal]:
            del self._running[principal]
        self.holding.pop(slot, None)
        if self._waiting:
            self.assign_slots()

    def displace(self, principal: str) -> bool:
        """Remove the newest waiting call of a principal from the queue. Returns False if there is none."""
        tickets = self._waiting.get(principal)
        if not tickets:
            return False
        ticket = next(reversed(tickets))
        self._forget(ticket)
        ticket.is_displaced = True
        ticket.moved.notify()
        self.assign_slots()
        return True

    def assign_slots(self, newcomer: _Ticket | None = None) -> None:
        """Assign the free slots, and update which question blocks the waiting calls."""
        while (next_ticket := self._next()) is not None and (slots := self._free()) is not None:
            self._assign(next_ticket, slots)
        if not self._waiting:
            self._blocker, self._deadline = None, math.inf
            return
        self._blocker, self._deadline = self._contended()
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
        """The slot whose question blocks other calls, and when that question is withdrawn."""
        if not self.holding or self._free(may_open=False) is not None:
            return None, math.inf
        first = next(iter(self.holding))
        since = min(_first(tickets).since for tickets in self._waiting.values())
        return first, max(since, first.held_since) + self._contended_seconds

    async def _assigned(self, ticket: _Ticket) -> None:
        """Wait for a slot. At the ticket's deadline, withdraw the question that blocks it."""
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
                "the question of task %s was withdrawn, because %s for %s",
                self._blocker.caller.task_id,
                f"{counted(self.waiting, 'call')} {'waits' if self.waiting == 1 else 'wait'}",
                self._sessions[0].session.name,
            )
            self._blocker.withdraw()
            self.assign_slots()

    def _no_slot(self, ticket: _Ticket, within_seconds: float) -> BusyError:
        name = self._sessions[0].session.name
        if ticket.is_displaced:
            return DisplacedError(
                f"{name} is busy and its queue is full. Most of the calls that wait are this caller's, so the newest"
                " of them made room; nothing was sent. Send it again later"
            )
        return BusyError(f"{name} was busy for {within_seconds:g} s, so the call was given up")

    def _next(self) -> _Ticket | None:
        """The call that gets the next slot; None if no waiting principal may have another slot."""
        for principal, tickets in self._waiting.items():
            if self._running[principal] < self._allowance:
                return _first(tickets)
        return None

    @property
    def _allowance(self) -> int:
        """How many slots one principal may have."""
        slots = self._slots_each * self._most_sessions
        is_shared = self._open_another is not None
        return slots - slots // 4 if is_shared and slots >= SHARED_FROM else slots

    def _free(self, *, may_open: bool = True) -> _SessionSlots | None:
        """A session with a free slot. If there is none, a further session is opened within the limit."""
        if free := [slots for slots in self._sessions if slots.taken < self._slots_each]:
            return self._least_taken(free)
        if not may_open or self._open_another is None or len(self._sessions) >= self._most_sessions:
            return None
        self._sessions.append(_SessionSlots(self._open_another()))
        return self._sessions[-1]

    def _least_taken(self, slots: list[_SessionSlots]) -> _SessionSlots:
        if len(slots) == 1:
            return slots[0]
        return min(slots, key=lambda slot: (slot.session.down is not None, slot.taken))

    def _assign(self, ticket: _Ticket, slots: _SessionSlots) -> None:
        self._forget(ticket)
        principal = ticket.caller.principal
        if principal in self._waiting:
            self._waiting[principal] = self._waiting.pop(principal)  # now the other principals come first
        ticket.slot = self._taken(slots, ticket.caller)
        ticket.moved.notify()

    def _taken(self, slots: _SessionSlots, caller: Claimant) -> CallSlot:
        slots.taken += 1
        self._running[caller.principal] += 1
        return CallSlot(self, slots, caller)

    def _forget(self, ticket: _Ticket) -> None:
        """Remove the ticket from the waiting calls, if it is there."""
        principal = ticket.caller.principal
        tickets = self._waiting.get(principal, {})
        if ticket in tickets:
            del tickets[ticket]
            if not tickets:
                del self._waiting[principal]


def _first(tickets: dict[_Ticket, None]) -> _Ticket:
    return next(iter(tickets))
