"""Attacks by schemas: values that take long to check, and patterns that are large programs."""

from __future__ import annotations

import base64
import json
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from tests.hostile.attacks.attack import MEGABYTE, Attack, Scene, require, state_of
from tests.hostile.attacks.tool_servers import command
from tests.support.running import Rpc, call_part, message

_SCRIPTED_SERVER: Final = Path(__file__).parents[1] / "scripted_server.py"
_LOOK_SECONDS: Final = 0.1
_ENDED: Final = ("COMPLETED", "INPUT_REQUIRED", "REJECTED")
_WAIT_SECONDS: Final = 0.5

_OBJECTS: Final = [
    {
        "type": "object",
        "properties": {"kind": {"const": f"k{n}"}, "size": {"type": "integer"}},
        "required": ["kind", "size"],
    }
    for n in range(20)
]


async def long_list(scene: Scene, items: dict[str, Any], values: list[Any]) -> str:
    """One call with a long list, three times, against a schema whose items have many choices."""
    schema = {"type": "object", "properties": {"list": {"type": "array", "items": items}}}
    agent = await _agent_with(scene, [{"name": "take", "inputSchema": schema}])
    came = []
    for _ in range(3):
        answer = await agent.post("SendMessage", message(call_part("take", list=values)))
        came.append(state_of(answer))
    require(all(one in _ENDED for one in came), came)
    return f"{len(values)} values: {', '.join(came)}"


async def heavy_patterns(scene: Scene, count: int, repeat: int, *, called: bool) -> str:
    """A list of tools whose arguments have patterns that are large programs, listed, and called."""
    patterns = {f"p{n}": {"type": "string", "pattern": f"\\w{{1,{repeat}}}x{n}"} for n in range(count)}
    schema = {"type": "object", "properties": patterns, "required": [*patterns]}
    agent = await _agent_with(scene, [{"name": "take", "inputSchema": schema}])
    if not called:
        return f"{count} patterns were listed"
    answer = await agent.post("SendMessage", message(call_part("take", **dict.fromkeys(patterns, "a" * 200))))
    require(state_of(answer) in _ENDED, answer.text)
    return f"{count} patterns: {state_of(answer)}"


async def _agent_with(scene: Scene, tools: list[dict[str, Any]]) -> Rpc:
    """The agent of a tool server that has announced these tools as its new list, and `relist`."""
    tools = [*tools, {"name": "relist", "inputSchema": {"type": "object"}}]
    agent = await scene.connect_server(command(_SCRIPTED_SERVER))
    listed = base64.b64encode(json.dumps(tools).encode()).decode()
    await agent.send(call_part("relist", tools=listed))
    while tools[0]["name"] not in (await scene.http.get(f"{agent.url}/.well-known/agent-card.json")).text:
        await anyio.sleep(_LOOK_SECONDS)
    return agent


def _attack(name: str, items: dict[str, Any], values: list[Any]) -> Attack:
    return Attack(
        name,
        partial(long_list, items=items, values=values),
        most_bytes=256 * MEGABYTE,
        wait_most_seconds=_WAIT_SECONDS,
    )


_CONSTANTS: Final[list[Any]] = [{"const": n} for n in range(100)]
_WIDE: Final = [{"kind": "none", "size": n} for n in range(12_000)]

ATTACKS: Final = (
    _attack("anyOf 100 constants", {"anyOf": _CONSTANTS}, ["x"] * 12_000),
    _attack("anyOf of 60000", {"anyOf": _CONSTANTS}, [-n for n in range(1, 60_001)]),
    _attack("anyOf with minimums", {"anyOf": [{**one, "minimum": 0} for one in _CONSTANTS]}, [-1] * 60_000),
    _attack("oneOf 20 objects", {"oneOf": _OBJECTS}, _WIDE),
    _attack("enum of 600", {"enum": [f"c{n}" for n in range(600)]}, ["x"] * 60_000),
    _attack("enum of 20000", {"enum": [f"c{n}" for n in range(20_000)]}, ["x"] * 12_000),
    _attack("enum of objects", {"enum": [{"a": n} for n in range(600)]}, [{"a": -1}] * 12_000),
    Attack(
        "60 heavy patterns",
        partial(heavy_patterns, count=60, repeat=150, called=True),
        wait_most_seconds=_WAIT_SECONDS,
    ),
    Attack(
        "60 patterns called",
        partial(heavy_patterns, count=60, repeat=36, called=True),
        most_bytes=192 * MEGABYTE,  # each is compiled, to 3 MB, and few of them are kept
        wait_most_seconds=_WAIT_SECONDS,
    ),
    Attack(
        "300 patterns listed",
        partial(heavy_patterns, count=300, repeat=150, called=False),
        wait_most_seconds=_WAIT_SECONDS,
    ),
)
