"""An issuer of tokens for tests: its metadata and its keys over HTTP, and tokens of every kind, also wrong ones."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from starlette.types import Receive, Scope, Send

from bridge.identity.callers.issuers import Issuer, IssuerPlace
from tests.support.limits import PROFILE

LIMITS: Final = PROFILE.issuers
OPENID: Final = "/.well-known/openid-configuration"
OAUTH: Final = "/.well-known/oauth-authorization-server"


@cache
def ec_key(name: str) -> ec.EllipticCurvePrivateKey:
    """A key on P-256, always the same for one name."""
    return ec.generate_private_key(ec.SECP256R1())


@cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    """An RSA key, always the same for one name."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def jwk(name: str, **more: Any) -> dict[str, Any]:
    """The public key of a name on P-256, as a key set has it."""
    public = jwt.algorithms.ECAlgorithm.to_jwk(ec_key(name).public_key(), as_dict=True)
    return {**public, "kid": name, **more}


def rsa_jwk(name: str, **more: Any) -> dict[str, Any]:
    """The public RSA key of a name, as a key set has it."""
    public = jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key(name).public_key(), as_dict=True)
    return {**public, "kid": name, **more}


@dataclass
class TokenIssuer:
    """An issuer at a URL. Its documents may be changed at any time."""

    url: str
    keys: list[dict[str, Any]] = field(default_factory=lambda: [jwk("one")])
    metadata: dict[str, Any] = field(default_factory=dict)
    """More than the issuer and the place of its keys."""
    answers: dict[str, Any] = field(default_factory=dict)
    """ASGI applications that answer at a path in place of the issuer."""
    asked: list[str] = field(default_factory=list)
    """The paths that were asked for."""

    @property
    def documents(self) -> Mapping[str, Any]:
        """The documents by path."""
        metadata = {"issuer": self.url, "jwks_uri": f"{self.url}/jwks", **self.metadata}
        return {OPENID: metadata, "/jwks": {"keys": self.keys}}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["path"]
        self.asked.append(path)
        if path in self.answers:
            await self.answers[path](scope, receive, send)
            return
        found = self.documents.get(path)
        await answer(send, 404 if found is None else 200, json.dumps(found).encode())

    def token(self, audience: str | list[str], subject: str = "alice", **claims: Any) -> str:
        """A valid access token, but for the claims that are given; None leaves one out."""
        return signed(self.claims(audience, subject, **claims))

    def claims(self, audience: str | list[str], subject: str = "alice", **claims: Any) -> dict[str, Any]:
        """The claims of such a token."""
        now = int(time.time())
        whole = {"iss": self.url, "sub": subject, "aud": audience, "iat": now, "exp": now + 600, **claims}
        return {name: value for name, value in whole.items() if value is not None}


def signed(
    claims: Mapping[str, Any], key: str = "one", algorithm: str = "ES256", secret: Any = None, **header: Any
) -> str:
    """A token with these claims, signed with the key of a name or with `secret`."""
    own = ec_key(key) if algorithm.startswith("ES") else rsa_key(key)
    headers = {"kid": key, "typ": "at+jwt", **header}
    return jwt.encode(dict(claims), own if secret is None else secret, algorithm=algorithm, headers=headers)


def issuer_at(url: str, audiences: Mapping[str, frozenset[str]], **changes: Any) -> Issuer:
    """The issuer at a URL as a plan has it, called `corp`."""
    values: dict[str, Any] = {
        "name": "corp",
        "place": IssuerPlace(url),
        "algorithms": ("RS256", "PS256", "ES256", "EdDSA"),
        "principal_claim": "sub",
        "audiences": audiences,
    }
    return Issuer(**{**values, **changes})


async def answer(send: Send, status: int, body: bytes, **headers: str) -> None:
    """Send an answer as JSON."""
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    named = [(b"content-type", b"application/json"), *lines]
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": body})


def bearer(token: str) -> dict[str, str]:
    """The header that shows a token."""
    return {"authorization": f"Bearer {token}"}
