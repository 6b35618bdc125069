"""Verifies the tokens of one issuer.

Most requests carry no token of this issuer, so nothing is fetched before a token says that it is of this issuer, is
signed as the configuration asks, and is an access token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bridge.access.issuers import Issuer, IssuerLimits
from bridge.access.key_sets import KeySource, NoKeysError
from bridge.access.tokens import (
    IssuerKey,
    UnverifiedToken,
    WrongTokenError,
    principal_in,
    require_acceptable,
    token_in,
    verified_claims,
)
from bridge.access.verifiers import NOT_KNOWN, Scheme, Undecided, Verdict, WrongCredential, shown_secret


class IssuerVerifier:
    """Recognises the JSON Web Tokens of one issuer."""

    scheme = Scheme.BEARER

    def __init__(self, issuer: Issuer, source: KeySource, limits: IssuerLimits) -> None:
        self._issuer = issuer
        self._source = source
        self._limits = limits

    async def verify(self, headers: Mapping[str, str], face: str) -> Verdict:
        """See `Verifier`."""
        shown = shown_secret(self.scheme, headers)
        if shown is None:
            return None
        token = token_in(shown)
        if token is None:
            return NOT_KNOWN
        try:
            if token.issuer != self._issuer.place.issuer:
                return WrongCredential("is of another issuer")
            require_acceptable(token, self._issuer)
            keys = await self._keys_for(token)
            claims = verified_claims(token, keys, self._issuer, face, self._limits.leeway_seconds)
            return principal_in(claims, self._issuer)
        except NoKeysError as exc:
            return Undecided(str(exc), exc.retry_seconds)
        except WrongTokenError as exc:
            return WrongCredential(str(exc), self._issuer.name)

    async def _keys_for(self, token: UnverifiedToken) -> Sequence[IssuerKey]:
        """The keys of the issuer, fetched again if that may bring the key that the token names.

        Raises:
            NoKeysError: there never was a key set.
        """
        keys = await self._source.keys()
        if any(key.fits(token) for key in keys):
            return keys
        return await self._source.keys_after_unknown()
