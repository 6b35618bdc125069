"""The tokens in memory for a peer that requires a login of each caller."""

from __future__ import annotations

from dataclasses import replace

from bridge.bounded_map import BoundedMap
from bridge.identity.logins.login_credentials import LoginConfig, LoginNeededError, LoginToken
from bridge.identity.tokens.oauth import TokenSource
from bridge.identity.tokens.token_endpoint import AccessToken


class EachLogin(TokenSource):
    """The tokens for a peer that requires a login of each caller. Without a caller there is no token."""

    def __init__(self, login_config: LoginConfig, seconds: float, most: int) -> None:
        """`seconds` limits the time to get a token, and `most` the number of callers whose tokens are in memory."""
        self.login_config = login_config
        self._seconds = seconds
        self._held = BoundedMap[str, LoginToken](most)

    @property
    def key(self) -> tuple[object, ...]:
        """See `TokenSource`."""
        return self.login_config, self._seconds, self._held.most

    def of(self, principal: str) -> LoginToken:
        """The token of a principal's login. After another replica received a newer login, it is the token of the newer
        login."""
        held = self._held.get(principal)
        if held is None or held.is_replaced:
            held = LoginToken(replace(self.login_config, principal=principal), self._seconds)
        held.listener = self.listener
        self._held[principal] = held
        return held

    def keep(self, principal: str, since: float | None) -> None:
        """Drop the principal's token unless it belongs to the login made at `since`; None drops the token of any
        login."""
        held = self._held.get(principal)
        if held is not None and not held.bind(since):
            del self._held[principal]
            held.look_again()

    async def __call__(self) -> AccessToken:
        """Refuse: there is no caller.

        Raises:
            LoginNeededError: always.
        """
        raise LoginNeededError(f"{self.login_config.key.url} needs the login of a caller")

    def refused(self, token: AccessToken) -> None:
        """Do nothing: without a caller no token was sent."""
