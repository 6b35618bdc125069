"""An A2A agent made of remote A2A agents: which remote agent a message is for, and the work that sends it there.

A continued task or context stays with its agent. A new message goes to the agent of the skill that it names, or to the
only agent. Otherwise the client is asked; nothing is ever sent to several agents.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final

import anyio

from bridge import trace
from bridge.a2a.model.errors import FORBIDDEN, A2AError, Violation, invalid_params
from bridge.a2a.model.objects import (
    AgentCard,
    AgentSkill,
    Part,
    SendMessageRequest,
    TaskState,
    text_of_parts,
)
from bridge.a2a.tasks.agent import Job, PlannedWork, Turn, WorkName
from bridge.a2a.tasks.draft import BriefWork
from bridge.agents_as_agent.card import make_card, shared_extensions
from bridge.agents_as_agent.contexts import Contexts, RemoteContext
from bridge.agents_as_agent.forward import Forward, Order
from bridge.agents_as_agent.ids import HOPS_MOST, hops_in
from bridge.agents_as_agent.kept import RemoteTask, WhichAgent, kept_bytes, kept_in
from bridge.agents_as_agent.options import ForwardOptions
from bridge.agents_as_agent.skills import (
    ForwardedSkill,
    ForwardedSkills,
    forwarded_skills,
    name_in,
    remarks_on,
)
from bridge.agents_as_agent.waiting import WaitingTasks, asks_no_more
from bridge.errors import PeerError
from bridge.identity.callers.principals import Principal
from bridge.remotes.remote_agent import RemoteAgent, read_cards
from bridge.source_state import SourceState
from bridge.text.jsonvalues import JsonObject
from bridge.translate.overrides import Remark, SkillOverride

logger = logging.getLogger(__name__)

_GONE: Final = "The remote agent that works on this task no longer belongs to this agent"
_NAMED_MOST: Final = 20
"""The most skills that a question names."""


class ForwardingAgent:
    """Implements `bridge.a2a.tasks.agent.Agent` over remote agents."""

    def __init__(
        self,
        remotes: Mapping[str, RemoteAgent],
        options: ForwardOptions,
        overrides: Mapping[str, SkillOverride],
        contexts: Contexts,
    ) -> None:
        """`remotes` are by key, in the order of the configuration."""
        self._contexts = contexts
        self._group: anyio.abc.TaskGroup | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Called after a card has changed, or a remote agent has come up or gone down."""
        self.waiting_tasks = WaitingTasks()
        self.skill_set = ForwardedSkills()
        self._remotes: dict[str, RemoteAgent] = {}
        self._watches: dict[RemoteAgent, anyio.CancelScope] = {}
        """The scopes in which the cards of the remote agents are kept fresh."""
        self.update(remotes, options, overrides)

    def update(
        self,
        remotes: Mapping[str, RemoteAgent],
        options: ForwardOptions,
        overrides: Mapping[str, SkillOverride],
    ) -> None:
        """Replace the remote agents, options and overrides. Work in flight keeps the old ones."""
        known = self._remotes
        self._remotes = dict(remotes)
        self.options, self._overrides = options, overrides
        for key, remote in known.items():
            if (
                self._remotes.get(key) is not remote
                and (scope := self._watches.pop(remote, None)) is not None
            ):
                scope.cancel()
        for key, remote in self._remotes.items():
            remote.key = key
            if self._group is not None and known.get(key) is not remote:
                remote.use_remembered_card()
                self._group.start_soon(self._watch_card, remote)
        self.refresh()

    @asynccontextmanager
    async def run(self, first_seconds: float) -> AsyncIterator[ForwardingAgent]:
        """Read the cards, at most for some time at first, and keep them fresh while the context is open."""
        for remote in self._remotes.values():
            remote.use_remembered_card()
        await read_cards(
            [remote for remote in self._remotes.values() if remote.down is not None], first_seconds
        )
        self.refresh()
        async with anyio.create_task_group() as group:
            self._group = group
            for remote in self._remotes.values():
                group.start_soon(self._watch_card, remote)
            try:
                yield self
            finally:
                self._group = None
                group.cancel_scope.cancel()

    async def _watch_card(self, remote: RemoteAgent) -> None:
        """Keep a card fresh until the remote agent belongs to this agent no longer."""
        with anyio.CancelScope() as self._watches[remote]:
            await remote.watch(self._changed)

    def _changed(self) -> None:
        self.refresh()
        self.on_change()

    def refresh(self) -> None:
        """Read the present cards."""
        cards = [(key, remote.card.skills) for key, remote in self._cards()]
        self.skill_set = forwarded_skills(cards, self._overrides)
        self._extensions = {
            extension.uri: bool(extension.required)
            for extension in shared_extensions([remote.card for _, remote in self._cards()])
        }

    def _cards(self) -> list[tuple[str, RemoteAgent]]:
        return [(key, remote) for key, remote in self._remotes.items() if remote.has_card]

    # What is shown

    @property
    def extensions(self) -> frozenset[str]:
        """The URIs of the extensions that a client may activate."""
        return frozenset(self._extensions)

    @property
    def required_extensions(self) -> frozenset[str]:
        """The URIs of the extensions that every client must activate."""
        return frozenset(uri for uri, required in self._extensions.items() if required)

    @property
    def skills(self) -> tuple[AgentSkill, ...]:
        """The skills as the card shows them."""
        return tuple(skill.shown for skill in self.skill_set.skills)

    @property
    def published(self) -> tuple[ForwardedSkill, ...]:
        """The skills with their agents and rules."""
        return self.skill_set.skills

    @property
    def sources(self) -> tuple[SourceState, ...]:
        """The state of each remote agent."""
        return tuple(remote.state for remote in self._remotes.values())

    @property
    def unknown(self) -> tuple[str, ...]:
        """The keys of the remote agents whose card was never read."""
        return tuple(key for key, remote in self._remotes.items() if not remote.has_card)

    @property
    def waiting(self) -> Counter[str]:
        """No call waits here: the remote agents have queues of their own."""
        return Counter()

    @property
    def remotes(self) -> tuple[RemoteAgent, ...]:
        """The remote agents, in their order."""
        return tuple(self._remotes.values())

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """The configured rules that fit no skill of the remote agents."""
        if self.unknown:
            return ()
        return remarks_on([(key, remote.card.skills) for key, remote in self._cards()], self._overrides)

    def card(self, base_url: str) -> AgentCard:
        """The Agent Card for clients that reach the agent at this base URL."""
        return self._card(base_url, self.skill_set.on_card)

    def extended_card(self, base_url: str, principal: Principal) -> AgentCard:
        """The card with all skills that a principal may use, or could with another scope."""
        return self._card(base_url, self.skill_set.seen_by(principal))

    def _card(self, base_url: str, skills: Sequence[AgentSkill]) -> AgentCard:
        return make_card(
            base_url, [(key, remote.card) for key, remote in self._cards()], skills, self.options
        )

    # What a message means

    def plan(self, turn: Turn) -> PlannedWork:
        """Plan the work for a turn.

        Raises:
            A2AError: the caller may not use the skill, or has to name one; or the message goes in a circle.
        """
        _require_no_circle(turn)
        kept = kept_in(turn.kept)
        if kept is not None:
            trace.go_on(kept.trace)
        if isinstance(kept, RemoteTask):
            self._require_right(turn.principal, self.skill_set.by_id.get(kept.skill_id), kept.skill_id)
            trace.label_hop(kept.skill_id, kept.agent)
            if turn.task is not None:
                self.waiting_tasks.drop(turn.task.id)
            return partial(self._answer, kept, turn)
        skill = self._skill_of(turn)
        self._require_right(turn.principal, skill, "" if skill is None else skill.id)
        name = self.work_meant(turn)
        trace.label_hop(name.skill, name.peer)
        if isinstance(kept, WhichAgent):
            return partial(self._send_chosen, kept, turn)
        return BriefWork(partial(self._send, turn))

    def work_meant(self, turn: Turn) -> WorkName:
        """See `Agent.work_meant`. With several agents, a message without a skill has no peer yet."""
        if turn.kept:
            kept = kept_in(turn.kept)
            if isinstance(kept, RemoteTask):
                return WorkName(kept.skill_id, kept.agent, kept.trace)
        skill = self._skill_of(turn)
        if skill is not None:
            return WorkName(skill.id, skill.agent)
        return WorkName("", next(iter(self._remotes)) if len(self._remotes) == 1 else "")

    def work_kept(self, work: bytes) -> WorkName:
        """See `Agent.work_kept`."""
        try:
            kept = kept_in(work)
        except ValueError:  # of another release
            return WorkName()
        if isinstance(kept, RemoteTask):
            return WorkName(kept.skill_id, kept.agent, kept.trace)
        return WorkName() if kept is None else WorkName(trace=kept.trace)

    def metadata_of(self, work: bytes) -> JsonObject | None:
        """See `Agent.metadata_of`: what the remote task said of itself at last."""
        try:
            kept = kept_in(work)
        except ValueError:  # of another release
            return None
        return kept.metadata if isinstance(kept, RemoteTask) else None

    def session_of(self, turn: Turn, context_id: str) -> None:  # noqa: ARG002
        """None: any process may send a message."""
        return

    def takes_as_answer(self, turn: Turn) -> bool:
        """Whether a message that names only the context answers `turn.task`: unless it names a skill."""
        return self._skill_of(turn) is None

    def resume(
        self,
        work: bytes,
        state: TaskState,
        owner: str,  # noqa: ARG002
        *,
        is_adopted: bool = False,  # noqa: ARG002
    ) -> PlannedWork | None:
        """The work that follows a task of an earlier process."""
        kept = kept_in(work)
        if not isinstance(kept, RemoteTask) or not kept.task_id:
            return None
        if state is TaskState.INPUT_REQUIRED:
            return self._watch_again
        return partial(self._follow, kept)

    def canceling(self, work: bytes) -> Callable[[Job], Awaitable[bool]] | None:
        """See `Agent.canceling`."""
        kept = kept_in(work)
        if not isinstance(kept, RemoteTask) or kept.agent not in self._remotes:
            return None
        return partial(self._forward(kept.agent).cancel_at_rest, task=kept)

    def _skill_of(self, turn: Turn) -> ForwardedSkill | None:
        """The skill that a message names.

        Raises:
            A2AError: INVALID_PARAMS, there is no such skill.
        """
        name = name_in(turn.message, turn.metadata, self.options.skill_keys)
        if name is None:
            return None
        skill = self.skill_set.by_id.get(name)
        if skill is None or not (turn.principal.may_see(skill.names)):
            raise invalid_params(
                Violation("message.metadata", f"names the skill {name!r}, which is not known here")
            )
        return skill

    def _require_right(self, principal: Principal, skill: ForwardedSkill | None, skill_id: str) -> None:
        """Require the right to a skill. A caller whose rights leave out a skill has to name a skill.

        Raises:
            A2AError: FORBIDDEN.
        """
        if "*" in principal.skills:
            return
        if skill is not None:
            if not principal.may_use(skill.names):
                scope = principal.missing_scope(skill.names)
                needs = f" It needs a token with the scope {scope}." if scope else ""
                raise A2AError(FORBIDDEN, f"You may not use the skill {skill.id}.{needs}")
            return
        usable = self.skill_set.usable_by(principal)
        if skill_id or not usable or len(usable) < len(self.skill_set.skills) or self.skill_set.hidden:
            names = ", ".join(usable_skill.id for usable_skill in usable[:_NAMED_MOST]) or "none"
            words = (
                f"Your rights cover some skills only, so name the skill in the message's metadata: {names}"
            )
            raise A2AError(FORBIDDEN, words)

    # The work

    async def _send(self, turn: Turn, job: Job) -> None:
        skill = self._skill_of(turn)
        context = await self._context_of(turn, skill)
        agent = skill.agent if skill else context.agent if context else self._only_agent()
        if agent is None:
            request = SendMessageRequest(message=turn.message, metadata=turn.metadata or None)
            return await self._ask_which(job, request.to_object(), tries=0)
        await self._forward(agent).send(job, Order(turn, skill, context))
        return None

    async def _send_chosen(self, kept: WhichAgent, turn: Turn, job: Job) -> None:
        """Send the message that waited for the choice of an agent, or ask again."""
        named = self._skill_of(turn) or self.skill_set.named(text_of_parts(turn.message.parts))
        if named is None or not turn.principal.may_use(named.names):
            if kept.tries + 1 >= self.options.run.answer_tries:
                words = "No answer named a skill, so the message went to no agent"
                await job.status(TaskState.FAILED, job.message((Part(text=words),)), keep=b"")
                return None
            return await self._ask_which(job, kept.request, tries=kept.tries + 1)
        waiting = kept.waiting()
        first = replace(
            turn,
            message=waiting.message.changed(context_id=turn.message.context_id),
            metadata=waiting.metadata or {},
            task=None,
            kept=b"",
        )
        trace.label_hop(named.id, named.agent)
        context = await self._context_of(first, named)
        await self._forward(named.agent).send(job, Order(first, named, context))
        return None

    async def _answer(self, kept: RemoteTask, turn: Turn, job: Job) -> None:
        if kept.agent not in self._remotes:
            await job.status(TaskState.FAILED, job.message((Part(text=_GONE),)), keep=b"")
            return
        await self._forward(kept.agent).send(job, Order(turn, task=kept))

    async def _follow(self, kept: RemoteTask, job: Job) -> None:
        if kept.agent not in self._remotes:
            await job.status(TaskState.FAILED, job.message((Part(text=_GONE),)), keep=b"")
            return
        await self._forward(kept.agent).follow(job, kept)

    async def _watch_again(self, job: Job) -> None:
        """Watch the waiting task of an earlier process."""
        kept = kept_in(job.turn.kept)
        if isinstance(kept, RemoteTask):
            self._watch(job, kept)

    def _watch(self, job: Job, far: RemoteTask) -> None:
        if self._group is not None and (agent := self._remotes.get(far.agent)) is not None:
            self.waiting_tasks.watch(
                self._group,
                job.events.task_id,
                agent,
                far,
                self._follow_waiting,
                seconds=self.options.run.input_timeout_seconds,
                most=self.options.agents.push_tasks,
            )

    async def _follow_waiting(self, job: Job) -> None:
        """Follow a task that waited, if its remote task has gone on. What is kept with the task now decides: another
        replica may have answered the question and passed on the next."""
        kept = kept_in(job.turn.kept)
        if not isinstance(kept, RemoteTask) or kept.agent not in self._remotes:
            return
        try:
            has_gone_on = await asks_no_more(self._remotes[kept.agent], kept)
        except PeerError as exc:
            logger.info("%s: a waiting task cannot be read: %s", kept.agent, exc)
            has_gone_on = False
        if has_gone_on:
            await self._follow(kept, job)
        else:
            self._watch(job, kept)

    def _forward(self, agent: str) -> Forward:
        return Forward(self._remotes[agent], self.options, self._contexts, self._watch, self._admit)

    def _admit(self, turn: Turn, task: RemoteTask) -> None:
        """Admit a message to a remote task that is working. Rights may have changed since the task began.

        Raises:
            A2AError: as `plan` does.
        """
        _require_no_circle(turn)
        self._require_right(turn.principal, self.skill_set.by_id.get(task.skill_id), task.skill_id)

    def _only_agent(self) -> str | None:
        return next(iter(self._remotes)) if len(self._remotes) == 1 else None

    async def _context_of(self, turn: Turn, skill: ForwardedSkill | None) -> RemoteContext | None:
        """The conversation that a message continues. A skill that the message names decides on the agent."""
        if turn.message.context_id is None:
            return None
        agents = tuple(self._remotes) if skill is None else (skill.agent,)
        return await self._contexts.find(turn.message.context_id, turn.principal.name, agents)

    async def _ask_which(self, job: Job, request: JsonObject, tries: int) -> None:
        usable = self.skill_set.usable_by(job.turn.principal)
        lines = [f"- {skill.id}: {skill.shown.name}" for skill in usable[:_NAMED_MOST]]
        words = "\n".join(["Which skill do you mean? Answer with its id:", *lines])
        kept = kept_bytes(WhichAgent(request, tries))
        await job.status(TaskState.INPUT_REQUIRED, job.message((Part(text=words),)), keep=kept)


def _require_no_circle(turn: Turn) -> None:
    if hops_in(turn.message) >= HOPS_MOST:
        words = f"counts {HOPS_MOST} bridges on its way, so it probably goes in a circle"
        raise invalid_params(Violation("message.metadata", words))
