"""An A2A agent whose skills are the tools of MCP servers."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

from bridge import trace
from bridge.a2a.model.errors import A2AError, a2a_error_of
from bridge.a2a.model.life import INTERRUPTED
from bridge.a2a.model.objects import AgentCard, AgentSkill, Part, TaskState
from bridge.a2a.model.operators import is_for_its_owner
from bridge.a2a.tasks.agent import PlannedWork, Turn, WorkName
from bridge.a2a.tasks.draft import BriefWork
from bridge.concurrency import ToolLimiters
from bridge.identity.callers.principals import OfferedNames, Principal
from bridge.mcp.client.upstream import OwnSession, QueueFullError, Upstream
from bridge.source_state import SourceState
from bridge.tools_as_agent.caller_login import AwaitedCall, CallerLoginCheck, Present
from bridge.tools_as_agent.card import ToolServerSummary, make_card
from bridge.tools_as_agent.chooser import ChoiceRules, steps_in_words
from bridge.tools_as_agent.options import AgentOptions
from bridge.tools_as_agent.resume_state import (
    AskModel,
    Confirmation,
    Decision,
    End,
    Follow,
    FollowedTask,
    LoginWait,
    ModelWait,
    OwnQuestion,
    RequireInput,
    ResumeMode,
    ResumeState,
    RunTool,
    ServerQuestion,
    resume_state_from,
    rounds_in,
)
from bridge.tools_as_agent.route import (
    ask_server_questions,
    check_choice,
    decide,
    is_answer,
    no_longer_there,
    open_questions,
    skill_named_by,
)
from bridge.tools_as_agent.run import Conclusion, InputRequest, ToolRun
from bridge.tools_as_agent.run_for_caller import RunForCaller, require_caller_token
from bridge.tools_as_agent.shared_requests import SharedRequests, rights_now, waiting_request
from bridge.tools_as_agent.skill_sources import SkillSource, SkillSourceStates, served_tools
from bridge.tools_as_agent.skills import Skill, Skills, skill_remarks, skills_of, with_routes
from bridge.translate.extensions import host_tasks, log_messages
from bridge.translate.extensions.apps import URI as APPS
from bridge.translate.extensions.apps import declaration as app_tools
from bridge.translate.extensions.availability import (
    FindUnavailable,
    UnavailablePeer,
    unavailability,
    unavailable_peers,
)
from bridge.translate.extensions.bridge import QUESTION, URI
from bridge.translate.extensions.mcp_requests import URI as REQUESTS
from bridge.translate.extensions.mcp_requests import Shared, is_request
from bridge.translate.message_to_call import SkillCall
from bridge.translate.overrides import Remark, SkillOverride
from bridge.translate.skills import ToolKey

logger = logging.getLogger(__name__)

_CALL_GONE: Final = (
    "The bridge restarted while the tool waited for an answer, so its call was lost. The call was not made again,"
    " since the server does not say that the tool can be repeated"
)
_PROCESS_GONE: Final = (
    "The replica of the bridge that ran the tool server is gone, and the server's process with it. The call was not"
    " made again, since the server does not say that the tool can be repeated"
)
_MODEL_GONE: Final = (
    "The bridge restarted while a model was asked what your message means, and no tool was run. Say again what you"
    " want, or name the skill"
)
_ROUNDS_GONE: Final = (
    "The bridge restarted while a model worked on your message. These calls were made before: {}. Say what to do next,"
    " or name the skill"
)
_NO_RIGHT: Final = "You may no longer use the skill {}, so it was not called"
_SERVER_GONE: Final = "The tool server that works on this task no longer belongs to this agent"

_CARDS_KEPT: Final = 16
"""The most cards that are cached, one for each base URL under which clients reach the agent."""


class ToolsAgent:
    """Implements `bridge.a2a.tasks.agent.Agent` over tool servers.

    A call in flight keeps the server, the options and the tool that it began with.
    """

    def __init__(
        self,
        sources: Sequence[SkillSource],
        options: AgentOptions,
        overrides: Mapping[str, SkillOverride] | None = None,
        *,
        now_ms: Callable[[], int],
        present: Present,
        find_unavailable: FindUnavailable | None = None,
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        """`overrides` are by pattern, in the order of the configuration; see `override_for`. `present` gives the
        current rights of a caller whose call goes on without a new message. `find_unavailable` decides which servers
        are unavailable when several replicas have to agree. `is_open` says whether callers need no credentials."""
        self._now_ms = now_ms
        self._present = present
        self._find_unavailable = find_unavailable
        self._states = SkillSourceStates(now_ms)
        self._is_open = is_open
        self._requests: SharedRequests | None = None
        """Answers requests for what the agent shares besides skills; None if it shares nothing."""
        self._turns: ToolLimiters[ToolKey] = ToolLimiters()
        self._card_at = lru_cache(_CARDS_KEPT)(self._make_card)
        self.skill_set = Skills(())
        """The skills made of the current tools, served or hidden."""
        self._remarks: tuple[Remark, ...] = ()
        self.update(sources, options, overrides)

    def update(
        self,
        sources: Sequence[SkillSource],
        options: AgentOptions,
        overrides: Mapping[str, SkillOverride] | None = None,
    ) -> None:
        """Replace the tool servers, options and overrides. Calls in flight keep the old ones.

        A removed server has to stay connected until its calls have ended (`Upstream.idle`).
        """
        self._sources = {source.key: source for source in sources}
        self._chosen = options
        self._overrides = overrides or {}
        if options.share and self._requests is None:
            self._requests = SharedRequests(self._present, self._is_open)
        if self._requests is not None:
            self._requests.update(self._sources, options)
            self._requests = self._requests if options.share else None
        self.refresh()

    def refresh(self) -> None:
        """Read the servers' current tools and states."""
        self._states.read(self._sources.values())
        listed = [
            (source.key, tool)
            for source in self._sources.values()
            for tool in served_tools(source.upstream.listing, self._chosen)
        ]
        self.skill_set = skills_of(
            listed,
            self._overrides,
            self.skill_set,
            unknown=self.unknown,
            route=self._chosen.route,
            held_back=frozenset(
                (source.key, tool.name)
                for source in self._sources.values()
                for tool in source.upstream.listing.held_back
            ),
            ready={source.key: source.ready for source in self._sources.values()},
        )
        self.options = with_routes(self._chosen, self.skill_set)
        self._turns.set({skill.key: skill.override.concurrency for skill in self.skill_set.skills})
        self._card_at.cache_clear()
        self._remark()

    @property
    def extensions(self) -> frozenset[str]:
        """The URIs of the extensions that a client may activate."""
        own = {URI} if self._requests is None else {URI, REQUESTS}
        if self._chosen.shares_apps:
            own.add(APPS)
        if self._chosen.shares_logs:
            own.add(log_messages.URI)
        if self._chosen.shares_tasks:
            own.add(host_tasks.URI)
        return frozenset({*own, *(extension.uri for extension in self._chosen.extensions)})

    @property
    def required_extensions(self) -> frozenset[str]:
        """The URIs of the extensions that every client must activate."""
        return frozenset(extension.uri for extension in self._chosen.extensions if extension.required)

    @property
    def skills(self) -> tuple[AgentSkill, ...]:
        """The skills as the card shows them."""
        return self.skill_set.for_everyone.on_card

    @property
    def published(self) -> tuple[Skill, ...]:
        """The skills with their tools and rules."""
        return self.skill_set.skills

    @property
    def sources(self) -> tuple[SourceState, ...]:
        """The state of the connection to each tool server of this agent."""
        return tuple(self._states)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The keys of the servers whose tools are unknown, since neither this process nor an earlier one has reached
        them. Names are settled once there are none."""
        return tuple(key for key, source in self._sources.items() if source.upstream.greeting is None)

    @property
    def waiting(self) -> Counter[str]:
        """How many calls wait for the concurrency limit of their tool, by the key of its server. Calls that wait in the
        server's own queue do not count."""
        return self._turns.waiting(lambda tool: tool[0])

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """The servers, by their keys."""
        return {key: source.upstream for key, source in self._sources.items()}

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """The configured rules that have no effect on the current tools, or cannot be applied to them."""
        return self._remarks

    def card(self, base_url: str) -> AgentCard:
        """The Agent Card for clients that reach the agent at this base URL."""
        skills = self.skill_set.public if self._is_open() else self.skill_set.public.for_everyone
        return self._card_at(base_url, skills, self._unavailable(), self._declared(None))

    def extended_card(self, base_url: str, principal: Principal) -> AgentCard:
        """The card with all skills that a principal may use, or could with another scope."""
        return self._card_at(
            base_url, self.skill_set.seen_by(principal), self._unavailable(), self._declared(principal)
        )

    def _declared(self, principal: Principal | None) -> frozenset[Shared]:
        return frozenset() if self._requests is None else self._requests.declared(principal)

    def _unavailable(self) -> tuple[UnavailablePeer, ...]:
        after_seconds = self.options.card.unavailable_after_seconds
        if self._find_unavailable is not None:
            return self._find_unavailable(self._states, after_seconds)
        return unavailable_peers(self._states, self._now_ms(), after_seconds)

    def plan(self, turn: Turn) -> PlannedWork:
        """Decide what a turn means. A call takes a place in its server's queue.

        Raises:
            A2AError: see `decide`; OVERLOADED when the queue of the server is full.
        """
        if (requests := self._requests_in(turn)) is not None:
            return requests.plan(turn)
        if resume_state := resume_state_from(turn.kept):
            trace.go_on(resume_state.trace)
        if turn.principal.scopes:
            self._require_scope(turn)
        decision = self._decided(turn)
        work = self._work_for(decision, turn.principal)
        rounds = rounds_in(turn.kept)
        return (
            work if rounds is None or not _is_same_call(rounds, decision) else self._in_rounds(rounds, work)
        )

    def _work_for(
        self, decision: Decision, principal: Principal, *, even_if_full: bool = False
    ) -> PlannedWork:
        self._require_token(principal, decision)
        match decision:
            case RunTool() | Follow():
                return self._run(decision, principal.name, even_if_full=even_if_full)
            case AskModel():
                return self._choosing(decision)
            case RequireInput():
                question = resume_state_from(decision.kept) if trace.hop.get() is not None else None
                trace.label_hop("" if question is None else question.skill_id)
                return InputRequest(decision)
            case End():
                said = Conclusion(decision)
                return BriefWork(said) if decision.is_brief else said

    def _choosing(self, asked: AskModel) -> PlannedWork:
        """The work that asks a model."""
        assert self.options.chooser is not None, "only with a model is it asked"
        return self.options.chooser.work(asked, self._choice_rules())

    def _in_rounds(self, rounds: ModelWait, work: PlannedWork) -> PlannedWork:
        """The work on a call that a model chose. The model is asked again if the agent still has one."""
        chooser = self.options.chooser
        return work if chooser is None else chooser.go_on(rounds, work, self._choice_rules())

    def _choice_rules(self) -> ChoiceRules:
        """The rules for the choices of a model, with the options of this moment."""
        options = self.options

        def check(call: SkillCall, turn: Turn, skills: Skills) -> Decision:
            return check_choice(call, turn, skills, options)

        def skills(principal: Principal) -> Skills:
            rights = rights_now(principal, self._present, self._is_open)
            return self.skill_set.only(None) if rights is None else self.skill_set.usable_by(rights)

        return ChoiceRules(options.face, skills, check, partial(self._work_for, even_if_full=True))

    def work_meant(self, turn: Turn) -> WorkName:
        """The skill and server that the work for a turn would use. A question of the bridge itself uses no server.

        Raises:
            A2AError: see `decide`.
        """
        if (requests := self._requests_in(turn)) is not None:
            return requests.work_meant(turn)
        match self._decided(turn):
            case RunTool() | Follow() as decision:
                source = self._source_of(decision)
                return WorkName(decision.skill_id, "" if source is None else source.key)
            case AskModel():
                return WorkName()
            case RequireInput(kept=kept):
                return WorkName(self.work_kept(kept).skill)
            case End():
                return self.work_kept(turn.kept)

    def work_kept(self, work: bytes) -> WorkName:
        """The skill and server of the work that kept these bytes with its task."""
        try:
            known = resume_state_from(work)
        except ValueError:  # of another release
            return WorkName()
        if known is None:
            return WorkName()
        skill = self.skill_set.by_id.get(known.skill_id)
        if isinstance(known, ServerQuestion) and known.skill_id == REQUESTS:
            return WorkName(known.tool_name, known.source_key, known.trace)
        if isinstance(known, ServerQuestion | FollowedTask) and known.source_key:
            return WorkName(known.skill_id, known.source_key, known.trace)
        return WorkName(known.skill_id, "" if skill is None else skill.source_key, known.trace)

    def session_of(self, turn: Turn, context_id: str) -> OwnSession | None:
        """The server session of the turn's context or principal; None if its server keeps no such sessions.

        Raises:
            A2AError: see `decide`.
        """
        if not any(source.upstream.has_own_sessions for source in self._sources.values()):
            return None
        if (requests := self._requests_in(turn)) is not None:
            return requests.session_of(turn, context_id)
        decision = self._decided(turn)
        if isinstance(decision, AskModel):
            # Which server it will be is not known yet. Most agents have one with sessions of its callers.
            own = next(one for one in self._sources.values() if one.upstream.has_own_sessions)
            return own.upstream.own_session(own.key, turn.principal.name, context_id)
        if not isinstance(decision, RunTool) or (source := self._source_of(decision)) is None:
            return None
        if decision.answered is not None and decision.answered.is_of_process:
            return None  # the process that asked has to go on, whoever has the session now
        return source.upstream.own_session(source.key, turn.principal.name, context_id)

    def _decided(self, turn: Turn) -> Decision:
        """What a turn means. An operator's answer continues only the skill that asked.

        Raises:
            A2AError: see `decide`; FORBIDDEN, if only the owner of the task may give this answer.
        """
        question = resume_state_from(turn.kept) if turn.acting else None
        if not turn.acting or isinstance(question, ServerQuestion | FollowedTask):
            return decide(turn, self._usable_in(turn), self.options)
        if not isinstance(question, OwnQuestion) or not question.skill_id:
            raise is_for_its_owner("Which skill runs")
        skill = self.skill_set.of_question(question.skill_id, question.source_key, question.tool_name)
        decision = decide(turn, self.skill_set.only(skill), self.options)
        if isinstance(decision, RequireInput):
            next_asked = resume_state_from(decision.kept)
            if next_asked is None or skill is None or next_asked.skill_id != skill.id:
                raise is_for_its_owner("Which skill runs")
        if isinstance(decision, AskModel):
            return decision.otherwise  # only the owner may have its texts sent to a model
        return decision

    def _usable_in(self, turn: Turn) -> Skills:
        """The skills that a turn may use. A tool for apps only is one of them if a client that has activated the
        extension of apps names the tool, or answers its question."""
        if APPS not in turn.extensions:
            return self.skill_set.usable_by(turn.principal)
        usable = self.skill_set.all_usable_by(turn.principal)
        name = skill_named_by(turn, usable, self.options) or self.work_kept(turn.kept).skill
        skill = usable.by_id.get(name)
        return usable.only(skill) if skill is not None and skill.is_for_apps else usable.for_everyone

    def _require_scope(self, turn: Turn) -> None:
        """Require the scope of the skill that a message names or whose question it answers. For a caller who may use no
        skill at all, require the scope of some skill.

        Raises:
            A2AError: FORBIDDEN.
        """
        question = resume_state_from(turn.kept)
        named = skill_named_by(turn, self.skill_set, self.options)
        if isinstance(question, ServerQuestion) or (
            named is None and isinstance(question, OwnQuestion | Confirmation)
        ):
            named = question.skill_id or named
        if named is not None:
            trace.label_hop(named)
            self.skill_set.require_scope(turn.principal, named)
        elif not self.skill_set.all_usable_by(turn.principal).skills:
            for skill in self.skill_set.skills:
                self.skill_set.require_scope(turn.principal, skill.id)

    def _require_token(self, principal: Principal, decision: Decision) -> None:
        """Require a token that can be exchanged, if the skill's server is called with the rights of the caller.

        Raises:
            A2AError: see `require_caller_token`.
        """
        decided = resume_state_from(decision.kept) if isinstance(decision, RequireInput) else decision
        if decided is None or isinstance(decided, End | AskModel):
            return
        skill = self.skill_set.by_id.get(decided.skill_id)
        source = self._sources.get(
            skill.source_key
            if skill
            else decided.source_key
            if isinstance(decided, FollowedTask | Follow)
            else ""
        )
        if source is None:
            return
        try:
            require_caller_token(source.upstream, principal, decided.skill_id)
        except A2AError:
            trace.label_hop(decided.skill_id)
            raise

    def _requests_in(self, turn: Turn) -> SharedRequests | None:
        """What answers a turn that is a request of MCP, or a message to one that waits; None for any other turn, and if
        the agent shares nothing."""
        if self._requests is None:
            return None
        is_meant = is_request(turn.message, turn.metadata) or waiting_request(turn.kept) is not None
        return self._requests if is_meant else None

    def takes_as_answer(self, turn: Turn) -> bool:
        """Whether a message that names only a context answers the context's only waiting task; see `is_answer`."""
        if self._requests is not None and is_request(turn.message, turn.metadata):
            return False
        return is_answer(turn, self._usable_in(turn), self.options)

    def metadata_of(self, work: bytes) -> None:
        """See `Agent.metadata_of`. Metadata of results is on artifacts and events."""

    def canceling(self, work: bytes) -> None:
        """See `Agent.canceling`. The call of a waiting task has ended, or ends with its work."""

    def resume(
        self, work: bytes, state: TaskState, owner: str, *, is_adopted: bool = False
    ) -> PlannedWork | None:
        """The work that continues a task of an earlier process; None when the task waits for its client.

        A task of the server is followed further. If that needs a token of the caller, the task waits for a message with
        a token. A call that asked a question while it was open is lost with its process: if the tool can be repeated,
        the call is made again when the answer comes; else the task fails now. The same holds for a round whose state
        may live in a server process of another replica. A call that waits for a login of its caller keeps waiting.
        """
        known = resume_state_from(work)
        trace.begin()
        trace.go_on(known.trace if known else trace.NO_TRACE)
        resumed = self._resumed(known, state, owner, is_adopted=is_adopted)
        rounds = rounds_in(work)
        if rounds is None or resumed is None or isinstance(resumed, Conclusion):
            return resumed
        return self._in_rounds(rounds, resumed)

    def _resumed(
        self, known: ResumeState | None, state: TaskState, owner: str, *, is_adopted: bool
    ) -> PlannedWork | None:
        match known:
            case FollowedTask() as task if state in INTERRUPTED and self._acts_for_caller(task):
                return None
            case FollowedTask() as task:
                return self._run(Follow(task), owner, even_if_full=True)
            case ModelWait() as wait if state not in INTERRUPTED:
                return InputRequest(_without_model(wait))
            case ServerQuestion(login=LoginWait()) as question if state is TaskState.AUTH_REQUIRED:
                return self._awaited(question)
            case ServerQuestion(way=ResumeMode.OPEN, is_repeatable=False) if state in INTERRUPTED:
                return Conclusion(End(TaskState.FAILED, _CALL_GONE))
            case ServerQuestion(is_of_process=True) as question if is_adopted:
                return _without_its_process(question)
            case _:
                return None

    def _run(self, decision: RunTool | Follow, principal: str, *, even_if_full: bool = False) -> PlannedWork:
        source = self._source_of(decision)
        trace.label_hop(decision.skill_id, "" if source is None else source.key)
        if source is None:
            return Conclusion(End(TaskState.FAILED, _SERVER_GONE))
        try:
            source.upstream.reserve(principal, even_if_full=even_if_full)
        except QueueFullError as exc:
            raise a2a_error_of(exc) from exc
        options, limiter, upstream = self.options, None, source.upstream
        if isinstance(decision, RunTool):
            limiter = self._turns.of(decision.skill.key)
            for seconds in (decision.skill.override.call_timeout_seconds, source.call_timeout_seconds):
                if seconds is not None:
                    options = replace(options, run=options.run.having(call_timeout_seconds=seconds))
                    break
        if upstream.is_called_for_callers:
            gate = self._gate_of(source)
            run: ToolRun = RunForCaller(decision, upstream, options, principal, limiter, gate)
        else:
            run = ToolRun(decision, upstream, options, principal, limiter)
        is_brief = isinstance(decision, RunTool) and decision.skill.may_be_brief
        return BriefWork(run) if is_brief else run

    def _gate_of(self, source: SkillSource) -> CallerLoginCheck | None:
        logins = source.upstream.logins
        if logins is None:
            return None
        return CallerLoginCheck(logins, source.upstream, self.options, self._present, self._why_not)

    def _why_not(self, principal: Principal, question: ServerQuestion) -> str:
        """Why a principal may not make a call that waited; "" if it may."""
        skill = self.skill_set.by_id.get(question.skill_id)
        names = OfferedNames(question.skill_id) if skill is None else skill.names
        return "" if principal.may_use(names) else _NO_RIGHT.format(question.skill_id)

    def _awaited(self, question: ServerQuestion) -> PlannedWork | None:
        """The work for a call that waits for a login; None if its server no longer wants logins."""
        source, requests = self._sources.get(question.source_key), self._requests
        if question.skill_id != REQUESTS:
            gate_of, work = self._gate_of, self._after_login
        elif requests is not None:
            gate_of, work = requests.gate_of, requests.after_login
        else:
            return None
        if source is None or (gate := gate_of(source)) is None:
            return None

        def server() -> Upstream | None:
            now = self._sources.get(question.source_key)
            return None if now is None else now.upstream

        return AwaitedCall(question, gate, server, work)

    def _after_login(self, question: ServerQuestion, principal: Principal) -> PlannedWork:
        """The work for a call whose caller has logged in, or has sent a message instead."""
        key = question.source_key, question.tool_name
        if key not in self.skill_set.by_key:
            self.refresh()  # its server may have come up without this agent being told
        skill = self.skill_set.all_usable_by(principal).by_key.get(key)
        if skill is None:
            return Conclusion(no_longer_there(question.skill_id))
        return self._run(RunTool(skill, question.arguments), principal.name, even_if_full=True)

    def _acts_for_caller(self, task: FollowedTask) -> bool:
        source = self._source_of(Follow(task))
        return source is not None and source.upstream.caller_issuer is not None

    def _source_of(self, decision: RunTool | Follow) -> SkillSource | None:
        if decision.source_key:
            return self._sources.get(decision.source_key)
        return next(iter(self._sources.values())) if len(self._sources) == 1 else None

    def _remark(self) -> None:
        """Update the remarks, and log the new ones."""
        before = self._remarks
        self._remarks = skill_remarks(
            self.skill_set, self._chosen, self._overrides, are_known=not self.unknown
        )
        for remark in self._remarks:
            if remark not in before:
                logger.warning("%s", remark)

    def _make_card(
        self,
        base_url: str,
        skills: Skills,
        unavailable: Sequence[UnavailablePeer],
        shared: frozenset[Shared],
    ) -> AgentCard:
        listing = {skill.source_key for skill in self.skill_set.skills}
        states = {state.key: state for state in self._states}
        servers = [
            ToolServerSummary(
                source.key,
                source.upstream.greeting,
                unavailability(states[source.key]),
                source.key in listing,
            )
            for source in self._sources.values()
        ]
        nothing = "this caller may use none of its skills" if self.skill_set.skills else ""
        declared = self._requests.declaration(shared) if self._requests is not None and shared else None
        of_apps = app_tools((one.id, one.source_key, one.tool) for one in skills.skills if one.is_for_apps)
        logs = log_messages.declaration() if self._has_logs else None
        tasks = host_tasks.declaration() if self._chosen.shares_tasks else None
        further = tuple(filter(None, (declared, of_apps, logs, tasks)))
        return make_card(base_url, servers, skills.for_everyone, self.options, nothing, unavailable, further)

    @property
    def _has_logs(self) -> bool:
        """Whether it passes on log messages, and a server has any."""
        greetings = (source.upstream.greeting for source in self._sources.values())
        return self._chosen.shares_logs and any(
            greeting is not None and "logging" in greeting.capabilities for greeting in greetings
        )


