"""The order of the layers around an engine, and the gate that a message passes before its work starts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2
import pytest

from bridge import trace
from bridge.a2a.layers.chain import layers_around, shared_tasks
from bridge.a2a.layers.operators import Operators
from bridge.a2a.model.errors import FORBIDDEN, TASK_NOT_FOUND
from bridge.a2a.model.objects import ListTasksRequest, Task, TaskState
from bridge.a2a.server.app import AgentServer
from bridge.a2a.server.service import AgentService
from bridge.a2a.tasks.agent import Job
from bridge.a2a.tasks.callers import CallContext
from bridge.a2a.tasks.engine import Engine
from bridge.a2a.wire.extensions import ExtensionFilter
from bridge.errors import AuditAwayError
from bridge.http.request_checks import FaceAddress
from bridge.identity.callers.principals import OperatorRole, Principal
from bridge.identity.callers.verifiers import Access, Credential, verifiers_of
from bridge.store.memory import MemoryStore
from bridge.trace import Hop, Hops
from tests.support.agents import ALICE, Scripted, asked, engine_of, give, say
from tests.support.fleet import Listening, pair, refused, task_of
from tests.support.limits import PROFILE, agent_limits
from tests.support.running import Rpc, listening, message

OPS = CallContext(Principal("ops"), operator=OperatorRole.ANSWER, sees_contents=True)
EYES = CallContext(Principal("eyes"), operator=OperatorRole.READ)
WAIT_SECONDS = 30


class Work:
    """Work that gives one text, and remembers the skills of its callers."""

    def __init__(self) -> None:
        self.skills: list[Any] = []

    async def __call__(self, job: Job) -> None:
        self.skills.append(job.turn.principal.skills)
        await give(job, "done")
        await say(job, TaskState.COMPLETED)


@dataclass
class Gate:
    """A gate that counts who passes, and does something at each pass."""

    at_pass: Callable[[], Awaitable[None]] | None = None
    passed: list[tuple[str, str]] = field(default_factory=list)
    """The method and the skill of each hop."""
    listened: list[str] = field(default_factory=list)

    async def intend(self, hop: Hop) -> int:
        self.passed.append((hop.method, hop.skill))
        if self.at_pass is not None:
            await self.at_pass()
        return len(self.passed)

    def began(self, hop: Hop) -> None:
        pass

    def ended(self, hop: Hop) -> None:
        self.listened.append(hop.error)

    def waited(self, hop: Hop, peer: str, seconds: float) -> None:
        pass


async def test_without_its_layer_an_operator_is_a_client_like_any_other() -> None:
    async with engine_of(Work()) as engine:
        task = await engine.send(asked(), ALICE)
        assert isinstance(task, Task)
        async with refused(TASK_NOT_FOUND):
            await engine.get(task.id, None, OPS)
        async with refused(TASK_NOT_FOUND):
            await engine.cancel(task.id, OPS)
        assert (await engine.list(ListTasksRequest(), OPS)).tasks == ()
        layered = layers_around(shared_tasks(engine, MemoryStore()), engine, operators=True)
        assert (await layered.get(task.id, None, OPS)).id == task.id
        assert [one.id for one in (await layered.list(ListTasksRequest(), OPS)).tasks] == [task.id]


async def test_layers_that_nothing_asks_for_are_not_there() -> None:
    async with engine_of(Work()) as engine:
        tasks = shared_tasks(engine, MemoryStore())
        assert tasks is engine
        assert layers_around(tasks, engine, operators=False) is engine
        assert isinstance(layers_around(tasks, engine, operators=True), Operators)


async def test_an_operator_is_refused_before_another_replica_is_asked() -> None:
    async with pair(Listening()) as (one, two):
        task = await task_of(one.tasks, asked(), ALICE)
        asked_of_others: list[bytes] = []
        ask = two.store.ask

        async def counted(holder: str, command: bytes) -> bytes:
            asked_of_others.append(command)
            return await ask(holder, command)

        two.store.ask = counted  # type: ignore[method-assign]
        async with refused(FORBIDDEN):
            await two.tasks.cancel(task.id, EYES)
        assert asked_of_others == []


@dataclass
class Gated:
    """A served agent whose requests have to pass a gate."""

    rpc: Rpc
    work: Work
    gate: Gate
    engine: Engine
    access: Access

    async def error(self, params: Any) -> str:
        """The reason of a refused message."""
        error = (await self.rpc.post("SendMessage", params)).json()["error"]
        return str(error["data"][0]["reason"])


@asynccontextmanager
async def gated() -> AsyncIterator[Gated]:
    work, gate, access = Work(), Gate(), Access(verifiers_of([_alice()]))
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(WAIT_SECONDS))
        engine = await stack.enter_async_context(engine_of(work))
        server = AgentServer(
            Scripted(work),
            AgentService(engine, ExtensionFilter({}), PROFILE.requests.parts),
            access,
            FaceAddress(),
            agent_limits(),
            hops=Hops((gate,), gate),
        )
        url = await stack.enter_async_context(listening(server.at("")))
        client = await stack.enter_async_context(httpx2.AsyncClient(timeout=WAIT_SECONDS))
        yield Gated(Rpc(client, url, {"Authorization": "Bearer alice-token"}), work, gate, engine, access)


def _alice(*skills: str) -> Credential:
    return Credential(Principal("alice", skills=skills or ("*",)), "alice-token")


async def test_a_message_passes_the_gate_once_and_before_its_work_starts() -> None:
    async with gated() as there:

        async def nothing_runs() -> None:
            assert there.work.skills == []
            assert not list(there.engine.registry)

        there.gate.at_pass = nothing_runs
        await there.rpc.call("SendMessage", message({"text": "go"}))
        assert there.gate.passed == [("SendMessage", "act")]
        assert len(there.work.skills) == 1


async def test_a_refusal_and_a_repeat_pass_the_gate_before_they_are_answered() -> None:
    async with gated() as there:
        assert await there.error(message({"text": "go"}, taskId="none")) == "TASK_NOT_FOUND"
        assert there.gate.passed == [("SendMessage", "")]
        said = message({"text": "go"})
        first, again = [await there.rpc.call("SendMessage", said) for _ in range(2)]
        assert first["task"]["id"] == again["task"]["id"]
        assert len(there.gate.passed) == 3
        assert len(there.work.skills) == 1


@pytest.mark.parametrize("fields", [{}, {"taskId": "none"}], ids=["a call", "a refused call"])
async def test_a_message_at_a_closed_gate_starts_nothing_and_tries_once(fields: dict[str, str]) -> None:
    async with gated() as there:

        async def closed() -> None:
            raise AuditAwayError("the disk is full")

        there.gate.at_pass = closed
        assert await there.error(message({"text": "go"}, **fields)) == "UNAVAILABLE"
        assert (len(there.gate.passed), there.work.skills) == (1, [])
        assert (await there.engine.list(ListTasksRequest(), ALICE)).tasks == ()


async def test_a_caller_that_is_removed_at_the_gate_starts_nothing() -> None:
    async with gated() as there:

        async def remove() -> None:
            there.access.update(verifiers_of([Credential(Principal("bob"), "bob-token")]))

        there.gate.at_pass = remove
        answer = await there.rpc.post("SendMessage", message({"text": "go"}))
        assert (answer.status_code, there.work.skills) == (401, [])


async def test_a_caller_with_other_rights_after_the_gate_has_those_rights() -> None:
    async with gated() as there:

        async def change() -> None:
            there.access.update(verifiers_of([_alice("act")]))

        there.gate.at_pass = change
        await there.rpc.call("SendMessage", message({"text": "go"}))
        assert there.work.skills == [("act",)]
        assert len(there.gate.passed) == 1, "the intent is written once"


async def test_a_repeat_that_comes_while_the_first_message_waits_at_the_gate_joins_it() -> None:
    async with gated() as there:
        is_open, waits = anyio.Event(), anyio.Event()

        async def wait() -> None:
            waits.set()
            await is_open.wait()

        there.gate.at_pass = wait
        said, tasks = message({"text": "go"}), []

        async def send() -> None:
            tasks.append((await there.rpc.call("SendMessage", said))["task"]["id"])

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            await waits.wait()
            group.start_soon(send)
            is_open.set()
        assert (len(set(tasks)), len(tasks), len(there.work.skills)) == (1, 2, 1)


async def test_the_replica_that_the_client_called_passes_the_gate_before_the_command_leaves() -> None:
    async with pair(Listening()) as (one, two):
        task = await task_of(one.tasks, asked(), ALICE)
        gate, order = Gate(), []
        ask = two.store.ask

        async def noted(holder: str, command: bytes) -> bytes:
            order.append(len(gate.passed))
            return await ask(holder, command)

        two.store.ask = noted  # type: ignore[method-assign]
        trace.begin()
        hop = Hops((gate,), gate).taken("a2a", "face")
        assert hop is not None
        await two.tasks.send(asked({"text": "this"}, taskId=task.id), ALICE)
        assert (order, gate.passed) == ([1], [("", "act")])
        trace.begin()
