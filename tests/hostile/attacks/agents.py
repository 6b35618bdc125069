"""Attacks of one remote agent: its card, and its streams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import anyio

from tests.hostile.attacks.attack import HOSTILE, MEGABYTE, Attack, Scene, require
from tests.hostile.endless import DONE, GIVEN, SAID, WORKING, events_of
from tests.hostile.raw_peer import RawPeer, Reply, head_of, raw_peer
from tests.support.scripted_agent import plain_card

_LOOK_SECONDS: Final = 0.2
_MOST_SKILLS: Final = 5_000


def agent_at(peer: RawPeer, card: dict[str, Any], stream: Any = ()) -> None:
    """Have a peer show a card, and stream."""
    shown = json.dumps(card).encode()

    def answer(path: str, body: bytes) -> Reply:
        if body:
            return Reply((head_of(b"text/event-stream"), *stream) if isinstance(stream, tuple) else stream())
        return Reply((head_of(b"application/json"), shown))

    peer.answer = answer


async def many_skills(scene: Scene, count: int) -> str:
    """A card of thousands of skills."""
    skills = [
        {"id": f"s{n}", "name": f"S{n}", "description": "Acts", "tags": ["test"], "examples": ["one", "two"]}
        for n in range(count)
    ]
    async with raw_peer() as peer:
        agent_at(peer, {**plain_card(peer.url), "skills": skills})
        await scene.connect_agent(peer.url)
        while not (tools := await _tools(scene)):
            ready = (await scene.readiness()).json()
            if why := ready["mcp"][HOSTILE]["agents"][HOSTILE].get("why"):
                return str(why)
            await anyio.sleep(_LOOK_SECONDS)
    require(len(tools) <= _MOST_SKILLS, f"{len(tools)} tools")
    return f"{len(tools)} tools of {count} skills"


async def endless_stream(scene: Scene, event: dict[str, Any], size_bytes: int, *, taken: bool) -> str:
    """A stream that gives the same as fast as it is read, and says after so many bytes that it is done."""
    sent = 0

    def stream() -> Iterator[bytes]:
        nonlocal sent
        piece = events_of(event)
        yield head_of(b"text/event-stream") + events_of({"statusUpdate": WORKING})
        while sent < size_bytes:
            sent += len(piece)
            yield piece
        yield events_of({"statusUpdate": DONE})

    async with raw_peer() as peer:
        agent_at(peer, plain_card(peer.url), stream)
        await scene.connect_agent(peer.url)
        while not (tools := await _tools(scene)):
            await anyio.sleep(_LOOK_SECONDS)
        call = {"name": tools[0]["name"], "arguments": {"message": "go"}}
        answer = await scene.tool(HOSTILE, "tools/call", call)
    require("result" in answer, answer)
    result = answer["result"]
    require(bool(result.get("isError")) is not taken, result)
    return f"{sent // MEGABYTE} MB sent: {'completed' if taken else result['content'][0]['text']}"


async def odd_catalog(scene: Scene) -> str:
    """A catalog of agents at ports that there are not, beside one that can be reached."""
    odd = [
        {"name": f"a{number}", "cardUrl": url}
        for number, url in enumerate(
            [f"http://127.0.0.1:{port}/" for port in (99999, 0, -1, 65536)] + ["//[::1", "http://[v1.x]/"]
        )
    ]
    async with raw_peer() as peer:
        sound = {"name": "sound", "cardUrl": f"{peer.url}/card.json"}

        def answer(path: str, _: bytes) -> Reply:
            shown = {"agents": [*odd, sound]} if path.startswith("/agents") else plain_card(peer.url)
            return Reply((head_of(b"application/json"), json.dumps(shown).encode()))

        peer.answer = answer
        catalog = f'\n[catalogs.{HOSTILE}]\nurl = "{peer.url}/agents"\nallow_private = true\n'
        await scene.connect(f'{catalog}[agents_as_tools.{HOSTILE}]\nfrom = ["{HOSTILE}"]\n')
        while not (tools := await _tools(scene)):
            await anyio.sleep(_LOOK_SECONDS)
    return f"{len(tools)} tools of the one agent that can be reached"


async def _tools(scene: Scene) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await scene.tool(HOSTILE, "tools/list", {}))["result"]["tools"]
    return [tool for tool in found if not tool["name"].startswith("task_")]


ATTACKS: Final = (
    Attack("10000 skills", partial(many_skills, count=10_000)),
    Attack("20000 skills", partial(many_skills, count=20_000)),
    Attack("a catalog of no ports", odd_catalog, wait_most_seconds=0.5),
    Attack(
        "messages without end",
        partial(endless_stream, event={"message": SAID}, size_bytes=250 * MEGABYTE, taken=True),
    ),
    Attack(
        "a great artifact",
        partial(endless_stream, event={"artifactUpdate": GIVEN}, size_bytes=250 * MEGABYTE, taken=True),
        most_bytes=384 * MEGABYTE,
    ),
    Attack(
        "artifacts without end",
        partial(endless_stream, event={"artifactUpdate": GIVEN}, size_bytes=1000 * MEGABYTE, taken=False),
        most_bytes=384 * MEGABYTE,
    ),
)
