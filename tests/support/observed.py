"""Two bridges in a row, expose before wrap, in the test's own process, and a collector of their spans."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import httpx2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import OfferedPlan, Plan, ProcessPlan, PublishedPlan, RemotePlan, ServerPlan
from bridge.config.tables.profile import Profile
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.streamable_http import ServerTarget
from bridge.translate.overrides import ToolOverride
from tests.support.foreign import Foreign, foreign_agent
from tests.support.mcp_tasks import TaskClient
from tests.support.mcp_wire import MODERN, Http, Json
from tests.support.running import listening, profile_of, profile_with

UNOBSERVED: Final = ProcessPlan()


@dataclass(frozen=True)
class Seen:
    """One span, as the collector got it."""

    name: str
    kind: str
    service: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    attributes: dict[str, str]
    failed: bool


@dataclass
class Collector:
    """An OTLP receiver."""

    url: str
    spans: list[Seen] = field(default_factory=list)
    came: threading.Event = field(default_factory=threading.Event)
    """Set once a request has come."""
    may_answer: threading.Event = field(default_factory=threading.Event)
    """Awaited before each answer. It is set at first: who clears it has a collector that hangs."""

    def __post_init__(self) -> None:
        self.may_answer.set()

    def take(self, body: bytes) -> None:
        """Take a request."""
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans.extend(_seen(span, named["service.name"]) for span in scope.spans)


def _seen(span: Span, service: str) -> Seen:
    return Seen(
        span.name,
        Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        service,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        tuple(link.span_id.hex() for link in span.links),
        {one.key: _text_of(one.value) for one in span.attributes},
        span.status.code == 2,
    )


def _text_of(value: AnyValue) -> str:
    """The value of an attribute that is a text or a whole number."""
    return str(value.int_value) if value.HasField("int_value") else str(value.string_value)


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port, as a thread."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.rfile.read(int(self.headers["content-length"])))
            collector.came.set()
            collector.may_answer.wait()
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield collector
        finally:
            collector.may_answer.set()
            server.shutdown()
            thread.join()


@dataclass(frozen=True)
class InRow:
    """Both bridges."""

    outer: Bridge
    inner: Bridge
    agent_url: str
    mcp_url: str
    mcp: Http


def wrapping(
    target: ServerTarget,
    place: ProcessPlan,
    store: str = "memory:",
    profile: Profile | None = None,
    **more: Any,
) -> Plan:
    """The plan of one agent `tools` made of the tool server `far`."""
    profile = profile or profile_of("default")
    server = ServerPlan.as_profile_says(target, Era.LEGACY, profile.server, profile.run)
    agent = PublishedPlan(("far",), profile, store)
    return Plan(profile, place, servers={"far": server}, published={"tools": agent}, **more)


@asynccontextmanager
async def in_row(
    folder: Path, target: ServerTarget, place: ProcessPlan = UNOBSERVED, **more: Any
) -> AsyncIterator[InRow]:
    """Run `expose` before `wrap`; `place` says what listens to the hops of both."""
    profile = profile_of("default")
    inner_plan = wrapping(target, place, **more)
    inner = Bridge(inner_plan)
    async with inner.run(), listening(inner.app) as inner_url:
        await inner.apply(inner_plan)
        agent_url = f"{inner_url}/agents/tools"
        outer_plan = Plan(
            profile,
            replace(place, state=folder / "state", cache=folder / "cache"),
            agents={"tools": RemotePlan(agent_url)},
            offered={"face": OfferedPlan(("tools",), profile)},
        )
        outer = Bridge(outer_plan)
        async with outer.run(), listening(outer.app) as outer_url, httpx2.AsyncClient(timeout=30) as client:
            await outer.apply(outer_plan)
            mcp_url = f"{outer_url}/mcp/face"
            try:
                yield InRow(outer, inner, agent_url, mcp_url, Http(client, mcp_url, MODERN))
            finally:
                outer.offered[0].server.stop()
                await inner.published[0].engine.drain(0)


@dataclass(frozen=True)
class ForeignOffered:
    """A foreign agent, and a bridge that offers it."""

    agent: Foreign
    bridge: Bridge
    plan: Plan
    mcp_url: str
    http: httpx2.AsyncClient

    def client(self, capabilities: Json) -> TaskClient:
        """A client with these capabilities."""
        return TaskClient(Http(self.http, self.mcp_url, MODERN, capabilities))


@asynccontextmanager
async def foreign_offered(
    folder: Path,
    place: ProcessPlan,
    *,
    becomes_task: bool = False,
    tools: Mapping[str, ToolOverride] = MappingProxyType({}),
) -> AsyncIterator[ForeignOffered]:
    """Run `expose` before an agent of others; `place` says what listens. `becomes_task` has a call that its agent does
    not answer at once become a task. `tools` is what the configuration says of single tools."""
    seconds = 0 if becomes_task else 3600
    profile = profile_with(agents={"task_after_seconds": seconds, "task_poll_seconds": 0.05})
    async with foreign_agent() as agent:
        plan = Plan(
            profile,
            replace(place, state=folder / "state", cache=folder / "cache"),
            agents={"far": RemotePlan(agent.url)},
            offered={"face": OfferedPlan(("far",), profile, overrides=tools)},
        )
        bridge = Bridge(plan)
        async with bridge.run(), listening(bridge.app) as url, httpx2.AsyncClient(timeout=30) as http:
            await bridge.apply(plan)
            yield ForeignOffered(agent, bridge, plan, f"{url}/mcp/face", http)
            bridge.offered[0].server.stop()
