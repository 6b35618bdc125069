"""Marks requests that a replica passes on to another replica, and accepts such requests. Pure; time is an argument.

The header of a passed request has the receiver's epoch, the time, a nonce and a digest of the body, and a proof of them
and of the request with a key that only the replicas have. It is valid once, for a short time. It does not identify the
caller: the receiving replica authenticates the caller by the caller's own headers.

    Mcp-A2a-Hop: EPOCH.MILLISECONDS.NONCE.BODY.PROOF
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from bridge.replicas.proofs import ProofPurpose, Proofs

PASSED_HEADER: Final = "mcp-a2a-hop"
"""The header of a passed request. In an answer it says that the passed request was not accepted."""

REFUSED_REQUEST: Final = "refused"

SHOWN_BEFORE: Final = "mcp-a2a-shown"
"""The header of a passed request with the identities of the client's certificate. It counts only if the proof holds."""

VALID_SECONDS: Final = 30.0
"""How long a passed request is valid, and how far in the future its time may be."""

MAX_NONCES: Final = 200_000
"""The most nonces that are remembered, enough for 3,000 requests a second. Further requests are refused. Only replicas
can add a nonce."""

_NONCE_BYTES: Final = 16
_HEADER: Final = re.compile(
    r"(?P<epoch>\d{1,10})\.(?P<at>\d{1,15})\.(?P<nonce>[0-9a-f]{32})\.(?P<body>[0-9a-f]{64})\.(?P<proof>[0-9a-f]{64})"
)


class NotPassedError(Exception):
    """A passed request is not accepted. `str()` says why, for the log."""


@dataclass(frozen=True, slots=True)
class PassedRequest:
    """The parts of a passed request that its proof covers, besides the body."""

    verb: str
    path: str
    """The path of the endpoint, without a prefix."""
    session: str
    """The id of the session, as the client sent it."""
    shown: str = ""
    """The identities of the client's certificate, as in `SHOWN_HEADER`; only the first replica knows them."""


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """A passed request whose header was accepted."""

    epoch: int
    """The epoch of the receiving replica."""
    body_digest: bytes

    def fits(self, body: bytes) -> bool:
        """Whether `body` is the body that the proof covers."""
        return sha256(body).digest() == self.body_digest


class PassedHeaders:
    """Makes the headers of passed requests, and accepts those of other replicas."""

    def __init__(self, proofs: Proofs, max_nonces: int = MAX_NONCES) -> None:
        self._proofs = proofs
        self._max_nonces = max_nonces
        self._seen: dict[str, int] = {}
        """The nonces, each with the time at which it was accepted, oldest first."""

    def header(self, epoch: int, request: PassedRequest, body: bytes, now_seconds: float) -> str:
        """The header for passing a request to the replica with this epoch."""
        at_ms, nonce = round(now_seconds * 1000), secrets.token_hex(_NONCE_BYTES)
        digest = sha256(body).digest()
        proof = self._proofs.proof(ProofPurpose.HOP, *_statement(epoch, at_ms, nonce, digest, request))
        return f"{epoch}.{at_ms}.{nonce}.{digest.hex()}.{proof.hex()}"

    def accept(self, header: str, request: PassedRequest, now_seconds: float) -> AcceptedRequest:
        """Accept the header of a passed request, once.

        Raises:
            NotPassedError: no replica made the header for this request, or it is too old or was used before.
        """
        fields = _HEADER.fullmatch(header)
        if fields is None:
            raise NotPassedError("it is malformed")
        epoch, at_ms, nonce = int(fields["epoch"]), int(fields["at"]), fields["nonce"]
        digest = bytes.fromhex(fields["body"])
        statement = _statement(epoch, at_ms, nonce, digest, request)
        if not self._proofs.holds(bytes.fromhex(fields["proof"]), ProofPurpose.HOP, *statement):
            raise NotPassedError("it was not made with our keys for this request")
        now_ms = round(now_seconds * 1000)
        if abs(now_ms - at_ms) > VALID_SECONDS * 1000:
            raise NotPassedError(f"it was made {abs(now_ms - at_ms) / 1000:.0f} s from now")
        self._remember(nonce, now_ms)
        return AcceptedRequest(epoch, digest)

    def _remember(self, nonce: str, now_ms: int) -> None:
        """Remember a nonce as long as a request with it may be valid."""
        while self._seen and now_ms - next(iter(self._seen.values())) > 2 * VALID_SECONDS * 1000:
            del self._seen[next(iter(self._seen))]
        if nonce in self._seen:
            raise NotPassedError("it was used before")
        if len(self._seen) >= self._max_nonces:
            raise NotPassedError("too many passed requests arrive at once")
        self._seen[nonce] = now_ms


def _statement(
    epoch: int, at_ms: int, nonce: str, digest: bytes, request: PassedRequest
) -> tuple[bytes, ...]:
    parts = (str(epoch), str(at_ms), nonce, request.verb, request.path, request.session)
    display = (request.shown.encode(),) if request.shown else ()
    return (*(part.encode() for part in parts), digest, *display)
