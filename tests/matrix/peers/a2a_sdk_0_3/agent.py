"""a2a-sdk 0.3 as an agent, over JSON-RPC, or over gRPC where `BINDING` says so."""

import asyncio
import base64
import json
from collections import defaultdict
from typing import Any

import contract as c
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Part, TextPart
from a2a.utils import new_task


def words_of(part: Part) -> str:
    if part.root.kind == "file":
        return base64.b64decode(part.root.file.bytes).decode()
    return part.root.text if part.root.kind == "text" else json.dumps(part.root.data)


def text(words: str) -> list[Part]:
    return [Part(root=TextPart(text=words))]


class Executor(AgentExecutor):
    def __init__(self) -> None:
        self.said: dict[str, list[str]] = defaultdict(list)

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = context.current_task
        words = " ".join(words_of(part) for part in context.message.parts)
        if is_new := task is None:
            task = new_task(context.message)
            await event_queue.enqueue_event(task)
        self.said[task.context_id].append(words)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        if words.startswith("ask") and is_new:
            await updater.requires_input(updater.new_agent_message(text(c.QUESTION)), final=True)
        elif words.startswith("fail"):
            await updater.failed(updater.new_agent_message(text(c.FAIL_GIVES)))
        elif words.startswith("wait"):
            await asyncio.Event().wait()
        else:
            words = " | ".join(self.said[task.context_id]) if words.startswith("recall") else words
            await updater.add_artifact(text(f"You said: {words}"))
            await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


bound = c.listener()
beside = c.GrpcBeside() if globals().get("BINDING") == "GRPC" else None
card = AgentCard(
    name="a2a-sdk",
    description="Says back what it is told.",
    version="1.0.0",
    url=beside.place if beside else c.url_of(bound),
    preferred_transport="GRPC" if beside else "JSONRPC",
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain", "application/json"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="chat", name="Chat", description="Says it back.", tags=["test"])],
)
handler = DefaultRequestHandler(Executor(), InMemoryTaskStore())


def add_service(server: Any) -> None:
    from a2a.grpc import a2a_pb2_grpc
    from a2a.server.request_handlers import GrpcHandler

    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(card, handler), server)


lifespan = {"lifespan": beside.run(add_service)} if beside else {}
c.serve(A2AStarletteApplication(card, handler).build(**lifespan), bound)
