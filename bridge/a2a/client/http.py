"""One HTTP exchange with a peer, bounded, its faults in words. What our clients of A2A stand on.

Whatever goes wrong becomes a PeerError that names the URL, without credentials and query, and the fault.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
from pydantic import JsonValue, ValidationError

from bridge.a2a.model.errors import PARSE_ERROR, TOO_LARGE, A2AError
from bridge.a2a.wire.jsontext import parse_json
from bridge.errors import PeerError, reason_of
from bridge.http.private_addresses import PrivateAddressError
from bridge.jsonvalues import DEFAULT_MAX_VALUES, shortened_json

_NEVER_LEFT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)
"""What goes wrong before the first byte of a request is written."""


class NotReachedError(PeerError):
    """The request provably never left: it may be sent again, or elsewhere."""


class UnansweredError(PeerError):
    """The request left, and no whole answer came: nobody knows what became of it."""


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """One request: what `exchange` sends."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    """Added to what the URL has."""
    extensions: Mapping[str, Any] = field(default_factory=dict)
    """httpx2's own, such as `timeout`, and `guarded_by`."""
    auth: httpx2.Auth | None = None
    """What shows credentials; None where the URL itself says all."""


@asynccontextmanager
async def exchange(http: httpx2.AsyncClient, outgoing: OutgoingRequest) -> AsyncIterator[httpx2.Response]:
    """One request and its response, whose body is still to be read. Redirects are left to the caller.

    Raises:
        NotReachedError: the request never left.
        UnansweredError: the answer did not come, or not whole.
    """
    place = url_from(outgoing.url).copy_merge_params(outgoing.query)
    request = http.build_request(
        outgoing.method,
        place,
        headers=dict(outgoing.headers),
        content=outgoing.content,
        extensions=dict(outgoing.extensions),
    )
    response: httpx2.Response | None = None
    try:
        try:
            response = await http.send(request, auth=outgoing.auth, stream=True, follow_redirects=False)
        except PrivateAddressError as exc:
            raise NotReachedError(str(exc)) from exc
        yield response
    except (httpx2.HTTPError, httpx2.StreamError) as exc:
        kind = NotReachedError if isinstance(exc, _NEVER_LEFT) else UnansweredError
        unheard = "cannot be reached" if kind is NotReachedError else "gave no answer"
        fault = unheard if response is None else "broke off its answer"
        raise kind(f"{redacted_url(outgoing.url)} {fault}: {reason_of(exc)}") from exc
    finally:
        if response is not None:
            await response.aclose()


async def response_body(response: httpx2.Response, limit_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > limit_bytes:
            raise PeerError(f"{redacted_url(str(response.url))} answered with more than {limit_bytes} bytes")
    return bytes(body)


def url_from(url: str) -> httpx2.URL:
    try:
        place = httpx2.URL(url)
    except httpx2.InvalidURL as exc:
        raise PeerError(f"{redacted_url(url)!r} is no URL: {exc}") from exc
    if place.port is not None and not 0 < place.port < 1 << 16:
        raise PeerError(f"{redacted_url(url)!r} is no URL: there is no port {place.port}")
    return place


def redacted_url(url: str) -> str:
    """A URL as it may be said aloud: without credentials and query."""
    try:
        place = httpx2.URL(url)
        return str(place.copy_with(userinfo=b"", query=None, fragment=None))
    except httpx2.InvalidURL:
        return url.partition("?")[0].rpartition("@")[2]


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL: whom it leads to.

    Raises:
        PeerError: it is no URL.
    """
    place = url_from(url)
    port = place.port or {"http": 80, "https": 443}.get(place.scheme)
    return f"{place.scheme}://{place.host}:{port}"


def json_from(
    text: bytes, where: str, max_values: int = DEFAULT_MAX_VALUES, limited_by: str = ""
) -> JsonValue:
    try:
        return parse_json(text, max_values=max_values)
    except A2AError as exc:
        if exc.kind is TOO_LARGE:
            most = f"more than {max_values} values and keys"
            raise PeerError(f"{where} answered with {most}, which is not taken{limited_by}") from exc
        fault = "something that is no JSON" if exc.kind is PARSE_ERROR else "what is not taken"
        raise PeerError(f"{where} answered with {fault}: {exc}") from exc


def status_words(response: httpx2.Response) -> str:
    said = f"{redacted_url(str(response.url))} answered HTTP {response.status_code} {response.reason_phrase}".rstrip()
    scheme = response.headers.get("www-authenticate", "").partition(" ")[0]
    return f"{said} (it asks for credentials: {scheme})" if scheme else said


def validation_faults(exc: ValidationError) -> tuple[str, ...]:
    """Which fields are at fault, and what was found there."""
    found = []
    for error in exc.errors(include_url=False, include_context=False):
        field = ".".join(str(step) for step in error["loc"])
        if error["type"] == "missing":
            found.append(f"{field} is missing")
        else:
            words = error["msg"].removeprefix("Value error, ")
            found.append(f"{field or 'the whole'}: {words}; found {shortened_json(error['input'])}")
    return tuple(found[:10])
