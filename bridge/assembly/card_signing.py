"""What signs the cards of a plan, and what verifies the cards of its agents."""

from __future__ import annotations

from bridge.a2a.server.signed_cards import CardSigner
from bridge.a2a.wire.canonical_card import CardForm
from bridge.assembly.plan import Plan
from bridge.assembly.routes import KEYS_PATH
from bridge.errors import UsageError


def card_signer_of(plan: Plan) -> CardSigner | None:
    """What signs the cards of a plan; None if nothing does.

    Raises:
        UsageError: a key cannot sign cards, or stands there twice.
    """
    if plan.signing is None:
        return None
    # Few bridges sign, and what signs takes a tenth of a start to import.
    from bridge.a2a.server.card_keys import card_key, card_signer

    keys = {}
    for number, pem in enumerate(plan.signing.keys):
        try:
            key = card_key(pem)
        except UsageError as exc:
            raise UsageError(f"bridge.card_keys[{number}]: {exc}") from exc
        if key.signing.id in keys:
            raise UsageError(f"bridge.card_keys[{number}]: the key is there twice")
        keys[key.signing.id] = key
    root = plan.place.public_url
    forms = [CardForm(form) for form in plan.signing.forms]
    return card_signer(list(keys.values()), forms, f"{root}{KEYS_PATH}" if root else None)
