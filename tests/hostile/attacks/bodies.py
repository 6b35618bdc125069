"""Attacks with one legal body: values beyond number, and names as long as it may be, at both faces."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.hostile.attacks.attack import FACE, TOKENS, Attack, Scene, require
from tests.support.mcp_wire import LEGACY
from tests.support.running import VERSION

_LIMIT_BYTES: Final = 16 << 20
_ANSWER_BYTES: Final = 2_000
_TIMES: Final = 4
_PLACES: Final = (f"agents/{FACE}", f"mcp/{FACE}")


def filled(start: bytes, piece: bytes, end: bytes) -> bytes:
    """A body as large as one may be."""
    return start + piece * ((_LIMIT_BYTES - len(start) - len(end)) // len(piece)) + end


async def heavy_bodies(scene: Scene, start: bytes, piece: bytes, end: bytes) -> str:
    """The same body some times, at either face."""
    body, came = filled(start, piece, end), []
    for place in _PLACES:
        headers = {
            **VERSION,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        headers |= {"Authorization": f"Bearer {TOKENS['attacker']}", "MCP-Protocol-Version": LEGACY}
        for _ in range(_TIMES):
            answer = await scene.http.post(
                f"http://127.0.0.1:{scene.port}/{place}", content=body, headers=headers
            )
            require(len(answer.content) < _ANSWER_BYTES, f"an answer of {len(answer.content)} bytes")
            require("error" in answer.text, answer.text)
        came.append(f"{answer.status_code} {answer.json().get('error', {}).get('code')}")
    return ", ".join(came)


_PARAMS: Final = b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":['
_NAME: Final = b'{"jsonrpc":"2.0","id":1,"method":"'

ATTACKS: Final = (
    Attack("16 MB of {}", partial(heavy_bodies, start=_PARAMS, piece=b"{},", end=b"{}]}}")),
    Attack("16 MB of numbers", partial(heavy_bodies, start=_PARAMS, piece=b"1,", end=b"1]}}")),
    Attack("a method of 16 MB", partial(heavy_bodies, start=_NAME, piece=b"x", end=b'","params":{}}')),
)
