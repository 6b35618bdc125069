"""JSON Web Tokens as credentials: which key a token needs, whether it is valid, and which principal it names.

An ID token is no credential: it only tells one client who is in a browser.

PyJWT reads tokens and keys. This module chooses the key by the type that the algorithm needs, so that a public key
never serves as the secret of a symmetric algorithm. The configuration lists the accepted algorithms; a token cannot
choose another.

Spec: RFC 7519; RFC 8725 sections 3.1, 3.8 to 3.11; RFC 9068 sections 2.2 and 4; RFC 7517; OpenID Connect Core 1.0
section 3.1.3.7.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import jwt

from bridge.identity.callers.issuers import Issuer
from bridge.identity.callers.principals import ISSUER_MARK, OperatorRole, Principal

if TYPE_CHECKING:
    from jwt.types import Options

SUBJECT_CHARACTERS: Final = 255
"""The most characters of the claim that names a principal (OpenID Connect Core section 2: `sub`)."""

_KEY_TYPES: Final[Mapping[str, tuple[str, str | None]]] = {
    **{f"{family}{bits}": ("RSA", None) for family in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""The type of key that each algorithm needs, and its curve (RFC 7518 section 3.1, RFC 8037)."""

ALGORITHMS: Final = frozenset(_KEY_TYPES)
"""The signature algorithms that can be verified. All are asymmetric."""

_TYPES: Final = frozenset({"at+jwt", "application/at+jwt", "jwt"})
"""The types (`typ`) of access tokens. RFC 9068 requires one of the first two; many issuers write `JWT` or nothing."""

_ID_TYPES: Final = frozenset({"jwt"})
"""The types (`typ`) of ID tokens. OpenID Connect defines none, so most issuers write `JWT` or nothing."""

LATEST: Final = 2**53
"""The latest accepted time in a claim: a float represents every smaller whole number exactly."""

_REQUIRED: Final = ["exp", "iss", "aud", "sub"]
_OPTIONS: Final[Options] = {"require": _REQUIRED, "enforce_minimum_key_length": True}

_FAULTS: Final[Sequence[tuple[type[Exception], str]]] = (
    (jwt.ExpiredSignatureError, "has expired"),
    (jwt.ImmatureSignatureError, "is not valid yet"),
    (jwt.InvalidAudienceError, "is for another audience"),
    (jwt.InvalidIssuerError, "is of another issuer"),
    (jwt.InvalidSignatureError, "is not signed with a key of its issuer"),
    (jwt.MissingRequiredClaimError, "lacks a claim that it needs"),
)
"""The faults of a token, in words for its caller. The first class that fits counts."""


class WrongTokenError(Exception):
    """A token is not valid. `str()` says why, in words for the caller: `has expired`."""


class UnknownSignerError(WrongTokenError):
    """None of the known keys has signed a token. A newer key of the issuer may have."""


@dataclass(frozen=True, slots=True)
class UnverifiedToken:
    """A token that was read but not verified."""

    text: str = field(repr=False)
    issuer: str
    algorithm: str
    key_id: str | None
    type: str | None


