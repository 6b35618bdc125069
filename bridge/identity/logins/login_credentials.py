"""The access token of a login. One process renews it for all processes and replicas.

A refresh token may be valid for one use only. So a process locks the login before it renews the token, reads the login
again, and writes the answer before using it. It also writes a note before it sends the refresh token. If a process
finds such a note, another process crashed meanwhile and may have used the token; an error then says so.

A person has to log in only if a token cannot be renewed. The request does not wait: it fails with the command to run.
It also fails if the peer asks for more scopes, which a refresh cannot add. They are stored for the next login, and the
current login serves all other requests.

Spec: RFC 6749 section 6 (refresh), RFC 9700 section 4.14 (rotation), RFC 8707 (resource indicators).
"""

from __future__ import annotations

import base64
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal
from urllib.parse import quote_plus, urlsplit

import anyio

from bridge.errors import BridgeError, reason_of
from bridge.http.client import GuardedClient, PeerCredentials, certified_by
from bridge.http.tls import PeerTls
from bridge.identity.logins.kept_logins import (
    OPERATOR,
    USE_NOTED_SECONDS,
    HeldLogin,
    Login,
    LoginKeeper,
    LoginKey,
    PeerKind,
    peer_of,
)
from bridge.identity.tokens.oauth import PlaceToken, TokenCredentials, TokenSource
from bridge.identity.tokens.token_endpoint import (
    AccessToken,
    TokenError,
    UnsentError,
    access_token_in,
    is_same_issuer,
    issuer_answer,
    issuer_guard,
    union_of,
)
from bridge.notices import LoginNotice, LoginTaken, TokenNotice, TokenOutcome
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import shell_word, with_visible_characters

logger = logging.getLogger(__name__)

_LONGEST_WORDS: Final = 300
"""The most characters of an authorization server's words that a message repeats."""

_WRITE_SECONDS: Final = 10.0
"""How long writing the answer to a refresh may take, even if the caller has gone."""

_WANTED_MOST: Final = 100
"""The most scopes to store for the next login, since a peer may name new scopes without end."""

_LOOK_AGAIN_SECONDS: Final = 30.0
"""How long a caller's login is used before it is read again from its store. A new call reads it anyway, so this matters
for work without a new call, such as following a task. It also applies to an operator's login whose token never
expires."""

_FINAL: Final = frozenset({"invalid_grant", "invalid_client", "unauthorized_client"})
"""The errors after which the refresh token is not tried again (RFC 6749 section 5.2)."""


class LoginNeededError(TokenError):
    """A person has to log in. The message names the command."""


class ScopesNeededError(LoginNeededError):
    """A person has to log in with more scopes for this request. Requests that need no more scopes still succeed."""


