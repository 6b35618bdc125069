"""A login for a peer URL of the command line, which a person may make while the bridge runs.

Most peers require no login. So the bridge looks for no login, and sends no token, until a peer refuses a request
without a token. After each refusal the bridge looks once. After a login is found, its token is sent as if the login had
existed at the start (`login_credentials.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import anyio.to_thread

from bridge.errors import BridgeError, reason_of
from bridge.http.client import PeerCredentials, RenewableCredentials
from bridge.identity.logins.login_credentials import LoginConfig, LoginNeededError, LoginToken
from bridge.identity.tokens.oauth import TokenCredentials, TokenSource
from bridge.identity.tokens.token_endpoint import AccessToken, TokenError
from bridge.text.safe_text import shell_word


class LoginPlace(Protocol):
    """Finds the login of one URL. Two places of the same URL are equal."""

    @property
    def display_url(self) -> str:
        """The URL to show to a person."""
        ...

    def find(self) -> LoginConfig | None:
        """The configuration of the login that exists now; None if there is none. This may read files."""
        ...


class LaterLogin(TokenSource):
    """The token of a login that may be made later."""

    def __init__(self, place: LoginPlace, seconds: float) -> None:
        """`seconds` limits the time to get a token."""
        self._place = place
        self._seconds = seconds
        self._tokens: LoginToken | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """See `TokenSource`."""
        return self._place, self._seconds

    @property
    def is_there(self) -> bool:
        """Whether a login was found. If it is deleted afterwards, the peer still requires a login."""
        return self._tokens is not None

    @property
    def if_refused(self) -> str:
        """See `TokenSource`. Empty while no token is sent."""
        return "" if self._tokens is None else self._tokens.if_refused

    async def find(self) -> bool:
        """Look for a login, unless one was found. Returns whether there is one.

        Raises:
            TokenError: the place cannot be read.
        """
        if self._tokens is None:
            try:
                login_config = await anyio.to_thread.run_sync(self._place.find)
            except (BridgeError, OSError) as exc:
                raise TokenError(
                    f"the login at {self._place.display_url} cannot be read: {reason_of(exc)}"
                ) from exc
            if login_config is not None and self._tokens is None:  # another call may have found it meanwhile
                self._tokens = LoginToken(login_config, self._seconds)
                self._tokens.listener = self.listener
        return self.is_there

    async def __call__(self) -> AccessToken:
        """A valid token.

        Raises:
            LoginNeededError: a person has to log in.
            TokenError: the login cannot be read, or the issuer cannot be reached.
        """
        await self.find()
        if self._tokens is None:
            url = self._place.display_url
            raise LoginNeededError(
                f"login needed at {url}: nobody has logged in. Run `mcp-a2a login {shell_word(url)}`"
            )
        return await self._tokens()

    async def lack(self) -> str:
        """Why the found login has no token; empty if it has one, or if no login was found."""
        return "" if self._tokens is None else await self._tokens.lack()

    def refused(self, token: AccessToken) -> None:
        """See `TokenSource`."""
        if self._tokens is not None:
            self._tokens.refused(token)

    async def widened(self, token: AccessToken, scopes: Sequence[str]) -> bool:
        """See `LoginToken.widened`."""
        return self._tokens is not None and await self._tokens.widened(token, scopes)


class LaterCredentials(RenewableCredentials):
    """Credentials without a token until the peer refuses them and a login is found."""

    def __init__(self, login: LaterLogin, known: TokenCredentials, bare: PeerCredentials) -> None:
        """`bare` are the credentials until a login is found, and `known` are the credentials afterwards."""
        self._login = login
        self._known = known
        self._bare = bare
        self._is_refused = False

    async def __call__(self) -> PeerCredentials:
        """The credentials for the next request.

        Raises:
            TokenError: there is a login, but it has no token.
        """
        if not self._login.is_there:
            is_refused, self._is_refused = self._is_refused, False
            if not is_refused or not await self._login.find():
                return self._bare
        return await self._known()

    def refused(self, credentials: PeerCredentials) -> None:
        """Drop the token, or look for a login before the next request."""
        if credentials is self._bare and not self._login.is_there:
            self._is_refused = True
        else:
            self._known.refused(credentials)

    async def widened(self, credentials: PeerCredentials, scopes: Sequence[str]) -> bool:
        """Request more scopes. Returns whether there is another token now, which may have them."""
        return self._login.is_there and await self._known.widened(credentials, scopes)
