"""A required audit: no call reaches a peer before its line is on the disk."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from pydantic import JsonValue

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import AuditPlan, OfferedPlan, Plan, ProcessPlan, RemotePlan
from bridge.audit.batch import AuditWriteError
from bridge.audit.chain import ChainHead
from bridge.audit.file import AuditFile
from bridge.audit.journal import AuditJournal
from bridge.audit.verification import verified
from bridge.errors import AuditAwayError
from bridge.text.jsonvalues import JsonObject
from tests.audit.test_lines import MANY, Audited, audited, lines_of
from tests.support.asking import asking_command
from tests.support.limits import url_at
from tests.support.mcp_wire import LEGACY, MODERN, Http
from tests.support.observed import in_row
from tests.support.recording import RecordingServer
from tests.support.running import call_part, listening, message, profile_of
from tests.support.small_disk import NoSmallDiskError, SmallDisk, small_disk


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        with small_disk(folder, 1 << 20) as mounted:
            yield mounted
    except NoSmallDiskError as exc:
        pytest.skip(str(exc))


@asynccontextmanager
async def offering(folder: Path, file: Path) -> AsyncIterator[tuple[httpx2.AsyncClient, str]]:
    """A bridge with an MCP server for an agent, and a required audit."""
    profile = profile_of("default")
    async with listening(RecordingServer()) as url, in_row(folder, url_at(f"{url}/mcp")) as there:
        plan = Plan(
            profile,
            ProcessPlan(
                state=folder / "s", cache=folder / "c", audit=AuditPlan(file, MANY, MANY, required=True)
            ),
            agents={"tools": RemotePlan(there.agent_url)},
            offered={"face": OfferedPlan(("tools",), profile)},
        )
        bridge = Bridge(plan)
        async with bridge.run(), listening(bridge.app) as own, httpx2.AsyncClient(timeout=30) as client:
            await bridge.apply(plan)
            try:
                yield client, f"{own}/mcp/face"
            finally:
                bridge.offered[0].server.stop()


def paired(path: Path) -> list[tuple[str, int]]:
    """The events of calls, each with the number of its intent."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    calls = [one for one in lines if one["event"] in ("intent", "call", "cancel")]
    return [(one["event"], one.get("intent", one["seq"])) for one in calls]


async def test_an_intent_is_on_the_disk_before_a_call_and_its_outcome_follows(tmp_path: Path) -> None:
    async with audited(tmp_path, required=True) as there:
        await there.rpc().post("SendMessage", message(call_part("echo", text="what is said")))
        await there.rpc().post("GetTask", {"id": "none"})
        await there.rpc().post("CancelTask", {"id": "none"})
    lines = lines_of(there.file)
    assert [one["event"] for one in lines] == [
        "start",
        "serving",
        "intent",
        "sent",
        "call",
        "intent",
        "cancel",
        "stop",
    ]
    assert lines[2] == {
        "event": "intent",
        "principal": "local",
        "face": "tools",
        "protocol": "a2a",
        "method": "SendMessage",
        "skill": "echo",
        "peer": "far",
    }
    assert paired(there.file) == [("intent", 3), ("call", 3), ("intent", 6), ("cancel", 6)]


