"""The checks that every HTTP endpoint makes before any protocol: the origin of a request, and its size.

A web page must not reach a bridge on loopback. So the Host header must name this bridge: a page that rebinds its DNS
name sends another Host. An Origin header must be the bridge's own. Forwarded headers count only from a proxy on
loopback.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

AsgiScope = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[MutableMapping[str, Any]]]

OUTER_PATH: Final = "mcp_a2a.outer_path"
"""The key in a scope for the path at which another application mounts the whole bridge."""

ASKED_PATH: Final = "mcp_a2a.asked_path"
"""The key in a scope for the requested path below `OUTER_PATH`, where the request is served under another path."""

IDENTITIES: Final = "mcp_a2a.identities"
"""The key in a scope for the identities in the client certificate of the connection."""

SHOWN_HEADER: Final = ":shown"
"""The header in which the verifiers find the identities of a connection, as a JSON list. HTTP parsers refuse a header
name with a colon, so no client can send this header."""

API_KEY_HEADER: Final = "X-API-Key"
"""The header that carries an API key, under its most common name."""

_ONLY_ONCE: Final = ("host", "origin", "authorization", API_KEY_HEADER.lower())
"""The headers that decide about admission. A request may send each of them only once."""

_HOST: Final = re.compile(r"(?:\[(?P<address>[0-9a-f:.%a-z]+)\]|(?P<name>[^\s:@/?#\[\]]+))(?::\d*)?")
_PATH: Final = re.compile(r"(/[^/\s?#\\][^\s?#\\]*)?")


IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class RefusedError(Exception):
    """The bridge refuses a request. `str()` gives the message for the peer."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status of the answer."""
        self.headers = dict(headers or {})


@dataclass(frozen=True, slots=True)
class FaceAddress:
    """The addresses of an endpoint: the host names by which clients may call it, and the address that it publishes."""

    public_url: str | None = None
    """The published address, without a trailing slash. None takes the address from each request."""
    hosts: frozenset[str] = frozenset()
    """The allowed host names, besides `localhost` and any IP address."""
    hosts_by: str = "--allow-host {}"
    """The option with which the operator allows a host name. `{}` stands for the name."""

    def require_own(self, headers: Mapping[str, str]) -> None:
        """Refuse a request that a web page of another origin could have sent.

        Raises:
            RefusedError: 421, the Host is not this bridge; 403, the Origin is not this bridge; 400, see `require_once`.
        """
        require_once(headers)
        host = headers.get("host", "")
        if not self._is_own_host(host):
            name = host_name(host)
            how = f"; its operator allows that with {self.hosts_by.format(name)}" if name else ""
            raise RefusedError(421, f"This bridge is not {host or 'asked for by name'}{how}")
        origin = headers.get("origin")
        if origin is not None and not self._is_own_origin(origin, host):
            raise RefusedError(403, f"Requests from web pages of {origin} are not let in")

    def base_url(self, scope: AsgiScope, headers: Mapping[str, str]) -> str:
        """The address under which the caller reached this bridge, without a trailing slash."""
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
        return _is_own_name(host_name(host), self.hosts, self.public_url)

    def _is_own_origin(self, origin: str, host: str) -> bool:
        return origin.partition("://")[2] == host or (
            self.public_url is not None and origin == "://".join(urlsplit(self.public_url)[:2])
        )


@lru_cache(maxsize=64)
def _is_own_name(name: str, hosts: frozenset[str], public_url: str | None) -> bool:
    public = urlsplit(public_url).hostname if public_url else None
    # An IP address cannot be rebound by DNS.
    return name in hosts or name in {"localhost", public} or is_ip_address(name)


_SITE_BITS: Final = 64
"""The bits of an IPv6 address that name a site: a peer with one address of a site usually owns all of them."""

_IPV4_STARTS_AT: Final = 96
"""The bits of an IPv6 address before the IPv4 address that is mapped into it."""

_HOPS_MOST: Final = 20
"""The most entries of `X-Forwarded-For` that are read, from the end."""


@dataclass(frozen=True, slots=True)
class TrustedProxies:
    """Proxies that name the caller in a header."""

    header: str = ""
    """The header, in lower case; "" if the proxies name no caller."""
    networks: tuple[IpNetwork, ...] = ()

    def identity_in(self, scope: AsgiScope) -> str | None:
        """The caller that a trusted proxy names; None if it names none, if the value is not UTF-8, or if the request
        does not come from a trusted proxy.

        Raises:
            RefusedError: 400, the header comes twice, and the caller may have sent one of them.
        """
        if not self.header or not self._are_at(_client_of(scope)):
            return None
        name = self.header.encode()
        values = [value for key, value in scope["headers"] if key == name]
        if len(values) > 1:
            raise RefusedError(400, f"The header {self.header} is sent more than once")
        try:
            return values[0].strip(b" \t").decode() or None if values else None
        except UnicodeDecodeError:
            return None

    def address_of(self, scope: AsgiScope) -> str:
        """The address that a request comes from. It is the address of the connection, unless that is a trusted proxy:
        then it is the last address in `X-Forwarded-For` that is not a trusted proxy. Each proxy appends the address
        that called it; the caller may have written the earlier entries."""
        address = _client_of(scope)
        values = [value.decode("latin-1") for key, value in scope["headers"] if key == b"x-forwarded-for"]
        hops = ",".join(values).split(",") if values else []
        for hop in reversed(hops[-_HOPS_MOST:]):
            if not self._are_at(address):
                break
            hop_address = _address_in(hop)
            if hop_address is None:
                break
            address = hop_address
        return address

    def _are_at(self, client: str) -> bool:
        try:
            address = ipaddress.ip_address(client.partition("%")[0])
        except ValueError:  # a socket without an address
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self.networks)


