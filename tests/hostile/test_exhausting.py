"""Peers that send without end, or far more than they seem to: each costs what its bound says, and no more."""

from __future__ import annotations

import logging
import re
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, Final

import anyio
import httpx2
import pytest

from bridge.a2a.client.agent_card import CardSource, FoundCard
from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.card_places import CARD_LIMIT_BYTES
from bridge.a2a.client.catalog import CatalogSource
from bridge.a2a.client.follow import TaskLostError, converse
from bridge.a2a.model.objects import (
    AgentCard,
    AppendedText,
    Message,
    Part,
    Role,
    SendMessageRequest,
    TaskState,
)
from bridge.errors import PeerError
from bridge.mcp.client.eras import Era
from bridge.mcp.client.faults import VALUES_LIMITED_BY, ServerLostError
from bridge.mcp.client.transports.stdio import StdioTarget
from bridge.mcp.client.upstream import Upstream
from bridge.mcp.client.values import OnProgress
from bridge.settings import ServerSettings
from bridge.translate.blocks import ResultRules, blocks_from_parts
from tests.hostile.endless import DONE, GIVEN, SAID, WORKING, events_of, flooding
from tests.hostile.raw_peer import Reply, bomb, head_of, raw_peer
from tests.support.limits import (
    call_of,
    calls,
    card_bounds,
    client_options,
    pace_of,
    server_settings,
)
from tests.support.running import Rpc, call_part, config_for, profile_with, running
from tests.support.scripted_agent import plain_card

MEGABYTE: Final = 1_000_000
BOMB_BYTES: Final = 64 << 20
LIMIT_BYTES: Final = MEGABYTE


@contextmanager
def holding_at_most(most_bytes: int) -> Iterator[None]:
    """What is done in this holds no more than so many bytes at any time."""
    tracemalloc.start()
    try:
        yield
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < most_bytes


async def _card(http: httpx2.AsyncClient, url: str) -> Any:
    return await CardSource(http, url, None, card_bounds()).refresh()


async def _catalog(http: httpx2.AsyncClient, url: str) -> Any:
    return await CatalogSource(http, url, None, card_bounds()).refresh()


def _client(http: httpx2.AsyncClient, url: str) -> AgentClient:
    card = AgentCard.model_validate(plain_card(url))
    return AgentClient(http, FoundCard(url, b"", card), client_options(limit_bytes=LIMIT_BYTES))


REQUEST: Final = SendMessageRequest(
    message=Message(message_id="m", role=Role.USER, parts=(Part(text="hello"),))
)


async def _answer(http: httpx2.AsyncClient, url: str) -> Any:
    return await _client(http, url).send(REQUEST)


async def _stream(http: httpx2.AsyncClient, url: str) -> Any:
    return [event async for event in _client(http, url).stream(REQUEST)]


@pytest.mark.outside
@pytest.mark.parametrize(
    ("read", "kind", "limit_bytes"),
    [
        (_card, b"application/json", CARD_LIMIT_BYTES),
        (_catalog, b"application/json", CARD_LIMIT_BYTES),
        (_answer, b"application/json", LIMIT_BYTES),
        (_stream, b"application/json", LIMIT_BYTES),
        (_stream, b"text/event-stream", LIMIT_BYTES),
    ],
)
async def test_what_an_agent_packed_is_bounded_by_what_it_unpacks_to(
    read: Callable[[httpx2.AsyncClient, str], Awaitable[Any]], kind: bytes, limit_bytes: int
) -> None:
    packed = bomb(BOMB_BYTES)
    async with raw_peer() as peer, httpx2.AsyncClient() as http:
        peer.answer = lambda *_: Reply((head_of(kind, b"Content-Encoding: gzip"), packed))
        with holding_at_most(2 * limit_bytes + 12 * MEGABYTE), pytest.raises(PeerError, match="more than"):
            await read(http, peer.url)


# Streams of agents


