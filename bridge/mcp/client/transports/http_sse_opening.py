"""How a connection over HTTP+SSE begins: a GET that is answered with events, the first of which names an endpoint.

Spec: MCP 2024-11-05 basic/transports (HTTP with SSE).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Final

import anyio
import httpx2

from bridge.errors import PeerError, reason_of
from bridge.mcp.client.faults import ServerDownError
from bridge.mcp.client.transports.streamable_http import NOT_SENT, Url
from bridge.sse import Event, EventReader

OPENING_FACTOR: Final = 3
"""The endpoint has to be named within this many times `connect_seconds`, from the first byte to the event."""

_ENDS_BYTES: Final = 200
"""What is kept of each end of an event that is too large: the id that it answers stands there."""

Events = AsyncGenerator[Event, None]


@asynccontextmanager
async def opened(target: Url, client: httpx2.AsyncClient) -> AsyncIterator[tuple[httpx2.URL, Events]]:
    """Open the event stream: the address to post to, and the events after the one that named it.

    Raises:
        ServerDownError: the server cannot be reached.
        PeerError: it does not answer as a server of this transport does, or not in time.
    """
    seconds = OPENING_FACTOR * target.connect_seconds
    headers = {"accept": "text/event-stream", "cache-control": "no-store"}
    async with AsyncExitStack() as stack:
        try:
            with anyio.fail_after(seconds):
                response = await stack.enter_async_context(client.stream("GET", target.url, headers=headers))
                _check(target, response)
                reader = EventReader(target.result_limit_bytes, _ENDS_BYTES)
                events = await stack.enter_async_context(aclosing(_events(response, reader)))
                endpoint = await _endpoint(target, events)
        except TimeoutError as exc:
            raise PeerError(f"{target} named no endpoint for HTTP+SSE within {seconds:g} s") from exc
        except NOT_SENT as exc:
            raise ServerDownError(f"{target} cannot be reached: {reason_of(exc)}") from exc
        except httpx2.RequestError as exc:
            raise PeerError(f"{target} broke off: {reason_of(exc)}") from exc
        yield endpoint, events


def _check(target: Url, response: httpx2.Response) -> None:
    if response.status_code >= 300:
        why = " (redirects are not followed)" if response.is_redirect else ""
        raise PeerError(f"{target} answered the GET for its events with {status_words(response)}{why}")
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "text/event-stream":
        raise PeerError(
            f"{target} answered the GET for its events with {kind or 'no content type'},"
            " not with text/event-stream"
        )


async def _events(response: httpx2.Response, reader: EventReader) -> Events:
    async for chunk in response.aiter_bytes():
        for event in reader.feed(chunk):
            yield event


async def _endpoint(target: Url, events: Events) -> httpx2.URL:
    """The address to post to. Credentials travel there, so only its path and query are taken from the server."""
    async for event in events:
        if event.type != "endpoint":
            continue
        base = httpx2.URL(target.url)
        try:
            named = base.join(event.data.decode("utf-8", "replace").strip())
        except httpx2.InvalidURL as exc:
            raise PeerError(f"{target} names an endpoint that is no address: {exc}") from exc
        if _origin(named) != _origin(base):
            raise PeerError(
                f"{target} names an endpoint of another origin ({Url(str(named))}); credentials are not sent there"
            )
        return base.copy_with(raw_path=named.raw_path)
    raise PeerError(f"{target} ended its events before it named an endpoint")


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def status_words(response: httpx2.Response) -> str:
    """The status of a response as it is told."""
    return f"HTTP {response.status_code} {response.reason_phrase}".rstrip()
