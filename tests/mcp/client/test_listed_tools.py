"""Lists of tools however they are paged, and when they are asked for again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio
import pytest

from bridge.errors import PeerError
from bridge.mcp.client.eras import Era
from bridge.mcp.client.faults import ServerRefusedError
from bridge.mcp.client.listed_tools import MAX_PAGES, ListingPace, listed_tools
from bridge.mcp.client.session import Session
from bridge.mcp.client.values import ToolListing
from bridge.text.jsonvalues import JsonObject
from tests.support.limits import call_of, command_of, server_settings

pytestmark = pytest.mark.proves("mcp-pages", "mcp-changed")

Page = dict[str, Any]


def page(*names: str, **more: Any) -> Page:
    return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names], **more}


class Pager:
    """A server that gives these pages, one after the other, and the last one again and again."""

    def __init__(self, *pages: Page | Exception) -> None:
        self.pages = pages
        self.asked: list[JsonObject] = []

    async def __call__(self, method: str, params: JsonObject) -> JsonObject:
        assert method == "tools/list"
        given = self.pages[min(len(self.asked), len(self.pages) - 1)]
        self.asked.append(params)
        if isinstance(given, Exception):
            raise given
        return given


async def listed(server: Pager, *, is_legacy: bool = True, **bounds: Any) -> ToolListing:
    return await listed_tools("tools", server, server_settings(**bounds), is_legacy=is_legacy)


def names_of(listing: ToolListing) -> list[str]:
    return [tool.name for tool in listing.tools]


async def test_all_pages_are_listed() -> None:
    server = Pager(page("a", nextCursor="1"), page(nextCursor="2"), page("b"))
    listing = await listed(server)
    assert (names_of(listing), listing.odd) == (["a", "b"], "")
    assert server.asked == [{}, {"cursor": "1"}, {"cursor": "2"}]


ODD: Final[dict[str, tuple[Sequence[Page | Exception], list[str], str, int]]] = {
    "empty": ([page("a", nextCursor="")], ["a"], "its nextCursor is empty", 1),
    "a number": ([page("a", nextCursor=0)], ["a"], "its nextCursor is not a string: 0", 1),
    "false": ([page("a", nextCursor=False)], ["a"], "its nextCursor is not a string: false", 1),
    "always the same": ([page("a", nextCursor="1")], ["a"], "its nextCursor never advances", 2),
    "in a circle": (
        [page("a", nextCursor="1"), page("b", nextCursor="2"), page("c", nextCursor="1")],
        ["a", "b", "c"],
        "its nextCursor never advances",
        3,
    ),
    "of the first page for ever": (
        [page("a", nextCursor="1"), page("a", nextCursor="2")],
        ["a"],
        "its nextCursor never advances",
        2,
    ),
    "refused": (
        [page("a", nextCursor="1"), ServerRefusedError(-32602, "Invalid cursor")],
        ["a"],
        "the server refuses the cursor that it gave: Invalid cursor",
        2,
    ),
}


@pytest.mark.parametrize("kind", ODD)
async def test_an_invalid_cursor_ends_the_list_and_is_reported(kind: str) -> None:
    pages, names, words, asked = ODD[kind]
    server = Pager(*pages)
    listing = await listed(server)
    assert names_of(listing) == names
    assert listing.odd == f"its list of tools ends after {len(names)}: {words}"
    assert listing.faults_since(ToolListing()) == [listing.odd]
    assert len(server.asked) == asked


async def test_an_empty_cursor_is_a_cursor_to_a_modern_server() -> None:
    server = Pager(page("a", nextCursor=""), page("b"))
    listing = await listed(server, is_legacy=False)
    assert (names_of(listing), listing.odd) == (["a", "b"], "")
    assert server.asked == [{}, {"cursor": ""}]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tools": None}, "it has no tools: its list of tools is null"),
        (ServerRefusedError(-32601, "Method not found"), "it has no tools: it does not support tools/list"),
    ],
)
async def test_a_server_without_tools_is_reported(given: Any, words: str) -> None:
    listing = await listed(Pager(given))
    assert (listing.tools, listing.odd) == ((), words)


async def test_an_empty_list_of_tools_is_not_odd_and_a_page_that_is_null_adds_nothing() -> None:
    assert (await listed(Pager(page()))).odd == ""
    assert names_of(await listed(Pager(page("a", nextCursor="1"), {"tools": None}))) == ["a"]


async def test_an_endless_list_is_limited() -> None:
    class Endless(Pager):
        async def __call__(self, method: str, params: JsonObject) -> JsonObject:
            number = len(self.asked)
            self.asked.append(params)
            return page(nextCursor=str(number))

    server = Endless()
    assert f"more than {MAX_PAGES} pages" in (await listed(server)).odd
    assert len(server.asked) == MAX_PAGES
    with pytest.raises(PeerError, match="`tools_most` is the limit"):
        await listed(Pager(page("a", "b", "c")), tools_most=2)
    with pytest.raises(PeerError, match="`tools_limit_bytes` is the limit"):
        await listed(Pager(page("a", "b", "c")), tools_limit_bytes=20)


async def test_an_error_of_the_first_page_is_an_error() -> None:
    with pytest.raises(ServerRefusedError):
        await listed(Pager(ServerRefusedError(-32602, "no")))
    with pytest.raises(ServerRefusedError):
        await listed(Pager(page("a", nextCursor="1"), ServerRefusedError(-32603, "no")))


FRESH: Final = {
    "absent": ({}, None),
    "null": ({"ttlMs": None}, None),
    "zero": ({"ttlMs": 0}, None),
    "negative": ({"ttlMs": -5}, None),
    "a text": ({"ttlMs": "5000"}, None),
    "true": ({"ttlMs": True}, None),
    "five seconds": ({"ttlMs": 5000}, 5.0),
    "for ever": ({"ttlMs": 10**400}, 24 * 3600.0),
}


@pytest.mark.parametrize("kind", FRESH)
async def test_a_list_is_as_fresh_as_a_modern_server_says(kind: str) -> None:
    said, seconds = FRESH[kind]
    assert (await listed(Pager(page("a", **said)), is_legacy=False)).fresh_seconds == seconds
    assert (await listed(Pager(page("a", **said)))).fresh_seconds is None


async def test_a_list_of_several_pages_is_as_fresh_as_its_least_fresh_page() -> None:
    server = Pager(page("a", nextCursor="1", ttlMs=9000), page("b", nextCursor="2", ttlMs=2000), page("c"))
    assert (await listed(server, is_legacy=False)).fresh_seconds == 2


async def test_a_stale_list_is_requested_if_the_server_announces_no_changes() -> None:
    pace = ListingPace(server_settings(relist_seconds=60))
    listing, now = ToolListing(fresh_seconds=100), anyio.current_time()
    assert pace.fresh_until(listing, announces_changes=False) - now == pytest.approx(100, abs=1)
    assert pace.fresh_until(listing, announces_changes=True) == float("inf")
    short = ToolListing(fresh_seconds=0.001)
    assert pace.fresh_until(short, announces_changes=False) - now == pytest.approx(60, abs=1)
    assert pace.fresh_until(ToolListing(), announces_changes=False) == float("inf")


async def test_announcements_without_a_change_make_listings_rarer() -> None:
    pace = ListingPace(server_settings(relist_seconds=60))
    assert pace.seconds_left == 0
    left = []
    for _ in range(10):
        pace.note(is_news=False)
        left.append(pace.seconds_left)
    assert 0 < left[0] <= 0.5
    assert 30 < left[-1] <= 60
    pace.note(is_news=True)
    assert pace.seconds_left == 0


LISTS: Final = """
import json, sys
says_modern, announces = "modern" in sys.argv, "announces" in sys.argv
listings = 0
def say(**said):
    print(json.dumps({"jsonrpc": "2.0", **said}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, number = message["method"], message.get("id")
    info = {"name": "lists", "version": "1"}
    capabilities = {"tools": {"listChanged": True} if announces else {}}
    if method == "server/discover" and says_modern:
        say(id=number, result={"resultType": "complete", "supportedVersions": ["2026-07-28"], "serverInfo": info,
            "capabilities": capabilities, "ttlMs": 0, "cacheScope": "private"})
    elif method == "initialize" and not says_modern:
        say(id=number, result={"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info})
    elif method == "tools/list":
        listings += 1
        names = ["count"] if announces else ["count", *(f"tool-{n}" for n in range(listings))]
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
        more = {"resultType": "complete", "ttlMs": 20, "cacheScope": "private"} if says_modern else {}
        say(id=number, result={"tools": tools, **more})
        if announces:
            say(method="notifications/tools/list_changed")
    elif method == "tools/call":
        more = {"resultType": "complete"} if says_modern else {}
        say(id=number, result={"content": [{"type": "text", "text": str(listings)}], **more})
    elif number is not None:
        say(id=number, error={"code": -32601, "message": "Method not found"})
"""


def lister(*options: str, era: Era, on_change: Callable[[], None], **bounds: float) -> Session:
    settings = server_settings(connect_seconds=20, settle_seconds=0.01, **bounds)
    command = command_of((sys.executable, "-S", "-E", "-c", LISTS, *options))
    return Session("tools", command, era=era, settings=settings, on_change=on_change)


async def test_a_stale_list_of_a_modern_server_without_announcements_is_requested() -> None:
    grown, sessions = anyio.Event(), list[Session]()

    def look() -> None:
        if sessions and len(sessions[0].listing.tools) >= 4:
            grown.set()

    session = lister("modern", era=Era.MODERN, on_change=look, relist_seconds=0.02)
    sessions.append(session)
    with anyio.fail_after(20):
        async with session.run():
            await grown.wait()


async def test_a_server_that_announces_a_change_after_each_list_is_not_listed_endlessly() -> None:
    session = lister("announces", era=Era.LEGACY, on_change=lambda: None, relist_seconds=60)
    with anyio.fail_after(20):
        async with session.run():
            await session.ready()
            seen = []
            for _ in range(200):
                result: Any = await session.call(call_of("count", {}))
                seen.append(int(result["content"][0]["text"]))
            assert seen[-1] <= 10
