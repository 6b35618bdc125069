"""The lines of an audit: who asked whom for what, the decision and the outcome; never the content of messages."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bridge.a2a.model.operators import OPERATOR_URI
from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import (
    STANDARD_OUTPUT,
    AuditPlan,
    OfferedPlan,
    Plan,
    ProcessPlan,
    PushPlan,
    RemotePlan,
    SharedStore,
    for_stdio,
)
from bridge.audit.journal import AuditJournal
from bridge.audit.recorder import AuditRecorder
from bridge.audit.stream import AuditStream
from bridge.audit.verification import verified
from bridge.errors import UsageError
from bridge.identity.callers.principals import OperatorRole, Principal
from bridge.identity.callers.verifiers import Credential
from bridge.mcp.client.transports.streamable_http import ServerTarget
from bridge.notices import (
    LoginNotice,
    LoginTaken,
    Notice,
    PushAttempt,
    PushReceived,
    TokenNotice,
    WebhookAsked,
)
from bridge.text.jsonvalues import JsonObject
from tests.support.asking import asking_command
from tests.support.limits import url_at
from tests.support.mcp_wire import MODERN, Http
from tests.support.observed import in_row, wrapping
from tests.support.receiver import receiving
from tests.support.recording import RecordingServer
from tests.support.running import Rpc, call_part, listening, message, profile_of, raw_command

MANY = 1 << 30
ANN = Credential(Principal("ann", skills=("echo", "fail")), "a" * 40)


@dataclass
class Audited:
    """A bridge with an agent `tools` of a tool server `far`, and its audit."""

    bridge: Bridge
    plan: Plan
    file: Path
    url: str
    http: httpx2.AsyncClient

    def rpc(self, token: str | None = None) -> Rpc:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return Rpc(self.http, f"{self.url}/agents/tools", headers)


@asynccontextmanager
async def audited(
    folder: Path,
    *,
    required: bool = False,
    hashes: bool = False,
    file: Path | None = None,
    target: ServerTarget | None = None,
    refused_each_minute: int = MANY,
    metrics: tuple[str, int] | None = None,
    push: PushPlan | None = None,
    log_calls: bool = False,
    **more: Any,
) -> AsyncIterator[Audited]:
    """Run the bridge. Its audit is complete when this context has ended."""
    path = file or folder / "audit.jsonl"
    place = ProcessPlan(
        state=folder / "state",
        cache=folder / "cache",
        metrics=metrics,
        push=push,
        log_calls=log_calls,
        audit=AuditPlan(path, MANY, refused_each_minute, required=required, hashes_principals=hashes),
    )
    plan = wrapping(target or raw_command(), place, **more)
    bridge = Bridge(plan)
    async with bridge.run(), listening(bridge.app) as url, httpx2.AsyncClient(timeout=30) as http:
        await bridge.apply(plan)
        try:
            yield Audited(bridge, plan, path, url, http)
        finally:
            await bridge.published[0].engine.drain(0)


VARYING = (
    "seq",
    "prev",
    "hash",
    "time",
    "ms",
    "plan",
    "pid",
    "task",
    "context",
    "replica",
    "version",
    "before",
)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a complete audit, without the fields that differ each time."""
    assert verified([path]).faults == []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in one.items() if key not in VARYING} for one in lines]


async def test_the_line_of_a_call_has_caller_face_skill_peer_and_outcome(tmp_path: Path) -> None:
    async with audited(tmp_path, credentials=[ANN]) as there:
        await there.rpc("a" * 40).post("SendMessage", message(call_part("echo", text="what is said")))
        await there.rpc("a" * 40).post("SendMessage", message(call_part("fail")))
        await there.rpc("b" * 40).post("SendMessage", message(call_part("echo", text="x")))
        await there.rpc("a" * 40).post("ListTasks", {})
    call = {"principal": "ann", "face": "tools", "protocol": "a2a", "method": "SendMessage", "peer": "far"}
    sent = {**call, "event": "sent", "protocol": "mcp", "method": "tools/call", "decision": "allowed"}
    assert lines_of(there.file) == [
        {"event": "start"},
        {"event": "serving"},
        {"event": "sign_in", "principal": "ann", "face": "tools", "protocol": "a2a"},
        {**sent, "skill": "echo", "outcome": "completed"},
        {**call, "event": "call", "skill": "echo", "decision": "allowed", "outcome": "completed"},
        {**sent, "skill": "fail", "outcome": "failed"},
        {**call, "event": "call", "skill": "fail", "decision": "allowed", "outcome": "failed"},
        {
            "event": "refused",
            "face": "tools",
            "protocol": "a2a",
            "decision": "refused",
            "outcome": "failed",
            "error": "UNAUTHENTICATED",
        },
        {"event": "stop"},
    ]
    assert "what is said" not in there.file.read_text()


