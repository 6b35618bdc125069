"""CORS for MCP hosts that run in a browser. Off unless the configuration names origins.

Only pages of exactly these origins may call, and never with the browser's cookies: a page sends a token or nothing. All
other requests get the same answers as without this module, so that a page of another origin learns nothing.

Spec: Fetch, CORS protocol; MCP 2026-07-28 and 2025-11-25, basic/transports (Origin, headers of Streamable HTTP).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bridge.http.request_checks import API_KEY_HEADER, FaceAddress, RefusedError

_METHODS: Final = "GET, POST, DELETE"
_HEADERS: Final = (
    "Authorization",
    "Content-Type",
    "Accept",
    "Last-Event-ID",
    "Mcp-Session-Id",
    "MCP-Protocol-Version",
    "Mcp-Method",
    "Mcp-Name",
    "Traceparent",
    "Tracestate",
    API_KEY_HEADER,
)
"""The headers that a host sends. Headers for arguments (`Mcp-Param-...`) are allowed by their prefix."""
_OF_ARGUMENTS: Final = "mcp-param-"
_EXPOSED: Final = "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After"
_MAX_AGE_SECONDS: Final = 600
"""How long a browser may cache the answer to a preflight request."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def as_browsers_write(origin: str) -> str:
    """An origin in the form that browsers send: in lower case, without a default port."""
    place = urlsplit(origin.lower())
    port = "" if place.port in (None, _DEFAULT_PORTS.get(place.scheme)) else f":{place.port}"
    host = place.hostname or ""
    return f"{place.scheme}://{f'[{host}]' if ':' in host else host}{port}"


class WebOrigins:
    """The origins whose pages may call, and the CORS headers of the answers."""

    def __init__(self, origins: Iterable[str], place: FaceAddress) -> None:
        self._origins = frozenset(map(as_browsers_write, origins))
        self._place = place

    def around(self, app: ASGIApp) -> ASGIApp:
        """The application with CORS for these origins; the same application if there are no origins."""
        if not self._origins:
            return app

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            headers = Headers(scope=scope)
            sent = headers.getlist("origin")
            origin = sent[0] if len(sent) == 1 and sent[0] in self._origins else None
            if origin is None:
                await app(scope, receive, _with(send, {"Vary": "Origin"}))
                return
            # The origin is allowed, so later checks treat the request like one that no page has sent.
            plain = {
                **scope,
                "headers": [header for header in scope["headers"] if header[0].lower() != b"origin"],
            }
            cors_headers = {"Vary": "Origin", "Access-Control-Allow-Origin": origin}
            if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                await self._preflight(plain, cors_headers)(scope, receive, send)
                return
            await app(
                plain, receive, _with(send, {**cors_headers, "Access-Control-Expose-Headers": _EXPOSED})
            )

        return answer

    def _preflight(self, scope: Scope, cors_headers: dict[str, str]) -> Response:
        headers = Headers(scope=scope)
        try:
            self._place.require_own(headers)
        except RefusedError as exc:
            return Response(str(exc), exc.status, media_type="text/plain")
        requested = [
            header.strip() for header in headers.get("access-control-request-headers", "").split(",")
        ]
        argument_headers = [
            header for header in requested if header.lower().startswith(_OF_ARGUMENTS) and header.isascii()
        ]
        allowed = {
            "Access-Control-Allow-Methods": _METHODS,
            "Access-Control-Allow-Headers": ", ".join([*_HEADERS, *argument_headers]),
            "Access-Control-Max-Age": str(_MAX_AGE_SECONDS),
        }
        return Response(status_code=204, headers={**cors_headers, **allowed})


def _with(send: Send, more: dict[str, str]) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in more.items():
                if name == "Vary":
                    headers.add_vary_header(value)
                else:
                    headers[name] = value
        await send(message)

    return sending
