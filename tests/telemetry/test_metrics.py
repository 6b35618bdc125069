"""Metrics of hops and of the parts of a bridge, parsed by Prometheus' own parser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import OfferedPlan, Plan, ProcessPlan, RemotePlan
from bridge.http.request_checks import FaceAddress
from bridge.telemetry.endpoint import MetricsEndpoint
from bridge.telemetry.families import KnownNames, MetricFamily, MetricSample, gauge, text_of
from bridge.telemetry.metrics import SERIES_MOST, HopMetrics, families_of
from bridge.trace import NO_TRACE, Hop
from bridge.translate.overrides import SkillOverride, ToolOverride
from tests.support.limits import url_at
from tests.support.observed import foreign_offered, in_row, wrapping
from tests.support.recording import RecordingServer
from tests.support.running import Rpc, call_part, listening, profile_with, raw_command

COUNTED = ProcessPlan(metrics=("127.0.0.1", 0))
AGENT_WAITS = "a2a_client_queue_wait_seconds"
NAMES = KnownNames({"face": frozenset({"echo"})}, frozenset({"far"}))

Numbers = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


def numbers_in(text: bytes) -> Numbers:
    """Every sample of a text, by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def one(numbers: Numbers, name: str, **labels: str) -> float:
    """The value with these labels."""
    return numbers[name, tuple(sorted(labels.items()))]


async def read(bridge: Bridge) -> Numbers:
    """All metrics of a bridge."""
    return numbers_in(text_of(await bridge.telemetry.families()))


async def read_once(bridge: Bridge, value: float, name: str, **labels: str) -> Numbers:
    """All metrics of a bridge, after a metric has this value."""
    with anyio.fail_after(30):
        while one(found := await read(bridge), name, **labels) != value:
            await anyio.sleep(0.01)
    return found


def hop(seconds: float = 0.3, **said: str) -> Hop:
    """An ended hop of an endpoint."""
    made = Hop("server", "mcp", (), NO_TRACE, "tools/call", "face", skill="echo", state="completed")
    for name, value in said.items():
        setattr(made, name, value)
    made.seconds = seconds
    return made


def with_tools(plan: Plan, **said: ToolOverride) -> Plan:
    """The plan with other options for single tools."""
    return replace(plan, offered={name: replace(one, overrides=said) for name, one in plan.offered.items()})


async def test_calls_through_both_bridges_are_counted_at_each_hop(tmp_path: Path) -> None:
    async with listening(RecordingServer()) as url, in_row(tmp_path, url_at(f"{url}/mcp"), COUNTED) as there:
        for number in range(3):
            await there.mcp.tool(number, "echo", {}, text="x")
        await Rpc(there.mcp.client, there.agent_url).send(call_part("echo"))
        inner, outer = await read(there.inner), await read(there.outer)
    call = {"method": "SendStreamingMessage", "outcome": "completed"}
    asked = {"method": "SendMessage", "face": "tools", "skill": "echo", "outcome": "input_required"}
    tool = {"method": "tools/call", "outcome": "completed"}
    assert one(outer, "mcp_server_operation_duration_seconds_count", face="face", skill="echo", **tool) == 3
    assert one(outer, "a2a_client_operation_duration_seconds_count", peer="tools", **call) == 3
    assert one(inner, "a2a_server_operation_duration_seconds_count", face="tools", skill="echo", **call) == 3
    assert one(inner, "mcp_client_operation_duration_seconds_count", peer="far", **tool) == 3
    assert one(inner, "mcp_client_queue_wait_seconds_count", peer="far") == 3
    assert one(inner, "mcp_a2a_peer_up", peer="far", protocol="mcp") == 1
    assert one(inner, "a2a_tasks_waiting", face="tools", state="input_required") == 1
    assert one(inner, "mcp_a2a_store_ready", face="tools") == 1
    assert one(inner, "a2a_server_operation_duration_seconds_count", **asked) == 1


async def test_a_call_whose_turn_never_came_is_counted_with_how_long_it_waited(tmp_path: Path) -> None:
    profile = profile_with(server={"sessions": 1}, run={"concurrency": 1, "queue_timeout_seconds": 0.2})
    place = replace(COUNTED, state=tmp_path / "state", cache=tmp_path / "cache")
    plan = wrapping(raw_command(), place, profile=profile)
    bridge, at_once = Bridge(plan), {"returnImmediately": True}
    async with bridge.run(), listening(bridge.app) as url, httpx2.AsyncClient(timeout=30) as client:
        await bridge.apply(plan)
        rpc = Rpc(client, f"{url}/agents/tools")
        first = await rpc.send(call_part("wait"), configuration=at_once)
        rejected = await rpc.send(call_part("wait"))
        canceled = await rpc.send(call_part("wait"), configuration=at_once)
        await rpc.call("CancelTask", {"id": canceled["id"]})
        found = await read(bridge)
        await rpc.call("CancelTask", {"id": first["id"]})
        await bridge.drain(0)
    assert rejected["status"]["state"] == "TASK_STATE_REJECTED"
    assert one(found, "mcp_client_queue_wait_seconds_count", peer="far") == 3
    assert one(found, "mcp_client_queue_wait_seconds_bucket", peer="far", le="0.1") < 3