def token_in(text: str) -> UnverifiedToken | None:
    """Read a token; None if it is not a signed JWT that names its issuer."""
    if text.count(".") != 2:
        return None
    try:
        read = jwt.decode_complete(text, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        return None
    header, issuer = read["header"], read["payload"].get("iss")
    algorithm, key_id, kind = header.get("alg"), header.get("kid"), header.get("typ")
    if not isinstance(issuer, str) or not isinstance(algorithm, str):
        return None
    return UnverifiedToken(
        text,
        issuer,
        algorithm,
        key_id if isinstance(key_id, str) else None,
        kind if isinstance(kind, str) else None,
    )


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A public key of an issuer."""

    key_id: str | None
    kind: str
    curve: str | None
    algorithm: str | None
    """The only algorithm that the key is for; None if its issuer names none."""
    public: Any
    """The key as PyJWT reads it."""

    def fits(self, algorithm: str, key_id: str | None) -> bool:
        """Whether this key may have made a signature with this algorithm. `key_id` is the id that the signature names,
        if any. A key need not have an id (RFC 7517 section 4.5)."""
        kind, curve = _KEY_TYPES[algorithm]
        is_of_type = self.kind == kind and curve in (None, self.curve)
        is_named_so = None in (key_id, self.key_id) or key_id == self.key_id
        return is_of_type and is_named_so and self.algorithm in (None, algorithm)


def keys_in(document: object, most: int) -> tuple[IssuerKey, ...]:
    """The public signature keys in a JSON Web Key Set. Keys of other kinds are ignored.

    Raises:
        ValueError: the document is no key set, or has no such key, or more than `most` keys.
    """
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it is not a JSON Web Key Set")  # noqa: TRY004 - it is what was fetched that is wrong
    if len(listed) > most:
        raise ValueError(f"it has {len(listed)} keys, and at most {most} are allowed")
    keys = tuple(key for member in listed if (key := _key_in(member)) is not None)
    if not keys:
        raise ValueError("it has no public key for signatures")
    return keys


def _key_in(member: object) -> IssuerKey | None:
    if not isinstance(member, dict) or member.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    operations = member.get("key_ops")
    if member.get("use", "sig") != "sig" or "d" in member:
        return None
    if isinstance(operations, list) and "verify" not in operations:
        return None
    try:
        public = jwt.PyJWK(member, algorithm=_usual_algorithm(member)).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    return IssuerKey(
        _text(member.get("kid")), member["kty"], _text(member.get("crv")), _text(member.get("alg")), public
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _usual_algorithm(member: Mapping[str, Any]) -> str | None:
    """An algorithm for PyJWT to read the key with; any algorithm of the key's type works."""
    kinds = {(kind, curve if kind != "RSA" else None): name for name, (kind, curve) in _KEY_TYPES.items()}
    return kinds.get((member["kty"], None if member["kty"] == "RSA" else member.get("crv")))


def verified_claims(
    token: UnverifiedToken, keys: Sequence[IssuerKey], issuer: Issuer, face: str, leeway_seconds: float
) -> Mapping[str, Any]:
    """The claims of a token that is valid for the endpoint at the path `face`.

    Raises:
        UnknownSignerError: none of the keys has signed it.
        WrongTokenError: it is not valid for the endpoint.
    """
    require_acceptable(token, issuer)
    return _signed_claims(token, keys, issuer, sorted(issuer.audiences.get(face, ())), leeway_seconds)


def verified_identity(
    token: UnverifiedToken,
    keys: Sequence[IssuerKey],
    issuer: Issuer,
    client_id: str,
    nonce: str,
    leeway_seconds: float,
) -> Mapping[str, Any]:
    """The claims of an ID token that answers the client's request with this nonce.

    Raises:
        UnknownSignerError: none of the keys has signed it.
        WrongTokenError: the token is not valid, or answers another request.
    """
    require_identity(token, issuer)
    claims = _signed_claims(token, keys, issuer, [client_id], leeway_seconds)
    presenter = claims.get("azp", client_id if claims["aud"] in (client_id, [client_id]) else None)
    if presenter != client_id:
        raise WrongTokenError("is for another client")
    token_nonce = claims.get("nonce")
    if not isinstance(token_nonce, str) or not secrets.compare_digest(token_nonce.encode(), nonce.encode()):
        raise WrongTokenError("answers another request")
    return claims


def _signed_claims(
    token: UnverifiedToken,
    keys: Sequence[IssuerKey],
    issuer: Issuer,
    audience: Sequence[str],
    leeway_seconds: float,
) -> Mapping[str, Any]:
    """The claims of a token that the issuer has signed for one of these audiences.

    Raises:
        UnknownSignerError: none of the keys has signed it.
        WrongTokenError: it is not valid.
    """
    fault: Exception = jwt.InvalidSignatureError()
    for key in keys:
        if not key.fits(token.algorithm, token.key_id):
            continue
        try:
            return jwt.decode(
                token.text,
                key.public,
                algorithms=[token.algorithm],
                issuer=issuer.place.issuer,
                audience=audience or [""],
                leeway=leeway_seconds,
                options=_OPTIONS,
            )
        except jwt.InvalidSignatureError as exc:
            fault = exc
        except (jwt.PyJWTError, ValueError, TypeError) as exc:
            fault = exc
            break
    kind = UnknownSignerError if isinstance(fault, jwt.InvalidSignatureError) else WrongTokenError
    raise kind(_words_for(fault)) from fault


def require_acceptable(token: UnverifiedToken, issuer: Issuer) -> None:
    """Require an accepted algorithm and the type of an access token, before a key is fetched.

    Raises:
        WrongTokenError: the algorithm is not accepted, or the token is no access token.
    """
    _require_kind(token, issuer, _TYPES, "is no access token")


def require_identity(token: UnverifiedToken, issuer: Issuer) -> None:
    """Require an accepted algorithm and the type of an ID token.

    Raises:
        WrongTokenError: the algorithm is not accepted, or the token is no ID token.
    """
    _require_kind(token, issuer, _ID_TYPES, "is no ID token")


def _require_kind(token: UnverifiedToken, issuer: Issuer, types: frozenset[str], words: str) -> None:
    if token.algorithm not in issuer.algorithms:
        raise WrongTokenError("is not signed with an accepted algorithm")
    if token.type is not None and token.type.lower() not in types:
        raise WrongTokenError(words)


def _words_for(fault: Exception) -> str:
    return next((words for kind, words in _FAULTS if isinstance(fault, kind)), "is not valid")


def principal_in(claims: Mapping[str, Any], issuer: Issuer, leeway_seconds: float) -> Principal:
    """The principal that verified claims name, with the rights that their scopes give.

    Raises:
        WrongTokenError: the claim that names the principal is missing, or is no usable name.
    """
    subject = claims.get(issuer.principal_claim)
    if not isinstance(subject, str) or not 0 < len(subject) <= SUBJECT_CHARACTERS:
        raise WrongTokenError("does not name its principal")
    if not subject.isprintable():
        raise WrongTokenError("names its principal with unprintable characters")
    held = _scopes_in(claims)
    return Principal(
        f"{issuer.name}{ISSUER_MARK}{subject}",
        skills=_opened_by(held, issuer) if issuer.scopes else ("*",),
        scopes=issuer.scopes,
        expires_at=min(int(claims["exp"]), LATEST) + leeway_seconds if "exp" in claims else None,
        operator=_role_of(held, issuer),
    )


def _scopes_in(claims: Mapping[str, Any]) -> frozenset[str]:
    """The scopes of a token: `scope` (RFC 9068 section 2.2.3), or `scp`, which some issuers write instead."""
    scope = claims.get("scope", claims.get("scp", ""))
    words = scope.split(" ") if isinstance(scope, str) else scope
    return (
        frozenset(word for word in words if isinstance(word, str)) if isinstance(words, list) else frozenset()
    )


def _role_of(held: frozenset[str], issuer: Issuer) -> OperatorRole | None:
    """The role that scopes give: the greater role if they give both."""
    roles = (role for role in reversed(OperatorRole) if held & issuer.operators.get(role, frozenset()))
    return next(roles, None)


def _opened_by(scopes: frozenset[str], issuer: Issuer) -> tuple[str, ...]:
    return tuple(dict.fromkeys(glob for scope, globs in issuer.scopes if scope in scopes for glob in globs))
