"""Several engines on one shared memory, the agents that they run, and what clients see of it all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest
from pydantic_core import from_json

from bridge.a2a.layers.chain import layers_around, shared_tasks
from bridge.a2a.layers.operations import TaskOperations
from bridge.a2a.model.errors import INVALID_PARAMS, A2AError, ErrorKind
from bridge.a2a.model.objects import (
    Message,
    SendMessageConfiguration,
    SendMessageRequest,
    Task,
    TaskState,
    text_of_parts,
)
from bridge.a2a.tasks.agent import Commit, Job, Turn
from bridge.a2a.tasks.callers import CallContext
from bridge.a2a.tasks.engine import Engine
from bridge.a2a.tasks.watcher import Watcher
from bridge.assembly.ids import clock_of
from bridge.store.retention import Retention
from tests.support.agents import ALICE, PACE, Clock, Scripted, give, say
from tests.support.drivers import shape_of
from tests.support.limits import engine_limits
from tests.support.replicas import ReplicaStore, SharedMemory

W, C, F, X = TaskState.WORKING, TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED
INPUT, AUTH = TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED
AT_ONCE = {"returnImmediately": True}


@dataclass
class Replica:
    """One engine, with its store and its agent."""

    engine: Engine
    store: ReplicaStore
    agent: Scripted
    tasks: TaskOperations
    """The operations of the engine, with the layers for replicas and operators."""

    @property
    def turns(self) -> list[str]:
        """What was said to this replica's agent."""
        return [text_of_parts(turn.message.parts) for turn in self.agent.turns]


Script = Callable[[Job], Awaitable[None]]


@dataclass
class Fleet:
    """The replicas of one agent."""

    shared: SharedMemory
    clock: Clock
    script: Script
    limits: dict[str, Any]
    stack: AsyncExitStack

    async def start(
        self, *, tells_own: bool = False, retention: Retention | None = None, ahead_ms: int = 0
    ) -> Replica:
        """One more replica."""
        replica = self.replica(tells_own=tells_own, retention=retention, ahead_ms=ahead_ms)
        return await self.stack.enter_async_context(replica)

    @asynccontextmanager
    async def replica(
        self, *, tells_own: bool = False, retention: Retention | None = None, ahead_ms: int = 0
    ) -> AsyncIterator[Replica]:
        """One more replica, for as long as the context is open. Its machine's clock is ahead of the store's."""
        agent = Scripted(self.script)
        quick: dict[str, Any] = {"cancel_grace_seconds": 5, "drain_seconds": 0, "store_pace": PACE}
        limits = engine_limits(**{**quick, **self.limits})
        async with self.shared.replica(tells_own=tells_own) as store:
            store.offset_ms = -ahead_ms
            clock = clock_of(store, lambda: self.clock.now_ms + ahead_ms)
            ids = replace(self.clock.ids, now_ms=clock)
            async with Engine(agent, store, ids, limits, retention) as engine:
                tasks = layers_around(shared_tasks(engine, store), engine, operators=True)
                yield Replica(engine, store, agent, tasks)

    def fence(self, replica: Replica) -> None:
        """Let a replica stand still until it is taken for dead, and then go on."""
        self.shared.pause(replica.store)
        self.shared.notice(replica.store)
        self.shared.resume(replica.store)


@asynccontextmanager
async def fleet(script: Script, **limits: Any) -> AsyncIterator[Fleet]:
    """No replica yet."""
    clock = Clock()
    async with AsyncExitStack() as stack:
        yield Fleet(SharedMemory(lambda: clock.elapsed_ms), clock, script, limits, stack)


@asynccontextmanager
async def pair(script: Script, **limits: Any) -> AsyncIterator[tuple[Replica, Replica]]:
    """Two replicas of which only the second is told of its own events."""
    async with fleet(script, **limits) as found:
        yield await found.start(), await found.start(tells_own=True)


@asynccontextmanager
async def refused(kind: ErrorKind) -> AsyncIterator[None]:
    with pytest.raises(A2AError) as caught:
        yield
    assert caught.value.kind is kind, caught.value


def words(task: Task | Message) -> str:
    """What the task's status says."""
    assert isinstance(task, Task)
    return text_of_parts(task.status.message.parts) if task.status.message else ""


def texts(task: Task) -> list[str]:
    """What the task's artifacts say."""
    return [text_of_parts(artifact.parts) for artifact in task.artifacts or ()]


async def task_of(
    engine: Engine,
    request: SendMessageRequest,
    caller: CallContext = ALICE,
    configuration: dict[str, Any] | None = None,
) -> Task:
    """The answer to a message, which is a task."""
    if configuration is not None:
        said = SendMessageConfiguration.model_validate(configuration)
        request = request.model_copy(update={"configuration": said})
    answer = await engine.send(request, caller)
    assert isinstance(answer, Task)
    return answer


async def shape(watcher: Watcher) -> list[str]:
    """The rest of a stream in words."""
    found = []
    with watcher:
        while (seen := await watcher.next()) is not None:
            found.append(from_json(seen.text))
    return shape_of(found)


async def first_of(watcher: Watcher) -> dict[str, Any]:
    """The first event of a stream."""
    seen = await watcher.next()
    assert seen is not None
    found: dict[str, Any] = from_json(seen.text)
    return found


class Steps:
    """Work that says WORKING, gives an artifact each time it is told to, and completes in the end."""

    def __init__(self, artifacts: int = 1) -> None:
        self.began = anyio.Event()
        self.runs = 0
        self._artifacts = artifacts
        self._go = anyio.Semaphore(0)

    def go(self) -> None:
        """Let the work take its next step."""
        self._go.release()

    async def __call__(self, job: Job) -> None:
        self.runs += 1
        await say(job, W)
        self.began.set()
        for number in range(self._artifacts):
            await self._go.acquire()
            await give(job, f"piece {number}")
        await self._go.acquire()
        await say(job, C)


async def ask_then_finish(job: Job) -> None:
    """Ask for something; complete with the answer."""
    if job.turn.task is None:
        await say(job, INPUT, "Which?")
    else:
        await give(job, text_of_parts(job.turn.message.parts))
        await say(job, C)


class Listening:
    """Work that asks while its call is open, and completes with the answer."""

    def __init__(self) -> None:
        self.runs = 0

    async def __call__(self, job: Job) -> None:
        self.runs += 1
        answered = anyio.Event()
        said: list[str] = []

        def hear(turn: Turn) -> Callable[[Commit], None]:
            text = text_of_parts(turn.message.parts)
            if text == "no":
                raise A2AError(INVALID_PARAMS, "That is no answer", headers={"X-Why": "no"})

            def take(_: Commit) -> None:
                said.append(text)
                job.listen(None)
                answered.set()

            return take

        job.listen(hear)
        await say(job, INPUT, "Which?")
        await answered.wait()
        await give(job, said[0])
        await say(job, C)


async def never(job: Job) -> None:
    say(job, W)
    await anyio.sleep_forever()


async def finish(job: Job) -> None:
    await say(job, C)
