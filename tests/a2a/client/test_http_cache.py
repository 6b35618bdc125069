"""How a card and a catalog are stored, how long they are fresh, and when they are requested again."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bridge.a2a.client.agent_card import CardSource
from bridge.a2a.client.catalog import CatalogSource
from bridge.a2a.client.http_cache import CachedResource, FreshnessBounds, fresh_seconds
from bridge.errors import PeerError
from tests.support.agents import found_at
from tests.support.limits import card_bounds
from tests.support.running import listening

pytestmark = pytest.mark.proves("a2a-8.6-kept", "catalog-source")

QUICK: Final = FreshnessBounds(min_seconds=0.01, max_seconds=0.02, retry_seconds=0.01)
BOUNDS: Final = FreshnessBounds(min_seconds=60, max_seconds=3600)


class Publisher:
    """Publishes texts as the test says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.status = 200
        self.path: str | None = None
        """The only path at which there is something; None is any."""
        self.asked: list[httpx2.URL] = []
        self.sent: list[dict[str, str]] = []
        self.answered: list[int] = []
        self._moved = anyio.Event()

    def text(self, request: Request) -> str:
        """The text that a request gets."""
        raise NotImplementedError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if self.path not in (None, request.url.path):
            await Response(status_code=404)(scope, receive, send)
            return
        self.asked.append(httpx2.URL(str(request.url)))
        self.sent.append(dict(request.headers))
        response = Response(status_code=self.status)
        if self.status == 200:
            text = self.text(request)
            headers = {"ETag": f'"{hash(text)}"', **self.headers}
            is_known = request.headers.get("If-None-Match") == headers["ETag"]
            response = Response(None if is_known else text, 304 if is_known else 200, headers)
        self.answered.append(response.status_code)
        self._moved.set()
        self._moved = anyio.Event()
        await response(scope, receive, send)

    async def until(self, status: int, times: int) -> None:
        """Wait until a status was answered so many times."""
        while self.answered.count(status) < times:
            await self._moved.wait()


@dataclass(frozen=True)
class Kind:
    """A kind of what is cached."""

    word: str
    source: Callable[..., CachedResource[Any, Any]]
    value: Any
    """What its publisher says."""


class OfKind(Publisher):
    """Publishes the same always."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind = kind

    def text(self, request: Request) -> str:
        return json.dumps(self.kind.value)


AGENT: Final = {"name": "a", "cardUrl": "https://a.example.com/card.json"}
KINDS: Final = (
    Kind("card", CardSource, found_at("http://127.0.0.1/").card.to_object()),
    Kind("catalog", CatalogSource, {"agents": [AGENT], "nextPageToken": ""}),
)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.word)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


async def test_a_stored_card_is_available_at_once_at_the_next_start(
    kind: Kind, tmp_path: Path, http: httpx2.AsyncClient
) -> None:
    folder = tmp_path / "kept"
    async with listening(OfKind(kind)) as url:
        first = kind.source(http, url, folder, card_bounds())
        assert first.cached() is None
        found = await first.refresh()
        assert first.cached() is found
    second = kind.source(http, url, folder, card_bounds())
    assert second.cached() == found
    with pytest.raises(PeerError, match="Connection refused"):
        await second.refresh()
    assert second.cached() == found
    [file] = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for other in KINDS:
        is_same = other is kind
        assert (other.source(http, url, folder, card_bounds()).cached() is not None) is is_same
        assert other.source(http, f"{url}/other", folder, card_bounds()).cached() is None


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"place": "x"}', b'{"pages": 1}', b"\xff\xfe"])
async def test_an_unreadable_file_counts_as_absent(
    kind: Kind, text: bytes, tmp_path: Path, http: httpx2.AsyncClient
) -> None:
    async with listening(OfKind(kind)) as url:
        found = await kind.source(http, url, tmp_path, card_bounds()).refresh()
        [file] = tmp_path.iterdir()
        file.write_bytes(text)
        source = kind.source(http, url, tmp_path, card_bounds())
        assert source.cached() is None
        assert await source.refresh() == found
        assert kind.source(http, url, tmp_path, card_bounds()).cached() == found


async def test_a_response_that_may_not_or_cannot_be_stored_stays_in_memory(
    kind: Kind, tmp_path: Path, http: httpx2.AsyncClient
) -> None:
    publisher = OfKind(kind)
    async with listening(publisher) as url:
        source = kind.source(http, url, tmp_path, card_bounds())
        await source.refresh()
        assert len(list(tmp_path.iterdir())) == 1
        publisher.headers["Cache-Control"] = "private, no-store"
        found = await source.refresh()
        assert list(tmp_path.iterdir()) == []
        assert source.cached() is found
        (tmp_path / "file").write_text("in the way")
        assert await kind.source(http, url, tmp_path / "file", card_bounds()).refresh() == found
        assert await kind.source(http, url, None, card_bounds()).refresh() == found


async def test_watchers_get_a_card_that_was_missing_once_it_appears(
    kind: Kind, http: httpx2.AsyncClient
) -> None:
    publisher, came = OfKind(kind), anyio.Event()
    publisher.status = 503

    async def on_change(_: Any) -> None:
        came.set()

    async with listening(publisher) as url, anyio.create_task_group() as tasks:
        tasks.start_soon(kind.source(http, url, None, QUICK).watch, on_change)
        with anyio.fail_after(20):
            await publisher.until(503, 2)
            publisher.status = 200
            await came.wait()
        tasks.cancel_scope.cancel()


async def test_a_hanging_server_is_given_up_at_the_deadline(kind: Kind, http: httpx2.AsyncClient) -> None:
    async def hanging(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async with listening(hanging) as url:
        with anyio.fail_after(10), pytest.raises(PeerError, match=f"gave no {kind.word} within"):
            await kind.source(http, url, None, card_bounds(answer_seconds=0.05)).refresh()


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
def test_how_long_a_response_is_fresh(headers: dict[str, str], seconds: float) -> None:
    assert fresh_seconds(httpx2.Headers(headers), BOUNDS) == seconds
