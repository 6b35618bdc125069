"""Asks a model what a text means, as the work of a task, and then makes the call that it chose, or asks the client.

The choice is a call like any other: it is checked against the schema, and what may change something needs a yes. The
model gets one chance to correct a call that does not fit. Without a usable choice, the client is asked what it would be
asked without a model. A model never ends a task.

    WORKING, keeps ModelWait ──▶ a choice ──▶ WORKING, keeps nothing ──▶ the call, as if the client had named it
                             └─▶ none     ──▶ INPUT_REQUIRED, with the words of the model

While the model is asked, nothing has run: another process asks the client. Before the call, the task's kept state is
emptied, and the store has to confirm this: so no process can ask again, or run the call a second time.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import anyio

from bridge import trace
from bridge.a2a.model.errors import A2AError
from bridge.a2a.model.life import SETTLED
from bridge.a2a.model.objects import (
    Part,
    StreamResponse,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)
from bridge.a2a.tasks.agent import Commit, Job, PlannedWork, Turn
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
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import with_visible_characters
from bridge.tools_as_agent.chooser import ChoiceRules
from bridge.tools_as_agent.resume_state import AskModel, Decision, End, ModelWait, RequireInput, RunTool
from bridge.tools_as_agent.run import InputRequest
from bridge.translate.extensions.bridge import ARGUMENTS, MODEL, QUESTION, SKILL
from bridge.translate.language.plain_words import Said
from bridge.translate.message_to_call import SkillCall

logger = logging.getLogger(__name__)

_Emit = Callable[[StreamResponse, bytes | None], Commit]
"""Accepts an event; see `Job.emit`."""

_MAX_WORDS: Final = 2000
"""The most characters of a model's words that a client gets."""
_MAX_ECHO: Final = 10_000
"""The most characters of the arguments, as JSON, that are repeated in metadata."""


def _telling_of(about: JsonObject, emit: _Emit) -> _Emit:
    """Emit the events of a call with what is known of its choice: in its artifacts, and in what the task says last."""

    def emit_with_note(event: StreamResponse, keep: bytes | None) -> Commit:
        match event:
            case StreamResponse(artifact_update=TaskArtifactUpdateEvent() as update):
                artifact = update.artifact
                noted = artifact.changed(metadata={**(artifact.metadata or {}), MODEL: about})
                event = event.changed(artifact_update=update.changed(artifact=noted))
            case StreamResponse(status_update=TaskStatusUpdateEvent() as update) if (
                update.status.state in SETTLED and (message := update.status.message) is not None
            ):
                said = message.changed(metadata={**(message.metadata or {}), MODEL: about})
                status = update.status.changed(message=said)
                event = event.changed(status_update=update.changed(status=status))
        return emit(event, keep)

    return emit_with_note


class ModelChooser:
    """Implements `bridge.tools_as_agent.chooser.Chooser`."""

    def __init__(self, client: ModelClient, notify: Notify) -> None:
        """`notify` takes a notice for each question."""
        self._client = client
        self._notify = notify

    @property
    def notice(self) -> str:
        """See `Chooser.notice`."""
        return (
            "Texts that this agent does not understand by itself are sent to the language model"
            f" {self._client.table.model} at {self._client.host}."
        )

    def work(self, asked: AskModel, rules: ChoiceRules) -> PlannedWork:
        """See `Chooser.work`."""
        return _Choosing(asked, rules, self._client, self._notify)


@dataclass(frozen=True, slots=True)
class _Choice:
    """What came of a question to a model."""

    outcome: ModelOutcome
    words: str = ""
    """What the model said beside, or in place of, a choice."""
    use: ToolUse | None = None
    skill_id: str = ""
    decision: Decision | None = None
    """What follows from the choice; None if there is none."""


