"""The cards of an agent with their signatures, which are kept, so that no card is signed twice.

A signature is kept by what it signs, and not by who asked: whoever is shown the same card gets the same signatures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bridge.a2a.model.objects import AgentCard, AgentCardSignature
from bridge.bounded_map import BoundedMap
from bridge.identity.callers.verifiers import DeclaredAccess
from bridge.text.jsonvalues import JsonObject


@dataclass(frozen=True, slots=True)
class CardSigner:
    """What signs cards."""

    mark: tuple[str, ...]
    """The keys and forms, in words. Signers with the same mark sign alike."""
    public_keys: Sequence[JsonObject]
    """The public keys as JWKs."""
    signatures: Callable[[JsonObject], tuple[AgentCardSignature, ...]]
    """The signatures of a card; none if it cannot be signed, which is logged."""


class CardSigning:
    """What signs the cards of a bridge now."""

    def __init__(self) -> None:
        self.signer: CardSigner | None = None
        """The signer of the configuration that is served; None signs no card."""

    @property
    def mark(self) -> tuple[str, ...]:
        """The mark of the signer; empty without one."""
        return self.signer.mark if self.signer else ()

    def public_keys(self) -> Sequence[JsonObject]:
        """The public keys as JWKs."""
        return self.signer.public_keys if self.signer else ()


@dataclass(frozen=True, slots=True)
class ShownCard:
    """A card as it is sent, and what it was built from."""

    own: AgentCard
    declared: DeclaredAccess
    mark: tuple[str, ...]
    card: AgentCard
    text: bytes
    etag: str


class SignedCards:
    """The cards of one agent."""

    def __init__(self, signing: CardSigning, most: int) -> None:
        """`most` cards keep their signatures. An agent has one card for each address and, where callers are told apart,
        for each set of skills that someone may use."""
        self._signing = signing
        self._kept = BoundedMap[tuple[tuple[str, ...], bytes], tuple[AgentCardSignature, ...]](most)

    @property
    def mark(self) -> tuple[str, ...]:
        """The mark of what signs them now; empty if nothing does."""
        return self._signing.mark

    def signed(self, card: AgentCard) -> AgentCard:
        """The card with its signatures; the card itself if nothing signs it."""
        signer = self._signing.signer
        if signer is None:
            return card
        key = signer.mark, hashlib.sha256(card.to_json()).digest()
        signatures = self._kept.get(key)
        if signatures is None:
            signatures = signer.signatures(card.to_object())
        self._kept[key] = signatures
        return card.changed(signatures=signatures or None)

    def shown_card(self, own: AgentCard, declared: DeclaredAccess, card: AgentCard) -> ShownCard:
        """The card as it is sent, signed, with what it was built from.

        Replicas and restarts give one card different signatures. So the tag of a signed card is a weak one, which
        stands for the card and its signer.
        """
        signed, mark = self.signed(card), self.mark
        tagged = b"\n".join([card.to_json(), *map(str.encode, mark)])
        etag = f'{"W/" if mark else ""}"{hashlib.sha256(tagged).hexdigest()[:32]}"'
        return ShownCard(own, declared, mark, signed, signed.to_json(), etag)
