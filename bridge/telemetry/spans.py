"""Spans of hops, sent to a collector by OTLP over HTTP. Only this module imports the packages of the extra `otel`.

Each hop is a span, SERVER or CLIENT. It continues the trace of its request, and is the parent of the spans that follow
from it. A request that continues a task links to the span of the task's last turn.

Spans go into a bounded queue, which a thread of the SDK empties. If the queue is full, further spans are dropped and
counted; no call waits for the collector. A caller without a credential does not decide what is recorded: its sampled
flag is ignored, and its trace id has no influence on a sampler that records a fraction of all traces.

Source: OpenTelemetry semantic conventions of MCP and of generative AI, and their draft for A2A.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from bridge.errors import UsageError
from bridge.local.installation import adding_extra
from bridge.notices import ModelAsked, Notice
from bridge.trace import Hop, TraceContext
from bridge.version import __version__

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace as api
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
    from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult
    from opentelemetry.trace import (
        Link,
        Span,
        SpanContext,
        SpanKind,
        Status,
        StatusCode,
        TraceFlags,
        TraceState,
    )
    from opentelemetry.util.types import Attributes
except ImportError as exc:
    raise UsageError(
        f"`traces` in [bridge] needs the packages of OpenTelemetry: {adding_extra('otel')}"
    ) from exc

logger = logging.getLogger(__name__)

_SPANS_PATH: Final = "/v1/traces"
_WAITING_MOST: Final = 2048
"""The most spans that wait for the collector, unless `OTEL_BSP_MAX_QUEUE_SIZE` is set: the default of the SDK."""
_SENT_MOST: Final = 512
"""The most spans that are sent at once, unless `OTEL_BSP_MAX_EXPORT_BATCH_SIZE` is set: the default of the SDK."""
_END_SECONDS: Final = 5.0
"""How long a stopping bridge waits for the collector to receive the last spans."""

_KINDS: Final = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT}
_FAILED: Final = frozenset({"failed", "rejected"})
_DROPPED: Final = "the collector receives spans too slowly, or not at all: %d were dropped so far"
_LOST: Final = "%d spans have not reached the collector"
_STRANGER: Final = "mcp-a2a-stranger"
"""The key that marks a context whose trace comes from a caller without a credential."""


class SpanExport:
    """Makes a span for each hop, and sends it."""

    def __init__(self, collector: str) -> None:
        """`collector` is the base URL of an OTLP receiver. The variables OTEL_* configure the rest.

        Raises:
            UsageError: a variable has an invalid value.
        """
        self._exporter = _CountingExporter(f"{collector}{_SPANS_PATH}")
        ours = Resource({"service.name": "mcp-a2a", "service.version": __version__})
        detected = Resource.create()
        is_named = not str(detected.attributes.get("service.name", "")).startswith("unknown_service")
        resource = ours.merge(detected) if is_named else detected.merge(ours)
        try:
            provider = TracerProvider(resource=resource, shutdown_on_exit=False)
            self._queue = _SpanQueue(self._exporter, _number_in("OTEL_BSP_MAX_QUEUE_SIZE", _WAITING_MOST))
        except ValueError as exc:
            raise UsageError(f"a variable OTEL_* has an invalid value: {exc}") from exc
        provider.sampler = _SamplerOfStrangers(provider.sampler)
        provider.add_span_processor(self._queue)
        self._tracer = provider.get_tracer("mcp-a2a", __version__)
        self._provider = provider
        self._spans: dict[Hop, Span] = {}

    def close(self) -> None:
        """Send the remaining spans, within `_END_SECONDS`. This blocks: call it in a thread."""
        giving_up = threading.Timer(_END_SECONDS, self._exporter.shutdown)
        giving_up.start()
        self._provider.shutdown()
        giving_up.cancel()
        giving_up.join()
        if lost := self._queue.lost:
            logger.error(_LOST, lost)

    def began(self, hop: Hop) -> None:
        """Begin the span of a hop, and make it the parent of the hops that follow."""
        span = self._tracer.start_span(
            _name_of(hop), _parent_of(hop), _KINDS[hop.side], start_time=hop.began_ns
        )
        self._spans[hop] = span
        hop.context = _context_of(span.get_span_context(), hop.context.baggage)

    def waited(self, hop: Hop, peer: str, seconds: float) -> None:
        """Note how long a call waited for its turn."""
        if (span := self._spans.get(hop)) is not None and span.is_recording():
            span.add_event("turn", {"mcp_a2a.peer": peer, "mcp_a2a.waited_seconds": seconds})

    def ended(self, hop: Hop) -> None:
        """End the span of a hop, if it has one: refused strangers get none."""
        span = self._spans.pop(hop, None)
        if span is None:
            return
        if span.is_recording():
            span.update_name(_name_of(hop))  # the tool is unknown before its call is read
            span.set_attributes(dict(_attributes_of(hop)))
            earlier = _span_context(hop.earlier)
            if earlier is not None:
                span.add_link(earlier)
            if hop.error or hop.state in _FAILED:
                span.set_attribute("error.type", hop.error or "tool_error")
                span.set_status(Status(StatusCode.ERROR))
        span.end(hop.began_ns + round(hop.seconds * 1e9))

    def noticed(self, notice: Notice) -> None:
        """Make the span of a question to a model."""
        if not isinstance(notice, ModelAsked):
            return
        parent = _span_context(TraceContext(notice.traceparent or None))
        span = self._tracer.start_span(
            f"chat {notice.model}",
            contexts.Context() if parent is None else api.set_span_in_context(api.NonRecordingSpan(parent)),
            SpanKind.CLIENT,
            start_time=notice.began_ns,
        )
        tool = {"gen_ai.tool.name": notice.skill} if notice.skill else {}
        span.set_attributes(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": notice.model,
                "server.address": notice.host,
                "mcp_a2a.face": notice.face,
                "mcp_a2a.outcome": notice.outcome,
                "mcp_a2a.tokens": notice.tokens,
                **tool,
            }
        )
        if notice.outcome in ("failed", "broken", "timed_out"):
            span.set_attribute("error.type", notice.outcome)
            span.set_status(Status(StatusCode.ERROR))
        span.end(notice.began_ns + round(notice.seconds * 1e9))


class _CountingExporter(OTLPSpanExporter):
    """Counts the spans that left the queue, and the spans among them that did not reach the collector."""

    taken = 0
    failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See `SpanExporter`. Called in a thread of the SDK."""
        self.taken += len(spans)
        result = super().export(spans)
        if result is not SpanExportResult.SUCCESS:
            self.failed += len(spans)
        return result


