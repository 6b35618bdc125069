"""Recorded answers of agents, through the client of agents: both versions, both bindings, streamed and polled."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import anyio
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.bindings import AgentRefusedError
from bridge.a2a.client.follow import OutcomeUnknownError, converse
from bridge.a2a.model.objects import Message, Part, Role, SendMessageRequest, Task
from bridge.translate.blocks import ResultRules
from bridge.translate.result import result_from_message, result_from_task
from tests.support.agents import found_at
from tests.support.limits import client_options, pace_of
from tests.support.real_answers import (
    DONE,
    FINE,
    FORMS,
    POLLED,
    STREAMED,
    SUBMITTED,
    Json,
    RawAgent,
    Row,
    message_of,
    spoken,
    task,
    turns,
)
from tests.support.running import listening

pytestmark = pytest.mark.proves("map-agent-read-alone", "map-heard")

PACE = pace_of(first_seconds=0.01, most_seconds=0.02, end_seconds=0.05, piece_seconds=0.2)
URL = "http://127.0.0.1:9"
SAYING = SendMessageRequest(message=Message(message_id="mine", role=Role.USER, parts=(Part(text="hi"),)))


def shown(block: object) -> str:
    """A block as the rows write it."""
    assert isinstance(block, dict)
    held = block.get("resource", block)
    return (
        str(block["text"]) if "text" in block else f"{held['mimeType']} {held.get('data', held.get('blob'))}"
    )


async def outcome_of(row: Row, form: str, *, streams: bool) -> tuple[list[str], bool]:
    """The texts that come of a row, and whether they are an error."""
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(RawAgent([row], form))) as http:
        found = found_at(URL, form, capabilities={"streaming": streams})
        client = AgentClient(http, found, client_options())
        message = Message(message_id="mine", role=Role.USER, parts=(Part(text=row.name),))
        outcome = await converse(client, SendMessageRequest(message=message), pace=PACE)
    read = result_from_message if isinstance(outcome, Message) else result_from_task
    result = read(outcome, ResultRules())  # type: ignore[operator]
    return [shown(block) for block in result["content"]], "isError" in result


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.smoke("JSONRPC", "0.3 HTTP+JSON")
async def test_the_streamed_result_arrives(form: str) -> None:
    for row in STREAMED:
        if form in row.forms:
            assert await outcome_of(row, form, streams=True) == ([*row.texts], row.is_error), row.name


@pytest.mark.parametrize("form", FORMS)
async def test_the_stored_result_arrives(form: str) -> None:
    for row in POLLED:
        if form in row.forms:
            assert await outcome_of(row, form, streams=False) == ([*row.texts], row.is_error), row.name


@dataclass
class Faulty:
    """An agent that answers GetTask with each of these in turn, and with the last one for ever."""

    form: str
    answers: list[Response]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = await request.body()
        asked = json.loads(body).get("method", request.url.path) if body else request.url.path
        if "end" in asked:
            begun = spoken({"task": task("TASK_STATE_WORKING")}, self.form)
            await JSONResponse({"result": begun} if "JSONRPC" in self.form else begun)(scope, receive, send)
            return
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        await answer(scope, receive, send)


@pytest.mark.proves("map-call-followed")
@pytest.mark.parametrize("form", FORMS)
async def test_a_task_is_read_again_where_a_gateway_or_the_agent_has_no_time(form: str) -> None:
    ended = task("TASK_STATE_COMPLETED", artifacts=[{"artifactId": "a", "parts": [{"text": "fine"}]}])
    told = spoken({"task": ended}, form)
    told = told if form == FORMS[2] else told["task"]
    last = JSONResponse({"result": told} if "JSONRPC" in form else told)
    faults = [Response("Bad luck", 502), Response(status_code=429, headers={"Retry-After": "0"})]
    faults += [Response(status_code=503), Response(status_code=504)]
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(Faulty(form, [*faults, last]))) as http:
        client = AgentClient(http, found_at(URL, form, capabilities={}), client_options())
        outcome = await converse(client, SAYING, pace=PACE)
    assert isinstance(outcome, Task)
    assert outcome.artifacts is not None
    assert outcome.artifacts[0].parts[0].text == "fine"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "events", [({"message": message_of({"text": "fine"})},), (SUBMITTED, FINE, DONE)], ids=["message", "task"]
)
async def test_a_stream_left_open_after_the_reply_is_abandoned(events: list[Json], form: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        if scope["method"] == "GET" or (body and "et" in json.loads(body).get("method", "")):
            await Response(status_code=404)(scope, receive, send)
            return
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for event in events:
            said = spoken(event, form)
            text = json.dumps({"result": said} if "JSONRPC" in form else said).encode()
            await send({"type": "http.response.body", "body": b"data: %b\n\n" % text, "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    with anyio.fail_after(20):
        async with listening(app) as url, httpx2.AsyncClient() as http:
            outcome = await converse(
                AgentClient(http, found_at(url, form), client_options()), SAYING, pace=PACE
            )
    parts = outcome.parts if isinstance(outcome, Message) else (outcome.artifacts or ())[0].parts
    assert [part.text for part in parts] == ["fine"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("streams", [True, False])
async def test_an_answer_may_begin_another_task(form: str, streams: bool) -> None:
    row = Row(
        "go",
        (SUBMITTED, FINE, DONE),
        task=task("TASK_STATE_COMPLETED", artifacts=[{"artifactId": "a", "parts": [{"text": "fine"}]}]),
    )
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(RawAgent([row], form))) as http:
        client = AgentClient(http, found_at(URL, form, capabilities={"streaming": streams}), client_options())
        message = SAYING.message.changed(task_id="t0", parts=(Part(text="go"),))
        outcome = await converse(client, SendMessageRequest(message=message), pace=PACE)
    assert isinstance(outcome, Task)
    assert outcome.id == "t1"


@pytest.mark.parametrize("form", FORMS)
async def test_a_cancellation_that_is_refused_is_an_error(form: str) -> None:
    error = {"code": -32002, "message": "Task cannot be canceled"}
    refusal = {"error": {**error, "details": []}} if form == FORMS[1] else error
    app = JSONResponse({"error": error}) if "JSONRPC" in form else JSONResponse(refusal, 409)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app)) as http:
        client = AgentClient(http, found_at(URL, form), client_options())
        with pytest.raises(AgentRefusedError, match="Task cannot be canceled"):
            await client.cancel("t1")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("events", "texts"),
    [
        ((SUBMITTED, turns("TASK_STATE_COMPLETED", {"text": "done"})), ["done"]),
        ((SUBMITTED, {"message": message_of({"text": "fine"}, taskId="t1")}), ["fine"]),
    ],
    ids=["done", "a message last"],
)
async def test_a_reply_does_not_wait_for_a_task_that_cannot_be_read(
    events: list[Json], texts: list[str], form: str
) -> None:
    row = Row("hi", events)
    agent = RawAgent([row], form)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = await receive()
        method = json.loads(body["body"])["method"] if "JSONRPC" in form else ""
        if method in ("GetTask", "tasks/get") or scope["method"] == "GET":
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        given = iter([body])

        async def again() -> Any:
            return next(given, None) or await receive()

        await agent(scope, again, send)

    with anyio.fail_after(20):
        async with listening(app) as url, httpx2.AsyncClient() as http:
            outcome = await converse(
                AgentClient(http, found_at(url, form), client_options()), SAYING, pace=PACE
            )
    message = outcome if isinstance(outcome, Message) else outcome.status.message
    assert message is not None
    assert [part.text for part in message.parts] == texts


@pytest.mark.proves("map-agent-told")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("streams", [True, False])
async def test_a_working_task_without_an_id_is_an_unknown_outcome(form: str, streams: bool) -> None:
    unnamed = {"task": {"contextId": "c1", "status": {"state": "TASK_STATE_WORKING"}}}
    row = Row("hi", (unnamed,), reply=unnamed)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(RawAgent([row], form))) as http:
        client = AgentClient(http, found_at(URL, form, capabilities={"streaming": streams}), client_options())
        with pytest.raises(OutcomeUnknownError, match="works on a task, but did not give the id of the task"):
            await converse(client, SAYING, pace=PACE)
