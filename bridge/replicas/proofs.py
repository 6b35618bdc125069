"""Proofs that something was said by a holder of the bridge's keys: what replicas tell each other through others' hands.

A proof is made with the first key of a ring, and holds for every replica that has this key anywhere in its ring. Each
purpose has its own key, derived from the secret by HKDF, so that a proof for one purpose is none for another. A proof
shows nothing of what was said.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from enum import Enum
from hashlib import sha256

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


class ProofPurpose(Enum):
    """What is proved."""

    HOP = "hop"
    """That a request was passed on by a replica."""
    ADDRESS = "replica address"
    """That a replica has an address."""
    COMMAND = "command"
    """That a replica asks something of another one."""
    PLAN = "plan"
    """Which plan a replica serves: a digest that only a holder of the key can compare."""
    LISTING = "listing of a tool server"
    """Of which tool server a listing is, and that a replica has kept it."""
    AUDIT = "audit"
    """Which plan was in force, and which principal called: digests in an audit, for holders of the key to compare."""


class Proofs:
    """Makes and checks proofs."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """`keys` is not empty. They are judged where handles are sealed with them."""
        self._keys = {purpose: [_derived(key, purpose) for key in keys] for purpose in ProofPurpose}

    def proof(self, purpose: ProofPurpose, *said: bytes) -> bytes:
        """The proof that all of this was said."""
        return _mac(self._keys[purpose][0], said)

    def proofs(self, purpose: ProofPurpose, *said: bytes) -> frozenset[bytes]:
        """A proof by each key. Two replicas that said the same have one in common if their rings have a key in
        common."""
        return frozenset(_mac(key, said) for key in self._keys[purpose])

    def holds(self, proof: bytes, purpose: ProofPurpose, *said: bytes) -> bool:
        """Whether a holder of one of the keys said all of this."""
        return any(hmac.compare_digest(proof, _mac(key, said)) for key in self._keys[purpose])


def _mac(key: bytes, said: Iterable[bytes]) -> bytes:
    """Of the parts with their lengths, so that no part can pass as the end of another."""
    whole = b"".join(len(part).to_bytes(8, "big") + part for part in said)
    return hmac.digest(key, whole, sha256)


def _derived(key: bytes, purpose: ProofPurpose) -> bytes:
    info = f"mcp-a2a proof: {purpose.value}".encode()
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(key)
