"""An MCP server over stdio without any library: starts at once, and behaves as badly as it is told to.

Run as `python raw_server.py [--pages N] [--changes] [--bad-tools]`. It speaks 2025-11-25. Its tools:

echo         gives `text` back                     add          a + b, structured
fail         isError with two blocks               refuse       a JSON-RPC error with `code`
every-block  one block of each kind                empty        no content
progress     `steps` reports, then a result        wait         answers only when it is cancelled or killed
die          ends the process                      big          a text of `bytes` bytes
odd          a block type that nobody knows        cancelled    how many calls were cancelled so far
grow         adds a tool, and says so              link         links of several schemes
upload       takes a file (contentEncoding)        flood        `steps` reports with `words` as fast as it can
"""

from __future__ import annotations

import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` takes as long to import as all that is needed
    from typing import Any

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="

_cancelled: list[Any] = []
_waiting: set[Any] = set()
_grown: list[dict[str, Any]] = []


def _schema(required: str = "", **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split()}


TOOLS: list[dict[str, Any]] = [
    {
        "name": "echo",
        "title": "Echo",
        "description": "Gives the text back",
        "inputSchema": _schema("text", text={"type": "string", "description": "What to say"}),
        "annotations": {"readOnlyHint": True, "destructiveHint": False},
    },
    {
        "name": "add",
        "description": "Adds two numbers",
        "inputSchema": _schema(
            "a b", a={"type": "number"}, b={"type": "number", "description": "The second"}
        ),
        "outputSchema": {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]},
    },
    {"name": "fail", "description": "Fails", "inputSchema": _schema()},
    {"name": "refuse", "inputSchema": _schema(code={"type": "integer"})},
    {"name": "every-block", "inputSchema": _schema()},
    {"name": "empty", "inputSchema": _schema()},
    {"name": "progress", "inputSchema": _schema(steps={"type": "integer"})},
    {"name": "flood", "inputSchema": _schema(steps={"type": "integer"})},
    {"name": "wait", "inputSchema": _schema()},
    {"name": "die", "inputSchema": _schema()},
    {"name": "big", "inputSchema": _schema(bytes={"type": "integer"})},
    {"name": "odd", "inputSchema": _schema()},
    {"name": "cancelled", "inputSchema": _schema()},
    {"name": "grow", "inputSchema": _schema()},
    {"name": "link", "inputSchema": _schema()},
    {
        "name": "upload",
        "inputSchema": _schema(
            "file", file={"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"}
        ),
    },
]
BAD_TOOLS: list[Any] = [
    {"name": "no-schema"},
    {"name": "array-schema", "inputSchema": {"type": "array"}},
    {"name": "broken-schema", "inputSchema": {"type": "object", "properties": {"a": {"type": "nonsense"}}}},
    {
        "name": "far-schema",
        "inputSchema": {"type": "object", "properties": {"a": {"$ref": "https://x.test/s"}}},
    },
    {"inputSchema": {"type": "object"}},
    "no object",
]


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


BLOCKS: list[dict[str, Any]] = [
    text("words", annotations={"audience": ["user"], "priority": 0.5}),
    {"type": "image", "data": PIXEL, "mimeType": "image/png"},
    {"type": "audio", "data": SOUND, "mimeType": "audio/wav", "_meta": {"example.com/take": 2}},
    {
        "type": "resource",
        "resource": {"uri": "demo://notes/one.md", "mimeType": "text/markdown", "text": "# One"},
    },
    {
        "type": "resource",
        "resource": {"uri": "demo://files/a.bin", "blob": "AAEC", "mimeType": "application/x-demo"},
    },
    {
        "type": "resource_link",
        "uri": "https://example.com/a.pdf",
        "name": "a.pdf",
        "mimeType": "application/pdf",
    },
]
LINKS: list[dict[str, Any]] = [
    {"type": "resource_link", "uri": "https://example.com/x", "name": "web"},
    {"type": "resource_link", "uri": "demo://notes/one.md", "name": "one", "mimeType": "text/markdown"},
    {"type": "resource_link", "uri": "demo://missing", "name": "missing"},
    {"type": "resource_link", "uri": "file:///etc/hostname", "name": "hostname"},
]


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def result(*content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"content": list(content), **more}


def call(request_id: Any, params: dict[str, Any]) -> None:
    name, arguments = params["name"], params.get("arguments", {})
    token = params.get("_meta", {}).get("progressToken")
    match name:
        case "echo":
            done = result(text(arguments.get("text", "nothing")))
        case "add":
            if not isinstance(arguments.get("a"), int | float):
                done = result(text("a is no number"), isError=True)
            else:
                total = {"sum": arguments["a"] + arguments["b"]}
                done = result(text(json.dumps(total)), structuredContent=total)
        case "fail":
            image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
            done = result(text("it broke, and this is why"), image, isError=True)
        case "refuse":
            error = {
                "code": arguments.get("code", -32000),
                "message": "not today",
                "data": {"until": "tomorrow"},
            }
            return send({"id": request_id, "error": error})
        case "every-block":
            done = result(
                *BLOCKS, text('{"n": 1}'), structuredContent={"n": 1}, _meta={"example.com/run": "r1"}
            )
        case "empty":
            done = result()
        case "progress" | "flood":
            steps = arguments.get("steps", 3)
            for step in range(1, steps + 1):
                words = f"{arguments.get('words', '')}step {step}"
                report = {"progressToken": token, "progress": step, "total": steps, "message": words}
                send({"method": "notifications/progress", "params": report})
            done = result(text(f"{steps} steps"))
        case "wait":
            _waiting.add(request_id)
            return None
        case "die":
            print("I was told to die", file=sys.stderr, flush=True)
            sys.exit(3)
        case "big":
            done = result(text("x" * arguments.get("bytes", 1_000_000)))
        case "odd":
            done = result({"type": "hologram", "rays": [1, 2.5]})
        case "cancelled":
            done = result(text(str(len(_cancelled))))
        case "grow":
            _grown.append({"name": f"grown-{len(_grown) + 1}", "inputSchema": _schema()})
            send({"id": request_id, "result": result(text("grown"))})
            return send({"method": "notifications/tools/list_changed"})
        case "link":
            done = result(*LINKS)
        case "upload":
            done = result(text(f"{len(arguments.get('file', ''))} characters"))
        case _ if name.startswith("grown-"):
            done = result(text(f"I am {name}"))
        case _:
            return send({"id": request_id, "error": {"code": -32602, "message": f"Unknown tool: {name}"}})
    return send({"id": request_id, "result": done})


def list_page(params: dict[str, Any], pages: int, tools: list[Any]) -> dict[str, Any]:
    size = -(-len(tools) // pages)
    start = int(params.get("cursor") or 0)
    page: dict[str, Any] = {"tools": tools[start : start + size]}
    if start + size < len(tools):
        page["nextCursor"] = str(start + size)
    return page


def main(arguments: list[str]) -> None:
    pages = int(arguments[arguments.index("--pages") + 1]) if "--pages" in arguments else 1
    tools: list[Any] = [*TOOLS[:2], *BAD_TOOLS, *TOOLS[2:]] if "--bad-tools" in arguments else TOOLS
    print("raw server up", file=sys.stderr, flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        method, params, request_id = message.get("method"), message.get("params", {}), message.get("id")
        match method:
            case "initialize":
                info = {"name": "raw", "title": "Raw Server", "version": "1.2.3"}
                capabilities = {"tools": {"listChanged": True}, "resources": {}}
                send(
                    {
                        "id": request_id,
                        "result": {
                            "protocolVersion": "2025-11-25",
                            "capabilities": capabilities,
                            "serverInfo": info,
                            "instructions": "Tools for tests.",
                        },
                    }
                )
            case "tools/list":
                send({"id": request_id, "result": list_page(params, pages, [*tools, *_grown])})
            case "tools/call":
                call(request_id, params)
            case "resources/read" if params.get("uri") == "demo://notes/one.md":
                contents = {"uri": params["uri"], "mimeType": "text/markdown", "text": "# One"}
                send({"id": request_id, "result": {"contents": [contents]}})
            case "notifications/cancelled":
                _cancelled.append(params.get("requestId"))
                _waiting.discard(params.get("requestId"))
            case _ if request_id is not None:
                send({"id": request_id, "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    main(sys.argv[1:])
