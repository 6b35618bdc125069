"""Stored listings of servers: the newest of each server, within limits, and only for its owner."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge.mcp.client.kept_listings import (
    LISTING_MOST_BYTES,
    LISTINGS_MOST,
    ListingFiles,
    ListingKeeper,
    ServerIdentity,
    forget_listings,
    kept_listing,
)
from bridge.mcp.client.known_servers import server_id
from bridge.mcp.client.values import Greeting, ToolListing
from bridge.mcp.tools import UnservableTool
from tests.support.tools import tool

ECHO = tool("echo", "text", text={"type": "string"})
GREETING = Greeting("demo", "1", instructions="For tests.")
SERVER = ServerIdentity("https://tools.example.com", b"as one")


@dataclass
class Server:
    """A server as a keeper sees it."""

    whole_listing: ToolListing
    greeting: Greeting | None = GREETING
    down: str | None = None


async def test_the_stored_listing_has_the_tools_and_the_greeting_of_the_server(tmp_path: Path) -> None:
    files, left_out = ListingFiles(tmp_path), (UnservableTool("x", "it is no object"),)
    server = Server(ToolListing((ECHO,), left_out))
    ListingKeeper(files, SERVER, "demo").store_if_changed(server)
    kept = await files.recall(SERVER)
    assert kept is not None
    found = kept_listing(kept, 1000)
    assert found is not None
    assert [one.listed for one in found.listing.tools] == [ECHO.listed]
    assert (found.listing.left_out, found.greeting) == (left_out, server.greeting)


async def test_a_server_that_is_down_or_was_never_up_changes_nothing(tmp_path: Path) -> None:
    files = ListingFiles(tmp_path)
    keeper = ListingKeeper(files, SERVER, "demo")
    keeper.store_if_changed(Server(ToolListing((ECHO,)), down="gone"))
    keeper.store_if_changed(Server(ToolListing(), greeting=None))
    assert await files.recall(SERVER) is None
    keeper.store_if_changed(Server(ToolListing((ECHO,))))
    keeper.store_if_changed(Server(ToolListing(), down="gone"))
    assert b"echo" in (await files.recall(SERVER) or b"")


async def test_another_login_at_the_same_url_finds_nothing(tmp_path: Path) -> None:
    files = ListingFiles(tmp_path)
    ListingKeeper(files, SERVER, "demo").store_if_changed(Server(ToolListing((ECHO,))))
    assert await files.recall(ServerIdentity(SERVER.server, b"as another")) is None


async def test_a_listing_above_the_limit_is_not_kept_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = ListingFiles(tmp_path)
    large = tool("echo", text={"type": "string", "description": "x" * LISTING_MOST_BYTES})
    ListingKeeper(files, SERVER, "demo").store_if_changed(Server(ToolListing((large,))))
    assert kept_listing(await files.recall(SERVER) or b"", 1000) is None
    assert "the listing of demo has more than 2 MiB and is not kept" in caplog.text


async def test_a_listing_above_the_limit_deletes_the_stored_listing(tmp_path: Path) -> None:
    files = ListingFiles(tmp_path)
    keeper = ListingKeeper(files, SERVER, "demo")
    keeper.store_if_changed(Server(ToolListing((ECHO,))))
    large = tool("echo", text={"type": "string", "description": "x" * LISTING_MOST_BYTES})
    keeper.store_if_changed(Server(ToolListing((large,))))
    kept = await files.recall(SERVER)
    assert kept is not None
    assert kept_listing(kept, 1000) is None


async def test_the_listings_of_the_most_recent_servers_are_kept(tmp_path: Path) -> None:
    files = ListingFiles(tmp_path)
    for number in range(LISTINGS_MOST):
        one = tmp_path / f"{number:032}-x.json"
        one.write_text("{}")
        os.utime(one, (number, number))
    ListingKeeper(files, SERVER, "demo").store_if_changed(Server(ToolListing((ECHO,))))
    left = {one.name for one in tmp_path.iterdir()}
    assert len(left) == LISTINGS_MOST
    assert f"{0:032}-x.json" not in left
    assert await files.recall(SERVER) is not None


async def test_forgetting_a_server_forgets_what_it_listed_for_any_login(tmp_path: Path) -> None:
    files = ListingFiles(tmp_path)
    other = ServerIdentity("https://other.example.com", b"as one")
    for identity in (SERVER, ServerIdentity(SERVER.server, b"as another"), other):
        ListingKeeper(files, identity, "demo").store_if_changed(Server(ToolListing((ECHO,))))
    forget_listings(tmp_path, {server_id(SERVER.server)}.__contains__)
    assert await files.recall(SERVER) is None
    assert await files.recall(other) is not None


@pytest.mark.parametrize(
    "kept", [b"", b"{}", b"[]", json.dumps({"greeting": {"nick": "x"}, "tools": [], "left_out": []}).encode()]
)
def test_a_listing_in_the_form_of_another_release_is_ignored(kept: bytes) -> None:
    assert kept_listing(kept, 1000) is None
