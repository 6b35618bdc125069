"""Our client against real agents: a bridge, a stranger built on the official SDK, and servers that misbehave."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import anyio
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from bridge.a2a.client.agent_card import FoundCard, card_from, fetch_card
from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.bindings import AgentRefusedError
from bridge.a2a.client.card_places import CARD_LIMIT_BYTES
from bridge.a2a.client.credentials import Credentials
from bridge.a2a.client.http import NotReachedError, UnansweredError, origin_of, redacted_url
from bridge.a2a.client.interfaces import Trust, interfaces_of, permitted_interfaces
from bridge.a2a.model.objects import (
    AgentCard,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
    TaskStatus,
    text_of_parts,
)
from bridge.a2a.wire.rest import CARD_PATH
from bridge.errors import PeerError
from bridge.http.client import GuardedClient, PeerCredentials, fixed_credentials
from tests.support.agents import give, say, serving
from tests.support.command import ROOT
from tests.support.faults import RESET
from tests.support.forked import Forked
from tests.support.limits import client_options, deadlines
from tests.support.lines import first_line
from tests.support.proxy import proxy_to
from tests.support.running import EXTENSION, Running, config_for, listening, raw_command, running

CARD: dict[str, Any] = {
    "name": "Least",
    "description": "Says little",
    "version": "1",
    "supportedInterfaces": [
        {"url": "https://x.test/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "act", "name": "Act", "description": "Acts", "tags": ["test"]}],
}
STATUS = {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}


@pytest.fixture(scope="module")
async def bridge() -> AsyncIterator[Running]:
    async with running(config_for(raw_command())) as bridge:
        yield bridge


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=20) as http:
        yield http


@pytest.fixture(scope="module")
def stranger() -> Iterator[str]:
    """The echo agent of the official SDK, in a process of its own; its URL."""
    command = [sys.executable, "-m", "tests.peers.echo_agent"]
    with Forked(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        yield first_line(process)
        process.terminate()


@asynccontextmanager
async def answering(answer: Callable[[Request], Response | Awaitable[Response]]) -> AsyncIterator[str]:
    """A server that answers every request as the test says; its root URL."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = answer(Request(scope, receive))
        if isinstance(response, Awaitable):
            response = await response
        await response(scope, receive, send)

    async with listening(app) as url:
        yield url


@dataclass
class Desk:
    """A server that answers whatever it is asked with the response that lies there."""

    url: str = ""
    response: Response = field(default_factory=Response)


@pytest.fixture(scope="module")
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    async with answering(lambda _: desk.response) as desk.url:
        yield desk


def card_at(url: str, **more: Any) -> FoundCard:
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    card = AgentCard.model_validate({**CARD, "supportedInterfaces": [interface], **more})
    return FoundCard(url, b"", card)


BINDINGS = ("JSONRPC", "HTTP+JSON")
SPOKEN = (*BINDINGS, "0.3 JSONRPC", "0.3 HTTP+JSON")
"""What our own agent speaks: 1.0 where nothing else is said."""


def over(binding: str, found: FoundCard) -> FoundCard:
    """The card with the interface of one binding alone, and of one version."""
    version, _, name = binding.rpartition(" ")
    said = (name, version or "1.0")
    listed = tuple(
        one for one in found.card.supported_interfaces if (one.protocol_binding, one.protocol_version) == said
    )
    return replace(found, card=found.card.model_copy(update={"supported_interfaces": listed}))


def saying(words: str = "", *, skill: str = "", **arguments: Any) -> SendMessageRequest:
    part = Part(data={"skill": skill, "arguments": arguments}) if skill else Part(text=words)
    return SendMessageRequest(message=Message(message_id=str(uuid4()), role=Role.USER, parts=(part,)))


def events_of(*results: Any) -> bytes:
    return b"".join(
        b'data: {"jsonrpc":"2.0","id":1,"result":%b}\n\n' % json.dumps(r).encode() for r in results
    )


async def all_of(agent: AgentClient, request: SendMessageRequest) -> list[StreamResponse]:
    async with aclosing(agent.stream(request)) as events:
        return [event async for event in events]


# The card


@pytest.mark.proves("a2a-14.3-well-known")
async def test_a_card_is_found_below_the_base_and_at_its_own_url(
    bridge: Running, http: httpx2.AsyncClient
) -> None:
    for url in (bridge.base_url, f"{bridge.base_url}/", f"{bridge.base_url}{CARD_PATH}"):
        found = await fetch_card(http, url)
        assert found.card.name == "Raw Server"
        assert found.url == f"{bridge.base_url}{CARD_PATH}"
        assert json.loads(found.text) == found.card.to_object()
        assert found.deviations == ()


@pytest.mark.proves("a2a-3.6.1-version-sent", "map-card-found")
async def test_a_card_is_found_at_a_url_that_does_not_look_like_one(http: httpx2.AsyncClient) -> None:
    asked: list[tuple[str, str | None]] = []

    def answer(request: Request) -> Response:
        asked.append((request.url.path, request.headers.get("A2A-Version")))
        return Response(json.dumps(CARD)) if request.url.path == "/a/card" else Response(status_code=404)

    async with answering(answer) as url:
        assert (await fetch_card(http, f"{url}/a/card?key=1")).card.name == "Least"
    older = "/a/card/.well-known/agent.json"
    assert asked == [(f"/a/card{CARD_PATH}", "1.0"), (older, "1.0"), ("/a/card", "1.0")]


