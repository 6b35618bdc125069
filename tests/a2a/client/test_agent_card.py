"""How the card of an agent is found, validated and followed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from starlette.requests import Request

from bridge.a2a.client.agent_card import CardSource, FoundCard, fetch_card
from bridge.a2a.wire.rest import CARD_PATH
from bridge.errors import PeerError
from bridge.http.client import PeerCredentials, fixed_credentials
from tests.a2a.client.test_http_cache import QUICK, Publisher
from tests.support.agents import found_at, serving
from tests.support.limits import card_bounds
from tests.support.running import listening

pytestmark = pytest.mark.proves("a2a-8.6-kept")

KEY = fixed_credentials(PeerCredentials({"X-Key": "k"}))


class CardPublisher(Publisher):
    """Publishes a card, whose name is its ETag after the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "First"
        self.headers = {"ETag": '"1"', "Cache-Control": "max-age=300"}
        self.path = CARD_PATH

    def text(self, request: Request) -> str:
        card = found_at("http://127.0.0.1/").card.to_object()
        return json.dumps({**card, "name": self.name})

    def publish(self, name: str) -> None:
        self.name, self.headers = name, {**self.headers, "ETag": f'"{name}"'}


async def test_the_credentials_for_a_card_are_read_anew_for_each_request(http: httpx2.AsyncClient) -> None:
    publisher, keys = CardPublisher(), iter(("one", "two"))

    async def source() -> PeerCredentials:
        await anyio.lowlevel.checkpoint()
        return PeerCredentials({"X-Key": next(keys)})

    async with listening(publisher) as url:
        card = CardSource(http, url, None, card_bounds(), credentials=source)
        for _ in range(2):
            await card.refresh()
    assert [asked["x-key"] for asked in publisher.sent] == ["one", "two"]


async def test_an_unchanged_card_is_requested_with_its_validators(
    tmp_path: Path, http: httpx2.AsyncClient
) -> None:
    publisher = CardPublisher()
    publisher.headers["Last-Modified"] = "Wed, 21 Oct 2026 07:28:00 GMT"
    async with listening(publisher) as url:
        found = await CardSource(http, url, tmp_path, card_bounds(), credentials=KEY).refresh()
        assert found.url == f"{url}{CARD_PATH}"
        source = CardSource(http, url, tmp_path, card_bounds(), credentials=KEY)
        assert await source.refresh() == found
        assert await source.refresh() is source.cached()
        publisher.publish("Second")
        assert (await source.refresh()).card.name == "Second"
        assert CardSource(http, url, tmp_path, card_bounds()).cached() == source.cached()
    assert publisher.answered == [200, 304, 304, 200]
    assert [asked.get("if-none-match") for asked in publisher.sent] == [None, '"1"', '"1"', '"1"']
    assert publisher.sent[1]["if-modified-since"] == "Wed, 21 Oct 2026 07:28:00 GMT"
    assert {asked["x-key"] for asked in publisher.sent} == {"k"}
    assert {asked["a2a-version"] for asked in publisher.sent} == {"1.0"}


async def test_the_card_of_our_own_server_is_validated(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    async def nothing(_: Any) -> None:
        pass

    async with serving(nothing) as (url, _):
        source = CardSource(http, url, tmp_path, card_bounds())
        found = await source.refresh()
        assert await source.refresh() is found
        assert found == await fetch_card(http, url)


async def test_a_card_at_its_own_url_is_requested_there_first(
    tmp_path: Path, http: httpx2.AsyncClient
) -> None:
    publisher = CardPublisher()
    publisher.path = "/a/card"
    async with listening(publisher) as url:
        source = CardSource(http, f"{url}/a/card", tmp_path, card_bounds())
        assert (await source.refresh()).url == f"{url}/a/card"
        await source.refresh()
        publisher.path = f"/a/card{CARD_PATH}"
        assert (await source.refresh()).url == f"{url}/a/card{CARD_PATH}"
    assert publisher.answered == [200, 304, 200]


async def test_an_invalid_card_does_not_replace_the_known_card(
    tmp_path: Path, http: httpx2.AsyncClient
) -> None:
    publisher = CardPublisher()
    async with listening(publisher) as url:
        source = CardSource(http, url, tmp_path, card_bounds())
        found = await source.refresh()
        for status in (500, 404, 304):
            publisher.status = status
            if status == 304:
                assert await source.refresh() is found
                with pytest.raises(PeerError, match="but the bridge has never read it"):
                    await CardSource(http, url, None, card_bounds()).refresh()
            else:
                with pytest.raises(PeerError):
                    await source.refresh()
            assert source.cached() is found


async def test_watchers_get_a_new_card_and_no_unchanged_card(
    tmp_path: Path, http: httpx2.AsyncClient
) -> None:
    publisher, told = CardPublisher(), []
    publisher.headers["Cache-Control"] = "no-cache"
    moved = anyio.Event()

    async def on_change(found: FoundCard) -> None:
        told.append(found.card.name)
        moved.set()

    async with listening(publisher) as url, anyio.create_task_group() as tasks:
        await CardSource(http, url, tmp_path, card_bounds()).refresh()
        tasks.start_soon(CardSource(http, url, tmp_path, QUICK).watch, on_change)
        with anyio.fail_after(20):
            await publisher.until(304, 3)
            publisher.status = 500
            await publisher.until(500, 2)
            assert told == []
            publisher.publish("Second")
            publisher.status = 200
            await moved.wait()
        tasks.cancel_scope.cancel()
    assert told == ["Second"]
