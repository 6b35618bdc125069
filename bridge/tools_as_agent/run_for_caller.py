"""Runs a call of a tool whose server is called with a login or a token of the caller.

The caller is asked to log in before the call, if the server wants a login. When the caller's login or token expires
while a task of the server is followed, the caller's newer login, or the newer token that came with an answer, takes its
place. Without a valid token, a followed task waits for a message of its caller.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import anyio

from bridge.a2a.model.errors import FORBIDDEN, UNAUTHENTICATED, A2AError
from bridge.a2a.model.objects import Part, TaskState
from bridge.a2a.tasks.agent import Job
from bridge.errors import BusyError, PeerError
from bridge.identity.callers.challenges import token_challenge
from bridge.identity.callers.principals import Principal
from bridge.identity.logins.kept_logins import REFUSED_LOGINS_MOST
from bridge.mcp.client.faults import CallerTokenGoneError, LoginWantedError
from bridge.mcp.client.upstream import Upstream
from bridge.tools_as_agent.caller_login import CallerLoginCheck
from bridge.tools_as_agent.options import AgentOptions
from bridge.tools_as_agent.resume_state import Follow, ResumeMode, RunTool
from bridge.tools_as_agent.rounds import server_question
from bridge.tools_as_agent.run import ToolRun

_WAITS_FOR_CALLER: Final = (
    "{} works on this task with the rights of its caller, and the bridge has no valid token of the caller. To go on,"
    " send a message with a valid token of {}"
)


class RunForCaller(ToolRun):
    """Runs the tool in the name of its caller."""

    def __init__(
        self,
        decision: RunTool | Follow,
        upstream: Upstream,
        options: AgentOptions,
        principal: str,
        limiter: anyio.CapacityLimiter | None = None,
        gate: CallerLoginCheck | None = None,
    ) -> None:
        """`gate` asks the caller to log in; None if the server wants a token and no login. See `ToolRun` for the other
        values."""
        super().__init__(decision, upstream, options, principal, limiter)
        self._gate = gate
        self._before: float | None = None
        """The time of the login with which a task of the server was last followed."""
        self._after = 0.0
        """The time of the login that the server refused. The next login has to be later."""
        self._refusals = 0

    async def __call__(self, job: Job) -> None:
        """Run the tool, until the task ends or asks."""
        self._begin(job)
        try:
            if isinstance(self._decision, Follow) and not self._can_act(job):
                return await self._wait_for_token(job)
            await self._run_with_logins(job)
        except (PeerError, BusyError) as exc:
            if job.running.outlives and not self._can_act(job):
                return await self._wait_for_token(job)
            await self._fail(job, exc)
        finally:
            self.drop()

    async def _run_with_logins(self, job: Job) -> None:
        """Run with the caller's login or token, and again with a newer login or token once this one is refused."""
        while True:
            since = None
            if self._gate is not None:
                since = await self._login_made_at(job, self._gate)
                if since is None and not isinstance(self._decision, Follow):
                    return None
            caller = job.turn.principal
            place = caller.name, job.events.context_id
            token = caller.token if self._upstream.caller_issuer else None
            try:
                async with self._upstream.queue(*place, caller.token, since) as queue:
                    return await self._run(job, queue, token)
            except CallerTokenGoneError:
                if not self._goes_on_with_another(job, caller, since):
                    raise
            except LoginWantedError:
                if since is None or not self._goes_on_with_another(job, caller, since):
                    raise
                self._after = since

    async def _login_made_at(self, job: Job, gate: CallerLoginCheck) -> float | None:
        """The time of the login to call with. None for a new call means that the task has ended without a login, or
        waits for a message."""
        if not isinstance(self._decision, Follow):
            call = server_question(self._decision, ResumeMode.AGAIN, {})
            return await gate.passed(job, call, self._after)
        with suppress(PeerError):  # the call itself also looks for the login
            return await gate.since(job)
        return None

    def _goes_on_with_another(self, job: Job, caller: Principal, since: float | None) -> bool:
        """Whether the work can go on with another login or token than the caller's last one."""
        followed = self._call.followed if self._call else None
        if followed is not None:
            is_another = since != self._before or self._has_later_token(job, caller)
            self._decision, self._before = Follow(followed), since
            return is_another
        self._refusals += 1
        return since is not None and self._is_untaken and self._refusals <= REFUSED_LOGINS_MOST

    @property
    def _is_untaken(self) -> bool:
        """Whether no round of the call has succeeded, so that the call can be made from its start."""
        return isinstance(self._decision, RunTool) and not (self._call and self._call.was_taken)

    def _has_later_token(self, job: Job, caller: Principal) -> bool:
        return job.turn.principal.token != caller.token and self._can_act(job)

    def _can_act(self, job: Job) -> bool:
        """Whether the server can be called for the caller now: the caller has a valid token, if the server needs
        one."""
        issuer, token = self._upstream.caller_issuer, job.turn.principal.token
        return issuer is None or (token is not None and token.issuer == issuer and token.seconds_left() > 0)

    async def _wait_for_token(self, job: Job) -> None:
        """Leave the task waiting for a message of its caller, whose token continues the task."""
        words = _WAITS_FOR_CALLER.format(self._upstream.name, self._upstream.caller_issuer)
        await job.status(TaskState.AUTH_REQUIRED, job.message((Part(text=words),)))


def require_caller_token(upstream: Upstream, principal: Principal, skill: str) -> None:
    """Require a token that can be exchanged, if the server is called with the rights of the caller.

    Raises:
        A2AError: FORBIDDEN; UNAUTHENTICATED, the token has expired. The bridge accepts it a little longer, in case
            clocks differ, but its issuer does not.
    """
    issuer = upstream.caller_issuer
    if issuer is None:
        return
    token, words = principal.token, f"The skill {skill} acts with the rights of its caller"
    if token is None or token.issuer != issuer:
        raise A2AError(FORBIDDEN, f"{words}, and needs a token of {issuer}", metadata={"skill": skill})
    if token.seconds_left() <= 0:
        challenge = {"WWW-Authenticate": token_challenge(error="invalid_token")}
        raise A2AError(UNAUTHENTICATED, f"{words}, whose token has expired", headers=challenge)
