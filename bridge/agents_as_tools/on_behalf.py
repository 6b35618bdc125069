"""In whose name an agent is called: that of the bridge, or of each caller. A call for a caller never falls back to
what the bridge itself has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from bridge.a2a.client.credentials import Credentials
from bridge.identity.logins.each_login import EachLogin
from bridge.identity.logins.kept_logins import CallerLogins
from bridge.identity.tokens.caller_token import Caller
from bridge.identity.tokens.token_exchange import CallerTokens


class OnBehalf(Protocol):
    """Gives the credentials with which an agent is called for a caller."""

    @property
    def issuer(self) -> str | None:
        """The issuer whose tokens callers have to show; None if they need none."""
        ...

    @property
    def logins(self) -> CallerLogins | None:
        """The logins that callers have to make; None if they need none."""
        ...

    def keep_login(self, principal: str, since: float | None) -> None:
        """Use no login of a principal but the one that it made then; None is for no login."""
        ...

    def credentials(self, caller: Caller, known: Credentials) -> Credentials:
        """The credentials for a caller, beside those that everybody is called with.

        Raises:
            CallerTokenError: there are none for this caller; why, in words.
        """
        ...


@dataclass(frozen=True)
class ByExchange:
    """An agent that is called with a token for which the caller's own was exchanged (RFC 8693)."""

    callers: CallerTokens = field(repr=False)
    logins: None = None

    def keep_login(self, principal: str, since: float | None) -> None:
        """It is called with no login."""

    @property
    def issuer(self) -> str | None:
        """See `OnBehalf`."""
        return self.callers.issuer

    def credentials(self, caller: Caller, known: Credentials) -> Credentials:
        """See `OnBehalf`."""
        return replace(known, tokens=self.callers.of(caller.token))


@dataclass(frozen=True)
class ByLogin:
    """An agent that is called with the login of each caller."""

    tokens: EachLogin = field(repr=False)
    logins: CallerLogins = field(repr=False)
    issuer: None = None

    def keep_login(self, principal: str, since: float | None) -> None:
        """See `OnBehalf`."""
        self.tokens.keep(principal, since)

    def credentials(self, caller: Caller, known: Credentials) -> Credentials:
        """See `OnBehalf`."""
        return replace(known, tokens=self.tokens.of(caller.principal))


@dataclass(frozen=True)
class ByHeader:
    """An agent of this process, which takes the bridge's word for whom it calls."""

    headers: Callable[[Caller], Mapping[str, str]] = field(repr=False)
    issuer: None = None
    logins: None = None

    def keep_login(self, principal: str, since: float | None) -> None:
        """It is called with no login."""

    def credentials(self, caller: Caller, known: Credentials) -> Credentials:
        """See `OnBehalf`."""
        return replace(known, headers={**known.headers, **self.headers(caller)})