class _Choosing:
    """One question to a model. Used once."""

    def __init__(self, asked: AskModel, rules: ChoiceRules, client: ModelClient, notify: Notify) -> None:
        self._asked = asked
        self._rules = rules
        self._client = client
        self._notify = notify
        self._model = client.table.model
        self._tokens = 0

    async def __call__(self, job: Job) -> None:
        """Ask the model, then make the call or ask the client."""
        await job.accepted
        otherwise = self._asked.otherwise
        wait = ModelWait(str(otherwise.metadata.get(QUESTION, "")), otherwise.kept.decode())
        job.outlive()
        await job.status(TaskState.WORKING, keep=wait.to_bytes())
        choice, about = await self._timed_choice(job)
        job.running.outlives = False
        if choice.decision is None:
            return await self._ask_client(job, choice, about)
        assert choice.use is not None
        arguments = choice.use.arguments
        echo: JsonObject = {ARGUMENTS: arguments} if len(json.dumps(arguments)) <= _MAX_ECHO else {}
        told = job.message(
            (Part(text=f"The model {self._model} chose the skill {choice.skill_id}"),),
            {MODEL: about, SKILL: choice.skill_id, **echo},
        )
        # Stored before the call: from here on no process asks the client in its place.
        await job.status(TaskState.WORKING, told, keep=b"")
        try:
            work = self._rules.plan(choice.decision, job.turn.principal)
        except A2AError as exc:
            message = job.message((Part(text=str(exc)),), {MODEL: about})
            await job.status(TaskState.REJECTED, message, keep=b"")
            return None
        return await work(replace(job, emit=_telling_of(about, job.emit)))

    async def _ask_client(self, job: Job, choice: _Choice, about: JsonObject) -> None:
        """Ask what would be asked without a model, after the words of the model."""
        otherwise = self._asked.otherwise
        words = with_visible_characters(choice.words)[:_MAX_WORDS]
        said = (Part(text=words, metadata={MODEL: self._model}),) if words else ()
        ask = replace(
            otherwise, parts=(*said, *otherwise.parts), metadata={**otherwise.metadata, MODEL: about}
        )
        await InputRequest(ask)(job)

    async def _timed_choice(self, job: Job) -> tuple[_Choice, JsonObject]:
        """The choice, with what the task's metadata says about it. The question ends in a notice, also if the task is
        canceled."""
        began_ns, since = time.time_ns(), anyio.current_time()
        choice = _Choice("canceled")
        seconds = 0.0
        try:
            with anyio.move_on_after(self._client.table.seconds):
                choice = _Choice("timed_out")
                choice = await self._choice(job.turn)
        except ModelError as exc:
            logger.warning("the model %s at %s: %s", self._model, self._client.host, exc)
            choice = _Choice(exc.outcome)
        except BaseException:
            choice = _Choice("canceled")
            raise
        finally:
            seconds = anyio.current_time() - since
            self._notify(
                ModelAsked(
                    self._rules.face,
                    job.turn.principal.name,
                    job.events.task_id,
                    self._model,
                    self._client.host,
                    choice.skill_id,
                    choice.outcome,
                    self._tokens,
                    seconds,
                    began_ns,
                    trace.context.get().traceparent or "",
                )
            )
        about: JsonObject = {
            "model": self._model,
            "outcome": choice.outcome,
            "tokens": self._tokens,
            "seconds": round(seconds, 3),
        }
        return choice, about

    async def _choice(self, turn: Turn) -> _Choice:
        """The choice of the model. A call that does not fit may be corrected once.

        Raises:
            ModelError: the model gives no usable answer.
        """
        fence = secrets.token_hex(8)
        asked = self._asked
        tools = offered_tools(asked.skills.tools, asked.text, self._client.table.tools_most, fence)
        named = {tool.name: tool for tool in tools}
        dialogue = dialogue_on(asked.text, asked.question, tools, fence)
        reply = await self._reply(dialogue, turn)
        for is_last in (False, True):
            if len(reply.uses) != 1:
                return _Choice("no_choice", reply.words)
            use = reply.uses[0]
            choice, problem = self._judged(use, named, turn)
            if choice is not None:
                return choice
            if not is_last:
                outcome = ToolOutcome(use, fenced(f"The call does not fit: {problem}", fence), is_error=True)
                reply = await self._reply(dialogue.with_step(reply, outcome), turn)
        return _Choice("unfit", reply.words)

    async def _reply(self, dialogue: Dialogue, turn: Turn) -> ModelReply:
        reply = await self._client.reply(dialogue, turn.principal)
        self._tokens += reply.tokens or 0
        return reply

    def _judged(
        self, use: ToolUse, named: Mapping[str, OfferedTool], turn: Turn
    ) -> tuple[_Choice | None, str]:
        """The choice that a call is; or None, and what is wrong with the call."""
        tool = named.get(use.name)
        if tool is None:
            return None, f"there is no tool {use.name[:100]!r}"
        call = SkillCall(tool.skill_id, use.arguments, said=Said("model", self._model))
        try:
            decision = self._rules.check(call, turn)
        except A2AError as exc:
            return None, str(exc)
        match decision:
            case RunTool() | RequireInput(state=TaskState.AUTH_REQUIRED):
                return _Choice("chosen", use=use, skill_id=tool.skill_id, decision=decision), ""
            case RequireInput(parts=parts):
                return None, next((part.text for part in parts if part.text), "")
            case End(words=words):
                return None, words
            case _:
                raise AssertionError(f"a checked call cannot lead to {decision}")