@dataclass(frozen=True)
class LoginConfig:
    """The configuration of the login that a peer needs."""

    url: str = field(repr=False)
    """The URL of the peer. Its query may hold a key."""
    keeper: LoginKeeper = field(repr=False, compare=False)
    """Stores logins. Replicas with the same configuration file may store logins in different places, like other
    state."""
    name: str = ""
    """The name of this peer for the command `login`; empty to name its URL."""
    principal: str = OPERATOR
    issuer: str = ""
    """The only issuer at which the person may log in; empty for the issuer that the peer names."""
    client_id: str = ""
    """The registered client; empty to register a client, or to use `client_metadata_url`."""
    secret: str = field(default="", repr=False)
    method: Literal["basic", "post"] = "basic"
    client_metadata_url: str = ""
    scopes: tuple[str, ...] = ()
    """The scopes; empty for the scopes that the peer asks for."""
    resource: str | None = None
    """The resource indicator; None for the URL of the peer, empty to send none."""
    pkce: Literal["required", "assume"] = "required"
    allow_private: bool = False
    kind: PeerKind | None = "tool_servers"
    """The table of the peer in a file; None for a URL whose kind of peer is not known yet."""
    tls: PeerTls | None = None
    """The client certificate for the peer, and the authorities that may issue the peer's certificate."""
    issuer_tls: PeerTls | None = None
    """The same for the issuer. If this is set, `issuer` is set, too."""
    trusted: frozenset[str] = frozenset()
    """Origins, besides the peer's origin, to which the bridge may send the token for an agent."""
    uses_proxy: bool = True
    """Whether the peer is reached through the proxy of the environment."""
    of_each: bool = False
    """Whether each principal needs its own login. Then the operator's login only lists the tools, and serves no
    caller."""
    link_seconds: float = 0.0
    """Lifetime of the link to the login of a principal."""
    late_seconds: float = 0.0
    """Grace period for logins that began before the link expired."""
    keep_seconds: float = math.inf
    """How long the login of a principal is kept without use."""

    @property
    def key(self) -> LoginKey:
        """The key under which the login is stored."""
        return LoginKey(peer_of(self.url), self.principal)

    def certified(self, url: str, *, is_of_issuer: bool = False) -> dict[str, Any]:
        """The extensions of a request to a URL: the client certificate to send, if any. `is_of_issuer` says whether the
        URL comes from the issuer's metadata."""
        return certified_by(url, self._tls_at(url, is_of_issuer=is_of_issuer))

    def shows_certificate(self, url: str, *, is_of_issuer: bool) -> bool:
        """Whether a request to a URL sends a client certificate. `is_of_issuer` is as for `certified`."""
        tls = self._tls_at(url, is_of_issuer=is_of_issuer)
        return tls is not None and tls.certificate is not None

    def _tls_at(self, url: str, *, is_of_issuer: bool) -> PeerTls | None:
        place, own, issuer = (_place(address) for address in (url, self.url, self.issuer))
        if place == own and self.tls is not None:
            return self.tls
        return self.issuer_tls if is_of_issuer or place == issuer else None

    @property
    def table(self) -> str:
        """The name of the peer's table in the configuration file, such as `agents.clerk`."""
        return f"{self.kind}.{self.name}"

    @property
    def remedy(self) -> str:
        """What a person has to do to log in."""
        if self.principal != OPERATOR:
            ask = "Call one of its tools" if self.kind == "agents" else "Send a message"
            return f"{ask} to get a link to log in with"
        return f"Run `mcp-a2a login {shell_word(self.name or self.key.url)}`"


