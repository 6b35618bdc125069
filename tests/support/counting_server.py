"""An MCP server over stdio without any library, of 2025-11-25, whose tool `count` says how often it was called."""

from __future__ import annotations

import json
import sys
from itertools import count
from typing import Any

_numbers = count(1)


def _result(message: dict[str, Any]) -> dict[str, Any]:
    match message["method"]:
        case "initialize":
            return {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "counting", "version": "1"},
            }
        case "tools/list":
            return {"tools": [{"name": "count", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            return {"content": [{"type": "text", "text": str(next(_numbers))}]}
    return {}


for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked and "method" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": _result(asked)}), flush=True)
