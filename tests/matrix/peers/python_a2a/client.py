"""python-a2a as a client."""

import asyncio
from typing import Any

import contract as c
from python_a2a import A2AClient, Message, MessageRole, TextContent

TEXT_ALONE = "a message of python-a2a has one content: text, or the call of a function"
NO_TASK = "A2AClient returns the answer as a message, without its task"


def connected(url: str) -> A2AClient:
    """A client in the one of its two dialects that is of A2A: in the other it speaks to its own servers alone."""
    return A2AClient(url, timeout=c.SECONDS, google_a2a_compatible=True)


async def said(url: str, words: str) -> str:
    return await asyncio.to_thread(connected(url).ask, words)


async def card(url: str) -> None:
    read = (await asyncio.to_thread(connected, url)).get_agent_card()
    c.check({skill.id for skill in read.skills} == c.SKILLS, read)


async def text(url: str) -> None:
    gave = await said(url, c.TEXT)
    c.check(gave == c.TEXT_GIVES, gave)


async def stream(url: str) -> None:
    there = await asyncio.to_thread(connected, url)
    message = Message(content=TextContent(text=c.STREAM), role=MessageRole.USER)
    chunks: list[Any] = [chunk async for chunk in there.stream_response(message)]
    c.check(all(step in str(chunks) for step in c.STEPS), chunks)
    c.check(c.STREAM_GIVES in str(chunks[-1]), chunks)


async def fail(url: str) -> None:
    gave = await said(url, c.FAIL)
    c.check(gave == f"Error: {c.FAIL_GIVES}", gave)


c.play(
    {"card": card, "text": text, "stream": stream, "fail": fail},
    cannot={
        "data": TEXT_ALONE,
        "file": TEXT_ALONE,
        "ask": NO_TASK,
        "cancel": NO_TASK,
        "turns": NO_TASK,
    },
)