@pytest.mark.proves("map-card-found")
async def test_the_error_for_a_missing_card_names_every_place(
    http: httpx2.AsyncClient,
) -> None:
    async with answering(lambda _: Response(status_code=404)) as url:
        with pytest.raises(PeerError) as refused:
            await fetch_card(http, f"{url}/x")
    below = (f"{url}/x{CARD_PATH}", f"{url}/x/.well-known/agent.json", f"{url}/x")
    places = (*below, f"{url}{CARD_PATH}", f"{url}/.well-known/agent.json")
    assert str(refused.value) == f"there is no agent card at {' or '.join(places)}"


@pytest.mark.proves("map-agent-told")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"<html>", "is not JSON"),
        (b"[]", "the whole: Input should be a valid dictionary or instance of .*; found \\[\\]"),
        (json.dumps({**CARD, "name": 7}), "name: Input should be a valid string; found 7"),
        (json.dumps({"name": "x"}), "is not an agent card: supportedInterfaces is missing"),
        (
            json.dumps({**CARD, "supportedInterfaces": [{"url": "u"}]}),
            "supportedInterfaces.0.protocolBinding is m",
        ),
        (json.dumps({"url": "u", "protocolVersion": "0.1.0"}), "is not an agent card: name is missing"),
    ],
)
def test_an_invalid_card_is_refused_with_its_faulty_fields(text: bytes | str, words: str) -> None:
    with pytest.raises(PeerError, match=words):
        card_from(text.encode() if isinstance(text, str) else text, "here")


@pytest.mark.proves("map-liberal")
def test_a_card_without_dispensable_fields_is_read_with_a_note() -> None:
    text = {key: value for key, value in CARD.items() if key != "defaultOutputModes"}
    text["skills"] = [{"id": "act", "name": "Act", "tags": []}]
    card, deviations = card_from(json.dumps(text).encode(), "here")
    assert (card.skills[0].id, card.skills[0].description, card.default_output_modes) == ("act", "", ())
    assert "defaultOutputModes is missing" in deviations
    assert "skills.0.description is missing" in deviations


@pytest.mark.proves("map-liberal")
@pytest.mark.parametrize("said", [{}, {"protocolVersion": ""}])
def test_a_card_without_protocol_version_is_read_as_1_0(said: dict[str, str]) -> None:
    listed = [{"url": "http://127.0.0.1/", "protocolBinding": "JSONRPC", **said}]
    card, deviations = card_from(json.dumps({**CARD, "supportedInterfaces": listed}).encode(), "here")
    assert interfaces_of(card)[0][0].protocol_version == "1.0"
    assert deviations[0].startswith("supportedInterfaces.0.protocolVersion")


@pytest.mark.proves("map-card-found")
async def test_a_redirect_within_the_origin_is_followed(http: httpx2.AsyncClient) -> None:
    def answer(request: Request) -> Response:
        if request.url.path == "/new/card":
            return Response(json.dumps(CARD))
        return RedirectResponse("../new/card" if request.url.path == "/old/card.json" else "/old/card.json")

    async with answering(answer) as url:
        assert (await fetch_card(http, url)).card.name == "Least"


@pytest.mark.proves("map-trust")
async def test_a_redirect_to_another_origin_is_not_followed(http: httpx2.AsyncClient) -> None:
    asked: list[str] = []

    def elsewhere(request: Request) -> Response:
        asked.append(request.url.path)
        return Response(json.dumps(CARD))

    async with answering(elsewhere) as other, answering(lambda _: RedirectResponse(f"{other}/x")) as url:
        http.headers["Authorization"] = "Bearer secret"
        with pytest.raises(PeerError, match=f"redirects to another origin, {other}/x"):
            await fetch_card(http, url)
    assert asked == []


@pytest.mark.proves("map-trust")
@pytest.mark.parametrize(
    "place",
    [
        "file:///etc/passwd",
        "ftp://127.0.0.1/card",
        "gopher://127.0.0.1/",
        "data:application/json,{}",
        "//ada:s3cret@b.test/x",
    ],
)
async def test_a_redirect_to_another_service_is_not_followed(place: str, http: httpx2.AsyncClient) -> None:
    async with answering(lambda _: Response(status_code=302, headers={"Location": place})) as url:
        with pytest.raises(
            PeerError, match=r"redirects to another origin, .*, which is not followed"
        ) as refused:
            await fetch_card(http, url)
    assert "s3cret" not in str(refused.value)


@pytest.mark.proves("map-trust")
async def test_a_redirect_reveals_no_credentials(http: httpx2.AsyncClient) -> None:
    asked: list[str | None] = []

    def answer(request: Request) -> Response:
        asked.append(request.headers.get("authorization"))
        if request.url.path == "/card":
            return Response(json.dumps(CARD))
        return RedirectResponse(str(request.url.replace(path="/card", username="mallory", password="x")))

    async with answering(answer) as url:
        await fetch_card(http, url, fixed_credentials(PeerCredentials({"Authorization": "Bearer s3cret"})))
        await fetch_card(http, url.replace("://", "://ada:pass@"))
    assert asked == ["Bearer s3cret"] * 2 + ["Basic YWRhOnBhc3M="] * 2


