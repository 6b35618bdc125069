"""A bridge inside an application: `uvicorn app:app --port 8080`, with the bridge at /bridge."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import bridge

HERE = Path(__file__).parent
OWN_URL = os.environ.get("OWN_URL", "http://127.0.0.1:8080/bridge")
"""Where this process reaches the mounted bridge: its MCP server is made of its own agent."""


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Run the bridge as long as the application."""
    async with bridge.open(bridge.load(HERE / "bridge.toml"), own_url=OWN_URL) as bridged:
        app.router.routes.append(Mount("/bridge", bridged))
        yield


async def home(_: Request) -> PlainTextResponse:
    """The application's own page."""
    return PlainTextResponse("Hello from the application")


app = Starlette(routes=[Route("/", home)], lifespan=lifespan)
