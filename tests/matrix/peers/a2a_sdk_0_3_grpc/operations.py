"""a2a-sdk 0.3 over gRPC: each operation once, and what came of it as a line of JSON. 0.3 has no list of tasks over
gRPC, and this SDK cannot delete a push configuration."""

import asyncio
import json
import sys
from typing import Any
from uuid import uuid4

import grpc
import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import (
    DataPart,
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationConfig,
    Role,
    Task,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
)
from grpc import aio

URL, HOOK = sys.argv[1:3]


def calling(skill: str, **arguments: Any) -> Message:
    part = Part(root=DataPart(data={"skill": skill, "arguments": arguments}))
    return Message(message_id=str(uuid4()), role=Role.user, parts=[part])


async def refused(call: Any) -> str:
    try:
        await call
    except grpc.RpcError as exc:
        return exc.code().name
    return "not refused"


async def all_operations(sending: Client, streaming: Client) -> dict[str, Any]:
    came: dict[str, Any] = {}
    ((task, _),) = [one async for one in sending.send_message(calling("echo", message="grüße"))]
    assert isinstance(task, Task)
    came["send"] = [task.status.state.value, task.artifacts[0].parts[0].root.text]
    came["get"] = (await sending.get_task(TaskQueryParams(id=task.id))).id == task.id

    begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    states: list[str] = []

    async def follow() -> None:
        async for now, _ in streaming.send_message(
            calling("trigger-long-running-operation", duration=300, steps=15000)
        ):
            states.append(now.status.state.value)
            if states[-1] == "working" and not begun.done():
                begun.set_result(now.id)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        long_id = await begun
        config = PushNotificationConfig(id="hook", url=HOOK)
        made = TaskPushNotificationConfig(task_id=long_id, push_notification_config=config)
        await sending.set_task_callback(made)
        named = GetTaskPushNotificationConfigParams(id=long_id, push_notification_config_id="hook")
        got = await sending.get_task_callback(named)
        came["push"] = [got.push_notification_config.url == HOOK]
        subscribed = aiter(streaming.resubscribe(TaskIdParams(id=long_id)))
        first, _ = await anext(subscribed)
        cancelled = await sending.cancel_task(TaskIdParams(id=long_id))
        seen = [now async for now, _ in subscribed]
        came["cancel"] = cancelled.status.state.value
        came["subscribe"] = [first.kind, seen[-1].status.state.value]
    came["stream"] = [states[0], states[-1]]
    came["errors"] = [
        await refused(sending.get_task(TaskQueryParams(id="nobodys"))),
        await refused(sending.cancel_task(TaskIdParams(id=task.id))),
    ]
    return came


async def main() -> None:
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, URL).get_agent_card()
        clients = [
            ClientFactory(
                ClientConfig(
                    streaming=streaming,
                    httpx_client=http,
                    supported_transports=["GRPC"],
                    grpc_channel_factory=aio.insecure_channel,
                )
            ).create(card)
            for streaming in (False, True)
        ]
        print(json.dumps(await all_operations(*clients)))


asyncio.run(main())
