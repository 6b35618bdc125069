"""How a tool server is reached: a child process or a URL, with its faults turned into answers.

The SDK's HTTP transport lets one refused connection cancel everything that shares its client. Here a fault
becomes the answer to the one request that met it: a JSON-RPC error, marked as ours (see `faults.py`).

A child's stderr goes to the log, bounded, and its last lines are kept, to say why it died.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TextIO, cast
from urllib.parse import urlsplit

import anyio
import httpx2
from mcp import StdioServerParameters, stdio_client
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp_types import INTERNAL_ERROR

from bridge.errors import UsageError, reason_of
from bridge.mcp.faults import BROKEN_OFF, FAULT_KEY, HTTP_STATUS, SESSION_LOST, TOO_LARGE, UNREACHABLE

logger = logging.getLogger(__name__)
stderr_logger = logging.getLogger("bridge.mcp.stderr")

DEFAULT_RESULT_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""What one HTTP response may carry. The SDK's own bound, 1 MiB an event, is below what tools return."""

_ERROR_BODY_BYTES: Final = 64 * 1024
"""How much of an error page is read: it only has to be told from a JSON-RPC error."""

_NOT_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, httpx2.UnsupportedProtocol)
"""The errors that come before a request has left. After any other, the server may have acted on it."""

_KEEPALIVE_SECONDS: Final = 2.0
"""Idle connections are dropped before a server (uvicorn: 5 s) does it, while a request is on its way."""

_NO_SESSION: Final = re.compile(
    r"\b(no valid|invalid|unknown|missing|expired) (mcp )?session\b|\bsession( id)? (not found|is required|expired)\b",
    re.IGNORECASE,
)
"""How servers say in words, with HTTP 400, that they do not know a session. Narrow, as a request that met it is
sent again: a tool's own error that merely speaks of a session is not one of these."""

_STDERR_LINE: Final = 2000
_STDERR_LINES_KEPT: Final = 5
_STDERR_LINES_A_BURST: Final = 200
_STDERR_BURST_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Command:
    """A server that is started as a child process and spoken to over its stdin and stdout."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Beside HOME, LOGNAME, PATH, SHELL, TERM and USER, which every child gets."""
    cwd: str | None = None

    def __str__(self) -> str:
        return " ".join(self.argv)


@dataclass(frozen=True)
class Url:
    """A server that is reached over Streamable HTTP."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    connect_seconds: float = 10.0
    result_limit_bytes: int = DEFAULT_RESULT_LIMIT_BYTES

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


Target = Command | Url


@dataclass
class LastWords:
    """The newest lines that a child wrote to its stderr."""

    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_STDERR_LINES_KEPT))

    def __str__(self) -> str:
        return f"; its last words: {' | '.join(self.lines)}" if self.lines else ""


@asynccontextmanager
async def child(command: Command, name: str, last_words: LastWords) -> AsyncIterator[TransportStreams]:
    """Start a server as a child process, and end it, with its process group, on exit.

    Raises:
        UsageError: it cannot be started (in a group of exceptions).
    """
    parameters = StdioServerParameters(
        command=command.argv[0],
        args=list(command.argv[1:]),
        env=dict(command.env),
        cwd=command.cwd,
        encoding_error_handler="replace",
    )
    reading, writing = os.pipe()
    try:
        async with anyio.create_task_group() as tasks:
            with os.fdopen(writing, "wb") as errlog:
                transport = stdio_client(parameters, errlog=cast(TextIO, errlog))
                try:
                    streams = await transport.__aenter__()
                except OSError as exc:
                    raise UsageError(f"cannot start {command.argv[0]!r}: {exc.strerror or exc}") from exc
            tasks.start_soon(_log_stderr, reading, name, last_words)
            try:
                yield streams
            finally:
                await transport.__aexit__(None, None, None)
                tasks.cancel_scope.cancel()
    finally:
        os.close(reading)


async def _log_stderr(reading: int, name: str, last_words: LastWords) -> None:
    """Pass a child's stderr on to the log, line by line, until it closes it."""
    os.set_blocking(reading, False)
    rest, burst_end, logged = b"", 0.0, 0
    while True:
        await anyio.wait_readable(reading)
        chunk = os.read(reading, 65536)
        if not chunk:
            return
        *lines, rest = (rest + chunk)[-1_000_000:].split(b"\n")
        rest = rest[:_STDERR_LINE]
        for raw in lines:
            line = raw[:_STDERR_LINE].decode("utf-8", "replace").rstrip()
            if not line:
                continue
            last_words.lines.append(line)
            if anyio.current_time() > burst_end:
                burst_end, logged = anyio.current_time() + _STDERR_BURST_SECONDS, 0
            logged += 1
            if logged <= _STDERR_LINES_A_BURST:
                stderr_logger.info("%s: %s", name, line)
            elif logged == _STDERR_LINES_A_BURST + 1:
                stderr_logger.warning("%s writes much to stderr; some of it is left out here", name)


