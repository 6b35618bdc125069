"""Attacks of one tool server on the process that others share."""

from __future__ import annotations

import base64
import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from bridge.text.safe_text import with_visible_characters
from tests.hostile.attacks.attack import HOSTILE, MEGABYTE, Attack, Scene, require, state_of
from tests.hostile.endless import FLOODING_SERVER
from tests.hostile.raw_peer import Reply, bomb, head_of, raw_peer
from tests.hostile.servers import HttpToolServer
from tests.support.running import RAW_SERVER, call_part, message, texts

_SCRIPTED_SERVER: Final = Path(__file__).parents[1] / "scripted_server.py"
_STEERING: Final = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066\u200b"
_UNPACKED_BYTES: Final = 600 * MEGABYTE
_CUT_LIST: Final = re.compile(r"its list of tools ends after.*")
_LOOK_SECONDS: Final = 0.1


def command(server: Path, *options: str) -> str:
    """How a tool server is started, in the bridge's file."""
    return f"command = {json.dumps([sys.executable, str(server), *options])}"


async def gzip_bomb(scene: Scene) -> str:
    """A small reply that unpacks to far more than a message may be, as JSON and as a stream."""
    packed, gzip = bomb(_UNPACKED_BYTES), b"Content-Encoding: gzip"
    words = []
    async with raw_peer() as peer:
        server = HttpToolServer(peer)
        agent = await scene.connect_server(f'url = "{peer.url}/mcp"')
        for kind in (b"application/json", b"text/event-stream"):
            server.then = [Reply((head_of(kind, gzip), packed))]
            words.append(await _failed(agent, call_part("echo", text="x")))
    return f"{len(packed) // 1000} KB unpack to {_UNPACKED_BYTES // MEGABYTE} MB: {words[0]}"


async def many_links(scene: Scene) -> str:
    """A result with thousands of links to resources of a megabyte."""
    agent = await scene.connect_server(command(FLOODING_SERVER))
    task = await agent.send(call_part("links", count=3000, bytes=MEGABYTE))
    parts = task["artifacts"][0]["parts"]
    read = sum("url" not in part for part in parts)
    require(len(parts) == 3000 and 0 < read <= 32, f"{read} of {len(parts)} were read")
    return f"{read} of {len(parts)} linked resources were read"


async def pings(scene: Scene) -> str:
    """Requests whose answers are never read."""
    agent = await scene.connect_server(command(FLOODING_SERVER))
    return await _failed(agent, call_part("ping", count=300_000, bytes=100))


async def endless_list(scene: Scene, page_bytes: int) -> str:
    """A list of tools without an end: it is cut, which the log says, or the server counts as down."""
    await scene.connect_server(command(FLOODING_SERVER, "--endless", str(page_bytes)))
    while not (why := _server_in((await scene.readiness()).json()).get("why", "")):
        if found := _CUT_LIST.search(scene.log.read_text()):
            return found[0]
        await anyio.sleep(_LOOK_SECONDS)
    require(" list" in why, why)
    return str(why)


async def fast_progress(scene: Scene) -> str:
    """Progress as fast as it can be said, to a client that hears of it."""
    agent = await scene.connect_server(command(RAW_SERVER))
    said = await agent.post("SendStreamingMessage", message(call_part("flood", steps=100_000)))
    require("TASK_STATE_COMPLETED" in said.text, said.text[-1000:])
    return f"100,000 reports became {said.text.count('data:')} events"


async def malformed_progress(scene: Scene) -> str:
    """Progress that says no number."""
    agent = await scene.connect_server(command(FLOODING_SERVER))
    for _ in range(3):
        answer = await agent.post("SendMessage", message(call_part("progress", count=3280)))
        require(state_of(answer) == "COMPLETED", answer.text)
    return "3 times 3,280 reports were passed over"


async def steering_words(scene: Scene) -> str:
    """Names and words that steer a terminal, in the list, in a call and on stderr."""
    tool = {"name": f"t{_STEERING}", "description": _STEERING, "inputSchema": {"type": "object"}}
    listed = base64.b64encode(json.dumps([tool, {"name": _STEERING}]).encode()).decode()
    agent = await scene.connect_server(command(_SCRIPTED_SERVER))
    await agent.send(call_part("relist", tools=listed))
    while (await agent.send(call_part("relist", tools=listed)))["status"]["state"] == "TASK_STATE_COMPLETED":
        await anyio.sleep(_LOOK_SECONDS)  # until the new list has come, which has no such tool
    await agent.post("SendMessage", message(call_part(_STEERING)))
    await agent.post(_STEERING, {})
    log = scene.log.read_text()
    require(log == with_visible_characters(log), log)
    return "nothing in the log steers"


async def _failed(agent: Any, part: dict[str, Any]) -> str:
    """Why the task of a call failed."""
    task = await agent.send(part)
    require(task["status"]["state"] == "TASK_STATE_FAILED", task["status"])
    return " ".join(texts(task["status"]["message"]["parts"]))


def _server_in(readiness: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = readiness["agents"][HOSTILE]["servers"][HOSTILE]
    return found


ATTACKS: Final = (
    # The SDK holds an event of up to 64 MB, and the transport holds it again to count its values.
    Attack("a gzip bomb", gzip_bomb, most_bytes=160 * MEGABYTE),
    Attack("3000 links", many_links),
    Attack("pings never read", pings),
    Attack("a list without end", partial(endless_list, page_bytes=1)),
    Attack("pages of megabytes", partial(endless_list, page_bytes=MEGABYTE)),
    Attack("fast progress", fast_progress),
    Attack("malformed progress", malformed_progress),
    Attack("words that steer", steering_words),
)
