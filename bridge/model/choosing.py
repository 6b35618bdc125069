"""Asks a model what a text means, as the work of a task, and then makes the call that it chose, or asks the client.

The choice is a call like any other: it is checked against the schema, and what may change something needs a yes. The
model gets one chance to correct a call that does not fit. Without a usable choice, the client is asked what it would be
asked without a model. A model never fails a task.

    WORKING, keeps ModelWait ──▶ a choice ──▶ WORKING, keeps nothing ──▶ the call, as if the client had named it
              ▲              ├─▶ none     ──▶ INPUT_REQUIRED, with the words of the model
              │              └─▶ words after a call that answered ──▶ COMPLETED, with the words as an artifact
              └── in rounds: the end of the call

With one round, the call ends the task. With more, its result is an artifact, and its end leads to the next question. If
the call itself asks, the task waits, and keeps the rounds with the state of the call.

While the model is asked, no call is under way: another process asks the client. Before a call, the task's kept state is
emptied, and the store has to confirm this: so no process can ask again, or run the call a second time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from bridge import trace
from bridge.a2a.model.errors import A2AError
from bridge.a2a.model.life import ENDED, SETTLED
from bridge.a2a.model.objects import (
    Artifact,
    Part,
    StreamResponse,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)
from bridge.a2a.server.admission import CallerChangedError
from bridge.a2a.tasks.agent import Commit, Job, PlannedWork, ReservedWork
from bridge.a2a.tasks.callers import pass_gate
from bridge.http.request_checks import RefusedError
from bridge.model.asking import Choice, NextStep
from bridge.model.client import ModelClient
from bridge.notices import ModelOutcome, Notify
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import with_visible_characters
from bridge.tools_as_agent.bridge_notes import message_with_notes
from bridge.tools_as_agent.chooser import ChoiceRules, steps_in_words
from bridge.tools_as_agent.resume_state import (
    AskModel,
    Confirmation,
    Decision,
    ModelStep,
    ModelWait,
    RequireInput,
    RunTool,
    resume_state_from,
)
from bridge.tools_as_agent.run import InputRequest
from bridge.tools_as_agent.skills import Skills
from bridge.translate.extensions.bridge import ARGUMENTS, MODEL, QUESTION, SKILL

_Emit = Callable[[StreamResponse, bytes | None], Commit]
"""Accepts an event; see `Job.emit`."""

_MAX_WORDS: Final = 2000
"""The most characters of a model's words that a question repeats."""
_MAX_ECHO: Final = 10_000
"""The most characters of the arguments, as JSON, that are repeated in metadata."""
_MAX_RESULT: Final = 20_000
"""The most characters of a result that are kept for the model."""
_NOTHING: Final = "The call succeeded, and has no result"
_ANSWER: Final = "answer"
"""The name of the artifact with a model's own words."""
_ENDS: Final[dict[ModelOutcome, str]] = {
    "timed_out": "took too long",
    "failed": "could not be asked",
    "broken": "gave no usable answer",
    "no_tokens": "could not be asked, since the tokens of this hour are used up",
    "unfit": "asked for a call that cannot be made",
}
_UNFINISHED: Final = "The model {} {}. These calls were made: {}. Say what to do next, or name the skill"
_NO_END: Final = "gave no answer"


class ModelChooser:
    """Implements `bridge.tools_as_agent.chooser.Chooser`."""

    def __init__(self, client: ModelClient, notify: Notify) -> None:
        """`notify` takes a notice for each question."""
        self._client = client
        self._notify = notify

    @property
    def notice(self) -> str:
        """See `Chooser.notice`."""
        results = (
            ", and the results of the calls that it makes then," if self._client.table.rounds > 1 else ""
        )
        return (
            f"Texts that this agent does not understand by itself{results} are sent to the language model"
            f" {self._client.table.model} at {self._client.host}."
        )

    def work(self, decision: AskModel, rules: ChoiceRules) -> PlannedWork:
        """See `Chooser.work`."""
        otherwise = decision.otherwise
        wait = ModelWait(
            str(otherwise.metadata.get(QUESTION, "")),
            otherwise.kept.decode(),
            text=decision.text[:_MAX_RESULT],
            question=decision.question[:_MAX_RESULT],
        )
        return _Choosing(wait, rules, self._client, self._notify, decision)

    def go_on(self, wait: ModelWait, work: PlannedWork, rules: ChoiceRules) -> PlannedWork:
        """See `Chooser.go_on`."""
        *before, step = wait.steps
        known = resume_state_from(wait.waiting.encode())
        if isinstance(known, Confirmation):  # the client may have changed the call
            step = replace(step, arguments=known.arguments)
        rounds = _Choosing(replace(wait, steps=tuple(before), waiting=""), rules, self._client, self._notify)
        return _Continued(rounds, step, work)


