"""Attacks of one principal on the others: tasks that wait, answers, and open questions."""

from __future__ import annotations

import json
import time
from collections import Counter
from functools import partial
from typing import Final

import anyio

from tests.hostile.attacks.attack import MEGABYTE, Attack, Scene, require, state_of
from tests.support.asking import asking_argv
from tests.support.running import Rpc, call_part, message

_CALLERS: Final = 8
_QUESTIONS: Final = 1_200
_EARLY: Final = 50
"""So many calls may have ended before the first question came."""
_OBJECTS: Final = 38_000
_LOOK_SECONDS: Final = 0.2


async def waiting_tasks(scene: Scene) -> str:
    """Tasks that wait for an answer, until one is refused."""
    agent, came = scene.agent(), Counter[str]()

    async def make() -> None:
        for _ in range(2_500 // _CALLERS):
            came[state_of(await agent.post("SendMessage", message(call_part("echo"))))] += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(_CALLERS):
            tasks.start_soon(make)
    require(came["INPUT_REQUIRED"] <= 2_000 and sum(came.values()) > 2_000, came)
    return _spelled(came)


async def many_answers(scene: Scene) -> str:
    """Answers to one task that are none, until it takes no more."""
    agent = scene.agent()
    task = await agent.send(call_part("add"))
    waits: list[float] = []
    while True:
        began = time.perf_counter()
        said = message({"data": {"a": "no number"}}, taskId=task["id"], configuration={"historyLength": 0})
        answer = await agent.post("SendMessage", said)
        waits.append(time.perf_counter() - began)
        if (state := state_of(answer)) != "INPUT_REQUIRED":
            break
        require(len(waits) < 1_000, "it takes answers without end")
    first, last = (sum(some) * 10 for some in (waits[:100], waits[-101:-1]))
    return f"{len(waits) - 1} answers, {first:.1f} ms each at first and {last:.1f} at last, then {state}"


async def large_answers(scene: Scene) -> str:
    """Twelve answers of 10 MB to one task."""
    agent, came = scene.agent(), Counter[str]()
    task = await agent.send(call_part("add"))
    for _ in range(12):
        part = {"text": "x" * 10 * MEGABYTE}
        said = message(part, taskId=task["id"], configuration={"historyLength": 0})
        came[state_of(await agent.post("SendMessage", said))] += 1
    require(came["INPUT_REQUIRED"] < 4, came)
    return _spelled(came)


async def open_questions(scene: Scene, era: str, state: str) -> str:
    """Calls that ask and are never answered: each its question, or all behind the question of the first."""
    command, at_once = json.dumps(asking_argv(era)), {"returnImmediately": True}
    agent = await scene.connect_server(f"command = {command}\nconcurrency = {2 * _QUESTIONS}", era)

    async def ask() -> None:
        for _ in range(_QUESTIONS // _CALLERS):
            await agent.send(call_part("ask-one"), configuration=at_once)

    async with anyio.create_task_group() as tasks:
        for _ in range(_CALLERS):
            tasks.start_soon(ask)
    while (count := await _count(agent, state)) < _QUESTIONS - _EARLY:
        await anyio.sleep(_LOOK_SECONDS)
    return f"{count} {state}"


async def heavy_list(scene: Scene) -> str:
    """A list of 100 tasks, each with an unknown field of tens of thousands of objects."""
    agent = scene.agent()
    part = {"text": "x", "unknownField": [{}] * _OBJECTS}
    for _ in range(100):
        await agent.post("SendMessage", message(part, configuration={"historyLength": 0}))
    seen, pages, token = 0, 0, ""
    while True:
        page = await agent.call("ListTasks", {"pageSize": 100, **({"pageToken": token} if token else {})})
        seen, pages, token = seen + len(page["tasks"]), pages + 1, page["nextPageToken"]
        if not token:
            break
    require(seen >= 100 and pages > 1, f"{seen} tasks on {pages} pages")
    return f"{seen} tasks on {pages} pages"


async def forged_words(scene: Scene) -> str:
    """Messages in which a client speaks as the bridge, or names what no store can have, in every place."""
    agent, refused = scene.agent(), 0
    keys = [f"urn:mcp-a2a:operator:v1/{name}" for name in ("owner", "answered-by", "canceled-by", "withheld")]
    for key in (*keys, "urn:mcp-a2a:timeline:v1/moments", "urn:mcp-a2a:tool:v1/repeated", "URN:MCP-A2A:x"):
        for place in range(3):
            said = message(call_part("echo", text="x"))
            holder = (said, said["message"], said["message"]["parts"][0])[place]
            holder["metadata"] = {key: "the operator"}
            refused += "error" in (await agent.post("SendMessage", said)).json()
    for name in ("messageId", "contextId", "taskId"):
        for bad in ("a\0b", "\u4e00" * 512, "\U0001f388" * 257, "x" * 513):
            said = message(call_part("echo", text="x"))
            said["message"][name] = bad
            answer = (await agent.post("SendMessage", said)).json()
            refused += answer.get("error", {}).get("code") == -32602
    require(refused == 7 * 3 + 3 * 4, f"{refused} of 33 were refused")
    return f"{refused} refused"


async def _count(agent: Rpc, state: str) -> int:
    """How many tasks of an agent are in a state."""
    listed = await agent.call("ListTasks", {"status": f"TASK_STATE_{state}", "pageSize": 1})
    return int(listed["totalSize"])


def _spelled(came: Counter[str]) -> str:
    return ", ".join(f"{count} {end}" for end, count in came.most_common())


ATTACKS: Final = (
    Attack("a heavy list", heavy_list, most_bytes=256 * MEGABYTE, wait_most_seconds=0.5),
    Attack("words of the bridge", forged_words, wait_most_seconds=0.5),
    Attack("2500 waiting tasks", waiting_tasks),
    Attack("500 answers", many_answers),
    Attack("answers of 10 MB", large_answers, most_bytes=256 * MEGABYTE),
    Attack("1200 questions", partial(open_questions, era="modern", state="INPUT_REQUIRED")),
    Attack("1200 behind one", partial(open_questions, era="legacy", state="SUBMITTED")),
)