def _address_in(hop: str) -> str | None:
    """The address in an entry of `X-Forwarded-For`, without its port; None if the entry has no address."""
    text = hop.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


def network_of(text: str) -> IpNetwork:
    """The network in a text. A single address is a network too. A network of IPv4-mapped IPv6 addresses (RFC 4291
    section 2.5.5.2) becomes one of IPv4, because connections are compared as IPv4 too.

    Raises:
        ValueError: the text is neither a network nor an address.
    """
    network = ipaddress.ip_network(text, strict=False)
    inner = getattr(network.network_address, "ipv4_mapped", None)
    bits = network.prefixlen - _IPV4_STARTS_AT
    return network if inner is None or bits < 0 else ipaddress.ip_network((inner, bits), strict=False)


NO_PROXIES: Final = TrustedProxies()
"""No proxy is trusted."""


def require_once(headers: Mapping[str, str]) -> None:
    """Refuse a request that sends a header twice if the header decides about admission.

    Raises:
        RefusedError: 400, a header comes twice, and a proxy may have checked the other value.
    """
    names = headers.keys()  # Starlette gives a name for each line, in lower case as in ASGI
    if len({*names}) < len(names) and (twice := [name for name in _ONLY_ONCE if [*names].count(name) > 1]):
        raise RefusedError(400, f"The header {twice[0]} is sent more than once")


async def request_body(receive: AsgiReceive, headers: Mapping[str, str], limit_bytes: int) -> bytes:
    """The whole body of a request.

    Raises:
        RefusedError: 413, the body is larger than the limit, and the rest is not read; 400, the client disconnected.
    """
    declared = headers.get("content-length", "").lstrip("0")
    # `int()` refuses a text of more than 4300 digits.
    if declared.isdecimal() and (len(declared) > len(str(limit_bytes)) or int(declared) > limit_bytes):
        raise _too_large(limit_bytes)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RefusedError(400, "The client went away before it had sent its request")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(limit_bytes: int) -> RefusedError:
    return RefusedError(413, f"The request is larger than {limit_bytes} bytes")


def require_json(headers: Mapping[str, str], accepted: frozenset[str]) -> None:
    """Require a JSON body. A web page can post a form to another origin without permission, but not JSON.

    Raises:
        RefusedError: 415, the media type is not one of `accepted`.
    """
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in accepted:
        takes = " or ".join(sorted(accepted))
        raise RefusedError(415, f"Content-Type must be {takes}, not {content_type or 'absent'}")


def etags_in(headers: Mapping[str, str]) -> set[str]:
    """The ETags in If-None-Match (RFC 9110 section 13.1.2)."""
    return {tag.strip().removeprefix("W/") for tag in headers.get("if-none-match", "").split(",")}


def host_name(host: str) -> str:
    """The name in a Host header, without its port, in lower case; "" if the header is malformed."""
    match = _HOST.fullmatch(host.strip().lower())
    return (match["address"] or match["name"].rstrip(".")) if match else ""


def is_ip_address(name: str) -> bool:
    """Whether a host is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def site_of(address: str) -> str:
    """The site of an address: an IPv4 address itself, or the /64 network of an IPv6 address."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a socket without an address
        return address
    ip = getattr(ip, "ipv4_mapped", None) or ip
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((ip, _SITE_BITS), strict=False))
    return str(ip)


def is_loopback(host: str) -> bool:
    """Whether a host is `localhost` or a loopback address, possibly an IPv4-mapped one from a dual-stack listener."""
    if host == "localhost" or not is_ip_address(host):
        return host == "localhost"
    address = ipaddress.ip_address(host)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


_PROXIED: Final = re.compile(
    r"(x-)?forwarded.*|via|x-(real-ip|original.*|envoy.*|amzn.*|proxy.*)|cf-.*|(.*-)?client-ip"
)
"""Headers that a proxy adds. A request with one of them does not come from a program on this machine."""

_HTTP_OF_BROWSERS: Final = frozenset({"1.1", "2", "3"})
"""Many proxies speak an older version of HTTP."""


def is_asked_here(scope: AsgiScope, headers: Mapping[str, str]) -> bool:
    """Whether a request to a server on loopback comes from this machine: its Host is a loopback address, and no header
    shows a proxy."""
    is_old = scope.get("http_version", "1.1") not in _HTTP_OF_BROWSERS
    is_by_proxy = is_old or any(map(_PROXIED.fullmatch, headers))
    return is_loopback(host_name(headers.get("host", ""))) and not is_by_proxy


def is_from_here(scope: AsgiScope) -> bool:
    """Whether a request's connection comes from this machine."""
    client = _client_of(scope)
    return not client or is_loopback(client)


def _client_of(scope: AsgiScope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _forwarded_path(prefix: str) -> str:
    """A forwarded prefix, to put between host and path; "" if it is not a path, because it could change the host."""
    prefix = prefix.rstrip("/")
    return prefix if _PATH.fullmatch(prefix) else ""


def _first(value: str | None) -> str:
    return (value or "").partition(",")[0].strip()
