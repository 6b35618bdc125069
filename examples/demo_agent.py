"""A small A2A 1.0 agent that is no bridge: `python examples/demo_agent.py [PORT]`.

One skill, answered at once with a message, on nothing but starlette. It stands for agents that others have made.
"""

from __future__ import annotations

import socket
import sys
import uuid
from contextlib import suppress
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 8100

CARD = {
    "name": "Words",
    "description": "Works on words.",
    "version": "1.0",
    "supportedInterfaces": [
        {"url": f"http://127.0.0.1:{PORT}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {"streaming": False},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [
        {
            "id": "shout",
            "name": "Shout",
            "description": "Say something in capital letters.",
            "tags": ["words"],
            "examples": ["hello"],
        }
    ],
}


async def card(_: Request) -> JSONResponse:
    """What the agent says of itself."""
    return JSONResponse(CARD)


async def rpc(request: Request) -> JSONResponse:
    """The one operation that it knows."""
    asked = await request.json()
    if asked.get("method") != "SendMessage":
        error = {"code": -32601, "message": "This agent only knows SendMessage"}
        return JSONResponse({"jsonrpc": "2.0", "id": asked.get("id"), "error": error})
    message = answer_to(asked["params"]["message"])
    return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": {"message": message}})


def answer_to(message: dict[str, Any]) -> dict[str, Any]:
    """The words of a message, shouted."""
    words = " ".join(part["text"] for part in message["parts"] if "text" in part)
    return {
        "messageId": str(uuid.uuid4()),
        "contextId": message.get("contextId") or str(uuid.uuid4()),
        "role": "ROLE_AGENT",
        "parts": [{"text": f"{words.upper()}!"}],
    }


app = Starlette(
    routes=[Route("/.well-known/agent-card.json", card), Route("/rpc", rpc, methods=["POST"])],
)

if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", PORT)) as listener, suppress(KeyboardInterrupt):
        print(f"Agent  http://127.0.0.1:{PORT}", file=sys.stderr, flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