@pytest.mark.proves("ops-named")
async def test_an_answer_for_another_names_the_owner_and_who_answered(tmp_path: Path) -> None:
    ops = Credential(Principal("ops", operator=OperatorRole.ANSWER), "o" * 40)
    ann = Credential(Principal("ann"), "a" * 40)
    async with audited(tmp_path, credentials=[ann, ops]) as there:
        mine, acting = there.rpc("a" * 40), there.rpc("o" * 40)
        acting.headers["A2A-Extensions"] = OPERATOR_URI
        first, second = [(await mine.send(call_part("add", a=1)))["id"] for _ in range(2)]
        await acting.send({"data": {"b": 2}}, taskId=first)
        await acting.call("CancelTask", {"id": second})
        await acting.send(call_part("echo", text="my own"))
    lines = [line for line in lines_of(there.file) if line.get("principal") == "ops"]
    named = {"event", "method", "principal", "owner", "answered_by"}
    assert [{key: one[key] for key in named & one.keys()} for one in lines if one["event"] != "sign_in"] == [
        {"event": "sent", "method": "tools/call", "principal": "ops"},
        {
            "event": "answer",
            "method": "SendMessage",
            "principal": "ops",
            "owner": "ann",
            "answered_by": "ops",
        },
        {"event": "cancel", "method": "CancelTask", "principal": "ops", "owner": "ann"},
        {"event": "sent", "method": "tools/call", "principal": "ops"},
        {"event": "call", "method": "SendMessage", "principal": "ops"},
    ]


async def test_the_line_of_an_answer_to_an_open_call_has_its_skill_and_peer(tmp_path: Path) -> None:
    ann = Credential(Principal("ann"), "a" * 40)
    async with audited(tmp_path, target=asking_command("legacy"), credentials=[ann]) as there:
        mine = there.rpc("a" * 40)
        task = await mine.send(call_part("ask"))
        await mine.send({"data": {"name": "Ada"}}, taskId=task["id"])
    lines = [one for one in lines_of(there.file) if one.get("method") == "SendMessage"]
    told = {"principal": "ann", "skill": "ask", "peer": "far", "outcome": "completed"}
    assert [{key: one[key] for key in ("event", *told)} for one in lines] == [
        {"event": "call", **told, "outcome": "input_required"},
        {"event": "answer", **told},
    ]


async def test_a_process_has_a_start_line_and_each_line_names_the_plan(tmp_path: Path) -> None:
    async with audited(tmp_path) as there:
        await there.rpc().post("SendMessage", message(call_part("echo", text="x")))
        changed = replace(there.plan, agents={"x": RemotePlan("http://127.0.0.1:9/")})
        await there.bridge.apply(changed)
        there.bridge.telemetry.tell_of_refusal()
        await there.rpc().post("SendMessage", message(call_part("echo", text="x")))
    lines = [json.loads(line) for line in there.file.read_text().splitlines()]
    events = ["start", "serving", "sent", "call", "reload", "reload", "sent", "call", "stop"]
    assert [one["event"] for one in lines] == events
    assert {"replica", "pid", "version"} <= lines[0].keys()
    first, second = lines[1]["plan"], lines[4]["plan"]
    assert [one.get("plan") for one in lines] == [None, first, first, first, *[second] * 5]
    assert (lines[4]["before"], lines[4]["outcome"], first != second) == (first, "taken", True)
    assert lines[5]["outcome"] == "refused"


