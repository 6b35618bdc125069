"""a2a-sdk 1.x as an agent, over JSON-RPC and HTTP+JSON, or over gRPC where `BINDING` says so."""

import asyncio
import json
from collections import defaultdict
from typing import Any

import contract as c
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette


def words_of(part: a2a_pb2.Part) -> str:
    kind = part.WhichOneof("content")
    if kind == "data":
        return json.dumps(MessageToDict(part.data))
    return part.raw.decode() if kind == "raw" else getattr(part, kind)


class Executor(AgentExecutor):
    def __init__(self) -> None:
        self.said: dict[str, list[str]] = defaultdict(list)

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = context.current_task
        words = " ".join(words_of(part) for part in context.message.parts)
        if is_new := task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        self.said[task.context_id].append(words)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        if words.startswith("ask") and is_new:
            await updater.requires_input(updater.new_agent_message([new_text_part(c.QUESTION)]))
        elif words.startswith("fail"):
            await updater.failed(updater.new_agent_message([new_text_part(c.FAIL_GIVES)]))
        elif words.startswith("wait"):
            await asyncio.Event().wait()
        else:
            words = " | ".join(self.said[task.context_id]) if words.startswith("recall") else words
            await updater.add_artifact([new_text_part(f"You said: {words}")])
            await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


bound = c.listener()
url = c.url_of(bound)
beside = c.GrpcBeside() if globals().get("BINDING") == "GRPC" else None
over_http = [
    a2a_pb2.AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version="1.0"),
    a2a_pb2.AgentInterface(url=f"{url}/rest", protocol_binding="HTTP+JSON", protocol_version="1.0"),
]
over_grpc = [
    a2a_pb2.AgentInterface(url=one.place, protocol_binding="GRPC", protocol_version="1.0")
    for one in filter(None, [beside])
]
card = a2a_pb2.AgentCard(
    name="a2a-sdk",
    description="Says back what it is told.",
    version="1.0.0",
    supported_interfaces=over_grpc or over_http,
    capabilities=a2a_pb2.AgentCapabilities(streaming=True),
    default_input_modes=["text/plain", "application/json"],
    default_output_modes=["text/plain"],
    skills=[a2a_pb2.AgentSkill(id="chat", name="Chat", description="Says it back.", tags=["test"])],
)
handler = DefaultRequestHandler(Executor(), InMemoryTaskStore(), card)
routes = [
    *create_agent_card_routes(card),
    *create_jsonrpc_routes(handler, "/"),
    *create_rest_routes(handler, path_prefix="/rest"),
]


def add_service(server: Any) -> None:
    from a2a.server.request_handlers import GrpcHandler
    from a2a.types import a2a_pb2_grpc

    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)


c.serve(Starlette(routes=routes, lifespan=beside and beside.run(add_service)), bound)
