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
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import urlsplit

from bridge.errors import UsageError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

DEFAULT_BODY_LIMIT_BYTES: Final = 16 * 1024 * 1024
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


MayUse = Callable[[str], bool]
"""Whether the skill or tool of this name may be used."""


def everything(name: str) -> bool:  # noqa: ARG001 - whatever it is
    """What those may use of whom nothing else is said."""
    return True


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls. Tasks and contexts belong to one."""

    name: str
    may_list_all: bool = True
    """False for anonymous callers from elsewhere: a task id is all they have, so they list by context."""
    skills: tuple[str, ...] = ("*",)
    """Globs of the skills and tools that it may use: `create_*` in every face, `devtools/create_*` in the faces whose
    names the part before the first slash matches."""

    def in_face(self, face: str) -> Principal:
        """This principal where it calls that face: `skills` hold there, and are globs of ids alone."""
        found = (_glob_in_face(glob, face) for glob in self.skills)
        return replace(self, skills=tuple(glob for glob in found if glob is not None))

    def may_use(self, skill_id: str) -> bool:
        """Whether a skill may be used. Asked of what `in_face` gave."""
        return "*" in self.skills or any(fnmatchcase(skill_id, glob) for glob in self.skills)


def may_use(principal: Principal, face: str, skill_id: str) -> bool:
    """Whether a principal may use a skill of an agent, or a tool of an MCP server, that is served under this name."""
    return principal.in_face(face).may_use(skill_id)


def _glob_in_face(glob: str, face: str) -> str | None:
    where, slash, what = glob.partition("/")
    if not slash:
        return glob
    return what if fnmatchcase(face, where) else None


LOCAL: Final = Principal("local")
"""Whoever reaches a bridge that listens on loopback and asks for no credentials."""

ANONYMOUS: Final = Principal("anonymous", may_list_all=False)
"""Whoever reaches a bridge that is open to others without credentials."""


class Scheme(StrEnum):
    """How a secret is shown. The values are what the schemes are called on an agent's card."""

    BEARER = "bearer"
    """As a token, in the Authorization header."""
    API_KEY = "apiKey"
    """As it is, in the header `API_KEY_HEADER`."""


_WORDS: Final[Mapping[Scheme, str]] = {
    Scheme.BEARER: "a bearer token",
    Scheme.API_KEY: f"an API key ({API_KEY_HEADER})",
}
_CHALLENGES: Final[Mapping[Scheme, str]] = {
    Scheme.BEARER: 'Bearer realm="mcp-a2a"',
    Scheme.API_KEY: f'ApiKey realm="mcp-a2a", header="{API_KEY_HEADER}"',
}
"""RFC 9110 section 11.6.1: a 401 says how to get in. API keys have no registered scheme; this is a common one."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A secret and whom it stands for. A principal may have several."""

    principal: Principal
    token: str = field(repr=False)
    scheme: Scheme = Scheme.BEARER
    reference: str = field(default="", compare=False)
    """Where the secret was read from, `env:NAME` or `file:PATH`; "" for one that was made here."""

    def __post_init__(self) -> None:
        if not self.token:
            raise ValueError("an empty secret would let everyone in")


class Access:
    """Who may call: by a secret when any are known, else everyone as one principal."""

    def __init__(self, credentials: Sequence[Credential], everyone: Principal = LOCAL) -> None:
        """See `update`."""
        self._known: Mapping[Scheme, Mapping[bytes, Principal]] = {}
        self._everyone = everyone
        self.changes = 0
        """How often it was changed: who was let in before may not be any more."""
        self.update(credentials)

    def update(
        self, credentials: Sequence[Credential], everyone: Principal | None = None, *, why_nobody: str = ""
    ) -> None:
        """Let these in from the next request on. `why_nobody` is told to all others, in place of what they lack.

        Raises:
            UsageError: a secret stands for two principals; all is left as it was.
        """
        known: dict[Scheme, dict[bytes, Principal]] = {}
        for one in credentials:
            before = known.setdefault(one.scheme, {}).setdefault(_digest(one.token), one.principal)
            if before != one.principal:
                raise UsageError(
                    f"{before.name} and {one.principal.name} have the same secret: nobody could tell them apart"
                )
        self._known = {scheme: known[scheme] for scheme in Scheme if scheme in known}
        self._everyone = everyone or self._everyone
        self._why_nobody = why_nobody
        self.changes += 1

    @property
    def needs_token(self) -> bool:
        """Whether a request that shows no secret is refused."""
        return bool(self._known)

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        """How a secret may be shown, the best way first."""
        return tuple(self._known)

    def principal_of(self, headers: Mapping[str, str]) -> Principal:
        """Whom a request's headers (their names in lower case) stand for. Takes the same time for every wrong secret.

        Each header of a scheme that is accepted has to be right; two of them have to mean the same principal.

        Raises:
            RefusedError: 401, when a secret is needed and this is none that is known.
        """
        if not self._known:
            return self._everyone
        shown = {scheme: secret for scheme in self._known if (secret := _shown(scheme, headers)) is not None}
        found = [self._owner(scheme, secret) for scheme, secret in shown.items()]
        if not found or found[0] is None or any(other != found[0] for other in found):
            raise self.refusal("is not known" if shown else "is missing")
        return found[0]

    def _owner(self, scheme: Scheme, secret: str) -> Principal | None:
        given, found = _digest(secret), None
        for digest, principal in self._known[scheme].items():
            if hmac.compare_digest(given, digest):
                found = principal
        return found

    def refusal(self, said: str) -> RefusedError:
        """The answer to a request that is not let in, with how it would be; `said` is what is wrong with its secret."""
        if not self._known:
            return RefusedError(401, "Who may call was changed while this was read: ask again")
        needed = " or ".join(_WORDS[scheme] for scheme in self._known)
        challenge = ", ".join(_CHALLENGES[scheme] for scheme in self._known)
        words = f"{needed[0].upper()}{needed[1:]} is needed and {said}"
        return RefusedError(401, self._why_nobody or words, {"WWW-Authenticate": challenge})


def _shown(scheme: Scheme, headers: Mapping[str, str]) -> str | None:
    """The secret that a request shows; None when it has no such header, "" when that holds no secret."""
    if scheme is Scheme.API_KEY:
        key = headers.get(API_KEY_HEADER.lower())
        return key.strip() if key is not None else None
    authorization = headers.get("authorization")
    if not authorization:
        return None
    kind, _, token = authorization.partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


@dataclass(frozen=True, slots=True)
class Place:
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

    def base_url(self, scope: Scope, headers: Mapping[str, str]) -> str:
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


async def body_of(receive: Receive, headers: Mapping[str, str], limit_bytes: int) -> bytes:
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


def _client_of(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _forwarded_path(prefix: str) -> str:
    """A forwarded prefix as it goes between host and path; "" for what is no path, and could change the host."""
    prefix = prefix.rstrip("/")
    return prefix if _PATH.fullmatch(prefix) else ""


def _first(value: str | None) -> str:
    return (value or "").partition(",")[0].strip()
