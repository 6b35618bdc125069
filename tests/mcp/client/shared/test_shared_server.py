"""Two workers that share a tool server, in one process: each has its own unix socket, as workers have, and the server
is a real child of the one that holds it."""

from __future__ import annotations

import asyncio
import errno
import json
import math
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from bridge import trace
from bridge.errors import BusyError
from bridge.mcp.client.call_queue import Claimant, SlotHold
from bridge.mcp.client.faults import ServerDownError, ServerLostError, ServerRefusedError
from bridge.mcp.client.server_tasks import follow, handle_from
from bridge.mcp.client.shared.frames import SessionPlace, opening
from bridge.mcp.client.shared.holder import HeldServers
from bridge.mcp.client.shared.server import Holders, SharedRules, SharedServer
from bridge.mcp.client.transports.stdio import StdioTarget
from bridge.mcp.client.upstream import QueueFullError, Upstream
from bridge.mcp.client.values import ProgressReport
from bridge.text.jsonvalues import JsonObject
from bridge.trace import UNHEARD, Hops
from bridge.worker_link import LinkEndedError, WorkerLink
from tests.support.asking import asking_command
from tests.support.heard_hops import HeardHops
from tests.support.limits import call_of, session_pace, session_rules
from tests.support.running import raw_command

SECRET = "known to both"
WITHIN_SECONDS = 30.0


@dataclass
class Worker:
    """One of two workers, with its view of the server."""

    number: int
    folder: Path
    target: StdioTarget
    said: dict[str, Any] = field(default_factory=dict)
    concurrency: int = 16
    connect_seconds: float = WITHIN_SECONDS
    hops: Hops = UNHEARD
    held: HeldServers = field(default_factory=lambda: HeldServers(SECRET))
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    changed: anyio.Event = field(default_factory=anyio.Event)
    began: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        pace = session_pace(
            connect_seconds=self.connect_seconds, settle_seconds=0.05, concurrency=self.concurrency
        )
        rules = session_rules(**self.said)
        self.holders = Holders(str(self.folder / f"{self.number}.sock"))

        def make(on_change: Any) -> Upstream:
            return Upstream(
                "shared", self.target, pace=pace, rules=rules, on_change=on_change, hops=self.hops
            )

        self.server = SharedServer(
            "shared",
            "shared#1",
            make,
            limits=SharedRules(pace, rules, 2),
            holders=self.holders,
            held=self.held,
            on_change=self._moved,
        )

    def _moved(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def run(self) -> None:
        """Until `die`."""
        with self.scope, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.holders.own_address)
            async with anyio.create_task_group() as serving:
                serving.start_soon(self.held.serve, listener)
                async with self.server.run():
                    self.began.set()
                    await anyio.sleep_forever()

    def opening(self, login_config: str, **more: Any) -> JsonObject:
        """The first frame of a link of this worker."""
        more["start_seconds"] = self.connect_seconds
        return opening(SECRET, "shared#1", login_config, SessionPlace(), more)

    async def until(self, condition: Any) -> None:
        """Wait until something is so of the server."""
        while not condition():
            await self.changed.wait()

    async def call(self, tool: str, arguments: JsonObject | None = None, *rest: Any) -> JsonObject:
        """A call in its slot."""
        self.server.reserve("ada")
        try:
            async with (
                self.server.queue("ada", "c1") as queue,
                queue.slot(Claimant("ada"), math.inf) as slot,
            ):
                return await slot.session.call(call_of(tool, arguments or {}), *rest)
        finally:
            self.server.release("ada")


@dataclass
class Answers:
    """Answers each question of a server, once it may."""

    content: JsonObject = field(default_factory=dict)
    asked: list[Mapping[str, JsonObject]] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)
    is_left: bool = False
    may: anyio.Event = field(default_factory=anyio.Event)
    came: anyio.Event = field(default_factory=anyio.Event)

    async def ask(self, questions: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:
        self.asked.append(questions)
        self.came.set()
        await self.may.wait()
        return {key: {"action": "accept", "content": self.content} for key in questions}

    def withdraw(self, key: str) -> None:
        self.withdrawn.append(key)

    def miss_question(self, calls: int) -> None:
        raise AssertionError("no question was missed")


@dataclass
class Two:
    """Both workers, of which the first one holds the server at first."""

    holder: Worker
    other: Worker

    def assign(self, worker: Worker) -> None:
        """Say what the supervisor says."""
        for one in (self.holder, self.other):
            one.holders.update({"shared#1": worker.holders.own_address})


@asynccontextmanager
async def two(
    target: StdioTarget, *, concurrency: int = 16, hops: Hops = UNHEARD, **said: Any
) -> AsyncIterator[Two]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="w")))
        both = Two(*(Worker(number, folder, target, said, concurrency, hops=hops) for number in (1, 2)))
        both.assign(both.holder)
        with anyio.fail_after(WITHIN_SECONDS):
            async with anyio.create_task_group() as tasks:
                for worker in (both.holder, both.other):
                    tasks.start_soon(worker.run)
                    await worker.began.wait()
                    await worker.server.ready()
                yield both
                tasks.cancel_scope.cancel()


