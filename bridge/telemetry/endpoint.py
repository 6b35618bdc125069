"""`/metrics` as an ASGI application, at its own address. Anyone who reaches the address may read the metrics.

They contain no arguments, results or principals. A web page in a browser on this machine cannot read them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from bridge.http.request_checks import FaceAddress, RefusedError
from bridge.telemetry.families import MEDIA_TYPE


class MetricsEndpoint:
    """Serves the text that `read` returns."""

    def __init__(self, read: Callable[[], Awaitable[bytes]], address: FaceAddress) -> None:
        self._read = read
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http":
            answer = await self._answer(scope)
            await answer(scope, receive, send)

    async def _answer(self, scope: Scope) -> Response:
        try:
            self._address.require_own(Headers(scope=scope))
        except RefusedError as exc:
            return PlainTextResponse(f"{exc}\n", exc.status)
        if scope["path"] != "/metrics":
            return PlainTextResponse("Metrics are at /metrics\n", 404)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("Metrics are read with GET\n", 405, {"Allow": "GET, HEAD"})
        return Response(await self._read(), media_type=MEDIA_TYPE)