async def test_a_full_disk_refuses_a_message_before_anything_goes_to_the_tool_server(
    tmp_path: Path, disk: SmallDisk
) -> None:
    file = disk.folder / "audit.jsonl"
    async with audited(tmp_path, required=True, file=file) as there:
        before = await there.http.get(f"{there.url}/readyz")
        disk.fill(0)
        url, headers = f"{there.url}/agents/tools/message:send", {"A2A-Version": "1.0"}
        said = message(call_part("echo", text="x"))
        with anyio.fail_after(30):  # the last page of the file takes some more lines
            while (refused := await there.http.post(url, json=said, headers=headers)).status_code == 200:
                said = message(call_part("echo", text="x"))
        away = await there.http.get(f"{there.url}/readyz")
        disk.free()
        with anyio.fail_after(30):
            while (await there.http.get(f"{there.url}/readyz")).status_code != 200:
                await there.http.post(f"{there.url}/agents/tools/message:send", json={})
        await there.rpc().post("SendMessage", message(call_part("echo", text="x")))
    assert (refused.headers["retry-after"], before.status_code, away.status_code) == ("5", 200, 503)
    assert "audit.jsonl cannot be written" in away.json()["audit"]
    lines = lines_of(file)
    assert sum(one["event"] == "intent" for one in lines) >= sum(one["event"] == "sent" for one in lines)
    found = verified([file])
    assert (found.faults, found.lost > 0) == ([], True)


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
async def test_a_full_disk_refuses_a_call_of_a_tool_before_anything_goes_to_the_agent(
    revision: str, tmp_path: Path, disk: SmallDisk
) -> None:
    file = disk.folder / "audit.jsonl"
    async with offering(tmp_path, file) as (client, url):
        mcp = Http(client, url, revision)
        await mcp.open()
        call = mcp.message(1, "tools/call", {"name": "echo", "arguments": {"text": "x"}})
        await mcp.post(call)
        disk.fill(0)
        with anyio.fail_after(30):
            while (refused := await mcp.post(call)).status_code == 200:
                pass
        disk.free()
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    intents = [one for one in lines_of(file) if one["event"] == "intent"]
    assert intents[0] == {
        "event": "intent",
        "principal": "local",
        "face": "face",
        "protocol": "mcp",
        "method": "tools/call",
        "skill": "echo",
        "peer": "tools",
    }
    assert paired(file)[:2] == [("intent", 3), ("call", 3)]


class HeldWriter:
    """A disk that is slow while the test wants."""

    def __init__(self, file: AuditFile) -> None:
        self._file = file
        self.head = ChainHead()
        self.batches: list[tuple[int, bool]] = []
        self.may_write = threading.Event()

    def append(self, entries: Sequence[JsonObject], *, lasting: bool, lost: int = 0) -> list[int]:
        self.batches.append((len(entries), lasting))
        self.may_write.wait()
        return self._file.append(entries, lasting=lasting, lost=lost)


async def test_all_calls_that_wait_share_one_wait_for_the_disk(tmp_path: Path) -> None:
    with AuditFile(tmp_path / "audit.jsonl", MANY) as file:
        writer = HeldWriter(file)
        journal = AuditJournal(writer)
        numbers: list[int] = []

        async def commit() -> None:
            numbers.append(await journal.commit({"event": "intent"}))

        async with journal.running(), anyio.create_task_group() as calls:
            calls.start_soon(commit)
            while not writer.batches:
                await anyio.sleep(0)
            for _ in range(50):
                calls.start_soon(commit)
            await anyio.wait_all_tasks_blocked()
            writer.may_write.set()
    assert (writer.batches, sorted(numbers)) == ([(1, True), (50, True)], list(range(1, 52)))


async def test_a_call_that_is_withdrawn_while_its_intent_waits_leaves_none(tmp_path: Path) -> None:
    with AuditFile(tmp_path / "audit.jsonl", MANY) as file:
        writer = HeldWriter(file)
        journal = AuditJournal(writer)
        async with journal.running():
            journal.note({"event": "serving"})
            while not writer.batches:
                await anyio.sleep(0)
            async with anyio.create_task_group() as calls:
                calls.start_soon(journal.commit, {"event": "intent"})
                await anyio.wait_all_tasks_blocked()
                calls.cancel_scope.cancel()
            journal.note({"event": "stop"})
            writer.may_write.set()
        assert journal.lost_lines == 0
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["serving", "stop"]


class FullWriter:
    """A disk that is full until the test frees it."""

    def __init__(self) -> None:
        self.head = ChainHead()
        self.is_full = True
        self.written: list[tuple[str, int]] = []

    def append(self, entries: Sequence[JsonObject], *, lasting: bool, lost: int = 0) -> list[int]:
        if self.is_full:
            raise AuditWriteError("the disk is full")
        self.written.extend(
            (str(one["event"]), lost if not place else 0) for place, one in enumerate(entries)
        )
        return list(range(1, len(entries) + 1))


