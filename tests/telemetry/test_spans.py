"""Spans of hops, as a collector receives them over OTLP."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from bridge.assembly.bridge import Bridge
from bridge.assembly.parts import Parts
from bridge.assembly.plan import ProcessPlan
from bridge.assembly.routes import Fitness
from bridge.assembly.telemetry import Telemetry
from bridge.errors import UsageError
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from tests.support.asking import asking_command
from tests.support.command import ROOT
from tests.support.limits import url_at
from tests.support.mcp_tasks import TAKES_ALL, accepted
from tests.support.mcp_wire import Json
from tests.support.observed import Seen, collecting, foreign_offered, in_row, wrapping
from tests.support.ports import free_port
from tests.support.recording import RecordingServer
from tests.support.running import Rpc, call_part, listening, raw_command

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


@asynccontextmanager
async def wrapped(place: ProcessPlan) -> AsyncIterator[Rpc]:
    """A client of the agent of a bridge, with the listeners of `place`."""
    plan = wrapping(raw_command(), place)
    bridge = Bridge(plan)
    async with bridge.run(), listening(bridge.app) as url, httpx2.AsyncClient(timeout=30) as http:
        await bridge.apply(plan)
        yield Rpc(http, f"{url}/agents/tools")
        await bridge.published[0].engine.drain(0)


def named(spans: list[Seen], kind: str, name: str) -> Seen:
    """The only span of this kind and name."""
    (found,) = [span for span in spans if (span.kind, span.name) == (kind, name)]
    return found


async def test_a_call_through_both_bridges_is_one_trace_from_the_host_to_the_tool_server(
    tmp_path: Path,
) -> None:
    server = RecordingServer()
    with collecting() as collector:
        place = ProcessPlan(traces=collector.url)
        async with listening(server) as url, in_row(tmp_path, url_at(f"{url}/mcp"), place) as there:
            await there.mcp.tool(1, "echo", {"traceparent": PARENT, "tracestate": "v=1"}, text="x")
    spans = [span for span in collector.spans if span.trace == TRACE]
    expose, sent = named(spans, "SERVER", "tools/call echo"), named(spans, "CLIENT", "SendStreamingMessage")
    wrap, called = named(spans, "SERVER", "SendStreamingMessage"), named(spans, "CLIENT", "tools/call echo")
    assert [one.parent for one in (expose, sent, wrap, called)] == [SPAN, expose.id, sent.id, wrap.id]
    assert server.told == [{"traceparent": f"00-{TRACE}-{called.id}-01", "tracestate": "v=1"}]
    assert {span.service for span in spans} == {"mcp-a2a"}
    assert not any(span.failed for span in spans)
    assert called.attributes == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "mcp_a2a.face": "tools",
        "mcp_a2a.peer": "far",
        "mcp_a2a.skill": "echo",
    }
    assert wrap.attributes.pop("a2a.task.id")
    assert wrap.attributes == {
        "a2a.method.name": "SendStreamingMessage",
        "a2a.task.state": "completed",
        "gen_ai.agent.name": "tools",
        "mcp_a2a.face": "tools",
        "mcp_a2a.peer": "far",
        "mcp_a2a.skill": "echo",
    }


async def test_the_answer_to_a_question_is_a_new_trace_with_a_link_to_the_turn_that_asked(
    tmp_path: Path,
) -> None:
    with collecting() as collector:
        place = ProcessPlan(traces=collector.url)
        async with (
            listening(RecordingServer()) as url,
            in_row(tmp_path, url_at(f"{url}/mcp"), place) as there,
        ):
            rpc = Rpc(there.mcp.client, there.agent_url, {"traceparent": PARENT})
            waiting = await rpc.send(call_part("echo"))
            answering = Rpc(there.mcp.client, there.agent_url)
            await answering.send({"data": {"text": "x"}}, taskId=waiting["id"])
    asked, answered = [span for span in collector.spans if span.kind == "SERVER"]
    assert (asked.trace, asked.attributes["a2a.task.state"]) == (TRACE, "input_required")
    assert answered.trace != TRACE
    assert (answered.parent, answered.links) == ("", (asked.id,))
    assert named(collector.spans, "CLIENT", "tools/call echo").parent == answered.id


async def test_the_answer_to_a_call_that_is_open_has_a_link_to_the_turn_that_asked(tmp_path: Path) -> None:
    with collecting() as collector:
        place = ProcessPlan(traces=collector.url)
        async with in_row(tmp_path, asking_command("legacy"), place) as there:
            rpc = Rpc(there.mcp.client, there.agent_url, {"traceparent": PARENT})
            waiting = await rpc.send(call_part("ask"))
            answering = Rpc(there.mcp.client, there.agent_url)
            await answering.send({"data": {"name": "Ada"}}, taskId=waiting["id"])
    asked, answered = [span for span in collector.spans if span.kind == "SERVER"]
    assert (asked.trace, asked.attributes["a2a.task.state"]) == (TRACE, "input_required")
    assert (answered.trace != TRACE, answered.parent, answered.links) == (True, "", (asked.id,))
    assert named(collector.spans, "CLIENT", "tools/call ask").parent == asked.id


async def test_an_answer_that_asks_again_is_the_turn_that_the_next_answer_is_linked_to(
    tmp_path: Path,
) -> None:
    with collecting() as collector:
        place = ProcessPlan(traces=collector.url)
        async with in_row(tmp_path, asking_command("legacy"), place) as there:
            rpc = Rpc(there.mcp.client, there.agent_url)
            waiting = await rpc.send(call_part("ask"))
            for data in ({"name": 5}, {"name": "Ada"}):
                waiting = await rpc.send({"data": data}, taskId=waiting["id"])
    spans = [span for span in collector.spans if span.kind == "SERVER"]
    states = [span.attributes["a2a.task.state"] for span in spans]
    assert states == ["input_required", "input_required", "completed"]
    assert [span.links for span in spans] == [(), (spans[0].id,), (spans[1].id,)]


@pytest.mark.parametrize("token", ["a" * 40, None], ids=["known", "stranger"])
async def test_only_the_sampled_flag_of_an_authenticated_caller_counts(
    token: str | None, tmp_path: Path
) -> None:
    known: dict[str, Any] = {"credentials": [Credential(Principal("ann"), token)]} if token else {}
    headers = {"authorization": f"Bearer {token}"} if token else {}
    with collecting() as collector:
        place = ProcessPlan(traces=collector.url)
        async with (
            listening(RecordingServer()) as url,
            in_row(tmp_path, url_at(f"{url}/mcp"), place, **known) as there,
        ):
            rpc = Rpc(there.mcp.client, there.agent_url, {**headers, "traceparent": f"{PARENT[:-2]}00"})
            await rpc.send(call_part("echo", text="x"))
    found = [span.trace for span in collector.spans if span.name == "SendMessage"]
    assert found == ([] if token else [TRACE])


async def test_a_call_that_fails_is_a_failed_span(tmp_path: Path) -> None:
    with collecting() as collector:
        async with in_row(tmp_path, raw_command(), ProcessPlan(traces=collector.url)) as there:
            await Rpc(there.mcp.client, there.agent_url).send(call_part("fail"))
    spans = collector.spans
    failed = [named(spans, "SERVER", "SendMessage"), named(spans, "CLIENT", "tools/call fail")]
    assert [(span.failed, span.attributes["error.type"]) for span in failed] == [(True, "tool_error")] * 2


def lines_about_spans(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The errors about spans in the log."""
    of_spans = [one for one in caplog.records if one.name == "bridge.telemetry.spans"]
    return [one.getMessage() for one in of_spans if one.levelno == logging.ERROR]


