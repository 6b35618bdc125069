"""Proofs that a holder of the bridge's keys made a statement, for statements that replicas exchange over other systems.

A proof is made with the first key of a ring, and holds for every replica that has this key anywhere in its ring. Each
purpose has its own key, derived from the secret by HKDF, so that a proof for one purpose is invalid for another. A
proof reveals nothing about the statement.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from enum import Enum
from hashlib import sha256

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


class ProofPurpose(Enum):
    """The statement that a proof is about."""

    HOP = "hop"
    """A replica has passed on this request."""
    ADDRESS = "replica address"
    """A replica has this address."""
    COMMAND = "command"
    """A replica sends this command to another replica."""
    PLAN = "plan"
    """A replica serves this plan. Only a holder of the key can compare such digests."""
    LISTING = "listing of a tool server"
    """A replica has stored this listing of this tool server."""
    AUDIT = "audit"
    """This plan was in force, or this principal called. Holders of the key compare such digests in an audit."""


class Proofs:
    """Makes and checks proofs."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """`keys` is not empty. `Seal` checks the length of the keys."""
        self._keys = {purpose: [_derived(key, purpose) for key in keys] for purpose in ProofPurpose}

    def proof(self, purpose: ProofPurpose, *statement: bytes) -> bytes:
        """The proof of a statement, given in parts."""
        return _mac(self._keys[purpose][0], statement)

    def proofs(self, purpose: ProofPurpose, *statement: bytes) -> frozenset[bytes]:
        """A proof with each key. The proofs of a statement by two replicas overlap if their rings have a common key."""
        return frozenset(_mac(key, statement) for key in self._keys[purpose])

    def holds(self, proof: bytes, purpose: ProofPurpose, *statement: bytes) -> bool:
        """Whether a proof of this statement was made with one of the keys."""
        return any(hmac.compare_digest(proof, _mac(key, statement)) for key in self._keys[purpose])


def _mac(key: bytes, statement: Iterable[bytes]) -> bytes:
    """The MAC of the parts. Each part goes in with its length, so that no part can pass as the end of another."""
    whole = b"".join(len(part).to_bytes(8, "big") + part for part in statement)
    return hmac.digest(key, whole, sha256)


def _derived(key: bytes, purpose: ProofPurpose) -> bytes:
    info = f"mcp-a2a proof: {purpose.value}".encode()
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(key)
