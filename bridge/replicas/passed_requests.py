"""Requests that one replica passes on to another: how the other one knows them. Pure; time is an argument.

The header of a hop names what it covers, when it was made, and a nonce, and proves that by a key that only the replicas
have. It is valid for a short while, and once. It says nothing about who calls: the replica that takes the hop asks the
caller's own headers for that.

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
"""The header of a request that was passed on. In an answer it says that the hop was not accepted."""

REFUSED_HOP: Final = "refused"

SHOWN_BEFORE: Final = "mcp-a2a-shown"
"""The header of a hop for what the client's connection has shown. It counts only with the proof of a hop."""

VALID_SECONDS: Final = 30.0
"""How long a passed request is valid, and how far its time may lie ahead."""

MAX_NONCES: Final = 200_000
"""The most nonces that are remembered, enough for 3,000 requests a second. Further requests are refused. Only replicas
can add a nonce."""

_NONCE_BYTES: Final = 16
_HEADER: Final = re.compile(
    r"(?P<epoch>\d{1,10})\.(?P<at>\d{1,15})\.(?P<nonce>[0-9a-f]{32})\.(?P<body>[0-9a-f]{64})\.(?P<proof>[0-9a-f]{64})"
)


class NotPassedError(Exception):
    """A hop is not accepted. `str()` says why, for the log."""


@dataclass(frozen=True, slots=True)
class PassedRequest:
    """What a hop covers of its request, besides the body."""

    verb: str
    path: str
    """The path of the face, whatever stands before it."""
    session: str
    """The id of the session, as the client has it."""
    shown: str = ""
    """What the client's connection has shown, as `SHOWN_HEADER` has it; only the first replica knows."""


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """A hop that a replica made just now."""

    epoch: int
    """The replica that it is meant for."""
    body_digest: bytes

    def fits(self, body: bytes) -> bool:
        """Whether this is the body that was passed on."""
        return sha256(body).digest() == self.body_digest


class PassedHeaders:
    """Makes the headers of hops, and accepts those of others."""

    def __init__(self, proofs: Proofs, max_nonces: int = MAX_NONCES) -> None:
        self._proofs = proofs
        self._max_nonces = max_nonces
        self._seen: dict[str, int] = {}
        """The nonces, and when their hops were accepted, the oldest first."""

    def header(self, epoch: int, request: PassedRequest, body: bytes, now_seconds: float) -> str:
        """The header of a hop to this epoch."""
        at_ms, nonce = round(now_seconds * 1000), secrets.token_hex(_NONCE_BYTES)
        digest = sha256(body).digest()
        proof = self._proofs.proof(ProofPurpose.HOP, *_said(epoch, at_ms, nonce, digest, request))
        return f"{epoch}.{at_ms}.{nonce}.{digest.hex()}.{proof.hex()}"

    def accept(self, header: str, request: PassedRequest, now_seconds: float) -> AcceptedRequest:
        """Accept a hop, once.

        Raises:
            NotPassedError: no replica made it, or not for this request; or it is too old, or came before.
        """
        found = _HEADER.fullmatch(header)
        if found is None:
            raise NotPassedError("it is malformed")
        epoch, at_ms, nonce = int(found["epoch"]), int(found["at"]), found["nonce"]
        digest = bytes.fromhex(found["body"])
        said = _said(epoch, at_ms, nonce, digest, request)
        if not self._proofs.holds(bytes.fromhex(found["proof"]), ProofPurpose.HOP, *said):
            raise NotPassedError("it was not made with our keys for this request")
        now_ms = round(now_seconds * 1000)
        if abs(now_ms - at_ms) > VALID_SECONDS * 1000:
            raise NotPassedError(f"it was made {abs(now_ms - at_ms) / 1000:.0f} s from now")
        self._remember(nonce, now_ms)
        return AcceptedRequest(epoch, digest)

    def _remember(self, nonce: str, now_ms: int) -> None:
        """Note a nonce for as long as a hop with it may be valid."""
        while self._seen and now_ms - next(iter(self._seen.values())) > 2 * VALID_SECONDS * 1000:
            del self._seen[next(iter(self._seen))]
        if nonce in self._seen:
            raise NotPassedError("it came before")
        if len(self._seen) >= self._max_nonces:
            raise NotPassedError("too many hops come at once")
        self._seen[nonce] = now_ms


def _said(epoch: int, at_ms: int, nonce: str, digest: bytes, request: PassedRequest) -> tuple[bytes, ...]:
    parts = (str(epoch), str(at_ms), nonce, request.verb, request.path, request.session)
    shown = (request.shown.encode(),) if request.shown else ()
    return (*(part.encode() for part in parts), digest, *shown)
