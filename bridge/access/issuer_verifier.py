"""Verifies the tokens of one issuer.

Most requests carry no token of this issuer, so nothing is fetched before a token says that it is of this issuer, is
signed as the configuration asks, and is an access token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bridge.access.issuers import Issuer, IssuerLimits, IssuerMetadata
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
from bridge.access.verifiers import (
    NOT_KNOWN,
    OF_ANOTHER_SCHEME,
    Scheme,
    Undecided,
    Verdict,
    WrongCredential,
    shown_secret,
)


class IssuerVerifier:
    """Recognises the JSON Web Tokens of one issuer."""

    scheme = Scheme.BEARER
    is_declared = True

    def __init__(self, issuer: Issuer, source: KeySource, limits: IssuerLimits) -> None:
        self.issuer = issuer
        self._source = source
        self._limits = limits

    @property
    def metadata(self) -> IssuerMetadata | None:
        """See `Verifier`."""
        return self._source.metadata

    async def verify(self, headers: Mapping[str, str], face: str) -> Verdict:
        """See `Verifier`."""
        shown = shown_secret(self.scheme, headers)
        if shown is None:
            return None
        token = token_in(shown)
        if token is None:
            return NOT_KNOWN if shown else OF_ANOTHER_SCHEME
        try:
            if token.issuer != self.issuer.place.issuer:
                return WrongCredential("is of another issuer")
            require_acceptable(token, self.issuer)
            keys = await self._keys_for(token)
            claims = verified_claims(token, keys, self.issuer, face, self._limits.leeway_seconds)
            return principal_in(claims, self.issuer, self._limits.leeway_seconds)
        except NoKeysError as exc:
            return Undecided(str(exc), exc.retry_seconds)
        except WrongTokenError as exc:
            return WrongCredential(str(exc), issuer=self.issuer.name)

    async def _keys_for(self, token: UnverifiedToken) -> Sequence[IssuerKey]:
        """The keys of the issuer, fetched again if that may bring the key that the token names.

        Raises:
            NoKeysError: there never was a key set.
        """
        keys = await self._source.keys()
        if any(key.fits(token) for key in keys):
            return keys
        return await self._source.keys_after_unknown()