def _without_model(wait: ModelWait) -> RequireInput:
    """Ask the client, since the process that asked a model is gone. No call was under way."""
    parts = (Part(text=_ROUNDS_GONE.format(steps_in_words(wait.steps)) if wait.steps else _MODEL_GONE),)
    return RequireInput(TaskState.INPUT_REQUIRED, parts, {QUESTION: wait.key}, wait.kept.encode())


def _is_same_call(rounds: ModelWait, decision: Decision) -> bool:
    """Whether a decision continues, or asks again about, the call of a model that waits. The client may also have named
    another call, which is none of the model's."""
    known = resume_state_from(rounds.waiting.encode())
    match decision:
        case Follow():
            return True
        case RunTool(skill=skill) if isinstance(known, Confirmation | ServerQuestion):
            return skill.key == (known.source_key, known.tool_name)
        case RequireInput() if isinstance(known, Confirmation | ServerQuestion):
            again = resume_state_from(decision.kept)
            return isinstance(again, type(known)) and (again.source_key, again.tool_name) == (
                known.source_key,
                known.tool_name,
            )
        case _:
            return False


def _without_its_process(question: ServerQuestion) -> PlannedWork:
    """Continue a round whose server process is gone: ask the same question, and use the answer in a call that is made
    again from its start. If the tool may not be repeated, end the task."""
    if not question.is_repeatable:
        return Conclusion(End(TaskState.FAILED, _PROCESS_GONE))
    anew = replace(question, way=ResumeMode.OPEN, request_state=None, is_of_process=False)
    return InputRequest(ask_server_questions(anew, open_questions(anew)))
