"""An MCP server over stdio that says, byte by byte, what the arguments of a call tell it to. Without any library.

say       writes `lines`, then a right answer; the texts in `then` answer what it is asked next
relist    lists the tools in the text `tools` from now on, and says so
The others give their arguments back. @ID@ and @TOKEN@ in what is to be said are those of the call.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

OBJECT: dict[str, Any] = {"type": "object"}
TOOLS: list[dict[str, Any]] = [
    {"name": "say", "inputSchema": OBJECT},
    {"name": "relist", "inputSchema": OBJECT},
    {
        "name": "echo",
        "description": "Gives the text back",
        "inputSchema": {
            **OBJECT,
            "properties": {"text": {"type": "string", "maxLength": 1000}},
            "required": ["text"],
            "additionalProperties": False,
        },
    },
    {
        "name": "many",
        "title": "Many kinds",
        "inputSchema": {
            **OBJECT,
            "properties": {
                "count": {"type": "integer", "minimum": 1, "multipleOf": 2},
                "price": {"type": "number", "multipleOf": 0.01},
                "flag": {"type": "boolean", "default": False},
                "kind": {"enum": ["a", "b", 3]},
                "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
                "nested": {
                    "type": "object",
                    "properties": {"deep": {"$ref": "#/$defs/tree"}},
                    "unevaluatedProperties": False,
                },
            },
            "patternProperties": {"^(x+x+)+y$": {"type": "string"}},
            "required": ["count", "nested"],
            "$defs": {"tree": {"type": "object", "additionalProperties": {"$ref": "#/$defs/tree"}}},
        },
        "outputSchema": {**OBJECT, "properties": {"count": {"type": "integer"}}},
    },
    {
        "name": "upload",
        "inputSchema": {
            **OBJECT,
            "properties": {
                "file": {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"},
                "where": {"type": "string", "format": "uri"},
            },
            "required": ["file"],
        },
    },
]


class Server:
    """What it lists, and what it is to answer next."""

    def __init__(self) -> None:
        self.tools: str | None = None
        self.then: list[str] = []

    def write(self, said: bytes) -> None:
        sys.stdout.buffer.write(said)
        sys.stdout.buffer.flush()

    def send(self, message: dict[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def result(self, request_id: Any, result: Any) -> None:
        self.send({"id": request_id, "result": result})

    def call(self, request_id: Any, params: dict[str, Any]) -> None:
        arguments, again = params.get("arguments", {}), "requestState" in params or "inputResponses" in params
        done = {"content": [{"type": "text", "text": "done"}]}
        if params["name"] == "say" and not again:
            self.then = list(arguments.get("then", []))
            token = json.dumps(params.get("_meta", {}).get("progressToken")).encode()
            said = base64.b64decode(arguments["lines"])
            said = said.replace(b"@ID@", json.dumps(request_id).encode()).replace(b"@TOKEN@", token)
            self.write(said + b"\n")
        elif params["name"] == "relist":
            self.tools = base64.b64decode(arguments["tools"]).decode("utf-8", "surrogateescape")
            self.send({"method": "notifications/tools/list_changed"})
        elif params["name"] == "many":
            done |= {"structuredContent": {"count": 2}}
        elif params["name"] != "say":
            done = {"content": [{"type": "text", "text": json.dumps(arguments)}]}
        self.result(request_id, done)

    def hear(self, message: dict[str, Any]) -> None:
        request_id, method = message.get("id"), message.get("method")
        if method is None or request_id is None:
            return
        if method == "initialize":
            self.result(
                request_id,
                {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {"listChanged": True}, "resources": {}},
                    "serverInfo": {"name": "scripted", "version": "1"},
                },
            )
        elif method == "tools/list":
            tools = json.dumps(TOOLS) if self.tools is None else self.tools
            spelled = f'{{"jsonrpc":"2.0","id":{json.dumps(request_id)},"result":{{"tools":{tools}}}}}\n'
            self.write(spelled.encode("utf-8", "surrogateescape"))
        elif method == "tools/call":
            self.call(request_id, message.get("params", {}))
        else:
            if self.then:
                said = base64.b64decode(self.then.pop(0))
                self.write(said.replace(b"@ID@", json.dumps(request_id).encode()) + b"\n")
            self.send({"id": request_id, "error": {"code": -32602, "message": "no such thing"}})


def main() -> None:
    server = Server()
    for line in sys.stdin:
        server.hear(json.loads(line))


if __name__ == "__main__":
    main()
