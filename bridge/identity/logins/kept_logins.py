"""Logins: what an authorization server gave the bridge for one peer and one principal, and who keeps it.

A login is kept by peer and principal. The operator of the bridge is the principal without a name. A keeper gives one
process at a time, of all processes and replicas that share it, the right to renew a login: a refresh token that is
used twice ends the whole login at servers that rotate it.

This module knows neither HTTP nor where logins are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol
from urllib.parse import urlsplit

from bridge.text.safe_text import without_hidden_characters

OPERATOR: Final = ""
"""The principal of logins that the operator made, which serve every caller."""

EARLY_SECONDS: Final = 30.0
"""A token is replaced so long before it expires, or at half its life if that is shorter: a call takes time."""

DAY_SECONDS: Final = 86_400.0

USE_NOTED_SECONDS: Final = DAY_SECONDS
"""How much later a further use of a login is noted: not each use writes."""

DECLINED: Final = "the person declined to log in"
"""Why a login is lost that its person declined."""

REFUSED_LOGINS_MOST: Final = 2
"""How many logins a call asks for that its peer has refused: one that takes none has nobody log in for ever."""

LoginClientAuth = Literal["none", "basic", "post"]

PeerKind = Literal["tool_servers", "agents", "catalogs"]
"""What a peer is, by its table in a file."""


@dataclass(frozen=True)
class LoginKey:
    """Whose login it is, and with which peer."""

    peer: str
    """The URL of the peer, as `peer_of` makes it."""
    principal: str = OPERATOR

    @property
    def shown(self) -> str:
        """The peer for a person: without the query, in which a key may stand."""
        return urlsplit(self.peer)._replace(query="").geturl()


@dataclass(frozen=True)
class Login:
    """The tokens of a login, and what is needed to renew them. Times are seconds since the epoch."""

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
    """Those that the peer has missed since, which the next login asks for beside these."""
    resource: str = ""
    allow_private: bool = False
    """Whether the operator let the login lead to private addresses. It counts for a URL, of which no file says it."""
    renewing_since: float | None = None
    """When a refresh began whose answer was not written yet. Whoever finds this alone follows one that crashed."""
    lost: str = ""
    """Why it cannot be renewed any more; empty while it can."""
    refresh_url: str = ""
    """Where it is renewed, if that is not the token endpoint; at the same origin."""
    used_at: float | None = None
    """When a token of it was handed out, as it was last noted. The operator's login has no such notes."""
    declined_at: float | None = None
    """When the person declined to log in anew, as some call had asked; None if it never did."""
    vouched_by: str = ""
    """Who said that the person is the principal: the identity of the issuer. Empty for a principal of the file, and if
    an older release has stored it."""

    @property
    def last_used(self) -> float:
        """When it was used, up to `USE_NOTED_SECONDS` too early. A token is got for a use."""
        return max(self.since, self.got_at, self.used_at or 0.0)

    def is_fresh(self, now: float) -> bool:
        """Whether the access token can be sent."""
        if self.expires_at is None:
            return True
        return now < self.expires_at - min(EARLY_SECONDS, (self.expires_at - self.got_at) / 2)


@dataclass(frozen=True)
class LoginLead:
    """What a peer that is no MCP server says of how to log in: an agent, or a catalog."""

    url: str
    """Where the token is shown. It is for this resource, unless the metadata of the peer names another one."""
    challenge: str = ""
    """The `WWW-Authenticate` of a request without a token; empty if the peer refused none."""
    issuer: str = ""
    """The authorization server that its card names."""
    authorization_url: str = ""
    """The page at which a person logs in, by a card that names no authorization server with metadata."""
    token_url: str = ""
    """The token endpoint, likewise."""
    refresh_url: str = ""
    """Where a token is renewed, if the card says so beside that."""
    checks_pkce: bool = False
    """Whether the card says that PKCE is required there."""
    scopes: tuple[str, ...] = ()
    """Those that the card asks for."""


@dataclass(frozen=True)
class BegunLogin:
    """A login whose page can be shown. With the answer of that page it can be finished in any process."""

    page: str = field(repr=False)
    """The URL of the page."""
    redirect_uri: str
    """Where the browser comes back to."""
    state: str = field(repr=False)
    verifier: str = field(repr=False)
    """The secret half of PKCE."""
    says_issuer: bool
    """Whether the answer has to name the issuer (RFC 9207)."""
    bare: Login
    """The login, without its tokens."""
    iss: str = ""
    """The issuer as its metadata writes it, for the answer's `iss`; empty for the issuer of `bare`."""


@dataclass(frozen=True)
class BegunProof:
    """A proof of who is in a browser that its issuer has not answered yet. It can be finished in any process."""

    redirect_uri: str
    """Where the browser comes back to."""
    state: str = field(repr=False)
    nonce: str = field(repr=False)
    """What the ID token has to say."""
    verifier: str = field(repr=False)
    """The secret half of PKCE."""
    says_issuer: bool
    """Whether the answer has to name the issuer (RFC 9207)."""
    resource: str = ""
    """The resource indicator of the access token; empty to send none."""
    iss: str = ""
    """The issuer as its metadata writes it, for the answer's `iss`; empty for the issuer as it is configured."""


