"""An agent built on the official Python SDK, to be a stranger in tests: a skill for each thing that agents do.

Knows a2a-sdk's server. The metadata of the first message names the skill (`skillId`), and each following message
of its task belongs to it. Who runs it in process can see what was `said` to it and which tasks were `canceled`,
and lets those go on that wait: `released` for the slow and late ones, `visited` for those that sent someone to a URL.
Must not import `bridge`.

`python -m tests.peers.sdk_behaviours --port 0` prints its URL on one line and serves until it is ended.
"""

import argparse
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import httpx
import uvicorn
from a2a.helpers import (
    new_data_part,
    new_raw_part,
    new_task_from_user_message,
    new_text_message,
    new_text_part,
    new_url_part,
)
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import a2a_pb2
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette

from tests.peers.echo_agent import HOST, REST_PREFIX

CHUNKS: Final = ("one ", "two ", "three ", "four ", "five")
PNG: Final = bytes.fromhex("89504e470d0a1a0a") + b"not really"
CSV: Final = b"a,b\n1,2\n"
REPORT_URL: Final = "https://example.com/report.pdf"
DATA: Final = {"temperature": 21.5, "unit": "C", "tags": ["mild", None]}
SIGN_IN_URL: Final = "https://example.com/sign-in?task=1"
COUNT_FORM: Final = {
    "type": "object",
    "properties": {"count": {"type": "integer", "minimum": 1}, "gift": {"type": "boolean"}},
    "required": ["count"],
}
BIG: Final = "0123456789abcdef" * 100_000
STEPS: Final = ("reading", "thinking", "writing")


@dataclass
class Seen:
    """What the agent has seen of its callers, and what it waits for."""

    said: list[dict[str, Any]] = field(default_factory=list)
    """Every message, as JSON of the wire, in order."""
    canceled: list[str] = field(default_factory=list)
    """The ids of the tasks that a caller canceled."""
    tasks: list[str] = field(default_factory=list)
    released: anyio.Event = field(default_factory=anyio.Event)
    visited: anyio.Event = field(default_factory=anyio.Event)
    begun: anyio.Event = field(default_factory=anyio.Event)
    """A slow task is at work."""
    told_of_cancel: anyio.Event = field(default_factory=anyio.Event)
    webhooks: list[str] = field(default_factory=list)
    """The URLs that callers asked to have notified."""
    webhook_set: anyio.Event = field(default_factory=anyio.Event)
    webhook_deleted: anyio.Event = field(default_factory=anyio.Event)


@dataclass
class Turn:
    """One message to a task."""

    text: str
    data: Any
    metadata: dict[str, Any]
    number: int
    """Of the message within its task, from 1."""
    update: TaskUpdater
    seen: Seen

    def words(self, *parts: Any) -> a2a_pb2.Message:
        """A message of the agent: texts, and parts as they are."""
        return self.update.new_agent_message(
            [new_text_part(part) if isinstance(part, str) else part for part in parts]
        )

    async def give(self, *parts: a2a_pb2.Part, name: str = "answer", **more: Any) -> None:
        """Give an artifact."""
        await self.update.add_artifact([*parts], name=name, **more)


async def _plain(turn: Turn) -> None:
    await turn.give(new_text_part(f"You said: {turn.text}"))
    await turn.update.complete()


async def _chunks(turn: Turn) -> None:
    for number, chunk in enumerate(CHUNKS):
        last = number == len(CHUNKS) - 1
        await turn.give(new_text_part(chunk), artifact_id="story", append=number > 0, last_chunk=last)
    await turn.update.complete()


async def _slow_chunks(turn: Turn) -> None:
    """The first two chunks; the others once it is released."""
    for number, chunk in enumerate(CHUNKS):
        if number == 2:
            turn.seen.begun.set()
            await turn.seen.released.wait()
        await turn.give(new_text_part(chunk), artifact_id="story", append=number > 0)
    await turn.update.complete()


async def _file(turn: Turn) -> None:
    await turn.give(
        new_raw_part(CSV, media_type="text/csv", filename="table.csv"),
        new_raw_part(PNG, media_type="image/png", filename="dot.png"),
        new_url_part(REPORT_URL, media_type="application/pdf", filename="report.pdf"),
    )
    await turn.update.complete()


async def _data(turn: Turn) -> None:
    await turn.give(new_data_part(DATA))
    await turn.update.complete()


