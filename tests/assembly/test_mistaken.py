"""What an address is told to be that gives no card: never something else while it may only be out of order."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from bridge.assembly.offered_server import other_than_agent
from tests.support.running import config_for, listening, raw_command, running
from tests.support.sdk_server import HttpServer


def site(card_status: int) -> Starlette:
    """A site with a page at its root, whose place for a card answers with this status."""

    async def page(_: Request) -> Response:
        return HTMLResponse("<!doctype html><title>Welcome</title>")

    async def card(_: Request) -> Response:
        return Response(status_code=card_status)

    return Starlette(routes=[Route("/", page), Route("/.well-known/agent-card.json", card)])


@pytest.mark.parametrize(("card_status", "is_page"), [(404, True), (410, True), (503, False), (401, False)])
async def test_a_page_beside_a_card_that_is_out_of_order_says_nothing(
    card_status: int, is_page: bool
) -> None:
    async with listening(site(card_status)) as url:
        found = await other_than_agent(url)
    assert (found is not None and "is not an A2A agent. It is a web page" in found) == is_page


async def test_an_mcp_server_is_named_with_the_command_that_wraps_it() -> None:
    async with HttpServer().run() as server:
        found = await other_than_agent(f"{server.url}?key=s3cret")
    assert found == (
        f"{server.url} is not an A2A agent. It is an MCP server: mcp-a2a wrap {server.url} makes an agent of it, and"
        f" mcp-a2a call {server.url} calls its tools"
    )


async def test_an_agent_and_what_cannot_be_reached_are_nothing_else() -> None:
    async with running(config_for(raw_command())) as bridge:
        assert await other_than_agent(bridge.base_url) is None
    assert await other_than_agent("http://127.0.0.1:1") is None
