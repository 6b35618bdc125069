"""How a caller is told from others: the secrets that are known, and whom each stands for."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from bridge.access.principals import LOCAL, Principal
from bridge.errors import UsageError
from bridge.web import API_KEY_HEADER, RefusedError


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
