"""Caches the signed cards of an agent, so that no card is signed twice.

A signature is cached by the content of its card, not by the caller: callers that get the same card get the same
signatures.
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
    """Signs cards."""

    mark: tuple[str, ...]
    """The keys and forms as text. Signers with the same mark make the same kind of signatures."""
    public_keys: Sequence[JsonObject]
    """The public keys as JWKs."""
    signatures: Callable[[JsonObject], tuple[AgentCardSignature, ...]]
    """The signatures of a card; none if it cannot be signed, which is logged."""


class CardSigning:
    """Holds the present signer of a bridge's cards."""

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
    """A card as it is sent, and the values that it was built from."""

    own: AgentCard
    declared: DeclaredAccess
    mark: tuple[str, ...]
    card: AgentCard
    text: bytes
    etag: str


class SignedCards:
    """The cards of one agent."""

    def __init__(self, signing: CardSigning, most: int) -> None:
        """`most` is the number of cached cards. An agent has one card for each address and, if callers are
        distinguished, for each set of skills that a caller may use."""
        self._signing = signing
        self._kept = BoundedMap[tuple[tuple[str, ...], bytes], tuple[AgentCardSignature, ...]](most)

    @property
    def mark(self) -> tuple[str, ...]:
        """The mark of the present signer; empty without a signer."""
        return self._signing.mark

    def signed(self, card: AgentCard) -> AgentCard:
        """The card with its signatures; the card itself without a signer."""
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
        """The signed card as it is sent, with the values that it was built from.

        Replicas and restarts give one card different signatures. So the ETag of a signed card is weak, and identifies
        the card and its signer.
        """
        signed, mark = self.signed(card), self.mark
        tagged = b"\n".join([card.to_json(), *map(str.encode, mark)])
        etag = f'{"W/" if mark else ""}"{hashlib.sha256(tagged).hexdigest()[:32]}"'
        return ShownCard(own, declared, mark, signed, signed.to_json(), etag)
