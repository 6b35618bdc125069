"""Passes the questions that a server asks while a call is open on to the task's client.

Several questions may be open at once, each may be withdrawn, and an answer may settle only some of them. The task
always asks all open questions in one message. The deadline of the call is paused while a question is open.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio

from bridge import trace
from bridge.a2a.model.objects import Message, Part, TaskState
from bridge.a2a.tasks.agent import Commit, HeldMessage, Job, Turn
from bridge.concurrency import done_slowly
from bridge.frozen import frozen
from bridge.identity.tokens.caller_token import CallerToken
from bridge.mcp.client.call_queue import CallSlot
from bridge.mcp.client.elicitation_routing import CANCEL
from bridge.text.jsonvalues import JsonObject
from bridge.tools_as_agent.bridge_notes import (
    GAVE_WAY,
    MISSED,
    RIGHTS_ENDED,
    UNANSWERED,
    message_with_notes,
    words_on_contention,
)
from bridge.tools_as_agent.resume_state import ElicitationsByKey
from bridge.tools_as_agent.route import words_on_misfits
from bridge.trace import TraceContext
from bridge.translate.arguments import Problem
from bridge.translate.elicitation import (
    Elicitation,
    answers_from,
    elicitation_from,
    fitting_answers,
    named_answers,
    parts_of_questions,
    question_metadata,
    state_of_questions,
)
from bridge.translate.extensions.bridge import QUESTION, URI
from bridge.translate.message_to_call import with_metadata

_TAKEN_BACK: Final = "The tool server withdrew its question before it was answered"
"""Sent while the call goes on. Servers that wait only a minute for an answer later fail without naming the reason."""


KeepQuestions = Callable[[ElicitationsByKey, TraceContext], bytes]
"""Gives the bytes that are kept with a task while these questions are open. The trace is the trace of the turn that
asks."""


class PausableDeadline:
    """The deadline of a call, which is paused while a person is asked. At first, it is paused."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.scope = anyio.CancelScope()
        self._left: float | None = seconds

    def restart(self, seconds: float) -> None:
        """Begin a new deadline, `seconds` from now."""
        self.seconds, self._left = seconds, None
        self.scope.deadline = anyio.current_time() + seconds

    @property
    def is_paused(self) -> bool:
        """Whether the deadline is paused."""
        return self._left is not None

    def pause(self) -> None:
        """Pause the deadline."""
        if self._left is None:
            self._left = self.scope.deadline - anyio.current_time()
            self.scope.deadline = float("inf")

    def resume(self) -> None:
        """Continue with the time that was left."""
        if self._left is not None:
            self.scope.deadline = anyio.current_time() + self._left
            self._left = None


@dataclass(eq=False)
class _OpenQuestion:
    """A question that waits for its answer."""

    question: Elicitation
    occasion: str
    answer: JsonObject = field(default_factory=lambda: dict(CANCEL))
    misfits: int = 0
    """How many answers have not fit."""
    stored: Commit | None = None
    """Done once the message with the answer is stored."""
    answered: anyio.Event = field(default_factory=anyio.Event)


@frozen
class QuestionPace:
    """The time limits of a server's questions."""

    server: str
    """The name of the server."""
    timeout_seconds: float
    """How long the client may take to answer."""
    held_answer_seconds: float
    """How far back a message that names no question still counts as the answer to a new question."""
    tries: int
    """The question is given up after this many answers that do not fit."""
    wind_up_seconds: float
    """How long the call may go on after the client did not answer in time."""
    token: CallerToken | None = None
    """The caller's token with which the call was opened. No answer can be sent once it has expired."""

    @property
    def seconds_left(self) -> float:
        """How long an answer may still take."""
        left = math.inf if self.token is None else self.token.seconds_left()
        return min(self.timeout_seconds, max(left, 0.0))

    @property
    def has_expired(self) -> bool:
        """Whether the token has expired, so that no answer can be sent any more."""
        return self.token is not None and self.token.seconds_left() <= 0


