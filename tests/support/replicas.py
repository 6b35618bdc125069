"""Several replicas on one memory, by the contract of `bridge/store/replicas.py`, whose faults a test makes.

Each replica is a store of its own for its engine, with its own queue of changes, its own feed, and its own commands.
The test kills one, pauses one, or holds back what one writes or is told.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from itertools import count
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.abc
from anyio.lowlevel import checkpoint

from bridge.concurrency import Signal
from bridge.errors import HolderGoneError, RepeatedMessageError, StoreConflictError, StoreError
from bridge.store.contract import OnStored, StoreContents
from bridge.store.memory import MemoryStore
from bridge.store.outbox import Outbox
from bridge.store.records import Change, Query, Quota, StoredMessage, StoredTask, TaskPage, WrittenAnswer
from bridge.store.replicas import ForeignEvent, OnForeignEvents, ReplicaEngine, SessionClaim


class SharedMemory(MemoryStore):
    """What all replicas share: the tasks, who holds them, which epochs are gone, and the events that are still told."""

    def __init__(self, elapsed_ms: Callable[[], int] = lambda: 0) -> None:
        super().__init__()
        self.members: list[ReplicaStore] = []
        self.gone: dict[str, anyio.Event] = {}
        self.elapsed_ms = elapsed_ms
        self._holders: dict[str, str] = {}
        self._log: dict[str, dict[int, tuple[str, bytes]]] = {}
        self._told_ms: dict[tuple[str, str], int] = {}
        self._answers: dict[tuple[str, str], tuple[str, WrittenAnswer, int]] = {}
        self._numbers = count(1)
        self.sessions: dict[str, SessionClaim] = {}

    def replica(self, *, tells_own: bool = False) -> ReplicaStore:
        """One more replica, not yet entered. With `tells_own` its feed tells it of its own events, too."""
        return ReplicaStore(self, tells_own=tells_own)

    def new_epoch(self) -> str:
        """A name that was not used before."""
        epoch = f"epoch-{next(self._numbers)}"
        self.gone[epoch] = anyio.Event()
        return epoch

    def is_gone(self, epoch: str) -> bool:
        """Whether an epoch was fenced."""
        return self.gone[epoch].is_set()

    def change(self, change: Change, epoch: str) -> None:
        """Store a change of an epoch.

        Raises:
            StoreConflictError: it does not follow, or the epoch may not store it.
        """
        if self.is_gone(epoch):
            raise StoreConflictError(f"{epoch} is fenced")
        holder = self._holders.get(change.task_id)
        if holder not in (None, epoch):
            raise StoreConflictError(f"task {change.task_id} is held by {holder}")
        owner = self._owner_of(change)
        if change.message is not None and owner is not None and holder is None:
            earlier = self._messages.get((owner, change.message.message_id))
            if earlier is not None and earlier.task_id != change.replaces:
                raise RepeatedMessageError(f"message {change.message.message_id} went to {earlier.task_id}")
        self._apply(change)
        if change.message is not None and owner is not None:
            self._told_ms[owner, change.message.message_id] = self.elapsed_ms()
            self._answers.pop((owner, change.message.message_id), None)
        self._log.setdefault(change.task_id, {})[change.seq] = epoch, change.event
        self._holders[change.task_id] = epoch
        if self._tasks[change.task_id].head.ended:
            del self._holders[change.task_id]
        for member in self.members:
            member.moved.notify()

    def _owner_of(self, change: Change) -> str | None:
        if change.origin is not None:
            return change.origin.owner
        task = self._tasks.get(change.task_id)
        return None if task is None else task.origin.owner

    def rest(self, task_id: str, seq: int, epoch: str) -> bool:
        """Let a task rest that an epoch holds, and say whether it was so."""
        task = self._tasks.get(task_id)
        if task is None or task.position.seq != seq or self._holders.get(task_id) != epoch:
            return False
        del self._holders[task_id]
        return True

    def adopt_of(self, epoch: str, by: ReplicaStore) -> list[StoredTask]:
        """Give all tasks of an epoch to another replica."""
        found = [task_id for task_id, holder in self._holders.items() if holder == epoch]
        for task_id in found:
            self._holders[task_id] = by.epoch
        return [self.stored(task_id) for task_id in found]

    def adopt_one(self, task_id: str, by: ReplicaStore) -> StoredTask:
        """Give one task to a replica."""
        self._holders[task_id] = by.epoch
        return self.stored(task_id)

    def stored(self, task_id: str) -> StoredTask:
        """A task, with its holder."""
        return replace(self._tasks[task_id].stored(), holder=self._holders.get(task_id))

    def has(self, task_id: str) -> bool:
        """Whether a task is stored."""
        return task_id in self._tasks

    def holder_of(self, task_id: str) -> str | None:
        """The epoch that holds a task."""
        return self._holders.get(task_id)

    def forget_events(self, task_id: str) -> None:
        """Tell no more of the events of a task up to its snapshot."""
        last = self._tasks[task_id].position.snapshot_seq
        log = self._log[task_id]
        self._log[task_id] = {seq: told for seq, told in log.items() if seq > last}

    def events_after(self, task_id: str, seq: int) -> list[tuple[str, ForeignEvent]]:
        """The events of a task after a number, each with the epoch that stored it."""
        task = self._tasks.get(task_id)
        if task is None or task.position.seq <= seq:
            return []
        log, found = self._log[task_id], []
        if seq + 1 not in log and task.position.snapshot_seq > seq:
            found.append(("", ForeignEvent(task.position.snapshot_seq, snapshot=task.snapshot)))
            seq = task.position.snapshot_seq
        for number in range(seq + 1, task.position.seq + 1):
            epoch, event = log[number]
            found.append((epoch, ForeignEvent(number, event=event)))
        return found

    def history_of(self, task_id: str) -> list[bytes]:
        """Every event of a task that was stored, in order."""
        log = self._log[task_id]
        return [log[seq][1] for seq in sorted(log)]

    def open_of(self, owner: str) -> int:
        """The number of unfinished tasks of an owner."""
        return Counter(not task.head.ended for task in self._owners.get(owner, {}).values())[True]

    def message_of(self, owner: str, message_id: str) -> StoredMessage | None:
        """A message, with its age and its answer."""
        found = self._messages.get((owner, message_id))
        if found is None:
            return None
        now_ms = self.elapsed_ms()
        task_id, answer, since_ms = self._answers.get((owner, message_id), (None, None, 0))
        if answer is not None and task_id == found.task_id:
            answer = replace(answer, age_ms=now_ms - since_ms)
        return replace(found, age_ms=now_ms - self._told_ms[owner, message_id], answer=answer)

    def claim_session(self, name: str, epoch: str) -> SessionClaim:
        """Give a session to an epoch, unless a living one has it."""
        if self.is_gone(epoch):
            raise StoreConflictError(f"{epoch} is fenced")
        found = self.sessions.get(name)
        if found is None or found.owner == epoch or self.is_gone(found.owner):
            is_lost = found is not None and found.owner != epoch
            found = self.sessions[name] = SessionClaim(name, epoch, str(next(self._numbers)), is_lost)
        return found

    def end_session(self, claim: SessionClaim) -> None:
        """Drop a session, unless it was claimed anew."""
        if self.sessions.get(claim.name) == claim:
            del self.sessions[claim.name]

    def note_answer(self, owner: str, message_id: str, task_id: str, answer: WrittenAnswer) -> None:
        """Keep that an answer was written."""
        found = self._messages.get((owner, message_id))
        if found is not None and found.task_id == task_id:
            self._answers[owner, message_id] = task_id, answer, self.elapsed_ms()

    # What goes wrong

    def kill(self, member: ReplicaStore) -> None:
        """End a replica as `kill -9` does, and let another one notice."""
        member.is_dead = True
        self.notice(member)

    def pause(self, member: ReplicaStore) -> None:
        """Stop a replica as SIGSTOP does."""
        member.running = anyio.Event()

    def resume(self, member: ReplicaStore, *, unaware: bool = False) -> None:
        """Let a paused replica go on; with `unaware`, it does not look whether it was fenced until it is told to."""
        member.looks = not unaware
        member.running.set()
        member.moved.notify()

    def notice(self, member: ReplicaStore) -> None:
        """Take a silent replica for dead: fence it, and let another one adopt its tasks."""
        epoch = member.epoch
        self.gone[epoch].set()
        heir = self.heir()
        if heir is not None:
            heir.take(self.adopt_of(epoch, heir))

    def heir(self) -> ReplicaStore | None:
        """The replica that adopts."""
        return next((member for member in self.members if member.adopts), None)

    def gone_epochs(self) -> list[str]:
        """The epochs that were fenced."""
        return [epoch for epoch, event in self.gone.items() if event.is_set()]


@dataclass(eq=False)
class _Following:
    task_id: str
    seq: int
    on_events: OnForeignEvents


@dataclass(eq=False)
class _Asked:
    reply: bytes = b""
    done: anyio.Event = field(default_factory=anyio.Event)


class ReplicaStore:
    """The store of one replica. See `Store` and `Replicas` for the promises."""

    def __init__(self, shared: SharedMemory, *, tells_own: bool) -> None:
        self.shared = shared
        self.moved = Signal()
        self.is_dead = False
        self.is_away = False
        """Whether the database cannot be written by this replica."""
        self.failure: str | None = None
        self.offset_ms = 0
        """See `Replicas.offset_ms`."""
        self.looks = True
        self.running = anyio.Event()
        self.running.set()
        self._epoch = shared.new_epoch()
        self._tells_own = tells_own
        self._engine: ReplicaEngine | None = None
        self._is_stopping = False
        self._queue: deque[tuple[int, Callable[[], object]]] = deque()
        self._numbers = count(1)
        self._given = 0
        self._refused: dict[tuple[str, str], int] = {}
        """By task and epoch: up to which number its changes are refused."""
        self._following: set[_Following] = set()
        self._may_write: float = float("inf")
        self._may_tell = True
        self._may_read = anyio.Event()
        self._may_read.set()
        self._may_reply = anyio.Event()
        self._may_reply.set()
        self._may_adopt = anyio.Event()
        self._may_adopt.set()
        self._coming: dict[str, anyio.Event] = {}
        """The tasks that this replica has claimed, and its engine does not have yet."""

    async def __aenter__(self) -> Self:
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._write)
        self._group.start_soon(self._tell)
        self.shared.members.append(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._may_write = float("inf")
        self.moved.notify()
        with anyio.CancelScope(shield=True):
            while self._queue and not self.is_dead and self.running.is_set():
                await checkpoint()
        self.shared.members.remove(self)
        if not self.shared.is_gone(self._epoch):
            self.shared.notice(self)
        self._group.cancel_scope.cancel()
        await self._group.__aexit__(kind, exc, trace)

    # What the test holds back

    def hold_writes(self) -> None:
        """Store nothing, from now on."""
        self._may_write = 0

    def let_writes(self, changes: float = float("inf")) -> None:
        """Store as many of the changes that wait or come."""
        self._may_write = changes
        self.moved.notify()

    def hold_feed(self) -> None:
        """Tell this replica nothing of the others, from now on."""
        self._may_tell = False

    def let_feed(self) -> None:
        """Tell this replica of the others."""
        self._may_tell = True
        self.moved.notify()

    def hold_reads(self) -> None:
        """Give back what is read only later, from now on."""
        self._may_read = anyio.Event()

    def let_reads(self) -> None:
        """Give back what was read."""
        self._may_read.set()

    def hold_replies(self) -> None:
        """Do what others ask, and give no reply."""
        self._may_reply = anyio.Event()

    def hold_adoptions(self) -> None:
        """Give claimed tasks to the engine only later, from now on."""
        self._may_adopt = anyio.Event()

    def let_adoptions(self) -> None:
        """Give claimed tasks to the engine."""
        self._may_adopt.set()

    def look(self) -> None:
        """Look whether this replica was fenced."""
        self.looks = True
        self.moved.notify()

    @property
    def followed(self) -> list[str]:
        """The tasks that this replica follows."""
        return sorted(following.task_id for following in self._following)

    # A store

    def submit(self, change: Change, done: OnStored) -> None:
        """See `Store.submit`. The answer comes in a later turn of the loop."""
        self._submit(_Submission(self, self._epoch, change, done))

    def _submit(self, step: Callable[[], object]) -> None:
        self._given = next(self._numbers)
        self._queue.append((self._given, step))
        self.moved.notify()

    async def _write(self) -> None:
        while True:
            await checkpoint()
            moved = self.moved.next
            if self._is_up:
                self._look_at_fence()
                if self._queue and self._may_write > 0:
                    self._may_write -= 1
                    number, step = self._queue.popleft()
                    if isinstance(step, _Submission):
                        step.store(number)
                    else:
                        step()
                    continue
            await moved.wait()

    @property
    def _is_up(self) -> bool:
        return not self.is_dead and self.running.is_set()

    def _look_at_fence(self) -> None:
        if self.looks and self.shared.is_gone(self._epoch):
            self._epoch = self.shared.new_epoch()
            if self._engine is not None:
                self._engine.fenced()
            if self.leads:
                self._adopt_left()

    def keep(self, number: int, epoch: str, change: Change) -> Exception | None:
        """Store a change that was submitted under a number; the reason if it is refused."""
        if self.is_away:
            self.failure = "the database is away"
            return StoreError(self.failure)
        if number <= self._refused.get((change.task_id, epoch), 0):
            return StoreConflictError(f"an earlier change of {change.task_id} was refused")
        try:
            self.shared.change(change, epoch)
        except StoreConflictError as conflict:
            self._refused[change.task_id, epoch] = self._given
            return conflict
        return None

    async def load(self, task_id: str) -> StoredTask | None:
        """See `Store.load`."""
        while True:
            await self._up()
            found = self.shared.stored(task_id) if self.shared.has(task_id) else None
            await checkpoint()
            await self._may_read.wait()
            coming = self._coming.get(task_id)
            if found is None or found.holder != self._epoch or coming is None:
                return found
            await coming.wait()

    async def list(self, query: Query) -> TaskPage:
        """See `Store.list`."""
        await self._up()
        page = await self.shared.list(query)
        return replace(page, tasks=tuple(self.shared.stored(task.task_id) for task in page.tasks))

    async def context_owner(self, context_id: str) -> str | None:
        """See `Store.context_owner`."""
        await self._up()
        found = await self.shared.context_owner(context_id)
        await checkpoint()
        return found

    async def find_message(self, owner: str, message_id: str) -> StoredMessage | None:
        """See `Store.find_message`."""
        await self._up()
        found = self.shared.message_of(owner, message_id)
        await checkpoint()
        return found

    async def unfinished(self) -> AsyncIterator[StoredTask]:
        """Not asked of a store with replicas."""
        raise AssertionError("a store with replicas is not asked for unfinished tasks")
        yield

    @property
    def outbox(self) -> Outbox:
        """That of all replicas."""
        return self.shared.outbox

    async def waiting(self, states: Collection[str]) -> Mapping[str, int]:
        """See `Store.waiting`."""
        await self._up()
        return await self.shared.waiting(states)

    async def evict(self, ended_before_ms: int, quota: Quota) -> int:
        """See `Store.evict`."""
        await self._up()
        return await self.shared.evict(ended_before_ms, quota)

    def contents(self, *, create: bool) -> AbstractAsyncContextManager[StoreContents]:
        """See `Store.contents`."""
        return self.shared.contents(create=create)

    lasts = True

    async def probe(self) -> bool:
        """See `Store.probe`."""
        await self._up()
        if not self.is_away:
            self.failure = None
        return not self.is_away

    async def check(self) -> None:
        """See `Store.check`."""

    async def _up(self) -> None:
        """Wait while this replica is paused; for ever once it is killed."""
        await checkpoint()
        if self.is_dead:
            await anyio.sleep_forever()
        await self.running.wait()

    # The other replicas

    @property
    def replicas(self) -> Self:
        """This store knows them, too."""
        return self

    @property
    def epoch(self) -> str:
        """See `Replicas.epoch`."""
        return self._epoch

    @property
    def leads(self) -> bool:
        """The oldest living replica does."""
        return self.shared.heir() is self

    @property
    def adopts(self) -> bool:
        """Whether tasks of the dead may be given to this replica."""
        is_well = self._is_up and not self.is_away and not self.shared.is_gone(self._epoch)
        return is_well and self._engine is not None and not self._is_stopping

    def start(self, engine: ReplicaEngine) -> None:
        """See `Replicas.start`."""
        self._engine = engine
        self._adopt_left()

    def _adopt_left(self) -> None:
        """Adopt what was left when no other replica could adopt it."""
        for epoch in self.shared.gone_epochs():
            self.take(self.shared.adopt_of(epoch, self))

    def take(self, tasks: list[StoredTask]) -> None:
        """Give adopted tasks to the engine."""
        self._coming |= {task.task_id: anyio.Event() for task in tasks}
        self._group.start_soon(self._adopt, tasks)

    async def _adopt(self, tasks: list[StoredTask]) -> None:
        for task in tasks:
            await self._up()
            await self._may_adopt.wait()
            if self._engine is not None and task.holder == self._epoch:
                await self._engine.adopt(task)
            self._coming.pop(task.task_id).set()

    def release(self, task_id: str, seq: int) -> None:
        """See `Replicas.release`."""
        epoch = self._epoch
        self._submit(lambda: self.shared.rest(task_id, seq, epoch))

    def hand_over(self, task_id: str, seq: int) -> None:
        """See `Replicas.hand_over`."""
        self._is_stopping = True
        epoch = self._epoch

        def give() -> None:
            heir = self.shared.heir()
            if heir is not None and self.shared.rest(task_id, seq, epoch):
                heir.take([self.shared.adopt_one(task_id, heir)])

        self._submit(give)

    async def open_of(self, owner: str) -> int:
        """See `Replicas.open_of`."""
        await self._up()
        return self.shared.open_of(owner)

    def note_answer(self, owner: str, message_id: str, task_id: str, answer: WrittenAnswer) -> None:
        """See `Replicas.note_answer`."""
        self._submit(lambda: self.shared.note_answer(owner, message_id, task_id, answer))

    async def claim_session(self, name: str, idle_seconds: float) -> SessionClaim:
        """See `Replicas.claim_session`."""
        await self._up()
        return self.shared.claim_session(name, self._epoch)

    def end_session(self, claim: SessionClaim) -> None:
        """See `Replicas.end_session`."""
        self._submit(lambda: self.shared.end_session(claim))

    def follow(self, task_id: str, seq: int, on_events: OnForeignEvents) -> Callable[[], None]:
        """See `Replicas.follow`."""
        following = _Following(task_id, seq, on_events)
        self._following.add(following)
        self.moved.notify()
        return lambda: self._following.discard(following)

    async def _tell(self) -> None:
        while True:
            await checkpoint()
            moved = self.moved.next
            if self._is_up and self._may_tell:
                for following in tuple(self._following):
                    self._tell_one(following)
            await moved.wait()

    def _tell_one(self, following: _Following) -> None:
        if following not in self._following:
            return
        found = self.shared.events_after(following.task_id, following.seq)
        if found:
            following.seq = found[-1][1].seq
        told = tuple(event for epoch, event in found if self._tells_own or epoch != self._epoch)
        if told:
            following.on_events(told)

    async def events_after(self, task_id: str, seq: int) -> list[ForeignEvent]:
        """See `Replicas.events_after`."""
        await self._up()
        return [event for _, event in self.shared.events_after(task_id, seq)]

    async def ask(self, holder: str, command: bytes) -> bytes:
        """See `Replicas.ask`."""
        await self._up()
        owner = next((member for member in self.shared.members if member.epoch == holder), None)
        if owner is None or self.shared.is_gone(holder):
            raise HolderGoneError(f"{holder} is gone")
        asked = _Asked()
        owner._group.start_soon(owner._answer, holder, command, asked)
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                await self.shared.gone[holder].wait()
                asked.done.set()

            group.start_soon(watch)
            await asked.done.wait()
            group.cancel_scope.cancel()
        if not asked.reply:
            raise HolderGoneError(f"{holder} is gone")
        return asked.reply

    async def _answer(self, holder: str, command: bytes, asked: _Asked) -> None:
        await self._up()
        if self._engine is None or self.shared.is_gone(holder):
            return
        reply = await self._engine.answer(command)
        await self._up()
        await self._may_reply.wait()
        if not self.shared.is_gone(holder):
            asked.reply = reply
            asked.done.set()


@dataclass(frozen=True, slots=True)
class _Submission:
    member: ReplicaStore
    epoch: str
    change: Change
    done: OnStored

    def __call__(self) -> None:
        raise AssertionError("a submission is stored under its number")

    def store(self, number: int) -> None:
        self.done(self.member.keep(number, self.epoch, self.change))


class Recorder:
    """An engine that remembers what its store asks of it."""

    def __init__(self) -> None:
        self.adopted: list[StoredTask] = []
        self.asked: list[bytes] = []
        self.fences = 0
        self.moved = Signal()
        self.may_answer = anyio.Event()
        self.may_answer.set()
        self.may_adopt = anyio.Event()
        self.may_adopt.set()

    async def answer(self, command: bytes) -> bytes:
        """Reply with what was asked."""
        self.asked.append(command)
        self.moved.notify()
        await self.may_answer.wait()
        return b"done: " + command

    async def adopt(self, task: StoredTask) -> None:
        """Remember the task."""
        self.adopted.append(task)
        self.moved.notify()
        await self.may_adopt.wait()

    def fenced(self) -> None:
        """Remember that it was so."""
        self.fences += 1
        self.moved.notify()

    async def until(self, holds: Callable[[Self], Any]) -> None:
        """Wait until something holds of what was remembered."""
        while not holds(self):
            await self.moved.wait()
