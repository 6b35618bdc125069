"""Which paths are served with which verbs: each path asked with each verb, and what it is answered with."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import httpx2

from bridge.assembly.plan import OfferedPlan
from bridge.config.tables.profile import load_profile
from tests.goldens.agents import CARD_PATH, JSON, VERSION, bridge_of
from tests.goldens.recording import ROOT, Recording
from tests.support.in_process import client_of
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
            verbs_of: dict[str, list[str]] = {}
            for verb in VERBS:
                verbs_of.setdefault(await _answer(client, verb, path), []).append(verb)
            found = [f"{' '.join(verbs)}: {answer}" for answer, verbs in verbs_of.items()]
            record.value(path or "(nothing)", "; ".join(found))
        for one in bridge.offered:
            one.server.stop()


async def _answer(client: httpx2.AsyncClient, verb: str, path: str) -> str:
    """The status, which verbs are allowed, and why it is an error."""
    content = b"{}" if verb == "POST" else None
    headers = {**VERSION, **JSON, "Accept": "application/json, text/event-stream"}
    answer = await client.request(verb, f"{ROOT}{path}", headers=headers, content=content)
    found = [str(answer.status_code)]
    if allowed := answer.headers.get("allow"):
        found.append(f"({allowed})")
    if answer.is_success:
        return " ".join([*found, answer.headers.get("content-type", "")])
    error = answer.json()["error"]
    for detail in error.get("details") or error.get("data") or ():
        found += [detail.get("reason", ""), *detail.get("metadata", {}).values()]
    return " ".join(filter(None, found))
