"""Signatures of cards between the bridge and @a2a-js/sdk; those of a2a-sdk are in tests/a2a/wire."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from bridge.a2a.wire.canonical_card import CardForm, canonical_bytes, covered
from bridge.a2a.wire.card_signatures import UnverifiedError, verified
from tests.peers.node import js_card_signatures_command, require_peers
from tests.support.signed_cards import CARD, key, pem, signed, trusted

pytestmark = [pytest.mark.outside, pytest.mark.proves("a2a-8.4.2-format", "a2a-8.4.3-verified")]


async def told_by_js(card: dict[str, Any]) -> Any:
    """What the JavaScript SDK says of a card."""
    require_peers()
    said = {
        "card": card,
        "trusted": {"keys": [key().public]},
        "pem": pem(number=1),
        "kid": key(number=1).signing.id,
    }
    done = await anyio.run_process(js_card_signatures_command(), input=json.dumps(said).encode())
    return json.loads(done.stdout)


async def test_a2a_js_verifies_our_cards_and_we_verify_its_in_its_own_form() -> None:
    card = signed({**CARD, "url": "https://agent.example.com", "protocolVersion": "0.3.0"}, key())
    told = await told_by_js(card)
    assert told["canonical"].encode() == canonical_bytes(covered(card, CardForm.SDK))
    assert told["received"] is True
    # A card that it has parsed loses its security schemes (a2a-js issue 663), and with them every signature.
    assert told["parsed"] is False
    proof = verified(told["signed"], trusted(key(number=1)), CardForm.SDK)
    assert (proof.form, "securityRequirements" in proof.outside) == (CardForm.SDK, True)
    with pytest.raises(UnverifiedError, match="does not fit the card"):
        verified(told["signed"], trusted(key(number=1)), CardForm.STRICT)


async def test_a2a_js_does_not_verify_the_strict_form_of_a_card_with_something_empty() -> None:
    told = await told_by_js(signed(CARD, key(), forms=(CardForm.STRICT,)))
    assert told["received"] is False
