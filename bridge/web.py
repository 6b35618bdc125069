"""What every HTTP face checks before it looks at a protocol: who calls, from where, and how much they send.

A web page must not reach a bridge on loopback: the Host header has to name this bridge (a page that rebinds its
DNS name cannot), and an Origin header has to be our own. Forwarded headers count only from a proxy on loopback.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

DEFAULT_BODY_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""What one request may carry: a 10 MB file in base64, with room. (MCP's own server stops at 4 MiB.)"""

REALM: Final = 'Bearer realm="mcp-a2a"'

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
class Principal:
    """Who calls. Tasks and contexts belong to one."""

    name: str
    may_list_all: bool = True
    """False for anonymous callers from elsewhere: a task id is all they have, so they list by context."""


LOCAL: Final = Principal("local")
"""Whoever reaches a bridge that listens on loopback and asks for no credentials."""

ANONYMOUS: Final = Principal("anonymous", may_list_all=False)
"""Whoever reaches a bridge that is open to others without credentials."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A bearer token and whom it stands for."""

    principal: Principal
    token: str = field(repr=False)


class Access:
    """Who may call: by bearer token when there are any, else everyone as one principal."""

    def __init__(self, credentials: Sequence[Credential], everyone: Principal = LOCAL) -> None:
        self._digests = [(_digest(known.token), known.principal) for known in credentials]
        self._everyone = everyone

    @property
    def needs_token(self) -> bool:
        """Whether a request without a token is refused."""
        return bool(self._digests)

    def principal_of(self, authorization: str | None) -> Principal:
        """Whom an Authorization header stands for. Takes the same time for every wrong token.

        Raises:
            RefusedError: 401, when a token is needed and this is none that is known.
        """
        if not self._digests:
            return self._everyone
        scheme, _, token = (authorization or "").partition(" ")
        given, found = _digest(token.strip()), None
        for digest, principal in self._digests:
            if hmac.compare_digest(given, digest):
                found = principal
        if scheme.lower() != "bearer" or found is None:
            said = "is not known" if authorization else "is missing"
            raise RefusedError(401, f"A bearer token is needed and {said}", {"WWW-Authenticate": REALM})
        return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a face is reached, and what it calls itself."""

    public_url: str | None = None
    """The address that others are told, without a slash at its end; None takes it from each request."""
    hosts: frozenset[str] = frozenset()
    """Host names, besides loopback's and any IP address, under which it may be asked for."""

    def require_own(self, headers: Mapping[str, str]) -> None:
        """Refuse what a web page of someone else could have sent.

        Raises:
            RefusedError: 421 for a Host that is not ours, 403 for an Origin that is not.
        """
        host = headers.get("host", "")
        if not self._is_own_host(host):
            raise RefusedError(
                421, f"This bridge is not {host or 'asked for by name'}; allow it with --allow-host"
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_own_origin(origin, host):
            raise RefusedError(403, f"Requests from web pages of {origin} are not let in")

    def base_url(self, scope: Scope, headers: Mapping[str, str]) -> str:
        """The address of this bridge as the caller reaches it, without a slash at its end."""
        if self.public_url is not None:
            return self.public_url
        scheme, host, prefix = str(scope.get("scheme", "http")), headers.get("host", "localhost"), ""
        if is_loopback(_client_of(scope)):
            proto = _first(headers.get("x-forwarded-proto")).lower()
            scheme = proto if proto in ("http", "https") else scheme
            forwarded = _first(headers.get("x-forwarded-host"))
            host = forwarded if forwarded and self._is_own_host(forwarded) else host
            prefix = _forwarded_path(_first(headers.get("x-forwarded-prefix")))
        return f"{scheme}://{host}{prefix}"

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


async def body_of(receive: Receive, headers: Mapping[str, str], limit_bytes: int) -> bytes:
    """The whole body of a request.

    Raises:
        RefusedError: 413 when it is larger than the limit; it is not read further then.
    """
    too_large = RefusedError(413, f"The request is larger than {limit_bytes} bytes")
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit_bytes:
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


def _client_of(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _forwarded_path(prefix: str) -> str:
    """A forwarded prefix as it goes between host and path; "" for what is no path, and could change the host."""
    prefix = prefix.rstrip("/")
    return prefix if _PATH.fullmatch(prefix) else ""


def _first(value: str | None) -> str:
    return (value or "").partition(",")[0].strip()