async def test_what_was_lost_is_counted_once_and_refused_calls_are_not_lost() -> None:
    writer = FullWriter()
    journal = AuditJournal(writer)
    async with journal.running():
        with pytest.raises(AuditAwayError):
            await journal.commit({"event": "intent"})
        for _ in range(3):
            with pytest.raises(AuditAwayError, match="the disk is full"):
                await journal.commit({"event": "intent"})
        journal.note({"event": "call"})
        with anyio.fail_after(30):
            while journal.lost_lines < 2:
                await anyio.sleep(0)
        writer.is_full = False
        with anyio.fail_after(30):
            while journal.fault is not None:  # the loop tries again by itself
                await anyio.sleep(0.01)
        await journal.commit({"event": "intent"})
    assert writer.written == [("resumed", 2), ("intent", 0)]


async def test_refusals_without_a_line_stay_counted_if_the_counting_line_is_lost() -> None:
    told: list[JsonValue] = []

    class Disk(FullWriter):
        def append(self, entries: Sequence[JsonObject], *, lasting: bool, lost: int = 0) -> list[int]:
            numbers = super().append(entries, lasting=lasting, lost=lost)
            told.extend(one["unlisted"] for one in entries if "unlisted" in one)
            return numbers

    writer = Disk()
    journal = AuditJournal(writer)
    async with journal.running():
        for lost in (1, 2):
            journal.note({"event": "call", "unlisted": 20 * lost})
            with anyio.fail_after(30):
                while journal.lost_lines < lost:
                    await anyio.sleep(0)
        writer.is_full = False
        journal.note({"event": "call", "unlisted": 3})
        journal.note({"event": "call"})
    assert told in ([63], [60, 3])  # the loop may have tried again by itself in between


async def told_of_intents(there: Audited) -> list[tuple[str, str, str, bool]]:
    """Method, skill and peer of each intent, and whether the intent names a task."""
    lines = [json.loads(line) for line in there.file.read_text().splitlines()]
    intents = [one for one in lines if one["event"] == "intent"]
    return [(one["method"], one.get("skill", ""), one.get("peer", ""), "task" in one) for one in intents]


async def test_an_intent_over_a2a_names_skill_and_peer_where_something_may_go_upstream(
    tmp_path: Path,
) -> None:
    async with audited(tmp_path, required=True) as there:
        rpc = there.rpc()
        asked = await rpc.send(call_part("add", a=1))  # the bridge asks for the rest itself
        await rpc.send({"data": {"b": 2}}, taskId=asked["id"])
        held = await rpc.send(call_part("add", a=1))
        await rpc.call("CancelTask", {"id": held["id"]})
        await rpc.post("SendMessage", message({"text": "what?"}))
        await rpc.post("SendMessage", message(call_part("echo", text="x"), taskId="none"))
        found = await told_of_intents(there)
    assert found == [
        ("SendMessage", "add", "", False),
        ("SendMessage", "add", "far", True),
        ("SendMessage", "add", "", False),
        ("CancelTask", "add", "far", True),
        ("SendMessage", "", "", False),
        ("SendMessage", "", "", False),
    ]
    outcomes = [one for one in lines_of(there.file) if one["event"] in ("call", "answer", "cancel")]
    assert [(one["event"], one["decision"], one.get("peer")) for one in outcomes] == [
        ("call", "allowed", None),
        ("answer", "allowed", "far"),
        ("call", "allowed", None),
        ("cancel", "allowed", "far"),
        ("call", "allowed", None),
        ("call", "refused", None),
    ]


async def test_an_intent_to_a_task_of_another_process_names_its_skill_and_peer(tmp_path: Path) -> None:
    store = str(tmp_path / "tasks.db")
    async with audited(tmp_path, required=True, store=store) as there:
        asked = await there.rpc().send(call_part("add", a=1))
    async with audited(tmp_path, required=True, store=store) as there:
        await there.rpc().call("CancelTask", {"id": asked["id"]})
        found = await told_of_intents(there)
    assert found[-1] == ("CancelTask", "add", "far", True)