async def test_an_unreachable_collector_fails_no_call_and_lost_spans_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")
    place = ProcessPlan(
        state=tmp_path / "state", cache=tmp_path / "cache", traces=f"http://127.0.0.1:{free_port()}"
    )
    async with wrapped(place) as rpc:
        assert (await rpc.send(call_part("echo", text="x")))["status"]["state"] == "TASK_STATE_COMPLETED"
    assert lines_about_spans(caplog) == ["2 spans have not reached the collector"]


async def test_no_call_waits_for_a_hanging_collector_and_dropped_spans_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
    with collecting() as collector:
        collector.may_answer.clear()
        place = ProcessPlan(state=tmp_path / "state", cache=tmp_path / "cache", traces=collector.url)
        async with wrapped(place) as rpc:
            calls = 0
            with anyio.fail_after(30):
                while calls < 20 or not collector.came.is_set():
                    await rpc.send(call_part("echo", text="x"))
                    calls += 1
                for _ in range(20):  # while the exporter waits for its answer
                    task = await rpc.send(call_part("echo", text="x"))
                    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
            dropped = lines_about_spans(caplog)
            collector.may_answer.set()
    made = 2 * (calls + 20)
    assert len(collector.spans) <= 16
    assert dropped[:2] == [
        f"the collector receives spans too slowly, or not at all: {count} were dropped so far"
        for count in (1, 2)
    ]
    assert (
        lines_about_spans(caplog)[-1] == f"{made - len(collector.spans)} spans have not reached the collector"
    )


async def test_received_spans_are_not_logged_as_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with collecting() as collector:
        place = ProcessPlan(state=tmp_path / "state", cache=tmp_path / "cache", traces=collector.url)
        async with wrapped(place) as rpc:
            await rpc.send(call_part("echo", text="x"))
    assert (len(collector.spans), lines_about_spans(caplog)) == (2, [])


