"""An agent built on the official Python SDK, to be a stranger in tests: it says back what it is told.

Knows a2a-sdk's server. The first word of the message chooses the behaviour:

    wait    works until it is cancelled
    ask     asks for input; the answer is what is echoed
    fail    fails
    say     answers with a Message, without a task
    (else)  a Task, three WORKING updates, an artifact with the text, COMPLETED

`python -m tests.peers.echo_agent --port 0` prints its URL on one line and serves until it is ended.
"""

import argparse
import socket
from typing import Final

import anyio
import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2
from starlette.applications import Starlette

HOST: Final = "127.0.0.1"
STEPS: Final = 3
ARTIFACT_ID: Final = "echo"
REST_PREFIX: Final = "/rest"


class EchoExecutor(AgentExecutor):
    """The agent's behaviour, chosen by the first word; see the module."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        text = context.get_user_input()
        word = text.partition(" ")[0]
        if word == "say":
            await event_queue.enqueue_event(new_text_message(text, context_id=context.context_id))
            return
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        if word == "wait":
            await updater.start_work()
            await anyio.sleep_forever()
        elif word == "ask":
            await updater.requires_input(updater.new_agent_message([new_text_part("What then?")]))
        elif word == "fail":
            await updater.failed(updater.new_agent_message([new_text_part(text)]))
        else:
            await echo(text, updater)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def echo(text: str, updater: TaskUpdater) -> None:
    """Report three steps, then deliver the text."""
    for step in range(1, STEPS + 1):
        await updater.start_work(updater.new_agent_message([new_text_part(f"step {step} of {STEPS}")]))
    await updater.add_artifact([new_text_part(text)], artifact_id=ARTIFACT_ID, name="echo", last_chunk=True)
    await updater.complete()


def agent_card(url: str) -> a2a_pb2.AgentCard:
    """Return the card of the agent at `url`: both HTTP bindings of 1.0, streaming, one skill."""
    return a2a_pb2.AgentCard(
        name="echo",
        description="Says back what it is told.",
        version="1.0.0",
        supported_interfaces=[
            a2a_pb2.AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version="1.0"),
            a2a_pb2.AgentInterface(
                url=f"{url}{REST_PREFIX}", protocol_binding="HTTP+JSON", protocol_version="1.0"
            ),
        ],
        capabilities=a2a_pb2.AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[
            a2a_pb2.AgentSkill(
                id="echo", name="Echo", description="Says back what it is told.", tags=["test"]
            )
        ],
    )


def build_app(url: str) -> Starlette:
    """Return the agent as an ASGI application that will be served at `url`."""
    card = agent_card(url)
    handler = DefaultRequestHandler(EchoExecutor(), InMemoryTaskStore(), card)
    return Starlette(
        routes=[
            *create_agent_card_routes(card),
            *create_jsonrpc_routes(handler, "/"),
            *create_rest_routes(handler, path_prefix=REST_PREFIX),
        ]
    )


def main() -> None:
    """Bind, print the URL, serve."""
    parser = argparse.ArgumentParser(prog="echo_agent", description="The echo agent.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    with socket.create_server((HOST, parser.parse_args().port)) as listener:
        url = f"http://{HOST}:{listener.getsockname()[1]}"
        print(url, flush=True)
        config = uvicorn.Config(build_app(url), log_level="warning", ws="none", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
