"""An MCP server over stdio that gives more than anybody can take in. Without any library; speaks 2025-11-25.

Run as `python flooding_server.py [--endless BYTES]`: its list of tools never ends, a tool of so many bytes a page.

ping      sends `count` pings, whose ids have `bytes` bytes, and reads no more, or goes on reading meanwhile if `reads`
progress  reports `count` times, from `number` on or without one, with `words` if any
values    gives `count` empty objects
links     links `count` resources, or one so often if `same`; each has `bytes` bytes
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

NAMES = ("ping", "progress", "values", "links")


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def ping(count: int, size: int) -> None:
    for number in range(count):
        send({"id": f"p{number}" + "x" * size, "method": "ping"})


def call(request_id: Any, params: dict[str, Any]) -> None:
    said = {"count": 1, "bytes": 1, **params.get("arguments", {})}
    count, size = said["count"], said["bytes"]
    done: dict[str, Any] = {"content": []}
    match params["name"]:
        case "ping" if not said.get("reads"):
            ping(count, size)
            threading.Event().wait()
        case "ping":
            ping(count, size)
        case "progress":
            told = {"progressToken": params["_meta"]["progressToken"], "message": said.get("words", "")}
            for number in range(count):
                step = said["number"] + number if "number" in said else "much"
                send({"method": "notifications/progress", "params": {**told, "progress": step}})
        case "values":
            done["structuredContent"] = {"rows": [{}] * count}
        case "links":
            uris = [f"demo://{size}/{0 if said.get('same') else number}" for number in range(count)]
            done["content"] = [{"type": "resource_link", "uri": uri, "name": uri} for uri in uris]
    send({"id": request_id, "result": done})


def page(params: dict[str, Any], size: int) -> dict[str, Any]:
    if not size:
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]}
    number = int(params.get("cursor", "0"))
    tool = {"name": f"t{number}", "description": "x" * size, "inputSchema": {"type": "object"}}
    return {"tools": [tool], "nextCursor": str(number + 1)}


def hear(message: dict[str, Any], page_bytes: int) -> None:
    request_id, params = message.get("id"), message.get("params", {})
    match message.get("method"):
        case "initialize":
            info = {"serverInfo": {"name": "flooding", "version": "1"}}
            abilities: dict[str, Any] = {"tools": {}, "resources": {}}
            send(
                {
                    "id": request_id,
                    "result": {"protocolVersion": "2025-11-25", "capabilities": abilities, **info},
                }
            )
        case "tools/list":
            send({"id": request_id, "result": page(params, page_bytes)})
        case "resources/read":
            text = "x" * int(params["uri"].split("/")[2])
            send({"id": request_id, "result": {"contents": [{"uri": params["uri"], "text": text}]}})
        case "tools/call" if params.get("arguments", {}).get("reads"):
            threading.Thread(target=call, args=(request_id, params), daemon=True).start()
        case "tools/call":
            call(request_id, params)


def main(arguments: list[str]) -> None:
    page_bytes = int(arguments[1]) if arguments else 0
    for line in sys.stdin:
        hear(json.loads(line), page_bytes)


if __name__ == "__main__":
    main(sys.argv[1:])
