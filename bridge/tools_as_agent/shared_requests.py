"""Answers the requests of MCP that an agent shares: resources, prompts and completions of its tool servers.

`ToolsAgent` asks this module first, if the agent shares anything. A request goes to the server on the session that a
call of a tool would use, and waits for its turn as a call does. The answer is a Message. What the caller may use is
judged before the request is sent, and again in the answer; see `shared_results.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import anyio

from bridge import trace
from bridge.a2a.model.errors import (
    FORBIDDEN,
    OVERLOADED,
    UNSUPPORTED_OPERATION,
    A2AError,
    Violation,
    a2a_error_of,
    invalid_params,
)
from bridge.a2a.model.objects import AgentExtension, Part, TaskState
from bridge.a2a.tasks.agent import Job, PlannedWork, StandingWork, Turn, WorkName
from bridge.a2a.tasks.draft import BriefWork
from bridge.errors import BusyError, PeerError, counted, fault_policy_of
from bridge.identity.callers.principals import ANONYMOUS, LOCAL, Principal
from bridge.identity.logins.kept_logins import REFUSED_LOGINS_MOST
from bridge.mcp.client.call_queue import Claimant
from bridge.mcp.client.faults import LoginWantedError, ServerRefusedError
from bridge.mcp.client.session import Session
from bridge.mcp.client.upstream import OwnSession, QueueFullError
from bridge.text.jsonvalues import JsonObject
from bridge.tools_as_agent.caller_login import CallerLoginCheck, Present
from bridge.tools_as_agent.options import AgentOptions
from bridge.tools_as_agent.resume_state import (
    End,
    RequireInput,
    ResumeMode,
    ServerQuestion,
    resume_state_from,
)
from bridge.tools_as_agent.route import question_with_answers
from bridge.tools_as_agent.run import Conclusion, InputRequest
from bridge.tools_as_agent.run_for_caller import require_caller_token
from bridge.tools_as_agent.shared_definitions import approved_entries, refusal_of
from bridge.tools_as_agent.shared_rights import view_of
from bridge.tools_as_agent.shared_subscriptions import SubscriptionRules, SubscriptionRun
from bridge.tools_as_agent.skill_sources import SkillSource
from bridge.translate.extensions.mcp_requests import (
    COMPLETE,
    LISTEN,
    METHODS,
    URI,
    McpError,
    McpRequest,
    Shared,
    declaration,
    is_request,
    part_of_answer,
    request_from_message,
    shared_of,
    subscription_from,
)
from bridge.translate.extensions.shared_results import SharedView, visible

logger = logging.getLogger(__name__)

_URI_BYTES: Final = URI.encode()
_SUBJECT_CHARACTERS: Final = 2000
"""How much of a URI or a name is told to the audit."""
_NOT_PASSED: Final = frozenset(
    {
        *("progressToken", *trace.NAMES),
        *(
            f"io.modelcontextprotocol/{name}"
            for name in ("protocolVersion", "clientInfo", "clientCapabilities")
        ),
    }
)
"""The keys of a caller's `_meta` that are the bridge's own."""
_REF_KINDS: Final[Mapping[str, tuple[Shared, str]]] = {
    "ref/prompt": ("prompts", "name"),
    "ref/resource": ("resources", "uri"),
}
"""What the reference of a completion belongs to, and the field that names it."""
_NAMED_BY: Final = {"resources/read": "uri", "prompts/get": "name"}
"""The field that names what a request is about. An HTTP header repeats its value."""


class SharedRequests:
    """The requests of one agent, and its open subscriptions."""

    def __init__(self, present: Present, is_open: Callable[[], bool]) -> None:
        """`present` gives the current rights of a caller. `is_open` says whether callers need no credentials."""
        self._present = present
        self._is_open = is_open
        self._sources: Mapping[str, SkillSource] = {}
        self._options: AgentOptions | None = None
        self._open: dict[SubscriptionRun, str] = {}
        """The open subscriptions, each with its principal."""

    def update(self, sources: Mapping[str, SkillSource], options: AgentOptions) -> None:
        """Replace the servers and options. A subscription that they no longer allow ends."""
        self._sources, self._options = sources, options
        for run in tuple(self._open):
            run.judge()

    # The card

    def declared(self, principal: Principal | None) -> frozenset[Shared]:
        """What the card shows to a principal; None is everybody."""
        if principal is None:
            principal = ANONYMOUS if self._is_open() else Principal("", skills=())
        return frozenset(kind for kind in self._shared if _globs_of(principal, kind))

    def declaration(self, kinds: frozenset[Shared]) -> AgentExtension | None:
        """The extension that shows these kinds; None if no server has any of them."""
        servers = {
            key: shared
            for key, source in self._sources.items()
            if (greeting := source.upstream.greeting) and (shared := shared_of(greeting.capabilities, kinds))
        }
        return declaration(servers) if servers else None

    @property
    def _shared(self) -> frozenset[Shared]:
        return frozenset() if self._options is None else self._options.share

    # Requests

    def plan(self, turn: Turn) -> PlannedWork:
        """The work that answers a request. See `Agent.plan`.

        Raises:
            A2AError: the request has another form, is about something that is not shared, or is not allowed;
                OVERLOADED, the queue of the server is full or the principal has too many subscriptions.
        """
        request, source = self.resolved(turn)
        require_caller_token(source.upstream, turn.principal, request.method)
        if turn.task is not None and (question := waiting_request(turn.kept)) is not None:
            trace.go_on(question.trace)
            answered = question_with_answers(question, turn, self._options_of(source))
            if isinstance(answered, End):
                return Conclusion(answered)
            if isinstance(answered, RequireInput):
                return InputRequest(answered)
        work = self._work(request, source, turn.principal)
        return BriefWork(work) if turn.task is None and isinstance(work, RequestRun) else work

    def _work(
        self, request: McpRequest, source: SkillSource, principal: Principal, *, even_if_full: bool = False
    ) -> PlannedWork:
        """The work on a request that is allowed.

        Raises:
            A2AError: see `plan`.
        """
        if request.method == LISTEN:
            return self._subscription(request, source, principal)
        try:
            source.upstream.reserve(principal.name, even_if_full=even_if_full)
        except QueueFullError as exc:
            raise a2a_error_of(exc) from exc
        options = self._options_of(source)
        return RequestRun(request, source, options, self._view_of, principal.name, self.gate_of(source))

    # Requests that wait for a login of their caller

    def gate_of(self, source: SkillSource) -> CallerLoginCheck | None:
        """What asks the callers of a server to log in; None if the server wants no login of each caller."""
        if (logins := source.upstream.logins) is None:
            return None
        options = self._options_of(source)
        return CallerLoginCheck(logins, source.upstream, options, self._present, self._why_not)

    def after_login(self, question: ServerQuestion, principal: Principal) -> PlannedWork:
        """The work on a request whose caller has logged in, or has sent a message instead."""
        request = _request_in(question)
        try:
            return self._work(request, self._allowed(request, principal), principal, even_if_full=True)
        except A2AError as exc:
            return Conclusion(End(TaskState.REJECTED, str(exc)))

    def _why_not(self, principal: Principal, question: ServerQuestion) -> str:
        try:
            self._allowed(_request_in(question), principal)
        except A2AError as exc:
            return str(exc)
        return ""

    def work_meant(self, turn: Turn) -> WorkName:
        """See `Agent.work_meant`."""
        request, source = self.resolved(turn)
        return WorkName(request.method, source.key)

    def session_of(self, turn: Turn, context_id: str) -> OwnSession | None:
        """See `Agent.session_of`."""
        _, source = self.resolved(turn)
        return source.upstream.own_session(source.key, turn.principal.name, context_id)

    def resolved(self, turn: Turn) -> tuple[McpRequest, SkillSource]:
        """The request in a message, and its server.

        Raises:
            A2AError: see `plan`.
        """
        if not is_request(turn.message, turn.metadata) and (question := waiting_request(turn.kept)):
            request = _request_in(question)
        elif turn.task is not None:
            raise invalid_params(
                Violation("message.taskId", "a request of MCP is not for a task that exists")
            )
        else:
            request = request_from_message(turn.message, turn.extensions)
        return request, self._allowed(request, turn.principal)

    def _allowed(self, request: McpRequest, principal: Principal) -> SkillSource:
        """The server of a request that its caller may make.

        Raises:
            A2AError: see `plan`.
        """
        kinds = self._kinds_of(request) & self._shared
        if not kinds:
            raise A2AError(UNSUPPORTED_OPERATION, f"This agent does not share what {request.method} is about")
        source = self._source_of(request)
        _label_hop(request)
        if not any(_globs_of(principal, kind) for kind in kinds):
            raise _forbidden(f"You may use no {' and no '.join(sorted(kinds))} of this agent")
        if request.method != LISTEN:
            self._require_allowed(request, principal)
        _label_hop(request, source.key)
        return source

    def _kinds_of(self, request: McpRequest) -> frozenset[Shared]:
        ref = _ref_of(request)
        return frozenset(METHODS[request.method]) if ref is None else frozenset({ref[0]})

    def _source_of(self, request: McpRequest) -> SkillSource:
        if request.server and (source := self._sources.get(request.server)) is not None:
            return source
        if not request.server and len(self._sources) == 1:
            return next(iter(self._sources.values()))
        where, keys = "message.parts[0].data.server", ", ".join(self._sources)
        raise invalid_params(Violation(where, f"is the key of a server of this agent: {keys}"))

    def _options_of(self, source: SkillSource) -> AgentOptions:
        assert self._options is not None
        seconds = source.call_timeout_seconds
        if seconds is None:
            return self._options
        return replace(self._options, run=self._options.run.having(call_timeout_seconds=seconds))

    def _require_allowed(self, request: McpRequest, principal: Principal) -> None:
        """Require the right to what a request names. A request that names nothing is left to the server, unless the
        caller's rights depend on the name.

        Raises:
            A2AError: FORBIDDEN.
        """
        view, subject, ref = self._view_of(principal), _subject_of(request), _ref_of(request)
        kind = ref[0] if ref else METHODS[request.method][0]
        if subject is None:
            names_one = request.method in _NAMED_BY or request.method == COMPLETE
            if names_one and view.is_limited:
                raise _forbidden(f"{request.method} names nothing that you may use")
            return
        if kind == "prompts":
            is_allowed = view.may_prompt(subject)
        elif ref:
            is_allowed = view.may_lead_there(subject)
        else:
            is_allowed = view.may_read(subject)
        if not is_allowed:
            named = "prompt" if kind == "prompts" else "resource"
            raise _forbidden(f"You may not use this {named}, or it is a file of the server")

    def _view_of(self, principal: Principal) -> SharedView:
        assert self._options is not None
        return view_of(principal, self._options.content.allow_file_links)

    # Subscriptions

    def _subscription(self, request: McpRequest, source: SkillSource, principal: Principal) -> PlannedWork:
        wanted, options = subscription_from(request.params), self._options_of(source)
        if len(wanted.uris) > (most := options.run.subscription_resources):
            where = "message.parts[0].data.params.notifications.resourceSubscriptions"
            raise invalid_params(Violation(where, f"are at most {counted(most, 'resource')}"))
        view = self._view_of(principal)
        allowed = wanted.limited_to(
            {kind for kind in self._shared if _globs_of(principal, kind)}, view.may_read
        )
        name, gate = principal.name, self.gate_of(source)
        if sum(owner == name for owner in self._open.values()) >= (most := options.run.subscriptions):
            words = f"You have {counted(most, 'subscription')}, and there may be no more: cancel some"
            raise A2AError(OVERLOADED, words, headers={"Retry-After": "5"})
        rules = SubscriptionRules(
            allowed,
            partial(self._may_go_on, source, principal, allowed.kinds),
            partial(self._may_see, principal),
            None if gate is None else partial(gate.passed, call=_waiting_state(request, source)),
            options.run.call_timeout_seconds,
            options.run.subscription_update_seconds,
            options.run.subscription_life_seconds,
        )
        run = SubscriptionRun(source.upstream, rules, self._ended)
        self._open[run] = name
        return StandingWork(run)

    def _ended(self, run: SubscriptionRun) -> None:
        self._open.pop(run, None)

    def _may_go_on(self, source: SkillSource, principal: Principal, kinds: frozenset[Shared]) -> str:
        """Why a subscription must end, in words; "" if it may go on."""
        now = self._sources.get(source.key)
        if now is None or now.upstream is not source.upstream or not kinds <= self._shared:
            return "The agent no longer shares this, or its server was replaced"
        rights = self._rights_now(principal)
        if rights is None or not all(_globs_of(rights, kind) for kind in kinds):
            return "You may no longer use this"
        return ""

    def _may_see(self, principal: Principal, uri: str) -> bool:
        """Whether a subscriber may hear of a resource now."""
        rights = self._rights_now(principal)
        return rights is not None and self._view_of(rights).may_read(uri)

    def _rights_now(self, principal: Principal) -> Principal | None:
        return rights_now(principal, self._present, self._is_open)


def rights_now(principal: Principal, present: Present, is_open: Callable[[], bool]) -> Principal | None:
    """The principal with its rights of this moment; None if it has none, or if its token has expired."""
    if principal.name in (LOCAL.name, ANONYMOUS.name):
        return principal if is_open() else None
    if principal.seconds_left() <= 0:
        return None
    return present(principal)


class RequestRun:
    """Sends one request, and answers with what its caller may see of the result. The caller has reserved a place in the
    server's queue for it."""

    def __init__(
        self,
        request: McpRequest,
        source: SkillSource,
        options: AgentOptions,
        view_of: Callable[[Principal], SharedView],
        principal: str,
        gate: CallerLoginCheck | None = None,
    ) -> None:
        """`view_of` gives what a principal may see, by its rights when the answer comes. `gate` asks the caller to
        log in; None if the server wants no login of each caller."""
        self._request = request
        self._source = source
        self._options = options
        self._view_of = view_of
        self._principal = principal
        self._gate = gate

    async def __call__(self, job: Job) -> None:
        """Send the request. If no answer comes, the task fails as a call of a tool does."""
        job.allow_repeats()
        try:
            answer = await self._with_login(job)
        except (PeerError, BusyError) as exc:
            telling = fault_policy_of(exc)
            logger.log(telling.log_level, "%s at %s failed: %s", self._request.method, self._source.key, exc)
            await job.status(TaskState(telling.task_state), job.message((Part(text=str(exc)),)), keep=b"")
        else:
            if answer is not None:
                message = job.message((part_of_answer(answer),)).changed(extensions=(URI,))
                await job.status(TaskState.COMPLETED, message, keep=b"")
        finally:
            self.drop()

    def drop(self) -> None:
        """Release the place in the queue. Call this if the run is not started."""
        self._source.upstream.release(self._principal)

    async def _with_login(self, job: Job) -> JsonObject | McpError | None:
        """The answer, with the login of the caller if the server wants one, and with a later login if the server
        refuses that. None if the task has ended without an answer, or waits for a message."""
        if self._gate is None:
            return await self._answer(job, None)
        call, refusals, after = _waiting_state(self._request, self._source), 0, 0.0
        while (since := await self._gate.passed(job, call, after)) is not None:
            try:
                return await self._answer(job, since)
            except LoginWantedError:
                refusals, after = refusals + 1, since
                if refusals > REFUSED_LOGINS_MOST:
                    raise
        return None

    async def _answer(self, job: Job, since: float | None) -> JsonObject | McpError:
        """The answer of the server. `since` is the time of the caller's login, if the server wants one."""
        principal, upstream, run = job.turn.principal, self._source.upstream, self._options.run
        async with upstream.queue(principal.name, job.events.context_id, principal.token, since) as queue:
            caller = Claimant(principal.name, job.events.task_id, is_secret=not principal.may_list_all)
            async with queue.slot(caller, run.queue_timeout_seconds) as slot:
                job.sent(self._source.key)
                job.status(TaskState.WORKING)
                await job.accepted
                with anyio.move_on_after(run.call_timeout_seconds):
                    result = await self._sent(slot.session)
                    return self._seen(result, job.turn.principal)
        raise PeerError(f"{upstream.name} gave no answer in {run.call_timeout_seconds:g} s")

    async def _sent(self, session: Session) -> JsonObject | McpError:
        method, params = self._request.method, self._request.params
        named = params.get(_NAMED_BY.get(method, ""))
        sent = {key: value for key, value in params.items() if key != "_meta"}
        name = named if isinstance(named, str) else None
        try:
            approver = self._source.upstream.approver
            if approver is not None and (
                refused := await refusal_of(self._request, session, self._source.upstream, approver)
            ):
                return refused
            result = await session.request(method, sent, name=name, meta=_passed_meta(params))
        except ServerRefusedError as exc:
            return McpError(exc.code, str(exc), exc.data)
        if approver is not None:
            result = approved_entries(method, result, approver)
        return result

    def _seen(self, answer: JsonObject | McpError, principal: Principal) -> JsonObject | McpError:
        if isinstance(answer, McpError):
            return answer
        return visible(self._request.method, self._request.params, answer, self._view_of(principal))


