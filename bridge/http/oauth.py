"""Access tokens of OAuth 2.0 for the peers that the bridge calls, as itself.

A grant is what is asked of a token endpoint (`token_endpoint.py`). The credentials here hold what it gave, and send it.

Callers that need a token at the same time share one request for it, and its refusal, too, which is remembered for a
moment: a server that refuses is not asked once for each call that waits. A token is replaced before it expires, and
once when the peer refuses it.

Spec: RFC 6749 section 4.4 (client credentials), 8707 (resource indicators).
"""

from __future__ import annotations

import math
import time
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


class GrantedCredentials(RenewableCredentials):
    """Credentials that hold the access token of a grant."""

    def __init__(
        self,
        grant: TokenGrant,
        issuer: str,
        seconds: float,
        headers: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`seconds` bounds the way to a token, and before it the wait for another caller that asks. `headers` go to the
        peer beside the token."""
        self._grant = grant
        self._issuer = issuer
        self._seconds = seconds
        self._headers = headers or {}
        self._now = now
        self._lock = anyio.Lock()
        self._current: PeerCredentials | None = None
        self._renew_at = self._ends_at = -math.inf
        self._refusal = ""
        self._ask_at = -math.inf

    async def __call__(self) -> PeerCredentials:
        """The credentials with a token that is valid.

        Raises:
            TokenError: the authorization server gave none.
        """
        try:
            with anyio.fail_after(self._seconds):
                await self._lock.acquire()
        except TimeoutError as exc:
            raise TokenError(self._too_late) from exc
        try:
            return await self._valid()
        finally:
            self._lock.release()

    def refused(self, shown: PeerCredentials) -> None:
        """Forget these credentials, if they are still the current ones."""
        if self._current is shown:
            self._current = None

    async def _valid(self) -> PeerCredentials:
        """The token that is held, or a new one."""
        now = self._now()
        if self._current is not None and now < self._renew_at:
            return self._current
        if now >= self._ask_at:
            await self._renew()
        if self._current is None or self._now() >= self._ends_at:
            raise TokenError(self._refusal)
        return self._current

    async def _renew(self) -> None:
        """Ask for a token. The one that is held stays if there is none."""
        try:
            with anyio.fail_after(self._seconds):
                token = await self._grant()
        except TimeoutError:
            self._refusal = self._too_late
        except TokenError as exc:
            self._refusal = str(exc)
        else:
            now, early = self._now(), min(EARLY_SECONDS, token.life_seconds / 2)
            self._current = PeerCredentials({"Authorization": f"Bearer {token.value}", **self._headers})
            self._ends_at = now + token.life_seconds
            self._renew_at = self._ends_at - early if math.isfinite(token.life_seconds) else math.inf
            return
        self._ask_at = self._now() + REFUSED_SECONDS

    @property
    def _too_late(self) -> str:
        return f"{self._issuer} gave no token within {self._seconds:g} s"


class ClientCredentials(GrantedCredentials):
    """Credentials that hold an access token of the grant `client_credentials`."""

    def __init__(
        self,
        client: OAuthClient,
        seconds: float,
        headers: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """As for all that is granted.

        Raises:
            UsageError: the private key cannot sign.
        """
        grant = partial(_client_credentials, TokenEndpoint(client))
        super().__init__(grant, client.issuer, seconds, headers, now)


async def _client_credentials(endpoint: TokenEndpoint) -> AccessToken:
    answer = await endpoint.answer({"grant_type": "client_credentials", **asked_by(endpoint.client)})
    return access_token_in(answer, endpoint.client.issuer)


def asked_by(client: OAuthClient) -> dict[str, str]:
    """The fields of every grant of a client: what the token is to open, and where."""
    asked = {"scope": " ".join(client.scopes), "resource": client.resource}
    return {name: value for name, value in asked.items() if value}
