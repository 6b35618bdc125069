"""The yardsticks for `mcp-a2a expose`: the same agent asked over A2A, by the bridge's own client or by a2a-sdk's.

It connects at its first plan, and takes plans on stdin until it ends. Its CPU time is the whole process's, with the
loop that asks.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Final, Protocol
from uuid import uuid4

import anyio

from tests.benchmarks.asking import asked, carried_out, followed, plans
from tests.benchmarks.messages import LIMIT_SECONDS, Plan
from tests.support.limits import client_options, pace_of


class Asking(Protocol):
    """A client of one agent; what it gets is JSON, made only once the clock has stopped."""

    async def send(self, message: Plan) -> object:
        """Ask, and wait for the task to end."""
        ...

    def stream(self, message: Plan) -> AsyncGenerator[object, None]:
        """The events of a task."""
        ...

    @staticmethod
    def as_json(answer: object) -> Plan:
        """An answer or an event as the wire has it."""
        ...


@asynccontextmanager
async def bridge_client(url: str, *, streamed: bool = False) -> AsyncIterator[Asking]:
    """The bridge's `AgentClient`, with what `expose` gives it. `streamed`: asked as `expose` asks, by a stream."""
    import httpx2  # here as below, so that no client has the other's libraries in its process

    from bridge.a2a.client.agent_card import fetch_card
    from bridge.a2a.client.agent_client import AgentClient
    from bridge.a2a.client.follow import converse
    from bridge.a2a.model.objects import Model, SendMessageRequest
    from bridge.translate.extensions.bridge import URI

    class Ours:
        async def send(self, message: Plan) -> object:
            request = SendMessageRequest.model_validate(message)
            return await (converse(client, request, pace=pace_of()) if streamed else client.send(request))

        def stream(self, message: Plan) -> AsyncGenerator[object, None]:
            return client.stream(SendMessageRequest.model_validate(message))

        @staticmethod
        def as_json(answer: object) -> Plan:
            assert isinstance(answer, Model)
            return answer.to_object()

    limits = httpx2.Limits(keepalive_expiry=2.0)  # as in bridge.assembly
    async with httpx2.AsyncClient(timeout=httpx2.Timeout(None, connect=10.0), limits=limits) as http:
        client = AgentClient(http, await fetch_card(http, url), client_options(extensions=(URI,)))
        yield Ours()


@asynccontextmanager
async def sdk_client(url: str) -> AsyncIterator[Asking]:
    """a2a-sdk's client, over JSON-RPC."""
    import httpx
    from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
    from a2a.types import a2a_pb2
    from google.protobuf.json_format import MessageToDict, ParseDict
    from google.protobuf.message import Message

    class Theirs:
        async def send(self, message: Plan) -> object:
            request = ParseDict(message, a2a_pb2.SendMessageRequest())
            (answer,) = [event async for event in sending.send_message(request)]
            return answer

        def stream(self, message: Plan) -> AsyncGenerator[object, None]:
            request = ParseDict(message, a2a_pb2.SendMessageRequest())
            return streaming.send_message(request)  # type: ignore[return-value]

        @staticmethod
        def as_json(answer: object) -> Plan:
            assert isinstance(answer, Message)
            found: Plan = MessageToDict(answer)
            return found

    async with httpx.AsyncClient(timeout=LIMIT_SECONDS, trust_env=False) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        # Two clients, for one that may stream never sends any other way.
        sending, streaming = (
            ClientFactory(ClientConfig(streaming=streams, httpx_client=http)).create(card)
            for streams in (False, True)
        )
        yield Theirs()


async def run(name: str, url: str) -> None:
    """Carry out plans until stdin ends."""
    taken = plans()
    first = await anext(taken)
    async with OPENED[name](url) as client:
        await carried_out(KINDS[first["kind"]](client, first))
        async for plan in taken:
            await carried_out(KINDS[plan["kind"]](client, plan))


async def send(client: Asking, plan: Plan) -> Plan:
    """So many messages, so many of them at once."""

    async def ask(text: str) -> object:
        return await client.send(_message(plan["tool"], {plan["argument"]: text}))

    def require(answer: object, text: str) -> None:
        require_completed(client.as_json(answer), text)

    return await asked(plan, ask, require, os.getpid())


async def stream(client: Asking, plan: Plan) -> Plan:
    """So many streams, one after the other."""

    async def follow() -> Plan:
        events, came = [], []
        begun = time.perf_counter()
        async with aclosing(client.stream(_message(plan["tool"], {"steps": plan["steps"]}))) as stream:
            async for event in stream:
                events.append(event)
                came.append(time.perf_counter() - begun)
        seconds = time.perf_counter() - begun
        reports = reports_in([client.as_json(event) for event in events], f"{plan['steps']} steps")
        first = came[reports[0]] if reports else seconds
        return {"first_seconds": first, "seconds": seconds, "events": len(reports)}

    return await followed(plan, follow, os.getpid())


def _message(tool: str, arguments: Plan) -> Plan:
    part = {"data": {"skill": tool, "arguments": arguments}}
    return {"message": {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [part]}}


def require_completed(answer: Plan, text: str) -> None:
    """Fail unless this is a completed task whose one artifact is the text."""
    task = answer.get("task", answer)
    artifacts = [[part.get("text") for part in made["parts"]] for made in task.get("artifacts", [])]
    if task.get("status", {}).get("state") != "TASK_STATE_COMPLETED" or artifacts != [[text]]:
        raise ValueError(f"no completed task with {text!r}: {answer!r}")


def reports_in(events: list[Plan], text: str) -> list[int]:
    """Which events are reports of progress; fails unless the task ends completed, with the text as its artifact."""
    statuses = {
        at: event["statusUpdate"]["status"] for at, event in enumerate(events) if "statusUpdate" in event
    }
    texts = [
        part.get("text")
        for event in events
        if "artifactUpdate" in event
        for part in event["artifactUpdate"]["artifact"]["parts"]
    ]
    ended = [said["state"] for said in statuses.values()][-1:]
    if ended != ["TASK_STATE_COMPLETED"] or texts != [text]:
        raise ValueError(f"no stream that ends completed with {text!r}: {events[-3:]!r}")
    return [
        at for at, said in statuses.items() if said["state"] == "TASK_STATE_WORKING" and "message" in said
    ]


@asynccontextmanager
async def _bridge_streamed(url: str) -> AsyncIterator[Asking]:
    async with bridge_client(url, streamed=True) as client:
        yield client


OPENED: Final = {"bridge": bridge_client, "bridge-streamed": _bridge_streamed, "a2a-sdk": sdk_client}
KINDS: Final = {"send": send, "stream": stream}


def main() -> None:
    """Run until stdin ends."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.agent_client", description="A client of A2A.")
    parser.add_argument("--client", choices=OPENED, required=True)
    parser.add_argument("url", help="the agent's")
    options = parser.parse_args()
    anyio.run(run, options.client, options.url)


if __name__ == "__main__":
    main()
