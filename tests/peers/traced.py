"""A host and a tool server of the official SDK that send their own spans to a collector.

python -m tests.peers.traced server COLLECTOR
python -m tests.peers.traced host COLLECTOR URL MODE     prints the id of the trace in which it called
"""

from __future__ import annotations

import sys

import anyio
from mcp import Client
from mcp.server import MCPServer
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor


def send_spans(name: str, collector: str) -> None:
    """Let the SDK make spans, under this name."""
    provider = TracerProvider(resource=Resource({"service.name": name}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{collector}/v1/traces")))
    trace.set_tracer_provider(provider)


def serve() -> None:
    """Serve one tool over stdio."""
    server = MCPServer("traced")

    @server.tool()
    def shout(text: str) -> str:
        """Shouts a text"""
        return text.upper()

    server.run()


async def call(url: str, mode: str) -> None:
    """Call the tool in a trace, and print the trace's id."""
    async with Client(url, mode=mode) as client:  # type: ignore[arg-type]
        with trace.get_tracer("host").start_as_current_span("turn of a model") as span:
            await client.call_tool("shout", {"text": "hi"})
            print(f"{span.get_span_context().trace_id:032x}")


if __name__ == "__main__":
    role, collector, *place = sys.argv[1:]
    send_spans(role, collector)
    if role == "server":
        serve()
    else:
        anyio.run(call, *place)
