"""Signatures of agents' cards: made, and verified against keys that the reader has pinned.

A signature is a JWS whose payload is a canonical form of the card (`canonical_card.py`). PyJWT makes and verifies it. A
signature only names its key. The key itself and the allowed algorithms come from the reader, never from the signature
(`jku`, `jwk`).

A reader uses only the part of the card that the signature covers.

A signature in the form of the SDKs says so in a protected header of the bridge. Otherwise a strict reader could accept
it for a card from which requirements were removed, since this form does not cover them all. Signatures of other
software do not have this header.

Spec: A2A 1.0 sections 8.4.2 and 8.4.3; RFC 7515; RFC 8725 sections 3.1 and 3.2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import jwt
from jwt.api_jws import PyJWS
from jwt.utils import base64url_decode, base64url_encode

from bridge.a2a.model.objects import AgentCardSignature
from bridge.a2a.wire.canonical_card import (
    CardForm,
    CardProof,
    NotCanonicalError,
    canonical_bytes,
    covered,
    outside,
)
from bridge.identity.callers.json_web_tokens import ALGORITHMS, IssuerKey
from bridge.text.jsonvalues import JsonObject

SIGNATURES_MOST: Final = 16
"""The most signatures of one card: two forms for each key while keys are being replaced, and some of other signers."""

_FORM: Final = "a2a-card-form"
"""The protected header that names the form, unless it is the strict form."""
_TYPE: Final = "JOSE"
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]+")
_JWS: Final = PyJWS(options={"verify_signature": True, "enforce_minimum_key_length": True})

_READINGS: Final = {
    CardForm.STRICT: ((CardForm.STRICT, False), (CardForm.STRICT, True)),
    CardForm.SDK: ((CardForm.STRICT, False), (CardForm.STRICT, True), (CardForm.SDK, False)),
}
"""The readings that a reader of each form tries: a form, and whether it is literal. The reading that covers most is
first."""


class UnverifiedError(Exception):
    """No signature of a card is valid; `str()` says why, in words that follow "the card"."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that signs cards."""

    id: str
    algorithm: str
    private: Any = field(repr=False)
    """The key, for PyJWT."""


def signatures_of(
    card: JsonObject, keys: Sequence[SigningKey], forms: Sequence[CardForm], key_set_url: str | None = None
) -> tuple[AgentCardSignature, ...]:
    """The signatures of a card by each key in each form. If both forms are equal, each key makes one signature.

    Raises:
        NotCanonicalError: the card has no canonical form.
    """
    of_form = {form: canonical_bytes(covered(card, form)) for form in {CardForm.STRICT, *forms}}
    payloads: dict[bytes, CardForm] = {}
    for form in forms:
        is_strict = of_form[form] == of_form[CardForm.STRICT]
        payloads[of_form[form]] = CardForm.STRICT if is_strict else form
    return tuple(
        _signature(payload, key, form, key_set_url) for key in keys for payload, form in payloads.items()
    )


def _signature(
    payload: bytes, key: SigningKey, form: CardForm, key_set_url: str | None
) -> AgentCardSignature:
    headers = {"kid": key.id, "typ": _TYPE}
    headers |= {"jku": key_set_url} if key_set_url else {}
    headers |= {_FORM: form.value} if form is not CardForm.STRICT else {}
    token = _JWS.encode(payload, key.private, key.algorithm, headers, sort_headers=True)
    protected, _, signature = token.split(".")
    return AgentCardSignature(protected=protected, signature=signature)


def signers_in(card: JsonObject) -> Iterator[str]:
    """Yield the signers of a card as the signatures name them. Nothing is verified."""
    listed = card.get("signatures")
    for entry in listed[:SIGNATURES_MOST] if isinstance(listed, list) else ():
        try:
            signature = _signature_from(entry)
        except UnverifiedError:
            continue
        form = f", in the form {signature.form}" if signature.form else ""
        yield f"key {_quoted(signature.key_id)}, {signature.algorithm}{form}"


