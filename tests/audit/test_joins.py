"""The audit lines about one request: each names its subject, so that the lines can be joined."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bridge.a2a.model.operators import OPERATOR_URI
from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import AuditPlan, ProcessPlan, PushPlan
from bridge.identity.callers.principals import OperatorRole, Principal
from bridge.identity.callers.verifiers import Credential
from tests.audit.test_lines import MANY, audited
from tests.support.mcp_tasks import TAKES_ALL, accepted
from tests.support.observed import foreign_offered
from tests.support.receiver import receiving
from tests.support.running import Rpc, call_part, config_for, listening, raw_command

_ANSWER = {"task_reply": {"message": "blue"}}


def lines_in(path: Path) -> list[dict[str, Any]]:
    """The complete lines of requests."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["event"] not in ("start", "serving", "stop", "sign_in")]


async def test_the_lines_of_a_call_that_became_a_task_all_name_the_task_of_its_agent(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    place = ProcessPlan(audit=AuditPlan(path, MANY, MANY, required=True))
    async with foreign_offered(tmp_path, place, becomes_task=True) as there:
        client = there.client(TAKES_ALL)
        task = await client.call("ask_late", message="go")
        there.agent.seen.released.set()
        question = await client.asked(task)
        await client.answer(task, **dict.fromkeys(question, accepted(answer="blue")))
        await client.asked(task, *question)
        await client.ask("tasks/cancel", {"taskId": task["taskId"]})
        (task_id,) = there.agent.seen.tasks
    lines = lines_in(path)
    events = [line["event"] for line in lines]
    assert events[::3] == ["intent"] * 3
    # A request to the agent may end before or after the host's request that it follows from.
    assert [{*events[after + 1 : after + 3]} for after in (0, 3, 6)] == [
        {"call", "sent"},
        {"answer", "sent"},
        {"cancel", "sent"},
    ]
    assert {one["peer"] for one in lines} == {"far"}
    # No line announces the task of a call that is about to begin it.
    assert [one.get("task") for one in lines] == [None, *[task_id] * 8]
    assert {one["skill"] for one in lines if one["event"] != "sent"} == {"ask_late"}
    announced = [one["seq"] for one in lines if one["event"] == "intent"]
    found = [one.get("intent") for one in lines if one["event"] != "intent"]
    assert found == [seq for seq in announced for _ in range(2)]
    assert task["taskId"] not in path.read_text()  # whoever has it comes back to the task


async def test_what_a_host_does_with_a_handle_names_agent_and_task_before_and_after(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    place = ProcessPlan(audit=AuditPlan(path, MANY, MANY, required=True))
    async with foreign_offered(tmp_path, place) as there:
        client = there.client({})
        asked = json.dumps(await client.call("ask", message="paint"))
        found = re.search(r"with this handle: ([\w-]+)", asked)
        assert found, asked
        for tool, more in (("task_result", {}), ("task_reply", {"message": "blue"}), ("task_cancel", {})):
            await client.call(tool, handle=found[1], **more)
        (task_id,) = there.agent.seen.tasks
    lines = lines_in(path)[3:]
    assert [(one["event"], one.get("skill")) for one in lines] == [
        *(("intent", "task_result"), ("call", "task_result")),
        *(("intent", "task_reply"), ("sent", None), ("answer", "task_reply")),
        *(("intent", "task_cancel"), ("sent", None), ("cancel", "task_cancel")),
    ]
    assert {(one["peer"], one["task"]) for one in lines} == {("far", task_id)}
    assert found[1] not in path.read_text()


@pytest.mark.parametrize("tool", ["task_result", "task_reply", "task_cancel"])
async def test_a_handle_that_cannot_be_opened_names_neither_agent_nor_task(tool: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    place = ProcessPlan(audit=AuditPlan(path, MANY, MANY, required=True))
    async with foreign_offered(tmp_path, place) as there:
        failed = await there.client({}).call(tool, handle="made-up", **_ANSWER.get(tool, {}))
    assert failed["isError"] is True
    assert [(one["skill"], one.keys() & {"peer", "task"}) for one in lines_in(path)] == [(tool, set())] * 2


async def test_the_name_of_a_tool_that_a_host_has_made_up_is_not_told(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    place = ProcessPlan(audit=AuditPlan(path, MANY, MANY, required=True))
    async with foreign_offered(tmp_path, place) as there:
        called = {"name": "pay 500 to Ada", "arguments": {"message": "x"}}
        assert "Unknown tool" in (await there.client({}).send("tools/call", called))["error"]["message"]
    told = [(one["event"], one.get("decision"), one.keys() & {"skill", "peer"}) for one in lines_in(path)]
    assert told == [("intent", None, set()), ("call", "refused", set())]


async def test_a_webhook_and_a_refused_cancellation_name_their_task(tmp_path: Path) -> None:
    path, config = tmp_path / "audit.jsonl", config_for(raw_command(), name="raw", keys=("k" * 32,))
    async with receiving() as receiver:
        plan = config.plan()
        push, audit = PushPlan(frozenset({receiver.place})), AuditPlan(path, MANY, MANY)
        plan = replace(plan, place=replace(plan.place, push=push, audit=audit, state=tmp_path / "state"))
        bridge = Bridge(plan)
        async with bridge.run(), listening(bridge.app) as url, httpx2.AsyncClient(timeout=30) as client:
            await bridge.apply(plan)
            rpc = Rpc(client, f"{url}/agents/raw")
            task = await rpc.send(call_part("wait"), configuration={"returnImmediately": True})
            webhook = {"taskId": task["id"], "id": "x", "url": receiver.url()}
            await rpc.call("CreateTaskPushNotificationConfig", webhook)
            await rpc.call("DeleteTaskPushNotificationConfig", {"taskId": task["id"], "id": "x"})
            await rpc.call("CancelTask", {"id": task["id"]})
            await rpc.post("CancelTask", {"id": task["id"]})
            await bridge.drain(0)
    lines = lines_in(path)
    assert {one["event"] for one in lines} >= {"webhook_added", "webhook_removed", "cancel"}
    assert {one.get("task") for one in lines} == {task["id"]}
    refused = lines[-1]
    assert (refused["event"], refused["error"]) == ("cancel", "TASK_NOT_CANCELABLE")


async def test_a_refused_operator_is_told_with_the_task_and_its_skill(tmp_path: Path) -> None:
    ops = Credential(Principal("ops", operator=OperatorRole.READ), "o" * 40)
    ann = Credential(Principal("ann"), "a" * 40)
    async with audited(tmp_path, credentials=[ann, ops]) as there:
        acting = there.rpc("o" * 40)
        acting.headers["A2A-Extensions"] = OPERATOR_URI
        task = await there.rpc("a" * 40).send(call_part("add", a=1))
        await acting.post("CancelTask", {"id": task["id"]})
    refused = lines_in(there.file)[-1]
    told = ("event", "decision", "error", "principal", "owner", "skill", "task")
    assert [refused[name] for name in told] == [
        *("refused", "refused", "FORBIDDEN"),
        *("ops", "ann", "add", task["id"]),
    ]