def texts(result: JsonObject) -> list[str]:
    content: Any = result["content"]
    return [block["text"] for block in content]


@pytest.mark.anyio
async def test_another_worker_knows_the_tools_and_calls_them_with_progress_and_refusals() -> None:
    reports: list[ProgressReport] = []
    async with two(raw_command()) as both:
        one, other = both.holder.server, both.other.server
        assert [tool.listed for tool in other.listing.tools] == [tool.listed for tool in one.listing.tools]
        assert (other.greeting, other.down) == (one.greeting, None)
        assert texts(await both.other.call("echo", {"text": "hé"})) == ["hé"]
        await both.other.call("progress", {"steps": 3}, reports.append)
        with pytest.raises(ServerRefusedError) as refused:
            await both.other.call("refuse", {"code": -32001})
    assert [report.progress for report in reports] == [1, 2, 3]
    assert refused.value.code == -32001


@pytest.mark.anyio
async def test_a_call_of_another_worker_says_who_asked_which_face_in_which_task() -> None:
    heard = HeardHops()
    async with two(raw_command(), hops=heard.hops) as both:
        heard.ended_hops.clear()
        for worker in (both.holder, both.other):
            trace.begin()
            taken = heard.hops.taken("a2a", "face")
            assert taken is not None
            taken.admit("SendMessage", "ada", is_authenticated=True)
            taken.task_id = "t1"
            await worker.call("echo", {"text": "x"})
        trace.begin()
        await both.other.call("echo", {"text": "x"})
    calls = [one for one in heard.ended_hops if one.method == "tools/call"]
    told = [(one.side, one.principal, one.is_authenticated, one.face, one.task_id) for one in calls]
    of_nobody = ("client", "", False, "", "")
    assert told == [("client", "ada", True, "face", "t1"), ("client", "ada", True, "face", "t1"), of_nobody]


@pytest.mark.anyio
async def test_a_change_of_the_tools_is_seen_by_each_worker() -> None:
    async with two(raw_command("--changes")) as both:
        before = len(both.other.server.listing.tools)
        await both.other.call("grow")
        for worker in (both.holder, both.other):
            await worker.until(lambda worker=worker: len(worker.server.listing.tools) == before + 1)


@pytest.mark.anyio
async def test_a_question_to_a_call_of_another_worker_is_answered_there() -> None:
    asker = Answers({"sure": True})
    asker.may.set()
    async with two(asking_command("legacy")) as both:
        result = await both.other.call("ask-one", {}, None, asker)
    assert len(asker.asked) == 1
    assert "accept" in texts(result)[0]


@pytest.mark.anyio
async def test_cancelling_a_call_of_another_worker_cancels_it_on_the_server() -> None:
    asker = Answers()
    async with two(asking_command("legacy")) as both:
        async with anyio.create_task_group() as calling:
            calling.start_soon(both.other.call, "ask-one", {}, None, asker)
            await asker.came.wait()
            calling.cancel_scope.cancel()
        assert texts(await both.holder.call("cancelled")) == ["1"]


@pytest.mark.anyio
async def test_a_task_of_the_server_is_followed_by_another_worker() -> None:
    asker = Answers({"sure": True})
    asker.may.set()
    async with two(asking_command("legacy")) as both:
        async with (
            both.other.server.queue("ada", "c1") as queue,
            queue.slot(Claimant("ada"), math.inf) as slot,
        ):
            session = slot.session
            made = handle_from(await session.call(call_of("job", {"steps": 2, "seconds": 0.05})))
        assert made is not None
        assert "content" in await follow(session, made, asker, lambda _: None)


