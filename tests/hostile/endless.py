"""What gives without end: the events of an agent, and the tool server that floods."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from bridge.mcp.client.transports.stdio import StdioTarget
from tests.support.limits import child_pace, command_of

FLOODING_SERVER: Final = Path(__file__).with_name("flooding_server.py")


def flooding(*options: str) -> StdioTarget:
    """The server that floods. One that takes in nothing does not end by itself either."""
    pace = child_pace(flush_seconds=0.1, exit_seconds=0.1)
    return command_of((sys.executable, str(FLOODING_SERVER), *options), pace=pace)


def events_of(*results: dict[str, Any]) -> bytes:
    told = [{"jsonrpc": "2.0", "id": 1, "result": result} for result in results]
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in told)


WORKING: Final = {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
DONE: Final = {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}
PART: Final = {"text": "x" * 100_000}
SAID: Final = {"messageId": "m", "role": "ROLE_AGENT", "taskId": "t", "contextId": "c", "parts": [PART]}
GIVEN: Final = {
    "taskId": "t",
    "contextId": "c",
    "artifact": {"artifactId": "a", "parts": [PART]},
    "append": True,
}