def _place(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
    except ValueError:  # of a peer
        return "", ""
    return parts.scheme, parts.netloc


class LoginToken(TokenSource):
    """The token of a login. A caller's source is bound to the first login that it finds, and never gives out a token of
    a later login: the caller may have used another account then, and work that began with one account must not continue
    with another."""

    def __init__(
        self, login_config: LoginConfig, seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`seconds` limits the time to get a token."""
        self.login_config = login_config
        self._seconds = seconds
        self._now = now
        self._lock = anyio.Lock()
        self._current: tuple[AccessToken, Login] | None = None
        self._looked_at = -math.inf
        self._since: float | None = None
        """When the login that this source is bound to was made; None until it is bound."""
        self.is_replaced = False
        """Whether another login has replaced the caller's login."""
        self._refused = ""
        self._told_since: float | None = None
        """When the login of the last `LoginTaken` notice was made."""

    @property
    def key(self) -> tuple[object, ...]:
        """See `TokenSource`."""
        return self.login_config, self._seconds

    @property
    def if_refused(self) -> str:
        """See `TokenSource`."""
        words = "The peer does not accept the token of the login: check `resource` and `scopes`"
        return f"{words}. {self.login_config.remedy}"

    async def __call__(self) -> AccessToken:
        """A valid token.

        Raises:
            LoginNeededError: a person has to log in.
            TokenError: the login cannot be read, or the issuer cannot be reached.
        """
        async with self._turn():
            return await self._fresh()

    async def lack(self) -> str:
        """Why there is no token, usually because a person has to log in; empty if there is a token."""
        try:
            await self()
        except TokenError as exc:
            return str(exc)
        return ""

    @property
    def is_callers(self) -> bool:
        """Whether the login belongs to a caller, not to the operator."""
        return self.login_config.principal != OPERATOR

    def bind(self, since: float | None) -> bool:
        """Bind this source to the login that was made at `since`, and give out tokens of no other login.

        Returns whether the source is bound to this login now. A bound source stays bound. None means that there is no
        login."""
        if self._since is None and since is not None:
            self._since = since
        return self._since == since

    def look_again(self) -> None:
        """Read the login again before the next token: it may be deleted."""
        self._looked_at = -math.inf

    def refused(self, token: AccessToken) -> None:
        """Drop this token: the peer refused it."""
        if self._current is not None and self._current[0] is token:
            self._refused = token.value
            self._current = None

    async def widened(self, token: AccessToken, scopes: Sequence[str]) -> bool:
        """Whether somebody has logged in with these scopes meanwhile. If not, store the scopes for the next login.

        Raises:
            ScopesNeededError: a person has to log in for them.
            TokenError: the login cannot be read or written.
        """
        async with self._turn():
            if self._current is None or self._current[0] is not token:
                return True
            missing = set(scopes) - set(self._current[1].scopes)
            if not missing:  # the token has the scopes already, so a new login does not help
                return False
            async with self.login_config.keeper.held(self.login_config.key) as held:
                login = self._usable(held.login)
                if missing <= set(login.scopes):
                    self._current = None
                    return True
                # The next login requests the configured scopes and these. So these include what earlier logins have
                # added.
                added = [
                    scope
                    for scope in login.scopes
                    if self.login_config.scopes and scope not in self.login_config.scopes
                ]
                wanted = union_of(scopes, login.wanted_scopes, added)[:_WANTED_MOST]
                if set(wanted) != set(login.wanted_scopes):
                    await held.write(replace(login, wanted_scopes=wanted))
            words = f"the server wants the scopes {' '.join(scopes)} for this"
            raise ScopesNeededError(str(self._needed(words)))

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        try:
            with anyio.fail_after(self._seconds):
                async with self._lock:
                    yield
        except TimeoutError as exc:
            raise TokenError(
                f"the login at {self.login_config.key.url} took more than {self._seconds:g} s"
            ) from exc
        except TokenError:
            raise
        except (BridgeError, OSError) as exc:
            raise TokenError(
                f"the login at {self.login_config.key.url} cannot be read: {reason_of(exc)}"
            ) from exc

    async def _fresh(self) -> AccessToken:
        if self._current is None or not self._is_ready(self._current[1]) or self._is_to_look:
            began = self._now()
            login = self._usable(await self._kept())
            if not self._is_ready(login):
                async with self.login_config.keeper.held(self.login_config.key) as held:
                    login = await self._noted(held, await self._renewed(held))
            self._looked_at, self._since = began, login.since
            token, known = AccessToken(login.access_token, scopes=login.scopes), self._current
            self._current = known[0] if known is not None and known[0] == token else token, login
            if self.login_config.principal == OPERATOR and login.since != self._told_since:
                self._told_since = login.since
                self.listener.notify(LoginTaken(self.listener.peer, login.since))
        return self._current[0]

    async def _kept(self) -> Login | None:
        """The stored login. If the store is unavailable, the operator's login is used from memory while its token is
        valid."""
        try:
            return await self.login_config.keeper.find(self.login_config.key)
        except (BridgeError, OSError) as exc:
            known = self._current
            if self.is_callers or known is None or not self._is_ready(known[1]):
                raise
            logger.info(
                "the login at %s cannot be read, and its last token is used: %s",
                self.login_config.key.url,
                reason_of(exc),
            )
            return known[1]

    @property
    def _is_to_look(self) -> bool:
        lasts = self._current is not None and self._current[1].expires_at is None
        return (self.is_callers or lasts) and self._now() - self._looked_at >= _LOOK_AGAIN_SECONDS

    def _is_ready(self, login: Login) -> bool:
        return self._is_good(login) and self._is_use_noted(login)

    def _is_use_noted(self, login: Login) -> bool:
        return not self.is_callers or time.time() < login.last_used + USE_NOTED_SECONDS

    async def _noted(self, held: HeldLogin, login: Login) -> Login:
        """The login with the time of this use, which is written unless a recent use is stored."""
        if self._is_use_noted(login):
            return login
        used = replace(login, used_at=time.time())
        await held.write(used)
        return used

    def _is_good(self, login: Login) -> bool:
        return login.is_fresh(time.time()) and login.access_token != self._refused

    def _usable(self, login: Login | None) -> Login:
        """The login, if the current configuration of the peer allows its use."""
        if login is None:
            raise self._needed("nobody has logged in")
        if login.lost:
            raise self._needed(login.lost)
        if self.login_config.issuer and not is_same_issuer(login.issuer, self.login_config.issuer):
            raise self._needed(
                f"the login is at {login.issuer}, but the configuration names {self.login_config.issuer}"
            )
        if self.is_callers and self._since not in (None, login.since):
            self.is_replaced = True
            raise self._needed("another login has replaced the login that this call began with")
        return login

    async def _renewed(self, held: HeldLogin) -> Login:
        """Renew the access token and write the login, unless another process has renewed it meanwhile."""
        login = self._usable(held.login)
        if self._is_good(login):
            return login
        if login.refresh_token is None:
            why = (
                "the access token was refused"
                if login.is_fresh(time.time())
                else "the access token has expired"
            )
            lost = f"{why}, and {login.issuer} gave no refresh token"
            if self.is_callers:  # the caller is asked to log in again only after this login is marked as lost
                await self._lose(held, login, lost)
            raise self._needed(lost)
        # After the refresh token is sent, the answer must be written even if the caller has gone.
        with anyio.fail_after(self._seconds + _WRITE_SECONDS, shield=True):
            return await self._exchanged(held, login, login.refresh_token)

    async def _exchanged(self, held: HeldLogin, login: Login, refresh_token: str) -> Login:
        doubt = ""
        if login.renewing_since is not None:
            doubt = (
                f" (a refresh that began at {_shown_time(login.renewing_since)} got no answer: the bridge or the"
                " connection ended. So the refresh token may be used up)"
            )
            logger.warning("the login at %s is renewed once more%s", self.login_config.key.url, doubt)
        await held.write(replace(login, renewing_since=time.time()))
        began = time.perf_counter()
        outcome: TokenOutcome = "failed"
        try:
            with anyio.fail_after(self._seconds):
                answer = await _refresh(self.login_config, login, refresh_token)
            outcome = "given"
        except UnsentError:
            await held.write(login)
            raise
        except _RefreshRefusedError as exc:
            outcome = "refused"
            if not exc.is_final:
                await held.write(login)
                raise TokenError(str(exc)) from exc
            lost = f"{exc}{doubt}"
            await self._lose(held, login, lost)
            raise self._needed(lost) from exc
        finally:
            seconds = time.perf_counter() - began
            notice = TokenNotice(
                self.listener.peer, "refresh_token", outcome, seconds, self.login_config.principal
            )
            self.listener.notify(notice)
        try:
            renewed = with_tokens(login, answer, time.time())
        except TokenError:
            # The refresh token is used up. The answer may have a new refresh token although its access token is
            # unusable.
            following = _refresh_token_in(answer) or refresh_token
            await held.write(replace(login, refresh_token=following, renewing_since=None))
            raise
        await held.write(renewed)
        return renewed

    async def _lose(self, held: HeldLogin, login: Login, lost: str) -> None:
        await held.write(replace(login, renewing_since=None, refresh_token=None, lost=lost))
        self.listener.notify(LoginNotice(self.listener.peer, "lost", self.login_config.principal))

    def _needed(self, why: str) -> LoginNeededError:
        return LoginNeededError(
            f"login needed at {self.login_config.key.url}: {why}. {self.login_config.remedy}"
        )


class OpenCredentials(TokenCredentials):
    """Credentials for a resource that may be public, such as a card: without a login the request has no token."""

    def __init__(self, tokens: TokenSource, place: PlaceToken, bare: PeerCredentials) -> None:
        """`bare` are the credentials without a token."""
        super().__init__(tokens, place)
        self._bare = bare
        self._needed: LoginNeededError | None = None

    async def __call__(self) -> PeerCredentials:
        """The credentials, with a token if there is a login.

        Raises:
            TokenError: there is a login, but its token cannot be obtained now.
        """
        try:
            return await super().__call__()
        except LoginNeededError as exc:
            self._needed = exc
            return self._bare

    def refused(self, credentials: PeerCredentials) -> None:
        """Drop the token.

        Raises:
            LoginNeededError: no token was sent, and the resource is not public.
        """
        if credentials is self._bare and self._needed is not None:
            raise self._needed
        super().refused(credentials)

    async def widened(self, credentials: PeerCredentials, scopes: Sequence[str]) -> bool:
        """Request more scopes. Returns whether there is another token now, which may have them."""
        return credentials is not self._bare and await super().widened(credentials, scopes)


class _RefreshRefusedError(Exception):
    def __init__(self, words: str, *, is_final: bool) -> None:
        super().__init__(words)
        self.is_final = is_final


def with_tokens(login: Login, answer: JsonObject, now: float) -> Login:
    """The login with the tokens of an answer. If the answer has no refresh token, the old refresh token stays (RFC 6749
    section 6).

    Raises:
        TokenError: there is no access token, or no header can carry it.
    """
    token = access_token_in(answer, login.issuer)
    return replace(
        login,
        access_token=token.value,
        refresh_token=_refresh_token_in(answer) or login.refresh_token,
        expires_at=now + token.life_seconds if math.isfinite(token.life_seconds) else None,
        got_at=now,
        scopes=token.scopes or login.scopes,
        renewing_since=None,
        lost="",
    )


def _refresh_token_in(answer: JsonObject) -> str | None:
    """The refresh token in an answer; None if there is none, or it has invalid characters (RFC 6749 appendix A.17)."""
    token = answer.get("refresh_token")
    return token if isinstance(token, str) and token.isascii() and token.isprintable() and token else None


async def _refresh(login_config: LoginConfig, login: Login, refresh_token: str) -> JsonObject:
    """Send the refresh token to the token endpoint of the login, or to the refresh URL that an agent's card named."""
    form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
    there = replace(login, token_url=login.refresh_url or login.token_url)
    status, answer = await token_answer(login_config, there, form)
    if status == 200 and answer is not None:
        return answer
    refusal = f"{login.issuer} renewed no token: {words_of_refusal(status, answer)}"
    error = (answer or {}).get("error")
    if not error:
        raise TokenError(refusal)  # the refresh token may or may not be used up
    raise _RefreshRefusedError(refusal, is_final=isinstance(error, str) and error in _FINAL)


def words_of_refusal(status: int, answer: JsonObject | None) -> str:
    """The reason of a token endpoint for its refusal."""
    texts = [str(text) for key in ("error", "error_description") if (text := (answer or {}).get(key))]
    return with_visible_characters(": ".join(texts)[:_LONGEST_WORDS], in_one_line=True) or f"HTTP {status}"


async def token_answer(
    login_config: LoginConfig, login: Login, grant: Mapping[str, str]
) -> tuple[int, JsonObject | None]:
    """Send a grant to the token endpoint of a login. Returns the status and the JSON object in the body, if any.
    Raises: UnsentError: the grant was not sent. TokenError: it is unknown whether the grant was used.
    """
    form = dict(grant)
    if login.resource:
        form["resource"] = login.resource
    proof, headers = proof_of_client(login_config, login)
    form |= proof
    allow_private = allows_private(login_config, login)
    guard = issuer_guard(
        login.token_url, (login_config.url, login_config.issuer), allow_private=allow_private
    )
    async with GuardedClient(timeout=None) as http:
        certified = login_config.certified(login.token_url, is_of_issuer=True)
        return await issuer_answer(http, login.token_url, guard, form, headers, certified)


def allows_private(login_config: LoginConfig, login: Login) -> bool:
    """Whether the issuer of a login may be at a private address. For a peer that is not in the file, the login itself
    has this value."""
    return login_config.allow_private or (not login_config.name and login.allow_private)


def proof_of_client(login_config: LoginConfig, login: Login) -> tuple[dict[str, str], dict[str, str]]:
    """The form fields and the headers that authenticate the client of a login. If the configured client is the same,
    its secret precedes the secret of the login, since the operator may have replaced the secret."""
    secret, method = login.client_secret, login.client_auth
    is_same_client = (
        is_same_issuer(login_config.issuer, login.issuer) and login_config.client_id == login.client_id
    )
    if login_config.secret and is_same_client:
        secret, method = login_config.secret, login_config.method
    if method == "basic":
        pair = f"{quote_plus(login.client_id)}:{quote_plus(secret)}"
        return {}, {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return {"client_id": login.client_id, **({"client_secret": secret} if method == "post" else {})}, {}


def _shown_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
