"""OAuth 2.0 access tokens with which the bridge calls peers as itself.

A grant is a request to a token endpoint (`token_endpoint.py`). A token source holds the token for all calls that need
it. Credentials put the token into a request.

Waiting calls share one request for a token. They also share its refusal, which is remembered for a moment: the server
does not get one request for each waiting call. A token is replaced before it expires, and once when the peer refuses
it. If the peer asks for more scopes, the source requests a token with these and all scopes so far.

Spec: RFC 6749 section 4.4 (client credentials), 7523 section 2.1 (jwt-bearer), 8707 (resource indicators).
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio

from bridge.http.client import PeerCredentials, RenewableCredentials
from bridge.http.tls import PeerTls
from bridge.identity.tokens.token_endpoint import (
    AccessToken,
    GrantRefusedError,
    OAuthClient,
    TokenEndpoint,
    TokenError,
    access_token_in,
    platform_jwt_in,
    union_of,
)
from bridge.notices import NO_LISTENER, TokenGrantType, TokenListener, TokenNotice, TokenOutcome

logger = logging.getLogger(__name__)

EARLY_SECONDS: Final = 30.0
"""How long before its expiry a token is replaced, since a call takes time; half its life if that is shorter."""

REFUSED_SECONDS: Final = 2.0
"""How long callers get the same refusal before the issuer is asked again. It equals the first pause before a
reconnection, so that each try asks again."""

STEP_SECONDS: Final = 60.0
"""How long to wait after the issuer refused more scopes before requesting more scopes again."""

_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"

TokenGrant = Callable[[], Awaitable[AccessToken]]
"""Requests a token. Raises TokenError."""

PlaceToken = Callable[[AccessToken], PeerCredentials]
"""Puts a token into the credentials of a request."""


class TokenSource(ABC):
    """A source of access tokens. Two sources of one class are equal if they request the same token."""

    listener: TokenListener = NO_LISTENER
    """The listener for requests for a token. It may be set at any time."""

    @property
    @abstractmethod
    def key(self) -> tuple[object, ...]:
        """Identifies the token that the source requests."""

    @abstractmethod
    async def __call__(self) -> AccessToken:
        """A valid token.

        Raises:
            TokenError: no token could be obtained.
        """

    @abstractmethod
    def refused(self, token: AccessToken) -> None:
        """Drop this token: the peer refused it."""

    @property
    def if_refused(self) -> str:
        """The advice for the user if the peer refuses a new token."""
        return "The peer does not accept the token: check `resource` and `scopes`"

    async def widened(self, token: AccessToken, scopes: Sequence[str]) -> bool:  # noqa: ARG002 - most cannot
        """Request a token with more scopes. Returns whether there is another token now, which may have these scopes."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenSource) and type(self) is type(other) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class HeldToken:
    """One access token. All calls that need it share one request for it."""

    def __init__(
        self,
        issuer: str,
        seconds: float,
        now: Callable[[], float] = time.monotonic,
        on_answer: Callable[[TokenOutcome, float], None] = lambda _outcome, _seconds: None,
    ) -> None:
        """`seconds` limits a request for a token and, separately, the wait for another caller's request. `on_answer` is
        called with the outcome and the duration in seconds of each request."""
        self._asked = on_answer
        self._issuer = issuer
        self._seconds = seconds
        self._now = now
        self._lock = anyio.Lock()
        self.current: AccessToken | None = None
        self.refusal = ""
        """The reason why the last request brought no token."""
        self._renew_at = self._ends_at = -math.inf
        self._ask_at = -math.inf

    async def get(self, grant: TokenGrant) -> AccessToken:
        """The held token if it is valid, or a new token from the grant.

        Raises:
            TokenError: the grant gives no token, or gave none a moment ago.
        """
        async with self.turn():
            return await self._valid(grant)

    def drop(self, token: AccessToken) -> None:
        """Forget this token, if it is still the current one."""
        if self.current is token:
            self.current = None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold the lock for requests while the context is open.

        Raises:
            TokenError: other callers hold the lock for too long.
        """
        try:
            with anyio.fail_after(self._seconds):
                await self._lock.acquire()
        except TimeoutError as exc:
            raise TokenError(self._too_late) from exc
        try:
            yield
        finally:
            self._lock.release()

    async def _valid(self, grant: TokenGrant) -> AccessToken:
        now = self._now()
        if self.current is not None and now < self._renew_at:
            return self.current
        if now >= self._ask_at:
            await self.renew(grant)
        if self.current is None or self._now() >= self._ends_at:
            raise TokenError(self.refusal)
        return self.current

    async def renew(self, grant: TokenGrant) -> None:
        """Request a new token, within a `turn`. The held token stays if no new token comes."""
        began = time.perf_counter()
        outcome: TokenOutcome = "failed"
        try:
            with anyio.fail_after(self._seconds):
                self._take(await grant())
            outcome = "given"
        except TimeoutError:
            self.refusal, self._ask_at = self._too_late, self._now() + REFUSED_SECONDS
        except TokenError as exc:
            self.refusal, self._ask_at = str(exc), self._now() + REFUSED_SECONDS
            outcome = outcome_of(exc)
        finally:
            self._asked(outcome, time.perf_counter() - began)

    def _take(self, token: AccessToken) -> None:
        early = min(EARLY_SECONDS, token.life_seconds / 2)
        self.current, self._ends_at = token, self._now() + token.life_seconds
        self._renew_at = self._ends_at - early if math.isfinite(token.life_seconds) else math.inf

    @property
    def _too_late(self) -> str:
        return f"{self._issuer} gave no token within {self._seconds:g} s"


class ClientToken(TokenSource):
    """The token of the grant `client_credentials` or `jwt-bearer`."""

    def __init__(
        self, client: OAuthClient, seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`seconds` is as for `HeldToken`.

        Raises:
            UsageError: the private key cannot sign.
        """
        self._seconds = seconds
        self.client = client
        self._held = HeldToken(client.issuer, seconds, now, self._notify)
        self._endpoint = TokenEndpoint(client)
        self._now = now
        self._scopes = tuple(client.scopes)
        self._step_at = -math.inf

    @property
    def key(self) -> tuple[object, ...]:
        """See `TokenSource`."""
        return self.client, self._seconds

    async def __call__(self) -> AccessToken:
        """The held token, or a new token."""
        return await self._held.get(self._ask)

    @property
    def if_refused(self) -> str:
        """See `TokenSource`."""
        return f"The peer does not accept the token of {self.client.issuer}: check `resource` and `scopes`"

    def refused(self, token: AccessToken) -> None:
        """See `TokenSource`."""
        self._held.drop(token)

    async def widened(self, token: AccessToken, scopes: Sequence[str]) -> bool:
        """Request a token with these scopes and all scopes so far. The current token stays if the issuer refuses."""
        async with self._held.turn():
            if self._held.current is not token:
                return True
            if set(scopes) <= set(self._scopes) or self._now() < self._step_at:
                return False
            before, self._scopes = self._scopes, union_of(self._scopes, token.scopes, scopes)
            await self._held.renew(self._ask)
            if self._held.current is not token:
                return True
            self._scopes, self._step_at = before, self._now() + STEP_SECONDS
            logger.warning("no token with the scopes %s: %s", " ".join(scopes), self._held.refusal)
            return False

    def _notify(self, outcome: TokenOutcome, seconds: float) -> None:
        listener = self.listener
        grant: TokenGrantType = "jwt_bearer" if _is_platforms(self.client) else "client_credentials"
        listener.notify(TokenNotice(listener.peer, grant, outcome, seconds))

    async def _ask(self) -> AccessToken:
        client, scopes = self._endpoint.client, self._scopes
        try:
            answer = await self._endpoint.answer({**await _grant_of(client), **asked_by(client, scopes)})
        except TokenError:
            self._scopes = tuple(client.scopes)  # the issuer may refuse an added scope later
            raise
        return access_token_in(answer, client.issuer)