class _Choosing:
    """The questions to a model about one text. Used once."""

    def __init__(
        self,
        wait: ModelWait,
        rules: ChoiceRules,
        client: ModelClient,
        notify: Notify,
        decision: AskModel | None = None,
    ) -> None:
        """`decision` is the decision that led here; None if a call continues that was chosen in an earlier turn."""
        self._wait = wait
        self._asked = decision
        self._rules = rules
        self._client = client
        self._notify = notify
        self.model = client.table.model

    async def __call__(self, job: Job) -> None:
        """Ask the model, then make the call or ask the client; in rounds, until the model answers."""
        await job.accepted
        while True:
            job.outlive()
            await job.status(TaskState.WORKING, keep=self._wait.to_bytes())
            choice = await self._choice(job)
            job.running.outlives = False
            if choice.outcome == "answered":
                return await self._answer(job, choice)
            if choice.decision is None or choice.step is None:
                return await self._ask_client(job, choice)
            await self._tell(job, choice.step, choice)
            try:
                work = await self._planned(job, choice.decision)
            except A2AError as exc:
                message = job.message((Part(text=str(exc)),), {MODEL: self._about(choice)})
                await job.status(TaskState.REJECTED, message, keep=b"")
                return None
            if self._client.table.rounds == 1:
                return await work(replace(job, emit=_telling_of(self._about(choice), job.emit)))
            if not await self.is_done(job, choice.step, work, self._about(choice)):
                return None

    async def _choice(self, job: Job) -> Choice:
        is_first = self._asked is not None and not self._wait.steps
        skills: Skills | None = self._asked.skills if self._asked is not None and is_first else None
        asking = NextStep(self._client, self._rules, self._notify, self._wait, skills)
        choice = await asking.choice(job)
        self._wait = replace(
            self._wait,
            offered=asking.offered,
            tokens=self._wait.tokens + choice.tokens,
            seconds=self._wait.seconds + choice.seconds,
        )
        return choice

    async def _tell(self, job: Job, step: ModelStep, choice: Choice) -> None:
        """Tell which call comes. Stored before the call: from here on no process asks the client in its place."""
        is_short = len(json.dumps(step.arguments)) <= _MAX_ECHO
        echo: JsonObject = {ARGUMENTS: step.arguments} if is_short else {}
        message = job.message(
            (Part(text=f"The model {self.model} chose the skill {step.skill_id}"),),
            {MODEL: self._about(choice), SKILL: step.skill_id, **echo},
        )
        await job.status(TaskState.WORKING, message, keep=b"")

    async def _planned(self, job: Job, decision: Decision) -> PlannedWork:
        """The work of a call. If the audit wants the intent of each call, it is recorded before.

        Raises:
            A2AError: the principal may not have it done, or the audit cannot be written.
        """
        work = self._rules.plan(decision, job.turn.principal)
        hop = trace.hop.get()
        if not isinstance(decision, RunTool) or hop is None or hop.gate is None:
            return work
        mine = replace(
            hop,
            skill=decision.skill_id,
            peer=decision.source_key,
            task_id=job.events.task_id,
            context_id=job.events.context_id,
            is_gated=True,
        )
        try:
            with suppress(CallerChangedError, RefusedError):  # the rules look at the rights of this moment
                await pass_gate(mine)
        except A2AError:
            if isinstance(work, ReservedWork):
                work.drop()
            raise
        trace.hop.set(mine)
        if (began := job.running.began_in) is not None:
            began.skill, began.peer = mine.skill, mine.peer
        return work

    def _about(self, choice: Choice) -> JsonObject:
        """What the metadata says about a question to the model."""
        about: JsonObject = {
            "model": self.model,
            "outcome": choice.outcome,
            "tokens": choice.tokens,
            "seconds": round(choice.seconds, 3),
        }
        return about if self._client.table.rounds == 1 else {**about, "round": len(self._wait.steps) + 1}

    def _about_all(self, choice: Choice) -> JsonObject:
        """What the metadata says about all questions for this text."""
        if self._client.table.rounds == 1:
            return self._about(choice)
        calls: list[JsonValue] = [
            {"skill": step.skill_id, "failed": step.is_error} for step in self._wait.steps
        ]
        totals: JsonObject = {"tokens": self._wait.tokens, "seconds": round(self._wait.seconds, 3)}
        return {**self._about(choice), **totals, "calls": calls}

    # The ends

    async def _answer(self, job: Job, choice: Choice) -> None:
        """End the task with the model's own words. The message says which calls were made."""
        about = self._about_all(choice)
        words = Part(text=with_visible_characters(choice.words), metadata={MODEL: self.model})
        job.artifact(
            Artifact(artifact_id=job.new_id(), name=_ANSWER, parts=(words,), metadata={MODEL: about})
        )
        calls = f"The model {self.model} answered after these calls: {steps_in_words(self._wait.steps)}"
        message = message_with_notes(job, (Part(text=calls),), {MODEL: about})
        await job.status(TaskState.COMPLETED, message, keep=b"")

    async def _ask_client(self, job: Job, choice: Choice) -> None:
        """Ask the client, after the words of the model: before any call, what would be asked without a model; after a
        call, what to do next."""
        words = with_visible_characters(choice.words)[:_MAX_WORDS]
        words_parts = (Part(text=words, metadata={MODEL: self.model}),) if words else ()
        about: JsonObject = {MODEL: self._about_all(choice)}
        steps = self._wait.steps
        if self._asked is not None and not steps:
            otherwise = self._asked.otherwise
            metadata = {**otherwise.metadata, **about}
            return await InputRequest(
                replace(otherwise, parts=(*words_parts, *otherwise.parts), metadata=metadata)
            )(job)
        end = _ENDS.get(choice.outcome, "asks" if words else _NO_END)
        asks = Part(text=_UNFINISHED.format(self.model, end, steps_in_words(steps)))
        metadata = {QUESTION: self._wait.key, **about}
        ask = RequireInput(TaskState.INPUT_REQUIRED, (*words_parts, asks), metadata, self._wait.kept.encode())
        return await InputRequest(ask, is_all=False)(job)

    # One call of several

    async def is_done(self, job: Job, step: ModelStep, work: PlannedWork, about: JsonObject) -> bool:
        """Do the work of a call that is not the last. Whether it has ended, so that the model goes on; if not, the task
        waits for the client."""
        call = _StepEvents(self._wait, step, job.emit)
        inner = replace(job, emit=_telling_of(about, call.emit))
        await work(inner)
        job.turn = inner.turn
        job.running.work_status.is_repeatable = False  # a call that only reads may follow another
        job.running.outlives = False
        self._wait = call.wait
        return call.is_ended