async def test_a_call_that_waits_for_the_turn_of_its_tool_waits_at_the_server(tmp_path: Path) -> None:
    place = replace(COUNTED, state=tmp_path / "state", cache=tmp_path / "cache")
    plan = wrapping(raw_command(), place)
    rules = {"wait": SkillOverride(concurrency=1)}
    plan = replace(plan, published={"tools": replace(plan.published["tools"], overrides=rules)})
    bridge, at_once = Bridge(plan), {"returnImmediately": True}
    async with bridge.run(), listening(bridge.app) as url, httpx2.AsyncClient(timeout=30) as client:
        await bridge.apply(plan)
        rpc = Rpc(client, f"{url}/agents/tools")
        await rpc.send(call_part("wait"), configuration=at_once)
        await rpc.send(call_part("wait"), configuration=at_once)
        await read_once(bridge, 1, "mcp_client_queue_depth", peer="far")
        await bridge.drain(0)


async def test_calls_that_wait_for_their_turn_at_an_agent_are_counted_with_how_long_they_waited(
    tmp_path: Path,
) -> None:
    patient = {"slow": ToolOverride(concurrency=1, answer_within_seconds=600)}
    async with (
        foreign_offered(tmp_path, COUNTED, tools=patient) as there,
        anyio.create_task_group() as calling,
    ):
        host = there.client({})
        await host.call("plain", message="hi")
        unbounded = await read(there.bridge)
        calling.start_soon(partial(host.call, "slow", message="first"))
        await there.agent.seen.begun.wait()
        await there.bridge.apply(
            with_tools(there.plan, slow=ToolOverride(concurrency=1, answer_within_seconds=0.3))
        )
        busy = await host.call("slow", message="second")
        await there.bridge.apply(with_tools(there.plan, **patient))
        calling.start_soon(partial(host.call, "slow", message="third"))
        found = await read_once(there.bridge, 1, "a2a_client_queue_depth", peer="far")
        there.agent.seen.released.set()
        await read_once(there.bridge, 0, "a2a_client_queue_depth", peer="far")
    assert busy["isError"], "its turn never came"
    assert not any(name.startswith(AGENT_WAITS) for name, _ in unbounded), "it has nothing to wait for"
    assert one(found, f"{AGENT_WAITS}_count", peer="far") == 2
    assert one(found, f"{AGENT_WAITS}_bucket", peer="far", le="0.2") == 1
    assert not any(name.startswith("mcp_client_queue_wait_seconds") for name, _ in found)


async def test_what_a_reload_removes_is_gone_from_the_metrics(tmp_path: Path) -> None:
    async with listening(RecordingServer()) as url, in_row(tmp_path, url_at(f"{url}/mcp"), COUNTED) as there:
        await there.mcp.tool(1, "echo", {}, text="x")
        before = await read(there.inner)
        plan = wrapping(url_at(f"{url}/mcp"), COUNTED)
        await there.inner.apply(replace(plan, servers={}, published={}))
        after = await read(there.inner)
        await there.inner.apply(plan)
    assert any(dict(labels).get("peer") == "far" for _, labels in before)
    assert {name for name, _ in after} == {"mcp_a2a_build_info", "mcp_a2a_status"}


async def test_equal_names_on_both_sides_are_separate_series(tmp_path: Path) -> None:
    async with listening(RecordingServer()) as url, httpx2.AsyncClient(timeout=30) as client:
        tools = wrapping(url_at(f"{url}/mcp"), COUNTED)
        plan = replace(
            tools,
            place=replace(COUNTED, state=tmp_path / "state", cache=tmp_path / "cache"),
            agents={"far": RemotePlan("http://127.0.0.1:9")},
            offered={"tools": OfferedPlan(("far",), tools.profile)},
        )
        bridge = Bridge(plan)
        async with bridge.run(), listening(bridge.app) as root:
            await bridge.apply(plan)
            await Rpc(client, f"{root}/agents/tools").send(call_part("echo", text="x"))
            samples = [sample for family in await bridge.telemetry.families() for sample in family.samples]
            found = await read(bridge)
            bridge.offered[0].server.stop()
            await bridge.published[0].engine.drain(0)
    assert one(found, "mcp_a2a_peer_up", peer="far", protocol="mcp") == 1
    assert one(found, "mcp_a2a_peer_up", peer="far", protocol="a2a") == 0
    assert one(found, "mcp_a2a_status", status="degraded") == 1
    assert one(found, "mcp_a2a_status", status="ready") == 0
    assert one(found, "mcp_a2a_face_status", face="tools", protocol="a2a", status="ready") == 1
    assert one(found, "mcp_a2a_face_status", face="tools", protocol="mcp", status="not_ready") == 1
    assert one(found, "mcp_a2a_face_status", face="tools", protocol="mcp", status="ready") == 0
    assert {key for key in found if key[0] == "mcp_a2a_streams"} == {
        ("mcp_a2a_streams", (("face", "tools"), ("protocol", protocol))) for protocol in ("a2a", "mcp")
    }
    counted = {dict(labels).get("skill") for name, labels in found if name.startswith("a2a_server_")}
    assert counted == {"echo"}
    assert len({(sample.name, sample.labels) for sample in samples}) == len(samples)


