"""a2a-sdk 1.x over gRPC: each operation once, and what came of it as a line of JSON."""

import asyncio
import json
import sys
from typing import Any
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2AError
from google.protobuf.json_format import ParseDict
from grpc import aio

URL, HOOK = sys.argv[1:3]


def calling(skill: str, **arguments: Any) -> pb.SendMessageRequest:
    part = {"data": {"skill": skill, "arguments": arguments}}
    message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [part]}
    return ParseDict({"message": message}, pb.SendMessageRequest())


def state_of(status: pb.TaskStatus) -> str:
    return pb.TaskState.Name(status.state).removeprefix("TASK_STATE_").lower()


def status_in(event: pb.StreamResponse) -> pb.TaskStatus:
    return event.task.status if event.HasField("task") else event.status_update.status


async def refused(call: Any) -> str:
    try:
        await call
    except A2AError as exc:
        return type(exc).__name__
    return "not refused"


async def all_operations(sending: Client, streaming: Client) -> dict[str, Any]:
    came: dict[str, Any] = {}
    (answer,) = [one async for one in sending.send_message(calling("echo", message="grüße"))]
    task = answer.task
    came["send"] = [state_of(task.status), task.artifacts[0].parts[0].text]
    came["get"] = (await sending.get_task(pb.GetTaskRequest(id=task.id))).id == task.id
    listed = await sending.list_tasks(pb.ListTasksRequest(context_id=task.context_id))
    came["list"] = [one.id for one in listed.tasks] == [task.id]

    begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    states: list[str] = []

    async def follow() -> None:
        async for event in streaming.send_message(
            calling("trigger-long-running-operation", duration=300, steps=15000)
        ):
            states.append(state_of(status_in(event)))
            if states[-1] == "working" and not begun.done():
                begun.set_result(event.status_update.task_id)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        long_id = await begun
        came["push"] = await push_configs(sending, long_id)
        subscribed = aiter(streaming.subscribe(pb.SubscribeToTaskRequest(id=long_id)))
        first = await anext(subscribed)
        cancelled = await sending.cancel_task(pb.CancelTaskRequest(id=long_id))
        seen = [event async for event in subscribed]
        came["cancel"] = state_of(cancelled.status)
        came["subscribe"] = [first.WhichOneof("payload"), state_of(status_in(seen[-1]))]
    came["stream"] = [states[0], states[-1]]
    came["errors"] = [
        await refused(sending.get_task(pb.GetTaskRequest(id="nobodys"))),
        await refused(sending.cancel_task(pb.CancelTaskRequest(id=task.id))),
    ]
    return came


async def push_configs(client: Client, task_id: str) -> list[Any]:
    made = await client.create_task_push_notification_config(
        pb.TaskPushNotificationConfig(task_id=task_id, url=HOOK)
    )
    named = pb.GetTaskPushNotificationConfigRequest(task_id=task_id, id=made.id)
    got = await client.get_task_push_notification_config(named)
    listing = pb.ListTaskPushNotificationConfigsRequest(task_id=task_id)
    before = len((await client.list_task_push_notification_configs(listing)).configs)
    await client.delete_task_push_notification_config(
        pb.DeleteTaskPushNotificationConfigRequest(task_id=task_id, id=made.id)
    )
    after = len((await client.list_task_push_notification_configs(listing)).configs)
    return [got.url == HOOK, before, after]


async def main() -> None:
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, URL).get_agent_card()
        clients = [
            ClientFactory(
                ClientConfig(
                    streaming=streaming,
                    httpx_client=http,
                    supported_protocol_bindings=["GRPC"],
                    grpc_channel_factory=aio.insecure_channel,
                )
            ).create(card)
            for streaming in (False, True)
        ]
        print(json.dumps(await all_operations(*clients)))


asyncio.run(main())
