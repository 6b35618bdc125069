"""Signatures of cards: what both forms prove, what both SDKs make of them, and forgeries."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.utils.signing import (
    InvalidSignaturesError,
    create_agent_card_signer,
    create_signature_verifier,
)
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from google.protobuf.json_format import MessageToDict
from hypothesis import example, given
from hypothesis import strategies as st
from jwt.api_jws import PyJWS

from bridge.a2a.server.card_keys import ALGORITHMS, CardAlgorithm, card_key
from bridge.a2a.wire.canonical_card import CardForm, CardProof, canonical_bytes, covered
from bridge.a2a.wire.card_signatures import UnverifiedError, verified
from bridge.errors import UsageError
from bridge.identity.callers.json_web_tokens import keys_in
from tests.support.signed_cards import BOTH, CARD, key, pem, signed, trusted

Json = dict[str, Any]

pytestmark = pytest.mark.proves("a2a-8.4.2-format", "a2a-8.4.3-verified")

FULL: Json = {
    **CARD,
    "description": "What it does",
    "capabilities": {"streaming": True},
    "securitySchemes": {"bearer": CARD["securitySchemes"]["bearer"]},
    "securityRequirements": [{"schemes": {"bearer": {"list": ["read"]}}}],
    "skills": CARD["skills"][1:],
}
"""A card without anything that is empty."""


def header_of(signature: Json) -> Json:
    """The protected header of a signature."""
    text = signature["protected"]
    header: Json = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return header


def sdk_verifies(card: Json, *algorithms: str) -> None:
    """Let a2a-sdk read and verify a card, with the keys of these tests."""
    known = {key(name).signing.id: key(name).signing.private.public_key() for name in algorithms}
    verifier = create_signature_verifier(lambda kid, _: known[kid or ""], list(algorithms))
    verifier(parse_agent_card(copy.deepcopy(card)))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("form", BOTH)
def test_a_signed_card_is_verified_in_each_form_and_by_a2a_sdk(
    algorithm: CardAlgorithm, form: CardForm
) -> None:
    card = signed(CARD, key(algorithm))
    assert [header_of(one) for one in card["signatures"]] == [
        {"alg": algorithm, "kid": key(algorithm).signing.id, "typ": "JOSE"},
        {"alg": algorithm, "kid": key(algorithm).signing.id, "typ": "JOSE", "a2a-card-form": "sdk"},
    ]
    inside = covered(CARD, CardForm.STRICT)
    proof = verified(card, trusted(key(algorithm)), form)
    assert proof == CardProof(key(algorithm).signing.id, CardForm.STRICT, inside)
    sdk_verifies(card, algorithm)


def test_a_key_signs_once_if_both_forms_are_equal() -> None:
    card = signed(FULL, key(), key("EdDSA"))
    assert [header_of(one)["alg"] for one in card["signatures"]] == ["ES256", "EdDSA"]
    assert not any("a2a-card-form" in header_of(one) for one in card["signatures"])
    assert verified(card, trusted(key("EdDSA")), CardForm.STRICT).form is CardForm.STRICT
    sdk_verifies(card, "ES256")


def test_a2a_sdk_does_not_verify_the_strict_form_of_a_card_with_something_empty() -> None:
    with pytest.raises(InvalidSignaturesError):
        sdk_verifies(signed(CARD, key(), forms=(CardForm.STRICT,)), "ES256")


def by_sdk(card: Json) -> Json:
    """A card that a2a-sdk has signed."""
    signer = create_agent_card_signer(
        key().signing.private,
        {"kid": key().signing.id, "alg": "ES256", "jku": "https://x", "typ": "JOSE"},
        {"note": "unprotected"},
    )
    made = MessageToDict(signer(parse_agent_card(copy.deepcopy(card))))
    return {**copy.deepcopy(card), "signatures": made["signatures"]}


def test_a_card_signed_by_a2a_sdk_is_verified_and_its_unsigned_fields_are_named() -> None:
    card = by_sdk({**CARD, "provider": {"url": "https://x", "organization": "X"}, "url": "https://evil"})
    proof = verified(card, trusted(key()), CardForm.SDK)
    assert (proof.form, proof.key_id) == (CardForm.SDK, key().signing.id)
    assert proof.outside[0] == "url"
    assert {"securityRequirements", "securitySchemes.cert"} < {*proof.outside}
    assert proof.inside["securityRequirements"] == [{"schemes": {"oauth": {"list": ["read"]}}}]
    with pytest.raises(UnverifiedError, match="does not fit the card"):
        verified(card, trusted(key()), CardForm.STRICT)


def test_a_card_without_empty_fields_signed_by_a2a_sdk_is_verified_strictly() -> None:
    assert verified(by_sdk(FULL), trusted(key()), CardForm.STRICT).outside == ()


def test_a_signer_that_keeps_unknown_fields_is_verified_and_they_are_inside() -> None:
    card = {**FULL, "x-region": "eu"}
    text = canonical_bytes(card)
    protected, _, signature = (
        PyJWS()
        .encode(text, key().signing.private, "ES256", {"kid": key().signing.id, "typ": "JOSE"})
        .split(".")
    )
    proof = verified(
        {**card, "signatures": [{"protected": protected, "signature": signature}]},
        trusted(key()),
        CardForm.STRICT,
    )
    assert (proof.inside, proof.outside) == (card, ())


def test_one_valid_signature_among_others_is_enough() -> None:
    card = signed(CARD, key(), key("EdDSA"))
    card["signatures"].insert(0, {"protected": "e30", "signature": "AA"})
    card["signatures"].insert(0, "none")
    assert verified(card, trusted(key("EdDSA")), CardForm.STRICT).key_id == key("EdDSA").signing.id


def resigned(card: Json, algorithm: str, secret: Any, **header: Any) -> Json:
    """A card with one signature, made with this key and these headers."""
    text = canonical_bytes(covered(card, CardForm.STRICT))
    said = {"kid": key().signing.id, "typ": "JOSE", **header}
    protected, _, signature = PyJWS().encode(text, secret, algorithm, said).split(".")
    return {**card, "signatures": [{"protected": protected, "signature": signature}]}


def said(card: Json, header: Json) -> Json:
    """The card with another protected header on its first signature."""
    card["signatures"][0]["protected"] = (
        base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")
    )
    return card


def without_requirement(card: Json) -> Json:
    del card["securityRequirements"]
    return card


def with_other_url(card: Json) -> Json:
    card["supportedInterfaces"][0]["url"] = "https://evil.example.com"
    return card


def with_other_scheme(card: Json) -> Json:
    card["securitySchemes"]["bearer"] = {"apiKeySecurityScheme": {"location": "query", "name": "k"}}
    return card


def with_another_skill(card: Json) -> Json:
    card["skills"].append({"id": "x", "name": "x", "description": "x", "tags": ["x"]})
    return card


def of_two_cards(card: Json) -> Json:
    """The head of one card, with the skills of another that is signed as well."""
    other = signed({**CARD, "name": "Other", "skills": CARD["skills"][:1]}, key())
    return {**card, "skills": other["skills"], "signatures": [*card["signatures"], *other["signatures"]]}


def symmetric(card: Json) -> Json:
    """Signed with the public key, taken for the secret of HS256."""
    public = key().signing.private.public_key()
    secret = public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return resigned(card, "HS256", secret)


def own_key(card: Json) -> Json:
    """Signed with the forger's key under the right name, which leads to the forger's key set."""
    forger = ec.generate_private_key(ec.SECP256R1())
    public = jwt.algorithms.ECAlgorithm.to_jwk(forger.public_key(), as_dict=True)
    return resigned(card, "ES256", forger, jku="https://evil.example.com/jwks.json", jwk=public)


OUR_KID = key().signing.id

FORGERIES: dict[str, tuple[Callable[[Json], Json], str]] = {
    "stripped requirement": (without_requirement, "does not fit the card"),
    "changed url": (with_other_url, "does not fit the card"),
    "swapped scheme": (with_other_scheme, "does not fit the card"),
    "added skill": (with_another_skill, "does not fit the card"),
    "two cards mixed": (of_two_cards, "does not fit the card"),
    "no signatures": (lambda card: {**card, "signatures": []}, "is not signed"),
    "signatures left out": (lambda card: {**card, "signatures": None}, "is not signed"),
    "own key behind jku and jwk": (own_key, "does not fit the card"),
    "unknown kid": (lambda card: signed(card, key(number=1)), "is not trusted"),
    "public key as secret": (symmetric, 'the algorithm "HS256" is not accepted'),
    "alg none": (
        lambda card: said(card, {"alg": "none", "kid": OUR_KID}),
        'the algorithm "none" is not accepted',
    ),
    "no kid": (
        lambda card: resigned(card, "ES256", key().signing.private, kid=""),
        "is not trusted",
    ),
    "another algorithm of the key": (
        lambda card: said(card, {"alg": "RS256", "kid": OUR_KID}),
        "does not sign with RS256",
    ),
    "crit": (
        lambda card: said(card, {"alg": "ES256", "kid": OUR_KID, "crit": ["exp"], "exp": 1}),
        "requires an extension of JWS that is not supported",
    ),
    "unencoded payload": (
        lambda card: said(card, {"alg": "ES256", "kid": OUR_KID, "b64": False}),
        "requires an extension of JWS that is not supported",
    ),
    "another form said": (
        lambda card: said(card, {"alg": "ES256", "kid": OUR_KID, "a2a-card-form": "any"}),
        "unknown form",
    ),
    "too many signatures": (lambda card: {**card, "signatures": card["signatures"] * 17}, "more than 16"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_card_is_refused_strictly(name: str) -> None:
    forge, words = FORGERIES[name]
    card = forge(signed(CARD, key()))
    with pytest.raises(UnverifiedError, match=words):
        verified(card, trusted(key(), key("EdDSA")), CardForm.STRICT)


def test_a_card_stripped_to_the_form_of_the_sdks_is_not_verified_strictly() -> None:
    card = {**FULL, "securityRequirements": [{"schemes": {"bearer": {"list": []}}}]}
    stripped = without_requirement(signed(card, key()))
    sdk_verifies(stripped, "ES256")
    with pytest.raises(UnverifiedError, match="only in the form of the SDKs"):
        verified({**stripped, "signatures": stripped["signatures"][1:]}, trusted(key()), CardForm.STRICT)
    with pytest.raises(UnverifiedError):
        verified(stripped, trusted(key()), CardForm.STRICT)
    proof = verified(stripped, trusted(key()), CardForm.SDK)
    assert (proof.form, proof.outside) == (CardForm.SDK, ())


def test_keys_that_cannot_sign_cards_are_refused_with_the_reason() -> None:
    def text(private: Any, password: Any = None) -> str:
        pem_bytes: bytes = private.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, password or NoEncryption()
        )
        return pem_bytes.decode()

    with pytest.raises(UsageError, match="no private key in PEM"):
        card_key("secret")
    with pytest.raises(UsageError, match="P-256, Ed25519, or RSA with at least 2048 bits"):
        card_key(text(ec.generate_private_key(ec.SECP384R1())))
    public = key().signing.private.public_key()
    with pytest.raises(UsageError, match="no private key in PEM"):
        card_key(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())


def test_the_public_half_has_the_thumbprint_as_its_id_and_nothing_private() -> None:
    assert card_key(pem()).public == key().public
    assert {name: sorted(key(name).public) for name in ALGORITHMS} == {
        "ES256": ["alg", "crv", "kid", "kty", "use", "x", "y"],
        "EdDSA": ["alg", "crv", "kid", "kty", "use", "x"],
        "RS256": ["alg", "e", "kid", "kty", "n", "use"],
    }
    [read] = keys_in({"keys": [dict(key().public)]}, 1)
    assert read.fits("ES256", key().signing.id)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from([*CARD, "alg", "kid", "crit", "typ", "a2a-card-form", "jwk", "x5c", "url"])


def protected(header: Any) -> str:
    """A protected header of any content."""
    return base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")


@given(
    st.dictionaries(NAMES, ANY, max_size=4),
    st.lists(
        ANY
        | st.fixed_dictionaries({"protected": ANY, "signature": ANY})
        | st.fixed_dictionaries(
            {
                "protected": st.dictionaries(NAMES, ANY, max_size=3).map(
                    lambda said: protected({"alg": "ES256", "kid": key().signing.id, **said})
                ),
                "signature": st.text("AZaz09-_", max_size=90),
            }
        ),
        max_size=3,
    )
    | ANY,
)
@example({"name": 10**400}, signed(CARD, key())["signatures"])
@example({"name": float("inf")}, signed(CARD, key())["signatures"])
@example({}, [{"protected": protected({"alg": "ES256", "kid": "", "a2a-card-form": []}), "signature": "A"}])
@example({}, [{"protected": protected({"alg": [], "kid": []}), "signature": "A"}])
@example({}, [{"protected": "A", "signature": "A"}])
def test_any_invalid_signature_is_refused_with_an_error(changes: Json, signatures: Any) -> None:
    for form in BOTH:
        with pytest.raises(UnverifiedError):
            verified({**CARD, **changes, "signatures": signatures}, trusted(key()), form)