async def _grant_of(client: OAuthClient) -> dict[str, str]:
    """The fields of the grant: `client_credentials`, or `jwt-bearer` with the JWT of the platform."""
    if client.method != "none" or client.platform_jwt is None:
        return {"grant_type": "client_credentials"}
    return {"grant_type": _JWT_BEARER, "assertion": await platform_jwt_in(client.platform_jwt)}


def _is_platforms(client: OAuthClient) -> bool:
    return client.method == "none" and client.platform_jwt is not None


def outcome_of(exc: TokenError) -> TokenOutcome:
    """The outcome of a request for a token that raised this error."""
    return "refused" if isinstance(exc, GrantRefusedError) else "failed"


def asked_by(client: OAuthClient, scopes: Sequence[str]) -> dict[str, str]:
    """The fields that every grant of a client has: `scope` and `resource`."""
    parameters = {"scope": " ".join(scopes), "resource": client.resource}
    return {name: value for name, value in parameters.items() if value}


class TokenCredentials(RenewableCredentials):
    """Credentials that hold the token of a source."""

    def __init__(self, tokens: TokenSource, place: PlaceToken) -> None:
        self._tokens = tokens
        self._place = place
        self._current: tuple[AccessToken, PeerCredentials] | None = None

    async def __call__(self) -> PeerCredentials:
        """The credentials with a valid token.

        Raises:
            TokenError: the authorization server gave no token.
        """
        token = await self._tokens()
        if self._current is None or self._current[0] is not token:
            self._current = token, self._place(token)
        return self._current[1]

    def refused(self, credentials: PeerCredentials) -> None:
        """Drop the token in these credentials if they are still current."""
        if self._current is not None and self._current[1] is credentials:
            self._tokens.refused(self._current[0])

    async def widened(self, credentials: PeerCredentials, scopes: Sequence[str]) -> bool:
        """Request more scopes. Returns whether the source has another token now, which may have them."""
        if self._current is None or self._current[1] is not credentials:
            return True
        return await self._tokens.widened(self._current[0], scopes)


def bearer_credentials(
    tokens: TokenSource, headers: Mapping[str, str], tls: PeerTls | None = None
) -> TokenCredentials:
    """The credentials with a token in the header `Authorization`, beside other headers."""
    return TokenCredentials(
        tokens, lambda token: PeerCredentials({"Authorization": f"Bearer {token.value}", **headers}, tls=tls)
    )
