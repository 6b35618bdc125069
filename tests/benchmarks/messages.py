"""What is asked, as bytes: each request has a message id and a text of its own.

It imports next to nothing, as the load generator does: libraries for HTTP saturate before a server does.
"""

from __future__ import annotations

import json
from typing import Any, Final
from uuid import uuid4

Plan = dict[str, Any]
CARD_PATH: Final = "/.well-known/agent-card.json"
LIMIT_SECONDS: Final = 240.0
"""A plan that takes longer has failed."""

_TEXT_LENGTH: Final = 100


def texts_for(plan: Plan) -> tuple[list[str], list[str]]:
    """The texts to be echoed, all different: of the warm-up, and counted."""
    texts = [
        f"{number} {uuid4().hex} ".ljust(_TEXT_LENGTH, "x")
        for number in range(plan["warm_up"] + plan["requests"])
    ]
    return texts[: plan["warm_up"]], texts[plan["warm_up"] :]


def request(plan: Plan, method: str, params: Plan) -> bytes:
    """A JSON-RPC request as it goes over the wire."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    head = (
        f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{plan['port']}\r\nA2A-Version: 1.0\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def call_request(plan: Plan, method: str, arguments: Plan, **configuration: bool) -> bytes:
    """A request that calls the plan's tool."""
    part = {"data": {"skill": plan["tool"], "arguments": arguments}}
    params: Plan = {"message": {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [part]}}
    return request(plan, method, params | ({"configuration": configuration} if configuration else {}))
