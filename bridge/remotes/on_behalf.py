"""Decides in whose name an agent is called: in the bridge's name, or in each caller's name. A call for a caller never
falls back to the bridge's own credentials.
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
        """The issuer whose tokens callers have to present; None if they need no token."""
        ...

    @property
    def logins(self) -> CallerLogins | None:
        """The logins of callers; None if callers need no login."""
        ...

    def keep_login(self, principal: str, since: float | None) -> None:
        """Use only the login that the principal made at the time `since`; None for no login."""
        ...

    def credentials(self, caller: Caller, known: Credentials) -> Credentials:
        """The credentials for a caller. `known` are the credentials of every call.

        Raises:
            CallerTokenError: there are no credentials for this caller. The message says why.
        """
        ...


@dataclass(frozen=True)
class ByExchange:
    """Calls an agent with a token for which the caller's own token was exchanged (RFC 8693)."""

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
    """Calls an agent with each caller's own login."""

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
    """Calls an agent of this same process, which trusts the bridge to name the caller."""

    headers: Callable[[Caller], Mapping[str, str]] = field(repr=False)
    issuer: None = None
    logins: None = None

    def keep_login(self, principal: str, since: float | None) -> None:
        """It is called with no login."""

    def credentials(self, caller: Caller, known: Credentials) -> Credentials:
        """See `OnBehalf`."""
        return replace(known, headers={**known.headers, **self.headers(caller)})