async def test_a_task_that_waited_over_a_restart_is_linked_to_the_turn_that_asked(tmp_path: Path) -> None:
    server = RecordingServer()
    with collecting() as collector:
        place, store = ProcessPlan(traces=collector.url), str(tmp_path / "tasks.db")
        async with listening(server) as url:
            target = url_at(f"{url}/mcp")
            async with in_row(tmp_path, target, place, store=store) as there:
                waiting = await Rpc(there.mcp.client, there.agent_url).send(call_part("echo"))
            async with in_row(tmp_path, target, place, store=store) as there:
                rpc = Rpc(there.mcp.client, there.agent_url)
                await rpc.send({"data": {"text": "x"}}, taskId=waiting["id"])
    asked, answered = [span for span in collector.spans if span.kind == "SERVER"]
    assert (asked.links, answered.links) == ((), (asked.id,))
    assert len(server.told) == 1


@pytest.mark.parametrize("way", ["task_reply", "inputResponses", "tasks/update"])
async def test_an_answer_to_an_agent_has_a_link_to_the_call_that_was_asked(way: str, tmp_path: Path) -> None:
    blue = accepted(answer="blue")
    with collecting() as collector:
        place = ProcessPlan(traces=collector.url)
        async with foreign_offered(tmp_path, place, becomes_task=way == "tasks/update") as there:
            client = there.client({} if way == "task_reply" else TAKES_ALL)
            asked: Json = {"name": "ask", "arguments": {"message": "paint"}, "_meta": {"traceparent": PARENT}}
            match way:
                case "task_reply":
                    words = json.dumps(await client.ask("tools/call", asked))
                    found = re.search(r"with this handle: ([\w-]+)", words)
                    assert found, words
                    await client.call("task_reply", handle=found[1], message="blue")
                case "inputResponses":
                    question = await client.ask("tools/call", asked)
                    given = dict.fromkeys(question["inputRequests"], blue)
                    again = {"requestState": question["requestState"], "inputResponses": given}
                    await client.ask("tools/call", {**asked, **again, "_meta": {}})
                case _:
                    task = await client.ask("tools/call", {**asked, "name": "ask_late"})
                    there.agent.seen.released.set()
                    await client.answer(task, **dict.fromkeys(await client.asked(task), blue))
    spans = [
        span
        for span in collector.spans
        if span.kind == "SERVER" and span.name.startswith(("tools/call", "tasks/update"))
    ]
    call, answer = spans
    assert (call.trace, call.links) == (TRACE, ())
    assert (answer.trace != TRACE, answer.parent, answer.links) == (True, "", (call.id,))


@pytest.mark.parametrize("way", ["task_result", "task_cancel", "tasks/cancel"])
async def test_what_else_a_host_does_with_a_task_has_a_link_to_the_call_that_began_it(
    way: str, tmp_path: Path
) -> None:
    with collecting() as collector:
        place = ProcessPlan(traces=collector.url)
        async with foreign_offered(tmp_path, place, becomes_task=way == "tasks/cancel") as there:
            client = there.client(TAKES_ALL if way == "tasks/cancel" else {})
            called: Json = {"arguments": {"message": "paint"}, "_meta": {"traceparent": PARENT}}
            if way == "tasks/cancel":
                task = await client.ask("tools/call", {"name": "ask_late", **called})
                await client.ask(way, {"taskId": task["taskId"]})
            else:
                words = json.dumps(await client.ask("tools/call", {"name": "ask", **called}))
                found = re.search(r"with this handle: ([\w-]+)", words)
                assert found, words
                await client.call(way, handle=found[1])
    begun, after = (
        span for span in collector.spans if span.kind == "SERVER" and span.name.startswith(("tools/", way))
    )
    assert (begun.trace, begun.links) == (TRACE, ())
    assert (after.trace != TRACE, after.parent, after.links) == (True, "", (begun.id,))


async def test_a_short_queue_needs_no_further_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100")
    await Telemetry(
        ProcessPlan(traces=f"http://127.0.0.1:{free_port()}"), Parts, lambda: Fitness.READY
    ).close()


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("OTEL_BSP_SCHEDULE_DELAY", "0", "must be positive"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many", "must be a non-negative integer"),
    ],
)
def test_an_invalid_variable_is_explained(
    variable: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(UsageError, match=rf"OTEL_\* has an invalid value: .*{words}"):
        Telemetry(ProcessPlan(traces=f"http://127.0.0.1:{free_port()}"), Parts, lambda: Fitness.READY)


def test_without_the_packages_the_key_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.delitem(sys.modules, "bridge.telemetry.spans", raising=False)
    with pytest.raises(UsageError, match=r"pip install 'mcp-a2a\[otel\]'"):
        Telemetry(ProcessPlan(traces="http://127.0.0.1:4318"), Parts, lambda: Fitness.READY)


@pytest.mark.outside
@pytest.mark.long
def test_without_the_key_no_package_for_spans_is_imported() -> None:
    words = "import bridge.cli.serve, bridge.process.serve, sys; print('opentelemetry.sdk' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", words], stdout=subprocess.PIPE, cwd=ROOT, check=True)
    assert found.stdout == b"False\n"