@pytest.mark.proves("map-agent-told")
async def test_endless_redirects_and_endless_cards_are_given_up(http: httpx2.AsyncClient) -> None:
    async with answering(lambda request: RedirectResponse(request.url.path)) as url:
        with pytest.raises(PeerError, match="redirects more than 5 times"):
            await fetch_card(http, url)

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(2 * CARD_LIMIT_BYTES // 1_000_000):
            yield b" " * 1_000_000

    async with answering(lambda _: StreamingResponse(endless())) as url:
        with pytest.raises(PeerError, match=f"more than {CARD_LIMIT_BYTES} bytes"):
            await fetch_card(http, url)


@pytest.mark.proves("map-agent-told")
@pytest.mark.outside
async def test_an_agent_that_cannot_be_reached_is_named_with_the_reason(http: httpx2.AsyncClient) -> None:
    with pytest.raises(PeerError) as refused:
        await fetch_card(http, "http://user:secret@127.0.0.1:1/x?key=secret")
    assert str(refused.value) == f"http://127.0.0.1:1/x{CARD_PATH} cannot be reached: Connection refused"
    with pytest.raises(PeerError, match="is not a URL"):
        await fetch_card(http, "http://[::1")


@pytest.mark.proves("a2a-13.4-secrets")
def test_urls_are_shown_without_secrets_and_compared_by_origin() -> None:
    assert redacted_url("https://user:secret@x.test/a?key=secret#b") == "https://x.test/a"
    assert (
        origin_of("https://x.test/a") == origin_of("https://user@X.test:443") != origin_of("http://x.test/a")
    )


# Which interface


def interfaces(*offers: tuple[str, str]) -> AgentCard:
    listed = [
        {"url": f"https://x.test/{n}", "protocolBinding": b, "protocolVersion": v}
        for n, (b, v) in enumerate(offers)
    ]
    return AgentCard.model_validate({**CARD, "supportedInterfaces": listed})


@pytest.mark.proves("a2a-8.3.2-first", "a2a-3.6.3-negotiation")
def test_the_first_supported_interface_is_used() -> None:
    card = interfaces(
        ("GRPC", "1.0"), ("JSONRPC", "0.2"), ("JSONRPC", "1.9"), ("JSONRPC", "1.0.2"), ("HTTP+JSON", "1.0")
    )
    assert interfaces_of(card)[0][0].url == "https://x.test/3"
    assert interfaces_of(interfaces(("JSONRPC", "0.3"), ("JSONRPC", "1.0")))[0][0].protocol_version == "0.3"


@pytest.mark.proves("a2a-3.6.3-negotiation")
def test_the_error_for_no_supported_interface_names_the_offered_interfaces() -> None:
    with pytest.raises(
        PeerError,
        match=r"Least offers GRPC 1.0, JSONRPC 0.2, and this client speaks JSONRPC and HTTP\+JSON 1.0, 0.3, 0.1",
    ):
        interfaces_of(interfaces(("GRPC", "1.0"), ("JSONRPC", "0.2")))


@pytest.mark.proves("map-dialect", "a2a-3.6.3-negotiation")
async def test_an_unreachable_agent_is_not_tried_in_an_older_version(
    bridge: Running, http: httpx2.AsyncClient
) -> None:
    found = await fetch_card(http, bridge.base_url)
    assert {one.protocol_version for one in found.card.supported_interfaces} == {"1.0", "0.3"}
    permitted = permitted_interfaces(found, Trust(), has_credentials=False)
    assert [(one.protocol_binding, dialect.version) for one, dialect in permitted] == [
        ("JSONRPC", "1.0"),
        ("HTTP+JSON", "1.0"),
    ]


@pytest.mark.proves("a2a-3.6.1-version-sent", "map-dialect")
@pytest.mark.parametrize("binding", SPOKEN)
async def test_every_request_names_its_version(
    binding: str, bridge: Running, http: httpx2.AsyncClient
) -> None:
    said: list[tuple[str, str]] = []

    async def note(request: httpx2.Request) -> None:
        headers = request.headers
        extensions = next(name for name in headers if name.endswith("a2a-extensions"))
        said.append((headers["A2A-Version"], extensions))

    found = over(binding, await fetch_card(http, bridge.base_url))
    agent = AgentClient(http, found, client_options(extensions=(EXTENSION,)))
    http.event_hooks["request"] = [note]
    await agent.send(saying(skill="echo", text="a"))
    await all_of(agent, saying(skill="echo", text="a"))
    version = binding.rpartition(" ")[0] or "1.0"
    assert said == [(version, "a2a-extensions" if version == "1.0" else "x-a2a-extensions")] * 2


# Operations


@pytest.mark.proves("a2a-9.3-request")
@pytest.mark.parametrize("binding", SPOKEN)
async def test_a_message_is_sent_and_its_task_read_again(
    binding: str, bridge: Running, http: httpx2.AsyncClient
) -> None:
    agent = AgentClient(http, over(binding, await fetch_card(http, bridge.base_url)), client_options())
    task = await agent.send(saying(skill="echo", text="hello"))
    assert isinstance(task, Task)
    assert task.status.state is TaskState.COMPLETED
    assert task.artifacts is not None
    assert text_of_parts(task.artifacts[0].parts) == "hello"
    assert await agent.get(task.id) == task


@pytest.mark.proves("a2a-3.1.2-read")
@pytest.mark.parametrize("binding", SPOKEN)
async def test_a_stream_gives_each_event_in_order(
    binding: str, bridge: Running, http: httpx2.AsyncClient
) -> None:
    agent = AgentClient(http, over(binding, await fetch_card(http, bridge.base_url)), client_options())
    first, *updates, last = await all_of(agent, saying(skill="progress", steps=3))
    assert first.task is not None
    assert last.status_update is not None
    assert last.status_update.status.state is TaskState.COMPLETED
    said = [event.status_update.status.message for event in updates if event.status_update]
    assert [text_of_parts(message.parts) for message in said if message] == ["step 1", "step 2", "step 3"]


@pytest.mark.proves("map-call-followed")
@pytest.mark.parametrize("binding", SPOKEN)
async def test_a_task_is_cancelled_and_its_other_stream_ends(
    binding: str, bridge: Running, http: httpx2.AsyncClient
) -> None:
    agent = AgentClient(http, over(binding, await fetch_card(http, bridge.base_url)), client_options())
    request = saying(skill="wait")
    begun = await agent.send(
        request.model_copy(update={"configuration": SendMessageConfiguration(return_immediately=True)})
    )
    assert isinstance(begun, Task)
    async with aclosing(agent.subscribe(begun.id)) as events:
        assert (await anext(events)).task is not None
        assert (await agent.cancel(begun.id)).status.state is TaskState.CANCELED
        last = [event async for event in events][-1]
    assert last.status_update is not None
    assert last.status_update.status.state is TaskState.CANCELED


@pytest.mark.proves("a2a-5.4-read")
@pytest.mark.parametrize("binding", SPOKEN)
async def test_an_error_of_the_agent_keeps_its_code_reason_and_fields(
    binding: str, bridge: Running, http: httpx2.AsyncClient
) -> None:
    agent = AgentClient(http, over(binding, await fetch_card(http, bridge.base_url)), client_options())
    with pytest.raises(AgentRefusedError) as refused:
        await agent.get("no-such-task")
    assert (refused.value.code, refused.value.reason) == (-32001, "TASK_NOT_FOUND")
    wrong = SendMessageConfiguration.model_construct(history_length=-1)
    with pytest.raises(AgentRefusedError) as refused:
        await agent.send(saying("x").model_copy(update={"configuration": wrong}))
    assert refused.value.code == -32602
    assert [violation.field for violation in refused.value.violations] == ["configuration.historyLength"]
    assert "configuration.historyLength: Input should be greater" in str(refused.value)


@pytest.mark.proves("a2a-3.1.2-read")
@pytest.mark.parametrize("binding", SPOKEN)
async def test_an_error_instead_of_a_stream_is_an_error(
    binding: str, bridge: Running, http: httpx2.AsyncClient
) -> None:
    agent = AgentClient(http, over(binding, await fetch_card(http, bridge.base_url)), client_options())
    with pytest.raises(AgentRefusedError, match="TASK_NOT_FOUND"):
        await anext(agent.subscribe("no-such-task"))


@pytest.mark.proves("a2a-9.2-headers", "a2a-11.2-headers")
async def test_only_declared_extensions_are_activated(bridge: Running, http: httpx2.AsyncClient) -> None:
    found = await fetch_card(http, bridge.base_url)
    for extensions, state in (((EXTENSION, "urn:x"), TaskState.FAILED), ((), TaskState.INPUT_REQUIRED)):
        task = await AgentClient(http, found, client_options(extensions)).send(saying(skill="add"))
        assert isinstance(task, Task)
        assert task.status.state is state  # with it active, the server itself is asked, and says no
    sent: list[str | None] = []

    def answer(request: Request) -> Response:
        sent.append(request.headers.get("A2A-Extensions"))
        return Response(status_code=500)

    async with answering(answer) as url:
        with pytest.raises(PeerError):
            await AgentClient(http, card_at(url), client_options((EXTENSION,))).get("t")
    assert sent == [None]


@pytest.mark.proves("map-liberal")
@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_foreign_agent_is_understood(binding: str, stranger: str, http: httpx2.AsyncClient) -> None:
    agent = AgentClient(http, over(binding, await fetch_card(http, stranger)), client_options())
    events = await all_of(agent, saying("hello there"))
    assert [text_of_parts(e.artifact_update.artifact.parts) for e in events if e.artifact_update] == [
        "hello there"
    ]
    task = await agent.send(saying("ask me"))
    assert isinstance(task, Task)
    assert task.status.state is TaskState.INPUT_REQUIRED
    assert isinstance(await agent.send(saying("say hi")), Message)
    with pytest.raises(AgentRefusedError) as refused:
        await agent.get("no-such-task")
    assert (refused.value.code, refused.value.reason) == (-32001, "TASK_NOT_FOUND")


@pytest.mark.proves("a2a-8.3.2-tenant", "a2a-3.6.1-version-sent", "a2a-14.2.1-version")
async def test_the_tenant_of_an_interface_is_repeated_and_the_version_sent(http: httpx2.AsyncClient) -> None:
    sent: list[Any] = []

    async def answer(request: Request) -> Response:
        sent.append((request.headers["A2A-Version"], (await request.json())["params"]))
        return Response(
            json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"id": "t", "status": STATUS["status"]}})
        )

    async with answering(answer) as url:
        interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "blue"}
        await AgentClient(http, card_at(url, supportedInterfaces=[interface]), client_options()).get("t")
        await AgentClient(http, card_at(url), client_options()).get("t")
    assert sent == [("1.0", {"id": "t", "tenant": "blue"}), ("1.0", {"id": "t"})]


