"""The face of these tests behind our MCP server: over HTTP in the test's own process, and a wire to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import httpx2
from starlette.types import Receive, Scope, Send

from bridge.http.request_checks import FaceAddress
from bridge.identity.callers.verifiers import Access
from bridge.mcp.server.server import McpServer
from bridge.trace import UNHEARD, Hops
from tests.support.limits import mcp_limits
from tests.support.mcp_face import Face
from tests.support.mcp_wire import Http
from tests.support.running import listening

PROGRAM: Final = ("-m", "tests.support.mcp_face")
"""The arguments of Python that serve it over stdio."""


@asynccontextmanager
async def served(
    face: Face, access: Access | None = None, hops: Hops = UNHEARD, **limits: Any
) -> AsyncIterator[str]:
    """A face over HTTP, in this process; its URL."""
    server = face.server = McpServer(face, mcp_limits(**limits), "face", hops)
    app: Any = None

    async def late(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)

    with anyio.fail_after(30):
        async with listening(late) as root_url, server.at(access or Access([]), FaceAddress()) as app:
            yield f"{root_url}/mcp"


@asynccontextmanager
async def wire_to(
    version: str,
    capabilities: dict[str, Any] | None = None,
    access: Access | None = None,
    hops: Hops = UNHEARD,
    **limits: Any,
) -> AsyncIterator[tuple[Http, Face]]:
    """A face over HTTP and a wire to it."""
    face = Face()
    async with served(face, access, hops, **limits) as url, httpx2.AsyncClient(timeout=30) as client:
        http = Http(client, url, version, capabilities)
        if access is None:
            await http.open()
        yield http, face
