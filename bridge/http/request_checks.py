"""What every HTTP face checks before it looks at a protocol: from where it is called, and how much it is sent.

A web page must not reach a bridge on loopback: the Host header has to name this bridge (a page that rebinds its
DNS name cannot), and an Origin header has to be our own. Forwarded headers count only from a proxy on loopback.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

AsgiScope = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[MutableMapping[str, Any]]]

"""What one request may carry: a 10 MB file in base64, with room. (MCP's own server stops at 4 MiB.)"""

OUTER_PATH: Final = "mcp_a2a.outer_path"
"""In a scope: the path under which the whole bridge is mounted in another application."""

API_KEY_HEADER: Final = "X-API-Key"
"""The header that carries an API key: the one that most clients know by this name."""

_ONLY_ONCE: Final = ("host", "origin", "authorization", API_KEY_HEADER.lower())
"""The headers that decide who is let in."""

_HOST: Final = re.compile(r"(?:\[(?P<address>[0-9a-f:.%a-z]+)\]|(?P<name>[^\s:@/?#\[\]]+))(?::\d*)?")
_PATH: Final = re.compile(r"(/[^/\s?#\\][^\s?#\\]*)?")


class RefusedError(Exception):
    """A request that is not let in; `str()` of it is for the peer."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status: 400, 401, 403, 413, 415 or 421."""
        self.headers = dict(headers or {})


@dataclass(frozen=True, slots=True)
class FaceAddress:
    """Where a face is reached, and what it calls itself."""

    public_url: str | None = None
    """The address that others are told, without a slash at its end; None takes it from each request."""
    hosts: frozenset[str] = frozenset()
    """Host names, besides loopback's and any IP address, under which it may be asked for."""
    hosts_by: str = "--allow-host {}"
    """How its operator adds one, with the name in the place of the braces."""

    def require_own(self, headers: Mapping[str, str]) -> None:
        """Refuse what a web page of someone else could have sent.

        Raises:
            RefusedError: 421 for a Host that is not ours, 403 for an Origin that is not, 400 where one of them, or a
                secret, is said twice: what stands between might have judged the other.
        """
        names = [name.lower() for name in headers.keys()]  # noqa: SIM118 - of Starlette's, a name for each line
        if twice := [name for name in _ONLY_ONCE if names.count(name) > 1]:
            raise RefusedError(400, f"The header {twice[0]} is sent more than once")
        host = headers.get("host", "")
        if not self._is_own_host(host):
            name = host_name(host)
            how = f"; its operator allows that with {self.hosts_by.format(name)}" if name else ""
            raise RefusedError(421, f"This bridge is not {host or 'asked for by name'}{how}")
        origin = headers.get("origin")
        if origin is not None and not self._is_own_origin(origin, host):
            raise RefusedError(403, f"Requests from web pages of {origin} are not let in")

    def base_url(self, scope: AsgiScope, headers: Mapping[str, str]) -> str:
        """The address of this bridge as the caller reaches it, without a slash at its end."""
        if self.public_url is not None:
            return self.public_url
        outer = str(scope.get(OUTER_PATH, ""))
        scheme, host, prefix = str(scope.get("scheme", "http")), headers.get("host", "localhost"), ""
        if is_loopback(_client_of(scope)):
            proto = _first(headers.get("x-forwarded-proto")).lower()
            scheme = proto if proto in ("http", "https") else scheme
            forwarded = _first(headers.get("x-forwarded-host"))
            host = forwarded if forwarded and self._is_own_host(forwarded) else host
            prefix = _forwarded_path(_first(headers.get("x-forwarded-prefix")))
        return f"{scheme}://{host}{prefix}{outer}"

    def _is_own_host(self, host: str) -> bool:
        name = host_name(host)
        # An address in digits cannot be a name that someone rebinds.
        return name in self._names() or is_ip_address(name)

    def _is_own_origin(self, origin: str, host: str) -> bool:
        return origin.partition("://")[2] == host or (
            self.public_url is not None and origin == "://".join(urlsplit(self.public_url)[:2])
        )

    def _names(self) -> frozenset[str]:
        public = urlsplit(self.public_url).hostname if self.public_url else None
        return self.hosts | {"localhost"} | ({public} if public else set())


async def request_body(receive: AsgiReceive, headers: Mapping[str, str], limit_bytes: int) -> bytes:
    """The whole body of a request.

    Raises:
        RefusedError: 413 when it is larger than the limit; it is not read further then.
    """
    too_large = RefusedError(413, f"The request is larger than {limit_bytes} bytes")
    declared = headers.get("content-length", "").lstrip("0")
    # Python reads no number of more than 4300 digits.
    if declared.isdecimal() and (len(declared) > len(str(limit_bytes)) or int(declared) > limit_bytes):
        raise too_large
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RefusedError(400, "The client went away before it had sent its request")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit_bytes:
            raise too_large
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def require_json(headers: Mapping[str, str], accepted: frozenset[str]) -> None:
    """Only JSON is taken: a form that a web page can post without asking is not.

    Raises:
        RefusedError: 415.
    """
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in accepted:
        takes = " or ".join(sorted(accepted))
        raise RefusedError(415, f"Content-Type must be {takes}, not {content_type or 'absent'}")


def etags_in(headers: Mapping[str, str]) -> set[str]:
    """The ETags of what a client has already (RFC 9110 section 13.1.2)."""
    return {tag.strip().removeprefix("W/") for tag in headers.get("if-none-match", "").split(",")}


def host_name(host: str) -> str:
    """The name in a Host header, without its port, in lower case; "" when it is no name with a port."""
    found = _HOST.fullmatch(host.strip().lower())
    return (found["address"] or found["name"].rstrip(".")) if found else ""


def is_ip_address(name: str) -> bool:
    """Whether a host is given in digits."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether a host is this machine's loopback: `localhost` or an address of it."""
    return host == "localhost" or (is_ip_address(host) and ipaddress.ip_address(host).is_loopback)


def _client_of(scope: AsgiScope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _forwarded_path(prefix: str) -> str:
    """A forwarded prefix as it goes between host and path; "" for what is no path, and could change the host."""
    prefix = prefix.rstrip("/")
    return prefix if _PATH.fullmatch(prefix) else ""


def _first(value: str | None) -> str:
    return (value or "").partition(",")[0].strip()
