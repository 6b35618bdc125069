"""How a card is kept, how long it holds, and when it is asked for again."""

from __future__ import annotations

import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bridge.a2a.client.card import CardSource, FoundCard, fetch_card
from bridge.a2a.client.http_cache import FreshnessBounds, fresh_seconds
from bridge.a2a.wire.rest import CARD_PATH
from bridge.errors import PeerError
from bridge.http.client import PeerCredentials, fixed_credentials
from tests.support.agents import found_at, serving
from tests.support.limits import card_bounds
from tests.support.running import listening

pytestmark = pytest.mark.proves("a2a-8.6-kept")

QUICK = FreshnessBounds(min_seconds=0.01, max_seconds=0.02, retry_seconds=0.01)
BOUNDS = FreshnessBounds(min_seconds=60, max_seconds=3600)
KEY = fixed_credentials(PeerCredentials({"X-Key": "k"}))


class Publisher:
    """Serves a card as the test says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.name = "First"
        self.headers = {"ETag": '"1"', "Cache-Control": "max-age=300"}
        self.status = 200
        self.path = CARD_PATH
        self.asked: list[dict[str, str]] = []
        self.answered: list[int] = []
        self._moved = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.url.path != self.path:
            await Response(status_code=404)(scope, receive, send)
            return
        self.asked.append(dict(request.headers))
        response = Response(status_code=self.status)
        if self.status == 200:
            unchanged = request.headers.get("If-None-Match") == self.headers.get("ETag", "")
            response = Response(None if unchanged else self.text, 304 if unchanged else 200, self.headers)
        self.answered.append(response.status_code)
        self._moved.set()
        self._moved = anyio.Event()
        await response(scope, receive, send)

    async def until(self, status: int, times: int) -> None:
        """Wait until a status was answered so many times."""
        while self.answered.count(status) < times:
            await self._moved.wait()

    @property
    def text(self) -> str:
        card = found_at("http://127.0.0.1/").card.to_object()
        return json.dumps({**card, "name": self.name})

    def publish(self, name: str) -> None:
        self.name, self.headers = name, {**self.headers, "ETag": f'"{name}"'}


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient() as http:
        yield http


async def test_a_card_is_there_at_once_at_the_next_start(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    publisher, folder = Publisher(), tmp_path / "cards"
    async with listening(publisher) as url:
        first = CardSource(http, url, folder, card_bounds())
        assert first.cached() is None
        found = await first.refresh()
        assert found.url == f"{url}{CARD_PATH}"
        assert first.cached() is found
    second = CardSource(http, url, folder, card_bounds())
    assert second.cached() == found
    with pytest.raises(PeerError, match="Connection refused"):
        await second.refresh()
    assert second.cached() == found
    [file] = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert CardSource(http, f"{url}/other", folder, card_bounds()).cached() is None


async def test_what_is_shown_for_a_card_is_asked_for_each_time(http: httpx2.AsyncClient) -> None:
    publisher, keys = Publisher(), iter(("one", "two"))

    async def source() -> PeerCredentials:
        await anyio.lowlevel.checkpoint()
        return PeerCredentials({"X-Key": next(keys)})

    async with listening(publisher) as url:
        card = CardSource(http, url, None, card_bounds(), credentials=source)
        for _ in range(2):
            await card.refresh()
    assert [asked["x-key"] for asked in publisher.asked] == ["one", "two"]


async def test_an_unchanged_card_is_asked_for_with_its_validators(
    tmp_path: Path, http: httpx2.AsyncClient
) -> None:
    publisher = Publisher()
    publisher.headers["Last-Modified"] = "Wed, 21 Oct 2026 07:28:00 GMT"
    async with listening(publisher) as url:
        found = await CardSource(http, url, tmp_path, card_bounds(), credentials=KEY).refresh()
        source = CardSource(http, url, tmp_path, card_bounds(), credentials=KEY)
        assert await source.refresh() == found
        assert await source.refresh() is source.cached()
        publisher.publish("Second")
        assert (await source.refresh()).card.name == "Second"
        assert CardSource(http, url, tmp_path, card_bounds()).cached() == source.cached()
    assert publisher.answered == [200, 304, 304, 200]
    assert [asked.get("if-none-match") for asked in publisher.asked] == [None, '"1"', '"1"', '"1"']
    assert publisher.asked[1]["if-modified-since"] == "Wed, 21 Oct 2026 07:28:00 GMT"
    assert {asked["x-key"] for asked in publisher.asked} == {"k"}
    assert {asked["a2a-version"] for asked in publisher.asked} == {"1.0"}


async def test_the_card_of_our_own_server_is_validated(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    async def nothing(_: Any) -> None:
        pass

    async with serving(nothing) as (url, _):
        source = CardSource(http, url, tmp_path, card_bounds())
        found = await source.refresh()
        assert await source.refresh() is found
        assert found == await fetch_card(http, url)


async def test_a_card_at_its_own_url_is_asked_for_there_first(
    tmp_path: Path, http: httpx2.AsyncClient
) -> None:
    publisher = Publisher()
    publisher.path = "/a/card"
    async with listening(publisher) as url:
        source = CardSource(http, f"{url}/a/card", tmp_path, card_bounds())
        assert (await source.refresh()).url == f"{url}/a/card"
        await source.refresh()
        publisher.path = f"/a/card{CARD_PATH}"
        assert (await source.refresh()).url == f"{url}/a/card{CARD_PATH}"
    assert publisher.answered == [200, 304, 200]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"place": "x"}', b"\xff\xfe"])
async def test_a_file_that_cannot_be_read_is_as_good_as_absent(
    text: bytes, tmp_path: Path, http: httpx2.AsyncClient
) -> None:
    async with listening(Publisher()) as url:
        found = await CardSource(http, url, tmp_path, card_bounds()).refresh()
        [file] = tmp_path.iterdir()
        file.write_bytes(text)
        source = CardSource(http, url, tmp_path, card_bounds())
        assert source.cached() is None
        assert await source.refresh() == found
        assert CardSource(http, url, tmp_path, card_bounds()).cached() == found


async def test_what_may_not_be_stored_and_what_cannot_be_is_kept_in_memory_alone(
    tmp_path: Path, http: httpx2.AsyncClient
) -> None:
    publisher = Publisher()
    async with listening(publisher) as url:
        source = CardSource(http, url, tmp_path, card_bounds())
        await source.refresh()
        publisher.headers["Cache-Control"] = "private, no-store"
        found = await source.refresh()
        assert list(tmp_path.iterdir()) == []
        assert source.cached() is found
        (tmp_path / "file").write_text("in the way")
        assert await CardSource(http, url, tmp_path / "file", card_bounds()).refresh() == found
        assert await CardSource(http, url, None, card_bounds()).refresh() == found


async def test_what_is_no_card_leaves_the_one_that_was_known(
    tmp_path: Path, http: httpx2.AsyncClient
) -> None:
    publisher = Publisher()
    async with listening(publisher) as url:
        source = CardSource(http, url, tmp_path, card_bounds())
        found = await source.refresh()
        for status in (500, 404, 304):
            publisher.status = status
            if status == 304:
                assert await source.refresh() is found
                with pytest.raises(PeerError, match="but it was never seen"):
                    await CardSource(http, url, None, card_bounds()).refresh()
            else:
                with pytest.raises(PeerError):
                    await source.refresh()
            assert source.cached() is found


async def test_a_new_card_is_told_and_an_old_one_is_not(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    publisher, told = Publisher(), []
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


async def test_a_card_that_was_not_there_is_told_when_it_comes(http: httpx2.AsyncClient) -> None:
    publisher, came = Publisher(), anyio.Event()
    publisher.status = 503

    async def on_change(found: FoundCard) -> None:
        came.set()

    async with listening(publisher) as url, anyio.create_task_group() as tasks:
        tasks.start_soon(CardSource(http, url, None, QUICK).watch, on_change)
        with anyio.fail_after(20):
            await publisher.until(503, 2)
            publisher.status = 200
            await came.wait()
        tasks.cancel_scope.cancel()


async def test_a_server_that_hangs_is_left_by_a_deadline(http: httpx2.AsyncClient) -> None:
    async def hanging(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async with listening(hanging) as url:
        with anyio.fail_after(10), pytest.raises(PeerError, match="gave no card within"):
            await CardSource(http, url, None, card_bounds(answer_seconds=0.05)).refresh()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Cache-Control": "public, max-age=300"}, 300),
        ({"Cache-Control": "MAX-AGE = 300"}, 300),
        ({"Cache-Control": 'max-age="300"'}, 300),
        ({"Cache-Control": "max-age=300", "Age": "100"}, 200),
        ({"Cache-Control": "max-age=300", "Expires": "Thu, 01 Jan 1970 00:00:00 GMT"}, 300),
        ({"Cache-Control": "s-maxage=300"}, 60),
        ({"Cache-Control": "max-age=1"}, 60),
        ({"Cache-Control": "max-age=99999999"}, 3600),
        ({"Cache-Control": "no-cache, max-age=300"}, 60),
        ({"Cache-Control": "no-store"}, 60),
        ({"Expires": "Wed, 21 Oct 2026 07:38:00 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 600),
        ({"Expires": "0"}, 60),
        ({}, 60),
    ],
)
def test_how_long_a_card_holds(headers: dict[str, str], seconds: float) -> None:
    assert fresh_seconds(httpx2.Headers(headers), BOUNDS) == seconds
