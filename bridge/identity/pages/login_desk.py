"""The logins of callers at the servers of one bridge: links for tasks, and the pages that the links lead to.

The pages of any replica may store a login, and the tasks of all replicas read it from the store of logins. When the
process of a task has stored a login, the task reads it at once. Otherwise the task reads the store after pauses,
because the store does not notify other processes.

Each process deletes unused logins when it begins to serve a plan, and then once a day. It also deletes the logins of
principals that a new plan leaves out. Then it revokes the deleted logins at the issuers that support revocation.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, TypeVarTuple

import anyio
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.concurrency import Backoff, Signal, one_at_a_time
from bridge.errors import BridgeError, PeerError, reason_of
from bridge.identity.callers.principals import ISSUER_MARK
from bridge.identity.logins.kept_logins import (
    DAY_SECONDS,
    DECLINED,
    OPERATOR,
    USE_NOTED_SECONDS,
    AwaitedLogin,
    CallerLogins,
    Login,
    LoginKeeper,
    LoginKey,
)
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.identity.logins.login_revocation import revoke
from bridge.identity.pages.login_links import LoginLink, LoginLinkError, LoginSeals, start_url
from bridge.notices import LoginNotice, Notify

if TYPE_CHECKING:
    from bridge.http.request_checks import FaceAddress, TrustedProxies
    from bridge.identity.callers.issuer_login import IssuerLogin
    from bridge.identity.callers.verifiers import Credential
    from bridge.identity.pages.login_pages import FindLead

ArgsT = TypeVarTuple("ArgsT")

logger = logging.getLogger(__name__)

_ANSWER_SECONDS: Final = 30.0
"""How long a server may take for each answer while a browser waits."""

_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 5.0
"""The longest pause between two reads for a login that another process may have stored. It is short, as a person
waits."""

_LATE_SECONDS: Final = 600.0
"""How long after the link has expired a task still uses a login that was made in time. A bridge needs a while to start
again. A call that runs much later would surprise its caller."""

_LOOK_COUNTS_SECONDS: Final = 0.25
"""How long tasks that wait for the same login share the result of one read."""

_LOOK_SECONDS: Final = 20.0
"""The time limit for one read. It is longer than the limit for a connection to a database."""

_FIRST_RETRY_SECONDS: Final = 1.0
"""The first pause before another try to delete the logins of removed principals. The pause grows up to a day, since
nobody may use these logins any more."""

_LOOKS_AT_ONCE: Final = 4
"""The most reads at the same time. With replicas, each read takes a connection to the database."""

_REVOKED_AT_ONCE: Final = 4
"""The most deleted logins that are revoked at the same time."""

_NOTHING: Final = Response("There is nothing here", 404)


@dataclass(frozen=True)
class DeskAddress:
    """The address of the login pages, and the keys that seal their links and cookies."""

    base_url: str | None
    """The address that links begin with; None for a bridge that browsers cannot reach."""
    web: FaceAddress
    proxies: TrustedProxies
    keys: Callable[[], Sequence[bytes]]
    """Returns the keys of the bridge. The first link reads them, or makes them."""


class LoginCallers(Protocol):
    """Who may call the bridge, as far as logins need to know."""

    @property
    def credentials(self) -> Sequence[Credential]:
        """The secrets that are accepted."""

    def can_log_in(self, principal: str) -> bool:
        """Whether a person in a browser can prove to be this principal, by its token or at its issuer."""

    def voucher_of(self, principal: str) -> str:
        """The identity of the issuer that vouches for the principal; empty for a principal of the file."""

    def login_at(self, principal: str) -> IssuerLogin | None:
        """The login at the issuer of a principal; None if no issuer can identify the principal."""


@dataclass(frozen=True)
class KnownPrincipals:
    """The principals of a plan: the principals of the file by name, and the issuers of all others by name and
    identity."""

    names: frozenset[str] = frozenset()
    issuers: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.names or self.issuers)

    def without(self, others: KnownPrincipals) -> KnownPrincipals:
        """The principals that `others` lacks. The same name of another issuer is another principal."""
        left = {name: issuer for name, issuer in self.issuers.items() if others.issuers.get(name) != issuer}
        return KnownPrincipals(self.names - others.names, left)

    def left_behind(self, key: LoginKey, login: Login, now: KnownPrincipals) -> bool:
        """Whether the principal of a login was removed: it is in this set, and not in `now`. A login that does not name
        the issuer of its principal counts as a login of this set."""
        issuer, mark, _ = key.principal.partition(ISSUER_MARK)
        if not mark:
            return key.principal in self.names - now.names
        was = self.issuers.get(issuer)
        return was is not None and (login.vouched_by or was) == was != now.issuers.get(issuer)


class LoginDesk:
    """The ASGI application of the pages of logins, and the logins of each server."""

    def __init__(
        self,
        address: DeskAddress,
        callers: LoginCallers,
        find_lead: FindLead,
        notify: Notify,
        refused: Callable[[str], None],
    ) -> None:
        """`notify` gets a notice of each event of a login. `refused` gets the error of each request from an unknown
        sender. The other arguments are those of `LoginPlaces`."""
        self._address = address
        self._callers = callers
        self._find_lead = find_lead
        self._notify = notify
        self._refused = refused
        self._moved = Signal()
        self._looks = LoginLooks(self._moved)
        self._is_wanted = False
        """Whether any server has wanted a login of each caller since the start."""
        self._served = Signal()
        self._kept: Mapping[str, LoginConfig] = {}
        """The logins that the peers of the plan want of each caller, by the tables of the peers in the file."""
        self._left = frozenset[tuple[str, str]]()
        """The tables and peers of logins that earlier plans wanted and this plan does not want."""
        self._known = KnownPrincipals()
        """The principals of the plan."""
        self._leaving: list[tuple[LoginConfig, KnownPrincipals]] = []
        """Removed principals, each with a server at which their logins are still to be deleted."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a browser."""
        await (self._pages if self._is_wanted else _NOTHING)(scope, receive, send)

    def logins_at(self, login_config: LoginConfig) -> CallerLogins | None:
        """The logins of callers at a peer that wants a login of each; None if this bridge has no address for links."""
        if self._address.base_url is None:
            return None
        self._is_wanted = True
        return KeptCallerLogins(
            login_config, self._seals, self._address.base_url, self._looks, self._callers, self._has_left
        )

    def serve(self, login_configs: Mapping[str, LoginConfig], principals: KnownPrincipals) -> None:
        """Set the logins that the peers of a plan want, by their tables in the file, and delete the logins of
        principals that the plan lacks."""
        before, configured, known = tuple(self._kept.values()), tuple(login_configs.values()), self._known
        self._kept = login_configs
        self._left = (self._left | _peers_of(before)) - _peers_of(configured)
        self._known = principals
        if gone := known.without(self._known):
            self._leaving += [(login_config, gone) for login_config in dict.fromkeys((*before, *configured))]
        self._served.notify()
        self._moved.notify()

    def _has_left(self, login_config: LoginConfig) -> bool:
        """Whether the plan no longer wants this login, because its server has another URL or is gone."""
        return (login_config.table, login_config.key.peer) in self._left

    async def tend(self) -> NoReturn:
        """Delete the logins of removed principals, and logins that nobody uses, until cancelled."""
        pauses = Backoff(_FIRST_RETRY_SECONDS, DAY_SECONDS)
        while True:
            served = self._served.next
            leaving, self._leaving = self._leaving, []
            for login_config, gone in leaving:
                if not await self._tried(self._delete_of, login_config, gone):
                    self._leaving.append((login_config, gone))
            for login_config in tuple(self._kept.values()):
                await self._tried(self._delete_unused, login_config)
            if not self._leaving:
                pauses.reset()
            with anyio.move_on_after(pauses.next() if self._leaving else DAY_SECONDS):
                await served.wait()

    async def _tried(
        self,
        delete: Callable[[LoginConfig, *ArgsT], Awaitable[None]],
        login_config: LoginConfig,
        *args: *ArgsT,
    ) -> bool:
        try:
            await delete(login_config, *args)
        except (BridgeError, OSError) as exc:
            words = "logins at %s could not be deleted, and the bridge tries again: %s"
            logger.warning(words, login_config.name, reason_of(exc))
            return False
        return True

    async def _delete_of(self, login_config: LoginConfig, gone: KnownPrincipals) -> None:
        """Delete the logins of these principals, unless they have come back."""
        await self._delete(
            login_config,
            lambda key, login: gone.left_behind(key, login, self._known),
            "is no principal any more",
        )

    async def _delete_unused(self, login_config: LoginConfig) -> None:
        # The last use may be later than the last note of a use.
        before = time.time() - login_config.keep_seconds - USE_NOTED_SECONDS
        await self._delete(login_config, lambda _, login: login.last_used < before, "has not used it")

    async def _delete(
        self, login_config: LoginConfig, is_over: Callable[[LoginKey, Login], bool], why: str
    ) -> None:
        """Delete the logins at a server for which `is_over` is true. It is checked again after the login is locked."""
        deleted: list[tuple[LoginKey, Login]] = []
        try:
            for key, login in (await login_config.keeper.all()).logins:
                if key.peer != login_config.key.peer or key.principal == OPERATOR or not is_over(key, login):
                    continue
                async with login_config.keeper.held(key) as held:
                    if (over := held.login) is not None and is_over(key, over):
                        await held.remove()
                        deleted.append((key, over))
                        logger.info(
                            "deleted the login of %s at %s, who %s", key.principal, login_config.name, why
                        )
                        self._notify(LoginNotice(login_config.name, "deleted", key.principal))
        finally:  # a slow issuer delays no deletion
            await _revoke_all(login_config, deleted)

    @cached_property
    def _seals(self) -> LoginSeals:
        # The keys are read late: a bridge without such logins needs none, and would make one.
        return LoginSeals(self._address.keys())

    @cached_property
    def _pages(self) -> ASGIApp:
        # The import loads the login flow of the SDK, which few bridges need.
        from bridge.identity.pages.login_pages import LoginPages, LoginPlaces

        places = LoginPlaces(
            lambda table: self._kept.get(table),  # noqa: PLW0108 - another plan replaces the logins
            lambda: self._callers.credentials,
            self._callers.login_at,
            self._find_lead,
            _ANSWER_SECONDS,
            self._moved,
            self._notify,
            self._refused,
        )
        return LoginPages(self._address.web, self._seals, places, self._address.proxies)