@pytest.mark.proves("a2a-8.3.2-tenant", "a2a-3.6.1-version-sent", "a2a-14.2.1-version", "a2a-11.5-query")
async def test_the_tenant_and_the_version_go_along_over_http_json(http: httpx2.AsyncClient) -> None:
    sent: list[Any] = []

    async def answer(request: Request) -> Response:
        sent.append((request.method, request.scope["raw_path"].decode(), dict(request.query_params)))
        assert request.headers["A2A-Version"] == "1.0"
        if request.method == "POST":
            assert request.headers["Content-Type"] == "application/a2a+json"
            sent.append(await request.json())
        return Response(json.dumps({"id": "t", "status": STATUS["status"]}))

    async with answering(answer) as url:
        interface = {"url": f"{url}/a/", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}
        tenant = {**interface, "tenant": "b/c"}
        agent = AgentClient(http, card_at(url, supportedInterfaces=[tenant]), client_options())
        await agent.get("t:1/2", history_length=0)
        await agent.cancel("t")
        await AgentClient(http, card_at(url, supportedInterfaces=[interface]), client_options()).get("t")
    assert sent == [
        ("GET", "/a/b%2Fc/tasks/t%3A1%2F2", {"historyLength": "0"}),
        ("POST", "/a/b%2Fc/tasks/t:cancel", {}),
        {"tenant": "b/c"},
        ("GET", "/a/tasks/t", {}),
    ]


