"""Access tokens of OAuth 2.0 for the peers that the bridge calls, as itself.

A grant is what is asked of a token endpoint (`token_endpoint.py`). A token source holds what it gave, for all who need
the token at the same time. Credentials say where the token stands in a request.

Callers share one request for a token, and its refusal, too, which is remembered for a moment: a server that refuses is
not asked once for each call that waits. A token is replaced before it expires, and once when the peer refuses it.

Spec: RFC 6749 section 4.4 (client credentials), 8707 (resource indicators).
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import anyio

from bridge.http.client import PeerCredentials, RenewableCredentials
from bridge.http.token_endpoint import AccessToken, OAuthClient, TokenEndpoint, TokenError, access_token_in

EARLY_SECONDS: Final = 30.0
"""A token is replaced so long before it expires, or at half its life if that is shorter: a call takes time."""

REFUSED_SECONDS: Final = 2.0
"""How long the refusal of a token is repeated to callers without asking again. It is as long as the first pause before
a connection is tried again, so that each try asks anew."""

TokenGrant = Callable[[], Awaitable[AccessToken]]
"""Asks for a token. Raises TokenError."""

PlaceToken = Callable[[AccessToken], PeerCredentials]
"""Where a token stands in a request."""


class TokenSource(ABC):
    """A source of access tokens."""

    @abstractmethod
    async def __call__(self) -> AccessToken:
        """A token that is valid.

        Raises:
            TokenError: there is none.
        """

    @abstractmethod
    def refused(self, token: AccessToken) -> None:
        """Give out this token no more: the peer refused it."""


class HeldToken:
    """One access token, which is asked for once for all who need it."""

    def __init__(self, issuer: str, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        """`seconds` bounds the way to a token, and before it the wait for another caller that asks."""
        self._issuer = issuer
        self._seconds = seconds
        self._now = now
        self._lock = anyio.Lock()
        self._current: AccessToken | None = None
        self._renew_at = self._ends_at = -math.inf
        self._refusal = ""
        self._ask_at = -math.inf

    async def get(self, grant: TokenGrant) -> AccessToken:
        """The token that is held, or what the grant gives.

        Raises:
            TokenError: the grant gives none, or gave none a moment ago.
        """
        try:
            with anyio.fail_after(self._seconds):
                await self._lock.acquire()
        except TimeoutError as exc:
            raise TokenError(self._too_late) from exc
        try:
            return await self._valid(grant)
        finally:
            self._lock.release()

    def drop(self, token: AccessToken) -> None:
        """Forget this token, if it is still the current one."""
        if self._current is token:
            self._current = None

    async def _valid(self, grant: TokenGrant) -> AccessToken:
        now = self._now()
        if self._current is not None and now < self._renew_at:
            return self._current
        if now >= self._ask_at:
            await self._renew(grant)
        if self._current is None or self._now() >= self._ends_at:
            raise TokenError(self._refusal)
        return self._current

    async def _renew(self, grant: TokenGrant) -> None:
        """Ask for a token. The one that is held stays if there is none."""
        try:
            with anyio.fail_after(self._seconds):
                token = await grant()
        except TimeoutError:
            self._refusal = self._too_late
        except TokenError as exc:
            self._refusal = str(exc)
        else:
            early = min(EARLY_SECONDS, token.life_seconds / 2)
            self._current, self._ends_at = token, self._now() + token.life_seconds
            self._renew_at = self._ends_at - early if math.isfinite(token.life_seconds) else math.inf
            return
        self._ask_at = self._now() + REFUSED_SECONDS

    @property
    def _too_late(self) -> str:
        return f"{self._issuer} gave no token within {self._seconds:g} s"


class ClientToken(TokenSource):
    """The token of the grant `client_credentials`. Equal ones ask for the same."""

    def __init__(
        self, client: OAuthClient, seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`seconds` is as for what is held.

        Raises:
            UsageError: the private key cannot sign.
        """
        self._key = client, seconds
        self._held = HeldToken(client.issuer, seconds, now)
        self._grant = partial(_client_credentials, TokenEndpoint(client))

    async def __call__(self) -> AccessToken:
        """The token that is held, or a new one."""
        return await self._held.get(self._grant)

    def refused(self, token: AccessToken) -> None:
        """See `TokenSource`."""
        self._held.drop(token)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientToken) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


async def _client_credentials(endpoint: TokenEndpoint) -> AccessToken:
    answer = await endpoint.answer({"grant_type": "client_credentials", **asked_by(endpoint.client)})
    return access_token_in(answer, endpoint.client.issuer)


def asked_by(client: OAuthClient) -> dict[str, str]:
    """The fields of every grant of a client: what the token is to open, and where."""
    asked = {"scope": " ".join(client.scopes), "resource": client.resource}
    return {name: value for name, value in asked.items() if value}


class TokenCredentials(RenewableCredentials):
    """Credentials that hold the token of a source."""

    def __init__(self, tokens: TokenSource, place: PlaceToken) -> None:
        self._tokens = tokens
        self._place = place
        self._current: tuple[AccessToken, PeerCredentials] | None = None

    async def __call__(self) -> PeerCredentials:
        """The credentials with a token that is valid.

        Raises:
            TokenError: the authorization server gave none.
        """
        token = await self._tokens()
        if self._current is None or self._current[0] is not token:
            self._current = token, self._place(token)
        return self._current[1]

    def refused(self, shown: PeerCredentials) -> None:
        """Forget the token in these credentials, if they are still the current ones."""
        if self._current is not None and self._current[1] is shown:
            self._tokens.refused(self._current[0])


def bearer_credentials(tokens: TokenSource, headers: Mapping[str, str]) -> TokenCredentials:
    """The credentials that hold a token in the header `Authorization`, beside other headers."""
    return TokenCredentials(
        tokens, lambda token: PeerCredentials({"Authorization": f"Bearer {token.value}", **headers})
    )