async def _revoke_all(login_config: LoginConfig, deleted: Sequence[tuple[LoginKey, Login]]) -> None:
    """Revoke the tokens of deleted logins, and log each failure."""
    places = anyio.CapacityLimiter(_REVOKED_AT_ONCE)

    async def forget(key: LoginKey, login: Login) -> None:
        async with places:
            why = await revoke(login_config, login)
        if why:
            logger.warning(
                "not all tokens of %s at %s are revoked: %s", key.principal, login_config.name, why
            )

    async with anyio.create_task_group() as group:
        for key, login in deleted:
            group.start_soon(forget, key, login)


@dataclass(frozen=True, slots=True)
class _Look:
    login: Login | None
    at: float
    until: asyncio.Event
    """Set when this process writes a login."""


class LoginLooks:
    """Reads the logins that tasks wait for. Tasks that wait for the same login share a read; there are a few reads a
    second."""

    def __init__(self, moved: Signal) -> None:
        """`moved` is notified when this process stores a login."""
        self.moved = moved
        self._looking: dict[tuple[LoginKeeper, LoginKey], Signal] = {}
        self._latest: dict[tuple[LoginKeeper, LoginKey], _Look] = {}

    @cached_property
    def _places(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(_LOOKS_AT_ONCE)

    async def find(self, keeper: LoginKeeper, key: LoginKey, not_before: float) -> Login | None:
        """See `LoginKeeper.find`. A read counts if it began at `not_before`, by the clock of the event loop, or later:
        another process may have deleted the login after an earlier read.

        Raises:
            TimeoutError: the place of the logins does not answer.
        """
        async with one_at_a_time(self._looking, (keeper, key)):
            look = self._latest.get((keeper, key))
            if look is None or look.at < not_before or not self._counts(look):
                async with self._places:
                    until, at = self.moved.next, anyio.current_time()
                    with anyio.fail_after(_LOOK_SECONDS):
                        look = _Look(await keeper.find(key), at, until)
                self._latest = {key_: latest for key_, latest in self._latest.items() if self._counts(latest)}
                self._latest[keeper, key] = look
            return look.login

    def _counts(self, look: _Look) -> bool:
        return not look.until.is_set() and anyio.current_time() - look.at < _LOOK_COUNTS_SECONDS


@dataclass(frozen=True)
class KeptCallerLogins:
    """See `CallerLogins`."""

    login_config: LoginConfig
    seals: LoginSeals
    base_url: str
    looks: LoginLooks
    callers: LoginCallers
    has_left: Callable[[LoginConfig], bool]

    @property
    def link_seconds(self) -> float:
        """See `CallerLogins`."""
        return self.login_config.link_seconds

    async def usable_since(self, principal: str, after: float = 0.0) -> float | None:
        """See `CallerLogins`.

        Raises:
            PeerError: no browser can show that it is this principal; or the logins cannot be read.
        """
        if not self.callers.can_log_in(principal):
            raise PeerError(
                f"{self.login_config.name} needs a login of each caller, and {principal} cannot log in with a browser"
            )
        login = await self._found(principal)
        return login.since if login is not None and self._is_usable(login, principal, after) else None

    def voucher_of(self, principal: str) -> str:
        """See `CallerLogins`."""
        return self.callers.voucher_of(principal)

    def link(self, principal: str, client: str) -> str:
        """See `CallerLogins`."""
        expires_at = time.time() + self.link_seconds
        link = LoginLink(self.login_config.table, principal, client, expires_at, self.voucher_of(principal))
        return start_url(self.base_url, self.seals.sealed(link))

    def sealed(self, awaited: AwaitedLogin) -> str:
        """See `CallerLogins`."""
        return self.seals.sealed(awaited)

    def awaited(self, proof: str) -> AwaitedLogin | None:
        """See `CallerLogins`."""
        try:
            return self.seals.awaited(proof)
        except LoginLinkError:
            return None

    async def settled(self, awaited: AwaitedLogin, *, is_patient: bool) -> bool | None:
        """See `CallerLogins`."""
        over_at = awaited.expires_at + self.login_config.late_seconds
        pauses, begun_at = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS), anyio.current_time()
        while time.time() < over_at + _LATE_SECONDS:
            if awaited.vouched_by not in ("", self.voucher_of(awaited.principal)):
                return None  # the name belongs to another principal now
            if self.has_left(self.login_config):
                return None  # a new login would be a login at another server
            moved = self.looks.moved.next
            try:
                login = await self.looks.find(
                    self.login_config.keeper, self._key(awaited.principal), begun_at
                )
            except (
                BridgeError,
                OSError,
            ) as exc:  # the person takes minutes, and a database may be back by then
                logger.info("the login of %s is read again: %s", awaited.principal, self._unreadable(exc))
                login = None
            if login is not None and login.since < over_at:
                if self._is_usable(login, awaited.principal, awaited.after):
                    return True
                declined_at = login.since if login.lost == DECLINED else login.declined_at
                if declined_at is not None and declined_at >= awaited.asked_at:
                    return False
            left_seconds = (over_at if is_patient else awaited.expires_at) - time.time()
            if left_seconds <= 0:
                break
            with anyio.move_on_after(min(pauses.next(), left_seconds)):
                await moved.wait()
        return None

    async def _found(self, principal: str) -> Login | None:
        try:
            return await self.login_config.keeper.find(self._key(principal))
        except (BridgeError, OSError) as exc:
            raise self._unreadable(exc) from exc

    def _key(self, principal: str) -> LoginKey:
        return LoginKey(self.login_config.key.peer, principal)

    def _unreadable(self, exc: Exception) -> PeerError:
        return PeerError(f"the logins at {self.login_config.name} cannot be read: {reason_of(exc)}")

    def _is_usable(self, login: Login, principal: str, after: float) -> bool:
        if login.since <= after or login.vouched_by not in ("", self.voucher_of(principal)):
            return False
        if login.lost or (self.login_config.issuer and login.issuer != self.login_config.issuer):
            return False
        return login.refresh_token is not None or login.is_fresh(time.time())


def _peers_of(login_configs: Sequence[LoginConfig]) -> frozenset[tuple[str, str]]:
    return frozenset((login_config.table, login_config.key.peer) for login_config in login_configs)
