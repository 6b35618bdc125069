"""Peers that send without end, or far more than they seem to: each costs what its bound says, and no more."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpx2
import pytest

from bridge.a2a.card import CARD_LIMIT_BYTES, FoundCard
from bridge.a2a.cards import CardSource
from bridge.a2a.catalog_source import CatalogSource
from bridge.a2a.client import AgentClient, ClientOptions
from bridge.a2a.models import AgentCard, Message, Part, Role, SendMessageRequest
from bridge.errors import PeerError
from tests.hostile.raw_peer import Reply, raw_peer
from tests.support.scripted_agent import plain_card

MEGABYTE: Final = 1_000_000
BOMB: Final = gzip.compress(b'{"a": "' + b"a" * 64 * MEGABYTE)
"""64 KB that unpack to 64 MB."""
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
    return await CardSource(http, url, None).refresh()


async def _catalog(http: httpx2.AsyncClient, url: str) -> Any:
    return await CatalogSource(http, url, None).refresh()


def _client(http: httpx2.AsyncClient, url: str) -> AgentClient:
    card = AgentCard.model_validate(plain_card(url))
    return AgentClient(http, FoundCard(url, b"", card), ClientOptions(limit_bytes=LIMIT_BYTES))


REQUEST: Final = SendMessageRequest(
    message=Message(message_id="m", role=Role.USER, parts=(Part(text="hello"),))
)


async def _answer(http: httpx2.AsyncClient, url: str) -> Any:
    return await _client(http, url).send(REQUEST)


async def _stream(http: httpx2.AsyncClient, url: str) -> Any:
    return [event async for event in _client(http, url).stream(REQUEST)]


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
    head = b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nContent-Encoding: gzip\r\n"
    async with raw_peer() as peer, httpx2.AsyncClient() as http:
        peer.answer = lambda *_: Reply((head + b"Connection: close\r\n\r\n", BOMB))
        with holding_at_most(2 * limit_bytes + 12 * MEGABYTE), pytest.raises(PeerError, match="more than"):
            await read(http, peer.url)
