"""Access tokens for one peer on behalf of the bridge's callers, exchanged for the tokens of their requests.

A caller's token is sent only to its own issuer: never to the peer, and never to another authorization server. It is not
stored. Each request brings its own token, and the exchanged token is stored under a hash of it, so that no caller ever
gets the exchanged token of another caller.

The peer may trust another authorization server. Then the issuer gives an identity assertion for that server (ID-JAG),
and that server exchanges the assertion for the token.

Spec: RFC 8693 (token exchange), RFC 7523 section 2.1, draft-ietf-oauth-identity-assertion-authz-grant.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from bridge.bounded_map import BoundedMap
from bridge.identity.tokens.caller_token import CallerToken
from bridge.identity.tokens.oauth import HeldToken, TokenSource, asked_by
from bridge.identity.tokens.token_endpoint import (
    AccessToken,
    OAuthClient,
    TokenEndpoint,
    TokenError,
    access_token_in,
)
from bridge.notices import TokenGrantType, TokenNotice, TokenOutcome
from bridge.text.jsonvalues import JsonObject

UNSAID_SECONDS: Final = 60.0
"""How long an exchanged token is used if neither it nor the caller's token has an expiry. It equals the time for which
the bridge remembers an introspection answer."""

_ACTS: Final = "this acts with the rights of its caller"

_TYPES: Final = "urn:ietf:params:oauth:token-type:"
_ACCESS_TOKEN: Final = f"{_TYPES}access_token"
_ID_JAG: Final = f"{_TYPES}id-jag"
_GIVEN: Final = frozenset({_ACCESS_TOKEN, f"{_TYPES}jwt"})
"""The types of tokens that can be sent to a peer."""

_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ASSERTION: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class CallerTokenError(TokenError):
    """The request has no caller's token that can be exchanged."""


@dataclass(frozen=True)
class Exchange:
    """The configuration of the exchange of callers' tokens."""

    client: OAuthClient
    """The bridge as a client of the issuer of the callers' tokens."""
    audience: str = ""
    """The audience to request; empty to request only a resource."""
    id_jag: OAuthClient | None = None
    """The bridge as a client of the peer's authorization server, if the issuer of the callers is another server."""


