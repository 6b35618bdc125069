"""The logins of callers at the servers of one bridge: links for tasks, and the pages that they lead to.

The pages of one replica write a login, and the tasks of all find it where it is kept. A task looks at once when this
process wrote one, and else after pauses: no keeper of logins tells others.

Each process of a bridge deletes what nobody uses any more, when it begins to serve a plan and then daily.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NoReturn

import anyio
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.assembly.admission import Admission
from bridge.assembly.login_links import LoginLink, LoginSeals, start_url
from bridge.assembly.plan import Plan, ProcessPlan
from bridge.concurrency import Backoff, Signal
from bridge.errors import BridgeError, PeerError, reason_of
from bridge.http.login_credentials import LoginWish
from bridge.http.logins import (
    DAY_SECONDS,
    DECLINED,
    OPERATOR,
    USE_NOTED_SECONDS,
    CallerLogins,
    Login,
    LoginKey,
)
from bridge.mcp.client.transports.streamable_http import HttpTarget, ServerTarget
from bridge.seal import key_in, keys_in
from bridge.user_folders import state_folder

logger = logging.getLogger(__name__)

_ANSWER_SECONDS: Final = 30.0
"""How long a server may take for each answer while a browser waits."""

_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 5.0
"""Between looks for a login that another process may have written: a person waits for its task."""


_NOTHING: Final = Response("There is nothing here", 404)


class LoginDesk:
    """The ASGI application of the pages of logins, and the logins of each server."""

    def __init__(
        self,
        place: ProcessPlan,
        own_url: str | None,
        wishes: Callable[[str], LoginWish | None],
        admission: Admission,
    ) -> None:
        """`own_url` is the address for links of a bridge without a public one."""
        self._place = place
        self._own_url = own_url
        self._admission = admission
        self._wishes = wishes
        self._moved = Signal()
        self._is_wanted = False
        """Whether a server wanted a login of each caller so far."""
        self._served = Signal()
        self._kept: Sequence[LoginWish] = ()
        """The logins that the servers of the plan want of each caller."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a browser."""
        await (self._pages if self._is_wanted else _NOTHING)(scope, receive, send)

    def logins_of(self, target: ServerTarget) -> CallerLogins | None:
        """The logins of the callers of a server; None if it wants none of them."""
        wish, base_url = wish_of_each(target), self._place.public_url or self._own_url
        if wish is None or base_url is None:
            return None
        self._is_wanted = True
        return KeptCallerLogins(wish, self._seals, base_url, self._moved, self._admission)

    def serve(self, plan: Plan) -> None:
        """Look after the logins at the servers of this plan from now on."""
        wishes = (wish_of_each(server.target) for server in plan.servers.values())
        self._kept = [wish for wish in wishes if wish is not None]
        self._served.tell()

    async def tend(self) -> NoReturn:
        """Delete the logins of callers that are not used any more, until cancelled."""
        while True:
            served = self._served.next
            for wish in self._kept:
                try:
                    await self._delete_unused(wish)
                except (BridgeError, OSError) as exc:
                    logger.warning(
                        "unused logins at %s could not be deleted, which is tried again in a day: %s",
                        wish.name,
                        reason_of(exc),
                    )
            with anyio.move_on_after(DAY_SECONDS):
                await served.wait()

    async def _delete_unused(self, wish: LoginWish) -> None:
        # A use may be later than its note.
        before = time.time() - wish.keep_seconds - USE_NOTED_SECONDS
        for key, login in (await wish.keeper.all()).logins:
            if key.peer != wish.key.peer or key.principal == OPERATOR or login.last_used >= before:
                continue
            async with wish.keeper.held(key) as held:
                if held.login is not None and held.login.last_used < before:
                    await held.remove()
                    logger.info("deleted the login of %s at %s, which was not used", key.principal, wish.name)

    @cached_property
    def _seals(self) -> LoginSeals:
        # No key is made for a bridge whose servers want no such login.
        return LoginSeals(keys_in(self._place.keys) or [key_in(self._place.state or state_folder())])

    @cached_property
    def _pages(self) -> ASGIApp:
        # Few bridges have such pages, and they load the login flow of the SDK.
        from bridge.assembly.login_pages import LoginPages, LoginPlaces

        places = LoginPlaces(self._wishes, lambda: self._admission.credentials, _ANSWER_SECONDS, self._moved)
        return LoginPages(self._place.web, self._seals, places)


@dataclass(frozen=True)
class KeptCallerLogins:
    """See `CallerLogins`."""

    wish: LoginWish
    seals: LoginSeals
    base_url: str
    moved: Signal
    admission: Admission

    @property
    def link_seconds(self) -> float:
        """See `CallerLogins`."""
        return self.wish.link_seconds

    async def is_there(self, principal: str) -> bool:
        """See `CallerLogins`.

        Raises:
            PeerError: no browser can show that it is this principal, too.
        """
        if principal not in {one.principal.name for one in self.admission.credentials}:
            raise PeerError(
                f"{self.wish.name} wants a login of each caller, and no browser can show that it is {principal}"
            )
        return self._is_usable(await self._found(principal))

    def link(self, principal: str, client: str) -> str:
        """See `CallerLogins`."""
        link = LoginLink(self.wish.name, principal, client, time.time() + self.link_seconds)
        return start_url(self.base_url, self.seals.sealed(link))

    async def settled(self, principal: str) -> bool:
        """See `CallerLogins`."""
        began_at = time.time()
        pauses = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        while True:
            moved = self.moved.next
            login = await self._found(principal)
            if self._is_usable(login):
                return True
            if login is not None and login.lost == DECLINED and login.since >= began_at:
                return False
            with anyio.move_on_after(pauses.next()):
                await moved.wait()

    async def _found(self, principal: str) -> Login | None:
        try:
            return await self.wish.keeper.find(LoginKey(self.wish.key.peer, principal))
        except (BridgeError, OSError) as exc:
            raise PeerError(f"the logins at {self.wish.name} cannot be read: {reason_of(exc)}") from exc

    def _is_usable(self, login: Login | None) -> bool:
        if login is None or login.lost or (self.wish.issuer and login.issuer != self.wish.issuer):
            return False
        return login.refresh_token is not None or login.is_fresh(time.time())


def wish_of_each(target: ServerTarget) -> LoginWish | None:
    """The login that a server wants of each caller; None if it wants none of them."""
    wish = target.oauth if isinstance(target, HttpTarget) else None
    return wish if isinstance(wish, LoginWish) and wish.of_each else None
