"""The logins of the callers of a peer that wants one of each, as far as they are held in memory."""

from __future__ import annotations

from dataclasses import replace

from bridge.identity.logins.login_credentials import LoginConfig, LoginNeededError, LoginToken
from bridge.identity.tokens.oauth import TokenSource
from bridge.identity.tokens.token_endpoint import AccessToken


class EachLogin(TokenSource):
    """The tokens of a peer that wants a login of each caller. In nobody's name there is none."""

    def __init__(self, login_config: LoginConfig, seconds: float, most: int) -> None:
        """`seconds` bounds the way to a token, and `most` the callers whose tokens are held in memory."""
        self.login_config = login_config
        self._seconds = seconds
        self._most = most
        self._held: dict[str, LoginToken] = {}

    @property
    def key(self) -> tuple[object, ...]:
        """See `TokenSource`."""
        return self.login_config, self._seconds, self._most

    def of(self, principal: str) -> LoginToken:
        """The token of a principal's own login. Once another replica has been given a later one, it is of that."""
        held = self._held.pop(principal, None)
        if held is None or held.is_replaced:
            held = LoginToken(replace(self.login_config, principal=principal), self._seconds)
        held.heard_by = self.heard_by
        self._held[principal] = held  # the one used least of late comes first
        while len(self._held) > self._most:
            del self._held[next(iter(self._held))]
        return held

    def keep(self, principal: str, since: float | None) -> None:
        """Hold nothing of a principal but the login that it made then; None is for no login."""
        held = self._held.get(principal)
        if held is not None and not held.bind(since):
            del self._held[principal]
            held.look_again()

    async def __call__(self) -> AccessToken:
        """No token.

        Raises:
            LoginNeededError: always.
        """
        raise LoginNeededError(f"{self.login_config.key.shown} is called with the login of each caller alone")

    def refused(self, token: AccessToken) -> None:
        """See `TokenSource`. None was given."""
