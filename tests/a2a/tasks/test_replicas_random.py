"""Several engines on one store under random work and random faults, and the check of what their clients were told."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import anyio
import pytest
from anyio.abc import TaskGroup, TaskStatus
from anyio.lowlevel import checkpoint

from bridge.a2a.model.errors import A2AError
from bridge.a2a.model.life import ENDED
from bridge.a2a.model.objects import SendMessageRequest, Task
from bridge.a2a.tasks.agent import Commit, Job, Turn
from tests.support.agents import ALICE, asked, give, say
from tests.support.fleet import AT_ONCE, INPUT, C, Fleet, Replica, W, fleet, task_of
from tests.support.history import History, Read, StreamView, View, faults_of, view_of

CLIENTS: Final = 6
STEPS: Final = 25
"""How many requests each client makes."""

pytestmark = pytest.mark.proves("replicas-nothing-lost")


class Gone(Exception):
    """The replica died before it answered."""


@dataclass
class Chaos:
    """Random clients of a fleet, and random faults."""

    fleet: Fleet
    random: random.Random
    hosts: TaskGroup
    """Where the replicas run."""
    history: History = field(default_factory=History)
    replicas: list[Replica] = field(default_factory=list)
    over: anyio.Event = field(default_factory=anyio.Event)
    deaths: dict[int, anyio.Event] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    tasks: list[str] = field(default_factory=list)

    async def start(self) -> None:
        """One more replica."""
        self.replicas.append(await self.hosts.start(self.host))

    async def host(self, *, task_status: TaskStatus[Replica]) -> None:
        """Run a replica until it dies, or all is over."""
        async with self.fleet.replica(tells_own=self.random.random() < 0.5) as replica:
            self.deaths[id(replica)] = death = anyio.Event()
            task_status.started(replica)
            await death.wait()

    async def call(self, replica: Replica, ask: Callable[[], Awaitable[Task]]) -> Task:
        """What a replica answers.

        Raises:
            Gone: it died before.
        """
        found: list[Task] = []
        refused: list[A2AError] = []
        async with anyio.create_task_group() as group:

            async def until_dead() -> None:
                await self.deaths[id(replica)].wait()
                group.cancel_scope.cancel()

            group.start_soon(until_dead)
            try:
                found.append(await ask())
            except A2AError as exc:
                refused.append(exc)
            group.cancel_scope.cancel()
        if refused:
            raise refused[0]
        if not found:
            raise Gone
        return found[0]

    async def send(self, request: SendMessageRequest) -> Task | None:
        """Send a message until a replica answers, as a balancer does; None if it is refused."""
        while True:
            replica, began = self.random.choice(self.replicas), self.history.now()
            try:
                task = await self.call(replica, lambda: task_of(replica.tasks, request))  # noqa: B023
            except Gone:
                continue
            except A2AError as exc:
                if exc.kind.reason != "UNAVAILABLE":
                    return None
                await checkpoint()
                continue
            self.history.answered(began, task, request.message.message_id)
            return task

    async def client(self) -> None:
        """Make random requests."""
        for _ in range(STEPS):
            act = self.random.choice(
                [self.new, self.new, self.say, self.say, self.get, self.watch, self.cancel]
            )
            with suppress(Gone, A2AError):
                await act()

    async def new(self) -> None:
        """Begin a task."""
        at_once = AT_ONCE if self.random.random() < 0.5 else {}
        task = await self.send(
            asked({"text": self.random.choice(["work", "ask", "listen"])}, configuration=at_once)
        )
        if task is not None:
            self.tasks.append(task.id)

    async def say(self) -> None:
        """Answer a task, or say something while it works."""
        if self.tasks:
            await self.send(
                asked({"text": "work"}, taskId=self.random.choice(self.tasks), configuration=AT_ONCE)
            )

    async def get(self) -> None:
        """Get a task."""
        if self.tasks:
            task_id, replica = self.random.choice(self.tasks), self.random.choice(self.replicas)
            began = self.history.now()
            task = await self.call(replica, lambda: replica.tasks.get(task_id, None, ALICE))
            self.history.answered(began, task)

    async def cancel(self) -> None:
        """Cancel a task."""
        if self.tasks and self.random.random() < 0.3:
            task_id, replica = self.random.choice(self.tasks), self.random.choice(self.replicas)
            began = self.history.now()
            task = await self.call(replica, lambda: replica.tasks.cancel(task_id, ALICE))
            self.history.answered(began, task)

    async def watch(self) -> None:
        """Watch a task for a while."""
        if not self.tasks:
            return
        task_id, replica = self.random.choice(self.tasks), self.random.choice(self.replicas)
        view = StreamView(self.history)
        events = self.random.randrange(1, 12)

        async def look() -> Task:
            with await replica.tasks.subscribe(task_id, ALICE) as watcher:
                for _ in range(events):
                    with anyio.move_on_after(0.02) as scope:
                        seen = await watcher.next()
                    if scope.cancelled_caught or seen is None:
                        break
                    view.see(seen)
            return await replica.tasks.get(task_id, None, ALICE)

        await self.call(replica, look)

    async def break_things(self) -> None:
        """Make random faults until the clients are done."""
        while not self.over.is_set():
            for _ in range(self.random.randrange(40)):
                await checkpoint()
            fault = self.random.choice(
                [self.kill, self.stand_still, self.slow_feed, self.slow_writes, self.fold]
            )
            self.faults[fault.__name__] += 1
            await fault(self.random.choice(self.replicas))

    async def kill(self, replica: Replica) -> None:
        """Kill a replica, and start another one."""
        if self.faults["kill"] > 12:
            return
        await self.start()
        self.replicas.remove(replica)
        self.fleet.shared.kill(replica.store)
        self.deaths[id(replica)].set()

    async def stand_still(self, replica: Replica) -> None:
        """Stop a replica for a while; at times for so long that it is taken for dead."""
        self.fleet.shared.pause(replica.store)
        await self.some_turns()
        if self.random.random() < 0.5:
            self.fleet.shared.notice(replica.store)
            await self.some_turns()
        self.fleet.shared.resume(replica.store)

    async def slow_feed(self, replica: Replica) -> None:
        """Tell a replica late of the others."""
        replica.store.hold_feed()
        await self.some_turns()
        replica.store.let_feed()

    async def slow_writes(self, replica: Replica) -> None:
        """Store late."""
        replica.store.hold_writes()
        await self.some_turns()
        replica.store.let_writes(self.random.randrange(1, 4))
        await self.some_turns()
        replica.store.let_writes()

    async def fold(self, replica: Replica) -> None:
        """Tell no more of the events of a task."""
        if self.tasks:
            self.fleet.shared.forget_events(self.random.choice(self.tasks))

    async def some_turns(self) -> None:
        """Let the others run."""
        for _ in range(self.random.randrange(60)):
            await checkpoint()


class Worker:
    """Work of a random length, which ends or asks, and counts how often it began for each message."""

    def __init__(self, dice: random.Random) -> None:
        self.runs: Counter[str] = Counter()
        self._dice = dice

    async def __call__(self, job: Job) -> None:
        message = job.turn.message
        self.runs[message.message_id] += 1
        say(job, W)
        for _ in range(self._dice.randrange(5)):
            await self._pause()
            commit = give(job, "piece")
            if self._dice.random() < 0.5:
                await commit
        text = message.parts[0].text
        if text == "listen":
            await self._listen(job)
        if text == "ask":
            await say(job, INPUT, "Which?")
        else:
            await say(job, C)

    async def _listen(self, job: Job) -> None:
        answered = anyio.Event()

        def hear(_: Turn) -> Callable[[Commit], None]:
            def take(_: Commit) -> None:
                job.listen(None)
                answered.set()

            return take

        job.listen(hear)
        await say(job, INPUT, "Which?")
        await answered.wait()

    async def _pause(self) -> None:
        for _ in range(self._dice.randrange(20)):
            await checkpoint()


async def run(seed: int) -> tuple[list[str], Chaos, Worker]:
    """One run of it all: the faults that were found."""
    dice = random.Random(seed)
    worker = Worker(dice)
    limits = {"repeat_seconds": 10_000, "cancel_grace_seconds": 1, "open_tasks": 10_000}
    async with fleet(worker, **limits) as found, anyio.create_task_group() as hosts:
        chaos = Chaos(found, dice, hosts)
        for _ in range(3):
            await chaos.start()
        async with anyio.create_task_group() as group:
            group.start_soon(chaos.break_things)
            async with anyio.create_task_group() as clients:
                for _ in range(CLIENTS):
                    clients.start_soon(chaos.client)
            chaos.over.set()
        final = await end_all(chaos)
        for replica in chaos.replicas:
            await anyio.wait_all_tasks_blocked()
            assert not list(replica.engine.registry)
            assert replica.store.followed == []
            chaos.deaths[id(replica)].set()
    return faults_of(chaos.history, final), chaos, worker


async def end_all(chaos: Chaos) -> dict[str, View]:
    """Cancel what has not ended, and read everything from each replica, which all say the same."""
    first = chaos.replicas[0].tasks
    views: dict[str, View] = {}
    for task_id in {*chaos.history.reads, *chaos.history.acked}:
        with suppress(A2AError):
            await first.cancel(task_id, ALICE)
        tasks = [await replica.tasks.get(task_id, None, ALICE) for replica in chaos.replicas]
        assert all(task == tasks[0] for task in tasks)
        assert tasks[0].status.state in ENDED
        views[task_id] = view_of(tasks[0])
    return views


SEEDS: Final = [int(seed) for seed in os.environ.get("REPLICAS_SEEDS", "").split()] or [1, 2, 3]


@pytest.mark.parametrize("seed", [*SEEDS, None])
async def test_one_agent_could_have_shown_what_clients_of_a_breaking_fleet_saw(seed: int | None) -> None:
    """With None the seed is another one each time; a failure names it, and REPLICAS_SEEDS runs it again."""
    chosen = random.SystemRandom().randrange(2**32) if seed is None else seed
    print(f"seed {chosen}")
    with anyio.fail_after(60):
        faults, chaos, worker = await run(chosen)
    assert not faults, f"seed {chosen}: {faults[:5]}"
    twice = [message_id for message_id, runs in worker.runs.items() if runs > 1]
    assert not twice, f"seed {chosen}: worked on twice: {twice}"
    assert len(chaos.tasks) > 10, f"seed {chosen}: {chaos.faults}"


# The checker


def history_of(*reads: tuple[int, int, View]) -> History:
    """Reads of one task, each with the moments of its request and its answer."""
    history = History()
    history.reads["t"] = [Read(*read) for read in reads]
    return history


WHOLE: Final = View(("m1", "m2"), ("a", "b", "c"), "COMPLETED")


def test_a_history_of_one_agent_has_no_fault() -> None:
    history = history_of(
        (0, 1, View(("m1",))),
        (2, 9, View(("m1",), ("a",))),
        (3, 4, View(("m1", "m2"), ("a", "b"))),
        (5, 6, WHOLE),
        (7, 8, WHOLE),
    )
    history.acked["t"] = {"m1", "m2"}
    assert faults_of(history, {"t": WHOLE}) == []


@pytest.mark.parametrize(
    ("final", "reads", "acked", "said"),
    [
        (View(("m1",), ("a", "c")), [(0, 1, View(("m1",), ("a", "b")))], set(), "lost ['b']"),
        (View(("m1",)), [(0, 1, View(("m1",)))], {"m2"}, "lost message m2"),
        (View(("m1",), ("a", "b", "a")), [(0, 1, View(("m1",), ("a",)))], set(), "doubled a"),
        (View(("m1",), ("a", "b")), [(0, 1, View(("m1",), ("b", "a")))], set(), "swapped"),
        (View(("m1",), (), "FAILED"), [(0, 1, View(("m1",), (), "COMPLETED"))], set(), "second end"),
        (View(("m1",), ("a",), "FAILED"), [(0, 1, View(("m1",), (), "FAILED"))], set(), "something followed"),
        (WHOLE, [(0, 1, View(("m1",), ("a",))), (2, 3, View(("m1",)))], set(), "stale read"),
        (WHOLE, [(0, 1, WHOLE), (2, 3, View(("m1", "m2"), ("a", "b", "c")))], set(), "stale read"),
    ],
    ids=[
        "lost",
        "lost message",
        "doubled",
        "swapped",
        "second end",
        "more after the end",
        "stale",
        "stale end",
    ],
)
def test_a_planted_fault_is_found(
    final: View, reads: list[tuple[int, int, View]], acked: set[str], said: str
) -> None:
    history = history_of(*reads)
    history.acked["t"] = acked
    faults = faults_of(history, {"t": final})
    assert any(said in fault for fault in faults), faults


def test_a_task_that_is_lost_as_a_whole_is_found() -> None:
    assert faults_of(history_of((0, 1, WHOLE)), {}) == ["t: lost as a whole"]