def waiting_request(kept: bytes) -> ServerQuestion | None:
    """The state of a request that waits for a login of its caller, in the bytes kept with its task; None if the task is
    about something else."""
    if _URI_BYTES not in kept:
        return None
    known = resume_state_from(kept)
    return known if isinstance(known, ServerQuestion) and known.skill_id == URI else None


def _waiting_state(request: McpRequest, source: SkillSource) -> ServerQuestion:
    """The state of a request that waits: in the place of the skill is the extension, and of the tool, the method."""
    return ServerQuestion(
        URI,
        request.params,
        ResumeMode.AGAIN,
        {},
        is_repeatable=True,
        source_key=source.key,
        tool_name=request.method,
    )


def _request_in(question: ServerQuestion) -> McpRequest:
    return McpRequest(question.tool_name, question.arguments, question.source_key)


def _passed_meta(params: JsonObject) -> JsonObject:
    """The `_meta` of a caller, without what belongs to the connection of the bridge with the server."""
    meta = params.get("_meta")
    return (
        {key: value for key, value in meta.items() if key not in _NOT_PASSED}
        if isinstance(meta, dict)
        else {}
    )


def _globs_of(principal: Principal, kind: Shared) -> tuple[str, ...]:
    return principal.resource_globs if kind == "resources" else principal.prompt_globs


def _ref_of(request: McpRequest) -> tuple[Shared, str] | None:
    """What the reference of a completion belongs to, and the field that names it; None for any other request."""
    ref = request.params.get("ref") if request.method == COMPLETE else None
    return _REF_KINDS.get(str(ref.get("type"))) if isinstance(ref, dict) else None


def _subject_of(request: McpRequest) -> str | None:
    """The URI, template or name that a request is about; None if it names none."""
    if (ref_kind := _ref_of(request)) is not None:
        ref = request.params["ref"]
        named = ref.get(ref_kind[1]) if isinstance(ref, dict) else None
    else:
        named = request.params.get(_NAMED_BY.get(request.method, ""))
    return named if isinstance(named, str) else None


def _label_hop(request: McpRequest, peer: str = "") -> None:
    """Tell the request's trace hop what the request is and, once the request is allowed, which server answers it."""
    if (hop := trace.hop.get()) is not None:
        hop.skill, hop.peer = request.method, peer
        hop.subject = (_subject_of(request) or "")[:_SUBJECT_CHARACTERS]


def _forbidden(words: str) -> A2AError:
    return A2AError(FORBIDDEN, words)
