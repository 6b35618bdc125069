"""Strands Agents as a client: `A2AAgent`."""

from typing import Any

import contract as c
from strands.agent.a2a_agent import A2AAgent

NO_CANCEL = "A2AAgent has no way to cancel a task"
NO_DATA = "a message of Strands cannot hold data"
NO_FILE = "A2AAgent sends only the text blocks of a message"
NO_CONTEXT = "A2AAgent sends no contextId, so each call is a new conversation"
NO_ANSWER = "A2AAgent shows the question, but cannot answer it: it sends no taskId"


def words(result: Any) -> str:
    return "".join(block.get("text", "") for block in result.message["content"])


async def card(url: str) -> None:
    read = await A2AAgent(url).get_agent_card()
    c.check({skill.id for skill in read.skills} == c.SKILLS, read)


async def text(url: str) -> None:
    gave = words(await A2AAgent(url).invoke_async(c.TEXT))
    c.check(gave == c.TEXT_GIVES, gave)


async def stream(url: str) -> None:
    seen, result = [], None
    async for event in A2AAgent(url).stream_async(c.STREAM):
        if event.get("type") == "a2a_stream":
            _, update = event["event"]
            message = getattr(getattr(update, "status", None), "message", None)
            seen += [part.root.text for part in message.parts] if message else []
        result = event.get("result", result)
    c.check(seen[:3] == c.STEPS, seen)
    c.check(words(result) == c.STREAM_GIVES, words(result))


async def ask(url: str) -> None:
    result = await A2AAgent(url).invoke_async(c.ASK)
    c.check(c.QUESTION in words(result) or c.QUESTION in str(result.interrupts), result)
    raise c.Cannot(NO_ANSWER)


async def fail(url: str) -> None:
    result = await A2AAgent(url).invoke_async(c.FAIL)
    c.check(c.FAIL_GIVES in words(result), result)
    c.check("failed" in str(result.state), f"the failure looks like an answer: {result}")


c.play(
    {"card": card, "text": text, "stream": stream, "ask": ask, "fail": fail},
    cannot={"data": NO_DATA, "file": NO_FILE, "cancel": NO_CANCEL, "turns": NO_CONTEXT},
)
