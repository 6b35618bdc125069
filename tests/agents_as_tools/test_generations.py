"""Agents of each generation behind tools: what is sent to them is of theirs, and so is what they answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.exposing import exposing
from tests.support.scripted_agent import Json, scripted_agent

WAIT_SECONDS = 20
each_generation = pytest.mark.parametrize("is_older", [False, True], ids=["1.0", "0.3"])


def said(words: str, is_older: bool, **more: Any) -> Json:
    """A message of the agent."""
    if is_older:
        part, kind, role = {"kind": "text", "text": words}, {"kind": "message"}, "agent"
    else:
        part, kind, role = {"text": words}, {}, "ROLE_AGENT"
    return {**kind, "messageId": f"a-{words}", "role": role, "parts": [part], **more}


class Conversing:
    """Answers with a message or with a task, and says what it was asked by."""

    def __init__(self, *, in_tasks: bool, is_older: bool) -> None:
        self.asked: list[Json] = []
        self.methods: list[str] = []
        self._in_tasks = in_tasks
        self._is_older = is_older

    def __call__(self, method: str, params: Json) -> list[Json]:
        self.methods.append(method)
        message = params["message"]
        self.asked.append({name: message[name] for name in _ABOUT if name in message})
        words = f"turn {len(self.asked)}"
        if not self._in_tasks:
            answer = said(words, self._is_older, contextId="c-1")
            return [answer if self._is_older else {"message": answer}]
        state = "completed" if self._is_older else "TASK_STATE_COMPLETED"
        status = {"state": state, "message": said(words, self._is_older)}
        task = {"id": f"t-{len(self.asked)}", "contextId": "c-1", "status": status}
        return [{"kind": "task", **task} if self._is_older else {"task": task}]


_ABOUT = ("contextId", "taskId", "referenceTaskIds")


@pytest.mark.proves("map-either-answer", "a2a03-6-objects")
@each_generation
@pytest.mark.parametrize("in_tasks", [False, True], ids=["messages", "tasks"])
@pytest.mark.parametrize("streaming", [False, True], ids=["polled", "streamed"])
async def test_an_agent_is_asked_again_by_the_id_that_its_answer_named(
    is_older: bool, in_tasks: bool, streaming: bool, tmp_path: Path
) -> None:
    agent = Conversing(in_tasks=in_tasks, is_older=is_older)
    card = {"capabilities": {"streaming": streaming}}
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            scripted_agent(agent, card, is_older=is_older) as url,
            exposing(tmp_path, url) as there,
            there.client("auto") as host,
        ):
            first = await host.call_tool("act", {"message": "go"})
            words = [block.text for block in first.content]
            assert words[0] == "turn 1"
            context = words[1].rpartition(" ")[2].rstrip(")")
            second = await host.call_tool("act", {"message": "on", "context": context})
            assert second.content[0].text == "turn 2"
    again = {"contextId": "c-1", **({"referenceTaskIds": ["t-1"]} if in_tasks else {})}
    assert agent.asked == [{}, again]
    streamed, sent = (
        ("message/stream", "message/send") if is_older else ("SendStreamingMessage", "SendMessage")
    )
    assert agent.methods == [streamed if streaming else sent] * 2


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
