"""An MCP server over stdio whose one tool answers when a file is there, without any library.

Run as `python gated_server.py FOLDER`. Each call of `hold` adds a line to FOLDER/calls, and is answered,
with the number of this process, once FOLDER/open is there.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
TOOL = {"name": "hold", "inputSchema": {"type": "object"}}
ABOUT = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "gated", "version": "1"},
}
_lock = threading.Lock()


def answer(request: Any, member: str, value: Any) -> None:
    """Send a response."""
    with _lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], member: value}) + "\n")
        sys.stdout.flush()


def hold(request: Any) -> None:
    """Make a call."""
    with (FOLDER / "calls").open("a") as calls:
        calls.write(f"{os.getpid()}\n")
    while not (FOLDER / "open").exists():
        time.sleep(0.01)
    answer(request, "result", {"content": [{"type": "text", "text": str(os.getpid())}]})


def take(request: Any) -> None:
    """Do what a message asks for."""
    match request.get("method"):
        case "initialize":
            answer(request, "result", ABOUT)
        case "tools/list":
            answer(request, "result", {"tools": [TOOL]})
        case "tools/call":
            threading.Thread(target=hold, args=(request,), daemon=True).start()
        case _ if "id" in request:
            answer(request, "error", {"code": -32601, "message": "not here"})


for line in sys.stdin:
    take(json.loads(line))
