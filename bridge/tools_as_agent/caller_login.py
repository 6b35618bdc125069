"""Asks a caller to log in before its call goes to a server that wants a login of each caller.

Without a login the task is AUTH_REQUIRED, with a link to a page of this bridge. The task goes on by itself once the
login is there, even if another process handled the browser or if the asking process has ended. If the client sends a
message instead of logging in, the task asks again with a new link. If the link expires unused, the task waits for a
message. The task waits a little longer than the link is valid, for a login that began just before the link expired.

A server may refuse the call with the current login, because the login was lost or lacks scopes. If no round of the call
has succeeded yet, the task asks for a login again, and goes on with the later login.

A task that goes on without a message has no secrets of its caller. So the bridge seals what it needs when the task
asks, and checks the rights of the principal again before the call.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Final

import anyio

from bridge.a2a.model.objects import Part, SendMessageConfiguration, TaskState
from bridge.a2a.tasks.agent import Job, PlannedWork
from bridge.errors import BridgeError, BusyError, PeerError, fault_policy_of
from bridge.identity.callers.principals import Principal
from bridge.identity.logins.kept_logins import AwaitedLogin, CallerLogins, client_at
from bridge.mcp.client.upstream import Upstream
from bridge.seal import request_digest
from bridge.text.jsonvalues import JsonObject
from bridge.tools_as_agent.options import AgentOptions
from bridge.tools_as_agent.resume_state import (
    ElicitationsByKey,
    LoginWait,
    ServerQuestion,
)
from bridge.tools_as_agent.task_asker import (
    KeepQuestions,
    PausableDeadline,
    QuestionPace,
    TaskAsker,
    new_occasion,
)
from bridge.trace import TraceContext
from bridge.translate.extensions.passed_metadata import metadata_of

logger = logging.getLogger(__name__)

_QUESTION: Final = "login"
_WANTED: Final = "{} wants you to log in"
_STILL_NOT: Final = (
    "{} messages arrived, but no login at {}, so the server was not called. Log in, then call again"
)
_DECLINED: Final = "You declined to log in at {}, so the server was not called"

Present = Callable[[Principal], Principal | None]
"""Gives a principal with its current rights; None if it has no rights any more, or if only its next message can show
them."""


class _Outcome(Enum):
    """What happened after a login link was sent."""

    LOGGED_IN = "logged in"
    MESSAGE = "message"
    """The client has sent a message instead."""
    DECLINED = "declined"
    UNUSED = "unused"
    """The link has expired without a login."""


class CallerLoginCheck:
    """Lets a call to one server pass once its caller has a login there."""

    def __init__(
        self,
        logins: CallerLogins,
        server: Upstream,
        options: AgentOptions,
        present: Present,
        why_not: Callable[[Principal, ServerQuestion], str],
    ) -> None:
        """`why_not` says why a principal may not make a call, in words; "" if it may."""
        self._logins = logins
        self._upstream = server
        self._server = server.name
        self._options = options
        self._present = present
        self._why_not = why_not

    async def passed(self, job: Job, call: ServerQuestion, after: float = 0.0) -> float | None:
        """The time of the caller's login. A caller without a login made after the time `after` is asked for one. None
        if the task has ended, or waits for a message. `call` is the state of the call, without a question.

        Raises:
            PeerError: the stored logins cannot be read. StoreError: another replica goes on with the task, or the store
                cannot write.
        """
        for _ in range(self._options.run.answer_tries):
            if (since := await self.since(job, after)) is not None:
                return since
            if not await self._goes_on(job, call, await self._ask_for_login(job, call, after)):
                return None
        if (since := await self.since(job, after)) is None:
            await _reject(job, _STILL_NOT.format(self._options.run.answer_tries, self._server))
        return since

    async def since(self, job: Job, after: float = 0.0) -> float | None:
        """The time of the caller's login, if it was made after the time `after`; else None. A caller without any login
        also loses the login in memory.

        Raises:
            PeerError: the stored logins cannot be read.
        """
        name = _name(job)
        since = await self._logins.usable_since(name, after)
        if since is None and (not after or await self._logins.usable_since(name) is None):
            self._upstream.forget_logins(name)
        return since

    async def reopened(self, job: Job, question: ServerQuestion) -> bool:
        """Wait for the login that another process asked for; see `passed`.

        The task already shows the link, so nothing is sent again. True means that the call may go on. The job then has
        the turn that asked, with the caller's current rights, or the turn of a message that came meanwhile.
        """
        login, task_id = question.login, job.events.task_id
        awaited = None if login is None else self._logins.awaited(login.proof)
        call = _call_digest(task_id, question.source_key, question.tool_name, question.arguments)
        if login is None or awaited is None or (awaited.principal, awaited.call) != (_name(job), call):
            logger.info("task %s waits for a message: the data kept with it does not prove a call", task_id)
            return False
        job.turn = replace(
            job.turn,
            principal=Principal(
                awaited.principal, skills=awaited.skills, scopes=awaited.scopes, is_judged=awaited.is_judged
            ),
            configuration=SendMessageConfiguration(accepted_output_modes=login.output_modes or None),
            metadata=login.metadata,
            extensions=frozenset(login.extensions),
        )
        keep = partial(_as_kept, question)
        outcome = await self._outcome(job, awaited, question.questions, keep, is_shown=True)
        return await self._goes_on(job, question, outcome)

    async def _goes_on(self, job: Job, call: ServerQuestion, outcome: _Outcome) -> bool:
        """Whether the call may go on after an outcome. If not, the task has ended, or waits for a message."""
        if outcome is _Outcome.DECLINED:
            await _reject(job, _DECLINED.format(self._server))
        if outcome is not _Outcome.LOGGED_IN:
            return outcome is _Outcome.MESSAGE
        principal = self._present(job.turn.principal)
        if principal is None:
            words = "task %s waits for a message of %s, whose rights have changed since it asked"
            logger.info(words, job.events.task_id, _name(job))
            return False
        if why := self._why_not(principal, call):
            await _reject(job, why)
            return False
        job.turn = replace(job.turn, principal=principal)
        # Stored before the call: a replica that was taken for dead learns here that another replica goes on with the
        # task.
        await job.status(TaskState.WORKING)
        return True

    async def _ask_for_login(self, job: Job, call: ServerQuestion, after: float) -> _Outcome:
        """Ask for a login, and wait for the outcome."""
        name, turn, now = _name(job), job.turn, time.time()
        question: JsonObject = {
            "mode": "url",
            "message": _WANTED.format(self._server),
            "url": self._logins.link(
                name, client_at(f"the agent {self._options.face} over A2A", turn.client)
            ),
            "elicitationId": job.new_id(),
        }
        awaited = AwaitedLogin(
            name,
            _call_digest(job.events.task_id, call.source_key, call.tool_name, call.arguments),
            turn.principal.skills,
            turn.principal.scopes,
            now,
            now + self._logins.link_seconds,
            self._logins.voucher_of(name),
            after,
            turn.principal.is_judged,
        )
        login = LoginWait(
            self._logins.sealed(awaited),
            tuple(sorted(turn.extensions)),
            tuple(turn.configuration.accepted_output_modes or ()),
            metadata_of([extension.uri for extension in self._options.extensions], turn.metadata),
        )
        keep = partial(_kept_call, replace(call, login=login))
        return await self._outcome(job, awaited, {_QUESTION: question}, keep, is_shown=False)

    async def _outcome(
        self,
        job: Job,
        awaited: AwaitedLogin,
        questions: ElicitationsByKey,
        keep: KeepQuestions,
        *,
        is_shown: bool,
    ) -> _Outcome:
        """Wait for a message or for the login page, whichever comes first."""
        options, turn = self._options, job.turn
        pace = QuestionPace(
            self._server, math.inf, options.run.held_answer_seconds, options.run.answer_tries, 0
        )
        asker = TaskAsker(job, PausableDeadline(options.run.call_timeout_seconds), pace, keep, {}, None)
        outcomes: list[_Outcome] = []
        faults: list[BridgeError] = []

        async def from_message() -> _Outcome:
            (answer,) = (await asker.ask(questions, is_shown=is_shown, is_login=True)).values()
            return _Outcome.MESSAGE if answer.get("action") == "accept" else _Outcome.DECLINED

        async def from_page() -> _Outcome | None:
            has_login = await self._logins.settled(awaited, is_patient=True)
            if job.turn is not turn:
                return None  # a message came first, and is about to be stored
            # From here on a message waits for the end of this work, and then begins its own.
            job.listen(None)
            if has_login is None:
                return _Outcome.UNUSED
            return _Outcome.LOGGED_IN if has_login else _Outcome.DECLINED

        async def first(wait: Callable[[], Awaitable[_Outcome | None]]) -> None:
            try:
                outcome = await wait()
            except BridgeError as exc:
                faults.append(exc)
            else:
                if outcome is None:
                    return
                outcomes.append(outcome)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first, from_page)
            tasks.start_soon(first, from_message)
        if faults:
            raise faults[0]
        return outcomes[0]


class AwaitedCall:
    """The work for a task that waits for a login which another process asked for."""

    def __init__(
        self,
        question: ServerQuestion,
        gate: CallerLoginCheck,
        server: Callable[[], Upstream | None],
        work: Callable[[ServerQuestion, Principal], PlannedWork],
    ) -> None:
        """`server` gives the current server of the call; None if it was removed. `work` gives the work that makes the
        call with the current tools."""
        self._asked = question
        self._gate = gate
        self._server = server
        self._work = work

    async def __call__(self, job: Job) -> None:
        """Wait for the login, then make the call; or leave the task waiting for a message."""
        try:
            if not await self._gate.reopened(job, self._asked):
                return
            if (server := self._server()) is not None:
                await server.ready()  # this process may have only just started, and know no tools yet
        except (PeerError, BusyError) as exc:
            telling = fault_policy_of(exc)
            logger.log(telling.log_level, "a call of %s failed: %s", self._asked.skill_id, exc)
            await job.status(TaskState(telling.task_state), job.message(_in_words(str(exc))), keep=b"")
            return
        await self._work(self._asked, job.turn.principal)(job)


def _name(job: Job) -> str:
    return job.turn.principal.name


def _as_kept(question: ServerQuestion, _: ElicitationsByKey, of_turn: TraceContext) -> bytes:
    return replace(question, trace=of_turn).to_bytes()


def _kept_call(call: ServerQuestion, questions: ElicitationsByKey, of_turn: TraceContext) -> bytes:
    """The state kept with a task that waits for a login. `of_turn` is the trace of the turn that asks."""
    occasions = {key: new_occasion() for key in questions}
    return replace(call, questions=questions, occasions=occasions, trace=of_turn).to_bytes()


def _call_digest(task_id: str, source_key: str, tool_name: str, arguments: JsonObject) -> str:
    return request_digest(json.dumps([task_id, source_key, tool_name]), arguments).hex()


async def _reject(job: Job, words: str) -> None:
    await job.status(TaskState.REJECTED, job.message(_in_words(words)), keep=b"")


def _in_words(text: str) -> Sequence[Part]:
    return (Part(text=text),)