async def conversation(event: dict[str, Any]) -> Any:
    """What becomes of a task whose agent sends 40 MB of one kind of event before it ends."""
    begun, sent, end = (events_of(one) for one in ({"statusUpdate": WORKING}, event, {"statusUpdate": DONE}))
    async with raw_peer() as peer, httpx2.AsyncClient() as http:
        peer.answer = lambda *_: Reply((head_of(b"text/event-stream"), begun, *[sent] * 400, end))
        client = _client(http, peer.url)
        with anyio.fail_after(60), holding_at_most(12 * MEGABYTE):
            return await converse(client, REQUEST, pace=pace_of(task_limit_bytes=4 * MEGABYTE))


@pytest.mark.outside
@pytest.mark.parametrize(
    "event",
    [{"message": SAID}, {"statusUpdate": {**WORKING, "status": {**WORKING["status"], "message": SAID}}}],
)
@pytest.mark.smoke("event0")
async def test_of_what_an_agent_says_without_end_the_newest_is_kept(event: dict[str, Any]) -> None:
    task = await conversation(event)
    assert task.status.state is TaskState.COMPLETED
    assert len(task.history) <= 2


@pytest.mark.outside
async def test_a_task_whose_agent_gives_without_end_is_given_up() -> None:
    with pytest.raises(TaskLostError, match="sends more than 4000000 bytes"):
        await conversation({"artifactUpdate": GIVEN})


MANY: Final = {**GIVEN, "artifact": {"artifactId": "a", "parts": [{"data": {"rows": [1] * 1000}}]}}


@pytest.mark.parametrize("kind", [b"application/json", b"text/event-stream"])
async def test_an_answer_of_too_many_values_is_an_error_and_no_result(kind: bytes) -> None:
    """Not even where it says that the work is done."""
    task = {"id": "t", "contextId": "c", "status": DONE["status"], "artifacts": [MANY["artifact"]]}
    body = events_of({"task": task})
    body = body if kind == b"text/event-stream" else body[len(b"data: ") :]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nConnection: close\r\n\r\n"
    async with raw_peer() as peer, httpx2.AsyncClient() as http:
        peer.answer = lambda *_: Reply((head, body))
        found = FoundCard(peer.url, b"", AgentCard.model_validate(plain_card(peer.url)))
        client = AgentClient(http, found, client_options(json_values=1000))
        with pytest.raises(PeerError) as refused:
            await converse(client, REQUEST, pace=pace_of())
        fits = await converse(
            AgentClient(http, found, client_options(json_values=1100)), REQUEST, pace=pace_of()
        )
    assert str(refused.value) == (
        f"{peer.url} answered with more than 1000 values and keys:"
        " `answer_json_values` of `[agents]` is the limit"
    )
    assert fits.status.state is TaskState.COMPLETED


def test_a_text_in_many_pieces_becomes_a_link_without_being_put_together() -> None:
    parts = [Part(text="x" * 100_000), *[AppendedText(text="x" * 100_000)] * 400]
    reading = ResultRules(inline_limit_bytes=MEGABYTE, link_for=lambda _: "a2a://x/y")
    with holding_at_most(MEGABYTE):
        (link,) = blocks_from_parts(parts, reading)
    assert link == {
        "type": "resource_link",
        "uri": "a2a://x/y",
        "name": "text of the result",
        "size": 40_100_000,
        "mimeType": "text/plain",
    }


# Tool servers


@asynccontextmanager
async def met(target: StdioTarget, settings: ServerSettings | None = None) -> AsyncIterator[Upstream]:
    """A server, connected to."""
    upstream = Upstream("tools", target, era=Era.LEGACY, settings=settings or server_settings(), **calls())
    with anyio.fail_after(60):
        async with upstream.run():
            yield upstream


async def called(
    upstream: Upstream, name: str, on_progress: OnProgress | None = None, **arguments: Any
) -> Any:
    """What a tool gives."""
    async with upstream.queue("someone", "somewhere") as queue:
        return await queue.session.call(call_of(name, arguments), on_progress)