@dataclass(frozen=True)
class KeptLogins:
    """All that a keeper has."""

    logins: Sequence[tuple[LoginKey, Login]]
    """By peer and principal."""
    sealed_otherwise: int = 0
    """How many there are beside these that were sealed with other keys."""


class HeldLogin(Protocol):
    """A login that nobody else renews, writes or removes meanwhile."""

    @property
    def login(self) -> Login | None:
        """The login as it was when it was held, or as it was written since; None if there is none that opens."""
        ...

    @property
    def is_there(self) -> bool:
        """Whether there was one when it was held, also if it does not open."""
        ...

    async def write(self, login: Login) -> None:
        """Keep a login in place of this one. It is durable when this returns."""
        ...

    async def remove(self) -> None:
        """Forget it."""
        ...


class LoginKeeper(Protocol):
    """Keeps logins, sealed. Keepers of one place are equal.

    All methods raise UsageError if the place cannot be used, StoreError if a database is away, and OSError if a file
    cannot be read or written; `find` raises UsageError also if the login was sealed with another key.
    """

    @property
    def where(self) -> str:
        """The place in words, without a password."""
        ...

    async def find(self, key: LoginKey) -> Login | None:
        """A login; None if there is none."""
        ...

    def held(self, key: LoginKey) -> AbstractAsyncContextManager[HeldLogin]:
        """Wait until nobody else holds a login, then hold it, and read it again."""
        ...

    async def all(self) -> KeptLogins:
        """All logins."""
        ...


def peer_of(url: str) -> str:
    """A peer in keys: its URL without a user and fragment. An empty path is the root (RFC 3986 section 6.2.3)."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2].lower()
    return parts._replace(
        scheme=parts.scheme.lower(), netloc=place, path=parts.path or "/", fragment=""
    ).geturl()


@dataclass(frozen=True)
class AwaitedLogin:
    """A call that waits for a login of its caller, with what another process needs to go on with it."""

    principal: str
    call: str
    """The digest of the task and its call: no other call goes on with this."""
    skills: tuple[str, ...]
    """The globs of the skills that the principal could use when it asked, in the face that it asked."""
    scopes: tuple[tuple[str, tuple[str, ...]], ...]
    """What each scope of its issuer opened there then; empty for a principal of the file."""
    asked_at: float
    expires_at: float
    """When the link expires. Some time later the task waits for a message."""
    vouched_by: str = ""
    """Who said that it is the principal; see `Login.vouched_by`."""
    after: float = 0.0
    """Only a login counts that was made after this: the server has refused the call with the one of before."""
    is_judged: bool = False
    """Whether it came through an MCP server of the bridge, which has judged what it may use."""


_CLIENT_SHOWN: Final = 64
"""Characters of what a client says of itself that the page of a login shows."""


def client_at(face: str, said: str) -> str:
    """Through what a principal calls, for the page of its login: a face of the bridge, and what the client says of
    itself. Nobody has checked that, so it is marked, bounded, in one line and without characters that nobody sees."""
    name = " ".join(without_hidden_characters(said).replace('"', "'").split())
    if not name:
        return face
    more = "..." if len(name) > _CLIENT_SHOWN else ""
    return f'{face}; the client calls itself "{name[:_CLIENT_SHOWN]}{more}"'


class CallerLogins(Protocol):
    """The logins of the callers at a server that wants one of each."""

    @property
    def link_seconds(self) -> float:
        """How long a link lives."""
        ...

    async def usable_since(self, principal: str, after: float = 0.0) -> float | None:
        """When a principal made the login that it has now; None if it has none that can be used and was made after some
        moment. No two logins of a principal at a server were made at the same time, so this tells them apart.

        Raises:
            PeerError: the place of the logins cannot be read.
        """
        ...

    def voucher_of(self, principal: str) -> str:
        """Who says now that somebody is this principal; see `Login.vouched_by`."""
        ...

    def link(self, principal: str, client: str) -> str:
        """The URL at which a principal logs in. `client` is what it calls through, for its page."""
        ...

    def sealed(self, awaited: AwaitedLogin) -> str:
        """What proves later, to each process of the bridge, that the principal asked for this call."""
        ...

    def awaited(self, proof: str) -> AwaitedLogin | None:
        """The call of a proof; None for a proof of somebody else, or one whose key is gone."""
        ...

    async def settled(self, awaited: AwaitedLogin, *, is_patient: bool) -> bool | None:
        """Wait until a principal has a login that can be used, or has declined since it asked; whether it has one.

        Returns None if neither came until the link expired; if `is_patient`, until no issuer can answer any more that
        was gone to by then. What came in time for that counts, also if it is found some minutes later. While the place
        of the logins cannot be used, nothing has come.
        """
        ...