class CallerTokens(TokenSource):
    """The tokens for one peer on behalf of callers. Without a caller there is no token."""

    def __init__(
        self, exchange: Exchange, seconds: float, most: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`seconds` limits a request for a token, and `most` the number of held tokens.

        Raises:
            UsageError: a private key cannot sign.
        """
        self._seconds = seconds
        self._exchange = exchange
        self.client = exchange.client
        self._endpoint = TokenEndpoint(exchange.client)
        self._there = None if exchange.id_jag is None else TokenEndpoint(exchange.id_jag)
        self._new = partial(HeldToken, exchange.client.issuer, seconds, now)
        self._held = BoundedMap[bytes, HeldToken](most)

    @property
    def key(self) -> tuple[object, ...]:
        """See `TokenSource`."""
        return self._exchange, self._seconds, self._held.most

    @property
    def issuer(self) -> str:
        """The issuer whose tokens are exchanged."""
        return self._exchange.client.issuer

    def of(self, caller: CallerToken | None) -> TokenSource:
        """The source of tokens on behalf of a caller.

        Raises:
            CallerTokenError: its request has no token of the issuer, or the token has expired.
        """
        return _ExchangedToken(self, self.require(caller))

    def require(self, caller: CallerToken | None) -> CallerToken:
        """The token of a caller if it can be exchanged.

        Raises:
            CallerTokenError: it cannot be exchanged.
        """
        if caller is None or caller.issuer != self.issuer:
            raise CallerTokenError(f"{_ACTS}, and the request has no access token of {self.issuer}")
        if caller.seconds_left() <= 0:
            raise CallerTokenError(f"{_ACTS}, and the caller's token of {self.issuer} has expired")
        return caller

    async def __call__(self) -> AccessToken:
        """Refuse: there is no caller."""
        raise CallerTokenError(f"{_ACTS}, and there is no caller")

    def refused(self, token: AccessToken) -> None:
        """Do nothing: without a caller no token was sent."""

    def held_for(self, caller: CallerToken) -> HeldToken:
        """The held token for a caller's token. If there are too many, the least recently used one is dropped."""
        held = self._held.get(caller.mark) or self._new(partial(self._notify, caller))
        self._held[caller.mark] = held
        return held

    async def exchanged(self, caller: CallerToken) -> AccessToken:
        """Exchange a caller's token.

        Raises:
            TokenError: the issuer gives no token for it.
        """
        if self._there is None:
            answer = await self._endpoint.answer(self._asked(caller, _ACCESS_TOKEN))
            self._require_type(answer, _GIVEN)
            token = access_token_in(answer, self.issuer)
        else:
            token = await self._with_assertion(caller, self._there)
        return replace(token, life_seconds=_life_of(token, caller))

    async def _with_assertion(self, caller: CallerToken, there: TokenEndpoint) -> AccessToken:
        """The token that the peer's authorization server gives for an identity assertion of the issuer."""
        answer = await self._endpoint.answer(
            {**self._asked(caller, _ID_JAG), "audience": there.client.issuer}
        )
        self._require_type(answer, frozenset({_ID_JAG}))
        assertion = answer.get("access_token")
        if not isinstance(assertion, str) or not assertion:
            raise TokenError(f"{self.issuer} answered without an identity assertion")
        grant = {
            "grant_type": _ASSERTION,
            "assertion": assertion,
            **asked_by(there.client, there.client.scopes),
        }
        return access_token_in(await there.answer(grant), there.client.issuer)

    def _notify(self, caller: CallerToken, outcome: TokenOutcome, seconds: float) -> None:
        listener = self.listener
        grant: TokenGrantType = "token_exchange" if self._there is None else "id_jag"
        listener.notify(TokenNotice(listener.peer, grant, outcome, seconds, caller.subject))

    def _asked(self, caller: CallerToken, wanted: str) -> dict[str, str]:
        grant = {
            "grant_type": _EXCHANGE,
            "subject_token": caller.value,
            "subject_token_type": _ACCESS_TOKEN,
            "requested_token_type": wanted,
            **asked_by(self._exchange.client, self._exchange.client.scopes),
        }
        return {**grant, "audience": self._exchange.audience} if self._exchange.audience else grant

    def _require_type(self, answer: JsonObject, wanted: frozenset[str]) -> None:
        """Refuse a token of another type than the requested type (RFC 8693 section 2.2.1)."""
        if answer.get("issued_token_type") not in wanted:
            raise TokenError(f"{self.issuer} gave a token of another type than requested")


class _ExchangedToken(TokenSource):
    """The source of access tokens that are exchanged for the token of one caller, for one request of that caller."""

    def __init__(self, tokens: CallerTokens, caller: CallerToken) -> None:
        self._tokens = tokens
        self._caller = caller

    @property
    def key(self) -> tuple[object, ...]:
        """See `TokenSource`."""
        return self._tokens, self._caller

    @property
    def if_refused(self) -> str:
        """See `TokenSource`."""
        words = "The peer does not accept the exchanged token"
        return f"{words}: check `audience`, `resource` and `scopes`"

    async def __call__(self) -> AccessToken:
        caller = self._tokens.require(self._caller)  # it may have expired since
        try:
            return await self._tokens.held_for(caller).get(partial(self._tokens.exchanged, caller))
        except TokenError:
            self._tokens.require(
                caller
            )  # it may have expired during the exchange, and the issuer need not say so
            raise

    def refused(self, token: AccessToken) -> None:
        self._tokens.held_for(self._caller).drop(token)


def _life_of(token: AccessToken, caller: CallerToken) -> float:
    """How long an exchanged token is used: until it or the caller's own token expires."""
    life = min(token.life_seconds, caller.seconds_left())
    return life if math.isfinite(life) else UNSAID_SECONDS