@pytest.mark.parametrize(
    ("count", "size", "limit_bytes"), [(20_000, 1, 64 * MEGABYTE), (1000, 20_000, MEGABYTE)]
)
@pytest.mark.smoke("1000-20000-1000000")
async def test_a_server_that_asks_and_takes_in_no_answers_loses_its_connection(
    count: int, size: int, limit_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with met(replace(flooding(), result_limit_bytes=limit_bytes)) as upstream:
        with (
            holding_at_most(16 * MEGABYTE),
            pytest.raises(ServerLostError, match="without reading the answers"),
        ):
            await called(upstream, "ping", count=count, bytes=size)
        assert await called(upstream, "links", count=0) == {"content": []}
    assert "tools is down: it sent " in caplog.text


async def test_a_server_that_asks_much_and_takes_in_the_answers_keeps_its_connection() -> None:
    async with met(flooding()) as upstream:
        assert await called(upstream, "ping", count=2000, bytes=1000, reads=True) == {"content": []}
        assert upstream.down is None


async def test_progress_without_a_number_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async with met(flooding()) as upstream:
        await called(upstream, "progress", lambda _: None, count=100)
    assert [
        (record.name, record.exc_info) for record in caplog.records if record.levelno >= logging.WARNING
    ] == [("bridge.mcp.client.dispatcher", None)]
    assert "tools sends progress without a number. It is ignored: 'much'" in caplog.text


async def test_a_result_of_a_million_values_fails_its_call_before_one_is_made() -> None:
    """4 MB, of which Python would make 64."""
    async with met(flooding()) as upstream:
        words = f"the result holds more than 250000 values and keys: {VALUES_LIMITED_BY}"
        with holding_at_most(24 * MEGABYTE), pytest.raises(ServerLostError, match=words):
            await called(upstream, "values", count=MEGABYTE)
        assert await called(upstream, "links", count=0) == {"content": []}


async def test_a_result_of_too_many_values_is_a_task_that_failed() -> None:
    config = config_for(replace(flooding(), result_json_values=1000))
    async with running(config) as bridge, httpx2.AsyncClient(timeout=30) as http:
        rpc = Rpc(http, bridge.base_url)
        status = (await rpc.send(call_part("values", count=1000)))["status"]
        after = (await rpc.send(call_part("values", count=10)))["status"]
    assert (status["state"], after["state"]) == ("TASK_STATE_FAILED", "TASK_STATE_COMPLETED")
    assert re.fullmatch(
        rf"flooding: .*the result holds more than 1000 values and keys: {VALUES_LIMITED_BY}.*",
        status["message"]["parts"][0]["text"],
    )


@pytest.mark.parametrize(
    ("size", "words"), [(1, "lists more than 20 tools"), (100_000, "lists tools of more than 1000000 bytes")]
)
async def test_a_list_of_tools_is_bounded_on_all_pages_together(size: int, words: str) -> None:
    settings = server_settings(tools_most=20, tools_limit_bytes=MEGABYTE)
    async with met(flooding("--endless", str(size)), settings) as upstream:
        with pytest.raises(PeerError, match=words):
            await upstream.ready()


@pytest.mark.parametrize("same", [False, True])
async def test_links_of_a_result_are_read_no_further_than_their_number_and_sum_allow(same: bool) -> None:
    content = {"links_most": 8, "links_limit_bytes": 500_000, "inline_limit_bytes": 200_000}
    config = replace(config_for(flooding()), profile=profile_with(content=content))
    async with running(config) as bridge, httpx2.AsyncClient(timeout=30) as http:
        rpc = Rpc(http, bridge.base_url)
        task = await rpc.send(call_part("links", count=100, bytes=100_000, same=same))
        few = await rpc.send(call_part("links", count=100, bytes=100, same=same))
    (artifact,) = task["artifacts"]
    assert [part["url"] for part in artifact["parts"] if "url" in part][:1]
    assert len(artifact["parts"]) == 100
    assert sum("url" not in part for part in artifact["parts"]) == (0 if same else 4)
    assert sum("url" not in part for part in few["artifacts"][0]["parts"]) == (100 if same else 8)
