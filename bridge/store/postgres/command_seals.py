"""Seals and proves commands for their rows, because a command carries the access token of its caller.

Seal and proof use the keys that all replicas of a bridge share, and are bound to one request to one epoch of one agent.
So a row reveals no token, and a row that a stranger wrote or moved is no command.

An earlier release that knows no seals accepts the proof, and replies that it cannot read the command. Its own commands
are not sealed, and are executed if their proof holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from bridge.replicas.proofs import ProofPurpose, Proofs
from bridge.seal import RecordSeal, SealedRecordError

_SEALED: Final = b"\0"
"""The first byte of a sealed command. An unsealed command is JSON, which never begins with it."""


class ForeignCommandError(Exception):
    """No replica with our keys wrote this command for its row, so the command is not executed."""


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """The row of a command."""

    request: UUID
    holder: int
    """The epoch that must execute the command."""


class CommandSeals:
    """Converts commands of an agent to the content of their rows, and back."""

    def __init__(self, keys: Sequence[bytes], agent: str) -> None:
        """The first key seals and proves, and every key opens and verifies. `agent` is the name of the agent's tables.

        Raises:
            UsageError: there is no key, or a key is too short.
        """
        self._seal = RecordSeal(keys, "command")
        self._proofs = Proofs(keys)
        self._agent = agent.encode()

    def sealed(self, place: CommandPlace, command: bytes) -> tuple[bytes, bytes]:
        """A command for a row, and the proof that a replica wrote it there."""
        data = _SEALED + self._seal.seal(command, b"\0".join(self._statement(place)))
        return data, self._proofs.proof(ProofPurpose.COMMAND, *self._statement(place), data)

    def opened(self, place: CommandPlace, data: bytes, proof: bytes | None) -> bytes:
        """The command in a row.

        Raises:
            ForeignCommandError: it has no valid proof for this row, or cannot be opened.
        """
        if proof is None or not self._proofs.holds(
            proof, ProofPurpose.COMMAND, *self._statement(place), data
        ):
            raise ForeignCommandError
        if not data.startswith(_SEALED):
            return data
        try:
            return self._seal.open(data.removeprefix(_SEALED), b"\0".join(self._statement(place)))
        except SealedRecordError as exc:
            raise ForeignCommandError from exc

    def _statement(self, place: CommandPlace) -> tuple[bytes, ...]:
        return self._agent, str(place.holder).encode(), place.request.bytes