def test_a_name_that_is_not_known_is_counted_as_other() -> None:
    metrics = HopMetrics(lambda: NAMES)
    for skill in ("echo", "made-up", "made-up-too"):
        metrics.ended(hop(skill=skill))
    metrics.ended(hop(method="", skill="", error="HTTP_401"))
    metrics.waited(hop(), "nobody", 0.1)
    metrics.waited(hop(protocol="a2a"), "nobody", 0.1)
    found = numbers_in(text_of(families_of(metrics.read())))
    count = "mcp_server_operation_duration_seconds_count"
    done = {"method": "tools/call", "outcome": "completed"}
    assert one(found, count, face="face", skill="echo", **done) == 1
    assert one(found, count, face="other", skill="other", **done) == 2
    assert one(found, count, method="other", face="face", skill="", outcome="HTTP_401") == 1
    assert one(found, "mcp_client_queue_wait_seconds_count", peer="other") == 1
    assert one(found, f"{AGENT_WAITS}_count", peer="other") == 1


def test_the_number_of_series_is_bounded_whatever_a_peer_lists() -> None:
    listed = frozenset(f"skill-{number}" for number in range(SERIES_MOST + 100))
    metrics = HopMetrics(lambda: KnownNames({"face": listed}))
    for skill in sorted(listed):
        metrics.ended(hop(skill=skill))
    series = metrics.read()["mcp_server_operation_duration_seconds"]
    assert len(series) == SERIES_MOST + 1
    assert sum(sum(one.counts) for one in series) == len(listed)


@pytest.mark.parametrize(
    ("seconds", "buckets"), [(0.01, 14 + 1), (0.3, 10), (300.0, 2), (301.0, 1)], ids=lambda value: str(value)
)
def test_a_duration_is_in_every_bucket_that_reaches_it(seconds: float, buckets: int) -> None:
    metrics = HopMetrics(lambda: NAMES)
    metrics.ended(hop(seconds))
    found = numbers_in(text_of(families_of(metrics.read())))
    assert sum(value for (name, _), value in found.items() if name.endswith("_bucket")) == buckets
    assert [value for (name, _), value in found.items() if name.endswith("_sum")] == [seconds]


def test_names_with_marks_of_the_text_format_are_read_back_as_they_were() -> None:
    odd = 'a "b" \\ c\nd'
    family = gauge("up", odd, [({"peer": odd}, 1.5), ({"peer": ""}, float("inf"))])
    assert numbers_in(text_of([family])) == {
        ("up", (("peer", odd),)): 1.5,
        ("up", (("peer", ""),)): float("inf"),
    }


@pytest.mark.outside
async def test_metrics_are_read_with_get_at_their_path_and_not_by_a_foreign_web_page() -> None:
    async def text() -> bytes:
        return text_of([MetricFamily("up", "Up", "counter", (MetricSample("up_total", (), 2.0),))])

    async with (
        listening(MetricsEndpoint(text, FaceAddress())) as url,
        httpx2.AsyncClient(timeout=30) as client,
    ):
        found = await client.get(f"{url}/metrics")
        assert found.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert found.text == "# HELP up Up\n# TYPE up counter\nup_total 2\n"
        asked = [
            await client.get(f"{url}/"),
            await client.post(f"{url}/metrics"),
            await client.get(f"{url}/metrics", headers={"host": "evil.example"}),
            await client.get(f"{url}/metrics", headers={"origin": "http://evil.example"}),
        ]
    assert [answer.status_code for answer in asked] == [404, 405, 421, 403]


async def test_a_bridge_without_the_key_counts_nothing() -> None:
    bridge = Bridge(Plan(wrapping(url_at("http://127.0.0.1:9/mcp"), ProcessPlan()).profile))
    async with bridge.run():
        assert await bridge.telemetry.families() == []
