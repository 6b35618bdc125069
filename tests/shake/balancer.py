"""A balancer before the replicas: any replica for each request, and the next one where a connection breaks.

It replays what it may not know to have arrived, POST as well, with the same body and so the same message id. Some
messages it sends twice on purpose, to two replicas at once. It waits for the head of an answer only for a while, as
balancers do: a replica that stands still loses its requests to another one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import anyio
import httpx2
from anyio.abc import TaskGroup

HEAD_SECONDS: Final = 6.0
"""How long a replica may take to begin its answer."""
PATIENCE_SECONDS: Final = 90.0
"""How long a request is tried."""
_PAUSE_SECONDS: Final = 0.05
_AWAY: Final = (502, 503, 504)


class NoAnswerError(Exception):
    """No replica answered a request in time."""


@dataclass
class Balancer(httpx2.AsyncBaseTransport):
    """Sends each request to one of the replicas on these ports."""

    group: TaskGroup
    """Where the second ones run."""
    ports: Sequence[int]
    chance: random.Random
    copies: float
    """The share of messages that are sent twice."""
    on_copy: Callable[[httpx2.Request, httpx2.Response], None] = lambda request, response: None
    """Told the answer to the second one."""
    done: Counter[str] = field(default_factory=Counter)
    """How many requests were answered, replayed and sent twice."""

    def __post_init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=None))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request, whichever replica does.

        Raises:
            NoAnswerError: none did in time.
        """
        if b'"messageId"' not in request.content or self.chance.random() >= self.copies:
            return await self._answered(request, self.chance.choice(self.ports))
        self.done["sent twice"] += 1
        first, second = self.chance.choices(self.ports, k=2)
        self.group.start_soon(self._copy, request, second)
        return await self._answered(request, first)

    async def _copy(self, request: httpx2.Request, port: int) -> None:
        with suppress(NoAnswerError, httpx2.TransportError):
            response = await self._answered(request, port)
            try:
                await response.aread()
                self.on_copy(request, response)
            finally:
                await response.aclose()

    async def _answered(self, request: httpx2.Request, port: int) -> httpx2.Response:
        ends_at = anyio.current_time() + PATIENCE_SECONDS
        while anyio.current_time() < ends_at:
            with suppress(httpx2.TransportError, TimeoutError):
                response = await self._sent(request, port)
                if response.status_code not in _AWAY:
                    self.done["answered"] += 1
                    return response
                await response.aclose()
            self.done["replayed"] += 1
            await anyio.sleep(_PAUSE_SECONDS)
            port = self.chance.choice(self.ports)
        raise NoAnswerError(f"{request.method} {request.url.path} {request.content[:300]!r}")

    async def _sent(self, request: httpx2.Request, port: int) -> httpx2.Response:
        url = request.url.copy_with(host="127.0.0.1", port=port)
        headers = {**request.headers, "host": f"127.0.0.1:{port}"}
        sent = httpx2.Request(request.method, url, headers=headers, content=request.content)
        with anyio.fail_after(HEAD_SECONDS):
            response = await self._inner.handle_async_request(sent)
        if response.headers.get("content-type") != "text/event-stream":
            # An answer that breaks off is not passed on: it is asked for again.
            with anyio.fail_after(HEAD_SECONDS):
                content = await response.aread()
            await response.aclose()
            return httpx2.Response(response.status_code, headers=_plain(response.headers), content=content)
        return response

    async def aclose(self) -> None:
        """Close what is open."""
        await self._inner.aclose()


def _plain(headers: httpx2.Headers) -> dict[str, str]:
    return {key: value for key, value in headers.items() if key != "content-encoding"}
