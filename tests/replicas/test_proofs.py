"""Proofs that a holder of the bridge's keys made a statement."""

from __future__ import annotations

from bridge.replicas.proofs import ProofPurpose, Proofs

OLD, NEW = b"o" * 32, b"n" * 32


def test_a_proof_holds_for_its_statement_and_purpose_with_any_key_of_the_ring() -> None:
    proof = Proofs([OLD]).proof(ProofPurpose.HOP, b"a", b"bc")
    assert Proofs([NEW, OLD]).holds(proof, ProofPurpose.HOP, b"a", b"bc")
    assert not Proofs([NEW]).holds(proof, ProofPurpose.HOP, b"a", b"bc")
    assert not Proofs([OLD]).holds(proof, ProofPurpose.ADDRESS, b"a", b"bc")
    assert not Proofs([OLD]).holds(proof, ProofPurpose.HOP, b"ab", b"c")


def test_two_rings_have_a_proof_in_common_if_they_have_a_key_in_common() -> None:
    said = (ProofPurpose.PLAN, b"a plan")
    old, both, new = (Proofs(keys).proofs(*said) for keys in ([OLD], [NEW, OLD], [NEW]))
    assert (len(both), both & old == old, both & new == new, old & new) == (2, True, True, frozenset())
    assert old.isdisjoint(Proofs([OLD]).proofs(ProofPurpose.PLAN, b"another"))
