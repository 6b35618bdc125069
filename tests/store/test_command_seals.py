"""The row of a command: nobody can read the command, and it is valid only in its own row."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from bridge.a2a.layers.replica_commands import command_from
from bridge.a2a.model.errors import UNAVAILABLE, A2AError
from bridge.replicas.proofs import ProofPurpose, Proofs
from bridge.store.postgres.command_seals import CommandPlace, CommandSeals, ForeignCommandError

OLD, NEW = b"o" * 40, b"n" * 40
PLACE = CommandPlace(uuid4(), 7)
COMMAND = b'{"kind": "cancel", "token": "of-ann"}'


def seals(*keys: bytes, agent: str = "mcp_a2a_desk") -> CommandSeals:
    return CommandSeals(keys, agent)


def test_a_command_opens_with_any_key_of_a_ring_and_shows_nothing() -> None:
    data, proof = seals(OLD, NEW).sealed(PLACE, COMMAND)
    assert seals(NEW, OLD).opened(PLACE, data, proof) == COMMAND
    assert b"of-ann" not in data


@pytest.mark.parametrize("place", [replace(PLACE, request=uuid4()), replace(PLACE, holder=8)])
def test_a_command_does_not_open_in_another_row(place: CommandPlace) -> None:
    data, proof = seals(OLD).sealed(PLACE, COMMAND)
    with pytest.raises(ForeignCommandError):
        seals(OLD).opened(place, data, proof)
    said = (b"mcp_a2a_desk", str(place.holder).encode(), place.request.bytes, data)
    with pytest.raises(ForeignCommandError):
        seals(OLD).opened(place, data, Proofs([OLD]).proof(ProofPurpose.COMMAND, *said))


@pytest.mark.parametrize("reader", [seals(NEW), seals(OLD, agent="mcp_a2a_other")])
def test_a_command_does_not_open_with_other_keys_or_for_another_agent(reader: CommandSeals) -> None:
    data, proof = seals(OLD).sealed(PLACE, COMMAND)
    with pytest.raises(ForeignCommandError):
        reader.opened(PLACE, data, proof)


def test_a_proved_command_of_a_release_without_seals_is_executed() -> None:
    said = (b"mcp_a2a_desk", b"7", PLACE.request.bytes, COMMAND)
    proof = Proofs([OLD]).proof(ProofPurpose.COMMAND, *said)
    assert seals(OLD).opened(PLACE, COMMAND, proof) == COMMAND
    with pytest.raises(ForeignCommandError):
        seals(OLD).opened(PLACE, COMMAND, None)


def test_a_release_without_seals_accepts_the_proof_and_cannot_read_the_command() -> None:
    data, proof = seals(OLD).sealed(PLACE, COMMAND)
    said = (b"mcp_a2a_desk", b"7", PLACE.request.bytes, data)
    assert Proofs([OLD]).holds(proof, ProofPurpose.COMMAND, *said)
    with pytest.raises(A2AError, match="cannot read what is asked") as caught:
        command_from(data)
    assert caught.value.kind is UNAVAILABLE