class TaskAsker:
    """Implements `bridge.mcp.client.values.Asker` for one task."""

    def __init__(
        self,
        job: Job,
        patience: PausableDeadline,
        pace: QuestionPace,
        keep: KeepQuestions,
        known: dict[str, JsonObject],
        slot: CallSlot | None,
    ) -> None:
        """`known` has earlier answers to the same questions, by `question_fingerprint`; each is used once. `slot` is
        the slot that the call holds while it asks; None if it holds no slot.
        """
        self._job = job
        self._patience = patience
        self._pace = pace
        self._keep = keep
        self._known = known
        self._slot = slot
        self._of_turn = trace.context.get()
        """The trace of the turn that asks. The task that receives the question from the connection has no trace."""
        self._open: dict[str, _OpenQuestion] = {}
        self._waits: set[anyio.CancelScope] = set()
        self._shown: Message | None = None
        """The message that asks the open questions."""
        self._is_asking = False
        """Whether the task is in a state that waits for its client."""
        self.gave_up: str | None = None
        """Why a question was withdrawn without an answer, in words; None if none was."""
        self.missed: str | None = None
        """The note about a question that may have belonged to this call."""

    @property
    def is_left(self) -> bool:
        """See `Asker.is_left`."""
        return self._job.is_left()

    async def ask(
        self, questions: Mapping[str, JsonObject], *, is_shown: bool = False, is_login: bool = False
    ) -> Mapping[str, JsonObject]:
        """Put questions to the client and wait for its answers; see `Asker.ask`.

        `is_shown` says that the task already asks these questions, and `is_login` that they lead to a login page of the
        bridge.

        Raises:
            PeerError: a question cannot be passed on.
        """
        answers = {
            key: self._known.pop(question_fingerprint(params), None) for key, params in questions.items()
        }
        mine = {
            key: _OpenQuestion(elicitation_from(key, params, is_login=is_login), new_occasion())
            for key, params in questions.items()
            if answers[key] is None
        }
        own_questions = [waiting.question for waiting in mine.values()]
        held = partial(answers_held, self._job.held, own_questions, self._pace.held_answer_seconds)
        for key, answer in (await done_slowly(held)).items():
            answers[key] = answer
            del mine[key]
        if mine:
            self._open |= mine
            self._patience.pause()
            if is_shown:
                self._start_listening()
            else:
                self._show({})
            try:
                await self._answered(mine)
            finally:
                self._forget(mine)
        return {key: answer or mine[key].answer for key, answer in answers.items()}

    async def _answered(self, mine: Mapping[str, _OpenQuestion]) -> None:
        with anyio.move_on_after(self._pace.seconds_left) as waiting:
            self._waits.add(waiting)
            try:
                for entry in mine.values():
                    await entry.answered.wait()
                    if entry.stored is not None:
                        await entry.stored
            finally:
                self._waits.discard(waiting)
        if self._pace.has_expired:  # even if the answer has just arrived
            self.gave_up = self.gave_up or RIGHTS_ENDED.format(self._pace.server)
            self._patience.restart(0)
        elif waiting.cancelled_caught:
            self.gave_up = self.gave_up or UNANSWERED.format(self._pace.server, self._pace.timeout_seconds)
            self._patience.restart(self._pace.wind_up_seconds)

    def miss_question(self, calls: int) -> None:
        """See `Asker.miss_question`."""
        self.missed = MISSED.format(calls)

    def _announce_contention(self, seconds: float) -> None:
        """Tell the client until when it may answer, since other calls wait for this call's slot."""
        if self._shown is None:
            return
        words = words_on_contention(seconds, self._job.events.ids.now_ms())
        self._shown = self._shown.changed(parts=(*self._shown.parts, Part(text=words)))
        self._ask(self._unanswered(), self._shown)

    def _withdraw_all(self) -> None:
        """Withdraw the questions, since other calls have waited long enough."""
        self.gave_up = GAVE_WAY
        for waiting in tuple(self._waits):
            waiting.cancel()

    def withdraw(self, key: str) -> None:
        """See `Asker.withdraw`."""
        self._open.pop(key, None)  # `ask` may have removed it already
        if not self._is_asking:
            return
        if self._unanswered():
            self._show({})
        else:
            self._is_asking = False
            self._resume_call()
            self._job.status(TaskState.WORKING, self._job.message((Part(text=_TAKEN_BACK),)))

    def _forget(self, mine: Mapping[str, _OpenQuestion]) -> None:
        for key, waiting in mine.items():
            if self._open.get(key) is waiting:
                del self._open[key]
        if not self._open:
            self._resume_call()

    def _resume_call(self) -> None:
        self._stop_listening()
        self._patience.resume()

    def _stop_listening(self) -> None:
        self._job.listen(None)
        if self._slot is not None:
            self._slot.go_on()

    def _show(self, problems: Mapping[str, tuple[Problem, ...]]) -> None:
        """Ask the open questions in a new message."""
        questions = self._unanswered()
        self._start_listening()
        for key in problems:
            self._open[key].occasion = new_occasion()
        occasions = {question.key: self._open[question.key].occasion for question in questions}
        parts = parts_of_questions(questions, problems, occasions)
        self._shown = message_with_notes(self._job, parts, question_metadata(questions))
        self._ask(questions, self._shown)
        if self._slot is not None:
            self._slot.hold(self._announce_contention, self._withdraw_all)

    def _start_listening(self) -> None:
        self._is_asking = True
        self._job.listen(self._read_answers)

    def _ask(self, questions: Sequence[Elicitation], message: Message) -> None:
        text = self._keep({question.key: question.params for question in questions}, self._of_turn)
        self._job.status(state_of_questions(questions), message, keep=text)

    def _read_answers(self, turn: Turn) -> Callable[[Commit], None]:
        """Read the answers in a message of the client. The returned function applies the answers once the message is
        accepted."""
        message = with_metadata(turn.message, turn.metadata)
        answers = answers_from(message, self._unanswered(), fill_defaults=URI not in turn.extensions)

        def accepted(stored: Commit) -> None:
            self._job.turn, self._of_turn = turn, trace.context.get()
            for key, answer in answers.given.items():
                waiting = self._open[key]
                waiting.answer, waiting.stored = answer, stored
                waiting.answered.set()
            if self._unanswered():
                self._show_again(answers.problems)
            else:
                self._is_asking = False
                self._stop_listening()

        return accepted

    def _show_again(self, problems: Mapping[str, tuple[Problem, ...]]) -> None:
        """Ask the questions that are still open, or give up after too many answers that do not fit."""
        for key in problems:
            self._open[key].misfits += 1
        misfits = max(waiting.misfits for waiting in self._open.values())
        if misfits < self._pace.tries:
            self._show(problems)
            return
        self.gave_up = words_on_misfits(misfits, self._unanswered(), problems)
        self._is_asking = False
        self._stop_listening()
        for waiting in tuple(self._waits):
            waiting.cancel()

    def _unanswered(self) -> list[Elicitation]:
        return [waiting.question for waiting in self._open.values() if not waiting.answered.is_set()]


