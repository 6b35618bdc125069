"""What peers are shown to be let in, request by request.

Credentials are asked for anew before each request and may have to be waited for: a token that ran out is replaced by
its source, and nobody who sends requests knows of it. They belong to one origin, and a request that goes elsewhere is
given none. Redirects must not be left to the HTTP library, which copies headers to where they lead.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import httpx2

HeaderLine = tuple[bytes, bytes]
"""A header: its name and its value."""

_OF_THE_LIBRARY: Final = frozenset({b"host", b"accept-encoding", b"connection", b"user-agent", b"cookie"})
"""The headers that the HTTP library adds by itself. What is shown takes their place; all others are the protocol's."""
_ANY_ANSWER: Final = (b"accept", b"*/*")
"""The library adds this, too, where the protocol does not say what it accepts."""


@dataclass(frozen=True)
class PeerCredentials:
    """What a peer is shown with one request."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def lines(self) -> Sequence[HeaderLine]:
        """The headers as they go onto the wire."""
        return httpx2.Headers(self.headers).raw

    @cached_property
    def names(self) -> frozenset[bytes]:
        """The names of the headers, in lower case."""
        return frozenset(name.lower() for name, _ in self.lines)


CredentialsSource = Callable[[], Awaitable[PeerCredentials]]
"""Gives what is to be shown with the next request. One that waits for something bounds its wait itself."""


def fixed_credentials(credentials: PeerCredentials) -> CredentialsSource:
    """The source of what never changes."""

    async def source() -> PeerCredentials:
        return credentials

    return source


NO_CREDENTIALS: Final = fixed_credentials(PeerCredentials())
"""The source of those who have nothing to show."""


class PeerAuth(httpx2.Auth):
    """Shows credentials to one origin."""

    def __init__(self, url: str | httpx2.URL, source: CredentialsSource) -> None:
        """`url` is any of that origin."""
        self._origin = _origin(httpx2.URL(url))
        self._source = source

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """One request, with what it shows."""
        if _origin(request.url) == self._origin:
            shown = await self._source()
            if shown.headers:
                request.headers = _with(request.headers, shown)
            if shown.query:
                request.url = request.url.copy_merge_params(shown.query)
        if request.url.userinfo.strip(b":"):
            # As the library does it for requests without an Auth: the user whom the URL itself names wins.
            next(httpx2.BasicAuth(request.url.username, request.url.password).auth_flow(request))
        yield request


def _with(headers: httpx2.Headers, shown: PeerCredentials) -> httpx2.Headers:
    """Headers with what is shown, which takes the place of none that the protocol needs."""
    library: list[HeaderLine] = []
    protocol: list[HeaderLine] = []
    needed = set[bytes]()
    for line in headers.raw:
        name = line[0].lower()
        if name not in _OF_THE_LIBRARY and (name, line[1]) != _ANY_ANSWER:
            protocol.append(line)
            needed.add(name)
        elif name not in shown.names:
            library.append(line)
    added = [line for line in shown.lines if line[0].lower() not in needed]
    return httpx2.Headers([*library, *added, *protocol])


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
