"""A bridge before the asking server, and a client of it that waits for events and never for the clock."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio

from bridge.assembly.plan import SharedStore
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.streamable_http import ServerTarget
from tests.support.asking import asking_command, asking_url
from tests.support.drivers import PATIENCE_SECONDS, Events, Json, JsonRpcDriver, new_client, state_of
from tests.support.limits import url_at
from tests.support.running import EXTENSION, Running, call_part, config_for, profile_with, running, texts

AT_ONCE = {"returnImmediately": True}
ANSWER = f"{EXTENSION}/answer"
QUESTION = f"{EXTENSION}/question"
ENDED = ("COMPLETED", "FAILED", "CANCELED", "REJECTED")


class Asked(JsonRpcDriver):
    """A client of an agent that asks."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.bridge: Running | None = None

    async def ask(self, tool: str, **arguments: Any) -> Json:
        """Call a tool that asks: the task, which waits for an answer."""
        task = await self.send(call_part(tool, **arguments))
        assert state_of(task) in ("INPUT_REQUIRED", "AUTH_REQUIRED"), task
        return task

    async def answer_to(self, task: Json, *parts: Any, **metadata: Any) -> Json:
        """Answer a task; each part is its text or its data. The task, once it has ended or asks again."""
        return await self.send(
            *said(*parts), taskId=task["id"], **({"metadata": metadata} if metadata else {})
        )

    async def refuse(self, task: Json, action: str) -> Json:
        """Answer a task with `decline` or `cancel`."""
        return await self.answer_to(task, "I will not say", **{ANSWER: action})

    async def text(self, tool: str, **arguments: Any) -> str:
        """What a tool says."""
        return outcome(await self.send(call_part(tool, **arguments)))

    async def server_saw(self) -> list[Any]:
        """The answers as the server took them, without what names them."""
        return [one.get("result", one.get("error")) for one in json.loads(await self.text("answers"))]

    async def says(self, tool: str, words: str) -> None:
        """Wait until a tool says something: the server hears of some things on another way."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while await self.text(tool) != words:
                await anyio.lowlevel.checkpoint()

    @asynccontextmanager
    async def watching(self, task: Json) -> AsyncIterator[Events]:
        """The events of a task from here on, beginning with the task."""
        async with self.stream("SubscribeToTask", id=task["id"]) as events:
            first = await events.next()
            assert first is not None
            assert first["task"]["id"] == task["id"]
            yield events

    async def ended(self, task: Json) -> Json:
        """A task that ends by itself, once it has. Between two looks at it its stream is read, as far as it goes."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while state_of(found := await self.get(task["id"])) not in ENDED:
                request = self.request("SubscribeToTask", {"id": task["id"]})
                await self.client.send(request)  # all of it; a refusal where the task has ended meanwhile
        return found


def said(*parts: Any) -> list[Json]:
    """Parts: text for a string, data for anything else."""
    return [{"text": part} if isinstance(part, str) else {"data": part} for part in parts]


def words_of(task: Json) -> str:
    """What a task's status says."""
    return "\n".join(texts(task["status"].get("message", {}).get("parts", [])))


def given_up(seconds: float) -> str:
    """What a task says when nobody answered what its server asked."""
    asked = "The question of the tool server asking was not answered"
    return f"{asked} within {seconds:g} s, so the call was given up"


def outcome(task: Json) -> str:
    """The text that a completed call gave."""
    assert state_of(task) == "COMPLETED", task
    (artifact,) = task["artifacts"]
    return "\n".join(texts(artifact["parts"]))


def question_of(task: Json) -> Json:
    """What a task asks, as data."""
    return task["status"]["message"]["parts"][1]["data"]


def keys_of(task: Json) -> list[str]:
    """The keys of all that a task asks."""
    question = question_of(task)
    return [one["key"] for one in question.get("questions", [question])]


@asynccontextmanager
async def asking(
    era: str,
    *options: str,
    http: bool = False,
    target: ServerTarget | None = None,
    store: str | SharedStore = "memory:",
    keys: tuple[str, ...] = (),
    name: str | None = None,
    kept: Mapping[str, Any] | None = None,
    **tables: Any,
) -> AsyncIterator[Asked]:
    """The asking server, by default over stdio, behind a bridge; `run={...}` changes its profile, and `kept` the table
    `[store]` of it."""
    async with AsyncExitStack() as stack:
        if http:
            target = url_at(stack.enter_context(asking_url(era, *options)))
        found = target or asking_command(era, *options)
        profile = profile_with(
            **{**tables, "store": {**(kept or {})}, "run": {"drain_seconds": 0.0, **tables.get("run", {})}}
        )
        config = config_for(found, era=Era(era), store=store, keys=keys, name=name, profile=profile)
        bridge = await stack.enter_async_context(running(config))
        client = await stack.enter_async_context(new_client())
        driver = Asked(client, bridge.base_url)
        driver.bridge = bridge
        yield driver