async def _ask(turn: Turn) -> None:
    """First asks in words, then with a schema; a refusal of either ends it."""
    answer = next((value for key, value in turn.metadata.items() if key.endswith("/answer")), "accept")
    if turn.number > 1 and answer != "accept":
        await turn.update.reject(turn.words(f"Refused with {answer}: {turn.text}"))
    elif turn.number == 1:
        await turn.update.requires_input(turn.words("Which colour?"))
    elif turn.number == 2:
        asks = new_data_part({"schema": COUNT_FORM})
        await turn.update.requires_input(turn.words(f"How many in {turn.text}?", asks))
    else:
        counted = (turn.data or {}).get("count", turn.text)
        await turn.give(new_text_part(f"Ordered {counted}"))
        await turn.update.complete()


async def _sign_in(turn: Turn) -> None:
    """Sends to a URL and notices by itself when that was visited."""
    asks = new_data_part({"url": SIGN_IN_URL})
    await turn.update.requires_auth(turn.words("Please sign in", asks))
    await turn.seen.visited.wait()
    await turn.give(new_text_part("Signed in"))
    await turn.update.complete()


async def _sign_in_and_say(turn: Turn) -> None:
    """Sends to a URL and waits to be told; the words told are given back."""
    if turn.number == 1:
        await turn.update.requires_auth(
            turn.words("Please sign in", new_url_part(SIGN_IN_URL, media_type="text/html"))
        )
    else:
        await turn.update.reject(turn.words(f"Not signed in: {turn.text}"))


async def _password(turn: Turn) -> None:
    if turn.number == 1:
        await turn.update.requires_auth(
            turn.words("Ask your admin at https://example.com/in-prose for access")
        )
    else:
        await turn.give(new_text_part(f"Let in: {turn.text}"))
        await turn.update.complete()


async def _fail(turn: Turn) -> None:
    await turn.give(new_text_part("Half of it"))
    await turn.update.failed(turn.words("Out of paper"))


async def _reject(turn: Turn) -> None:
    await turn.update.reject(turn.words("Not my job"))


async def _give_up(turn: Turn) -> None:
    await turn.update.start_work()
    await turn.update.cancel(turn.words("I gave up"))


async def _slow(turn: Turn) -> None:
    await turn.update.start_work(turn.words("on it"))
    turn.seen.begun.set()
    await turn.seen.released.wait()
    await turn.give(new_text_part("Slow but sure"))
    await turn.update.complete()


async def _progress(turn: Turn) -> None:
    for step in STEPS:
        await turn.update.start_work(turn.words(step))
    await turn.give(new_text_part("Done in three"))
    await turn.update.complete()


def _late(behaviour: Callable[[Turn], Awaitable[None]]) -> Callable[[Turn], Awaitable[None]]:
    """The same, begun once it is released."""

    async def behave(turn: Turn) -> None:
        if turn.number == 1:
            await turn.update.start_work()
            turn.seen.begun.set()
            await turn.seen.released.wait()
        await behaviour(turn)

    return behave


async def _big(turn: Turn) -> None:
    await turn.give(new_text_part("small"), new_text_part(BIG), artifact_id="big/one")
    await turn.update.complete()


async def _big_chunks(turn: Turn) -> None:
    half = len(BIG) // 2
    await turn.give(new_text_part("small"), new_text_part(BIG[:half]), artifact_id="big")
    await turn.give(new_text_part(BIG[half:]), artifact_id="big", append=True)
    await turn.give(new_data_part(DATA), new_text_part("the end"), artifact_id="big", append=True)
    await turn.update.complete()


async def _on_the_way(turn: Turn) -> None:
    """Says all that it has to say while it works, as the default executor of agent-framework-a2a 1.0 does."""
    await turn.update.submit()
    await turn.update.start_work()
    for said in ("First half", "Second half"):
        await turn.update.start_work(turn.words(said))
    await turn.update.complete()


async def _quiet(turn: Turn) -> None:
    await turn.update.complete(turn.words("Nothing to show, all done"))


SKILLS: Final[dict[str, Callable[[Turn], Awaitable[None]] | None]] = {
    "plain": _plain,
    "message-only": None,
    "chunks": _chunks,
    "slow-chunks": _slow_chunks,
    "file": _file,
    "data": _data,
    "ask": _ask,
    "ask-late": _late(_ask),
    "sign-in": _sign_in,
    "sign-in-late": _late(_sign_in),
    "sign-in-and-say": _sign_in_and_say,
    "password": _password,
    "fail": _fail,
    "reject": _reject,
    "give-up": _give_up,
    "slow": _slow,
    "progress": _progress,
    "big": _big,
    "quiet": _quiet,
    "on-the-way": _on_the_way,
    "big-chunks": _big_chunks,
}
"""What the agent does; None answers with a Message, without a task."""