def answers_held(
    held: list[HeldMessage], questions: Sequence[Elicitation], within_seconds: float
) -> dict[str, JsonObject]:
    """The answers to questions in messages that arrived while the task worked. Used messages are removed from `held`.

    A message answers the question that it names. A message that names no question is an answer if it fits and arrived
    within the last `within_seconds`: it may have been sent just before the question arrived. No such message counts as
    a visit to a URL.
    """
    since = anyio.current_time() - within_seconds
    answers: dict[str, JsonObject] = {}
    used: list[HeldMessage] = []
    for held_turn in tuple(held):
        left = [question for question in questions if question.key not in answers]
        message = with_metadata(held_turn.turn.message, held_turn.turn.metadata)
        if QUESTION in (message.metadata or {}):
            fitting = named_answers(message, left)
        else:
            fitting = fitting_answers(message, left) if held_turn.since >= since else {}
        if fitting:
            used.append(held_turn)
            answers |= fitting
    for held_turn in used:  # only now, since no SlowWork can be raised any more
        held.remove(held_turn)
    return answers


def new_occasion() -> str:
    """A random id for one occasion on which a question is asked."""
    return secrets.token_hex(4)


def question_fingerprint(params: JsonObject) -> str:
    """Identifies a question when the call is repeated: the params without the fields that differ each time."""
    lasting = {key: value for key, value in params.items() if key not in ("_meta", "elicitationId")}
    return json.dumps(lasting, sort_keys=True)
