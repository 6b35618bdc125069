"""Attacks of those whom nobody knows yet: heads, bodies and connections, without any token."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

import anyio

from tests.hostile.attacks.attack import FACE, MEGABYTE, TOKENS, Attack, Scene, require
from tests.hostile.raw_caller import flood, refusal_in, until_closed

_POST: Final = b"POST /agents/honest HTTP/1.1\r\nHost: localhost\r\n"
_LENGTH: Final = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_TOKEN: Final = f"Authorization: Bearer {TOKENS['attacker']}\r\n".encode()
_HEADS: Final = 50
_PIECE_BYTES: Final = 65_536
_FEW: Final = 256
"""Descriptors of a process that many connect to."""
_HOLDERS: Final = 300
_HOLD_SECONDS: Final = 6.0
_AGAIN_SECONDS: Final = 0.2
"""How soon one that was closed is opened again."""


async def endless_head(scene: Scene, piece: bytes, size_bytes: int) -> str:
    """A head that goes on as long as it is read, one after another."""
    pieces, status, words = piece * (_PIECE_BYTES // len(piece)), 0, ""
    for _ in range(_HEADS):
        async with (
            await anyio.connect_tcp("127.0.0.1", scene.port) as stream,
            anyio.create_task_group() as tasks,
        ):
            await stream.send(_POST)
            tasks.start_soon(flood, stream, pieces, size_bytes // len(pieces))
            status, words, _ = refusal_in(await until_closed(stream))
            tasks.cancel_scope.cancel()
        require(status == 431, words)
    return f"{_HEADS} times {status} {words}"


async def held_connections(scene: Scene, said: tuple[bytes, ...]) -> str:
    """Many connections that never come to the end of a request, each opened again once it is closed."""
    closed: Counter[str] = Counter()

    async def hold(words: bytes) -> None:
        while True:
            try:
                async with await anyio.connect_tcp("127.0.0.1", scene.port) as stream:
                    await stream.send(words)
                    answer = await until_closed(stream)
                closed[answer[9:12].decode() or "closed"] += 1
            except OSError as exc:
                closed[type(exc).__name__] += 1
            await anyio.sleep(_AGAIN_SECONDS)

    with anyio.move_on_after(_HOLD_SECONDS):
        async with anyio.create_task_group() as tasks:
            for number in range(_HOLDERS):
                tasks.start_soon(hold, said[number % len(said)])
    ends = ", ".join(f"{count} {end}" for end, count in sorted(closed.items()))
    return f"{_HOLDERS} held {_FEW} descriptors; ended: {ends or 'none'}"


async def two_tokens(scene: Scene) -> str:
    """A request that shows two principals at once."""
    async with await anyio.connect_tcp("127.0.0.1", scene.port) as stream:
        token = f"Authorization: Bearer {TOKENS[FACE]}\r\n".encode()
        await stream.send(_POST + token + _TOKEN + b"Connection: close\r\n" + _LENGTH % 2 + b"{}")
        said = await until_closed(stream)
    require(said.startswith(b"HTTP/1.1 400 "), said)
    return "400"


ATTACKS: Final = (
    Attack("a giant header", partial(endless_head, piece=b"A: " + b"x" * 997, size_bytes=214 * MEGABYTE)),
    Attack("many headers", partial(endless_head, piece=b"a:b\r\n", size_bytes=30 * MEGABYTE)),
    Attack("half heads", partial(held_connections, said=(b"", b"GET", _POST)), descriptors=_FEW),
    Attack(
        "unended bodies",
        partial(
            held_connections,
            said=(_POST + _LENGTH % 1000 + b"{", _POST + _TOKEN + _LENGTH % 1000 + b"{"),
        ),
        descriptors=_FEW,
    ),
    Attack("two tokens", two_tokens),
)
