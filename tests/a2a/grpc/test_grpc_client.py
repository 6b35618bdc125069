"""The client over gRPC, against a bridge of this process and against servers that are no agents."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

import anyio
import anyio.abc
import grpc
import httpx2
import pytest
from grpc import aio

from bridge.a2a.client.agent_card import FoundCard
from bridge.a2a.client.agent_client import AgentClient, AgentRefusedError
from bridge.a2a.client.http import AgentBusyError, NotReachedError, UnansweredError
from bridge.a2a.client.interfaces import ConnectionPolicy, Trust, interfaces_of, reachable
from bridge.a2a.model.errors import TASK_NOT_FOUND
from bridge.a2a.model.objects import (
    AgentCard,
    AgentInterface,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    Task,
    TaskState,
)
from bridge.errors import PeerError
from bridge.remotes.grpc_calls import GrpcTransports
from tests.support.grpc_driver import served_over_grpc
from tests.support.limits import client_options
from tests.support.running import config_for, raw_command, running

VERSIONS: Final = ("1.0", "0.3")
CARD: Final = {
    "name": "Least",
    "description": "d",
    "version": "1",
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "s", "name": "s", "description": "d", "tags": ["t"]}],
}


def found_at(address: str, version: str = "1.0", card_url: str = "http://127.0.0.1:1/") -> FoundCard:
    interface = {"url": address, "protocolBinding": "GRPC", "protocolVersion": version}
    card = AgentCard.model_validate({**CARD, "supportedInterfaces": [interface]})
    return FoundCard(card_url, b"", card)


@pytest.fixture(scope="module")
async def port() -> AsyncIterator[int]:
    async with (
        running(config_for(raw_command(), store="memory:")) as served,
        served_over_grpc(served.bridge.whole) as server,
    ):
        yield server.port


@pytest.fixture(scope="module")
async def calls() -> AsyncIterator[GrpcTransports]:
    async with GrpcTransports() as calls:
        yield calls


@pytest.fixture(scope="module")
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient() as http:
        yield http


def client_of(
    http: httpx2.AsyncClient, calls: GrpcTransports, found: FoundCard, **options: Any
) -> AgentClient:
    return AgentClient(http, found, replace(client_options(**options), grpc=calls.transports))


def saying(skill: str, **arguments: Any) -> SendMessageRequest:
    part = Part(data={"skill": skill, "arguments": arguments})
    return SendMessageRequest(message=Message(message_id=str(uuid4()), role=Role.USER, parts=(part,)))


@pytest.mark.proves("a2a-10-called")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_message_is_answered_and_its_task_is_read(
    http: httpx2.AsyncClient, calls: GrpcTransports, port: int, version: str
) -> None:
    agent = client_of(http, calls, found_at(f"127.0.0.1:{port}", version))
    task = await agent.send(saying("add", a=2, b=3))
    assert isinstance(task, Task)
    assert task.status.state is TaskState.COMPLETED
    assert (await agent.get(task.id)).artifacts == task.artifacts


@pytest.mark.proves("a2a-10-called")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_stream_ends_with_the_task(
    http: httpx2.AsyncClient, calls: GrpcTransports, port: int, version: str
) -> None:
    agent = client_of(http, calls, found_at(f"127.0.0.1:{port}", version))
    async with aclosing(agent.stream(saying("add", a=2, b=3))) as stream:
        events = [event async for event in stream]
    assert events[0].task is not None
    last = events[-1].status_update
    assert last is not None
    assert last.status.state is TaskState.COMPLETED


@pytest.mark.proves("a2a-10-called")
@pytest.mark.parametrize("version", VERSIONS)
async def test_an_unknown_task_is_the_error_of_a2a(
    http: httpx2.AsyncClient, calls: GrpcTransports, port: int, version: str
) -> None:
    agent = client_of(http, calls, found_at(f"127.0.0.1:{port}", version))
    for call in (agent.get, agent.cancel):
        with pytest.raises(AgentRefusedError) as refused:
            await call("nobody")
        assert refused.value.kind is TASK_NOT_FOUND


@pytest.mark.proves("a2a-10-called")
async def test_tasks_are_listed(http: httpx2.AsyncClient, calls: GrpcTransports, port: int) -> None:
    agent = client_of(http, calls, found_at(f"127.0.0.1:{port}"))
    task = await agent.send(saying("add", a=2, b=3))
    assert isinstance(task, Task)
    page = await agent.list_tasks(ListTasksRequest())
    assert task.id in [listed.id for listed in page.tasks]


async def test_a_port_without_a_server_is_not_reached(
    http: httpx2.AsyncClient, calls: GrpcTransports
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        agent = client_of(http, calls, found_at(f"127.0.0.1:{taken.getsockname()[1]}"))
        with pytest.raises(NotReachedError, match="cannot be reached over gRPC"):
            await agent.get("t")


async def test_a_web_server_is_no_grpc_server(http: httpx2.AsyncClient, calls: GrpcTransports) -> None:
    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n<html></html>")

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, answer)
        address = listener.extra(anyio.abc.SocketAttribute.local_address)
        with pytest.raises(NotReachedError, match="cannot be reached over gRPC"):
            await client_of(http, calls, found_at(f"127.0.0.1:{address[1]}")).get("t")
        group.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (grpc.StatusCode.UNAVAILABLE, UnansweredError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, UnansweredError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, AgentBusyError),
        (grpc.StatusCode.UNAUTHENTICATED, PeerError),
        (grpc.StatusCode.INTERNAL, PeerError),
    ],
)
async def test_a_status_says_what_became_of_a_request(
    http: httpx2.AsyncClient, calls: GrpcTransports, code: grpc.StatusCode, raised: type[PeerError]
) -> None:
    class Refusing(grpc.GenericRpcHandler):
        def service(self, _: Any) -> Any:
            async def refuse(_: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
                await context.abort(code, "not now", (("retry-after", "7"),))

            return grpc.unary_unary_rpc_method_handler(refuse)

    server = aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    server.add_generic_rpc_handlers((Refusing(),))
    await server.start()
    try:
        with pytest.raises(PeerError, match=f"status {code.name}: not now") as refused:
            await client_of(http, calls, found_at(f"127.0.0.1:{port}")).get("t")
    finally:
        await server.stop(None)
    assert type(refused.value) is raised
    if isinstance(refused.value, AgentBusyError):
        assert refused.value.retry_after_seconds == 7


async def test_a_public_name_that_leads_to_a_private_address_is_not_called(
    http: httpx2.AsyncClient, calls: GrpcTransports, port: int
) -> None:
    async def resolve(host: str, at: int) -> list[str]:
        return ["127.0.0.1"]

    found = found_at(f"http://agent.example.com:{port}", card_url="https://cards.example.com/")
    reach = ConnectionPolicy(found.url, resolve=resolve)
    with pytest.raises(NotReachedError, match="is a private address"):
        await client_of(http, calls, found, reach=reach).get("t")


@pytest.mark.parametrize(
    ("address", "called"),
    [
        ("agents.example.com:50051", "https://agents.example.com:50051"),
        ("agents.example.com", "https://agents.example.com"),
        ("agents.example.com:80", "https://agents.example.com:80"),
        ("dns:///agents.example.com:50051", "https://agents.example.com:50051"),
        ("http://agents.example.com:50051", "http://agents.example.com:50051"),
        ("https://agents.example.com:50051", "https://agents.example.com:50051"),
        ("127.0.0.1:50051", "http://127.0.0.1:50051"),
        ("[::1]:50051", "http://[::1]:50051"),
        ("trusted.example.com:1", "http://trusted.example.com:1"),
    ],
)
def test_tls_is_used_beyond_this_machine_unless_the_address_or_the_user_says_otherwise(
    address: str, called: str
) -> None:
    trust = Trust(frozenset({"http://trusted.example.com:1"}))
    interface = AgentInterface(url=address, protocol_binding="GRPC", protocol_version="1.0")
    assert reachable(found_at(address), interface, trust).url == called


def test_a_loopback_address_on_the_card_of_another_machine_is_called_there_over_tls() -> None:
    interface = AgentInterface(url="localhost:50051", protocol_binding="GRPC", protocol_version="1.0")
    found = found_at("localhost:50051", card_url="https://agents.example.com/")
    assert reachable(found, interface, Trust()).url == "https://agents.example.com:50051"


def test_grpc_is_called_only_if_the_card_offers_nothing_over_http() -> None:
    listed = [
        {"url": "127.0.0.1:1", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
        {"url": "http://127.0.0.1:2", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
    ]
    both, alone = (
        AgentCard.model_validate({**CARD, "supportedInterfaces": listed[:count]}) for count in (2, 1)
    )
    assert [one.protocol_binding for one, _ in interfaces_of(both, grpc=True)] == ["JSONRPC"]
    assert [one.protocol_binding for one, _ in interfaces_of(alone, grpc=True)] == ["GRPC"]
    with pytest.raises(PeerError, match="this client speaks JSONRPC and HTTP"):
        interfaces_of(alone)