class BehavioursExecutor(AgentExecutor):
    """Does what the skill of a task says."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._skills: dict[str, tuple[str, int]] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        assert context.task_id is not None
        said = MessageToDict(context.message)
        self._seen.said.append(said)
        metadata = said.get("metadata", {})
        skill, number = self._skills.get(context.task_id, (metadata.get("skillId", "plain"), 0))
        text = context.get_user_input()
        behaviour = SKILLS[skill]
        if behaviour is None:
            await event_queue.enqueue_event(
                new_text_message(f"Just so: {text}", context_id=context.context_id)
            )
            return
        self._skills[context.task_id] = skill, number + 1
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            self._seen.tasks.append(task.id)
            await event_queue.enqueue_event(task)
        data = next((part["data"] for part in said["parts"] if "data" in part), None)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await behaviour(Turn(text, data, metadata, number + 1, updater, self._seen))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        self._seen.canceled.append(context.task_id)
        self._seen.told_of_cancel.set()
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.cancel(updater.new_agent_message([new_text_part("Stopped as you wished")]))


class Webhooks(InMemoryPushNotificationConfigStore):
    """The webhooks of an agent, of which is seen what becomes of them."""

    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self._seen = seen

    async def set_info(
        self, task_id: str, config: a2a_pb2.TaskPushNotificationConfig, context: ServerCallContext
    ) -> None:
        await super().set_info(task_id, config, context)
        self._seen.webhooks.append(config.url)
        self._seen.webhook_set.set()

    async def delete_info(
        self, task_id: str, context: ServerCallContext, config_id: str | None = None
    ) -> None:
        await super().delete_info(task_id, context, config_id)
        self._seen.webhook_deleted.set()


def agent_card(url: str, name: str, *, streaming: bool, push: bool = False) -> a2a_pb2.AgentCard:
    """Return the card of the agent at `url`: both HTTP bindings of 1.0, a skill for each behaviour."""
    return a2a_pb2.AgentCard(
        name=name,
        description="Does what agents do.",
        version="1.0.0",
        supported_interfaces=[
            a2a_pb2.AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version="1.0"),
            a2a_pb2.AgentInterface(
                url=f"{url}{REST_PREFIX}", protocol_binding="HTTP+JSON", protocol_version="1.0"
            ),
        ],
        capabilities=a2a_pb2.AgentCapabilities(streaming=streaming, push_notifications=push),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[
            a2a_pb2.AgentSkill(id=skill, name=skill, description=f"Does {skill}.", tags=["test"])
            for skill in SKILLS
        ],
    )


def build_app(
    url: str,
    seen: Seen | None = None,
    *,
    name: str = "Behaviours",
    streaming: bool = True,
    notify_with: httpx.AsyncClient | None = None,
) -> Starlette:
    """Return the agent as an ASGI application that will be reached at `url`, with no task yet.

    `notify_with` is the client with which it sends push notifications; it sends none without.
    """
    seen = seen or Seen()
    card = agent_card(url, name, streaming=streaming, push=notify_with is not None)
    webhooks = Webhooks(seen) if notify_with else None
    sender = BasePushNotificationSender(notify_with, webhooks) if notify_with and webhooks else None
    handler = DefaultRequestHandler(
        BehavioursExecutor(seen),
        InMemoryTaskStore(),
        card,
        push_config_store=webhooks,
        push_sender=sender,
    )
    return Starlette(
        routes=[
            *create_agent_card_routes(card),
            *create_jsonrpc_routes(handler, "/"),
            *create_rest_routes(handler, path_prefix=REST_PREFIX),
        ]
    )


def main() -> None:
    """Bind, print the URL, serve."""
    parser = argparse.ArgumentParser(prog="sdk_behaviours", description="The agent of many behaviours.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    with socket.create_server((HOST, parser.parse_args().port)) as listener:
        url = f"http://{HOST}:{listener.getsockname()[1]}"
        print(url, flush=True)
        config = uvicorn.Config(build_app(url), log_level="warning", ws="none", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