def verified(card: JsonObject, keys: Sequence[IssuerKey], form: CardForm) -> CardProof:
    """The proof that one of these keys has signed a card, in this form or a form that covers more.

    Raises:
        UnverifiedError: none of the keys has signed the card.
    """
    listed = card.get("signatures")
    if not isinstance(listed, list) or not listed:
        raise UnverifiedError("is not signed")
    if len(listed) > SIGNATURES_MOST:
        raise UnverifiedError(f"has {len(listed)} signatures, more than {SIGNATURES_MOST}")
    try:
        readings = list(_readings(card, form))
    except NotCanonicalError as exc:
        raise UnverifiedError(f"cannot be verified: {exc}") from exc
    faults: list[str] = []
    for entry in listed:
        try:
            signature = _signature_from(entry)
            return _proof(card, signature, _key_for(signature, keys), readings)
        except UnverifiedError as exc:
            faults.append(str(exc))
    raise UnverifiedError(f"has no valid signature: {'; '.join(dict.fromkeys(faults))}")


@dataclass(frozen=True, slots=True)
class _ReadSignature:
    """A signature as it was read. Nothing is verified."""

    protected: str
    signature: str
    algorithm: str
    key_id: str
    form: CardForm | None
    """The form that the signature names; None if it names none."""


def _signature_from(entry: object) -> _ReadSignature:
    protected, signature = (
        (entry.get("protected"), entry.get("signature")) if isinstance(entry, dict) else (None, None)
    )
    if not (isinstance(protected, str) and isinstance(signature, str)):
        raise UnverifiedError("a signature has no `protected` or no `signature`")
    if not (_BASE64URL.fullmatch(protected) and _BASE64URL.fullmatch(signature)):
        raise UnverifiedError("a signature is not in base64url")
    try:
        header = json.loads(base64url_decode(protected))
    except (ValueError, RecursionError) as exc:
        raise UnverifiedError("the header of a signature is not JSON") from exc
    if not isinstance(header, dict):
        raise UnverifiedError("the header of a signature is not an object")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise UnverifiedError(f"the algorithm {_quoted(algorithm)} is not accepted")
    if not isinstance(key_id, str):
        raise UnverifiedError("a signature does not name its key")
    if "crit" in header or "b64" in header:
        raise UnverifiedError(
            f"the signature of key {_quoted(key_id)} requires an extension of JWS that is not supported"
        )
    if (form := header.get(_FORM)) is not None and form not in list(CardForm):
        raise UnverifiedError(
            f"the signature of key {_quoted(key_id)} is in the unknown form {_quoted(form)}"
        )
    return _ReadSignature(protected, signature, algorithm, key_id, None if form is None else CardForm(form))


def _key_for(signature: _ReadSignature, keys: Sequence[IssuerKey]) -> IssuerKey:
    for key in keys:
        if key.key_id == signature.key_id and key.fits(signature.algorithm, signature.key_id):
            return key
    if any(key.key_id == signature.key_id for key in keys):
        raise UnverifiedError(f"key {_quoted(signature.key_id)} does not sign with {signature.algorithm}")
    raise UnverifiedError(f"key {_quoted(signature.key_id)} is not trusted")


@dataclass(frozen=True, slots=True)
class _CardReading:
    """A reading of a card, and its bytes."""

    form: CardForm
    inside: JsonObject
    payload: str


def _readings(card: JsonObject, wanted: CardForm) -> Iterator[_CardReading]:
    for form, literal in _READINGS[wanted]:
        inside = covered(card, form, literal=literal)
        yield _CardReading(form, inside, base64url_encode(canonical_bytes(inside)).decode())


def _proof(
    card: JsonObject, signature: _ReadSignature, key: IssuerKey, readings: Sequence[_CardReading]
) -> CardProof:
    fitting = [reading for reading in readings if signature.form in (None, reading.form)]
    if not fitting:
        raise UnverifiedError(
            f"key {_quoted(signature.key_id)} has signed it only in the form of the SDKs, which `form` does not allow"
        )
    for reading in fitting:
        token = f"{signature.protected}.{reading.payload}.{signature.signature}"
        try:
            _JWS.decode_complete(token, key.public, algorithms=[signature.algorithm])
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        return CardProof(signature.key_id, reading.form, reading.inside, tuple(outside(card, reading.inside)))
    raise UnverifiedError(f"the signature of key {_quoted(signature.key_id)} does not fit the card")


def _quoted(value: object) -> str:
    """A text of a stranger, shortened and on one line."""
    return json.dumps(value, default=str)[:60]
