"""Which paths are served with which verbs: each path asked with each verb, and the status of the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bridge.assembly.plan import OfferedPlan
from bridge.config.tables.profile import load_profile
from tests.goldens.agents import CARD_PATH, JSON, VERSION, bridge_of
from tests.goldens.recording import ROOT, Recording, client_of
from tests.support.running import raw_command

VERBS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_OF_AN_AGENT: Final = (
    "",
    "/",
    CARD_PATH,
    "/.well-known/agent.json",
    "/message:send",
    "/message:stream",
    "/tasks",
    "/tasks/t",
    "/tasks/t:cancel",
    "/tasks/t:subscribe",
    "/tasks/t/pushNotificationConfigs",
    "/tasks/t/pushNotificationConfigs/c",
    "/extendedAgentCard",
    "/card",
    "/v1/card",
    "/rpc",
)
PATHS: Final = (
    "/healthz",
    "/readyz",
    "/agents",
    "/agents/",
    "/agents/none",
    "/mcp",
    "/mcp/",
    "/mcp/desk",
    "/mcp/desk/",
    "/mcp/none",
    "/metrics",
    "/docs",
    *(f"/agents/raw{path}" for path in _OF_AN_AGENT),
    *_OF_AN_AGENT,
)


async def routes(record: Recording, folder: Path) -> None:
    """Those of a bridge with one agent and one MCP server, which both have an alias at the root."""
    offered = {"desk": OfferedPlan((), load_profile())}
    async with (
        bridge_of(folder, raw_command(), ("raw",), offered=offered) as bridge,
        client_of(bridge.app) as client,
    ):
        for path in PATHS:
            answers = []
            for verb in VERBS:
                content = b"{}" if verb == "POST" else None
                headers = {**VERSION, **JSON, "Accept": "application/json, text/event-stream"}
                async with client.stream(verb, f"{ROOT}{path}", headers=headers, content=content) as response:
                    answers.append(f"{verb} {response.status_code}")
            record.value(path or "(nothing)", ", ".join(answers))
        for one in bridge.offered:
            one.server.stop()
