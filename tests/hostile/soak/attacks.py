"""The attacks, which come in turns, each to its end; those that only wait to be refused go on beside the others.

They run in a process of their own, `python -m tests.hostile.soak.attacks`, so that honest callers do not wait for them
within their own. It takes one line of JSON when it starts: the bridge's port and folder, the URL of the peers, and the
names of some attacks, if it is not to be all. Once its stdin ends it says how often each attack was made, and what it
met instead of what the bridge is to answer.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2

from tests.benchmarks.usage import raise_open_files
from tests.hostile.soak.setting import file_text, token_of, write_file
from tests.support.mcp_wire import MODERN, Http
from tests.support.running import Rpc, call_part, message

_LONGEST_SECONDS: Final = 60.0
"""An attack that takes longer is given up, and said."""
_PAUSE_SECONDS: Final = 1.0
_HEAD: Final = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
_POST: Final = (
    b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n"
)
_ENDED: Final = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED")


@dataclass
class Prey:
    """The bridge that is attacked."""

    port: int
    folder: Path
    peers_url: str
    http: httpx2.AsyncClient
    _reloads: Any = field(default_factory=count)

    @property
    def url(self) -> str:
        """Its root."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        """That of the hostile principal."""
        return token_of(self.folder, "hostile")

    def agent(self, name: str) -> Rpc:
        """An agent, asked as the hostile principal."""
        return Rpc(self.http, f"{self.url}/agents/{name}", {"Authorization": f"Bearer {self.token}"})

    async def connect(self, *said: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection on which this was sent."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        with suppress(OSError):
            for piece in said:
                writer.write(piece)
                await writer.drain()
        return reader, writer

    async def refused(self, *said: bytes) -> bytes:
        """All that comes back before the connection ends, by a reset too."""
        reader, writer = await self.connect(*said)
        answer = b""
        try:
            with suppress(OSError):
                while piece := await reader.read(65536):
                    answer += piece
        finally:
            writer.transport.abort()
        return answer

    def next_reload(self) -> int:
        """How often the file was changed before."""
        return int(next(self._reloads))


Attack = Callable[[Prey], Awaitable[None]]


def _require_all(answers: Sequence[bytes], *beginnings: bytes) -> None:
    wrong = [answer[:200] for answer in answers if not answer.startswith(beginnings)]
    assert not wrong, f"{len(wrong)} of {len(answers)} are answered otherwise: {wrong[0]!r}"


# Before it is known who asks


async def half_heads(prey: Prey) -> None:
    """200 connections with half a head."""
    answers = await asyncio.gather(*(prey.refused(_HEAD) for _ in range(200)))
    _require_all(answers, b"HTTP/1.1 408")


async def silent_connections(prey: Prey) -> None:
    """300 connections without a word."""
    answers = await asyncio.gather(*(prey.refused() for _ in range(300)))
    assert set(answers) == {b""}, "there were words for those who said nothing"


async def unended_bodies(prey: Prey) -> None:
    """100 requests whose body does not come."""
    begun = _POST % b"/agents/tools" + b"Content-Length: 1000\r\n\r\nx"
    answers = await asyncio.gather(*(prey.refused(begun) for _ in range(100)))
    _require_all(answers, b"HTTP/1.1 408", b"HTTP/1.1 401")


async def giant_heads(prey: Prey) -> None:
    """Heads of 30 MB, of one header and of short ones."""
    large, short = b"A: " + b"x" * 65_536, b"a:b\r\n" * 13_000
    for piece in (large, short) * 5:
        _require_all([await prey.refused(_HEAD, *[piece] * 460)], b"HTTP/1.1 431", b"")


async def no_requests(prey: Prey) -> None:
    """What is not HTTP at all."""
    _require_all([await prey.refused(b"\x16\x03\x01\x00\xa5") for _ in range(50)], b"HTTP/1.1 400")


async def pipelining(prey: Prey) -> None:
    """Requests sent ahead: 200 on each of 20 connections."""
    for _ in range(20):
        answer = await prey.refused((_HEAD + b"\r\n") * 200)
        assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 503")) or not answer, answer[:200]


# With a token


async def many_values(prey: Prey) -> None:
    """A legal body of 16 MB that is 5 million empty objects."""
    params = json.dumps(message({"data": [0]})).encode()
    params = params.replace(b"[0]", b"[%s{}]" % (b"{}," * 5_300_000))
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": %s}' % params
    secret = f"Authorization: Bearer {prey.token}\r\n".encode()
    head = _POST % b"/agents/tools" + secret + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = await prey.refused(head, body)
    assert b'"error"' in answer, answer[:200]


async def left_streams(prey: Prey) -> None:
    """20 streams of progress that are dropped in the middle."""

    async def leave() -> None:
        body = json.dumps(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "SendStreamingMessage",
                "params": message(call_part("flood", steps=500)),
            }
        ).encode()
        secret = f"Authorization: Bearer {prey.token}\r\n".encode()
        head = _POST % b"/agents/worse" + secret + b"Content-Length: %d\r\n\r\n" % len(body)
        reader, writer = await prey.connect(head + body)
        seen = await reader.readuntil(b"data: ")
        assert seen.startswith(b"HTTP/1.1 200"), seen
        writer.transport.abort()

    await asyncio.gather(*(leave() for _ in range(20)))


async def open_questions(prey: Prey) -> None:
    """20 questions that nobody answers, until they are cancelled."""
    asks = prey.agent("asks")
    now = {"configuration": {"returnImmediately": True}}
    begun = await asyncio.gather(*(asks.send(call_part("ask"), **now) for _ in range(20)))
    await anyio.sleep(5)
    for task in begun:
        ended = await asks.call("CancelTask", {"id": task["id"]})
        assert ended["status"]["state"] == "TASK_STATE_CANCELED", ended


async def _ended(prey: Prey, agent: str, skill: str, **arguments: Any) -> Any:
    task = await prey.agent(agent).send(call_part(skill, **arguments))
    assert task["status"]["state"] in _ENDED, task
    return task


async def many_links(prey: Prey) -> None:
    """1,000 links of 100 KB each."""
    task = await _ended(prey, "floods", "links", count=1000, bytes=100_000)
    assert len(task["artifacts"][0]["parts"]) == 1000


async def malformed_progress(prey: Prey) -> None:
    """5,000 reports without a number."""
    await _ended(prey, "floods", "progress", count=5000)


async def fast_progress(prey: Prey) -> None:
    """20,000 reports as fast as they go."""
    await _ended(prey, "worse", "flood", steps=20_000)


async def unread_pings(prey: Prey) -> None:
    """30,000 pings whose answers nobody reads: the server is ended, and started again."""
    task = await _ended(prey, "floods", "ping", count=30_000, bytes=100)
    assert task["status"]["state"] == "TASK_STATE_FAILED", task


async def dying_server(prey: Prey) -> None:
    """A server that ends within a call."""
    task = await _ended(prey, "worse", "die")
    assert task["status"]["state"] == "TASK_STATE_FAILED", task


async def large_result(prey: Prey) -> None:
    """A result of 2 MB."""
    await _ended(prey, "worse", "big", bytes=2_000_000)


async def malformed_lines(prey: Prey) -> None:
    """What is no JSON, no message, too deep, and an answer to nobody."""
    said = b"\n".join(
        [
            b"\xff\xfe\x00",
            b'{"jsonrpc": "2.0", "id": @ID@, "result": ',
            b"[" * 100_000,
            b'{"jsonrpc": "2.0", "id": "nobody", "result": {}}',
            b'{"jsonrpc": "1.0", "id": [], "method": 7}',
            b"x" * 1_000_000,
        ]
    )
    await _ended(prey, "says", "say", lines=base64.b64encode(said).decode())


async def bombs(prey: Prey) -> None:
    """A result of 100 KB that unpacks to 100 MB."""
    task = await _ended(prey, "packed", "bomb")
    assert task["status"]["state"] == "TASK_STATE_FAILED", task


async def reloads(prey: Prey) -> None:
    """The file is changed: every second time an agent of thousands of skills comes, and is listed, or goes."""
    turn = prey.next_reload() + 1
    write_file(prey.folder, file_text(prey.peers_url, turn))
    team = Http(prey.http, f"{prey.url}/mcp/team", MODERN)
    crowd = Http(prey.http, f"{prey.url}/mcp/crowd", MODERN)
    secret = {"Authorization": f"Bearer {prey.token}"}
    while f"The team, {turn}" not in (await team.post(team.message(1, "server/discover"), **secret)).text:
        await anyio.sleep(0.2)
    if turn % 2 == 0:
        while (listed := await crowd.post(crowd.message(1, "tools/list"), **secret)).status_code != 200:
            await anyio.sleep(0.2)
        assert "The skill Act 0 " in listed.text, listed.text[:300]


LANES: Final[Sequence[Sequence[Attack]]] = (
    (half_heads, silent_connections, unended_bodies),
    (
        *(giant_heads, no_requests, pipelining, many_values, bombs, left_streams, many_links, open_questions),
        *(
            fast_progress,
            malformed_progress,
            malformed_lines,
            unread_pings,
            dying_server,
            large_result,
            reloads,
        ),
    ),
)


@dataclass
class Made:
    """What was done."""

    spans: list[tuple[str, float, float]] = field(default_factory=list)
    """Each attack, and when it began and ended by the clock of the machine."""
    faults: Counter[str] = field(default_factory=Counter)


def lanes(only: Sequence[str]) -> list[list[Attack]]:
    """The lanes, of these attacks alone where some are named."""
    chosen = [[attack for attack in lane if not only or attack.__name__ in only] for lane in LANES]
    return [lane for lane in chosen if lane]


async def _lane(attacks: Sequence[Attack], prey: Prey, made: Made) -> None:
    for attack in cycle(attacks):
        begun = time.monotonic()
        try:
            with anyio.fail_after(_LONGEST_SECONDS):
                await attack(prey)
        except (AssertionError, OSError, KeyError, ValueError, EOFError, httpx2.HTTPError) as exc:
            made.faults[f"{attack.__name__}: {type(exc).__name__} {str(exc)[:300]}"] += 1
        made.spans.append((attack.__name__, begun, time.monotonic()))
        await anyio.sleep(_PAUSE_SECONDS)


async def attack_until_told(told: dict[str, Any]) -> dict[str, Any]:
    """Go on in all lanes until stdin ends."""
    made = Made()
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx2.AsyncClient(timeout=_LONGEST_SECONDS, limits=limits) as http:
        prey = Prey(told["port"], Path(told["folder"]), told["peers_url"], http)
        async with anyio.create_task_group() as tasks:
            for lane in lanes(told["only"]):
                tasks.start_soon(_lane, lane, prey, made)
            await anyio.to_thread.run_sync(sys.stdin.read)
            tasks.cancel_scope.cancel()
    return {"spans": made.spans, "faults": made.faults}


def main() -> None:
    """Attack what the one line on stdin says, and say what was done."""
    raise_open_files()
    print(json.dumps(asyncio.run(attack_until_told(json.loads(sys.stdin.readline())))), flush=True)


if __name__ == "__main__":
    main()
