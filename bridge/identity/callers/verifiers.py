"""Authentication: each verifier knows one kind of credential, and `Access` asks all verifiers.

A verifier reads the headers of a request, and may wait, for instance to fetch keys. It returns the principal,
`WrongCredential`, or None if the headers show no credential of its kind.

`Access` asks all verifiers in turn. Every credential of a request must be valid, since a proxy in front of the bridge
may have judged the request by another credential than the bridge does. Several verifiers may read the same header;
then one of them must accept it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

import anyio

from bridge.concurrency import Signal
from bridge.errors import UsageError
from bridge.http.request_checks import API_KEY_HEADER, SHOWN_HEADER, RefusedError
from bridge.identity.callers.challenges import REALM, token_challenge
from bridge.identity.callers.issuers import Issuer, IssuerMetadata
from bridge.identity.callers.principals import LOCAL, Principal

logger = logging.getLogger(__name__)

_LOG_SECONDS: Final = 60.0
"""The least time between two log lines about the same fault."""


class Scheme(StrEnum):
    """How a request carries a secret. The values are the names of the schemes on an agent's card."""

    BEARER = "bearer"
    """A bearer token in the Authorization header."""
    API_KEY = "apiKey"
    """The secret itself, in the header `API_KEY_HEADER`."""
    CONNECTION = "mtls"
    """A client certificate of the connection, or the identity that a trusted proxy states."""


_WORDS: Final[Mapping[Scheme, str]] = {
    Scheme.BEARER: "a bearer token",
    Scheme.API_KEY: f"an API key ({API_KEY_HEADER})",
    Scheme.CONNECTION: "a client certificate",
}
_HEADERS: Final[Mapping[Scheme, str]] = {
    Scheme.BEARER: "authorization",
    Scheme.API_KEY: API_KEY_HEADER.lower(),
    Scheme.CONNECTION: SHOWN_HEADER,
}
_KEY_CHALLENGE: Final = f'ApiKey realm="{REALM}", header="{API_KEY_HEADER}"'
"""RFC 9110 section 11.6.1: a 401 names the schemes. API keys have no registered scheme; this scheme is common."""


_CERTIFICATE_CHALLENGE: Final = f'Certificate realm="{REALM}"'
"""The TLS handshake precedes the request, so no challenge can request a certificate; this only says what is missing."""

FORWARDED: Final = "forwarded:"
"""The prefix of an identity from a trusted proxy. An identity from a certificate begins with its own kind."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A secret, or an identity of connections, and its principal. A principal may have several credentials."""

    principal: Principal
    token: str = field(repr=False)
    """Empty if only the hash is known."""
    scheme: Scheme = Scheme.BEARER
    reference: str = field(default="", compare=False)
    """Where the secret was read from, `env:NAME` or `file:PATH`; "" if the bridge made it, or knows only its hash."""
    sha256: str = field(default="", repr=False)
    """The hash, in hexadecimal, of a secret that the bridge does not know."""

    def __post_init__(self) -> None:
        if bool(self.token) is bool(self.sha256):
            raise ValueError("an empty secret would let everyone in")

    @property
    def digest(self) -> bytes:
        """The hash by which secrets are compared."""
        return bytes.fromhex(self.sha256) if self.sha256 else digest_of(self.token)


@dataclass(frozen=True, slots=True)
class WrongCredential:
    """A verifier's verdict on an invalid credential of its kind."""

    fault: str = "is not known"
    """The fault, in words for the caller: `is not known`, `has expired`."""
    is_shown: bool = True
    """Whether the header holds a secret of the scheme; False for another scheme, or no secret."""
    issuer: str = ""
    """The configured name of the issuer that the credential names; "" if it names no known issuer."""


NOT_KNOWN: Final = WrongCredential()
OF_ANOTHER_SCHEME: Final = WrongCredential(is_shown=False)


@dataclass(frozen=True, slots=True)
class Undecided:
    """A verifier's verdict: it cannot judge this credential at the moment."""

    why: str
    retry_seconds: float


