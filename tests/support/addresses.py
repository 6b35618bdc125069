"""Addresses that may be given for an agent's, each served in a thread of its own: for tests that run commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

from anyio.from_thread import start_blocking_portal
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from tests.support.running import listening
from tests.support.sdk_server import HttpServer

_T = TypeVar("_T")


@contextmanager
def beside(served: AbstractAsyncContextManager[_T]) -> Iterator[_T]:
    """Enter something in an event loop of its own."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(served) as value:
        yield value


@contextmanager
def an_mcp_server() -> Iterator[str]:
    """The URL of an MCP server."""
    with beside(HttpServer().run()) as server:
        yield server.url


@contextmanager
def a_web_page() -> Iterator[str]:
    """The URL of a site that answers every path with a page."""

    async def page(_: Request) -> HTMLResponse:
        return HTMLResponse("<!doctype html><title>Welcome</title>")

    with beside(listening(Starlette(routes=[Route("/{path:path}", page)]))) as url:
        yield f"{url}/agent"
