"""Asks a caller to log in before its call goes to an agent that wants a login of each caller.

A caller without a login gets a link to a page of this bridge. A host that can open URLs is asked to open the link, and
the call goes on by itself once the login is there. Any other host gets the link in words, and calls again.

An agent may refuse the message with the current login, because the login was lost or lacks scopes. Then the host is
asked for a login again.

No state is kept meanwhile. The requestState that a host returns (MCP 2026-07-28) proves when the host was asked, so
that only a later refusal on the page counts.

Spec: MCP 2025-11-25 and 2026-07-28 elicitation (URL mode): `accept` means only that the URL was opened.
"""

from __future__ import annotations

import time
from typing import Final
from uuid import uuid4

from bridge import trace
from bridge.agents_as_tools.tool_results import failure
from bridge.errors import PeerError
from bridge.identity.logins.kept_logins import REFUSED_LOGINS_MOST, AwaitedLogin, CallerLogins, client_at
from bridge.mcp.server.face import IncomingCall
from bridge.remotes.remote_agent import RemoteAgent
from bridge.text.jsonvalues import JsonObject

_KEY: Final = "login"
_WANTED: Final = "{} wants you to log in"
_IN_WORDS: Final = (
    "{} wants you to log in first. It was not called. Open {} in a browser within {:g} minutes, and"
    " call the tool again"
)
_NOT_YET: Final = (
    "{} still wants you to log in. Call the tool again once you have done so, by the link that you got"
)
_DECLINED: Final = "You declined to log in at {}, so it was not called"


class CallerLoginRound:
    """The caller's login for one round of a call."""

    def __init__(self, agent: RemoteAgent, incoming: IncomingCall, digest: bytes, face: str) -> None:
        """`digest` identifies the call, and `face` is the name of the MCP server that was called."""
        self._agent = agent
        self._face = face
        self._incoming = incoming
        self._digest = digest.hex()
        self._logins = agent.caller_logins
        self._asked = self._returned_login()
        self.state = None if self._asked is not None else incoming.request_state
        """The request state if it belongs to another question than the login; else None."""
        self._after = 0.0 if self._asked is None else self._asked.after
        """The time of the login that the agent refused. The next login has to be later."""
        self._since: float | None = None
        """The time of the login that the call uses."""
        # The refusals of earlier rounds are not counted, so after any of them the next refusal is final.
        self._refusals = REFUSED_LOGINS_MOST if self._after else 0
        self.unanswered: JsonObject | None = None
        """The result that the host gets if it takes too long to answer."""

    def _returned_login(self) -> AwaitedLogin | None:
        state = self._incoming.request_state
        login = None if self._logins is None or state is None else self._logins.awaited(state)
        if login is None or (login.principal, login.call) != (self._incoming.principal, self._digest):
            return None
        return login

    async def passed(self) -> JsonObject | None:
        """None if the call may go on: the caller has a login, or the agent wants none. Else the result that the host
        gets.

        Raises:
            PeerError: the stored logins cannot be read, or no browser can show who the caller is.
        """
        logins = self._logins
        if logins is None or self.state is not None:
            return None
        if self._asked is not None and (hop := trace.hop.get()) is not None:
            hop.is_answer = False  # the host's answer about the link goes to no peer
        while not await self._has_login(logins):
            login, self._asked = self._asked, None
            outcome = None if login is None else await self._outcome(logins, login)
            if outcome is None:
                outcome = await self._ask(logins)
            if isinstance(outcome, dict):
                return outcome
        return None

    async def _has_login(self, logins: CallerLogins) -> bool:
        """Whether the caller has a usable login. From now on, only this login is used from memory."""
        self._since = await logins.usable_since(self._incoming.principal, self._after)
        self._agent.keep_login(self._incoming.principal, self._since)
        return self._since is not None

    def refused(self) -> bool:
        """Note that the agent refused the call with the current login, before it took anything. Returns whether the
        host may be asked for another login."""
        if self._since is None or self._refusals >= REFUSED_LOGINS_MOST:
            return False
        self._after, self._refusals = self._since, self._refusals + 1
        return True

    async def _outcome(self, logins: CallerLogins, login: AwaitedLogin) -> JsonObject | bool | None:
        """The outcome of a question: True for a login, a result after a refusal, None if nobody used the link."""
        response = (self._incoming.input_responses or {}).get(_KEY)
        # A host that comes back late gets a new link, since its link has expired.
        has_agreed = not isinstance(response, dict) or response.get("action") == "accept"
        self.unanswered = failure(_NOT_YET.format(self._agent.key))
        has_login = await logins.settled(login, is_patient=False) if has_agreed else False
        self.unanswered = None
        if has_login is False:
            return failure(_DECLINED.format(self._agent.key))
        return has_login

    async def _ask(self, logins: CallerLogins) -> JsonObject | None:
        incoming, now = self._incoming, time.time()
        name = incoming.principal
        link = self._new_link(logins)
        expires_at, voucher = now + logins.link_seconds, logins.voucher_of(name)
        login = AwaitedLogin(name, self._digest, (), (), now, expires_at, voucher, self._after)
        in_words = self._in_words(logins, link)
        if not incoming.takes_urls:
            return in_words
        params: JsonObject = {
            "mode": "url",
            "message": _WANTED.format(self._agent.key),
            "url": link,
            "elicitationId": str(uuid4()),
        }
        if incoming.is_modern:
            return {
                "resultType": "input_required",
                "inputRequests": {_KEY: {"method": "elicitation/create", "params": params}},
                "requestState": logins.sealed(login),
            }
        self.unanswered = in_words
        try:
            answers = await incoming.ask_here({_KEY: params})
        except PeerError:
            return in_words
        if answers[_KEY].get("action") != "accept":
            return failure(_DECLINED.format(self._agent.key))
        has_login = await logins.settled(login, is_patient=False)
        self.unanswered = None
        if has_login is False:
            return failure(_DECLINED.format(self._agent.key))
        return (
            None if has_login else self._in_words(logins, self._new_link(logins))
        )  # the first link has expired

    def _new_link(self, logins: CallerLogins) -> str:
        incoming = self._incoming
        return logins.link(incoming.principal, client_at(f"the MCP server {self._face}", incoming.client))

    def _in_words(self, logins: CallerLogins, link: str) -> JsonObject:
        return failure(_IN_WORDS.format(self._agent.key, link, logins.link_seconds / 60))
