"""One bounded HTTP exchange with a peer: the base of the A2A clients.

Every fault becomes a PeerError that names the fault and the URL, without its credentials and query.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, Final

import httpx2
from pydantic import JsonValue

from bridge.a2a.model.errors import PARSE_ERROR, TOO_LARGE, A2AError
from bridge.a2a.wire.jsontext import parse_json
from bridge.errors import PeerError, echoed, reason_of
from bridge.http.client import shows_certificate
from bridge.http.private_addresses import PrivateAddressError
from bridge.text.jsonvalues import DEFAULT_MAX_VALUES

_MAYBE_CERTIFICATE: Final = " (if it wants a certificate of its clients: --cert and --key, or tls in a file)"

_NEVER_LEFT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)
"""The errors that come before the first byte of a request is written."""


class NotReachedError(PeerError):
    """The request was certainly not sent. It may be sent again, or to another URL."""


class UnansweredError(PeerError):
    """The request was sent, and no complete answer came. Whether it was carried out is unknown."""


class UnreadableAnswerError(PeerError):
    """A text from a peer is not JSON, or is not an answer in its envelope."""


class AgentBusyError(PeerError):
    """The request was sent, and the peer refused it for the moment. It may be sent again a little later."""

    def __init__(self, message: str, *, retry_after_seconds: float = 0, detail: str = "") -> None:
        super().__init__(message, detail=detail)
        self.retry_after_seconds = retry_after_seconds
        """How long the peer asks the client to wait; 0 if it does not say."""


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """One request for `exchange`."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    """Added to the query of the URL."""
    extensions: Mapping[str, Any] = field(default_factory=dict)
    """The request extensions of httpx2, such as `timeout`, and those of `guarded_by`."""
    auth: httpx2.Auth | None = None
    """Adds credentials to the request; None if the request needs no credentials beside those in the URL."""


@asynccontextmanager
async def exchange(http: httpx2.AsyncClient, outgoing: OutgoingRequest) -> AsyncIterator[httpx2.Response]:
    """Send a request, and yield its response, whose body is still to be read. Redirects are left to the caller.

    Raises:
        NotReachedError: the request was not sent.
        UnansweredError: no complete answer came.
    """
    parsed = url_from(outgoing.url).copy_merge_params(outgoing.query)
    request = http.build_request(
        outgoing.method,
        parsed,
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
        hint = _MAYBE_CERTIFICATE if response is None and _was_shown_none(request, exc) else ""
        raise kind(f"{redacted_url(outgoing.url)} {fault}: {reason_of(exc)}{hint}") from exc
    finally:
        if response is not None:
            await response.aclose()


def _was_shown_none(request: httpx2.Request, exc: Exception) -> bool:
    """Whether a server closed a TLS connection on which the client showed no certificate. With TLS 1.3, a server asks
    for a client certificate only after the handshake, and may close the connection before its alert is read."""
    hung_up = isinstance(exc, httpx2.RemoteProtocolError | httpx2.ReadError)
    return hung_up and request.url.scheme == "https" and not shows_certificate(request)


async def response_body(response: httpx2.Response, limit_bytes: int) -> bytes:
    """The whole body of a response.

    Raises:
        PeerError: the body is larger than `limit_bytes`.
    """
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > limit_bytes:
            raise PeerError(f"{redacted_url(str(response.url))} answered with more than {limit_bytes} bytes")
    return bytes(body)


_URLS_REMEMBERED: Final = 256
"""How many parsed URLs are kept. One exchange reads the same few URLs about 15 times, and a URL takes 0.1 ms."""


@lru_cache(maxsize=_URLS_REMEMBERED)
def url_from(url: str) -> httpx2.URL:
    """A parsed URL.

    Raises:
        PeerError: the text is not a URL.
    """
    try:
        parsed = httpx2.URL(url)
    except (
        httpx2.InvalidURL,
        ValueError,
    ) as exc:  # ValueError: a lone surrogate, or a fault that the parser does not convert
        raise PeerError(f"{echoed(redacted_url(url))!r} is not a URL: {echoed(str(exc))}") from exc
    if parsed.port is not None and not 0 < parsed.port < 1 << 16:
        raise PeerError(f"{echoed(redacted_url(url))!r} is not a URL: there is no port {parsed.port}")
    return parsed


def url_within(base: str, reference: str) -> httpx2.URL:
    """The parsed URL that a reference on the page at `base` leads to.

    Raises:
        PeerError: the result is not a URL.
    """
    try:
        joined = str(url_from(base).join(reference))
    except (httpx2.InvalidURL, ValueError) as exc:
        raise PeerError(f"{echoed(redacted_url(reference))!r} is not a URL: {echoed(str(exc))}") from exc
    return url_from(joined)


@lru_cache(maxsize=_URLS_REMEMBERED)
def redacted_url(url: str) -> str:
    """A URL for messages and logs: without credentials, query and fragment."""
    try:
        parsed = httpx2.URL(url)
        return str(parsed.copy_with(userinfo=b"", query=None, fragment=None))
    except (httpx2.InvalidURL, ValueError):
        return url.partition("?")[0].rpartition("@")[2]


def origin_of(url: str) -> str:
    """The scheme, host and port of a URL.

    Raises:
        PeerError: the text is not a URL.
    """
    parsed = url_from(url)
    port = parsed.port or {"http": 80, "https": 443}.get(parsed.scheme)
    return f"{parsed.scheme}://{parsed.host}:{port}"


def json_from(
    text: bytes, where: str, max_values: int = DEFAULT_MAX_VALUES, limited_by: str = ""
) -> JsonValue:
    """The value of a JSON text from a peer. `where` and `limited_by` are words for the error.

    Raises:
        PeerError: the text is not JSON, or has too many values.
    """
    try:
        return _lenient_json(text, max_values)
    except A2AError as exc:
        if exc.kind is TOO_LARGE:
            most = f"more than {max_values} values and keys"
            raise PeerError(f"{where} answered with {most}{limited_by}") from exc
        if exc.kind is PARSE_ERROR:
            raise UnreadableAnswerError(f"{where} answered with something that is not JSON: {exc}") from exc
        raise PeerError(f"{where} answered with JSON that is not accepted: {exc}") from exc


def is_json(text: bytes) -> bool:
    """Whether a text is JSON as a whole."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


