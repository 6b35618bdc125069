"""Our A2A checks (`tests.a2a_checks`) of the agents that the page tells of."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bridge.mcp.client.eras import Era
from tests.a2a_checks import Report
from tests.a2a_checks.runs import check_again, check_bridge_with_token, check_sdk
from tests.conformance.recorded import AgentChecks

WRAPPED: Final = "An MCP server wrapped by the bridge"
AGAIN: Final = "An agent on a2a-sdk 1.3.0, exposed by the bridge and wrapped again"
SDK: Final = "The agent on a2a-sdk 1.3.0, directly"


async def checked_agents(folder: Path) -> dict[str, AgentChecks]:
    """The checks of each agent, by the agent in words."""
    return {
        WRAPPED: _verdicts(await check_bridge_with_token(f"sqlite:///{folder / 'checked.db'}")),
        AGAIN: _verdicts(await check_again(folder, Era.MODERN)),
        SDK: _verdicts(await check_sdk()),
    }


def unexpected(agents: dict[str, AgentChecks]) -> list[str]:
    """What an agent of ours fails."""
    return [
        f"{name}: {check_id} over {binding}"
        for name, checks in agents.items()
        if name != SDK
        for check_id, verdicts in checks.items()
        for binding, verdict in verdicts.items()
        if verdict == "fail"
    ]


def _verdicts(report: Report) -> AgentChecks:
    return {
        result.id: {binding: outcome.verdict.value for binding, outcome in result.outcomes.items()}
        for result in report.results
    }
