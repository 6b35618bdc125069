"""Authentication: verifiers, each of which knows one kind of credential, and `Access`, which asks them.

A verifier reads the headers of a request, and may wait, for instance to fetch keys. It returns the principal,
`WrongCredential`, or None if the headers show no credential of its kind.

`Access` asks all verifiers in turn. Every credential of a request must be valid, since a proxy in front of the bridge
may have judged the request by another credential than the bridge does. Several verifiers may read the same header;
then one of them must accept it.
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
    """How a request carries a secret. The values are the names of the schemes on an agent's card."""

    BEARER = "bearer"
    """A bearer token in the Authorization header."""
    API_KEY = "apiKey"
    """The secret itself, in the header `API_KEY_HEADER`."""


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
"""RFC 9110 section 11.6.1: a 401 names the schemes. API keys have no registered scheme; this one is common."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A secret and its principal. A principal may have several credentials."""

    principal: Principal
    token: str = field(repr=False)
    scheme: Scheme = Scheme.BEARER
    reference: str = field(default="", compare=False)
    """Where the secret was read from, `env:NAME` or `file:PATH`; "" if the bridge made it."""

    def __post_init__(self) -> None:
        if not self.token:
            raise ValueError("an empty secret would let everyone in")


@dataclass(frozen=True, slots=True)
class WrongCredential:
    """A verifier's verdict on an invalid credential of its kind."""

    fault: str = "is not known"
    """The fault, in words for the caller: `is not known`, `has expired`."""


_NOT_KNOWN: Final = WrongCredential()


class Verifier(Protocol):
    """Recognises one kind of credential."""

    @property
    def scheme(self) -> Scheme:
        """How a request carries such a credential."""

    async def verify(self, headers: Mapping[str, str]) -> Principal | WrongCredential | None:
        """The principal of a request, by its headers with names in lower case; None without such a credential.

        A verifier must bound its own waits: the request waits with it.
        """


class SecretVerifier:
    """Verifies secrets that are configured. The time of a check does not depend on the wrong secret."""

    def __init__(self, scheme: Scheme, principals: Mapping[bytes, Principal]) -> None:
        """`principals` are keyed by the digests of their secrets."""
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
    """The verifiers for these credentials, one for each scheme.

    Raises:
        UsageError: two principals have the same secret.
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
    """Decides who may call: the principals of the verifiers, or without verifiers everyone as one principal."""

    def __init__(self, verifiers: Sequence[Verifier], everyone: Principal = LOCAL) -> None:
        """See `update`."""
        self._everyone = everyone
        self.changes = 0
        """The number of calls of `update`. Each may exclude callers who were accepted before."""
        self.update(verifiers)

    def update(
        self, verifiers: Sequence[Verifier], everyone: Principal | None = None, *, why_nobody: str = ""
    ) -> None:
        """Use these verifiers from the next request on.

        `everyone` is the principal of all callers when there are no verifiers; None keeps the last one. `why_nobody`
        replaces the message of a refusal.
        """
        self._verifiers = tuple(verifiers)
        self._everyone = everyone or self._everyone
        self._why_nobody = why_nobody
        asked = {verifier.scheme for verifier in verifiers}
        self.schemes: tuple[Scheme, ...] = tuple(scheme for scheme in Scheme if scheme in asked)
        """The schemes that are accepted, the best one first."""
        self.changes += 1

    @property
    def needs_token(self) -> bool:
        """Whether a request without a credential is refused."""
        return bool(self._verifiers)

    async def principal_of(self, headers: Mapping[str, str]) -> Principal:
        """The principal of a request, by its headers with names in lower case.

        The verdict is that of the verifiers in use when this returns: after a change the request is judged again.

        Raises:
            RefusedError: 401, a credential is missing or invalid.
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
                    raise self.refusal(_NOT_KNOWN.fault)
                found = verdict
                known.add(header)
        for header, verdict in wrong.items():
            if header not in known:
                raise self.refusal(verdict.fault)
        if found is None:
            raise self.refusal("is missing")
        return found

    def refusal(self, fault: str) -> RefusedError:
        """The 401 for a request, with the accepted schemes. `fault` is the fault of its credential."""
        if not self.schemes:
            return RefusedError(401, "Who may call was changed while this was read: ask again")
        needed = " or ".join(_WORDS[scheme] for scheme in self.schemes)
        challenge = ", ".join(_CHALLENGES[scheme] for scheme in self.schemes)
        words = f"{needed[0].upper()}{needed[1:]} is needed and {fault}"
        return RefusedError(401, self._why_nobody or words, {"WWW-Authenticate": challenge})


def _shown(scheme: Scheme, headers: Mapping[str, str]) -> str | None:
    """The secret of a request; None if the header is absent, "" if the header holds no secret of this scheme."""
    shown = headers.get(_HEADERS[scheme])
    if scheme is Scheme.API_KEY:
        return shown.strip() if shown is not None else None
    if not shown:
        return None
    kind, _, token = shown.partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
