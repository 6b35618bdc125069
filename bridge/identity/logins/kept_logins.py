"""The data of logins: what an authorization server gave the bridge for one peer and one principal, and the protocol of
their store.

A login is stored under its peer and principal. The operator of the bridge is the principal without a name. Of all
processes and replicas that share a keeper, the keeper lets one at a time renew a login: at servers that rotate refresh
tokens, a refresh token that is used twice ends the whole login.

This module knows neither HTTP nor where logins are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol
from urllib.parse import urlsplit

from bridge.text.safe_text import without_hidden_characters

OPERATOR: Final = ""
"""The principal of the operator's logins, which serve every caller."""

EARLY_SECONDS: Final = 30.0
"""How long before its expiry a token is replaced, since a call takes time; half its life if that is shorter."""

DAY_SECONDS: Final = 86_400.0

USE_NOTED_SECONDS: Final = DAY_SECONDS
"""The least time between two writes of a login's last use, so that not each use writes."""

DECLINED: Final = "the person declined to log in"
"""The reason in `Login.lost` after the person declined."""

REFUSED_LOGINS_MOST: Final = 2
"""How many times one call asks for another login after the peer has refused one. A peer that refuses every login must
not ask forever."""

LoginClientAuth = Literal["none", "basic", "post"]

PeerKind = Literal["tool_servers", "agents", "catalogs"]
"""The kind of a peer: its table in the configuration file."""


@dataclass(frozen=True)
class LoginKey:
    """Identifies a login by its peer and principal."""

    peer: str
    """The URL of the peer, as `peer_of` returns it."""
    principal: str = OPERATOR

    @property
    def url(self) -> str:
        """The peer's URL without its query, which may hold a key."""
        return urlsplit(self.peer)._replace(query="").geturl()


@dataclass(frozen=True)
class Login:
    """The tokens of a login, and the data to renew them. Times are seconds since the epoch."""

    issuer: str
    token_url: str
    client_id: str
    access_token: str = field(repr=False)
    got_at: float
    since: float
    """When the person logged in."""
    client_secret: str = field(default="", repr=False)
    client_auth: LoginClientAuth = "none"
    refresh_token: str | None = field(default=None, repr=False)
    expires_at: float | None = None
    scopes: tuple[str, ...] = ()
    wanted_scopes: tuple[str, ...] = ()
    """Further scopes that the peer has asked for since, which the next login requests, too."""
    resource: str = ""
    allow_private: bool = False
    """Whether the operator allowed private addresses for the login. This counts only for a peer that is not in the
    file."""
    renewing_since: float | None = None
    """When a refresh began whose answer is not stored yet. A process that finds this while it holds the lock knows that
    another process crashed."""
    lost: str = ""
    """Why the login cannot be used or renewed any more; empty while it can."""
    refresh_url: str = ""
    """The URL for refreshes, if that is not the token endpoint; it has the same origin."""
    used_at: float | None = None
    """The last written time of a use. The operator's login has none."""
    declined_at: float | None = None
    """When the person declined a call's request to log in again; None if the person never did."""
    vouched_by: str = ""
    """The identity of the issuer that identified the person as the principal. Empty for a principal of the file, and
    for a login that an older release stored."""

    @property
    def last_used(self) -> float:
        """The time of the last use, up to `USE_NOTED_SECONDS` too early. Getting a token counts as a use."""
        return max(self.since, self.got_at, self.used_at or 0.0)

    def is_fresh(self, now: float) -> bool:
        """Whether the access token can be sent."""
        if self.expires_at is None:
            return True
        return now < self.expires_at - min(EARLY_SECONDS, (self.expires_at - self.got_at) / 2)


@dataclass(frozen=True)
class LoginLead:
    """How to log in at a peer that is no MCP server, but an agent or a catalog."""

    url: str
    """The URL that gets the token. It is also the resource of the token, unless the metadata of the peer names
    another."""
    challenge: str = ""
    """The `WWW-Authenticate` in the answer to a request without a token; empty if the peer refused no request."""
    issuer: str = ""
    """The authorization server that its card names."""
    authorization_url: str = ""
    """The page at which a person logs in, from a card that names no authorization server with metadata."""
    token_url: str = ""
    """The token endpoint, from the same card."""
    refresh_url: str = ""
    """The URL for refreshes, if the card names one."""
    checks_pkce: bool = False
    """Whether the card says that PKCE is required."""
    scopes: tuple[str, ...] = ()
    """The scopes that the card asks for."""


@dataclass(frozen=True)
class BegunLogin:
    """A login that has begun: a person can be sent to its page. Any process can finish it with the answer of the
    page."""

    page: str = field(repr=False)
    """The URL of the page."""
    redirect_uri: str
    """The URL to which the issuer sends the browser back."""
    state: str = field(repr=False)
    verifier: str = field(repr=False)
    """The secret half of PKCE."""
    says_issuer: bool
    """Whether the answer has to name the issuer (RFC 9207)."""
    bare: Login
    """The login without its tokens."""
    iss: str = ""
    """The issuer exactly as in its metadata, to compare with the answer's `iss`; empty for the issuer of `bare`."""


