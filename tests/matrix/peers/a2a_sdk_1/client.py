"""a2a-sdk 1.x as a client, over JSON-RPC, or over the binding in the global `BINDING`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import contract as c
import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.helpers import new_data_part, new_raw_part, new_text_message, new_text_part
from a2a.types import a2a_pb2
from a2a.types.a2a_pb2 import TaskState
from google.protobuf.json_format import MessageToDict


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
        supported_protocol_bindings=["GRPC"],
        grpc_channel_factory=aio.insecure_channel,
    )


def message(*parts: a2a_pb2.Part, **fields: Any) -> a2a_pb2.SendMessageRequest:
    made = new_text_message("", role=a2a_pb2.ROLE_USER)
    del made.parts[:]
    made.parts.extend(parts)
    made.MergeFrom(a2a_pb2.Message(**fields))
    return a2a_pb2.SendMessageRequest(message=made)


async def sent(url: str, *parts: a2a_pb2.Part, **fields: Any) -> a2a_pb2.Task:
    """The task that a message made, once it has settled."""
    async with client(url) as there:
        (answer,) = [one async for one in there.send_message(message(*parts, **fields))]
        return answer.task


def given(task: a2a_pb2.Task) -> list[a2a_pb2.Part]:
    c.check(task.status.state == TaskState.TASK_STATE_COMPLETED, f"the task is {MessageToDict(task.status)}")
    return [part for artifact in task.artifacts for part in artifact.parts]


def words(task: a2a_pb2.Task) -> str:
    return "".join(part.text for part in given(task))


async def card(url: str) -> None:
    async with httpx.AsyncClient() as http:
        read = await A2ACardResolver(http, url).get_agent_card()
    c.check({skill.id for skill in read.skills} == c.SKILLS, read)


async def text(url: str) -> None:
    gave = words(await sent(url, new_text_part(c.TEXT)))
    c.check(gave == c.TEXT_GIVES, gave)


async def plain(url: str) -> None:
    gave = words(await sent(url, new_text_part(c.PLAIN)))
    c.check(gave == c.PLAIN_GIVES, gave)


async def data(url: str) -> None:
    parts = given(await sent(url, new_data_part(c.DATA)))
    gave = [MessageToDict(part.data) for part in parts if part.HasField("data")]
    c.check(gave == [c.DATA_GIVES], gave)


async def file(url: str) -> None:
    sends = new_raw_part(c.FILE_BYTES, media_type=c.FILE_TYPE, filename=c.FILE_NAME)
    parts = given(await sent(url, new_data_part({"skill": c.FILE_SKILL, "arguments": {}}), sends))
    gave = [part.raw for part in parts if part.HasField("raw")]
    c.check(gave == [c.FILE_BYTES], gave)


async def stream(url: str) -> None:
    seen, gave = [], []
    async with client(url, streaming=True) as there:
        async for event in there.send_message(message(new_text_part(c.STREAM))):
            seen += [part.text for part in event.status_update.status.message.parts if part.text]
            gave += [part.text for part in event.artifact_update.artifact.parts]
    c.check(seen[:3] == c.STEPS, seen)
    c.check(gave == [c.STREAM_GIVES], gave)


async def ask(url: str) -> None:
    task = await sent(url, new_text_part(c.ASK))
    c.check(task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED, task.status)
    c.check(c.QUESTION in "".join(part.text for part in task.status.message.parts), task.status)
    gave = words(await sent(url, new_text_part(c.ANSWER), task_id=task.id))
    c.check(gave == c.ASK_GIVES, gave)


async def fail(url: str) -> None:
    task = await sent(url, new_text_part(c.FAIL))
    c.check(task.status.state == TaskState.TASK_STATE_FAILED, task.status)
    c.check(c.FAIL_GIVES in "".join(part.text for part in task.status.message.parts), task.status)


async def cancel(url: str) -> None:
    begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    states = []

    async def follow(there: Client) -> None:
        async for event in there.send_message(message(new_text_part(c.CANCEL))):
            kind = event.WhichOneof("payload")
            states.append(getattr(event, kind).status.state)
            if event.status_update.status.message.parts and not begun.done():
                begun.set_result(event.status_update.task_id)

    async with client(url, streaming=True) as there, asyncio.TaskGroup() as tasks:
        tasks.create_task(follow(there))
        task = await there.cancel_task(a2a_pb2.CancelTaskRequest(id=await begun))
    c.check(task.status.state == TaskState.TASK_STATE_CANCELED, task.status)
    c.check(states[-1] == TaskState.TASK_STATE_CANCELED, states)


async def turns(url: str) -> None:
    first = await sent(url, new_text_part(c.TURNS[0]))
    second = await sent(url, new_text_part(c.TURNS[1]), context_id=first.context_id)
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
