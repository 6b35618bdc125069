"""An MCP server on stdio whose one tool takes its time: `slow` gives `text` back after so many milliseconds.

python slow_server.py MILLISECONDS
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

_TOOL = {
    "name": "slow",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
_HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "slow", "version": "1"},
}


def _answer(message: dict[str, Any]) -> dict[str, Any] | None:
    match message["method"]:
        case "initialize":
            return {"result": _HELLO}
        case "tools/list":
            return {"result": {"tools": [_TOOL]}}
        case "tools/call":
            text = message["params"]["arguments"]["text"]
            return {"result": {"content": [{"type": "text", "text": text}]}}
        case _:
            return {"error": {"code": -32601, "message": "Method not found"}}


def _write(request_id: object, answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request_id, **answer}) + "\n")
    sys.stdout.flush()


async def _serve(seconds: float) -> None:
    loop, lines = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        message = json.loads(line)
        if "id" in message:
            wait = seconds if message["method"] == "tools/call" else 0
            loop.call_later(wait, _write, message["id"], _answer(message))


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]) / 1000))