class _StepEvents:
    """Turns the events of a call into those of a step: its artifacts stay, and its end leaves the task at work."""

    def __init__(self, wait: ModelWait, step: ModelStep, emit: _Emit) -> None:
        self.wait = wait
        """The rounds. After the end of the call, they have its result."""
        self.is_ended = False
        self._step = step
        self._emit = emit
        self._parts: list[Part] = []

    def emit(self, event: StreamResponse, keep: bytes | None) -> Commit:
        """Accept an event of the call."""
        update = event.status_update
        if event.artifact_update is not None:
            self._parts.extend(event.artifact_update.artifact.parts)
        elif update is not None and update.status.state in ENDED:
            return self._end(event, update)
        if not keep:
            return self._emit(event, keep)
        waits = replace(self.wait, steps=(*self.wait.steps, self._step), waiting=keep.decode())
        return self._emit(event, waits.to_bytes())

    def _end(self, event: StreamResponse, update: TaskStatusUpdateEvent) -> Commit:
        state, message = update.status.state, update.status.message
        is_error = state is not TaskState.COMPLETED
        parts = (message.parts if message is not None else ()) if is_error else self._parts
        result = _text_of(parts)[:_MAX_RESULT] or (str(state) if is_error else _NOTHING)
        step = replace(self._step, result=result, is_error=is_error)
        self.wait = replace(self.wait, steps=(*self.wait.steps, step))
        self.is_ended = True
        at_work = update.changed(status=update.status.changed(state=TaskState.WORKING))
        return self._emit(event.changed(status_update=at_work), self.wait.to_bytes())


class _Continued:
    """Continues a call that a model chose in an earlier turn, and then the rounds."""

    def __init__(self, rounds: _Choosing, step: ModelStep, work: PlannedWork) -> None:
        self._rounds = rounds
        self._step = step
        self._work = work

    async def __call__(self, job: Job) -> None:
        """Do the work of the call; once it has ended, ask the model again."""
        about: JsonObject = {"model": self._rounds.model, "outcome": "chosen"}
        if await self._rounds.is_done(job, self._step, self._work, about):
            await self._rounds(job)

    def drop(self) -> None:
        """See `ReservedWork.drop`."""
        if isinstance(self._work, ReservedWork):
            self._work.drop()


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
                message_with_note = message.changed(metadata={**(message.metadata or {}), MODEL: about})
                status = update.status.changed(message=message_with_note)
                event = event.changed(status_update=update.changed(status=status))
        return emit(event, keep)

    return emit_with_note


def _text_of(parts: Sequence[Part]) -> str:
    """Parts as text for a model. A file is named, and not shown."""
    return "\n".join(filter(None, map(_words_of, parts)))


def _words_of(part: Part) -> str:
    if part.text is not None:
        return part.text
    if part.kind == "data":
        return json.dumps(part.data, ensure_ascii=False)
    return f"(a file: {part.filename or part.media_type or 'without a name'})"