@pytest.mark.anyio
async def test_calls_of_all_workers_stand_in_one_queue_with_the_servers_own_limit() -> None:
    second = Answers({"sure": True})
    held: list[SlotHold] = []
    told = anyio.Event()

    async def wait_for_a_slot(worker: Worker) -> None:
        def tell(hold: SlotHold) -> None:
            held.append(hold)
            told.set()

        async with (
            worker.server.queue("bob", "c2") as queue,
            queue.slot(Claimant("bob"), math.inf, tell) as slot,
        ):
            await slot.session.call(call_of("ask-one", {}), None, second)

    async with two(asking_command("legacy"), concurrency=1) as both, anyio.create_task_group() as calling:
        async with (
            both.holder.server.queue("ada", "c1") as queue,
            queue.slot(Claimant("ada", "t1"), math.inf) as slot,
        ):
            slot.hold(lambda _: None, lambda: None)
            calling.start_soon(wait_for_a_slot, both.other)
            await told.wait()
            assert (both.holder.server.waiting, both.holder.server.holds[0].caller.task_id) == (1, "t1")
        await second.came.wait()
        second.may.set()
    assert [hold.caller for hold in held] == [Claimant("ada", "t1")]


@pytest.mark.anyio
async def test_a_question_of_another_workers_call_is_told_that_others_wait_for_its_slot() -> None:
    seconds: list[float] = []
    told = anyio.Event()

    def tell(left: float) -> None:
        seconds.append(left)
        told.set()

    async with (
        two(raw_command(), concurrency=1, contended_question_seconds=60.0) as both,
        anyio.create_task_group() as calling,
        both.other.server.queue("ada", "c1") as queue,
        queue.slot(Claimant("ada"), math.inf) as slot,
    ):
        calling.start_soon(slot.session.call, call_of("wait", {}))
        slot.hold(tell, lambda: None)
        calling.start_soon(both.holder.call, "echo", {"text": "x"})
        await told.wait()
        calling.cancel_scope.cancel()
    assert len(seconds) == 1


@pytest.mark.anyio
async def test_a_call_under_way_fails_with_its_reason_when_the_holder_dies_and_the_next_holder_goes_on() -> (
    None
):
    asker, lost = Answers(), []

    async def call(worker: Worker) -> None:
        with pytest.raises(ServerLostError) as failed:
            await worker.call("ask-one", {}, None, asker)
        lost.append(str(failed.value))

    async with two(asking_command("legacy")) as both:
        tools = both.other.server.listing.tools
        async with anyio.create_task_group() as calling:
            calling.start_soon(call, both.other)
            await asker.came.wait()
            both.holder.scope.cancel()
        await both.other.until(lambda: both.other.server.down is not None)
        assert both.other.server.listing.tools == tools
        async with anyio.create_task_group() as calling:
            calling.start_soon(both.other.call, "echo", {"text": "later"})
            both.assign(both.other)
        assert both.other.server.own is not None
    assert lost == [
        "the process that ran shared for all workers has ended while it had the call. Whether the server acted on it"
        " is not known"
    ]


@pytest.mark.anyio
async def test_a_context_keeps_one_session_through_another_worker() -> None:
    async with (
        two(raw_command(), per="context", most=1) as both,
        both.other.server.queue("ada", "c1") as queue,
    ):
        async with queue.slot(Claimant("ada"), math.inf) as slot:
            assert texts(await slot.session.call(call_of("echo", {"text": "one"}))) == ["one"]
        with pytest.raises(BusyError):
            async with both.holder.server.queue("bob", "c2"):
                raise AssertionError("there is one session, and it is in use")


@pytest.mark.anyio
async def test_a_worker_that_does_not_hold_the_server_has_its_share_of_the_room() -> None:
    async with two(raw_command(), queue=0) as both:
        most = 16 // 2
        for number in range(most):
            both.other.server.reserve(f"p{number}")
        with pytest.raises(QueueFullError):
            both.other.server.reserve("one more")
        for number in range(most):
            both.other.server.release(f"p{number}")


@pytest.mark.anyio
async def test_whoever_does_not_know_the_secret_gets_nothing() -> None:
    async with two(raw_command()) as both:
        link = await WorkerLink.to(both.holder.holders.own_address)
        link.post({"secret": "guessed", "server": "shared#1", "wish": "state"})
        with pytest.raises(LinkEndedError):
            await link.receive()
        await link.close()


