"""An MCP server over stdio, without any library, whose tools note each run: `python tool_server.py LOG`.

It speaks 2025-11-25. Every tool takes a `key`, and notes it in LOG before it does anything. None may be run twice.

quick   gives the key back                    slow   the same after `seconds`
steps   `steps` reports of progress, then it  word   a form of one word, then the key and the word
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

Json = dict[str, Any]

UNSAFE: Json = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False}
FORM: Json = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
STEP_SECONDS = 0.1


def _tool(name: str, **more: str) -> Json:
    properties = {name: {"type": kind} for name, kind in {"key": "string", **more}.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": f"{name} of a key", "inputSchema": schema, "annotations": UNSAFE}


TOOLS = [_tool("quick"), _tool("slow", seconds="number"), _tool("steps", steps="integer"), _tool("word")]

_lock = threading.Lock()
_answered: dict[str, tuple[threading.Event, list[Json]]] = {}
_cancelled: set[Any] = set()


def send(message: Json) -> None:
    """Say something to the client."""
    with _lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def call(request_id: Any, params: Json) -> None:
    """Run a tool and answer, unless the call was cancelled meanwhile."""
    name, arguments = params["name"], params["arguments"]
    words = str(arguments["key"])
    if name == "slow":
        time.sleep(arguments["seconds"])
    elif name == "steps":
        _report(params["_meta"]["progressToken"], arguments["steps"], words)
    elif name == "word":
        words += f" {_asked(request_id, words)}"
    if request_id not in _cancelled:
        send({"id": request_id, "result": {"content": [{"type": "text", "text": words}]}})


def _report(token: Any, steps: int, key: str) -> None:
    for step in range(1, steps + 1):
        time.sleep(STEP_SECONDS)
        report = {"progressToken": token, "progress": step, "total": steps, "message": f"{key} step {step}"}
        send({"method": "notifications/progress", "params": report})


def _asked(request_id: Any, key: str) -> str:
    question_id = f"q-{request_id}"
    came, answers = _answered.setdefault(question_id, (threading.Event(), []))
    send(
        {
            "id": question_id,
            "method": "elicitation/create",
            "params": {"message": f"A word for {key}", "requestedSchema": FORM},
        }
    )
    came.wait()
    content = answers[0].get("result", {}).get("content") or {}
    return str(content.get("word"))


def main(log: str) -> None:
    """Serve until stdin ends."""
    runs = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for line in sys.stdin:
        message: Json = json.loads(line)
        request_id, params = message.get("id"), message.get("params", {})
        match message.get("method"):
            case "initialize":
                told = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
                info = {"name": "shaken", "version": "1.0.0"}
                send({"id": request_id, "result": {**told, "serverInfo": info}})
            case "tools/list":
                send({"id": request_id, "result": {"tools": TOOLS}})
            case "tools/call":
                os.write(runs, f"{params['name']} {params['arguments']['key']}\n".encode())
                threading.Thread(target=call, args=(request_id, params), daemon=True).start()
            case "notifications/cancelled":
                _cancelled.add(params.get("requestId"))
            case None if request_id in _answered:
                came, answers = _answered[request_id]
                answers.append(message)
                came.set()
            case _ if request_id is not None and "method" in message:
                send({"id": request_id, "error": {"code": -32601, "message": "Method not found"}})
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
