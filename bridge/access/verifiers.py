"""How callers are told apart: verifiers, each of which knows one kind of credential, and `Access`, which asks them.

A verifier looks at the headers of a request and may take its time, as one does that has keys to fetch. It gives the
principal that they stand for, `WrongCredential`, or None where they show nothing of its kind. `Access` asks all of
them in turn: every credential that is shown has to be right, since what stands before the bridge may have judged by
another one than the bridge does. Several verifiers may look at the same header, and then it is enough that one of them
knows what is in it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from bridge.access.principals import LOCAL, Principal
from bridge.errors import UsageError
from bridge.http.request_checks import API_KEY_HEADER, RefusedError


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
_HEADERS: Final[Mapping[Scheme, str]] = {
    Scheme.BEARER: "authorization",
    Scheme.API_KEY: API_KEY_HEADER.lower(),
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


@dataclass(frozen=True, slots=True)
class WrongCredential:
    """What a verifier makes of a credential of its kind that stands for nobody."""

    said: str = "is not known"
    """What is wrong with it, for its caller: `is not known`, `has expired`."""


_NOT_KNOWN: Final = WrongCredential()


class Verifier(Protocol):
    """Knows whom one kind of credential stands for."""

    @property
    def scheme(self) -> Scheme:
        """How such a credential is shown."""

    async def verify(self, headers: Mapping[str, str]) -> Principal | WrongCredential | None:
        """Whom a request's headers (their names in lower case) stand for; None when they show nothing of this kind.

        A verifier that waits for something bounds its wait itself: the request waits with it.
        """


class SecretVerifier:
    """Verifies secrets that are known beforehand. Takes the same time for every wrong one."""

    def __init__(self, scheme: Scheme, principals: Mapping[bytes, Principal]) -> None:
        """`principals` has them by the digests of their secrets."""
        self.scheme = scheme
        self._principals = principals

    async def verify(self, headers: Mapping[str, str]) -> Principal | WrongCredential | None:
        """See `Verifier`."""
        secret = _shown(self.scheme, headers)
        if secret is None:
            return None
        given, found = _digest(secret), None
        for digest, principal in self._principals.items():
            if hmac.compare_digest(given, digest):
                found = principal
        return found or _NOT_KNOWN


def verifiers_of(credentials: Iterable[Credential]) -> tuple[Verifier, ...]:
    """What tells callers apart by these.

    Raises:
        UsageError: a secret stands for two principals.
    """
    known: dict[Scheme, dict[bytes, Principal]] = {}
    for one in credentials:
        before = known.setdefault(one.scheme, {}).setdefault(_digest(one.token), one.principal)
        if before != one.principal:
            raise UsageError(
                f"{before.name} and {one.principal.name} have the same secret: nobody could tell them apart"
            )
    return tuple(SecretVerifier(scheme, principals) for scheme, principals in known.items())


class Access:
    """Who may call: whom the verifiers know when there are any, else everyone as one principal."""

    def __init__(self, verifiers: Sequence[Verifier], everyone: Principal = LOCAL) -> None:
        """See `update`."""
        self._everyone = everyone
        self.changes = 0
        """How often it was changed: who was let in before may not be any more."""
        self.update(verifiers)

    def update(
        self, verifiers: Sequence[Verifier], everyone: Principal | None = None, *, why_nobody: str = ""
    ) -> None:
        """Let in whom these know from the next request on. `why_nobody` is told to all others, in place of what they
        lack."""
        self._verifiers = tuple(verifiers)
        self._everyone = everyone or self._everyone
        self._why_nobody = why_nobody
        asked = {verifier.scheme for verifier in verifiers}
        self.schemes: tuple[Scheme, ...] = tuple(scheme for scheme in Scheme if scheme in asked)
        """How a credential may be shown, the best way first."""
        self.changes += 1

    @property
    def needs_token(self) -> bool:
        """Whether a request that shows no credential is refused."""
        return bool(self._verifiers)

    async def principal_of(self, headers: Mapping[str, str]) -> Principal:
        """Whom a request's headers (their names in lower case) stand for, by those who may call when this returns.

        Raises:
            RefusedError: 401, when a credential is needed and this is none that is known.
        """
        while True:
            changes, verifiers = self.changes, self._verifiers
            verdicts = [await verifier.verify(headers) for verifier in verifiers]
            if changes == self.changes:
                return self._judged(verdicts)

    def _judged(self, verdicts: Sequence[Principal | WrongCredential | None]) -> Principal:
        if not verdicts:
            return self._everyone
        found: Principal | None = None
        known, wrong = set[str](), dict[str, WrongCredential]()
        for verifier, verdict in zip(self._verifiers, verdicts, strict=True):
            header = _HEADERS[verifier.scheme]
            if isinstance(verdict, WrongCredential):
                wrong.setdefault(header, verdict)
            elif verdict is not None:
                if found is not None and verdict != found:
                    raise self.refusal(_NOT_KNOWN.said)
                found = verdict
                known.add(header)
        for header, verdict in wrong.items():
            if header not in known:
                raise self.refusal(verdict.said)
        if found is None:
            raise self.refusal("is missing")
        return found

    def refusal(self, said: str) -> RefusedError:
        """The answer to a request that is not let in, with how it would be; `said` is what is wrong with its
        credential."""
        if not self.schemes:
            return RefusedError(401, "Who may call was changed while this was read: ask again")
        needed = " or ".join(_WORDS[scheme] for scheme in self.schemes)
        challenge = ", ".join(_CHALLENGES[scheme] for scheme in self.schemes)
        words = f"{needed[0].upper()}{needed[1:]} is needed and {said}"
        return RefusedError(401, self._why_nobody or words, {"WWW-Authenticate": challenge})


def _shown(scheme: Scheme, headers: Mapping[str, str]) -> str | None:
    """The secret that a request shows; None when it has no such header, "" when that holds no secret."""
    shown = headers.get(_HEADERS[scheme])
    if scheme is Scheme.API_KEY:
        return shown.strip() if shown is not None else None
    if not shown:
        return None
    kind, _, token = shown.partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