@pytest.mark.proves("map-liberal")
@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("wrapped", [True, False])
async def test_deviating_answers_of_agents_are_understood(
    wrapped: bool, binding: str, desk: Desk, http: httpx2.AsyncClient
) -> None:
    said = {"kind": "message", "messageId": "m", "role": "agent", "parts": [{"text": "hi", "kind": "text"}]}
    user = {"kind": "data", "data": {"role": "agent", "state": "completed"}}
    history = [{**said, "role": "user", "parts": [user]}]
    task = {
        "kind": "task",
        "id": "t",
        "status": {"state": "input-required", "message": said},
        "history": history,
    }
    interface = {"url": desk.url, "protocolBinding": binding, "protocolVersion": "1.0"}
    agent = AgentClient(http, card_at(desk.url, supportedInterfaces=[interface]), client_options())

    def answer(payload: Any) -> Response:
        return Response(
            json.dumps(payload if binding != "JSONRPC" else {"jsonrpc": "2.0", "id": 1, "result": payload})
        )

    desk.response = answer({"task": task} if wrapped else task)
    for found in (await agent.send(saying("x")), await agent.get("t"), await agent.cancel("t")):
        assert isinstance(found, Task)
        assert found.status.state is TaskState.INPUT_REQUIRED
        assert found.history is not None
        assert found.history[0].role is Role.USER
        assert found.history[0].parts[0].data == user["data"]
    desk.response = answer({"message": said} if wrapped else said)
    reply = await agent.send(saying("x"))
    assert isinstance(reply, Message)
    assert reply.role is Role.AGENT
    for state, meant in (
        ("cancelled", "CANCELED"),
        ("TASK_STATE_CANCELLED", "CANCELED"),
        ("WORKING", "WORKING"),
    ):
        update = {**STATUS, "kind": "status-update", "final": False, "status": {"state": state}}
        desk.response = answer({"statusUpdate": update} if wrapped else update)
        [event] = await all_of(agent, saying("x"))
        assert event.status_update is not None
        assert event.status_update.status.state is TaskState[meant]
    artifact = {"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": [{"text": "hi"}]}}
    desk.response = answer({"artifactUpdate": artifact} if wrapped else artifact)
    [event] = await all_of(agent, saying("x"))
    assert event.artifact_update is not None