async def test_a_cancellation_and_a_webhook_get_a_line(tmp_path: Path) -> None:
    async with audited(tmp_path) as there:
        for method in ("CancelTask", "CreateTaskPushNotificationConfig", "GetTask"):
            await there.rpc().post(method, {"id": "none"})
    told = [(one["event"], one["decision"], one["error"]) for one in lines_of(there.file)[2:-1]]
    assert told == [
        ("cancel", "refused", "TASK_NOT_FOUND"),
        ("webhook_added", "refused", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    ]


async def test_a_principal_can_be_a_keyed_hash(tmp_path: Path) -> None:
    async with audited(tmp_path, hashes=True, credentials=[ANN]) as there:
        await there.rpc("a" * 40).post("SendMessage", message(call_part("echo", text="x")))
    told = {one["principal"] for one in lines_of(there.file) if "principal" in one}
    assert len(told) == 1
    assert all(one.startswith("hash:") and "ann" not in one for one in told)
    async with audited(tmp_path / "other", hashes=True, credentials=[ANN]) as other:
        await other.rpc("a" * 40).post("SendMessage", message(call_part("echo", text="x")))
    assert not told & {one.get("principal") for one in lines_of(other.file)}


async def test_a_call_of_an_agents_tool_gets_a_line(tmp_path: Path) -> None:
    profile = profile_of("default")
    path = tmp_path / "audit.jsonl"
    async with listening(RecordingServer()) as url, in_row(tmp_path, url_at(f"{url}/mcp")) as there:
        plan = Plan(
            profile,
            ProcessPlan(state=tmp_path / "s", cache=tmp_path / "c", audit=AuditPlan(path, MANY, MANY)),
            agents={"tools": RemotePlan(there.agent_url)},
            offered={"face": OfferedPlan(("tools",), profile)},
        )
        bridge = Bridge(plan)
        async with bridge.run(), listening(bridge.app) as own, httpx2.AsyncClient(timeout=30) as client:
            await bridge.apply(plan)
            mcp = Http(client, f"{own}/mcp/face", MODERN)
            await mcp.tool(1, "echo", {}, text="what is said")
            await mcp.tool(2, "made-up", {}, text="x")
            bridge.offered[0].server.stop()
    call = {"principal": "local", "face": "face", "protocol": "mcp", "method": "tools/call"}
    lines = lines_of(path)
    assert [one for one in lines if one["event"] != "sent"] == [
        {"event": "start"},
        {"event": "serving"},
        {
            **call,
            "event": "call",
            "skill": "echo",
            "peer": "tools",
            "decision": "allowed",
            "outcome": "completed",
        },
        {**call, "event": "call", "decision": "refused", "outcome": "failed", "error": "-32602"},
        {"event": "stop"},
    ]
    assert [(one["protocol"], one["peer"]) for one in lines if one["event"] == "sent"] == [("a2a", "tools")]


async def test_what_a_tool_server_was_asked_for_names_the_task_also_when_its_call_was_answered_before(
    tmp_path: Path,
) -> None:
    async with audited(tmp_path) as there:
        for at_once in (False, True):
            sent = message(call_part("echo", text="x"), configuration={"returnImmediately": at_once})
            await there.rpc().post("SendMessage", sent)
    lines = [json.loads(line) for line in there.file.read_text().splitlines()]
    tasks = {event: [one.get("task") for one in lines if one["event"] == event] for event in ("call", "sent")}
    assert None not in tasks["call"]
    assert sorted(tasks["sent"]) == sorted(tasks["call"])
    assert len({*tasks["call"]}) == 2


async def test_a_call_that_was_canceled_at_a_tool_server_is_canceled_and_no_failure(tmp_path: Path) -> None:
    async with audited(tmp_path) as there:
        sent = message(call_part("wait"), configuration={"returnImmediately": True})
        task = (await there.rpc().post("SendMessage", sent)).json()["result"]["task"]["id"]
        await there.rpc().post("CancelTask", {"id": task})
    lines = [json.loads(line) for line in there.file.read_text().splitlines()]
    (one,) = (line for line in lines if line["event"] == "sent")
    assert (one["task"], one["outcome"], "error" in one) == (task, "canceled", False)


async def test_without_an_audit_nothing_listens(tmp_path: Path) -> None:
    plan = wrapping(raw_command(), ProcessPlan(state=tmp_path, cache=tmp_path))
    bridge = Bridge(plan)
    async with bridge.run():
        assert (bridge.telemetry.audit, bridge.telemetry.hops.listeners, bridge.telemetry.hops.gate) == (
            None,
            (),
            None,
        )


def test_an_audit_on_standard_output_is_refused_where_that_is_not_its_own() -> None:
    place = ProcessPlan(
        audit=AuditPlan(STANDARD_OUTPUT, MANY, MANY), shared_store=SharedStore("postgresql:///x")
    )
    plan = wrapping(raw_command(), place)
    with pytest.raises(UsageError, match="belongs to the host"):
        for_stdio(plan, "face", "token")


async def test_an_operator_who_reads_others_tasks_gets_a_line_periodically(tmp_path: Path) -> None:
    eyes = Credential(Principal("eyes", operator=OperatorRole.READ), "e" * 40)
    ann = Credential(Principal("ann"), "a" * 40)
    async with audited(tmp_path, credentials=[ann, eyes]) as there:
        task = await there.rpc("a" * 40).send(call_part("add", a=1))
        reader = there.rpc("e" * 40)
        await reader.post("GetTask", {"id": task["id"]})  # as any other client, who finds nothing
        reader.headers["A2A-Extensions"] = OPERATOR_URI
        for _ in range(3):
            await reader.post("GetTask", {"id": task["id"]})
            await reader.post("ListTasks", {})
        await reader.post("CancelTask", {"id": task["id"]})
    lines = [one for one in lines_of(there.file) if one.get("principal") == "eyes"]
    read = {"event": "read", "principal": "eyes", "face": "tools", "protocol": "a2a", "decision": "allowed"}
    assert [one for one in lines if one["event"] == "read"] == [
        {**read, "method": "GetTask", "owner": "ann"},
        {**read, "method": "ListTasks", "owner": "*"},
    ]
    assert [(one["event"], one.get("error")) for one in lines] == [
        ("sign_in", None),
        ("read", None),
        ("read", None),
        ("refused", "FORBIDDEN"),
    ]
    assert json.loads(there.file.read_text().splitlines()[5])["task"] == task["id"]


async def test_lines_about_refused_strangers_are_bounded_and_counted(tmp_path: Path) -> None:
    async with audited(tmp_path, credentials=[ANN], refused_each_minute=2) as there:
        for _ in range(5):
            await there.rpc("b" * 40).post("SendMessage", message(call_part("echo", text="x")))
        await there.rpc("a" * 40).post("SendMessage", message(call_part("echo", text="x")))
        for _ in range(2):
            await there.rpc("b" * 40).post("SendMessage", message(call_part("echo", text="x")))
        await there.rpc("a" * 40).post("SendMessage", message(call_part("other")))  # a known one is told
    lines = lines_of(there.file)
    assert [(one["event"], one.get("unlisted", 0)) for one in lines] == [
        ("start", 0),
        ("serving", 0),
        ("refused", 0),
        ("refused", 0),
        ("sign_in", 3),
        ("sent", 0),
        ("call", 0),
        ("call", 2),
        ("stop", 0),
    ]


async def test_a_card_request_with_a_foreign_host_is_recorded_as_refused(tmp_path: Path) -> None:
    async with audited(tmp_path) as there:
        url = f"{there.url}/agents/tools/.well-known/agent-card.json"
        assert (await there.http.get(url)).status_code == 200
        assert (await there.http.post(url)).status_code == 405
        assert (await there.http.get(url, headers={"Host": "evil.example"})).status_code == 421
    told = [(one["event"], one.get("error")) for one in lines_of(there.file)]
    assert told == [("start", None), ("serving", None), ("refused", "MISDIRECTED"), ("stop", None)]


def test_a_bound_of_lines_begins_anew_each_minute() -> None:
    notes: list[JsonObject] = []

    class Journal(AuditJournal):
        def note(self, entry: JsonObject) -> None:
            notes.append(entry)

    now = [0.0]
    recorder = AuditRecorder(Journal(AuditStream()), str, 1, lambda: now[0])
    for seconds in (0, 59, 60, 61, 119, 120):
        now[0] = seconds
        recorder.refused("login", "HTTP_403")
    assert [one.get("unlisted", 0) for one in notes] == [0, 1, 2]
    recorder.read("eyes", "tools", "ann", "task-1")
    now[0] += 599
    recorder.read("eyes", "tools", "ann", "task-1")
    now[0] += 1
    recorder.read("eyes", "tools", "ann", "task-1")
    assert [one["event"] for one in notes[3:]] == ["read", "read"]


async def test_lines_about_tokens_and_logins_contain_no_tokens(tmp_path: Path) -> None:
    async with audited(tmp_path, hashes=True, refused_each_minute=2) as there:
        told: list[Notice] = [
            TokenNotice("far", "client_credentials", "given", 0.25),
            TokenNotice("far", "token_exchange", "refused", 0.1, "ann"),
            LoginNotice("far", "stored", "ann"),
            *[LoginTaken("far", 1800000000.5)] * 3,
            LoginNotice("far", "lost"),
            *[LoginNotice("far", "refused", "ann")] * 5,
            WebhookAsked("tools", "ann", "task-1", "hooks.example:443"),
            PushAttempt("tools", "delivered", "task-1"),
            PushAttempt("tools", "given_up", "task-1", "hooks.example:443"),
            PushReceived("far", "taken", 204),
            PushReceived("", "refused", 404),
        ]
        for notice in told:
            there.bridge.telemetry.notify(notice)
    lines = lines_of(there.file)[2:-1]
    (ann,) = {one["principal"] for one in lines if "principal" in one}
    assert ann.startswith("hash:")
    assert lines == [
        {"event": "token", "peer": "far", "grant": "client_credentials", "outcome": "given"},
        {
            "event": "token",
            "principal": ann,
            "peer": "far",
            "grant": "token_exchange",
            "outcome": "refused",
        },
        {"event": "login_stored", "principal": ann, "peer": "far"},
        {"event": "login_taken", "peer": "far", "since": "2027-01-15T08:00:00.500Z"},
        {"event": "login_lost", "peer": "far"},
        {"event": "login_refused", "principal": ann, "peer": "far"},
        {"event": "login_refused", "principal": ann, "peer": "far"},
        {
            "event": "webhook_added",
            "principal": ann,
            "face": "tools",
            "protocol": "a2a",
            "target": "hooks.example:443",
            "decision": "allowed",
            "unlisted": 3,
        },
        {"event": "webhook_given_up", "face": "tools", "target": "hooks.example:443"},
    ]


async def test_a_target_of_notifications_is_recorded_by_its_host_only(tmp_path: Path) -> None:
    async with receiving() as receiver:
        push = PushPlan(frozenset({receiver.place}))
        async with audited(tmp_path, push=push) as there:
            rpc = there.rpc()
            held = {"returnImmediately": True, "taskPushNotificationConfig": {"url": receiver.url()}}
            task = (await rpc.send(call_part("wait"), configuration=held))["id"]
            urls = (receiver.url(), "http://ann:pass@10.0.0.1:99/path-secret?query-secret", "what?")
            for number, url in enumerate(urls):
                asked = {"taskId": task, "id": f"hook-{number}", "url": url, "token": "token-secret"}
                await rpc.post("CreateTaskPushNotificationConfig", asked)
            await rpc.call("CancelTask", {"id": task})
    told = [one for one in lines_of(there.file) if one["event"] == "webhook_added"]
    assert [(one["decision"], one.get("target")) for one in told] == [
        ("allowed", receiver.place),
        ("allowed", receiver.place),
        ("refused", "10.0.0.1:99"),
        ("refused", None),
    ]
    text = there.file.read_text()
    assert not [word for word in ("secret", "pass", "/hook", "what?") if word in text]
