"""Commands as their rows hold them: sealed, since a command carries the access token of its caller, and proved.

Both are by the keys that all replicas of a bridge have, and for one request to one epoch of one agent. So a row shows
nobody a token, and neither a row that somebody else wrote nor one that was moved is taken for a command.

A release that knows no seals finds the proof right, and answers that it cannot read what is asked. What it asks itself
stands in plain, and is done if it is proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from bridge.replicas.proofs import ProofPurpose, Proofs
from bridge.seal import RecordSeal, SealedRecordError

_SEALED: Final = b"\0"
"""Begins what is sealed. No command in plain begins with it: that is JSON."""


class ForeignCommandError(Exception):
    """No replica with the keys of this one wrote a command for this place. Nothing is done for it."""


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """The row that a command stands in."""

    request: UUID
    holder: int
    """The epoch that is asked."""


class CommandSeals:
    """Commands of one agent to what its rows hold, and back."""

    def __init__(self, keys: Sequence[bytes], agent: str) -> None:
        """The first key seals and proves, and all of them open. `agent` is the name of its tables.

        Raises:
            UsageError: there is no key, or one is too short.
        """
        self._seal = RecordSeal(keys, "command")
        self._proofs = Proofs(keys)
        self._agent = agent.encode()

    def sealed(self, place: CommandPlace, command: bytes) -> tuple[bytes, bytes]:
        """A command for a row, and the proof that a replica wrote it there."""
        data = _SEALED + self._seal.seal(command, b"\0".join(self._said(place)))
        return data, self._proofs.proof(ProofPurpose.COMMAND, *self._said(place), data)

    def opened(self, place: CommandPlace, data: bytes, proof: bytes | None) -> bytes:
        """The command in a row.

        Raises:
            ForeignCommandError: it has no proof for this place, or does not open there.
        """
        if proof is None or not self._proofs.holds(proof, ProofPurpose.COMMAND, *self._said(place), data):
            raise ForeignCommandError
        if not data.startswith(_SEALED):
            return data
        try:
            return self._seal.open(data.removeprefix(_SEALED), b"\0".join(self._said(place)))
        except SealedRecordError as exc:
            raise ForeignCommandError from exc

    def _said(self, place: CommandPlace) -> tuple[bytes, ...]:
        return self._agent, str(place.holder).encode(), place.request.bytes
