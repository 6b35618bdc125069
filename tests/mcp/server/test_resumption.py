"""Streams of MCP 2025-11-25 that a client resumes after its connection broke."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import httpx2
import pytest
from mcp.server.streamable_http import GET_STREAM_KEY, EventMessage
from mcp_types import JSONRPCNotification, JSONRPCResponse

from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Access, Credential, verifiers_of
from bridge.mcp.server.resumption import KeptMessages, SessionMessages
from tests.support.limits import PROFILE
from tests.support.mcp_face import Face
from tests.support.mcp_serving import served, wire_to
from tests.support.mcp_wire import LEGACY, Http, Json

BOUNDS: Final = PROFILE.streams
pytestmark = pytest.mark.proves("mcp25-event-ids")


class _HeldFace(Face):
    """A face whose call reports, and goes on when the test says so."""

    def __init__(self) -> None:
        super().__init__(names=["held", "echo"])
        self.go_on = anyio.Event()

    async def _held(self, incoming: Any) -> Json:
        incoming.report(1, None, "begun")
        self.waiting += 1
        self.moved.set()
        await self.go_on.wait()
        incoming.report(2, None, "going on")
        return {"content": [{"type": "text", "text": "done"}]}


async def _events(response: httpx2.Response) -> AsyncIterator[Json]:
    """The events of a stream, each as its fields."""
    fields: Json = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name.rstrip(":")] = value
        elif fields:
            yield fields
            fields = {}


@asynccontextmanager
async def _resumed(http: Http, event_id: str) -> AsyncIterator[AsyncIterator[Json]]:
    headers = {**http.headers({}), "accept": "text/event-stream", "last-event-id": event_id}
    async with http.client.stream("GET", http.url, headers=headers) as response:
        assert response.status_code == 200
        yield _events(response)


def _call(http: Http, request_id: int, name: str) -> Json:
    meta = {"progressToken": "p"}
    return http.message(request_id, "tools/call", {"name": name, "arguments": {}, "_meta": meta})


@asynccontextmanager
async def _broken_call(http: Http, face: _HeldFace) -> AsyncIterator[str]:
    """A call whose connection broke after its first report; the id of the last event that its client saw."""
    message = _call(http, 7, "held")
    async with http.client.stream("POST", http.url, json=message, headers=http.headers(message)) as response:
        events = _events(response)
        priming, report = await anext(events), await anext(events)
        assert (priming["data"], priming["retry"]) == ("", "1000")
        assert '"begun"' in report["data"]
    yield report["id"]


@asynccontextmanager
async def _held(**limits: Any) -> AsyncIterator[tuple[Http, _HeldFace]]:
    face = _HeldFace()
    async with served(face, **limits) as url, httpx2.AsyncClient(timeout=30) as client:
        http = Http(client, url, LEGACY)
        await http.open()
        yield http, face


async def test_a_call_whose_connection_broke_is_resumed_where_it_broke_and_its_stream_ends() -> None:
    async with _held() as (http, face), _broken_call(http, face) as last:
        async with _resumed(http, last) as events:
            priming = await anext(events)
            assert priming["data"] == ""
            face.go_on.set()
            rest = [event async for event in events]
        assert ["going on" in event["data"] for event in rest] == [True, False]
        assert '"text":"done"' in rest[-1]["data"]
        ids = [last, priming["id"], *(event["id"] for event in rest)]
        assert len({*ids}) == len(ids)


async def test_what_came_while_nobody_listened_is_sent_again_in_order() -> None:
    async with _held() as (http, face), _broken_call(http, face) as last:
        face.go_on.set()
        assert (await http.tool(8, "echo"))["result"]
        async with _resumed(http, last) as events:
            told = [event["data"] async for event in events]
        assert ["going on" in told[0], '"text":"done"' in told[1], len(told)] == [True, True, 2]
        async with _resumed(http, last) as events:
            assert [event["data"] async for event in events] == told


async def test_an_answer_that_is_no_longer_kept_is_an_error_for_its_request() -> None:
    async with _held(resume_limit_bytes=16 * 1_050) as (http, face), _broken_call(http, face) as last:
        face.go_on.set()
        assert (await http.tool(8, "echo"))["result"]
        async with _resumed(http, last) as events:
            told = [event["data"] async for event in events]
        assert len(told) == 1
        assert '"id":7' in told[0]
        assert "no longer has the answer" in told[0]


async def test_without_kept_messages_events_have_no_ids() -> None:
    async with wire_to(LEGACY, resume_messages=0) as (http, _):
        response = await http.post(_call(http, 1, "echo"))
        assert "id:" not in response.text.splitlines()[0]
        headers = {**http.headers({}), "accept": "text/event-stream", "last-event-id": "1-1"}
        async with http.client.stream("GET", http.url, headers=headers) as response:
            assert response.status_code == 200  # the stream for notifications


@pytest.mark.parametrize("event_id", ["", "nonsense", "1-x", "99-1", "-1", "1-1; drop"])
async def test_an_id_that_was_never_given_out_opens_the_stream_for_notifications(event_id: str) -> None:
    messages = SessionMessages(KeptMessages(BOUNDS))
    await messages.store_event("1", _note(1))
    assert await _replayed(messages, event_id) == ([], GET_STREAM_KEY)


async def test_two_sessions_with_the_same_request_ids_get_their_own_messages_only() -> None:
    kept = KeptMessages(BOUNDS)
    ours, theirs = SessionMessages(kept), SessionMessages(kept)
    for messages, words in ((ours, "ours"), (theirs, "theirs")):
        assert await messages.store_event("1", None) == "1-1"
        await messages.store_event("1", JSONRPCResponse(jsonrpc="2.0", id=1, result={"words": words}))
    (event,), _ = await _replayed(ours, "1-1")
    assert isinstance(event.message, JSONRPCResponse)
    assert event.message.result == {"words": "ours"}


async def test_a_session_keeps_as_many_messages_as_it_may_and_the_latest() -> None:
    kept = KeptMessages(BOUNDS.having(resume_messages=3))
    messages = SessionMessages(kept)
    for number in range(10):
        await messages.store_event("1", _note(number))
    events, _ = await _replayed(messages, "1-0")
    assert [event.event_id for event in events] == ["1-8", "1-9", "1-10"]
    for number in range(20):
        await messages.store_event(f"r{number}", JSONRPCResponse(jsonrpc="2.0", id=f"r{number}", result={}))
    assert len(messages._streams) <= 3


async def test_a_session_that_keeps_much_displaces_nothing_of_another() -> None:
    kept = KeptMessages(BOUNDS.having(resume_limit_bytes=16 * 5_000))
    quiet, loud = SessionMessages(kept), SessionMessages(kept)
    await quiet.store_event("1", _note(1))
    for number in range(100):
        await loud.store_event("1", _note(number, "x" * 1000))
    await loud.store_event("1", _note(0, "x" * 10_000))
    assert len((await _replayed(quiet, "1-0"))[0]) == 1
    assert len((await _replayed(loud, "1-0"))[0]) == 2


async def test_all_sessions_together_keep_no_more_bytes_than_they_may() -> None:
    kept = KeptMessages(BOUNDS.having(resume_limit_bytes=16 * 2_000))
    sessions = [SessionMessages(kept) for _ in range(100)]
    for session in sessions:
        await session.store_event("1", _note(1))
    left = [session for session in sessions if (await _replayed(session, "1-0"))[0]]
    assert left == sessions[-len(left) :]
    assert 20 < len(left) < 32


async def test_a_stream_of_somebody_else_is_not_there() -> None:
    access = Access(verifiers_of([Credential(Principal(name), f"token-{name}") for name in ("ada", "bob")]))
    face = _HeldFace()
    async with served(face, access) as url, httpx2.AsyncClient(timeout=30) as client:
        client.headers["authorization"] = "Bearer token-ada"
        http = Http(client, url, LEGACY)
        await http.open()
        async with _broken_call(http, face) as last:
            headers = {**http.headers({}), "accept": "text/event-stream", "last-event-id": last}
            theirs = await client.get(url, headers={**headers, "authorization": "Bearer token-bob"})
            assert theirs.status_code == 404
            face.go_on.set()


def _note(number: int, words: str = "") -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method="n", params={"number": number, "words": words})


async def _replayed(messages: SessionMessages, event_id: str) -> tuple[list[EventMessage], str | None]:
    events: list[EventMessage] = []

    async def take(event: EventMessage) -> None:
        events.append(event)

    name = await messages.replay_events_after(event_id, take)
    return events, name