@pytest.mark.proves("map-liberal")
async def test_files_in_the_form_of_0_3_are_read_from_an_agent_of_1_0(
    http: httpx2.AsyncClient, desk: Desk
) -> None:
    """langgraph-api says 1.0 and keeps what objects were called before."""
    written = {"kind": "file", "file": {"bytes": "AAEC", "mimeType": "image/png", "name": "a.png"}}
    status = {
        "state": "TASK_STATE_COMPLETED",
        "message": {"messageId": "m", "role": "agent", "parts": [written]},
    }
    linked = {"kind": "file", "file": {"uri": "https://example.com/a", "bytes": None}, "metadata": {"m": 1}}
    result = {
        "id": "t",
        "status": status,
        "artifacts": [{"artifactId": "a", "parts": [linked, {"text": "b"}]}],
    }
    desk.response = Response(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}))
    task = await AgentClient(http, card_at(desk.url), client_options()).get("t")
    file = Part(raw="AAEC", media_type="image/png", filename="a.png")
    assert task.status.message is not None
    assert task.status.message.parts == (file,)
    assert task.artifacts is not None
    assert task.artifacts[0].parts == (
        Part(url="https://example.com/a", metadata={"m": 1}),
        Part(text="b"),
    )


@pytest.mark.proves("a2a-5.6.1-time", "map-liberal")
@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("2026-01-31T12:00:00.123456", "2026-01-31T12:00:00.123456Z"),
        ("2026-01-31T12:00:00", "2026-01-31T12:00:00Z"),
        ("2026-01-31T12:00:00+02:00", "2026-01-31T12:00:00+02:00"),
        ("", None),
    ],
)
async def test_a_time_without_a_zone_is_utc(
    said: str, meant: str | None, http: httpx2.AsyncClient, desk: Desk
) -> None:
    status = {"state": "TASK_STATE_WORKING", "timestamp": said}
    desk.response = Response(json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"id": "t", "status": status}}))
    found = await AgentClient(http, card_at(desk.url), client_options()).get("t")
    assert found.status == TaskStatus(state=TaskState.WORKING, timestamp=meant)


# Which interface, and what goes there


def elsewhere(*urls: str, at: str = "https://agent.example.com/card") -> FoundCard:
    listed = [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"} for url in urls]
    return FoundCard(at, b"", AgentCard.model_validate({**CARD, "supportedInterfaces": listed}))


@pytest.mark.proves("map-trust")
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "https://10.1.2.3/",
        "http://169.254.169.254/latest",
        "http://[::ffff:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[::127.0.0.1]/",
        "http://printer/",
        "https://db.internal/",
    ],
)
def test_a_public_card_with_a_private_address_is_refused_unless_allowed(url: str) -> None:
    found = elsewhere(url)
    with pytest.raises(PeerError, match=r"is public and says to call .* a private address"):
        permitted_interfaces(found, Trust(), has_credentials=False)
    assert permitted_interfaces(found, Trust(allow_private=True), has_credentials=False)
    assert permitted_interfaces(found, Trust(frozenset({origin_of(url)})), has_credentials=True)
    assert permitted_interfaces(elsewhere(url, at="http://192.168.0.2/"), Trust(), has_credentials=False)


@pytest.mark.proves("map-trust")
def test_credentials_stay_with_the_origin_of_the_card() -> None:
    found = elsewhere("https://other.example.com/", "https://agent.example.com/a2a")
    for trust, has_credentials, first in (
        (Trust(), True, "https://agent.example.com/a2a"),
        (Trust(), False, "https://other.example.com/"),
        (Trust(frozenset({"https://other.example.com:443"})), True, "https://other.example.com/"),
    ):
        assert permitted_interfaces(found, trust, has_credentials=has_credentials)[0][0].url == first
    with pytest.raises(PeerError, match=r'add "http://agent\.example\.com:80" to its `trust`$'):
        permitted_interfaces(elsewhere("http://agent.example.com/"), Trust(), has_credentials=True)


@pytest.mark.proves("map-trust")
async def test_a_public_name_of_a_private_address_gets_no_request() -> None:
    asked: list[str] = []

    def answer(request: Request) -> Response:
        asked.append(request.method)
        return Response(
            json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"id": "t", "status": STATUS["status"]}})
        )

    async with GuardedClient() as http, answering(answer) as url:
        found = elsewhere(url.replace("127.0.0.1", "127.1"))  # a name to us, and this machine to the system
        with pytest.raises(NotReachedError, match="which is a private address"):
            await AgentClient(http, found, client_options()).get("t")
        assert asked == []
        allowed = client_options(trust=Trust(allow_private=True))
        assert (await AgentClient(http, found, allowed).get("t")).id == "t"


@pytest.mark.proves("map-call-once")
async def test_the_next_interface_is_used_only_if_no_request_was_sent(
    desk: Desk, http: httpx2.AsyncClient
) -> None:
    asked: list[str] = []

    def second(request: Request) -> Response:
        asked.append(request.method)
        return Response(
            json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"id": "t", "status": STATUS["status"]}})
        )

    async with answering(second) as url, proxy_to(httpx2.URL(desk.url).port or 0) as proxy:
        agent = AgentClient(
            http, elsewhere("http://127.0.0.1:1/", url, at="http://127.0.0.1/"), client_options()
        )
        assert (await agent.get("t")).id == "t"
        assert agent.interface.url == url
        asked.clear()
        agent = AgentClient(http, elsewhere(proxy.url("/"), url, at="http://127.0.0.1/"), client_options())
        proxy.on(b"SendMessage", RESET)
        with pytest.raises(UnansweredError):
            await agent.send(saying("x"))
        assert asked == []
    with pytest.raises(NotReachedError, match="Connection refused"):
        await AgentClient(
            http, elsewhere("http://127.0.0.1:1/", url, at="http://127.0.0.1/"), client_options()
        ).get("t")


