"""a2a-sdk 0.3 as a client, over JSON-RPC, or over the binding in the global `BINDING`."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import contract as c
import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import (
    DataPart,
    FilePart,
    FileWithBytes,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskState,
    TaskStatusUpdateEvent,
    TextPart,
)


@asynccontextmanager
async def client(url: str, *, streaming: bool = False) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(timeout=c.SECONDS) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        yield ClientFactory(config(http, streaming=streaming)).create(card)


def config(http: httpx.AsyncClient, *, streaming: bool) -> ClientConfig:
    """JSON-RPC, unless a script that runs this one has set `BINDING`."""
    if globals().get("BINDING") != "GRPC":
        return ClientConfig(streaming=streaming, httpx_client=http)
    from grpc import aio  # only the environments for gRPC have it

    return ClientConfig(
        streaming=streaming,
        httpx_client=http,
        supported_transports=["GRPC"],
        grpc_channel_factory=aio.insecure_channel,
    )


def message(*parts: TextPart | DataPart | FilePart, **fields: Any) -> Message:
    return Message(
        message_id=str(uuid4()), role=Role.user, parts=[Part(root=part) for part in parts], **fields
    )


async def sent(url: str, *parts: TextPart | DataPart | FilePart, **fields: Any) -> Task:
    """The task that a message made, once it has settled."""
    async with client(url) as there:
        ((task, _),) = [one async for one in there.send_message(message(*parts, **fields))]
        return task


def given(task: Task) -> list[Any]:
    c.check(task.status.state == TaskState.completed, f"the task is {task.status}")
    return [part.root for artifact in task.artifacts for part in artifact.parts]


def is_said(message: Message | None) -> bool:
    """Whether a status has a message. Over gRPC this SDK makes an empty message of none."""
    return message is not None and bool(message.parts)


def words_in(parts: list[Part]) -> str:
    return "".join(part.root.text for part in parts if part.root.kind == "text")


def words(task: Task) -> str:
    return "".join(part.text for part in given(task))


async def card(url: str) -> None:
    async with httpx.AsyncClient() as http:
        read = await A2ACardResolver(http, url).get_agent_card()
    c.check({skill.id for skill in read.skills} == c.SKILLS, read)


async def text(url: str) -> None:
    gave = words(await sent(url, TextPart(text=c.TEXT)))
    c.check(gave == c.TEXT_GIVES, gave)


async def plain(url: str) -> None:
    gave = words(await sent(url, TextPart(text=c.PLAIN)))
    c.check(gave == c.PLAIN_GIVES, gave)


async def data(url: str) -> None:
    gave = [part.data for part in given(await sent(url, DataPart(data=c.DATA))) if part.kind == "data"]
    c.check(gave == [c.DATA_GIVES], gave)


async def file(url: str) -> None:
    content = base64.b64encode(c.FILE_BYTES).decode()
    sends = FilePart(file=FileWithBytes(bytes=content, name=c.FILE_NAME, mime_type=c.FILE_TYPE))
    parts = given(await sent(url, DataPart(data={"skill": c.FILE_SKILL, "arguments": {}}), sends))
    gave = [part.file.bytes for part in parts if part.kind == "file"]
    c.check(gave == [content], gave)


async def stream(url: str) -> None:
    seen, gave = [], []
    async with client(url, streaming=True) as there:
        async for _, update in there.send_message(message(TextPart(text=c.STREAM))):
            if isinstance(update, TaskStatusUpdateEvent) and is_said(update.status.message):
                seen.append(words_in(update.status.message.parts))
            elif isinstance(update, TaskArtifactUpdateEvent):
                gave.append(words_in(update.artifact.parts))
    c.check(seen[:3] == c.STEPS, seen)
    c.check(gave == [c.STREAM_GIVES], gave)


async def ask(url: str) -> None:
    task = await sent(url, TextPart(text=c.ASK))
    c.check(task.status.state == TaskState.input_required, task.status)
    c.check(c.QUESTION in words_in(task.status.message.parts), task.status)
    gave = words(await sent(url, TextPart(text=c.ANSWER), task_id=task.id, context_id=task.context_id))
    c.check(gave == c.ASK_GIVES, gave)


async def fail(url: str) -> None:
    task = await sent(url, TextPart(text=c.FAIL))
    c.check(task.status.state == TaskState.failed, task.status)
    c.check(c.FAIL_GIVES in words_in(task.status.message.parts), task.status)


async def cancel(url: str) -> None:
    begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    states = []

    async def follow(there: Client) -> None:
        async for task, update in there.send_message(message(TextPart(text=c.CANCEL))):
            states.append(task.status.state)
            is_update = isinstance(update, TaskStatusUpdateEvent)
            if is_update and is_said(update.status.message) and not begun.done():
                begun.set_result(task.id)

    async with client(url, streaming=True) as there, asyncio.TaskGroup() as tasks:
        tasks.create_task(follow(there))
        task = await there.cancel_task(TaskIdParams(id=await begun))
    c.check(task.status.state == TaskState.canceled, task.status)
    c.check(states[-1] == TaskState.canceled, states)


async def turns(url: str) -> None:
    first = await sent(url, TextPart(text=c.TURNS[0]))
    second = await sent(url, TextPart(text=c.TURNS[1]), context_id=first.context_id)
    c.check((words(first), words(second)) == c.TURNS_GIVE, (first, second))
    c.check(first.context_id == second.context_id and first.id != second.id, (first.id, second.id))


c.play(
    {
        "card": card,
        "text": text,
        "plain": plain,
        "data": data,
        "file": file,
        "stream": stream,
        "ask": ask,
        "fail": fail,
        "cancel": cancel,
        "turns": turns,
    }
)