_HALF: Final = re.compile(
    rb"\\u[dD](?:[89aAbB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89aAbB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)
"""The escape of a lone surrogate, which JavaScript writes if it cuts a text between two surrogates."""


def has_halves(text: bytes) -> bool:
    """Whether a JSON text has lone surrogates."""
    return b"\\u" in text and _HALF.search(text) is not None


def _lenient_json(text: bytes, max_values: int) -> JsonValue:
    """The value of a JSON text, which may begin with a byte order mark and have lone surrogates."""
    text = text.removeprefix(codecs.BOM_UTF8)
    try:
        return parse_json(text, max_values=max_values)
    except A2AError as exc:
        if exc.kind is not PARSE_ERROR or not has_halves(text):
            raise
        # `json.loads` has no bounds, so the bounds are checked on a copy without the lone surrogates.
        parse_json(_HALF.sub(rb"\\u003f", text), max_values=max_values)
        value: JsonValue = json.loads(text)
        return value


def status_words(response: httpx2.Response) -> str:
    """The HTTP status of a response in words, with the scheme of the credentials that it asks for."""
    words = f"{redacted_url(str(response.url))} answered HTTP {response.status_code} {response.reason_phrase}".rstrip()
    scheme = response.headers.get("www-authenticate", "").partition(" ")[0]
    return f"{words} (it asks for credentials: {scheme})" if scheme else words


_MOST_WORDS: Final = 300
"""The most characters of a peer's own error text that are shown."""
_MOST_OF_ERROR_BYTES: Final = 64 * 1024
"""The longest body of an error that is read as JSON. A longer body could hold too many values."""
_WORDS: Final = ("message", "detail", "error_description", "title", "error", "errors", "msg", "reason")
"""The fields in which servers describe an error, the most informative first: FastAPI, problem+json (RFC 9457),
google.rpc.Status, OAuth."""


def refusal_words(text: bytes, response: httpx2.Response) -> str:
    """The description of an error in the body of a response, as one bounded line; empty if there is no readable
    text."""
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    head = text[: 16 * _MOST_WORDS]
    try:
        is_json = text[:1] in (b"{", b"[", b'"') and len(text) <= _MOST_OF_ERROR_BYTES
        words = _words_in(json.loads(text)) if is_json else ""
    except (ValueError, RecursionError):
        words = ""
    if not words and media_type in ("", "text/plain") and not head.lstrip().startswith(b"<"):
        words = head.decode("utf-8", "replace")
    words = without_credentials(words, response.request)
    line = " ".join("".join(character if character.isprintable() else " " for character in words).split())
    return line if len(line) <= _MOST_WORDS else f"{line[: _MOST_WORDS - 4]} ..."


_SECRET_HEADER: Final = re.compile(r"auth|cookie|credential|key|secret|token", re.IGNORECASE)
_LONG_ENOUGH: Final = 6
"""The shortest credential, in characters, that is removed. A shorter one could be an ordinary word of the text."""


def without_credentials(words: str, request: httpx2.Request) -> str:
    """A text of a peer, with the request's credentials removed. Some peers repeat them, and callers read the text."""
    values = [value for name, value in request.headers.items() if _SECRET_HEADER.search(name)]
    values += [value for name, value in request.url.params.items() if _SECRET_HEADER.search(name)]
    secrets = {
        secret for value in values for secret in (value, value.rpartition(" ")[2], value.rpartition("=")[2])
    }
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _LONG_ENOUGH:
            words = words.replace(secret, "***")
    return words


def _words_in(value: JsonValue, depth: int = 4) -> str:
    """The words in the JSON of an error."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "; ".join(filter(None, (_words_in(item, depth - 1) for item in value[:5]))) if depth else ""
    if not isinstance(value, dict) or not depth:
        return ""
    reasons = [words for name in _WORDS if (words := _words_in(value.get(name), depth - 1))]
    return ": ".join(dict.fromkeys(reversed(reasons[:2]))) if value.get("title") else next(iter(reasons), "")


def retry_after_seconds(response: httpx2.Response) -> float:
    """How long a peer asks the client to wait: in seconds, or until a date (RFC 9110 section 10.2.3); 0 if it does not
    say."""
    retry_after = response.headers.get("retry-after", "").strip()
    if retry_after.isdecimal() and retry_after.isascii():
        return float(retry_after[:9])
    with suppress(ValueError, TypeError, OverflowError):
        at = parsedate_to_datetime(retry_after)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return max(0.0, (at - datetime.now(UTC)).total_seconds())
    return 0.0
