"""Access tokens of OAuth 2.0 for the peers that the bridge calls, as itself.

A grant is what is asked of a token endpoint (`token_endpoint.py`). A token source holds what it gave, for all who need
the token at the same time. Credentials say where the token stands in a request.

Callers share one request for a token, and its refusal, too, which is remembered for a moment: a server that refuses is
not asked once for each call that waits. A token is replaced before it expires, and once when the peer refuses it. When
the peer misses scopes in it, a token with these and all scopes so far takes its place, if the issuer gives one.

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
from bridge.notices import NOBODY, TokenGrantType, TokenListener, TokenNotice, TokenOutcome

logger = logging.getLogger(__name__)

EARLY_SECONDS: Final = 30.0
"""A token is replaced so long before it expires, or at half its life if that is shorter: a call takes time."""

REFUSED_SECONDS: Final = 2.0
"""How long the refusal of a token is repeated to callers without asking again. It is as long as the first pause before
a connection is tried again, so that each try asks anew."""

STEP_SECONDS: Final = 60.0
"""How long wider scopes that the issuer refused are not asked for again."""

_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"

TokenGrant = Callable[[], Awaitable[AccessToken]]
"""Asks for a token. Raises TokenError."""

PlaceToken = Callable[[AccessToken], PeerCredentials]
"""Where a token stands in a request."""


class TokenSource(ABC):
    """A source of access tokens. Sources of one kind that ask for the same are equal."""

    heard_by: TokenListener = NOBODY
    """Who is told when it asks for a token. May be set at any time."""

    @property
    @abstractmethod
    def key(self) -> tuple[object, ...]:
        """What it asks for."""

    @abstractmethod
    async def __call__(self) -> AccessToken:
        """A token that is valid.

        Raises:
            TokenError: there is none.
        """

    @abstractmethod
    def refused(self, token: AccessToken) -> None:
        """Give out this token no more: the peer refused it."""

    @property
    def if_refused(self) -> str:
        """What to do if the peer refuses a token that was just given, in words."""
        return "It does not take the token: check `resource` and `scopes`"

    async def widened(self, token: AccessToken, scopes: Sequence[str]) -> bool:  # noqa: ARG002 - most cannot
        """Whether there is another token now, which may have the scopes that the peer misses in this one."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenSource) and type(self) is type(other) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class HeldToken:
    """One access token, which is asked for once for all who need it."""

    def __init__(
        self,
        issuer: str,
        seconds: float,
        now: Callable[[], float] = time.monotonic,
        asked: Callable[[TokenOutcome, float], None] = lambda _outcome, _seconds: None,
    ) -> None:
        """`seconds` bounds the way to a token, and before it the wait for another caller that asks. `asked` is told how
        each request for a token went, and how many seconds it took."""
        self._asked = asked
        self._issuer = issuer
        self._seconds = seconds
        self._now = now
        self._lock = anyio.Lock()
        self.current: AccessToken | None = None
        self.refusal = ""
        """Why there was no other token the last time, in words."""
        self._renew_at = self._ends_at = -math.inf
        self._ask_at = -math.inf

    async def get(self, grant: TokenGrant) -> AccessToken:
        """The token that is held, or what the grant gives.

        Raises:
            TokenError: the grant gives none, or gave none a moment ago.
        """
        async with self.turn():
            return await self._valid(grant)

    def drop(self, token: AccessToken) -> None:
        """Forget this token, if it is still the current one."""
        if self.current is token:
            self.current = None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Let nobody else ask for a token while this is entered.

        Raises:
            TokenError: others ask for too long.
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
        """Ask for a token, within a `turn`. The one that is held stays if there is none."""
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
        """`seconds` is as for what is held.

        Raises:
            UsageError: the private key cannot sign.
        """
        self._seconds = seconds
        self.client = client
        self._held = HeldToken(client.issuer, seconds, now, self._tell)
        self._endpoint = TokenEndpoint(client)
        self._now = now
        self._scopes = tuple(client.scopes)
        self._step_at = -math.inf

    @property
    def key(self) -> tuple[object, ...]:
        """See `TokenSource`."""
        return self.client, self._seconds

    async def __call__(self) -> AccessToken:
        """The token that is held, or a new one."""
        return await self._held.get(self._ask)

    @property
    def if_refused(self) -> str:
        """See `TokenSource`."""
        return f"It does not take the token of {self.client.issuer}: check `resource` and `scopes`"

    def refused(self, token: AccessToken) -> None:
        """See `TokenSource`."""
        self._held.drop(token)

    async def widened(self, token: AccessToken, scopes: Sequence[str]) -> bool:
        """Ask for a token with these scopes beside those so far. Each scope is added once.

        The token so far stays if the issuer refuses.
        """
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

    def _tell(self, outcome: TokenOutcome, seconds: float) -> None:
        listener = self.heard_by
        grant: TokenGrantType = "jwt_bearer" if _is_platforms(self.client) else "client_credentials"
        listener.tell(TokenNotice(listener.peer, grant, outcome, seconds))

    async def _ask(self) -> AccessToken:
        client, scopes = self._endpoint.client, self._scopes
        try:
            answer = await self._endpoint.answer({**await _grant_of(client), **asked_by(client, scopes)})
        except TokenError:
            self._scopes = tuple(client.scopes)  # a scope that was added may be refused later
            raise
        return access_token_in(answer, client.issuer)


async def _grant_of(client: OAuthClient) -> dict[str, str]:
    """What a client is given a token for: for being itself, or for being what a platform says."""
    if client.method != "none" or client.platform_jwt is None:
        return {"grant_type": "client_credentials"}
    return {"grant_type": _JWT_BEARER, "assertion": await platform_jwt_in(client.platform_jwt)}


def _is_platforms(client: OAuthClient) -> bool:
    return client.method == "none" and client.platform_jwt is not None


def outcome_of(exc: TokenError) -> TokenOutcome:
    """How a request for a token went that ended so."""
    return "refused" if isinstance(exc, GrantRefusedError) else "failed"


def asked_by(client: OAuthClient, scopes: Sequence[str]) -> dict[str, str]:
    """The fields of every grant of a client: what the token is to open, and where."""
    asked = {"scope": " ".join(scopes), "resource": client.resource}
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

    async def widened(self, shown: PeerCredentials, scopes: Sequence[str]) -> bool:
        """Whether the source has a token now that may have these scopes."""
        if self._current is None or self._current[1] is not shown:
            return True
        return await self._tokens.widened(self._current[0], scopes)


def bearer_credentials(
    tokens: TokenSource, headers: Mapping[str, str], tls: PeerTls | None = None
) -> TokenCredentials:
    """The credentials that hold a token in the header `Authorization`, beside other headers."""
    return TokenCredentials(
        tokens, lambda token: PeerCredentials({"Authorization": f"Bearer {token.value}", **headers}, tls=tls)
    )
