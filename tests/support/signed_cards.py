"""Cards, keys and signatures of these tests."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from bridge.a2a.server.card_keys import CardAlgorithm, CardKey, card_key, new_card_key
from bridge.a2a.wire.canonical_card import CardForm
from bridge.a2a.wire.card_signatures import signatures_of
from bridge.identity.callers.json_web_tokens import IssuerKey, keys_in

BOTH = (CardForm.STRICT, CardForm.SDK)

CARD: dict[str, Any] = {
    "name": "Ünïcode \u20ac \U0001f600",
    "description": "",
    "supportedInterfaces": [
        {"url": "https://agent.example.com/a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "version": "1",
    "capabilities": {
        "streaming": False,
        "extendedAgentCard": True,
        "extensions": [
            {
                "uri": "urn:x",
                "required": False,
                "params": {"none": None, "empty": "", "list": [], "deep": {"a": {}}, "n": 1.0, "big": 2**60},
            }
        ],
    },
    "securitySchemes": {
        "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
        "cert": {"mtlsSecurityScheme": {}},
        "oauth": {
            "oauth2SecurityScheme": {
                "flows": {
                    "clientCredentials": {"tokenUrl": "https://id.example.com/token", "scopes": {"read": ""}}
                }
            }
        },
    },
    "securityRequirements": [
        {"schemes": {"bearer": {"list": []}}},
        {"schemes": {"oauth": {"list": ["read"]}}},
    ],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [
        {"id": "echo", "name": "echo", "description": "", "tags": [], "examples": []},
        {"id": "add", "name": "add", "description": "Adds", "tags": ["math"], "inputModes": ["text/plain"]},
    ],
}
"""A card with all that the forms treat differently."""


def key(algorithm: CardAlgorithm = "ES256", number: int = 0) -> CardKey:
    """A key of this algorithm; each number is another one."""
    return _made(algorithm, number)[1]


def pem(algorithm: CardAlgorithm = "ES256", number: int = 0) -> str:
    """The same in PEM."""
    return _made(algorithm, number)[0]


@cache
def _made(algorithm: CardAlgorithm, number: int) -> tuple[str, CardKey]:
    text = new_card_key(algorithm)
    return text, card_key(text)


def trusted(*keys: CardKey) -> tuple[IssuerKey, ...]:
    """What a reader has pinned of these keys."""
    return keys_in({"keys": [dict(one.public) for one in keys]}, 100)


def signed(card: dict[str, Any], *keys: CardKey, forms: tuple[CardForm, ...] = BOTH) -> dict[str, Any]:
    """A copy of the card, signed by these keys."""
    made = signatures_of(card, [one.signing for one in keys], forms)
    copy: dict[str, Any] = json.loads(json.dumps(card))
    return {**copy, "signatures": [one.to_object() for one in made]}