# What goes wrong


@pytest.mark.proves("map-agent-told")
async def test_a_silent_agent_is_given_up_at_the_deadline(http: httpx2.AsyncClient) -> None:
    async def hanging(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()
        if b"text/event-stream" in dict(scope["headers"])[b"accept"]:
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [(b"content-type", b"text/event-stream")],
                }
            )
            await send(
                {"type": "http.response.body", "body": events_of({"statusUpdate": STATUS}), "more_body": True}
            )
        while (await receive())["type"] != "http.disconnect":
            pass

    brief = deadlines(answer_seconds=0.05, silence_seconds=0.05)
    async with listening(hanging) as url:
        agent = AgentClient(http, card_at(url), client_options(deadlines=brief))
        with anyio.fail_after(10):
            with pytest.raises(UnansweredError, match="did not answer within"):
                await agent.get("t")
            async with aclosing(agent.subscribe("t")) as events:
                assert (await anext(events)).status_update is not None
                with pytest.raises(UnansweredError, match="was silent for"):
                    await anext(events)


@pytest.mark.proves("map-call-once", "map-trust")
@pytest.mark.parametrize("status", [302, 307, 308])
async def test_a_message_is_not_redirected_to_another_origin(status: int, http: httpx2.AsyncClient) -> None:
    asked: list[str] = []

    def other(request: Request) -> Response:
        asked.append(request.method)
        return Response()

    async with answering(other) as there, answering(lambda _: RedirectResponse(there, status)) as url:
        agent = AgentClient(http, card_at(url), client_options(credentials=Credentials(bearer="s3cret")))
        with pytest.raises(PeerError, match=f"answered HTTP {status}.*redirects to {there}.*not followed"):
            await agent.send(saying("x"))
    assert asked == []


@pytest.mark.proves("map-agent-read-alone", "map-trust")
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize(("status", "is_followed"), [(302, False), (307, True), (308, True)])
async def test_a_message_follows_one_redirect_within_its_origin(
    status: int, is_followed: bool, binding: str, http: httpx2.AsyncClient
) -> None:
    asked: list[tuple[str, str, bytes]] = []
    again = False

    async def answer(request: Request) -> Response:
        path = request.url.path
        asked.append((path, request.headers.get("authorization", ""), await request.body()))
        if again or not path.endswith("/moved"):
            return RedirectResponse(f"{path}/moved", status)
        result = {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "fine"}]}}
        return JSONResponse(result if binding == "HTTP+JSON" else {"result": result})

    async with answering(answer) as url:
        options = client_options(credentials=Credentials(bearer="s3cret"))
        interface = {"url": f"{url}/a2a", "protocolBinding": binding, "protocolVersion": "1.0"}
        agent = AgentClient(http, card_at(f"{url}/a2a", supportedInterfaces=[interface]), options)
        if is_followed:
            sent = await agent.send(saying("x"))
            assert isinstance(sent, Message)
            assert sent.parts[0].text == "fine"
            (first, *auth), (second, *auth_again) = asked
            assert (auth, second) == (auth_again, f"{first}/moved")
            assert auth[0] == "Bearer s3cret"
        again = True
        asked.clear()
        with pytest.raises(PeerError, match=f"answered HTTP {status}"):
            await agent.send(saying("x"))
        assert len(asked) == (2 if is_followed else 1)


@pytest.mark.proves("a2a-3.1.2-read")
async def test_a_stream_in_single_bytes_with_heartbeats_is_read(http: httpx2.AsyncClient) -> None:
    text = (
        b": hello\n\n" + events_of({"statusUpdate": STATUS}) + b": \n\n" + events_of({"statusUpdate": STATUS})
    )

    async def dripping() -> AsyncIterator[bytes]:
        for number in range(len(text)):
            yield text[number : number + 1]

    async with answering(lambda _: StreamingResponse(dripping(), media_type="text/event-stream")) as url:
        events = await all_of(AgentClient(http, card_at(url), client_options()), saying("x"))
    assert [event.to_object() for event in events] == [{"statusUpdate": STATUS}] * 2


@pytest.mark.proves("a2a-3.1.2-read")
async def test_a_stream_may_be_answered_with_one_object(http: httpx2.AsyncClient) -> None:
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}], "kind": "message"}
    answer = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"message": message}})
    async with answering(lambda _: Response(answer, media_type="application/json")) as url:
        events = await all_of(AgentClient(http, card_at(url), client_options()), saying("x"))
    assert [event.to_object() for event in events] == [{"message": message}]


