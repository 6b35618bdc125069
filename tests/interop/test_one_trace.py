"""One trace from a host of the official SDK through expose and wrap to a tool server of the official SDK."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import anyio.to_thread
import pytest

from bridge.assembly.plan import ProcessPlan
from tests.support.command import ROOT
from tests.support.limits import command_of
from tests.support.observed import Seen, collecting, in_row

pytestmark = [pytest.mark.slow, pytest.mark.outside]

TRACED: Final = (sys.executable, "-m", "tests.peers.traced")
SECONDS: Final = 60


def below(spans: list[Seen], parent: Seen) -> list[tuple[str, str, str]]:
    """The spans on the way from one to the last that follows from it."""
    found = [span for span in spans if span.parent == parent.id and "tools/list" not in span.name]
    if not found:
        return []
    (span,) = found
    return [(span.service, span.kind, span.name), *below(spans, span)]


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_host_expose_agent_wrap_and_tool_server_are_one_trace(mode: str, tmp_path: Path) -> None:
    with collecting() as collector:
        server = command_of((*TRACED, "server", collector.url), cwd=str(ROOT))
        async with in_row(tmp_path, server, ProcessPlan(traces=collector.url)) as there:
            words = [*TRACED, "host", collector.url, there.mcp_url, mode]
            said = await anyio.to_thread.run_sync(
                lambda: subprocess.run(
                    words, stdout=subprocess.PIPE, text=True, timeout=SECONDS, cwd=ROOT, check=True
                )
            )
    spans = [span for span in collector.spans if span.trace == said.stdout.strip()]
    (root,) = [span for span in spans if not span.parent]
    assert below(spans, root) == [
        ("host", "CLIENT", "MCP send tools/call shout"),
        ("mcp-a2a", "SERVER", "tools/call shout"),
        ("mcp-a2a", "CLIENT", "SendStreamingMessage"),
        ("mcp-a2a", "SERVER", "SendStreamingMessage"),
        ("mcp-a2a", "CLIENT", "tools/call shout"),
        ("server", "SERVER", "tools/call shout"),
    ]