Verdict = Principal | WrongCredential | Undecided | None
"""A verifier's verdict on a request; None if the request has no credential of its kind."""


class Verifier(Protocol):
    """Recognises one kind of credential."""

    @property
    def scheme(self) -> Scheme:
        """How a request carries such a credential."""

    @property
    def issuer(self) -> Issuer | None:
        """The issuer of such credentials; None for configured secrets."""

    @property
    def is_declared(self) -> bool:
        """Whether cards declare the scheme. False for a secret of the bridge itself, unless nobody else has a
        secret."""

    @property
    def metadata(self) -> IssuerMetadata | None:
        """The metadata of the issuer; None until it is known."""

    async def verify(self, headers: Mapping[str, str], face: str) -> Verdict:
        """The verdict on a request. The names in `headers` are in lower case, and `face` is the path of the endpoint.

        A verifier must bound its own waits, since the request waits, too.
        """


class SecretVerifier:
    """Verifies configured secrets. The time of a check does not depend on the secret in the request."""

    issuer = metadata = None

    def __init__(
        self, scheme: Scheme, principals: Mapping[bytes, Principal], *, is_declared: bool = True
    ) -> None:
        """`principals` are keyed by the digests of their secrets."""
        self.scheme = scheme
        self.is_declared = is_declared
        self._principals = principals

    async def verify(self, headers: Mapping[str, str], face: str) -> Verdict:  # noqa: ARG002 - a secret is for all
        """See `Verifier`."""
        secret = shown_secret(self.scheme, headers)
        if secret is None:
            return None
        if not secret:
            return OF_ANOTHER_SCHEME
        secret_digest, matching = digest_of(secret), None
        for digest, principal in self._principals.items():
            if hmac.compare_digest(secret_digest, digest):
                matching = principal
        return matching or NOT_KNOWN


class ConnectionVerifier:
    """Verifies the identities of a connection. The server writes the header with them; clients cannot. A certificate
    that belongs to no principal is no credential: the client authority may have issued it for another purpose, and a
    token in the request then identifies the caller."""

    scheme = Scheme.CONNECTION
    issuer = metadata = None

    def __init__(self, principals: Mapping[bytes, Principal], *, is_declared: bool = True) -> None:
        """`principals` are keyed by the digests of their identities."""
        self.is_declared = is_declared
        self._principals = principals

    async def verify(self, headers: Mapping[str, str], face: str) -> Verdict:  # noqa: ARG002 - it is for all faces
        """See `Verifier`."""
        header = headers.get(SHOWN_HEADER)
        if header is None:
            return None
        digests = [digest_of(secret) for secret in json.loads(header)]
        principals = dict.fromkeys(
            self._principals[digest] for digest in digests if digest in self._principals
        )
        if len(principals) > 1:
            return NOT_KNOWN
        return next(iter(principals), None)


def verifiers_of(
    credentials: Iterable[Credential], declared: frozenset[Scheme] = frozenset(Scheme)
) -> tuple[Verifier, ...]:
    """The verifiers for these credentials, one verifier for each scheme. `declared` are the schemes that cards may
    declare.

    Raises:
        UsageError: two principals have the same secret.
    """
    known: dict[Scheme, dict[bytes, Principal]] = {}
    for credential in credentials:
        before = known.setdefault(credential.scheme, {}).setdefault(credential.digest, credential.principal)
        if before != credential.principal:
            raise UsageError(
                f"{before.name} and {credential.principal.name} have the same secret: nobody could tell them apart"
            )
    return tuple(
        ConnectionVerifier(principals, is_declared=scheme in declared)
        if scheme is Scheme.CONNECTION
        else SecretVerifier(scheme, principals, is_declared=scheme in declared)
        for scheme, principals in known.items()
    )


@dataclass(frozen=True, slots=True)
class DeclaredAccess:
    """The ways to authenticate that an agent's card declares."""

    schemes: tuple[Scheme, ...]
    """The schemes of secrets."""
    issuers: tuple[tuple[Issuer, IssuerMetadata | None], ...]
    """The issuers of tokens, each with its metadata, or None until it is known."""
    needs_credential: bool
    """Whether a request without a credential is refused."""