@pytest.mark.proves("map-agent-told")
@pytest.mark.parametrize(
    ("status", "body", "media_type", "words"),
    [
        (502, "Bad luck", "text/html", "answered HTTP 502 Bad Gateway"),
        (401, "", "text/plain", "HTTP 401 Unauthorized \\(it asks for credentials: Bearer\\)"),
        (302, "", "text/plain", "answered HTTP 302 Found"),
        (
            403,
            '{"jsonrpc":"2.0","error":{"code":-32600,"message":"no"}}',
            "application/json",
            "refused: no \\(-32600\\)",
        ),
        (200, "hello", "application/json", "is not JSON"),
        (200, '{"jsonrpc":"2.0","id":1}', "application/json", "is not a JSON-RPC answer"),
        (
            200,
            '{"jsonrpc":"2.0","id":1,"result":{}}',
            "application/json",
            "is no StreamResponse: an event of a kind that is not known: {}",
        ),
        (200, "data: {}\n\n", "text/event-stream", "is not a JSON-RPC answer"),
        (200, events_of({"weather": "fine"}), "text/event-stream", 'of a kind that is not known: {"weather'),
        (200, "data: " + "x" * 70_000, "text/event-stream", "sent an event of more than 65536 bytes"),
        (200, '"' + "x" * 70_000 + '"', "application/json", "answered with more than 65536 bytes"),
    ],
)
async def test_an_invalid_answer_is_an_error_that_describes_it(
    status: int, body: bytes | str, media_type: str, words: str, desk: Desk, http: httpx2.AsyncClient
) -> None:
    headers = {"WWW-Authenticate": 'Bearer realm="x"'} if status == 401 else {}
    desk.response = Response(body, status, headers=headers, media_type=media_type)
    with pytest.raises(PeerError, match=words) as refused:
        await all_of(AgentClient(http, card_at(desk.url), client_options(limit_bytes=65_536)), saying("x"))
    assert desk.url in str(refused.value) or isinstance(refused.value, AgentRefusedError)


@pytest.mark.proves("a2a-3.1.2-read")
async def test_a_broken_stream_is_an_error(http: httpx2.AsyncClient) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"content-length", b"9999")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send(
            {"type": "http.response.body", "body": events_of({"statusUpdate": STATUS}), "more_body": True}
        )

    async with (
        listening(broken) as url,
        aclosing(AgentClient(http, card_at(url), client_options()).stream(saying("x"))) as events,
    ):
        assert (await anext(events)).status_update is not None
        with pytest.raises(PeerError, match=f"{url}/? broke off its answer"):
            await anext(events)


@pytest.mark.proves("a2a-3.1.2-read")
async def test_an_update_in_answer_to_a_message_is_refused(http: httpx2.AsyncClient) -> None:
    answer = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"statusUpdate": STATUS}})
    async with answering(lambda _: PlainTextResponse(answer)) as url:
        with pytest.raises(PeerError, match="is exactly one of task and message; found"):
            await AgentClient(http, card_at(url), client_options()).send(saying("x"))


@pytest.mark.proves("map-call-followed")
async def test_closing_a_stream_leaves_the_task_alone(http: httpx2.AsyncClient) -> None:
    go_on = anyio.Event()

    async def script(job: Any) -> None:
        await say(job, TaskState.WORKING)
        await go_on.wait()
        await give(job, "done")
        await say(job, TaskState.COMPLETED)

    async with serving(script) as (url, _):
        agent = AgentClient(http, await fetch_card(http, url), client_options())
        async with aclosing(agent.stream(saying("x"))) as events:
            first = await anext(events)
        assert first.task is not None
        async with aclosing(agent.subscribe(first.task.id)) as events:
            with anyio.fail_after(10):
                assert (await anext(events)).task is not None
                go_on.set()
                rest = [event async for event in events]
        assert rest[-1].payload.status.state is TaskState.COMPLETED  # type: ignore[union-attr]


# Lists


@pytest.mark.proves("map-call-followed")
@pytest.mark.parametrize("binding", BINDINGS)
async def test_tasks_are_listed_page_by_page(binding: str, http: httpx2.AsyncClient) -> None:
    async with running(config_for(raw_command())) as bridge:
        agent = AgentClient(http, over(binding, await fetch_card(http, bridge.base_url)), client_options())
        sent = [await agent.send(saying(skill="empty")) for _ in range(3)]
        wanted = ListTasksRequest(page_size=2, status=TaskState.COMPLETED, history_length=1)
        first = await agent.list_tasks(wanted)
        second = await agent.list_tasks(wanted.model_copy(update={"page_token": first.next_page_token}))
    ids = [task.id for task in sent if isinstance(task, Task)]
    assert [[task.id for task in page.tasks] for page in (first, second)] == [[ids[2], ids[1]], [ids[0]]]
    assert (first.total_size, second.next_page_token) == (3, "")


@pytest.mark.proves("map-liberal")
async def test_a_task_list_with_only_required_fields_is_read(desk: Desk, http: httpx2.AsyncClient) -> None:
    listed = {"tasks": [{"id": "t", "status": {"state": "input-required"}}]}
    desk.response = Response(json.dumps({"jsonrpc": "2.0", "id": 1, "result": listed}))
    page = await AgentClient(http, card_at(desk.url), client_options()).list_tasks(ListTasksRequest())
    assert [(task.id, task.status.state) for task in page.tasks] == [("t", TaskState.INPUT_REQUIRED)]
    assert (page.next_page_token, page.total_size) == ("", 1)
