"""How a receiver verifies that a notification comes from this bridge: signatures, tokens, and their public keys.

Notifications are signed as Standard Webhooks: `v1a` by the bridge's own Ed25519 keys, and `v1` by a secret that the
operator shares with a receiver. A receiver that wants a Bearer token gets a JWT, signed with ES256. The private keys
are derived from the keys of the bridge, so all replicas have the same private keys. They sign nothing else.

Spec: Standard Webhooks 1.0.0 (Signature scheme); RFC 7515, 7517, 7519, 7638, 8037.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bridge.seal import derived_key
from bridge.text.jsonvalues import JsonObject

TOKEN_SECONDS: Final = 300
"""How long a JWT is valid: the difference that receivers allow between `webhook-timestamp` and their clock."""

_SHARED_PREFIX: Final = "whsec_"
_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def shared_secret(text: str) -> bytes:
    """The bytes of a secret that is shared with a receiver: base64 after `whsec_`, or else the text itself."""
    text = text.strip()
    if text.startswith(_SHARED_PREFIX):
        return base64.b64decode(text.removeprefix(_SHARED_PREFIX))
    return text.encode()


@dataclass(frozen=True)
class PushSigner:
    """Signs notifications."""

    issuer: str
    """The issuer in tokens."""
    keys: tuple[bytes, ...] = field(repr=False)
    """The keys of the bridge. The first signs tokens, and all sign notifications: receivers may know older keys."""
    shared: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """The secrets of receivers, by `host:port`."""

    def signatures(self, webhook_id: str, seconds: int, body: bytes, place: str) -> str:
        """The header `webhook-signature` for an attempt at this time, to a receiver at `host:port`."""
        signed = f"{webhook_id}.{seconds}.".encode() + body
        values = [f"v1a,{_base64(_ed25519(key).sign(signed))}" for key in self.keys]
        if (secret := self.shared.get(place)) is not None:
            values.append(f"v1,{_base64(hmac.digest(secret, signed, 'sha256'))}")
        return " ".join(values)

    def token(self, webhook_id: str, seconds: int, body: bytes, url: str, task_id: str) -> str:
        """A JWT for one attempt, with its issuer, its audience, and the hash of its body."""
        claims = {
            "iss": self.issuer,
            "aud": url,
            "iat": seconds,
            "exp": seconds + TOKEN_SECONDS,
            "jti": f"{webhook_id}.{seconds}",
            "taskId": task_id,
            "request_body_sha256": hashlib.sha256(body).hexdigest(),
        }
        key = _p256(self.keys[0])
        return jwt.encode(
            claims, key, algorithm="ES256", headers={"kid": with_thumbprint(_ec_jwk(key))["kid"]}
        )

    def public_keys(self) -> Sequence[JsonObject]:
        """The public keys as JWKs. Those of the newest key come first."""
        return [
            {**with_thumbprint(jwk), "use": "sig", "alg": algorithm}
            for key in self.keys
            for jwk, algorithm in (
                (_okp_jwk(_ed25519(key)), "EdDSA"),
                (_ec_jwk(_p256(key)), "ES256"),
            )
        ]


def _ed25519(key: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(derived_key(key, "push Ed25519"))


def _p256(key: bytes) -> ec.EllipticCurvePrivateKey:
    wide = int.from_bytes(derived_key(key, "push P-256", 48))
    return ec.derive_private_key(wide % (_P256_ORDER - 1) + 1, ec.SECP256R1())


def _okp_jwk(key: Ed25519PrivateKey) -> JsonObject:
    return {"crv": "Ed25519", "kty": "OKP", "x": _base64url(key.public_key().public_bytes_raw())}


def _ec_jwk(key: ec.EllipticCurvePrivateKey) -> JsonObject:
    point = key.public_key().public_numbers()
    return {
        "crv": "P-256",
        "kty": "EC",
        "x": _base64url(point.x.to_bytes(32)),
        "y": _base64url(point.y.to_bytes(32)),
    }


def with_thumbprint(jwk: JsonObject) -> JsonObject:
    """A key with its thumbprint (RFC 7638) as its id. `jwk` has exactly the members that a thumbprint covers."""
    text = json.dumps(jwk, sort_keys=True, separators=(",", ":")).encode()
    return {**jwk, "kid": _base64url(hashlib.sha256(text).digest())}


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _base64url(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