_HeaderVerdict = tuple[str, Verdict]
"""A header, and a verifier's verdict on its value."""


class Access:
    """Decides who may call: the principals of the verifiers or, without verifiers, everyone as one principal."""

    def __init__(
        self,
        verifiers: Sequence[Verifier],
        everyone: Principal = LOCAL,
        for_whom: Callable[[Principal, Mapping[str, str]], Principal] = lambda principal, _: principal,
    ) -> None:
        """See `update`. `for_whom` maps the authenticated principal and the headers of its request to the principal
        that it acts for; it may raise RefusedError."""
        self._everyone = everyone
        self._for_whom = for_whom
        self._logged: dict[WrongCredential, float] = {}
        self.changes = 0
        """The number of calls of `update`. Each call may exclude callers that were accepted before."""
        self.changed = Signal()
        """Signalled after each `update`."""
        self.update(verifiers)

    def update(
        self, verifiers: Sequence[Verifier], everyone: Principal | None = None, *, why_nobody: str = ""
    ) -> None:
        """Use these verifiers from the next request on. Without verifiers, `everyone` is the principal of all callers;
        None keeps the last one. `why_nobody` replaces the message of a refusal."""
        self._verifiers = tuple(verifiers)
        self._everyone = everyone or self._everyone
        self._why_nobody = why_nobody
        # Cards do not declare the secret of the bridge itself. If all callers come through a proxy, cards declare
        # nothing.
        declared = {verifier.scheme for verifier in verifiers if verifier.is_declared}
        shown_schemes = declared or {verifier.scheme for verifier in verifiers}
        self.schemes: tuple[Scheme, ...] = tuple(scheme for scheme in Scheme if scheme in shown_schemes)
        """The schemes that callers may use, the best first."""
        self.issuers: tuple[Issuer, ...] = tuple(
            issuer_verifier.issuer for issuer_verifier in verifiers if issuer_verifier.issuer is not None
        )
        """The issuers whose tokens are accepted."""
        self.changes += 1
        self.changed.notify()

    @property
    def needs_token(self) -> bool:
        """Whether a request without a credential is refused."""
        return bool(self._verifiers)

    @property
    def declared(self) -> DeclaredAccess:
        """The ways to authenticate that the cards of agents declare."""
        trusted = [
            (verifier.issuer, verifier.metadata)
            for verifier in self._verifiers
            if verifier.issuer is not None
        ]
        shown_schemes = {
            verifier.scheme
            for verifier in self._verifiers
            if verifier.issuer is None and verifier.is_declared
        }
        schemes = tuple(scheme for scheme in Scheme if scheme in shown_schemes)
        return DeclaredAccess(schemes, tuple(trusted), self.needs_token)

    @property
    def first_scopes(self) -> tuple[str, ...]:
        """The scopes that a client requests from the issuers first."""
        return tuple(dict.fromkeys(scope for issuer in self.issuers for scope in issuer.first_scopes))

    async def principal_of(
        self, headers: Mapping[str, str], face: str = "", metadata_url: str | None = None
    ) -> Principal:
        """The principal of a request. The names in `headers` are in lower case, `face` is the path of the endpoint, and
        the document at `metadata_url` names the issuers to a refused client.

        If the verifiers change while this waits, the new verifiers judge the request again.

        Raises:
            RefusedError: 401, a credential is missing or invalid; 503, a credential cannot be judged at the moment.
        """
        while True:
            changes = self.changes
            verdicts = await self._verdicts(headers, face)
            if changes == self.changes:
                return self._for_whom(self._judged(verdicts, face, metadata_url), headers)

    async def _verdicts(self, headers: Mapping[str, str], face: str) -> Sequence[_HeaderVerdict]:
        """The verdicts on the credentials of a request. Once a verifier accepts a header, no other verifier sees it:
        the bridge must not send a configured secret to an issuer."""
        judged: list[_HeaderVerdict] = []
        known = set[str]()
        for verifier in self._verifiers:
            header = _HEADERS[verifier.scheme]
            if header not in known:
                verdict = await verifier.verify(headers, face)
                judged.append((header, verdict))
                if isinstance(verdict, Principal):
                    known.add(header)
        return judged

    def _judged(self, verdicts: Sequence[_HeaderVerdict], face: str, metadata_url: str | None) -> Principal:
        if not self._verifiers:
            return self._everyone
        principals_by_header = {
            header: verdict for header, verdict in verdicts if isinstance(verdict, Principal)
        }
        for header in dict.fromkeys(header for header, _ in verdicts):
            if header not in principals_by_header:
                wrong = self._wrong_among([verdict for other, verdict in verdicts if other == header], face)
                if wrong is not None:
                    is_token = wrong.is_shown and header == _HEADERS[Scheme.BEARER]
                    raise self.refusal(wrong.fault, metadata_url, is_token=is_token)
        principals = list(principals_by_header.values())
        if not principals:
            raise self.refusal("is missing", metadata_url)
        if any(other != principals[0] for other in principals):
            raise self.refusal(NOT_KNOWN.fault, metadata_url)
        return principals[0]

    def _wrong_among(self, verdicts: Sequence[Verdict], face: str) -> WrongCredential | None:
        """The fault of a header that no verifier accepts; None if the header has no credential.

        Raises:
            RefusedError: 503, the credential cannot be judged at the moment.
        """
        for verdict in verdicts:
            if isinstance(verdict, Undecided):
                again = str(math.ceil(verdict.retry_seconds))
                raise RefusedError(
                    503, f"The credential cannot be judged: {verdict.why}", {"Retry-After": again}
                )
        wrong = [verdict for verdict in verdicts if isinstance(verdict, WrongCredential)]
        if not wrong:
            return None
        chosen = max(wrong, key=lambda fault: (bool(fault.issuer), fault.fault != NOT_KNOWN.fault))
        self._log(chosen, face)
        return chosen

    def _log(self, wrong: WrongCredential, face: str) -> None:
        """Log why a credential is refused, without the credential. The same fault is logged only now and then: anyone
        can send wrong credentials, and must not fill the log."""
        now = anyio.current_time()
        if wrong.fault != NOT_KNOWN.fault and now - self._logged.get(wrong, -_LOG_SECONDS) >= _LOG_SECONDS:
            self._logged[wrong] = now
            of = f" of issuers.{wrong.issuer}" if wrong.issuer else ""
            logger.info("a token%s was refused at %s: it %s", of, face or "/", wrong.fault)

    def refusal(self, fault: str, metadata_url: str | None = None, *, is_token: bool = False) -> RefusedError:
        """The 401 for a request, with the accepted schemes. `fault` is the fault of its credential; `is_token` says
        whether the credential is a token."""
        if not self.schemes:
            return RefusedError(401, "The access rules changed while this request was read: send it again")
        needed = " or ".join(_WORDS[scheme] for scheme in self.schemes)
        challenges = {
            Scheme.BEARER: token_challenge(
                error="invalid_token" if is_token else None,
                scopes=self.first_scopes,
                metadata_url=metadata_url if self.issuers else None,
            ),
            Scheme.API_KEY: _KEY_CHALLENGE,
            Scheme.CONNECTION: _CERTIFICATE_CHALLENGE,
        }
        challenge = ", ".join(challenges[scheme] for scheme in self.schemes)
        words = f"{needed[0].upper()}{needed[1:]} is needed and {fault}"
        return RefusedError(401, self._why_nobody or words, {"WWW-Authenticate": challenge})


def shown_secret(scheme: Scheme, headers: Mapping[str, str]) -> str | None:
    """The secret in a request; None if the header is absent, "" if the header holds no secret of this scheme."""
    value = headers.get(_HEADERS[scheme])
    if scheme is Scheme.API_KEY:
        return value.strip() if value is not None else None
    if not value:
        return None
    kind, _, token = value.partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def digest_of(secret: str) -> bytes:
    """The hash by which a secret is compared and remembered."""
    return hashlib.sha256(secret.encode()).digest()