@dataclass(frozen=True)
class BegunProof:
    """An OpenID Connect login of a caller that has begun and that its issuer has not answered yet. Any process can
    finish it."""

    redirect_uri: str
    """The URL to which the issuer sends the browser back."""
    state: str = field(repr=False)
    nonce: str = field(repr=False)
    """The nonce that the ID token must have."""
    verifier: str = field(repr=False)
    """The secret half of PKCE."""
    says_issuer: bool
    """Whether the answer has to name the issuer (RFC 9207)."""
    resource: str = ""
    """The resource indicator of the access token; empty to send none."""
    iss: str = ""
    """The issuer exactly as in its metadata, to compare with the answer's `iss`; empty for the issuer as configured."""


@dataclass(frozen=True)
class KeptLogins:
    """All logins of a keeper."""

    logins: Sequence[tuple[LoginKey, Login]]
    """Sorted by peer and principal."""
    sealed_otherwise: int = 0
    """The number of further logins that were sealed with other keys."""


class HeldLogin(Protocol):
    """A locked login: nobody else renews, writes or removes it meanwhile."""

    @property
    def login(self) -> Login | None:
        """The login as read after locking, or as written since; None if there is none, or it cannot be opened."""
        ...

    @property
    def is_there(self) -> bool:
        """Whether the login existed after locking, even if it cannot be opened."""
        ...

    async def write(self, login: Login) -> None:
        """Replace the login. The new login is durable when this returns."""
        ...

    async def remove(self) -> None:
        """Delete the login."""
        ...


class LoginKeeper(Protocol):
    """Stores logins, sealed. Two keepers of the same place are equal.

    All methods raise UsageError if the place cannot be used, StoreError if a database is away, and OSError if a file
    cannot be read or written; `find` raises UsageError also if the login was sealed with another key.
    """

    @property
    def where(self) -> str:
        """The place of the logins in words, without a password."""
        ...

    async def find(self, key: LoginKey) -> Login | None:
        """A login; None if there is none."""
        ...

    def held(self, key: LoginKey) -> AbstractAsyncContextManager[HeldLogin]:
        """Wait until nobody else locks a login, then lock it, and read it again."""
        ...

    async def all(self) -> KeptLogins:
        """All logins."""
        ...


def peer_of(url: str) -> str:
    """The URL of a peer in normal form, without a user and a fragment. An empty path is the root (RFC 3986 section
    6.2.3)."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2].lower()
    return parts._replace(
        scheme=parts.scheme.lower(), netloc=place, path=parts.path or "/", fragment=""
    ).geturl()


@dataclass(frozen=True)
class AwaitedLogin:
    """A call that waits for a login of its caller, with the data that another process needs to continue it."""

    principal: str
    call: str
    """The digest of the task and its call: no other call can use this value."""
    skills: tuple[str, ...]
    """The globs of the skills that the principal had at the agent or server when it called."""
    scopes: tuple[tuple[str, tuple[str, ...]], ...]
    """The skills that each scope of the issuer opened there at that time; empty for a principal of the file."""
    asked_at: float
    expires_at: float
    """When the link expires. After a grace period the task waits for a message instead."""
    vouched_by: str = ""
    """The identity of the issuer that identified the principal; see `Login.vouched_by`."""
    after: float = 0.0
    """Only a login made after this time counts: the server has refused the call with the earlier login."""
    is_judged: bool = False
    """Whether the call came through an MCP server of the bridge, which has already checked its rights."""


_CLIENT_SHOWN: Final = 64
"""The most characters of a client's description of itself that the login page shows."""


def client_at(face: str, client_name: str) -> str:
    """The way in which a principal calls, for its login page: the endpoint of the bridge, and the client's description
    of itself. The description is not verified, so it is marked as such, cut, and put on one line without invisible
    characters."""
    name = " ".join(without_hidden_characters(client_name).replace('"', "'").split())
    if not name:
        return face
    more = "..." if len(name) > _CLIENT_SHOWN else ""
    return f'{face}; the client calls itself "{name[:_CLIENT_SHOWN]}{more}"'


class CallerLogins(Protocol):
    """The callers' logins at a server that requires a login of each caller."""

    @property
    def link_seconds(self) -> float:
        """How long a link is valid."""
        ...

    async def usable_since(self, principal: str, after: float = 0.0) -> float | None:
        """When the principal's current login was made; None if the principal has no usable login that was made after
        `after`. This time identifies the login: a principal makes no two logins at a server at the same time.

        Raises:
            PeerError: the place of the logins cannot be read.
        """
        ...

    def voucher_of(self, principal: str) -> str:
        """The identity of the issuer that identifies this principal now; see `Login.vouched_by`."""
        ...

    def link(self, principal: str, client: str) -> str:
        """The URL at which a principal logs in. `client` is for the page; see `client_at`."""
        ...

    def sealed(self, awaited: AwaitedLogin) -> str:
        """A sealed proof, which each process of the bridge can verify later, that the principal made this call."""
        ...

    def awaited(self, proof: str) -> AwaitedLogin | None:
        """The call in a proof; None if the proof is not from this bridge, or its key is gone."""
        ...

    async def settled(self, awaited: AwaitedLogin, *, is_patient: bool) -> bool | None:
        """Wait until a principal has a usable login or declines. Returns whether it has a usable login.

        Returns None if neither happens before the link expires. With `is_patient`, a login that began before the link
        expired may still end. A login or refusal that came in time counts even if it is found some minutes later. While
        the store of the logins is unavailable, this waits.
        """
        ...
