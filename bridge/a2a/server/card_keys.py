"""The keys that sign the cards of a bridge.

A key is a private key in PEM. Its id is the thumbprint of its public key (RFC 7638), so keys need no names and have
distinct ids. The type of the key decides the algorithm: P-256 signs with ES256, Ed25519 with EdDSA, RSA with RS256.

Spec: A2A 1.0 section 8.4.2; RFC 7517; RFC 7518; RFC 7638; RFC 8037.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from bridge.a2a.model.objects import AgentCardSignature
from bridge.a2a.push.signatures import with_thumbprint
from bridge.a2a.server.signed_cards import CardSigner
from bridge.a2a.wire.canonical_card import CardForm, NotCanonicalError
from bridge.a2a.wire.card_signatures import SigningKey, signatures_of
from bridge.errors import UsageError
from bridge.text.jsonvalues import JsonObject

logger = logging.getLogger(__name__)

CardAlgorithm = Literal["ES256", "EdDSA", "RS256"]
ALGORITHMS: Final = get_args(CardAlgorithm)
"""The algorithms for signing cards. The first is the default, since all readers know it."""

_RSA_BITS: Final = 2048
"""RFC 7518 section 3.3."""
_NEW_RSA_BITS: Final = 3072

_MAKERS: Final[Mapping[str, Callable[[], Any]]] = {
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
    "RS256": lambda: rsa.generate_private_key(public_exponent=65537, key_size=_NEW_RSA_BITS),
}


@dataclass(frozen=True, slots=True)
class CardKey:
    """A private key that signs cards, and its public key as a JWK."""

    signing: SigningKey
    public: JsonObject


def new_card_key(algorithm: CardAlgorithm) -> str:
    """A new private key in PEM."""
    private = _MAKERS[algorithm]()
    text: bytes = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text.decode()


def card_key(pem: str) -> CardKey:
    """The key in a PEM.

    Raises:
        UsageError: the PEM holds no key that can sign cards.
    """
    try:
        private = load_pem_private_key(pem.encode(), None)
    except TypeError as exc:
        raise UsageError("the key has a passphrase: the bridge reads keys without a passphrase only") from exc
    except ValueError as exc:
        raise UsageError("it holds no private key in PEM") from exc
    jwk: dict[str, Any]
    match private:
        case ec.EllipticCurvePrivateKey() if isinstance(private.curve, ec.SECP256R1):
            algorithm, jwk = "ES256", ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
        case ed25519.Ed25519PrivateKey():
            algorithm, jwk = "EdDSA", OKPAlgorithm.to_jwk(private.public_key(), as_dict=True)
        case rsa.RSAPrivateKey() if private.key_size >= _RSA_BITS:
            algorithm, jwk = "RS256", RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)
        case _:
            raise UsageError(
                f"it cannot sign cards: use P-256, Ed25519, or RSA with at least {_RSA_BITS} bits"
            )
    named = with_thumbprint({name: jwk[name] for name in ("crv", "e", "kty", "n", "x", "y") if name in jwk})
    public: JsonObject = {**named, "use": "sig", "alg": algorithm}
    return CardKey(SigningKey(str(named["kid"]), algorithm, private), public)


def card_signer(keys: Sequence[CardKey], forms: Sequence[CardForm], key_set_url: str | None) -> CardSigner:
    """The signer with each of these keys, in each of these forms. Readers find the keys at `key_set_url`."""

    def signatures(card: JsonObject) -> tuple[AgentCardSignature, ...]:
        try:
            return signatures_of(card, [key.signing for key in keys], forms, key_set_url)
        except NotCanonicalError as exc:
            logger.warning("the card of %s is not signed: %s", card.get("name"), exc)
            return ()

    mark = (*(key.signing.id for key in keys), *forms, key_set_url or "")
    return CardSigner(mark, tuple(key.public for key in keys), signatures)