@asynccontextmanager
async def streamable_http(target: Url, on_fault: Callable[[str], None]) -> AsyncIterator[TransportStreams]:
    """Speak to a server over Streamable HTTP. `on_fault` hears of each fault, by its kind."""
    limits = httpx2.Limits(max_connections=None, keepalive_expiry=_KEEPALIVE_SECONDS)
    # No read timeout: a call's own deadline bounds it, and a stream may be silent for as long.
    timeout = httpx2.Timeout(None, connect=target.connect_seconds)
    transport = FaultMappingTransport(str(target), target.result_limit_bytes, on_fault, limits=limits)
    async with (
        httpx2.AsyncClient(transport=transport, timeout=timeout, headers=dict(target.headers)) as client,
        streamable_http_client(target.url, http_client=client, max_sse_event_size=None) as streams,
    ):
        yield streams


class FaultMappingTransport(httpx2.AsyncHTTPTransport):
    """An HTTP transport that never raises: what goes wrong is answered like a server's JSON-RPC error."""

    def __init__(
        self, name: str, limit_bytes: int, on_fault: Callable[[str], None], *, limits: httpx2.Limits
    ) -> None:
        super().__init__(limits=limits)
        self._name = name
        self._limit_bytes = limit_bytes
        self._on_fault = on_fault

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; a transport error or an error page becomes a JSON-RPC error."""
        try:
            response = await super().handle_async_request(request)
        except _NOT_SENT as exc:
            return self._fault(request, 502, UNREACHABLE, f"{self._name} cannot be reached: {reason_of(exc)}")
        except httpx2.TransportError as exc:
            return self._fault(request, 502, BROKEN_OFF, f"{self._name} broke off: {reason_of(exc)}")
        if response.status_code >= 400:
            return await self._error_page(request, response)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _BoundedStream(response.stream, self._limit_bytes)
        if response.headers.get("content-type", "").lower().startswith("application/json"):
            return await self._whole(request, response)
        return response

    async def _whole(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """A body that is one JSON text, read here, where what goes wrong with it can still be said."""
        try:
            await response.aread()
        except _TooLargeError as exc:
            return self._fault(request, 502, TOO_LARGE, str(exc))
        except (httpx2.StreamError, httpx2.HTTPError) as exc:
            return self._fault(request, 502, BROKEN_OFF, str(exc))
        finally:
            await response.aclose()
        return response

    async def _error_page(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        body = await _beginning(response)
        if _means_session_lost(request, response.status_code, body):
            return self._fault(
                request, response.status_code, SESSION_LOST, f"{self._name} no longer knows the session"
            )
        if _jsonrpc_error(body) is not None:
            return httpx2.Response(
                response.status_code,
                headers={"content-type": "application/json"},
                content=body,
                request=request,
            )
        status = response.status_code
        said = f"{self._name} answered HTTP {status} {response.reason_phrase}".rstrip()
        return self._fault(request, status, HTTP_STATUS, said)

    def _fault(self, request: httpx2.Request, status: int, kind: str, message: str) -> httpx2.Response:
        self._on_fault(kind)
        error = {"code": INTERNAL_ERROR, "message": message, "data": {FAULT_KEY: kind}}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        return httpx2.Response(
            status, headers={"content-type": "application/json"}, content=body, request=request
        )


class _TooLargeError(httpx2.SSEError):
    """A response above the limit. The SDK tells the words of an SSEError, and does not ask for the rest."""


class _BoundedStream(httpx2.AsyncByteStream):
    """A response body that ends with an error that the SDK expects when it breaks or grows too large."""

    def __init__(self, stream: httpx2.AsyncByteStream, limit_bytes: int) -> None:
        self._stream = stream
        self._limit_bytes = limit_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for chunk in self._stream:
                size += len(chunk)
                if size > self._limit_bytes:
                    raise _TooLargeError(f"the response is larger than {self._limit_bytes} bytes")
                yield chunk
        except _TooLargeError:
            raise
        except httpx2.TransportError as exc:
            raise httpx2.StreamError(f"the response broke off: {reason_of(exc)}") from exc

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _beginning(response: httpx2.Response) -> bytes:
    """The first bytes of a body; the rest is not read."""
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in response.aiter_raw():
            chunks.append(chunk)
            size += len(chunk)
            if size >= _ERROR_BODY_BYTES:
                break
    except (httpx2.TransportError, httpx2.StreamError):
        logger.debug("an error page broke off")
    finally:
        await response.aclose()
    return b"".join(chunks)


def _means_session_lost(request: httpx2.Request, status: int, body: bytes) -> bool:
    """Whether the server does not know the session of a message: 404 by the specification, 400 from many.

    Only of messages: a server that has no stream of its own may answer the GET for one with 404, too.
    """
    if request.method != "POST" or "mcp-session-id" not in request.headers:
        return False
    return status == 404 or (status == 400 and bool(_NO_SESSION.search(_jsonrpc_error(body) or "")))


def _jsonrpc_error(body: bytes) -> str | None:
    """The message of a JSON-RPC error; None when a body is none."""
    try:
        parsed = json.loads(body)
    except ValueError:
        return None
    if not isinstance(parsed, dict) or parsed.get("jsonrpc") != "2.0" or "error" not in parsed:
        return None
    error = parsed["error"]
    return str(error.get("message", "")) if isinstance(error, dict) else ""
