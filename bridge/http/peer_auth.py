"""The credentials for peers, added to each request.

The source of credentials is called before each request, and may wait: it can replace an expired token, and the sender
of the request need not know. Credentials belong to one origin; a request to another origin gets none. Redirects must
not be left to the HTTP library, which copies headers to the new URL.
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
"""The headers that the HTTP library adds by itself. Credentials may replace them. All other headers are the
protocol's."""
_ANY_ANSWER: Final = (b"accept", b"*/*")
"""The Accept header that the library adds if the protocol has none."""


@dataclass(frozen=True)
class PeerCredentials:
    """The credentials for one request."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def lines(self) -> Sequence[HeaderLine]:
        """The headers as they are on the wire."""
        return httpx2.Headers(self.headers).raw

    @cached_property
    def names(self) -> frozenset[bytes]:
        """The names of the headers, in lower case."""
        return frozenset(name.lower() for name, _ in self.lines)


CredentialsSource = Callable[[], Awaitable[PeerCredentials]]
"""Returns the credentials for the next request. A source must bound its own waits."""


def fixed_credentials(credentials: PeerCredentials) -> CredentialsSource:
    """A source of credentials that never change."""

    async def source() -> PeerCredentials:
        return credentials

    return source


NO_CREDENTIALS: Final = fixed_credentials(PeerCredentials())
"""A source without credentials."""


class PeerAuth(httpx2.Auth):
    """Adds credentials to requests to one origin."""

    def __init__(self, url: str | httpx2.URL, source: CredentialsSource) -> None:
        """`url` is any URL of the origin."""
        self._origin = _origin(httpx2.URL(url))
        self._source = source

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the request, with credentials if it goes to the origin."""
        if _origin(request.url) == self._origin:
            shown = await self._source()
            if shown.headers:
                request.headers = _with(request.headers, shown)
            if shown.query:
                request.url = request.url.copy_merge_params(shown.query)
        if request.url.userinfo.strip(b":"):
            # The library does so for requests without an Auth: the user in the URL takes precedence.
            next(httpx2.BasicAuth(request.url.username, request.url.password).auth_flow(request))
        yield request


def _with(headers: httpx2.Headers, shown: PeerCredentials) -> httpx2.Headers:
    """The headers with the credentials. No header that the protocol set is replaced."""
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
