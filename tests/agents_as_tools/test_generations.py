"""Agents of each generation behind tools: the bridge sends and reads the messages of that generation."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.exposing import exposing
from tests.support.scripted_agent import Json, scripted_agent

WAIT_SECONDS = 20
METHODS = {
    "1.0": ("SendMessage", "SendStreamingMessage"),
    "0.3": ("message/send", "message/stream"),
    "0.1": ("tasks/send", "tasks/sendSubscribe"),
}
NOTE = "urn:mcp-a2a:unsaid:v1"
"""The metadata in which is said what a generation has no field for."""


def said(words: str, generation: str, **more: Any) -> Json:
    """A message of the agent."""
    if generation == "1.0":
        return {"messageId": f"a-{words}", "role": "ROLE_AGENT", "parts": [{"text": words}], **more}
    if generation == "0.3":
        parts = [{"kind": "text", "text": words}]
        return {"kind": "message", "messageId": f"a-{words}", "role": "agent", "parts": parts, **more}
    return {"role": "agent", "parts": [{"type": "text", "text": words}]}


def task(task_id: str, state: str, words: str, generation: str) -> Json:
    """A task of the agent, in the context `c-1`."""
    name = f"TASK_STATE_{state.upper().replace('-', '_')}" if generation == "1.0" else state
    status = {"state": name, "message": said(words, generation)}
    if generation == "0.1":
        return {"id": task_id, "sessionId": "c-1", "status": status}
    bare = {"id": task_id, "contextId": "c-1", "status": status}
    return {"kind": "task", **bare} if generation == "0.3" else bare


@dataclass
class Conversing:
    """Answers with a message or with a task, and remembers the ids in its requests."""

    generation: str
    in_tasks: bool
    asks: bool = False
    """Whether its first answer is a task that asks, whatever the others are."""
    asked: list[Json] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)

    def __call__(self, method: str, params: Json) -> list[Json]:
        if method in ("GetTask", "tasks/get"):
            return [self._task(params["id"])]
        self.methods.append(method)
        self.asked.append(about := self._about(params))
        if not (self.in_tasks or self._is_asking):
            answer = said(self._words, self.generation, contextId="c-1")
            return [{"message": answer} if self.generation == "1.0" else answer]
        held = self._task(about.get("id") or about.get("taskId") or f"t-{len(self.asked)}")
        return [{"task": held} if self.generation == "1.0" else held]

    @property
    def _words(self) -> str:
        return f"turn {len(self.asked)}"

    @property
    def _is_asking(self) -> bool:
        return self.asks and len(self.asked) == 1

    def _task(self, task_id: str) -> Json:
        return task(
            task_id, "input-required" if self._is_asking else "completed", self._words, self.generation
        )

    def _about(self, params: Json) -> Json:
        """What a message names: a context, a task, tasks before."""
        message = params["message"]
        if self.generation != "0.1":
            return {
                name: message[name] for name in ("contextId", "taskId", "referenceTaskIds") if name in message
            }
        note = message.get("metadata", {}).get(NOTE, {})
        before = {"referenceTaskIds": note["referenceTaskIds"]} if "referenceTaskIds" in note else {}
        return {"id": params["id"], "contextId": params.get("sessionId"), **before}

    def serve(self, *, streaming: bool) -> AbstractAsyncContextManager[str]:
        """Its URL, as long as this is entered."""
        card = {"capabilities": {"streaming": streaming}}
        is_older, is_first = self.generation == "0.3", self.generation == "0.1"
        return scripted_agent(self, card, is_older=is_older, is_first=is_first)


@pytest.mark.proves("map-either-answer", "a2a03-6-objects")
@pytest.mark.parametrize(
    ("generation", "in_tasks"),
    [("1.0", False), ("1.0", True), ("0.3", False), ("0.3", True), ("0.1", True)],
)
@pytest.mark.parametrize("streaming", [False, True], ids=["polled", "streamed"])
@pytest.mark.smoke("polled-*-True", "streamed-1.0-False")
async def test_a_task_is_read_again_by_the_id_that_the_agent_named(
    generation: str, in_tasks: bool, streaming: bool, tmp_path: Path
) -> None:
    agent = Conversing(generation, in_tasks)
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            agent.serve(streaming=streaming) as url,
            exposing(tmp_path, url) as there,
            there.client("auto") as host,
        ):
            first = await host.call_tool("act", {"message": "go"})
            words = [block.text for block in first.content]
            assert words[0] == "turn 1"
            context = words[1].rpartition(" ")[2].rstrip(")")
            second = await host.call_tool("act", {"message": "on", "context": context})
            assert second.content[0].text == "turn 2"
    begun, again = agent.asked
    if generation == "0.1":
        assert again == {"id": again["id"], "contextId": "c-1", "referenceTaskIds": [begun["id"]]}
        assert again["id"] != begun["id"]
    else:
        assert begun == {}
        assert again == {"contextId": "c-1", **({"referenceTaskIds": ["t-1"]} if in_tasks else {})}
    assert agent.methods == [METHODS[generation][streaming]] * 2


@pytest.mark.proves("map-either-answer", "map-ask-back")
@pytest.mark.parametrize(
    ("generation", "in_tasks"),
    [("1.0", False), ("1.0", True), ("0.3", False), ("0.3", True), ("0.1", True)],
)
@pytest.mark.parametrize("streaming", [False, True], ids=["polled", "streamed"])
@pytest.mark.smoke("polled-*-True", "streamed-1.0-False")
async def test_a_task_that_asks_is_answered_by_its_id_and_may_be_ended_with_a_message(
    generation: str, in_tasks: bool, streaming: bool, tmp_path: Path
) -> None:
    agent = Conversing(generation, in_tasks, asks=True)
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            agent.serve(streaming=streaming) as url,
            exposing(tmp_path, url) as there,
            there.client("auto") as host,
        ):
            asked = await host.call_tool("act", {"message": "go"})
            words = asked.content[0].text
            assert words.startswith("turn 1")
            handle = words.partition("handle: ")[2].split()[0]
            done = await host.call_tool("task_reply", {"handle": handle, "message": "3"})
    assert done.content[0].text == "turn 2"
    begun, again = agent.asked
    if generation == "0.1":
        assert again == {**begun, "contextId": "c-1"}
    else:
        assert again == {"contextId": "c-1", "taskId": "t-1"}


class SamplesAgent:
    """Answers as the agents of the 2025 samples do: it asks once, then gives what it was told, in pieces."""

    def __init__(self) -> None:
        self.asked: list[Json] = []

    def __call__(self, method: str, params: Json) -> list[Json]:
        self.asked.append({"method": method, **{name: params.get(name) for name in ("id", "sessionId")}})
        question = {"role": "agent", "parts": [{"type": "text", "text": "How many?"}]}
        asks = {"state": "input-required", "message": question, "timestamp": "2025-04-02T16:59:25.331844"}
        done = {"state": "completed", "timestamp": "2025-04-02T16:59:26.331844"}
        pieces: list[Json] = [
            {"parts": [{"type": "text", "text": "so "}], "index": 0, "append": False},
            {"parts": [{"type": "text", "text": "many"}], "index": 0, "append": True, "lastChunk": True},
        ]
        about = {"id": params["id"]}
        is_first = len(self.asked) == 1
        if method == "tasks/sendSubscribe":
            if is_first:
                return [{**about, "status": asks, "final": True}]
            return [
                *({**about, "artifact": piece} for piece in pieces),
                {**about, "status": done, "final": True},
            ]
        has_ended = len([one for one in self.asked if one["method"] != "tasks/get"]) > 1
        task = {**about, "sessionId": params.get("sessionId"), "status": done if has_ended else asks}
        return [{**task, "artifacts": pieces} if has_ended else task]


@pytest.mark.proves("a2a01-7.1.1-continued")
@pytest.mark.proves("map-first-generation")
@pytest.mark.parametrize("streaming", [False, True], ids=["polled", "streamed"])
async def test_an_agent_of_the_first_generation_asks_and_is_answered(streaming: bool, tmp_path: Path) -> None:
    agent = SamplesAgent()
    card = {"capabilities": {"streaming": streaming}}
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            scripted_agent(agent, card, is_first=True) as url,
            exposing(tmp_path, url) as there,
            there.client("auto") as host,
        ):
            asked = await host.call_tool("act", {"message": "go"})
            words = asked.content[0].text
            assert words.startswith("How many?")
            handle = words.partition("handle: ")[2].split()[0]
            done = await host.call_tool("task_reply", {"handle": handle, "message": "3"})
    assert done.content[0].text == "so many"
    assert len({one["id"] for one in agent.asked}) == 1
    assert {one["method"] for one in agent.asked} <= {
        "tasks/sendSubscribe" if streaming else "tasks/send",
        "tasks/get",
    }
    assert agent.asked[0]["sessionId"]