class _SpanQueue(BatchSpanProcessor):
    """The queue of the SDK, which here drops new spans in place of old ones when it is full, and counts them."""

    def __init__(self, exporter: _CountingExporter, most: int) -> None:
        at_once = min(_number_in("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", _SENT_MOST), most)
        super().__init__(exporter, max_queue_size=most, max_export_batch_size=at_once)
        self._counting = exporter
        self._most = most
        self._given = 0
        self._dropped = 0

    @property
    def lost(self) -> int:
        """The number of spans that did not reach the collector. Read it after the queue has ended."""
        return self._dropped + self._counting.failed + self._given - self._counting.taken

    def on_end(self, span: ReadableSpan) -> None:
        """See `SpanProcessor`. Called on the event loop; waits for nothing."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if self._given - self._counting.taken >= self._most:
            self._dropped += 1
            if self._dropped & (self._dropped - 1) == 0:  # logged each time that the number has doubled
                logger.error(_DROPPED, self._dropped)
            return
        self._given += 1
        super().on_end(span)


def _number_in(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() and int(text) else default


class _SamplerOfStrangers(Sampler):
    """Samples the traces of strangers as if they began here, and all others like the sampler `default`."""

    def __init__(self, default: Sampler) -> None:
        self._usual = default

    def should_sample(
        self,
        parent_context: contexts.Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """See `Sampler`."""
        if contexts.get_value(_STRANGER, parent_context) is None:
            return self._usual.should_sample(
                parent_context, trace_id, name, kind, attributes, links, trace_state
            )
        as_root = self._usual.should_sample(None, secrets.randbits(128), name, kind, attributes, links)
        parent = api.get_current_span(parent_context).get_span_context()
        return SamplingResult(as_root.decision, as_root.attributes, parent.trace_state)

    def get_description(self) -> str:
        """See `Sampler`."""
        return self._usual.get_description()


def _name_of(hop: Hop) -> str:
    return f"{hop.method} {hop.skill}" if hop.protocol == "mcp" and hop.skill else hop.method


def _attributes_of(hop: Hop) -> Iterator[tuple[str, str]]:
    """The attributes of a span, without arguments, results and principals."""
    served = hop.face if hop.side == "server" else hop.peer
    of_protocol = {
        "mcp": {
            "mcp.method.name": hop.method,
            "gen_ai.operation.name": "execute_tool" if hop.method == "tools/call" else "",
            "gen_ai.tool.name": hop.skill,
        },
        "a2a": {
            "a2a.method.name": hop.method,
            "a2a.task.id": hop.task_id,
            "a2a.task.state": hop.state,
            "gen_ai.conversation.id": hop.context_id,
            "gen_ai.agent.name": served,
        },
    }[hop.protocol]
    ours = {"mcp_a2a.face": hop.face, "mcp_a2a.peer": hop.peer, "mcp_a2a.skill": hop.skill}
    yield from ((name, value) for name, value in {**of_protocol, **ours}.items() if value)


def _parent_of(hop: Hop) -> contexts.Context:
    parent, none = _span_context(hop.context), contexts.Context()
    if parent is None:
        return none
    made = api.set_span_in_context(api.NonRecordingSpan(parent), none)
    if hop.side == "server" and not hop.is_authenticated:
        made = contexts.set_value(_STRANGER, True, made)
    return made


def _span_context(context: TraceContext) -> SpanContext | None:
    if context.traceparent is None:
        return None
    _, trace_id, span_id, flags = context.traceparent.split("-")[:4]
    members = (member.partition("=") for member in (context.tracestate or "").split(",") if member)
    return SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, 16)),
        trace_state=TraceState([(name, value) for name, _, value in members]),
    )


def _context_of(span: SpanContext, baggage: str | None) -> TraceContext:
    parent = f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    return TraceContext(parent, span.trace_state.to_header() or None, baggage)
