"""Asks a model for its next step on a text: one call, or words. The question ends in a notice, whatever comes of it.

A call is checked against the schema, and may be corrected once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import anyio

from bridge import trace
from bridge.a2a.model.errors import A2AError
from bridge.a2a.model.objects import Part, TaskState
from bridge.a2a.tasks.agent import Job, Turn
from bridge.identity.callers.principals import Principal
from bridge.model.client import ModelClient
from bridge.model.dialogue import (
    Dialogue,
    ModelError,
    ModelReply,
    OfferedTool,
    ToolOutcome,
    ToolUse,
    dialogue_on,
    fenced,
    offered_tools,
)
from bridge.notices import ModelAsked, ModelOutcome, Notify
from bridge.tools_as_agent.chooser import ChoiceRules
from bridge.tools_as_agent.resume_state import Decision, End, ModelStep, ModelWait, RequireInput, RunTool
from bridge.tools_as_agent.skills import Skill, Skills
from bridge.translate.language.plain_words import Said
from bridge.translate.message_to_call import SkillCall

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a model answered."""

    outcome: ModelOutcome
    words: str = ""
    """What the model said beside, or in place of, a call."""
    step: ModelStep | None = None
    """The call that it chose; None if it chose none."""
    decision: Decision | None = None
    """What follows from the call."""
    tokens: int = 0
    seconds: float = 0.0


class NextStep:
    """Asks for the next step on one text. Used once."""

    def __init__(
        self, client: ModelClient, rules: ChoiceRules, notify: Notify, wait: ModelWait, skills: Skills | None
    ) -> None:
        """`skills` are those of the first question; None for later ones, which get at most the same tools."""
        self._client = client
        self._rules = rules
        self._notify = notify
        self._wait = wait
        self._skills = skills
        self._rounds = client.table.rounds
        self._tokens = 0
        self.offered = wait.offered
        """The digests of the tools that the model gets."""

    async def choice(self, job: Job) -> Choice:
        """The model's answer. Also if the task is canceled meanwhile, a notice tells of the question."""
        began_ns, since = time.time_ns(), anyio.current_time()
        choice = Choice("canceled")
        try:
            with anyio.move_on_after(self._client.table.seconds - self._wait.seconds):
                choice = Choice("timed_out")
                choice = await self._choice(job.turn)
        except ModelError as exc:
            logger.warning("the model %s at %s: %s", self._client.table.model, self._client.host, exc)
            choice = Choice(exc.outcome)
        except BaseException:
            choice = Choice("canceled")
            raise
        finally:
            choice = replace(choice, tokens=self._tokens, seconds=anyio.current_time() - since)
            self._notify(self._notice(choice, job, began_ns))
        return choice

    def _notice(self, choice: Choice, job: Job, began_ns: int) -> ModelAsked:
        return ModelAsked(
            self._rules.face,
            job.turn.principal.name,
            job.events.task_id,
            self._client.table.model,
            self._client.host,
            choice.step.skill_id if choice.step else "",
            choice.outcome,
            choice.tokens,
            choice.seconds,
            began_ns,
            trace.context.get().traceparent or "",
        )

    async def _choice(self, turn: Turn) -> Choice:
        """The model's answer. A call that does not fit may be corrected once.

        Raises:
            ModelError: the model gives no usable answer.
        """
        fence = secrets.token_hex(8)
        wait = self._wait
        skills = self._skills or self._left(turn.principal)
        tools = offered_tools(skills.tools, wait.text, self._client.table.tools_most, fence)
        if self._skills is not None:
            self.offered = tuple(_digest(skills.by_id[tool.skill_id]) for tool in tools)
        if wait.steps and not tools:
            return Choice("no_choice")
        named = {tool.name: tool for tool in tools}
        may_call = len(wait.steps) < self._rounds
        dialogue = dialogue_on(
            wait.text, wait.question, tools, fence, is_in_rounds=self._rounds > 1, may_call=may_call
        )
        for number, step in enumerate(wait.steps):
            dialogue = dialogue.with_step(*_told(step, number, fence))
        reply = await self._reply(dialogue, turn.principal)
        for is_last in (False, True):
            if not reply.uses:
                answers = wait.steps and not all(step.is_error for step in wait.steps)
                return Choice(
                    "answered" if answers and _is_statement(reply.words) else "no_choice", reply.words
                )
            if len(reply.uses) > 1 and self._rounds == 1:
                return Choice("no_choice", reply.words)
            choice, problem = (
                self._judged(reply, named, skills, turn) if may_call else (None, "no call is left")
            )
            if choice is not None:
                return choice
            if not is_last:
                outcome = ToolOutcome(
                    reply.uses[0], fenced(f"The call does not fit: {problem}", fence), is_error=True
                )
                reply = await self._reply(dialogue.with_step(reply, outcome), turn.principal)
        return Choice("unfit", reply.words)

    def _left(self, principal: Principal) -> Skills:
        """The skills of the first question that the principal may still use, and whose tools are the same."""
        now = self._rules.skills(principal)
        return replace(now, skills=tuple(skill for skill in now.skills if _digest(skill) in self.offered))

    async def _reply(self, dialogue: Dialogue, principal: Principal) -> ModelReply:
        reply = await self._client.reply(dialogue, principal)
        self._tokens += reply.tokens or 0
        return reply

    def _judged(
        self, reply: ModelReply, named: Mapping[str, OfferedTool], skills: Skills, turn: Turn
    ) -> tuple[Choice | None, str]:
        """The choice that the first call of an answer is; or None, and what is wrong with the call."""
        use = reply.uses[0]
        tool = named.get(use.name)
        if tool is None:
            return None, f"there is no tool {use.name[:100]!r}"
        call = SkillCall(tool.skill_id, use.arguments, said=Said("model", self._client.table.model))
        if self._wait.steps:  # files of the message were for the first call
            parts = tuple(part for part in turn.message.parts if part.kind not in ("raw", "url"))
            turn = replace(turn, message=turn.message.changed(parts=parts or (Part(text=""),)))
        try:
            decision = self._rules.check(call, turn, skills)
        except A2AError as exc:
            return None, str(exc)
        match decision:
            case RunTool() | RequireInput(state=TaskState.AUTH_REQUIRED):
                step = ModelStep(tool.skill_id, use.name, use.arguments, reply.words)
                return Choice("chosen", reply.words, step, decision), ""
            case RequireInput(parts=parts):
                return None, next((part.text for part in parts if part.text), "")
            case End(words=words):
                return None, words
            case _:
                raise AssertionError(f"a checked call cannot lead to {decision}")


def _is_statement(words: str) -> bool:
    """Whether words can be an answer: they are not empty, and do not end with a question."""
    return bool(words) and not words.rstrip(" \t\r\n\"'*_)").endswith(("?", "\uff1f", "\u061f"))


def _told(step: ModelStep, number: int, fence: str) -> tuple[ModelReply, ToolOutcome]:
    """An earlier call, as the model said it, with its result as data."""
    use = ToolUse(f"call{number:05}", step.name, step.arguments)
    return ModelReply(step.words, (use,), None), ToolOutcome(use, fenced(step.result, fence), step.is_error)


def _digest(skill: Skill) -> str:
    """The digest of a tool, which changes with its description."""
    content = json.dumps([*skill.key, skill.tool.listed], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:32]
