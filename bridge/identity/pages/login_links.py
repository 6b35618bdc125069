"""The sealed values of a caller's login: the link, the person in the browser, and the login that an issuer has yet to
answer.

Each value is sealed for one use and expires, so that any replica can read it and no replica stores it. The secrets of
a login stand in a cookie of the browser that began the login, so that no other browser can bring the answer.

The call of a task that waits for a login is sealed, too, so that a program that can write to the store cannot call as
somebody else.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar

from bridge.identity.logins.kept_logins import AwaitedLogin, BegunLogin, BegunProof, Login
from bridge.seal import RecordSeal, SealedRecordError

STATE_SECONDS: Final = 600.0
"""The time that a person has at the page of an issuer, and the lifetime of the proof of who is in the browser."""

LOGIN_PATH: Final = "/login"
START_PATH: Final = f"{LOGIN_PATH}/start"
BACK_PATH: Final = f"{LOGIN_PATH}/back"
"""The path to which the issuer of a server sends the browser back."""
WHO_PATH: Final = f"{LOGIN_PATH}/who"
"""The path to which the issuer of a principal sends the browser back, with the proof of the person's identity."""


class LoginLinkError(Exception):
    """A link or a cookie cannot be opened: it is foreign or damaged, or it has expired."""

    def __init__(self, *, is_over: bool = False) -> None:
        super().__init__("it has expired" if is_over else "it does not belong to this bridge")
        self.is_over = is_over


@dataclass(frozen=True)
class LoginLink:
    """An invitation of one principal to log in at one tool server or agent."""

    place: str
    """The table of the peer in the configuration, as `tool_servers.crm`."""
    principal: str
    client: str
    """The client through which the principal calls, as the page shows it."""
    expires_at: float
    """In seconds since the epoch, like all times in this module."""
    vouched_by: str = ""
    """The issuer that said that the caller is the principal; see `Login.vouched_by`."""

    @property
    def server(self) -> str:
        """The name of the peer."""
        return self.place.partition(".")[2]


@dataclass(frozen=True)
class BrowserPerson:
    """The person in a browser that has opened a link."""

    link: str
    """The digest of the link."""
    csrf: str = field(repr=False)
    expires_at: float
    principal: str | None = None
    """None until the person has proved it."""


@dataclass(frozen=True)
class PendingProof:
    """A browser that is at the issuer of a principal, where the person proves an identity."""

    link_text: str
    begun: BegunProof
    expires_at: float


@dataclass(frozen=True)
class PendingLogin:
    """A login that the person has approved, and that the issuer has not answered yet."""

    link: LoginLink
    begun: BegunLogin
    began_at: float
    expires_at: float
    peer: str = ""
    """The peer for which the issuer gives tokens, as `LoginKey.peer`; empty if an older release began the login."""


_Sealed = TypeVar("_Sealed", LoginLink, BrowserPerson, PendingProof, PendingLogin)


class LoginSeals:
    """Seals links and cookies as texts, and opens the texts."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """The first key seals. Each of the keys opens."""
        self._seal = RecordSeal(keys, "login pages")

    def sealed(self, value: LoginLink | BrowserPerson | PendingProof | PendingLogin | AwaitedLogin) -> str:
        """A value as a sealed text, for a URL or a cookie, or to be stored with a task."""
        return self._seal.seal_json(asdict(value), type(value).__name__.encode())

    def link(self, text: str, now: float) -> LoginLink:
        """The link in a text.

        Raises:
            LoginLinkError: it does not open.
        """
        return _in_time(LoginLink(**self._opened(text, LoginLink)), now)

    def person(self, text: str, now: float) -> BrowserPerson:
        """The person in a browser, from its cookie.

        Raises:
            LoginLinkError: it does not open.
        """
        return _in_time(BrowserPerson(**self._opened(text, BrowserPerson)), now)

    def proof(self, text: str, now: float) -> PendingProof:
        """The proof that a browser has begun, from the cookie of the browser.

        Raises:
            LoginLinkError: it does not open.
        """
        record = self._opened(text, PendingProof)
        begun = BegunProof(**record["begun"])
        return _in_time(PendingProof(record["link_text"], begun, record["expires_at"]), now)

    def pending(self, text: str, now: float) -> PendingLogin:
        """The login that a browser has begun, from its cookie.

        Raises:
            LoginLinkError: it does not open.
        """
        record = self._opened(text, PendingLogin)
        bare = record["begun"].pop("bare")
        scopes = {key: tuple(bare[key]) for key in ("scopes", "wanted_scopes")}
        begun = BegunLogin(**record["begun"], bare=Login(**bare | scopes))
        link = LoginLink(**record["link"])
        return _in_time(
            PendingLogin(link, begun, record["began_at"], record["expires_at"], record.get("peer", "")), now
        )

    def awaited(self, text: str) -> AwaitedLogin:
        """The call that waits for a login. It opens after the link has expired, too.

        Raises:
            LoginLinkError: it does not open.
        """
        record = self._opened(text, AwaitedLogin)
        scopes = tuple((scope, tuple(globs)) for scope, globs in record.pop("scopes"))
        return AwaitedLogin(**record | {"skills": tuple(record["skills"])}, scopes=scopes)

    def _opened(self, text: str, kind: type[object]) -> dict[str, Any]:
        try:
            return self._seal.open_json(text, kind.__name__.encode())
        except SealedRecordError as exc:
            raise LoginLinkError from exc


def new_person(link_text: str, now: float, principal: str | None = None) -> BrowserPerson:
    """A new person, for a browser that opens a link."""
    return BrowserPerson(link_digest(link_text), secrets.token_urlsafe(24), now + STATE_SECONDS, principal)


def link_digest(link_text: str) -> str:
    """The digest by which other values name a link."""
    return hashlib.sha256(link_text.encode()).hexdigest()[:32]


def start_url(base_url: str, link_text: str) -> str:
    """The URL of a link."""
    return f"{base_url}{START_PATH}/{link_text}"


def is_same(values: Mapping[str, str], key: str, wanted: str) -> bool:
    """Whether a form or a query holds this secret, compared in constant time."""
    return secrets.compare_digest(values.get(key, "").encode(), wanted.encode())


def _in_time(value: _Sealed, now: float) -> _Sealed:
    if now >= value.expires_at:
        raise LoginLinkError(is_over=True)
    return value
