"""Identifies the person in a browser: the OpenID Connect code flow at the issuer of the caller's tokens.

The ID token names the person in the browser, and nothing is stored. The ID token grants no rights: the access token
beside it does, if the login asks for scopes or a resource. The bridge always sends PKCE. It does not require that the
issuer checks PKCE, as it does for logins at peers: the nonce in the ID token exposes a stolen code, too.

Spec: OpenID Connect Core 1.0 sections 3.1.2.1 and 3.1.3.7; RFC 7636 (PKCE); RFC 8707 (`resource`); RFC 9207 (`iss`);
RFC 9700 section 2.1.1.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlencode

import anyio

from bridge.identity.callers.issuers import Issuer
from bridge.identity.callers.json_web_tokens import (
    WrongTokenError,
    principal_in,
    require_identity,
    token_in,
    verified_identity,
)
from bridge.identity.callers.key_sets import KeySource, NoKeysError
from bridge.identity.logins.kept_logins import BegunProof
from bridge.identity.tokens.token_endpoint import (
    OAuthClient,
    TokenEndpoint,
    TokenError,
    access_token_in,
    code_in,
    secret_endpoint,
)


@dataclass(frozen=True, slots=True)
class ShownPerson:
    """The person in a browser."""

    principal: str
    """The name of the principal."""
    access_token: str = field(repr=False)
    """The access token that came with the ID token, not verified; empty if none came that a header can carry."""


class IssuerLogin:
    """The login of people at one issuer."""

    def __init__(self, issuer: Issuer, source: KeySource, leeway_seconds: float) -> None:
        """`issuer` must have a login client; `source` has its keys."""
        assert issuer.login is not None
        self.issuer = issuer
        self._client = issuer.login
        self._source = source
        self._leeway_seconds = leeway_seconds
        self._endpoint = TokenEndpoint(
            OAuthClient(
                issuer.place.issuer,
                issuer.login.id,
                issuer.login.secret,
                issuer.login.method if issuer.login.secret else "none",
                allow_private=issuer.place.allow_private,
            )
        )

    async def begin(
        self, redirect_uri: str, seconds: float, scopes: Sequence[str] = (), resource: str = ""
    ) -> tuple[str, BegunProof]:
        """The URL of the issuer's login page, and the state that `finish` needs. The issuer must answer within
        `seconds`; the access token is requested with `scopes` and `resource`.

        Raises:
            TokenError: the issuer cannot be reached, or has no authorization endpoint that a browser may be sent to.
        """
        with _within(seconds, self.issuer):
            url, metadata = await self._endpoint.metadata()
        page = secret_endpoint(url, metadata, "authorization_endpoint")
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._client.id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(dict.fromkeys(["openid", *scopes])),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **({"resource": resource} if resource else {}),
        }
        says_issuer = metadata.get("authorization_response_iss_parameter_supported") is True
        named_issuer = str(metadata.get("issuer", ""))
        iss = "" if named_issuer == self.issuer.place.issuer else named_issuer
        begun = BegunProof(redirect_uri, state, nonce, verifier, says_issuer, resource, iss)
        return f"{page}{'&' if '?' in page else '?'}{urlencode(query)}", begun

    async def finish(self, begun: BegunProof, answer: Mapping[str, str], seconds: float) -> ShownPerson:
        """The person in the browser. `seconds` is as for `begin`.

        Raises:
            TokenError: the person or the issuer refused, or the answer does not belong to this login.
        """
        issuer = begun.iss or self.issuer.place.issuer
        code = code_in(answer, issuer, begun.state, says_issuer=begun.says_issuer)
        grant = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": begun.redirect_uri,
            "code_verifier": begun.verifier,
            **({"resource": begun.resource} if begun.resource else {}),
        }
        with _within(seconds, self.issuer):
            tokens = await self._endpoint.answer(grant)
            try:
                principal = await self._principal_in(tokens.get("id_token"), begun)
            except WrongTokenError as exc:
                raise TokenError(f"{self.issuer.place.issuer} gave an ID token that {exc}") from exc
            except NoKeysError as exc:
                raise TokenError(f"the ID token cannot be checked: {exc}") from exc
        try:
            token = access_token_in(tokens, self.issuer.place.issuer).value
        except TokenError:
            token = ""
        return ShownPerson(principal, token)

    async def _principal_in(self, text: object, begun: BegunProof) -> str:
        token = token_in(text) if isinstance(text, str) else None
        if token is None:
            raise TokenError(
                f"{self.issuer.place.issuer} gave no ID token. The client needs the scope `openid`"
            )
        require_identity(token, self.issuer)
        claims = await self._source.verified(
            lambda keys: verified_identity(
                token, keys, self.issuer, self._client.id, begun.nonce, self._leeway_seconds
            )
        )
        return principal_in(claims, self.issuer, self._leeway_seconds).name


@contextmanager
def _within(seconds: float, issuer: Issuer) -> Iterator[None]:
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as exc:
        raise TokenError(f"{issuer.place.issuer} did not answer in {seconds:g} s") from exc
