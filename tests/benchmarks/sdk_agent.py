"""The contestant: a minimal agent made with a2a-sdk that does what the bridge does, with one MCP SDK client.

It opens one `mcp.Client` at its start. A message names a tool and its arguments as it does for the bridge; each
report of the tool's progress becomes a status update, its result an artifact, and the task is completed.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from a2a.helpers import get_data_parts, new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskStore, TaskUpdater
from a2a.types import a2a_pb2
from mcp import Client, StdioServerParameters
from mcp_types import TextContent
from starlette.applications import Starlette

from tests.benchmarks.like_bridge import serve

_LOCK_SECONDS: Final = 60
"""For SQLite's lock, not the default of 5 s: 32 tasks that write at once are to be slow, not an error."""


class ToolExecutor(AgentExecutor):
    """Calls the tool that the message names."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        (call,) = get_data_parts(context.message.parts)
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)

        async def report(progress: float, total: float | None, message: str | None) -> None:
            await updater.start_work(updater.new_agent_message([new_text_part(message or "")]))

        # A progress token makes the tool report; a call that is not streamed goes without, as the cheaper one.
        callback = report if call["skill"] in ("flood", "progress") else None
        arguments = {name: _narrowed(value) for name, value in call["arguments"].items()}
        result = await self._client.call_tool(call["skill"], arguments, progress_callback=callback)
        parts = [new_text_part(block.text) for block in result.content if isinstance(block, TextContent)]
        await updater.add_artifact(parts, name="result", last_chunk=True)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError("nothing here is cancelled")


def _narrowed(value: Any) -> Any:
    """A whole number as such: protobuf knows only doubles."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


@asynccontextmanager
async def opened_store(place: str) -> AsyncIterator[TaskStore]:
    """a2a-sdk's store in memory, or in a SQLite file."""
    if place == "memory:":
        yield InMemoryTaskStore()
        return
    # Only here, as these need the extra `bench`.
    from a2a.server.tasks import DatabaseTaskStore
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(f"sqlite+aiosqlite:///{place}", connect_args={"timeout": _LOCK_SECONDS})
    store = DatabaseTaskStore(engine)
    await store.initialize()
    try:
        yield store
    finally:
        await engine.dispose()


def agent_card(url: str) -> a2a_pb2.AgentCard:
    """The card: JSON-RPC, streaming, one skill."""
    return a2a_pb2.AgentCard(
        name="sdk-agent",
        description="Calls a tool.",
        version="1.0.0",
        supported_interfaces=[
            a2a_pb2.AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=a2a_pb2.AgentCapabilities(streaming=True),
        default_input_modes=["application/json"],
        default_output_modes=["text/plain"],
        skills=[a2a_pb2.AgentSkill(id="echo", name="Echo", description="Echoes.", tags=["test"])],
    )


async def run(port: int, place: str, command: list[str]) -> None:
    """Open the client and the store, and serve."""
    server = StdioServerParameters(command=command[0], args=command[1:])
    async with Client(server, mode="legacy") as client, opened_store(place) as store:
        card = agent_card(f"http://127.0.0.1:{port}")
        handler = DefaultRequestHandler(ToolExecutor(client), store, card)
        await serve(
            Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")]), port
        )


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.sdk_agent", description="An agent with a2a-sdk.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--store", default="memory:", help="memory: or the path of a SQLite file")
    parser.add_argument("command", nargs="+", help="the MCP server on stdio")
    options = parser.parse_args()
    anyio.run(run, options.port, options.store, options.command)


if __name__ == "__main__":
    main()
