"""Verifies the tokens of one issuer: JSON Web Tokens with its keys, opaque tokens by introspection.

Most requests carry no token of this issuer. So nothing is fetched before a token names this issuer, has an accepted
algorithm, and is an access token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from bridge.identity.callers.introspection import TokenQuestions, UnansweredTokenError
from bridge.identity.callers.issuers import Issuer, IssuerMetadata
from bridge.identity.callers.json_web_tokens import (
    WrongTokenError,
    principal_in,
    require_acceptable,
    token_in,
    verified_claims,
)
from bridge.identity.callers.key_sets import KeySource, NoKeysError
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import (
    NOT_KNOWN,
    OF_ANOTHER_SCHEME,
    Scheme,
    Undecided,
    Verdict,
    WrongCredential,
    shown_secret,
)
from bridge.identity.tokens.caller_token import CallerToken
from bridge.settings import IssuerSettings

_ONE_TOKEN: Final = re.compile(r"[^\s,]+")
"""A value that may be sent to an issuer: one token. A proxy may join two Authorization headers with a comma and a
space, and one of the two may hold a configured secret."""


_JWT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
"""The form of a JSON Web Token (RFC 7515 section 3.1). Such a value is refused as a broken token, not as an unknown
secret."""

_UNREADABLE: Final = WrongCredential("is a JSON Web Token that cannot be read")
"""The token is broken, or has a critical extension (`crit`) that is not supported."""


class IssuerVerifier:
    """Recognises the tokens of one issuer."""

    scheme = Scheme.BEARER
    is_declared = True

    def __init__(
        self,
        issuer: Issuer,
        source: KeySource,
        limits: IssuerSettings,
        questions: TokenQuestions | None = None,
    ) -> None:
        """`questions` introspects opaque tokens; None refuses them."""
        self._questions = questions
        self.issuer = issuer
        self._source = source
        self._limits = limits

    @property
    def metadata(self) -> IssuerMetadata | None:
        """See `Verifier`."""
        return self._source.metadata

    async def verify(self, headers: Mapping[str, str], face: str) -> Verdict:
        """See `Verifier`."""
        secret = shown_secret(self.scheme, headers)
        if secret is None:
            return None
        token = token_in(secret)
        if token is None and (self._questions is None or not _ONE_TOKEN.fullmatch(secret)):
            if not secret:
                return OF_ANOTHER_SCHEME
            return _UNREADABLE if _JWT.fullmatch(secret) else NOT_KNOWN
        try:
            if token is None:
                return await self._asked(secret, face)
            if token.issuer != self.issuer.place.issuer:
                return WrongCredential("is of another issuer")
            require_acceptable(token, self.issuer)
            leeway = self._limits.leeway_seconds
            claims = await self._source.verified(
                lambda keys: verified_claims(token, keys, self.issuer, face, leeway)
            )
            return self._showing(secret, claims)
        except NoKeysError as exc:
            return Undecided(str(exc), exc.retry_seconds)
        except UnansweredTokenError as exc:
            return Undecided(str(exc), self._limits.retry_seconds)
        except WrongTokenError as exc:
            return WrongCredential(str(exc), issuer=self.issuer.name)

    def _showing(self, token: str, claims: Mapping[str, Any]) -> Principal:
        """The principal of verified claims, with the token that carried them.

        Raises:
            WrongTokenError: the claims name no principal.
        """
        principal = principal_in(claims, self.issuer, self._limits.leeway_seconds)
        expires_at = (
            None if principal.expires_at is None else principal.expires_at - self._limits.leeway_seconds
        )
        caller_token = CallerToken(self.issuer.place.issuer, principal.name, token, expires_at)
        return replace(principal, token=caller_token)

    async def _asked(self, token: str, face: str) -> Principal:
        """The principal of an opaque token. The issuer is asked about the token.

        Raises:
            NoKeysError, UnansweredTokenError: the issuer cannot be asked.
            WrongTokenError: the token is not valid for the endpoint.
        """
        assert self._questions is not None, "tokens that nobody can be asked about are refused before"
        return self._showing(token, await self._questions.claims_of(token, face))