async def test_a_message_to_a_task_at_work_names_its_skill_and_peer(tmp_path: Path) -> None:
    async with audited(tmp_path, required=True) as there:
        rpc = there.rpc()
        task = await rpc.send(call_part("wait"), configuration={"returnImmediately": True})
        said = await rpc.send({"text": "hello?"}, taskId=task["id"])
        await rpc.call("CancelTask", {"id": task["id"]})
        assert said["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    lines = [one for one in lines_of(there.file) if one["event"] in ("intent", "call", "cancel")]
    assert [(one["event"], one["skill"], one["peer"]) for one in lines] == [
        (event, "wait", "far") for event in ("intent", "call", "intent", "call", "intent", "cancel")
    ]


async def test_an_answer_to_an_open_call_is_announced_with_its_skill_and_peer(tmp_path: Path) -> None:
    async with audited(tmp_path, required=True, target=asking_command("legacy")) as there:
        task = await there.rpc().send(call_part("ask"))
        await there.rpc().send({"data": {"name": "Ada"}}, taskId=task["id"])
    lines = [one for one in lines_of(there.file) if one["event"] in ("intent", "call", "answer")]
    assert [(one["event"], one["skill"], one["peer"]) for one in lines] == [
        (event, "ask", "far") for event in ("intent", "call", "intent", "answer")
    ]


class StuckWriter:
    """A disk that writes the first line, and then hangs until the test releases it."""

    def __init__(self) -> None:
        self.head = ChainHead()
        self.let_go = threading.Event()
        self.is_stuck = False

    def append(self, entries: Sequence[JsonObject], *, lasting: bool, lost: int = 0) -> list[int]:
        if self.is_stuck:
            self.let_go.wait()
        self.is_stuck = True
        return list(range(1, len(entries) + 1))


async def test_a_hanging_disk_refuses_calls_and_does_not_block_the_end() -> None:
    writer = StuckWriter()
    journal = AuditJournal(writer, stalled_seconds=0.05, close_seconds=0.05)
    try:
        with anyio.fail_after(30):
            async with journal.running():
                await journal.commit({"event": "start"})
                faults = [journal.fault]
                with pytest.raises(AuditAwayError, match="in time"):
                    await journal.commit({"event": "intent"})
                faults.append(journal.fault)
                with pytest.raises(AuditAwayError, match="does not respond"):
                    await journal.commit({"event": "intent"})
                journal.note({"event": "stop"})
        assert faults == [None, "the audit has not been written for 0.05 s: its disk does not respond"]
        assert (journal.is_stuck, journal.lost_lines) == (True, 2)
    finally:
        writer.let_go.set()


async def test_lines_that_are_never_written_are_logged_as_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    journal = AuditJournal(FullWriter())
    async with journal.running():
        journal.note({"event": "stop"})
    assert "the audit ends without its last lines: 1 lost" in caplog.text
    assert not journal.is_stuck


async def test_metrics_tell_whether_lines_can_be_written_and_how_many_could_not(tmp_path: Path) -> None:
    file, aside = tmp_path / "audit" / "audit.jsonl", tmp_path / "aside"
    async with audited(tmp_path, file=file, metrics=("127.0.0.1", 0)) as there:

        async def told() -> dict[str, float]:
            families = await there.bridge.telemetry.families()
            return {
                one.name: one.samples[0].value for one in families if one.name.startswith("mcp_a2a_audit")
            }

        with anyio.fail_after(30):
            while '"event":"serving"' not in file.read_text():
                await anyio.sleep(0.01)
            assert await told() == {"mcp_a2a_audit_ok": 1, "mcp_a2a_audit_lost_lines_total": 0}
            file.parent.rename(aside)
            await there.rpc().post("SendMessage", message(call_part("echo", text="x")))
            while (found := await told())["mcp_a2a_audit_lost_lines_total"] < 2:
                await anyio.sleep(0.01)
        aside.rename(file.parent)
    assert found == {"mcp_a2a_audit_ok": 0, "mcp_a2a_audit_lost_lines_total": 2}
