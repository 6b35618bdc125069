"""fasta2a as a client."""

import asyncio
from typing import Any
from uuid import uuid4

import contract as c
import httpx
from fasta2a.client import A2AClient
from fasta2a.schema import Message, Part

NO_CANCEL = "A2AClient can send, stream and read tasks, but has no call for tasks/cancel"


async def connected(url: str) -> A2AClient:
    """A client by the card, which is fetched in a thread: it blocks."""
    http = httpx.AsyncClient(timeout=c.SECONDS)
    return await asyncio.to_thread(A2AClient, url, http, fetch_card=True)


def message(parts: tuple[Part, ...], **fields: Any) -> Message:
    return Message(role="user", parts=[*parts], kind="message", message_id=uuid4().hex, **fields)


async def sent(url: str, *parts: Part, **fields: Any) -> Any:
    """The task that a message made, once it has settled."""
    answer = await (await connected(url)).send_message(message(parts, **fields))
    c.check("result" in answer, answer)
    return answer["result"].get("task", answer["result"])


def given(task: Any) -> list[Any]:
    c.check(task["status"]["state"] == "completed", f"the task is {task['status']}")
    return [part for artifact in task["artifacts"] for part in artifact["parts"]]


def words_in(parts: list[Any]) -> str:
    return "".join(part.get("text", "") for part in parts)


async def card(url: str) -> None:
    read = (await connected(url)).agent_card
    c.check({skill["id"] for skill in read["skills"]} == c.SKILLS, read)


async def text(url: str) -> None:
    gave = words_in(given(await sent(url, Part(text=c.TEXT))))
    c.check(gave == c.TEXT_GIVES, gave)


async def data(url: str) -> None:
    gave = [part["data"] for part in given(await sent(url, Part(data=c.DATA))) if "data" in part]
    c.check(gave == [c.DATA_GIVES], gave)


async def file(url: str) -> None:
    sends = Part(raw=c.WORDS["file_base64"], filename=c.FILE_NAME, media_type=c.FILE_TYPE)
    parts = given(await sent(url, Part(data={"skill": c.FILE_SKILL, "arguments": {}}), sends))
    gave = [part["raw"] for part in parts if "raw" in part]
    c.check(gave == [c.WORDS["file_base64"]], parts)


async def stream(url: str) -> None:
    seen, gave = [], []
    async for answer in (await connected(url)).stream_message(message((Part(text=c.STREAM),))):
        c.check("result" in answer, answer)
        event = answer["result"]
        status = event.get("status_update", {}).get("status", {})
        seen += [words_in(status["message"]["parts"])] if "message" in status else []
        gave += (
            [words_in(event["artifact_update"]["artifact"]["parts"])] if "artifact_update" in event else []
        )
    c.check(seen[:3] == c.STEPS, seen)
    c.check(gave == [c.STREAM_GIVES], gave)


async def ask(url: str) -> None:
    task = await sent(url, Part(text=c.ASK))
    c.check(task["status"]["state"] == "input-required", task["status"])
    c.check(c.QUESTION in words_in(task["status"]["message"]["parts"]), task["status"])
    ids = {"task_id": task["id"], "context_id": task["context_id"]}
    gave = words_in(given(await sent(url, Part(text=c.ANSWER), **ids)))
    c.check(gave == c.ASK_GIVES, gave)


async def fail(url: str) -> None:
    task = await sent(url, Part(text=c.FAIL))
    c.check(task["status"]["state"] == "failed", task["status"])
    c.check(c.FAIL_GIVES in words_in(task["status"]["message"]["parts"]), task["status"])


async def turns(url: str) -> None:
    first = await sent(url, Part(text=c.TURNS[0]))
    second = await sent(url, Part(text=c.TURNS[1]), context_id=first["context_id"])
    c.check((words_in(given(first)), words_in(given(second))) == c.TURNS_GIVE, (first, second))


c.play(
    {
        "card": card,
        "text": text,
        "data": data,
        "file": file,
        "stream": stream,
        "ask": ask,
        "fail": fail,
        "turns": turns,
    },
    cannot={"cancel": NO_CANCEL},
)