@pytest.mark.anyio
async def test_a_large_result_is_kept_for_a_worker_that_does_not_read_it_yet() -> None:
    size = 20_000_000
    async with two(raw_command()) as both:
        reader, writer = await asyncio.open_unix_connection(both.holder.holders.own_address)
        link = WorkerLink(reader, writer)
        login_config = {"caller": {"principal": "ada"}, "within_seconds": None}
        link.post(both.other.opening("call", **login_config))
        assert await link.receive() == {"slot": 0}
        link.post({"call": asdict(call_of("big", {"bytes": size}))})
        await both.holder.server.idle()
        link.post({"more than a socket takes in": "x" * 4_000_000})
        await writer.drain()
        result: Any = (await link.receive())["result"]
        assert len(texts(result)[0]) == size
        await link.close()


@pytest.mark.anyio
async def test_a_worker_that_takes_nothing_in_counts_as_stuck_after_its_time() -> None:
    near, far = socket.socketpair()
    with far, anyio.fail_after(WITHIN_SECONDS):
        link = await WorkerLink.over(near)
        link.post({"more than a socket takes in": "x" * 4_000_000})
        await link.stuck(0.01)
        await link.close(0.01)


@pytest.mark.anyio
async def test_a_malformed_frame_ends_its_link_and_the_worker_goes_on() -> None:
    frames = (
        b"{",
        b"[]",
        b"5",
        b"\xff",
        b"[" * 100_000,
        b"{}",
        b'{"secret": "\\ud800"}',
        '{"secret": "é"}'.encode(),
    )
    known = (
        {"secret": SECRET},
        {"secret": SECRET, "call_id": "", "trace": {"unknown": 1}},
    )
    async with two(raw_command()) as both:
        for frame in (*frames, *(json.dumps(one).encode() for one in known)):
            reader, writer = await asyncio.open_unix_connection(both.holder.holders.own_address)
            writer.write(len(frame).to_bytes(4, "big") + frame)
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
        assert texts(await both.other.call("echo", {"text": "x"})) == ["x"]


@pytest.mark.anyio
async def test_a_worker_without_a_free_descriptor_pauses_before_it_accepts_again() -> None:
    tries = 0

    class Listener(socket.socket):
        def accept(self) -> tuple[socket.socket, Any]:
            nonlocal tries
            tries += 1
            raise OSError(errno.EMFILE, "Too many open files")

    with tempfile.TemporaryDirectory(prefix="w") as folder, Listener(socket.AF_UNIX) as listener:
        listener.bind(str(Path(folder) / "1.sock"))
        async with anyio.create_task_group() as serving:
            serving.start_soon(HeldServers(SECRET).serve, listener)
            await anyio.lowlevel.checkpoint()
            link = await WorkerLink.to(listener.getsockname())
            for _ in range(100):
                await anyio.lowlevel.checkpoint()
            assert 0 < tries < 10
            serving.cancel_scope.cancel()
        await link.close()


@pytest.mark.anyio
async def test_without_a_holder_a_call_says_so_in_its_time() -> None:
    with tempfile.TemporaryDirectory(prefix="w") as folder:
        worker = Worker(1, Path(folder), raw_command(), connect_seconds=0.01)
        with pytest.raises(ServerDownError, match="no worker has started it yet"):
            await worker.call("echo", {"text": "x"})


@pytest.mark.anyio
async def test_a_holder_that_does_not_run_the_server_any_more_says_so_in_the_callers_time() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="w") as folder,
        socket.socket(socket.AF_UNIX) as listener,
        anyio.fail_after(WITHIN_SECONDS),
    ):
        worker = Worker(2, Path(folder), raw_command(), connect_seconds=0.1)
        listener.bind(str(Path(folder) / "1.sock"))
        worker.holders.update({"shared#1": listener.getsockname()})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(HeldServers(SECRET).serve, listener)
            tasks.start_soon(worker.run)
            for asked in (worker.server.ready, partial(worker.call, "echo", {"text": "x"})):
                with pytest.raises(ServerDownError, match="shared is down"):
                    await asked()
            link = await WorkerLink.to(listener.getsockname())
            link.post({**worker.opening("state"), "start_seconds": 0})
            message = "shared is down: the worker that is to run it for all workers does not, or no longer"
            fault = {"kind": "ServerDownError", "message": message, "detail": ""}
            assert await link.receive() == {"fault": fault}
            await link.close()
            tasks.cancel_scope.cancel()
